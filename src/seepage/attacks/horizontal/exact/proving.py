"""Input of the kernel's proof of a guess: the message, how it was computed, and the records as a witness."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, asdict, fields

import torch
from jaxtyping import Float
from torch import Tensor

from seepage import kernel
from seepage.learning import mean_loss
from seepage.models.copies import copied
from seepage.models.model import Model
from seepage.tabular.schema import Continuous, Discrete, Schema
from seepage.tabular.statistics import Statistics
from seepage.wire.horizontal import Knowledge, UpdateView, View

_MOVED_TOGETHER = 200  # numbers of a batch that are moved together, at the most


# Doubt where only some records were read.
NO_WITNESS = "not all records were read, so that none can be replayed"
# What a proof is given where parameters that the attacker does not know stayed with the client.
OWN_VALUES = "the parameters that stayed with the client have the model's values"
_Tensors = Mapping[str, Tensor]
_Cells = Float[Tensor, "record column"]


def columns_of(schema: Schema, statistics: Statistics) -> tuple[kernel.EncodedColumn, ...]:
    """Return the columns of a schema as the kernel takes them."""
    columns = []
    for column, block in zip(schema.columns, schema.blocks, strict=True):
        moments = tuple(statistics.mean[block].tolist()), tuple(statistics.std[block].tolist())
        if isinstance(column, Discrete):
            columns.append(kernel.EncodedColumn(column.name, *moments, tuple(column.categories)))
        else:
            ends = column.low, column.high, column.tolerance, column.integer
            columns.append(kernel.EncodedColumn(column.name, *moments, None, *ends))
    return tuple(columns)


def declaration(view: View, knowledge: Knowledge) -> kernel.Declaration:
    """Return the attacker's knowledge of how messages were computed; refused where the kernel has no rule."""
    if not view.model.form.plain:
        raise kernel.RefusedError(f"the kernel has no rule for this form of message ({view.model.form.describe()})")
    training = view.training if isinstance(view, UpdateView) else None
    if training is not None:
        usual = {f.name: f.default for f in fields(training) if f.default is not MISSING}
        changed = [name for name, value in asdict(training).items() if name in usual and value != usual[name]]
        if isinstance(view, UpdateView) and view.clients > 1:
            raise kernel.RefusedError("updates of several clients are added up")
        if view.model.local is not None and view.model.local.trained and training.epochs > 1:
            raise kernel.RefusedError("parameters that stayed with the client are trained in each of several steps")
        if changed or len(training.batches(knowledge.batch_size)) > 1:
            what = ", ".join(changed) or "local batches"
            raise kernel.RefusedError(f"the local training is no plain SGD over all records at once ({what})")
    target = knowledge.schema.target
    return kernel.Declaration(
        columns_of(knowledge.schema, knowledge.statistics),
        knowledge.batch_size,
        view.model.head,
        (target.low, target.high) if isinstance(target, Continuous) else (0.0, 0.0),
        1 if training is None else training.epochs,
        None if training is None else float(training.learning_rate),
        "float32" if view.precision == "full" else view.precision,
        knowledge.defense.name,
    )


def proofs_of(
    view: View,
    knowledge: Knowledge,
    cells: Float[Tensor, "victim record column"],
    labels: Float[Tensor, "victim record"],
    doubts: Sequence[str | None],
) -> tuple[kernel.Certified, ...]:
    """Return the proof of each victim's guess, see ``proof_of``."""
    victims = zip(cells, labels, doubts, strict=True)
    return tuple(proof_of(view, knowledge, i, *guess) for i, guess in enumerate(victims))


def proof_of(
    view: View, knowledge: Knowledge, victim: int, cells: _Cells, labels: Tensor | None, doubt: str | None
) -> kernel.Certified:
    """Return the proof of a victim's guess; ``doubt`` says why the records are no witness, such as estimates."""
    try:
        if doubt is not None:
            raise kernel.RefusedError(doubt)
        place = view.place(victim) if not isinstance(view, UpdateView) else view.model.parameters
        message = {name: part[victim].detach().cpu() for name, part in view.message.items()}
        parameters = {name: part.detach().cpu() for name, part in place.items()}
        declared = declaration(view, knowledge)
    except kernel.RefusedError as why:
        return kernel.nothing(len(cells), cells.shape[1], str(why))
    witness = cells.cpu()
    proof_labels = labels_of(view.model, parameters, message, declared, witness) if labels is None else labels.cpu()
    witness = _refined(view.model, parameters, message, declared, witness, proof_labels)
    proof = kernel.certify(view.model.module, parameters, message, declared, witness, proof_labels)
    local = view.model.local
    # The kernel takes what was not sent from the network, and the client may have other values.
    return proof if local is None or local.known else proof.given_that(OWN_VALUES)


