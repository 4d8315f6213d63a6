"""Class counts of a batch, restored from its gradient."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.func import jacrev

from seepage.attacks.horizontal.exact.defended import counts_by_effects, counts_by_sign, lost_to_clipping, weigh_counts
from seepage.attacks.horizontal.matching.published_labels import by_embedding, by_impact, by_minimum, by_sign
from seepage.errors import BadInputError, check_choice
from seepage.learning import gradient
from seepage.models.calling import call, watched
from seepage.models.model import Model
from seepage.tabular.encoder import Encoder
from seepage.wire.horizontal import GradientView, Knowledge

Method = Literal["bias", "bias_gaussian", "geng", "idlg", "yin", "llg", "ilrg"]

_BIAS_DUMMIES, _GENG_DUMMIES = 8192, 1000
_CLASS_DUMMIES = 512  # number of dummy rows whose mean gradient stands for a class
_CLIPPED_DUMMIES = 512  # number of dummy rows whose own gradient is computed, with each class as their label
# Number of dummy rows with which the output layer is looked for, and what counts as rounding there.
_LOOKED_AT, _TERM = 64, 1e-4
# Largest parameter, in numbers, that is tried as an output bias, and number of dummy rows that it has to move alike.
_LARGEST_BIAS, _MOVED = 8192, 8


def restore_labels(
    view: GradientView, knowledge: Knowledge, encoder: Encoder, method: Method = "bias", seed: int = 0
) -> Float[Tensor, "victim record"]:
    """Return labels with the restored class counts, in order of class.

    The derivative of the mean cross-entropy by the output bias of class c is exactly the mean predicted probability of
    c less the share of records labelled c. Only that mean over the unknown batch has to be estimated: over dummy rows
    of the public marginals (``bias``), over standard normal ones (``bias_gaussian``), or from the output *weights'*
    gradient (``geng``: Geng et al. 2021 as TabLeak's code runs it, D13). Without an output bias, ``bias`` reads a
    parameter that shifts the outputs of all records alike, or else fits the whole gradient. Of the other four see
    ``published_labels``.

    The first two take a known defense into account: noise (``weigh_counts``), missing magnitudes (``counts_by_sign``)
    and a bound on each record's own gradient (``lost_to_clipping``); a clipped gradient's length is to be restored
    before (``undo_clipping``). An entry that was not sent is taken as 0. The seed is the same for every victim and
    every audit: more dummy rows have less effect than the rounding of counts.
    """
    check_choice("label restoration", method, Method)
    model = view.model
    if model.head == "regression":
        raise BadInputError(
            f"the labels of model {model.name!r} are numbers (regression head): they cannot be restored from a "
            "gradient. Grant them (labels='true') or audit a classifier."
        )
    if method in ("idlg", "yin", "llg", "ilrg"):
        return _published(view, knowledge, method, _gaussian(encoder, _GENG_DUMMIES, seed))
    if method == "geng":
        dummies = _gaussian(encoder, _GENG_DUMMIES, seed)
    elif method == "bias_gaussian":
        dummies = _gaussian(encoder, _BIAS_DUMMIES, seed)
    else:
        generator = torch.Generator().manual_seed(seed)
        uniform = torch.rand(_BIAS_DUMMIES, len(knowledge.schema.columns), generator=generator, dtype=torch.float64)
        dummies = encoder.encode(knowledge.statistics.rows(uniform).to(encoder.mean.device))
    places, ends = _ends(view, dummies)
    layer, name = ends[0].layer, ends[0].name
    chances = [end.outputs.softmax(-1) if model.head == "softmax" else end.outputs.sigmoid() for end in ends]
    mean = torch.stack([part.mean(0) for part in chances]).expand(view.victims, -1)
    defense = knowledge.defense
    if method == "geng" and defense.signs:
        raise BadInputError(
            f"label restoration 'geng' needs the magnitudes of the output layer's gradient, of which the defense "
            f"{defense.name!r} keeps only the signs; grant the true labels, use the profile 'default', which restores "
            "them from the bias, or leave this defense out."
        )
    if method == "geng":
        if layer is None:
            raise _no_end(model)
        activation = torch.stack([end.inputs.sum(-1).mean() for end in ends])
        least = min(float(end.inputs.min()) for end in ends)
        if least < 0 or not (activation > 0).all():
            raise BadInputError(
                f"label restoration 'geng' divides by the mean input of the output layer, taken to be positive; for "
                f"model {model.name!r} inputs go down to {least:g} and have mean sum "
                f"{float(activation.min()):g} (it needs a hidden ReLU layer); grant the true labels or use the "
                "profile 'default', which restores them from the bias."
            )
        moved = view.gradient[_joined(name, "weight")].double().sum(-1) / activation[:, None]
    elif layer is None or layer.bias is None:
        if defense.signs or defense.record_norm is not None or defense.kept < 1:
            raise BadInputError(
                f"grant the labels (labels='true'): under the defense {defense.name!r} they are restored from an "
                f"output bias, of which model {model.name!r} sends none of its own."
            )
        shifts = _by_shifts(view, dummies, places)
        moved = mean - _by_classes(view, dummies[:_CLASS_DUMMIES], places) if shifts is None else shifts
    else:
        moved = view.gradient[_joined(name, "bias")].double()
    if method != "geng" and not model.form.plain:
        outputs = torch.stack([end.outputs for end in ends]).expand(view.victims, -1, -1)
        return spell_out(_under_form(model, outputs, moved, knowledge.batch_size), knowledge.batch_size)
    counts = knowledge.batch_size * (mean - moved)
    growth: Tensor | float = 1.0
    if method != "geng" and defense.record_norm is not None:
        clipped, bias = dummies[:_CLIPPED_DUMMIES], _joined(name, "bias")
        lost = torch.stack([lost_to_clipping(model, bias, clipped, defense.record_norm, place) for place in places])
        outputs = mean.shape[-1]
        of_class = torch.eye(max(2, outputs), dtype=mean.dtype, device=mean.device)[:, -outputs:]
        counts, growth = counts_by_effects(moved, mean[: len(lost), None] - of_class - lost, knowledge.batch_size)
        if model.head == "sigmoid":
            counts, growth = counts[:, 1:], growth[:, 1:]
    if method != "geng" and (defense.signs or defense.noise > 0):
        share = knowledge.statistics.target.probabilities.to(mean.device)[-mean.shape[-1] :]
        if defense.signs:
            by_victim = zip(moved.sign().split(1), mean, strict=True)
            counts = torch.cat([counts_by_sign(signs, m, knowledge.batch_size, share) for signs, m in by_victim])
        counts = weigh_counts(counts, knowledge, share, growth)
    if model.head == "sigmoid":
        counts = torch.cat([knowledge.batch_size - counts, counts], dim=-1)
    return spell_out(counts, knowledge.batch_size)


def _under_form(
    model: Model, outputs: Float[Tensor, "victim dummy output"], moved: Float[Tensor, "victim output"], records: int
) -> Float[Tensor, "victim class"]:
    """Return class counts from an output bias's gradient under a declared form of message.

    It is the sum over records of their slopes, of which each class has a mean over the dummies. Slopes of a softmax add
    up to zero, so that another equation is needed: the number of records or, where a mean is over the weights of the
    records' classes, the sum of these.
    """
    form = model.form
    slopes = form.slopes(model.head, outputs.double()).mean(1) * float(form.scale)
    classes = slopes.shape[1]
    weighted = model.head == "softmax" and form.loss == "cross_entropy" and form.reduction == "mean" and form.weights
    total = slopes.new_tensor(form.weights) if weighted else slopes.new_ones(classes)
    count = 1.0 if weighted or form.reduction == "mean" else float(records)
    matrix = torch.cat([slopes, total.expand(len(slopes), 1, classes).mT], 2)
    right = torch.cat([moved.double(), moved.new_full((len(moved), 1), count, dtype=torch.float64)], 1)
    counts = (right[:, None] @ torch.linalg.pinv(matrix))[:, 0]
    return counts.clamp(min=0) * (records / counts.clamp(min=0).sum(1, keepdim=True).clamp(min=1e-9))


def _published(view: GradientView, knowledge: Knowledge, method: Method, dummies: Tensor) -> Tensor:
    """Return labels as a published method restores them, or refuse a case outside its assumptions."""
    model, records = view.model, knowledge.batch_size
    places, ends = _ends(view, dummies)
    layer, name = ends[0].layer, ends[0].name
    if layer is None:
        raise _no_end(model)
    named = f"label restoration {method!r}"
    others = "grant the labels (labels='true') or use the method 'bias'."
    if method == "idlg" and records > 1:
        raise BadInputError(
            f"{named} reads the label of one record, but each gradient is of {records} records; {others}"
        )
    if model.head == "sigmoid" and method in ("yin", "llg"):
        raise BadInputError(
            f"{named} compares the outputs of the classes, but model {model.name!r} has one for both (sigmoid head); "
            + others
        )
    if knowledge.defense.signs and method != "idlg":
        raise BadInputError(
            f"{named} needs magnitudes of the output layer's gradient, of which the defense "
            f"{knowledge.defense.name!r} keeps only the signs; {others}"
        )
    by_weights = method in ("yin", "llg") or (method == "idlg" and layer.bias is None)
    least = min(float(end.inputs.min()) for end in ends)
    if by_weights and least < 0:
        raise BadInputError(
            f"{named} needs inputs of the output layer that are not negative (a hidden ReLU layer); for model "
            f"{model.name!r} they go down to {least:g}; {others}"
        )
    if layer.bias is None and method == "ilrg":
        raise BadInputError(f"{named} reads the output layer's bias, and {name!r} of {model.name!r} has none; {others}")
    weights = view.gradient[_joined(name, "weight")].double()
    outputs = weights.shape[1]
    if method == "yin" and records > outputs:
        raise BadInputError(
            f"{named} takes each class to have one record at most, but each gradient is of {records} records and "
            f"there are {outputs} classes; {others}"
        )
    bias = weights.sum(-1) if layer.bias is None else view.gradient[_joined(name, "bias")].double()
    if model.head == "sigmoid":
        # One logit equals the second of two logits whose first is 0.
        weights, bias = torch.cat([-weights, weights], 1), torch.cat([-bias, bias], 1)
    if method == "idlg":
        counts = by_sign(bias)
    elif method == "yin":
        counts = by_minimum(weights, records)
    elif method == "llg":
        counts = by_impact(weights.sum(-1), records)
    else:
        tensors = [
            torch.stack([place[_joined(name, part)].detach().double() for place in places])
            for part in ("weight", "bias")
        ]
        if model.head == "sigmoid":
            tensors = [torch.cat([torch.zeros_like(tensor), tensor], 1) for tensor in tensors]
        counts = by_embedding(weights, bias, (tensors[0], tensors[1]), records)
    return spell_out(counts, records)


def spell_out(counts: Float[Tensor, "victim class"], records: int) -> Float[Tensor, "victim record"]:
    """Return labels in order of class, given one after the other to the class with the largest remaining count."""
    remaining = counts.clone()
    given = torch.zeros_like(counts)
    for _ in range(records):
        largest = nn.functional.one_hot(remaining.argmax(-1), counts.shape[-1]).to(counts.dtype)
        remaining -= largest
        given += largest
    ends = given.cumsum(-1)[:, None, :]
    positions = torch.arange(records, device=counts.device, dtype=counts.dtype)[None, :, None]
    return (positions >= ends).sum(-1).to(counts.dtype)


class _End(NamedTuple):
    """The affine layer whose error is that of the outputs, with its inputs and these outputs; empty without one."""

    layer: nn.Linear | None
    name: str
    inputs: Tensor
    outputs: Tensor


def _ends(view: GradientView, rows: Tensor) -> tuple[list[dict[str, Tensor]], list[_End]]:
    """Return parameters and output layer: each victim's where its gradient was taken at its own, else those of all."""
    places = [view.model.parameters]
    if view.parameters is not None:
        places = [view.place(victim) for victim in range(view.victims)]
    return places, [_output_layer(view.model, rows, place) for place in places]


def _output_layer(model: Model, rows: Tensor, parameters: dict[str, Tensor]) -> _End:
    """Return the affine layer that returns the model's outputs, or one of the terms of which they are the sum."""
    calls: list[_End] = []

    def listen(layer: nn.Linear, name: str) -> Callable[[nn.Module, tuple[Tensor], Tensor], None]:
        return lambda _, inputs, outputs: calls.append(_End(layer, name, inputs[0].clone(), outputs))

    # A subclass may use its parameters in any way.
    linear = [(part, name) for name, part in model.module.named_modules() if type(part) is nn.Linear]
    layers = [(part, name) for part, name in linear if all(p.requires_grad for p in part.parameters())]
    handles = [layer.register_forward_hook(listen(layer, name)) for layer, name in layers]
    try:
        with torch.no_grad():
            outputs = call(model.module, parameters, rows)
    finally:
        for handle in handles:
            handle.remove()
    alike = [end for end in calls if end.outputs.shape == outputs.shape]
    ends = [end for end in alike if torch.equal(end.outputs, outputs)]
    if not ends:
        ends = [end._replace(outputs=outputs) for end in alike if _is_term(model, end.name, rows[:_LOOKED_AT])]
    # The gradient of a layer that runs more than once mixes its roles.
    if not ends or sum(end.layer is ends[-1].layer for end in calls) > 1:
        return _End(None, "", rows[:, :0].double(), outputs.double())
    end = ends[-1]
    return _End(end.layer, end.name, end.inputs.double(), end.outputs.double())


def _no_end(model: Model) -> BadInputError:
    return BadInputError(
        f"model {model.name!r} does not end in an nn.Linear layer of its own, nor in a sum of such, from whose "
        "gradient labels are restored; grant the labels (labels='true')."
    )


def _by_shifts(view: GradientView, rows: Tensor, places: list[dict[str, Tensor]]) -> Tensor | None:
    """Return the mean error of each output, (victim, output), from a parameter that shifts all records alike."""
    # The gradient of such a parameter is the derivative of the outputs, which is the same for every record, times that.
    model = view.model
    for parameter, part in reversed(view.gradient.items()):
        if part[0].numel() > _LARGEST_BIAS:
            continue
        ways = [_shift(model, parameter, rows[:_MOVED], place) for place in places]
        received = part.double().flatten(1)
        inverses = [torch.linalg.pinv(jacobian) for jacobian in ways if jacobian is not None]
        if len(inverses) == len(ways):
            return (received[:, None] @ torch.stack(inverses))[:, 0]
    return None


def _by_classes(
    view: GradientView, rows: Float[Tensor, "row encoded"], places: list[dict[str, Tensor]]
) -> Float[Tensor, "victim class"]:
    """Return the share of each class of a softmax, or of the second one of a sigmoid."""
    # A batch's gradient is, on average over its rows, the mean over its labels of that of rows with this label.
    model = view.model
    received = torch.cat([part.double().flatten(1) for part in view.gradient.values()], 1)
    classes = max(2, call(model.module, places[0], rows[:_MOVED]).shape[-1])
    means = []
    for place in places:
        by_class = [gradient(model, rows, torch.full_like(rows[:, 0], c), place) for c in range(classes)]
        flat = [torch.cat([part.double().flatten() for part in named.values()]) for named in by_class]
        means.append(torch.stack(flat))
    ways = torch.stack(means).expand(view.victims, -1, -1)
    others = torch.linalg.lstsq((ways[:, 1:] - ways[:, :1]).mT, (received - ways[:, 0])[..., None]).solution[..., 0]
    shares = torch.cat([1 - others.sum(1, keepdim=True), others], 1).clamp(0, 1)
    return shares if model.head == "softmax" else shares[:, 1:]


def _shift(model: Model, name: str, rows: Tensor, parameters: dict[str, Tensor]) -> Tensor | None:
    """Return the derivative of the outputs by a parameter, (output, number)."""
    # None where it differs by record, or leaves a direction of the outputs out.

    def outputs(parameter: Tensor) -> Tensor:
        return call(model.module, {**parameters, name: parameter}, rows)

    derivative = jacrev(outputs)(parameters[name].detach()).double().flatten(2)
    largest = derivative.abs().max()
    if not bool((derivative - derivative[:1]).abs().max() <= _TERM * largest):
        return None
    whole = int(torch.linalg.matrix_rank(derivative[0])) == derivative.shape[1] if largest > 0 else False
    return derivative[0] if whole else None


def _is_term(model: Model, name: str, rows: Tensor) -> bool:
    """Return whether a layer's output is added to the model's outputs and goes nowhere else."""
    plain = watched(model.module, [name], rows)
    returned = plain.layers[0].returned
    # Shifts that differ by row and output: a sum over either would be seen.
    shift = torch.linspace(-1, 1, returned.numel()).view_as(returned).to(returned)
    moved = watched(model.module, [name], rows, {name: returned + shift})
    return bool(((moved.outputs - plain.outputs - shift).abs() < _TERM * plain.outputs.abs().max().clamp_min(1)).all())


def _joined(layer: str, parameter: str) -> str:
    return f"{layer}.{parameter}" if layer else parameter


def _gaussian(encoder: Encoder, rows: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, encoder.width, generator=generator, dtype=encoder.mean.dtype).to(encoder.mean.device)
