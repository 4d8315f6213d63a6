"""Networks of any form at given parameters: their linear maps are watched while the module runs.

Of the layers that distinguish records (``probes``), those whose input is affine in the encoded row come first. They
need no run: a search has their inputs from one matrix. Of the deeper ones a search compares those with the most
dimensions (taps), and more where some columns move none of them, as with towers that meet at the end only.

Whatever the module does in between is run as it is. A search changes one cell at a time, and wants to add a column to
something that everything else follows from: the state. That is the first layer's outputs where no other path leads
from the row into the network, which is tried by runs that are given these outputs alone; else it is the row itself.
Derivatives of the taps' inputs along the numbers are central differences of such runs, in float64 with a step h of 1e-6
in standardised units: they are off by about h^2 = 1e-12 for the step, and by 1e-16 / h = 1e-10 for rounding.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from weakref import WeakKeyDictionary

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from seepage.attacks.horizontal.exact.chains import affine_layers
from seepage.attacks.horizontal.exact.gradients import SAME, Gradient
from seepage.attacks.horizontal.exact.networks import ForwardRun, Tap, Tower
from seepage.attacks.horizontal.exact.probes import (
    NAMED,
    LayerProbe,
    Probes,
    UnreadableError,
    WatchedLayer,
    close,
    probed,
    watched_run,
)
from seepage.attacks.horizontal.exact.spans import Span
from seepage.attacks.horizontal.matching.starts import Starts
from seepage.models.batch_norm import BatchNorm, Moments, normalisations
from seepage.models.calling import call
from seepage.models.copies import copied
from seepage.models.linear_calls import linear_calls
from seepage.models.model import Model
from seepage.tabular.encoder import Encoder
from seepage.tabular.schema import Schema
from seepage.tabular.statistics import Statistics
from seepage.wire.horizontal import GradientView

_MOST_ROWS = 1024  # largest number of typical rows
_FEW_ROWS = 64  # rows with which it is seen whether all else follows from the first layer's outputs
_STEP = 1e-6  # step of central differences, in standardised units
_OPEN = 1e-7  # slope, as a share of the largest, that leaves no trace: above the error of central differences
_AS_GOOD = 0.9  # share of the best layer's dimensions that another one needs to be searched as well
# Most layers that are searched beside the first one, and those where no layer takes a row itself.
_TAPS, _TAPS_ALONE = 1, 3
_ADDED_UP = 64.0  # squared length of what is added up to a deeper layer's input, in units of its own: generous


@dataclass(frozen=True)
class TracedNetwork:
    """A module in float64 and evaluation mode whose linear maps are watched, see ``Layered``.

    A layer counts whose weight's gradient is the sum over records of one error times one input, which depends on that
    record alone; of several inputs one alone may have an error. The state is the first layer's outputs, or the row.
    """

    module: nn.Module
    layers: tuple[WatchedLayer, ...]  # the ones that are affine in the row first
    outputs: int
    # From the encoded row to the affine layers' inputs.
    maps: tuple[tuple[Float[Tensor, "_ encoded"], Float[Tensor, " _"]], ...]
    state_weight: Float[Tensor, "state encoded"]
    state_bias: Float[Tensor, " state"]
    by_outputs: bool  # whether all else depends on the first layer's outputs alone
    taps: tuple[Tap, ...]
    memory: int  # numbers a row that computing the taps' inputs takes
    work: int  # multiplications of a row's pass
    probes: Probes
    last: WatchedLayer | None  # layer whose errors are those of the outputs
    towers: tuple[Tower, ...]

    @classmethod
    def of(
        cls,
        model: Model,
        rows: Float[Tensor, "row encoded"],
        parameters: Mapping[str, Tensor],
        moments: Mapping[str, Moments] | None = None,
        encoder: Encoder | None = None,
    ) -> TracedNetwork:
        """Return the traced network of a model, whose layers are probed with typical rows in float64."""
        # ``moments``: those of each normalisation by the batch; ``encoder``: where only a table's rows are affine.
        normalised = normalisations(model.module)
        if normalised and not moments:
            raise UnreadableError("batch normalisation behind which a record's error depends on the others")
        trained = copied(model.module).double()
        _load(trained, parameters)
        module = trained.eval()
        if normalised:
            module = frozen(trained, moments or {})
            for name, part in model.module.named_modules():
                trained.get_submodule(name).training = part.training
        probed_layers, probes, refused = probed(module, trained, model.head, rows, encoder)
        # Errors at the outputs of a softmax add up to zero.
        most = 2 * (probed_layers[0].outputs - (model.head == "softmax"))
        chosen = [layer for layer in probed_layers if layer.rank > most]
        chosen.sort(key=lambda layer: layer.linear is None)
        inner = [layer for layer in probed_layers if not layer.at_end]
        small = [f"the gradient of {layer.layer.name!r} has {layer.rank} dimensions" for layer in inner]
        reasons = "; ".join([*dict.fromkeys(refused), *small][:NAMED])
        alone = "no layer behind which single records could be told apart" + (f" ({reasons})" if reasons else "")
        if not chosen:
            raise UnreadableError(alone)
        affine = sum(layer.linear is not None for layer in chosen)
        by_outputs = bool(affine) and _by_outputs(module, chosen[0].layer, rows[:_FEW_ROWS])
        deeper = [(index, layer) for index, layer in enumerate(chosen) if layer.linear is None]
        best = max((layer.rank for _, layer in deeper), default=0)
        number = _TAPS if affine else _TAPS_ALONE
        taps = [Tap(index, layer.inputs, layer.scale) for index, layer in deeper if layer.rank >= _AS_GOOD * best]
        # The layers nearest to the outputs have the most between them and the row.
        taps = taps[:number] if affine else taps[-number:]
        moving = _moving(module, rows[:_FEW_ROWS], chosen)
        taps, towers = _covering(chosen, taps, moving), _towers(moving)
        if not affine and not taps:
            raise UnreadableError(alone)
        maps = tuple(layer.linear for layer in chosen if layer.linear is not None)
        layers = tuple(layer.layer for layer in chosen)
        state = _state(module, layers[0], maps, probes, by_outputs)
        last = next((layer.layer for layer in reversed(probed_layers) if layer.at_end), None)
        outputs, memory, work = probed_layers[0].outputs, probed_layers[0].numbers, probed_layers[0].work
        return cls(module, layers, outputs, maps, *state, by_outputs, taps, memory, work, probes, last, towers)

    def with_parameters(self, parameters: Mapping[str, Tensor]) -> TracedNetwork:
        """Return the same network with other parameters of the same names."""
        module = copied(self.module)
        _load(module, parameters)
        places = [layer.place for layer in self.layers[: self.affine]]
        calls = {call.place: call for call in linear_calls(module, self.probes.rows, places).calls} if places else {}
        pairs = zip(self.layers, self.maps, strict=False)
        maps = tuple(self.probes.map(layer.chosen(calls[layer.place].entering)) for layer, _ in pairs)
        state = _state(module, self.layers[0], maps, self.probes, self.by_outputs)
        return replace(self, module=module, maps=maps, state_weight=state[0], state_bias=state[1])

    @property
    def affine(self) -> int:
        """Number of leading layers whose inputs are affine in the encoded row."""
        return len(self.maps)

    @property
    def hidden(self) -> int:
        """All watched layers."""
        return len(self.layers)

    @property
    def parameters(self) -> list[tuple[str, str | None]]:
        """Names of each watched layer's weights, the first of those it is computed from, and bias."""
        return [(layer.weights[0], layer.bias) for layer in self.layers]

    @property
    def takes_rows(self) -> bool:
        """Whether the first layer takes the encoded row itself and has a bias."""
        if not self.maps or self.layers[0].bias is None:
            return False
        linear, constant = self.maps[0]
        eye = torch.eye(linear.shape[1], dtype=linear.dtype, device=linear.device)
        return close(linear, eye) and not bool(constant.any())

    def gradients(self, message: Mapping[str, Tensor]) -> list[Float[Tensor, "unit _"]]:
        """Return the gradient of each watched layer, weights and bias side by side, from that of the parameters."""
        return [layer.received(self.module, message, self.probes.rows[0]) for layer in self.layers]

    def away(self, spans: Sequence[Span]) -> tuple[Float[Tensor, "rest encoded"], Float[Tensor, " rest"]]:
        """Return the map from the encoded row to what lies outside the spans of the affine layers' inputs."""
        none = self.probes.rows[:0]
        ways, shifts = [none], [none[:, 0]]
        for span, (linear, constant) in zip(spans, self.maps, strict=False):
            off = span.off_rows[:, : len(constant)]
            ways.append(off @ linear)
            extended = span.off_rows.shape[1] > len(constant)
            shifts.append(off @ constant + (span.off_rows[:, -1] if extended else 0.0))
        return torch.cat(ways), torch.cat(shifts)

    def entries(self) -> list[Float[Tensor, "_ encoded"]]:
        """Return the maps from the encoded row to the affine layers' inputs, less their constants."""
        return [linear for linear, _ in self.maps]

    def run(self, rows: Float[Tensor, "record encoded"]) -> ForwardRun:
        """Return the records' way through the network."""
        run = linear_calls(self.module, rows, [layer.place for layer in self.layers], graph=True)
        by_place = {call.place: call for call in run.calls}
        calls = [by_place[layer.place] for layer in self.layers]
        entering = [layer.entered(call) for layer, call in zip(self.layers, calls, strict=True)]

        def errors(error: Tensor) -> list[Tensor]:
            slopes = torch.autograd.grad(run.outputs, [call.returned for call in calls], error, retain_graph=True)
            parts = zip(self.layers, calls, slopes, strict=True)
            return [layer.chosen(call.by_unit(back)) for layer, call, back in parts]

        def quiet() -> Tensor:
            directions = torch.arange(1.0, self.outputs + 1).to(run.outputs).expand_as(run.outputs)
            return errors(directions)[0] == 0

        def reach() -> list[Tensor]:
            return [_ADDED_UP * entered.square().sum(1) for entered in entering[:2]]

        return ForwardRun(entering, run.outputs.detach(), errors, quiet, reach)

    def deep(self, state: Float[Tensor, "*batch state"], rough: bool = False) -> list[Float[Tensor, "*batch _"]]:
        """Return the taps' inputs; computed in float32 if they may be rough."""
        module = self._in_float32 if rough else self.module
        flat = state.reshape(-1, state.shape[-1]).to(next(module.parameters()).dtype)
        layers = [self.layers[tap.layer] for tap in self.taps]
        places = [layer.place for layer in layers]
        if not places:
            return []
        if self.by_outputs:
            dummy = self.probes.rows[0].to(flat.dtype).expand(len(flat), -1)
            run = linear_calls(module, dummy, places, {self.layers[0].place: flat}, until=places)
        else:
            run = linear_calls(module, flat, places, until=places)
        by_place = {call.place: call for call in run.calls}
        entering = [layer.chosen(by_place[layer.place].entering) for layer in layers]
        # Holds for no rows, too.
        return [entered.flatten(1).to(state.dtype).unflatten(0, state.shape[:-1]) for entered in entering]

    def open_numbers(self, rows: Float[Tensor, "row encoded"], numbers: Sequence[int]) -> int:
        """Return the number of directions in which a record's numbers can move together without a trace."""
        # Columns that leave no trace by themselves do not count.
        sample = rows[:_FEW_ROWS]
        state = torch.nn.functional.linear(sample, self.state_weight, self.state_bias)
        slopes = self.slopes(state, self.state_weight[:, list(numbers)])
        fixed = [linear[:, list(numbers)].expand(len(sample), -1, -1) for linear in self.entries()]
        derivatives = torch.cat([*fixed, *slopes], 1)
        reach = derivatives.square().sum((0, 1)).sqrt()
        derivatives = derivatives[..., reach > _OPEN * reach.max()]
        values = torch.linalg.svdvals(derivatives)
        return int((values <= _OPEN * values[:, :1]).sum(1).min()) if values.numel() else 0

    @cached_property
    def _in_float32(self) -> nn.Module:
        return copied(self.module).float()

    def slopes(
        self, state: Float[Tensor, "start state"], direction: Float[Tensor, "state number"]
    ) -> list[Float[Tensor, "start _ number"]]:
        """Return the derivative of the taps' inputs along directions of the state, by central differences."""
        if not direction.shape[1]:
            return [entered[..., None][..., :0] for entered in self.deep(state)]
        moves = _STEP * direction.T
        ahead, behind = self.deep(state[:, None] + moves), self.deep(state[:, None] - moves)
        return [((a - b) / (2 * _STEP)).mT for a, b in zip(ahead, behind, strict=True)]


