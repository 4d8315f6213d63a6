"""Bounds of a client's computation: inputs, errors and derivatives of each layer over sets of rows."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from seepage.kernel.graphs import RunGraph, check_same
from seepage.kernel.intervals import BLUR, ROW, Ball, Boxes, Trace, Value, everything
from seepage.kernel.statement import (
    ROUNDINGS,
    SAME,
    SEED,
    UNIT,
    Declaration,
    RefusedError,
    one_hot,
    random_states,
)

_BY_NUMBER = "the network computes something that depends on the number of rows"
# Numbers of a temporary, and magnitude of what is used of inputs.
_NUMBERS, _NOTHING = 2**24, 1e-25


class Bounds(NamedTuple):
    """Bounds of a client's computation over sets of rows, for layers that see each record once, by their weight.

    Attributes:
        inputs: input of each layer (set, entry), extended by a 1 where there is a bias, whose name ``bias`` has.
        errors: largest magnitude of an error at each of its units (set, unit), times the number of records.
        apart: largest distance of such errors of a set from their middle, given the label.
        slopes: derivatives of inputs by the directions that were asked for (direction, set, entry).
        blurs: what roundings may move each entry of an input by (set, entry).
        affine: layers whose input is affine in the row.
    """

    inputs: dict[str, Ball]
    bias: dict[str, str | None]
    errors: dict[str, Tensor]
    apart: dict[str, Tensor]
    slopes: dict[str, Ball]
    blurs: dict[str, Tensor]
    affine: set[str]

    def most(self, name: str) -> Tensor:
        """Return the largest sum of magnitudes behind each entry of a layer's message, a bias as the last column."""
        return torch.outer(self.errors[name].amax(0), self.inputs[name].most.amax(0))

    def entering(self, name: str) -> Tensor:
        """Return the largest magnitude of each entry of an input; infinite where there is next to none."""
        most = self.inputs[name].most.amax(0)
        return torch.where(most > _NOTHING, most, torch.inf)


