"""Networks of any form at given parameters: their affine layers are watched while the module runs."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from seepage.attacks.horizontal.exact.chains import affine_layers
from seepage.attacks.horizontal.exact.gradients import SAME, Gradient
from seepage.attacks.horizontal.exact.networks import Tap, extended
from seepage.attacks.horizontal.exact.spans import ROUNDINGS, Span, row_scale
from seepage.attacks.horizontal.matching.starts import Starts
from seepage.learning import gradient, mean_loss
from seepage.models.batch_norm import normalisations
from seepage.models.calling import LayerRun, watched
from seepage.models.model import Head, Model
from seepage.tabular.encoder import Encoder
from seepage.tabular.schema import Schema
from seepage.tabular.statistics import Statistics
from seepage.wire.horizontal import GradientView

# Typical rows, between these numbers, with which the layers of a network are looked at.
_LEAST_ROWS, _MOST_ROWS = 64, 1024
# Relative difference of two float64 computations that counts as none.
_SAME = 1e-9
# Step of central differences, in standardised units.
_STEP = 1e-6
# Share of the largest error that counts as none.
_SILENT = 1e-12
# Share of the best layer's dimensions that another one needs to be searched as well.
_AS_GOOD = 0.9
# Most layers that are searched beside the first one, and those where no layer takes a row itself.
_TAPS, _TAPS_ALONE = 1, 3
# Length that inputs of a layer are brought to on average, where searches compare them.
_USUAL = 4.0
# Squared length of what is added up to a deeper layer's input, in units of its own: generous.
_ADDED_UP = 64.0


class UnreadableError(Exception):
    """A network in which no layer says anything of single records; the message says why, in a clause."""


@dataclass(frozen=True)
class WatchedLayer:
    """An affine layer whose gradient is a sum over records of error times input.

    Attributes:
        name: name in the module.
        biased: whether it has a bias.
        token: place of the only input of a record that has an error, where the layer takes several; else None.
    """

    name: str
    biased: bool
    token: int | None


@dataclass(frozen=True)
class TracedRun:
    """Records on their way through a traced network.

    Attributes:
        entering: what enters each watched layer, with an appended 1 where it has a bias.
        outputs: outputs of the network.
        returned: outputs of the watched layers, with a graph.
        graphed: outputs of the network, with a graph.
        layers: the watched layers.
    """

    entering: list[Float[Tensor, "record _"]]
    outputs: Float[Tensor, "record output"]
    returned: list[Tensor]
    graphed: Tensor
    layers: Sequence[WatchedLayer]

    def errors(self, error: Float[Tensor, "record output"]) -> list[Float[Tensor, "record _"]]:
        """Return the derivative with respect to each watched layer's outputs."""
        found = torch.autograd.grad(self.graphed, self.returned, error, retain_graph=True)
        return [e if layer.token is None else e[:, layer.token] for e, layer in zip(found, self.layers, strict=True)]

    def silent(self) -> Bool[Tensor, " record"]:
        """Return which records leave no error at the first watched layer."""
        directions = torch.arange(1.0, self.outputs.shape[1] + 1).to(self.outputs).expand_as(self.outputs)
        return ~(self.errors(directions)[0] != 0).any(1)

    def reach(self) -> list[Float[Tensor, " record"]]:
        """Return the squared length of what is added up to the first two layers' inputs, generously."""
        return [_ADDED_UP * entered.square().sum(1) for entered in self.entering[:2]]


