"""A client's network as a graph: which layers see each record once, and bounds of inputs and errors over sets of rows.

The graph is that of the client's own computation of outputs and, for errors e at the outputs, of the derivatives by all
parameters. A layer z = W v + b that sees each record once is seen in it: the derivative by W is literally the product
e^T v of two tensors with a row for each record, and that by b the sum of the same e. Where a weight is shared, tied or
computed from another tensor, it is not.
"""

from __future__ import annotations

import random
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from seepage.kernel.boxes import Boxes
from seepage.kernel.operations import Ball, Evaluator, Value, constant, errors_of_outputs, row_values
from seepage.kernel.statement import (
    HUGE,
    ROUNDINGS,
    SAME,
    SEED,
    UNIT,
    Declaration,
    RefusedError,
    one_hot,
    random_states,
)
from seepage.kernel.tracing import Operation, OperationGraph, Place, places_in, same, traced

# Numbers of a temporary, and magnitude of what is used of inputs.
_NUMBERS, _NOTHING = 2**24, 1e-25
# Operations that show a tensor in another form, and those that turn a matrix.
_SHOWN, _TURNED = {"view", "detach", "alias", "_unsafe_view", "clone", "lift_fresh"}, {"t", "permute", "transpose"}


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


class TracedLayer(NamedTuple):
    """A layer that sees each record once.

    Attributes:
        bias: name of its bias; None without one.
        entering, error: places of its inputs, and of the errors behind it, with a row for each record.
        last: whether its errors are those at the outputs.
        early: whether no parameter stands before it.
    """

    bias: str | None
    entering: Place
    error: Place
    last: bool
    early: bool


class ClientNetwork(NamedTuple):
    """A client's network on its own number of rows.

    Attributes:
        graph: outputs and derivatives by parameters, of rows and of errors at the outputs.
        outputs: place of the outputs, and their number.
        layers: layers that see each record once, by the name of their weight.
        parameters: names of all parameters of the message.
        inside, behind: operations up to the layers' inputs, and to their errors and the outputs.
    """

    graph: OperationGraph
    outputs: Place
    width: int
    layers: dict[str, TracedLayer]
    inside: list[Operation]
    behind: list[Operation]

    def evaluated(
        self, at: Mapping[str, Tensor], drift: Mapping[str, Tensor], rows: Value, errors: bool
    ) -> Mapping[Place, Value]:
        """Return values of layers' inputs, and with ``errors`` of outputs and of derivatives (output, set, unit)."""
        back, row = self.graph.inputs
        known = {row: rows}
        for name, place in self.graph.parameters.items():
            fixed = at[name].detach().double()
            known[place] = constant(fixed, drift.get(name, torch.zeros_like(fixed)) + (fixed.float() - fixed).abs())
        found = Evaluator(self.graph, known).run(self.inside)
        if errors:
            found.values[back] = errors_of_outputs(self.width)
            found.run(self.behind)
        for name, layer in self.layers.items():
            value = found.values[layer.entering]
            each = [value, *([found.values[layer.error]] if errors else [])]
            if any((one.axis, one.dims, one.fold) != (0, 1, 0) for one in each):
                raise RefusedError(f"the layer {name} does not see each record once")
            # Sums of magnitudes are bounded with it, by their roundings.
            if not bool((value.most < HUGE).all()):
                raise RefusedError("numbers of the network may be too large for single precision")
        return found.values


# The last graph of each network, with what it was made of.
_KEPT: weakref.WeakKeyDictionary[nn.Module, tuple[object, ClientNetwork]] = weakref.WeakKeyDictionary()


def kept_network(module: nn.Module, copied: nn.Module, names: Iterable[str], declared: Declaration) -> ClientNetwork:
    """Return a network's graph, which is made of its copy in single precision, and made anew where anything changed.

    A graph does not depend on the values of named parameters. All else that belongs to the network is compared, and
    ``states`` beside it; what a run depends on beyond these is none of the network's own, see docs/verify.md.
    """
    shapes = {name: tuple(copied.get_parameter(name).shape) for name in names}
    others = [(name, part) for name, part in copied.named_parameters(remove_duplicate=False) if name not in shapes]
    shared = [name for name, _ in copied.named_parameters()]
    calls = [
        (name, key, id(value), [id(one) for one in value.values()] if isinstance(value, dict) else [])
        for name, part in module.named_modules()
        for key, value in vars(part).items()
        if callable(value) or isinstance(value, dict)
    ]
    surroundings = torch.get_default_dtype(), torch.get_float32_matmul_precision()
    made_of = (
        [(name, type(part)) for name, part in module.named_modules()], calls, states(copied)[:2], shapes, shared,
        [(name, part.detach().flatten().tolist()) for name, part in others], surroundings,
        (declared.records, len(declared.layout.mean)),
    )  # fmt: skip
    if module not in _KEPT or _KEPT[module][0] != made_of:
        _KEPT[module] = made_of, network_of(copied, shapes, declared)
    for name in shapes:
        copied.get_parameter(name).requires_grad_()
    return _KEPT[module][1]