def traced(model: Model, schema: Schema, statistics: Statistics) -> TracedNetwork | None:
    """Return the traced network of a model; None for plain networks (``affine_layers``) and those that normalise."""
    if normalisations(model.module) or affine_layers(model.module) is not None:
        return None
    # A change in place counts a parameter's version up.
    key = (model.head, schema, statistics, tuple((id(p), p._version) for p in model.module.parameters()))
    cached = _TRACED.get(model.module)
    if cached is None or cached[0] != key:
        encoder = Encoder(schema, statistics, device=next(model.module.parameters()).device)
        network = TracedNetwork.of(model, typical_rows(encoder, statistics), model.parameters, encoder=encoder)
        cached = _TRACED[model.module] = key, network
    return cached[1]


# What was traced last of each module, by its key, so that counting records and reading them looks at it once.
_TRACED: WeakKeyDictionary[nn.Module, tuple[tuple[object, ...], TracedNetwork]] = WeakKeyDictionary()


def typical_rows(encoder: Encoder, statistics: Statistics) -> Float[Tensor, "row encoded"]:
    """Return rows of public marginals for probing layers."""
    return encoder.encode(Starts(encoder, statistics, 1).typical(_MOST_ROWS))


def frozen(module: nn.Module, moments: Mapping[str, Moments]) -> nn.Module:
    """Return a copy that normalises every record by the same mean and variance, in evaluation mode."""
    copy = copied(module).eval()
    for name, (mean, variance) in moments.items():
        part = copy.get_submodule(name)
        assert isinstance(part, BatchNorm)
        part.running_mean, part.running_var = mean, variance
    return copy