@dataclass(frozen=True)
class TracedNetwork:
    """A module whose affine layers are watched, see ``Layered``.

    A layer counts that runs once, takes one input a record (or several of which one alone has an error, as the last
    attention block's of a transformer that reads one token), and whose input depends on that record alone.

    Attributes:
        module: module in float64, in evaluation mode.
        layers: watched layers that say something of single records: the one that takes the row first.
        outputs: number of outputs.
        maps: maps from the encoded row to the inputs of the first of these layers, which are affine in it, with their
            constants.
        by_outputs: whether all else depends on the first layer's outputs alone, which are the state then; else the
            state is the encoded row.
        taps: layers whose inputs a search compares.
        held: numbers a row that computing the taps' inputs takes.
        zeros: an encoded row of zeros.
    """

    module: nn.Module
    layers: tuple[WatchedLayer, ...]
    outputs: int
    maps: tuple[tuple[Float[Tensor, "_ encoded"], Float[Tensor, " _"]], ...]
    by_outputs: bool
    taps: tuple[Tap, ...]
    held: int
    zeros: Float[Tensor, " encoded"]

    @classmethod
    def of(cls, model: Model, rows: Float[Tensor, "row encoded"], parameters: Mapping[str, Tensor]) -> TracedNetwork:
        """Look at a model's layers with typical rows.

        Args:
            model: model whose module is looked at.
            rows: typical encoded rows, in float64.
            parameters: parameters of the module.

        Raises:
            UnreadableError: no layer says anything of single records.

        Example:
            >>> from torch.nn import functional
            >>> class Net(nn.Module):
            ...     def __init__(self):
            ...         super().__init__()
            ...         self.first, self.last = nn.Linear(3, 8), nn.Linear(8, 2)
            ...         self.hidden = nn.Linear(8, 8, bias=False)
            ...     def forward(self, x):
            ...         return self.last(functional.gelu(self.hidden(functional.gelu(self.first(x)))))
            >>> model = Model(Net(), "softmax", "mine")
            >>> network = TracedNetwork.of(model, torch.randn(64, 3, dtype=torch.float64), model.parameters)
            >>> [layer.name for layer in network.layers], network.by_outputs, network.taps[0].at
            (['first', 'hidden'], True, 1)
        """
        if normalisations(model.module):
            raise UnreadableError("batch normalisation behind which a record's error depends on the others")
        module = copy.deepcopy(model.module).double().eval()
        _load(module, parameters)
        seen = _seen(module, model.head, rows)
        chosen = [layer for layer in seen if layer.rank > 2 * _dimensions(model.head, layer.outputs)]
        chosen.sort(key=lambda layer: layer.linear is None)
        if not chosen:
            raise UnreadableError("no layer behind which single records could be told apart")
        affine = sum(layer.linear is not None for layer in chosen)
        by_outputs = bool(affine) and _by_outputs(module, chosen[0], rows)
        deeper = [(at, layer) for at, layer in enumerate(chosen) if layer.linear is None]
        best = max((layer.rank for _, layer in deeper), default=0)
        most = _TAPS if affine else _TAPS_ALONE
        taps = [Tap(at, layer.inputs, layer.scale) for at, layer in deeper if layer.rank >= _AS_GOOD * best]
        # The layers nearest to the outputs have the most between them and the row.
        taps = taps[:most] if affine else taps[-most:]
        if not affine and not taps:
            raise UnreadableError("no layer behind which single records could be told apart")
        width = rows.shape[1]
        maps = tuple(layer.linear for layer in chosen if layer.linear is not None)
        layers = tuple(layer.layer for layer in chosen)
        return cls(
            module, layers, seen[0].outputs, maps, by_outputs, tuple(taps), seen[0].numbers, rows.new_zeros(width)
        )

    def at(self, parameters: Mapping[str, Tensor]) -> TracedNetwork:
        """Return the same network with other parameters of the same names."""
        module = copy.deepcopy(self.module)
        _load(module, parameters)
        return replace(self, module=module)

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
        """Names of each watched layer's weights and bias."""
        prefixes = [f"{layer.name}." if layer.name else "" for layer in self.layers]
        pairs = zip(prefixes, self.layers, strict=True)
        return [(f"{prefix}weight", f"{prefix}bias" if layer.biased else None) for prefix, layer in pairs]

    @property
    def takes_rows(self) -> bool:
        """Whether the first layer takes the encoded row itself and has a bias."""
        if not self.maps or not self.layers[0].biased:
            return False
        linear, constant = self.maps[0]
        eye = torch.eye(len(self.zeros), dtype=linear.dtype, device=linear.device)
        return _close(linear, eye) and not bool(constant.any())

    @property
    def _first(self) -> nn.Linear:
        layer = self.module.get_submodule(self.layers[0].name)
        assert isinstance(layer, nn.Linear)
        return layer

    @property
    def state_weight(self) -> Float[Tensor, "state encoded"]:
        """Map from the encoded row to the state."""
        if self.by_outputs:
            return self._first.weight.detach() @ self.maps[0][0]
        return torch.eye(len(self.zeros), dtype=self.zeros.dtype, device=self.zeros.device)

    @property
    def state_bias(self) -> Float[Tensor, " state"]:
        """Constant part of the state."""
        if not self.by_outputs:
            return self.zeros
        bias = self._first.bias
        constant = self._first.weight.detach() @ self.maps[0][1]
        return constant if bias is None else constant + bias.detach()

    def away(self, spans: Sequence[Span]) -> tuple[Float[Tensor, "rest encoded"], Float[Tensor, " rest"]]:
        """Return the map from the encoded row to what lies outside the spans of the affine layers' inputs."""
        ways, shifts = [self.zeros[None][:0]], [self.zeros[:0]]
        for span, layer, (linear, constant) in zip(spans, self.layers, self.maps, strict=False):
            off = span.off_rows[:, : len(constant)]
            ways.append(off @ linear)
            shifts.append(off @ constant + (span.off_rows[:, -1] if layer.biased else 0.0))
        return torch.cat(ways), torch.cat(shifts)

    def entries(self) -> list[Float[Tensor, "_ encoded"]]:
        """Return the maps from the encoded row to the affine layers' inputs, less their constants."""
        return [linear for linear, _ in self.maps]

    def run(self, rows: Float[Tensor, "record encoded"]) -> TracedRun:
        """Return the records' way through the network."""
        names = [layer.name for layer in self.layers]
        found = watched(self.module, names, rows, graph=True)
        runs = {run.name: run for run in found.layers}
        entering = [_entering(runs[layer.name], layer) for layer in self.layers]
        returned = [runs[layer.name].returned for layer in self.layers]
        return TracedRun(entering, found.outputs.detach(), returned, found.outputs, self.layers)

    def deep(self, state: Float[Tensor, "*batch state"], rough: bool = False) -> list[Float[Tensor, "*batch _"]]:
        """Return the taps' inputs; computed in float32 if they may be rough."""
        module = self._in_float32 if rough else self.module
        flat = state.reshape(-1, state.shape[-1]).to(next(module.parameters()).dtype)
        names = [self.layers[tap.at].name for tap in self.taps]
        if not names:
            return []
        if self.by_outputs:
            first = self.layers[0].name
            dummy = self.zeros.to(flat.dtype).expand(len(flat), -1)
            found = watched(module, [first, *names], dummy, {first: flat}, until=names)
        else:
            found = watched(module, names, flat, until=names)
        runs = {run.name: run for run in found.layers}
        entering = [_chosen(runs[self.layers[tap.at].name].entering, self.layers[tap.at]) for tap in self.taps]
        return [entered.to(state.dtype).view(*state.shape[:-1], -1) for entered in entering]

    @cached_property
    def _in_float32(self) -> nn.Module:
        return copy.deepcopy(self.module).float()

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
    """Return a network as its layers are seen to run on rows of public marginals.

    None for what is read otherwise: plain networks, see ``affine_layers``, and those that normalise by the batch.

    Raises:
        UnreadableError: no layer says anything of single records.
    """
    if normalisations(model.module) or affine_layers(model.module) is not None:
        return None
    encoder = Encoder(schema, statistics, device=next(model.module.parameters()).device)
    return TracedNetwork.of(model, encoder.encode(Starts(encoder, statistics, 1).typical(_MOST_ROWS)), model.parameters)