def network_of(module: nn.Module, names: Iterable[str], declared: Declaration) -> ClientNetwork:
    """Return a network, in single precision and with its own parameters, as a graph on the declared number of rows."""
    parameters = {name: module.get_parameter(name) for name in names}
    for part in parameters.values():
        part.requires_grad_()
    shape, before, widths = (declared.records, len(declared.layout.mean)), states(module), list[int]()

    def run(errors: Tensor, rows: Tensor) -> Sequence[Tensor]:
        outputs = module(rows)
        if not isinstance(outputs, Tensor) or outputs.dim() != 2 or len(outputs) != len(rows):
            raise RefusedError("the outputs of the network are not a row for each record")
        widths.append(outputs.shape[1])
        if errors.shape != outputs.shape:
            return [outputs]
        asked = list(parameters.values())
        found = torch.autograd.grad(outputs, asked, errors, allow_unused=True, materialize_grads=True)
        return [outputs, *found]

    first = traced(run, [(declared.records, 0), shape], parameters)
    graph = traced(run, [(declared.records, widths[0]), shape], parameters)
    if states(module) != before:
        raise RefusedError("the network draws random numbers, or remembers its runs")
    if not all(map(same, first.operations, graph.operations)) or len(first.results) != 1:
        raise RefusedError("the network computes something else at another time")
    outputs, *slopes = graph.results
    if not isinstance(outputs, Place):
        raise RefusedError("the outputs of the network are not followed from its rows")
    layers = _layers(graph, dict(zip(parameters, slopes, strict=True)), {n: p.shape for n, p in parameters.items()})
    entering, errors = ([getattr(one, part) for one in layers.values()] for part in ("entering", "error"))
    return ClientNetwork(graph, outputs, widths[0], layers, graph.before(*entering), graph.before(outputs, *errors))


def _layers(
    graph: OperationGraph, slopes: Mapping[str, object], shapes: Mapping[str, Sequence[int]]
) -> dict[str, TracedLayer]:
    """Return the layers whose derivatives are products of errors and inputs, by the name of their weight."""
    made = {place: operation for operation in graph.operations for place in operation.results}
    depends: dict[Place, set[Place]] = {}
    for operation in graph.operations:
        before = {*places_in((operation.arguments, operation.options))}
        every = before.union(*(depends.get(place, set()) for place in before))
        depends |= dict.fromkeys(operation.results, every)
    back, row = graph.inputs

    def shown(thing: object, turns: bool = False) -> tuple[object, bool]:
        """Return what a tensor shows, and whether it is turned."""
        turned = False
        while isinstance(thing, Place) and thing in made:
            operation = made[thing]
            if operation.name in _TURNED and turns and len(operation.shapes[0]) == 2:
                if operation.name == "permute" and tuple(operation.arguments[1]) not in ((1, 0), (-1, -2)):
                    break
                turned = not turned
            elif operation.name not in _SHOWN or (turns and operation.name in ("view", "_unsafe_view")):
                break
            thing = operation.arguments[0]
        return thing, turned

    def behind(place: object) -> bool:
        return isinstance(place, Place) and (place == back or back in depends.get(place, ()))

    sums = dict[str, tuple[object, bool]]()
    for name, slope in slopes.items():
        place, _ = shown(slope)
        operation = made.get(place) if isinstance(place, Place) else None
        whole = operation is not None and operation.name == "sum" and tuple(operation.arguments[1:2]) == ((0,),)
        if whole and operation is not None and len(shapes[name]) == 1:
            sums[name] = shown(operation.arguments[0], turns=True)
    found, taken = dict[str, TracedLayer](), set[str | None]()
    for name, slope in slopes.items():
        place, turned = shown(slope, turns=True)
        operation = made.get(place) if isinstance(place, Place) else None
        if operation is None or operation.name != "mm" or len(shapes[name]) != 2:
            continue
        one, two = (shown(part, turns=True) for part in operation.arguments)
        # (a b)^T = b^T a^T, and the rows are the inner axis.
        (one, first), (two, second) = ((two[0], not two[1]), (one[0], not one[1])) if turned else (one, two)
        if not first or second or not behind(one) or behind(two):
            continue
        if not isinstance(one, Place) or not isinstance(two, Place):
            continue
        inner = {*depends.get(two, ()), two}
        if row not in inner:
            continue
        bias = next((b for b, error in sums.items() if error == (one, False) and b not in taken), None)
        taken.add(bias)
        early = not inner & set(graph.parameters.values())
        found[name] = TracedLayer(bias, two, one, one == back, early)
    return found