def labels_of(
    model: Model, parameters: _Tensors, message: _Tensors, declared: kernel.Declaration, cells: _Cells
) -> Float[Tensor, " record"]:
    """Return the labels with which records explain a mean gradient best."""
    # It is linear in the errors at the outputs, which are least squares' answer; an output less its error is the label.
    doubles = {name: part.double() for name, part in parameters.items()}
    module, rows = copied(model.module).double(), declared.rows(cells)

    def outputs(tensors: dict[str, Tensor], row: Tensor) -> Tensor:
        return torch.func.functional_call(module, tensors, (row[None],))[0]

    slopes = torch.func.vmap(torch.func.jacrev(outputs), in_dims=(None, 0))(doubles, rows)
    flat = torch.cat([slopes[name].flatten(2) for name in message], 2)
    received = torch.cat([part.double().flatten() for part in message.values()]) / (declared.rate or 1.0)
    solved = torch.linalg.lstsq(flat.flatten(0, 1).T, received[:, None] * len(cells) / declared.steps).solution
    errors = solved.view(flat.shape[:2])
    with torch.no_grad():
        outputs_here = torch.func.functional_call(module, doubles, (rows,))
    if model.head == "softmax":
        return (outputs_here.softmax(1) - errors).argmax(1).double()
    if model.head == "sigmoid":
        return (outputs_here.sigmoid() - errors)[:, 0].round().clamp(0, 1)
    return outputs_here[:, 0] - errors[:, 0] / 2


def _refined(
    model: Model, parameters: _Tensors, message: _Tensors, declared: kernel.Declaration, cells: _Cells, labels: Tensor
) -> _Cells:
    """Return cells whose numbers, where they are not whole, are moved to explain a gradient best."""
    # What an attack reads to its own precision may miss the message by more than the message's roundings.
    place = [i for i, column in enumerate(declared.columns) if column.categories is None and not column.integer]
    if not place or declared.steps > 1 or len(cells) * len(place) > _MOVED_TOGETHER or not cells.isfinite().all():
        return cells
    module = copied(model.module).double()
    doubles = {name: part.double() for name, part in parameters.items()}
    scale = {name: 1 / float(part.double().abs().max().clamp(min=1e-300)) for name, part in message.items()}
    flat = lambda tensors: torch.cat([(tensors[name] * scale[name]).flatten() for name in message])  # noqa: E731
    received = flat({name: part.double() / (declared.rate or 1.0) for name, part in message.items()})

    def filled(numbers: Tensor) -> Tensor:
        parts = [cells[:, i] if i not in place else numbers[:, place.index(i)] for i in range(cells.shape[1])]
        return declared.rows(torch.stack([part.double() for part in parts], 1))

    def sent(numbers: Tensor) -> Tensor:
        def loss(tensors: dict[str, Tensor]) -> Tensor:
            outputs = torch.func.functional_call(module, tensors, (filled(numbers),))
            return mean_loss(model.head, outputs, labels.double())

        return flat(torch.func.grad(loss)(doubles))

    numbers = cells[:, place].double()
    low, high = (torch.tensor([getattr(declared.columns[i], end) for i in place]).double() for end in ("low", "high"))
    try:
        for _ in range(2):
            # J v by two reverse passes: forward ones make PyTorch compile, and warn.
            now, pull = torch.func.vjp(sent, numbers)[:2]
            push = torch.func.vjp(lambda back, pull=pull: pull(back)[0], torch.zeros_like(now))[1]
            directions = torch.eye(numbers.numel(), dtype=now.dtype).view(-1, *numbers.shape)
            [slope] = torch.func.vmap(push)(directions)
            move = torch.linalg.lstsq(slope.T, received - now).solution.view_as(numbers)
            moved = (numbers + move.nan_to_num(0.0, 0.0, 0.0)).clamp(low, high)
            if not float((sent(moved) - received).norm()) < float((sent(numbers) - received).norm()):
                break
            numbers = moved
    except RuntimeError:  # A module without second derivatives.
        return cells
    refined = cells.double().clone()
    refined[:, place] = numbers
    return refined