@dataclass(frozen=True)
class _LayerProbe:
    """What typical rows show of an affine layer.

    Attributes:
        layer: the layer.
        inputs, outputs: numbers of its inputs and of the network's outputs.
        linear: map from the encoded row to its input and the constant part, where that is affine.
        rank: number of dimensions of its gradient, however many records there are.
        scale: factor that brings its inputs to the usual length.
        numbers: numbers a row that all affine layers take and return.
    """

    layer: WatchedLayer
    inputs: int
    outputs: int
    linear: tuple[Tensor, Tensor] | None
    rank: int
    scale: float
    numbers: int


def _seen(module: nn.Module, head: Head, rows: Tensor) -> list[_LayerProbe]:
    """Return the layers that take one input a record, in the order in which they run."""
    named = {name: part for name, part in module.named_modules() if type(part) is nn.Linear}
    if not named:
        raise UnreadableError("no affine layer")
    wide = max(max(part.in_features, part.out_features) for part in named.values())
    rows = rows[: min(_MOST_ROWS, max(_LEAST_ROWS, 2 * wide))]
    found = watched(module, list(named), rows, graph=True)
    alone = watched(module, list(named), rows[:1])
    if len(found.layers) != len(alone.layers) or not _close(found.outputs[:1], alone.outputs):
        raise UnreadableError("a record's outputs depend on the others")
    often = [run.name for run in found.layers]
    shared = {id(p) for name in named for p in named[name].parameters() if _uses(module, p) > 1}
    once = [
        at
        for at, run in enumerate(found.layers)
        if often.count(run.name) == 1
        and not any(id(p) in shared for p in named[run.name].parameters())
        and run.returned.requires_grad
        and len(run.entering) == len(rows)
        and run.entering.dim() in (2, 3)
        and _close(run.entering[:1], alone.layers[at].entering)
    ]
    if not once:
        raise UnreadableError("no affine layer that runs once")
    labels = torch.arange(len(rows), device=rows.device) % max(2, found.outputs.shape[1])
    loss = mean_loss(head, found.outputs, labels.double())
    errors = torch.autograd.grad(loss, [found.layers[at].returned for at in once], allow_unused=True)
    probes = torch.cat([torch.zeros_like(rows[:1]), torch.eye(rows.shape[1], dtype=rows.dtype, device=rows.device)])
    probed = watched(module, [found.layers[at].name for at in once], probes)
    seen: list[_LayerProbe] = []
    for at, back, probe in zip(once, errors, probed.layers, strict=True):
        run = found.layers[at]
        token = None
        if back is None:
            continue
        if back.dim() == 3:
            sizes = back.abs().amax((0, 2))
            active = (sizes > _SILENT * sizes.max()).nonzero()[:, 0].tolist()
            if len(active) != 1:
                continue
            token = int(active[0])
            back = back[:, token]
        layer = WatchedLayer(run.name, named[run.name].bias is not None, token)
        entered = _chosen(run.entering.detach(), layer)
        base, ways = _chosen(probe.entering, layer).split([1, rows.shape[1]])
        linear = (ways - base).T.contiguous()
        affine = _close(rows @ linear.T + base, entered)
        whole = extended(entered) if layer.biased else entered
        scale = _USUAL / float(entered.norm(dim=1).mean().clamp_min(1e-12))
        seen.append(
            _LayerProbe(
                layer,
                entered.shape[1],
                found.outputs.shape[1],
                (linear, base[0]) if affine else None,
                _rank(back.T @ whole),
                scale,
                sum(one.returned[0].numel() + one.entering[0].numel() for one in alone.layers),
            )
        )
    return seen