def _state(
    module: nn.Module, first: WatchedLayer, maps: Sequence[tuple[Tensor, Tensor]], probes: Probes, by_outputs: bool
) -> tuple[Tensor, Tensor]:
    """Return the map from the encoded row to the state, and its constant."""
    row = probes.rows[:1]
    if not by_outputs:
        eye = torch.eye(row.shape[1], dtype=row.dtype, device=row.device)
        return eye, torch.zeros_like(row[0])
    call = linear_calls(module, row, [first.place], until=[first.place]).calls[0]
    weight, (linear, constant) = call.weight.detach(), maps[0]
    shift = weight @ constant
    return weight @ linear, shift if call.bias is None else shift + call.bias.detach()


def _moving(module: nn.Module, rows: Tensor, chosen: Sequence[LayerProbe]) -> Bool[Tensor, "layer encoded"]:
    """Return which encoded columns move the inputs of which layers."""
    entering = rows.clone().requires_grad_()
    calls = watched_run(module, entering, [probe.layer.place for probe in chosen], graph=True).calls
    inputs = {call.place: call.entering for call in calls}
    moving = torch.zeros(len(chosen), rows.shape[1], dtype=torch.bool, device=rows.device)
    for index, probe in enumerate(chosen):
        taken = probe.layer.chosen(inputs[probe.layer.place])
        if taken.requires_grad:
            # Weights that differ, as inputs may add up to the same number, such as those behind a softmax.
            weights = torch.linspace(0.5, 1.5, taken[0].numel()).to(taken)
            ones = torch.ones_like(taken[:, 0])
            (slope,) = torch.autograd.grad(taken @ weights, entering, ones, True, allow_unused=True)
            moving[index] = False if slope is None else (slope != 0).any(0)
    return moving