def bounded(
    module: nn.Module, at: Mapping[str, Tensor], declared: Declaration, drift: Mapping[str, Tensor],
    boxes: Boxes, errors: bool = True, moves: Tensor | None = None, graph: RunGraph | None = None,
    seen: Tensor | None = None,
) -> Bounds:  # fmt: skip
    """Return bounds of a client's computation on rows in boxes; what is not bounded, or not in its own run, is refused.

    Args:
        drift: largest change of each parameter over local steps.
        moves: directions (direction, entry) by which derivatives of inputs are wanted.
        graph: operations of the client's own run, see ``steady``.
        seen: errors at the outputs (output), where they are known.
    """
    if not len(boxes.codes):
        raise RefusedError("no row of the declared columns lies in what the message spans")
    units = sum(p.shape[0] if p.dim() else 1 for p in at.values())
    sources = 2 + errors * units + (0 if moves is None else len(moves))
    most = max(3, _NUMBERS // (sources * max(p.shape[-1] for p in at.values() if p.dim())))
    if len(boxes.codes) > most:
        every = torch.arange(len(boxes.codes)).split(most)
        parts = [bounded(module, at, declared, drift, boxes.some(some), errors, moves, graph, seen) for some in every]
        join = lambda balls: Ball(*(torch.cat(many, -2) for many in zip(*balls, strict=True)))  # noqa: E731
        return parts[0]._replace(
            inputs={name: join([part.inputs[name] for part in parts]) for name in parts[0].inputs},
            slopes={name: join([part.slopes[name] for part in parts]) for name in parts[0].slopes},
            blurs={name: torch.cat([part.blurs[name] for part in parts]) for name in parts[0].blurs},
            errors={name: torch.cat([part.errors[name] for part in parts]) for name in parts[0].errors},
            apart={name: torch.cat([part.apart[name] for part in parts]) for name in parts[0].apart},
        )
    row = boxes.encoded(declared)
    count, sets = len(row.mid), max(3, len(row.mid))
    row = Ball(*(torch.cat([part, part[:1].expand(sets - count, -1)]) for part in row))
    exact = boxes.encoded(declared, rounded=False)
    rounded = torch.cat([row.rad[:count] - exact.rad, torch.zeros(sets - count, row.rad.shape[1])])
    trace, value = _traced(module, at, drift, row, rounded, errors, moves)
    if graph is not None:
        check_same(graph, trace.graph, _BY_NUMBER)
    found = Bounds({}, {}, {}, {}, {}, {}, set())
    for name, layer in trace.layers.items():
        if {name, layer.bias} & trace.shared or (errors and name not in value.slopes):
            continue
        extend = lambda t, one, wide=int(layer.bias is not None): functional.pad(t, (0, wide), value=one)  # noqa: E731
        found.inputs[name] = Ball(
            *(extend(part[:count], one) for part, one in zip(layer.entering.value, (1.0, 0.0), strict=True))
        )
        found.bias[name] = layer.bias
        found.blurs[name] = extend(layer.entering.slopes[BLUR].rad[0, :count], 0.0)
        if ROW in layer.entering.slopes:
            slope = layer.entering.slopes[ROW]
            found.slopes[name] = Ball(*(extend(part[:, :count], 0.0) for part in slope))
            if set(layer.entering.slopes) == {ROW, BLUR} and bool(
                (slope.rad <= SAME * 100 * slope.mid.abs().amax()).all()
            ):
                found.affine.add(name)
        if errors:
            slope, most_error, most_apart = value.slopes[name], torch.zeros(()), torch.zeros(())
            known = seen is not None and [(Ball(seen, off := ROUNDINGS * UNIT * seen.abs()), off)]
            for error, spread in known or errors_at(declared, value.value):
                reach = (slope.mid.abs() * error.rad + slope.rad * error.most.clamp(min=SEED)).sum(2)
                most_error = torch.maximum(most_error, (slope.mid * error.mid).sum(2).abs() + reach)
                own = slope.mid.abs() * spread + slope.rad * error.most.clamp(min=SEED)
                most_apart = torch.maximum(most_apart, own.sum(2))
            found.errors[name], found.apart[name] = most_error.T[:count], most_apart.T[:count]
    return found


def _traced(
    module: nn.Module, at: Mapping[str, Tensor], drift: Mapping[str, Tensor], row: Ball, rounded: Tensor, errors: bool,
    moves: Tensor | None, single: bool = False, masked: bool = False,
) -> tuple[Trace, Value]:  # fmt: skip
    """Run a network on sets of rows and return what was seen of it, and the bounds of its outputs.

    In ``single`` precision, all that it does is watched, and what it computes is compared with its bounds.
    """
    sets = len(row.mid)
    same = lambda part: part[:, None].expand(-1, sets, -1)  # noqa: E731
    # As in training: hooks and the like show where derivatives are asked for.
    kind = torch.float32 if single else torch.float64
    at = {name: part.detach().to(kind).requires_grad_() for name, part in at.items()}
    trace, entered = Trace(at, module, drift, sets, errors, single, masked), row.mid.to(kind, copy=True)
    slopes = {BLUR: Ball(torch.zeros_like(rounded)[None], rounded[None])}
    slopes |= {} if moves is None else {ROW: Ball(same(moves), same(torch.zeros_like(moves)))}
    trace.enter(entered, Value(row, slopes))
    with torch.enable_grad(), trace.below or nullcontext(), trace:
        outputs = _run(module, at, entered)
    value = trace.of(outputs)
    if value is None or outputs.dim() != 2:
        raise RefusedError("the outputs of the network are not followed from its rows")
    trace.near(outputs, value)
    trace.record("return", outputs)
    return trace, value


def _run(module: nn.Module, at: Mapping[str, Tensor], entered: Tensor) -> Tensor:
    """Return the outputs of a network in double precision."""
    try:
        return torch.func.functional_call(module, dict(at), (entered,))
    except RefusedError:
        raise
    except Exception as error:  # A module may raise anything.
        why = " ".join(str(error).split())[:200] or type(error).__name__
        raise RefusedError(f"the network cannot be followed in double precision ({why})") from error


def steady(module: nn.Module, at: Mapping[str, Tensor], declared: Declaration) -> RunGraph:
    """Return the operations of a client's run on exactly its number of rows; refuse what is no function of a row.

    What is bounded later is the same graph, whatever number of rows it is run on. Here it is compared with that of more
    rows, of single precision, and of a network whose own parts are in training, or are not.
    """
    row, runs = everything(declared).encoded(declared), []
    before, many = states(module), 2 * declared.records + 3
    for sets in (declared.records, many):
        _run(module, at, row.mid.expand(sets, -1).clone())
    if states(module) != before:
        raise RefusedError("the network draws random numbers, or remembers its runs")

    def traced(sets: int, masked: bool = False) -> tuple[Trace, Value]:
        rows = Ball(*(part.expand(sets, -1) for part in row))
        return _traced(module, at, {}, rows, torch.zeros_like(rows.mid), False, None, masked=masked)

    runs = [traced(sets) for sets in (declared.records, many)]
    outputs = torch.cat([value.value.mid for _, value in runs])
    apart = (outputs - outputs[:1]).abs() > SAME * outputs.abs().max()
    (few, _), (more, _) = runs
    check_same(few.graph, more.graph, _BY_NUMBER)
    if bool(apart.any()):
        raise RefusedError("the network computes something else at another time or place")
    some = declared.rows(some_cells(declared, declared.records)).float().double()
    none, client = torch.zeros_like(some), copy.deepcopy(module).float()
    once, _ = _traced(client, at, {}, Ball(some, none), none, False, None, single=True)
    check_same(few.graph, once.graph, "the network computes something else in single precision")
    parts = [part for part in module.modules() if not type(part).__module__.startswith("torch.")]
    modes = [part.training for part in parts]
    masked, _ = traced(declared.records, masked=True)
    try:
        for part in parts:
            part.training = not part.training
        turned, _ = traced(declared.records, masked=True)
    finally:
        for part, mode in zip(parts, modes, strict=True):
            part.training = mode
    check_same(masked.graph, turned.graph, "the network computes something else in training than elsewhere")
    return few.graph


def by_row(function: Callable[..., Sequence[Tensor]], own: Sequence[Tensor], others: Sequence[Tensor]) -> None:
    """Refuse a function whose results for a row depend on other rows, on its place, or on the number of rows.

    It takes and returns tensors with a row for each record; ``others`` are at least as many other rows.
    """
    count, first = len(own[0]), function(*own)
    joined = lambda left, right: [torch.cat(both) for both in zip(left, right, strict=True)]  # noqa: E731
    fewer = [part[: count - 1] for part in others]
    cases = [
        (joined(own, others), slice(count), slice(count)),
        ([part.flip(0) for part in own], slice(None), torch.arange(count).flip(0)),
        (joined([part[:1] for part in own], fewer), slice(1), slice(1)),
        (joined(fewer, [part[-1:] for part in own]), slice(count - 1, count), slice(count - 1, count)),
    ]
    for rows, found, usual in cases:
        for one, again in zip(first, function(*rows), strict=True):
            if again.shape[:1] != rows[0].shape[:1] or one.shape[1:] != again.shape[1:]:
                raise RefusedError("the network mixes records of a batch")
            if not bool(((again[found] - one[usual]).abs() <= SAME * one.abs().max()).all()):
                raise RefusedError("the network mixes records of a batch, or heeds their place or number")


def some_cells(declared: Declaration, number: int) -> Tensor:
    """Return records with any categories, and numbers anywhere in their bounds; always the same."""
    generator, cells = torch.Generator().manual_seed(0), []
    for column in declared.columns:
        share = torch.rand(number, generator=generator, dtype=torch.float64)
        codes = (share * len(column.categories or ())).floor()
        cells.append(column.low + share * (column.high - column.low) if column.categories is None else codes)
    return torch.stack(cells, 1)


def check_rows(module: nn.Module, at: Mapping[str, Tensor], declared: Declaration, rows: Tensor) -> None:
    """Refuse a network that is no function of a row: its outputs and their derivatives are compared, see ``by_row``."""

    def function(rows: Tensor) -> Sequence[Tensor]:
        rows = rows.detach().requires_grad_()
        outputs = _run(module, at, rows)
        weights = torch.linspace(1, 2, outputs.shape[-1]).double()
        [slope] = torch.autograd.grad((outputs * weights).sum(), [rows], allow_unused=True)
        return outputs.detach(), torch.zeros_like(rows) if slope is None else slope

    others = declared.rows(some_cells(declared, 2 * declared.records + 3))
    for own in (others[: declared.records], rows):
        by_row(function, [own], [others[declared.records :]])


def check_hooks(module: nn.Module) -> None:
    """Refuse a network with a hook that changes derivatives on their way."""
    names = ("_backward_hooks", "_backward_pre_hooks", "_post_accumulate_grad_hooks")
    if any(getattr(one, name, None) for one in (*module.modules(), *module.parameters()) for name in names):
        raise RefusedError("a hook of the network may change derivatives on their way")


def states(module: nn.Module) -> list[object]:
    """Return attributes and buffers of a module's parts, and the states of generators of random numbers."""
    kept = [
        (name, key, repr(value))
        for name, part in module.named_modules()
        for key, value in vars(part).items()
        if isinstance(value, (bool, int, float, str, list, tuple, dict, set, random.Random))
        and key not in ("_parameters", "_buffers", "_modules")
    ]
    # What its own classes, and the functions of these, keep beside a module.
    for kind in {type(part) for part in module.modules()}:
        if not kind.__module__.startswith("torch."):
            kept += [(kind.__qualname__, key, repr(value)) for key, value in _kept_by(kind)]
    own = [one for part in module.modules() for one in vars(part).values() if isinstance(one, Tensor)]
    tensors = [(str(one.dtype), one.detach().flatten().tolist()) for one in (*module.buffers(), *own)]
    return [kept, tensors, random_states()]


def _kept_by(kind: type) -> Iterable[tuple[str, object]]:
    """Yield plain values that the attributes of a class hold, or the functions among them refer to."""
    for name, value in list(vars(kind).items()):
        named = [(name, value)]
        code = getattr(value, "__code__", None)
        if code is not None:
            kept = {key: value.__globals__[key] for key in code.co_names if key in value.__globals__}
            for key, cell in zip(code.co_freevars, value.__closure__ or (), strict=True):
                with suppress(ValueError):  # An empty cell.
                    kept[key] = cell.cell_contents
            named = [(f"{name}.{key}", one) for key, one in kept.items()]
        for key, one in named:
            if isinstance(one, (bool, int, float, list, dict, set, random.Random)) and not key.startswith("__"):
                yield key, one.getstate() if isinstance(one, random.Random) else one


def errors_at(declared: Declaration, outputs: Ball) -> Iterable[tuple[Ball, Tensor]]:
    """Return the errors at the outputs for every label, or for all numbers as target, of a mean over one record.

    With them, how far they may be from their middle for one label or number.
    """
    low, high = outputs.mid - outputs.rad, outputs.mid + outputs.rad
    if declared.head == "regression":
        middle, half = sum(declared.target) / 2, abs(declared.target[1] - declared.target[0]) / 2
        yield Ball(2 * (outputs.mid - middle), 2 * (outputs.rad + half)), 2 * outputs.rad
        return
    if declared.head == "sigmoid":
        low, high = low.sigmoid(), high.sigmoid()
    else:
        width = 2 * outputs.rad.amax(1, keepdim=True)
        chance = outputs.mid.softmax(1)
        # A logit and all others move by at most their radius.
        low, high = chance * (-width).exp(), (chance * width.exp()).nan_to_num(1.0).clamp(max=1.0)
    for label in range(2 if declared.head == "sigmoid" else low.shape[1]):
        true = float(label) if declared.head == "sigmoid" else one_hot(torch.tensor(label), low.shape[1])
        # A chance near 1 is rounded before it becomes an error.
        yield Ball((low + high) / 2 - true, (high - low) / 2), (high - low) / 2 + ROUNDINGS * UNIT * high


def largest_drift(
    client: Callable[[Mapping[str, Tensor]], Bounds], at: Mapping[str, Tensor], declared: Declaration
) -> dict[str, Tensor]:
    """Return the largest change of each parameter over the local steps of any batch; refuse what is not bounded.

    If bounds with twice the moves that the first bounds allow are no larger than twice the first, then parameters never
    move further.
    """
    drift: dict[str, Tensor] = {}
    if declared.rate is None or declared.steps == 1:
        return drift
    bounds = client({})
    for name, bias in bounds.bias.items():
        most = 2 * declared.rate * declared.steps * bounds.most(name)
        drift[name] = most if bias is None else most[:, :-1]
        drift |= {} if bias is None else {bias: most[:, -1]}
    if set(at) - set(drift):
        raise RefusedError("parameters beside those of layers are trained over several steps")
    after = client(drift)
    if not all(bool((after.most(n) <= 2 * bounds.most(n)).all()) for n in bounds.bias):
        raise RefusedError("the local steps may move the network too far")
    return drift