def _dimensions(head: Head, outputs: int) -> int:
    """Return how many dimensions errors at the outputs have."""
    return outputs - 1 if head == "softmax" else outputs


def _rank(gradient: Tensor) -> int:
    """Return the number of dimensions of a gradient above the rounding of float32."""
    scaled = gradient / row_scale(gradient)[:, None]
    values = torch.linalg.svdvals(scaled)
    return int((values > ROUNDINGS * torch.finfo(torch.float32).eps * values.max()).sum())


def _by_outputs(module: nn.Module, first: _LayerProbe, rows: Tensor) -> bool:
    """Return whether the network is a function of what its first layer returns."""
    name = first.layer.name
    if first.layer.token is not None:
        return False
    real = watched(module, [name], rows[:_LEAST_ROWS])
    if real.layers[0].returned.dim() != 2:
        return False
    others = watched(module, [name], rows[:_LEAST_ROWS].flip(0) + 1.0, {name: real.layers[0].returned})
    return _close(others.outputs, real.outputs)


def _close(found: Tensor, wanted: Tensor) -> bool:
    return found.shape == wanted.shape and bool(
        ((found - wanted).abs() <= _SAME * wanted.abs().max().clamp_min(1e-12)).all()
    )


def _uses(module: nn.Module, parameter: Tensor) -> int:
    places = [p for part in module.modules() for p in part.parameters(recurse=False)]
    return sum(p is parameter for p in places)


def _load(module: nn.Module, parameters: Mapping[str, Tensor]) -> None:
    with torch.no_grad():
        for name, own in module.named_parameters():
            own.copy_(parameters[name])


def _chosen(entering: Tensor, layer: WatchedLayer) -> Tensor:
    return entering if layer.token is None else entering[:, layer.token]


def _entering(run: LayerRun, layer: WatchedLayer) -> Tensor:
    entered = _chosen(run.entering, layer).detach()
    return extended(entered) if layer.biased else entered


class TracedGradient(Gradient):
    """One victim's gradient of a traced network.

    Args:
        network: network whose gradient it is.
        view: received gradients.
        victim: index of the victim.
        records: number of records of whose losses the gradient is the mean.
    """

    def __init__(self, network: TracedNetwork, view: GradientView, victim: int, records: int) -> None:
        message = {name: part[victim] for name, part in view.gradient.items()}
        layers = [
            message[weight] if bias is None else torch.cat([message[weight], message[bias][:, None]], 1)
            for weight, bias in network.parameters
        ]
        rounding = torch.finfo(next(iter(message.values())).dtype).eps
        super().__init__(network, view.model.head, layers, records, rounding)
        self._message = {name: part.double() for name, part in message.items()}
        self._model = replace(view.model, module=network.module)

    def remaining(
        self, rows: Float[Tensor, "record encoded"], counts: Float[Tensor, "record label"]
    ) -> dict[str, Tensor]:
        """Return what records that were taken away leave of the message, by parameter."""
        if not len(rows):
            return dict(self._message)
        copies = self.copies(counts).long()
        sent = gradient(self._model, rows.repeat_interleave(copies, 0), self.labels(counts))
        share = float(copies.sum()) / self.records
        return {name: part - share * sent[name] for name, part in self._message.items()}

    def explained(self, rows: Float[Tensor, "record encoded"], counts: Float[Tensor, "record label"]) -> bool:
        """Return whether these records leave nothing but rounding of the message, in any of its parts."""
        largest = max(float(part.norm()) for part in self._message.values())
        return super().explained(rows, counts) and all(
            float(left.norm()) <= SAME * self.rounding * largest for left in self.remaining(rows, counts).values()
        )