def _covering(
    chosen: Sequence[LayerProbe], taps: Sequence[Tap], moving: Bool[Tensor, "layer encoded"]
) -> tuple[Tap, ...]:
    """Return taps with further ones for columns that move none of them, such as those of another tower."""
    covering = list(taps)
    tapped = [tap.layer for tap in taps]
    others = [k for k, probe in enumerate(chosen) if probe.linear is None and k not in tapped]
    covered = moving[tapped].any(0)
    while others:
        best = max(others, key=lambda index: (int((moving[index] & ~covered).sum()), chosen[index].rank))
        if not bool((moving[best] & ~covered).any()):
            break
        others.remove(best)
        covered |= moving[best]
        covering.append(Tap(best, chosen[best].inputs, chosen[best].scale))
    return tuple(sorted(covering, key=lambda tap: tap.layer))


def _towers(moving: Bool[Tensor, "layer encoded"]) -> tuple[Tower, ...]:
    """Return groups of encoded columns and layers, such that no layer takes columns of two groups."""
    # All of them are one group where a layer has no slope, such as behind an argmax: what moves it is not known.
    if not bool(moving.any(1).all()):
        return (Tower(torch.ones_like(moving[0]), tuple(range(len(moving)))),)
    groups: list[tuple[Tensor, list[int]]] = []
    for index, columns in enumerate(moving):
        joined, layers, others = columns, [index], []
        for tower, members in groups:
            if bool((tower & columns).any()):
                joined, layers = joined | tower, members + layers
            else:
                others.append((tower, members))
        groups = [*others, (joined, layers)]
    return tuple(Tower(columns, tuple(sorted(layers))) for columns, layers in groups)