def bounded(
    network: ClientNetwork, at: Mapping[str, Tensor], declared: Declaration, drift: Mapping[str, Tensor], boxes: Boxes,
    errors: bool = True, moves: Tensor | None = None, seen: Tensor | None = None,
) -> Bounds:  # fmt: skip
    """Return bounds of a client's computation on rows in boxes.

    Args:
        drift: largest change of each parameter over local steps.
        moves: directions (direction, entry) by which derivatives of inputs are wanted.
        seen: errors at the outputs (output), where they are known.
    """
    if not len(boxes.codes):
        raise RefusedError("no row of the declared columns lies in what the message spans")
    sources = 3 + 2 * errors * network.width + (0 if moves is None else len(moves))
    most = max(3, _NUMBERS // (sources * max(p.shape[-1] for p in at.values() if p.dim())))
    if len(boxes.codes) > most:
        every = torch.arange(len(boxes.codes)).split(most)
        parts = [bounded(network, at, declared, drift, boxes.some(some), errors, moves, seen) for some in every]
        join = lambda balls: Ball(*(torch.cat(many, -2) for many in zip(*balls, strict=True)))  # noqa: E731
        return parts[0]._replace(
            inputs={name: join([part.inputs[name] for part in parts]) for name in parts[0].inputs},
            slopes={name: join([part.slopes[name] for part in parts]) for name in parts[0].slopes},
            blurs={name: torch.cat([part.blurs[name] for part in parts]) for name in parts[0].blurs},
            errors={name: torch.cat([part.errors[name] for part in parts]) for name in parts[0].errors},
            apart={name: torch.cat([part.apart[name] for part in parts]) for name in parts[0].apart},
        )
    row, exact = boxes.encoded(declared), boxes.encoded(declared, rounded=False)
    values = network.evaluated(at, drift, row_values(row, row.rad - exact.rad, moves), errors)
    count, found = len(row.mid), Bounds({}, {}, {}, {}, {}, {}, set())
    for name, layer in network.layers.items():
        value, wide = values[layer.entering], int(layer.bias is not None)
        extend = lambda t, one, wide=wide: functional.pad(t, (0, wide), value=one)  # noqa: E731
        found.inputs[name] = Ball(extend(value.mid, 1.0), extend(value.rad, 0.0))
        found.bias[name], found.blurs[name] = layer.bias, extend(value.blur, 0.0)
        if moves is not None:
            slope = value.slope or Ball(*(torch.zeros(len(moves), *value.mid.shape).double() for _ in range(2)))
            found.slopes[name] = Ball(*(extend(t, 0.0).expand(-1, count, -1) for t in slope))
            if layer.early and bool((slope.rad <= SAME * 100 * slope.mid.abs().amax()).all()):
                found.affine.add(name)
        if errors:
            slope, most_error, most_apart = values[layer.error], torch.zeros(()), torch.zeros(())
            large = 1 + 2 * values[network.outputs].most.amax(1, keepdim=True)
            known = seen is not None and [(Ball(seen[None], off := ROUNDINGS * UNIT * seen[None].abs()), off)]
            for error, spread in known or errors_at(declared, values[network.outputs].ball):
                by = lambda part: part.T[..., None]  # noqa: E731
                # What rounds a chance near 1, more so of large outputs, may be more than the error that it leaves.
                far = error.rad + large * (spread - error.rad).clamp(min=0)
                lost = slope.rad * by((error.mid.abs() + far).clamp(min=SEED))
                reach = (slope.mid.abs() * by(far) + lost).sum(0)
                most_error = torch.maximum(most_error, (slope.mid * by(error.mid)).sum(0).abs() + reach)
                most_apart = torch.maximum(most_apart, (slope.mid.abs() * by(spread) + lost).sum(0))
            found.errors[name], found.apart[name] = (t.expand(count, -1) for t in (most_error, most_apart))
    return found


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
        # The target is rounded, too.
        off = outputs.rad + ROUNDINGS * UNIT * max(map(abs, declared.target))
        yield Ball(2 * (outputs.mid - middle), 2 * (off + half)), 2 * off
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