def _by_outputs(module: nn.Module, first: WatchedLayer, rows: Tensor) -> bool:
    """Return whether the network is a function of its first layer's outputs."""
    place = first.place
    if first.token is not None:
        return False
    real = linear_calls(module, rows, [place])
    [call] = real.calls
    if call.entering.dim() != 2:
        return False
    given = {place: call.by_unit(call.returned)}
    return close(linear_calls(module, rows.flip(0) + 1.0, [place], given).outputs, real.outputs)


def _load(module: nn.Module, parameters: Mapping[str, Tensor]) -> None:
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if name in parameters:
                parameter.copy_(parameters[name])


class TracedGradient(Gradient):
    """One victim's gradient of a traced network."""

    def __init__(self, network: TracedNetwork, view: GradientView, victim: int, records: int) -> None:
        message = {name: part[victim] for name, part in view.gradient.items()}
        layers = network.gradients(message)
        rounding = torch.finfo(next(iter(message.values())).dtype).eps
        super().__init__(network, view.model.head, layers, records, rounding, view.model.form)
        self._message = {name: part.double() for name, part in message.items()}
        self._model = replace(view.model, module=network.module)

    def remaining(
        self, rows: Float[Tensor, "record encoded"], counts: Float[Tensor, "record label"]
    ) -> dict[str, Tensor]:
        """Return the message without these records, by parameter."""
        if not len(rows):
            return dict(self._message)
        parameters = {name: part.detach().requires_grad_() for name, part in self._model.parameters.items()}
        with torch.enable_grad():
            outputs = call(self._model.module, parameters, rows)
            # Whatever the loss is, its derivative by the outputs is known.
            added = (outputs * self._error(outputs.detach(), counts)).sum()
            # A parameter that no output depends on gets a gradient of 0.
            parts = torch.autograd.grad(added, list(parameters.values()), allow_unused=True, materialize_grads=True)
            sent = dict(zip(parameters, parts, strict=True))
        return {name: part - sent[name] for name, part in self._message.items()}

    def _explained(self, rows: Tensor, counts: Tensor, unsure: list[Tensor]) -> bool:
        # In any part of the message, those that belong to no layer among them.
        largest = max(float(part.norm()) for part in self._message.values())
        largest += max(map(float, unsure), default=0.0)
        return super()._explained(rows, counts, unsure) and all(
            float(left.norm()) <= SAME * self.rounding * largest for left in self.remaining(rows, counts).values()
        )


def gradient_of(network: TracedNetwork | None, view: GradientView, victim: int, records: int) -> Gradient:
    """Return a single victim's gradient layer by layer, of a traced network or else of a plain one."""
    if network is None:
        return Gradient.of(view, victim, records)
    return TracedGradient(network, view, victim, records)
