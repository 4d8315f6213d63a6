"""The one table of operations: what each makes of values, of running bounds on roundings, and of intervals.

A value is held for a set of rows: what the operation gives in their middle, how far it may be from that on any of them
as the client computes it, by how much roundings may have moved it, and its derivative by the row. Rules:

- Sums, products, quotients, roots and comparisons of single precision are exactly rounded (IEEE 754). Each is allowed
  k = 4 roundings of the magnitudes that it adds up; a sum of n > k terms, in any order, n (``roundings``).
- An activation f takes an interval [l, h] to the hull of f(l), f(h) and its turning points between; its derivative in
  the same way, by the turning points of that. So both are as sharp as they can be of one operation. Roundings of f and
  f' are no theorem: they were measured, and 1.4 times what was seen is allowed, or more, see ``ROUNDED``.
- On the way back, a tensor depends on the errors at the outputs, ``behind``, and is followed for an error of 1 at each.
  That says what any errors make of it only where each operation is linear: all others are refused, see ``_MOVES``.
- A constant is the same for all rows. An operation that adds up rows, moves them or tells them apart is refused: each
  rule says what it does with their axis. So whatever passes is a function of each row alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partialmethod
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor
from torch.nn import functional

from seepage.kernel.roundings import ROUNDED, roundings
from seepage.kernel.statement import HUGE, ROUNDINGS, TINY, UNIT, RefusedError
from seepage.kernel.tracing import FILLS, Operation, OperationGraph, Place, places_in

_K = ROUNDINGS * UNIT
_MIXES = "the network mixes records of a batch, or heeds their place or number"
# Whole numbers below this are exact in single precision.
_WHOLE = 2.0**24
# Share of a deviation that roundings may take for it to be known.
_UNCERTAIN = 0.25


class Ball(NamedTuple):
    """An interval of each entry: middle and radius."""

    mid: Tensor
    rad: Tensor

    @property
    def most(self) -> Tensor:
        """Largest magnitude of each entry."""
        return self.mid.abs() + self.rad

    def times(self, other: Ball) -> Ball:
        """Return the products of entries."""
        return Ball(self.mid * other.mid, self.most * other.rad + self.rad * other.mid.abs())

    def plus(self, other: Ball, sign: float = 1.0) -> Ball:
        """Return sums of entries and a number of times others."""
        return Ball(self.mid + sign * other.mid, self.rad + abs(sign) * other.rad)

    def through(self, weight: Ball, rounded: float = 0.0) -> Ball:
        """Return products with a matrix (input, output), whose terms are rounded by a share of their magnitudes."""
        rad = (self.rad + rounded * self.most if rounded else self.rad) @ weight.most
        # Most weights are known exactly.
        return Ball(self.mid @ weight.mid, rad + self.mid.abs() @ weight.rad if bool(weight.rad.any()) else rad)


@dataclass(frozen=True)
class Value:
    """A tensor of the graph for each of several sets of rows.

    Attributes:
        mid, rad: its entries in the middle of each set (set, *entry), and how far the client's may be from that.
        blur: largest distance by which roundings may have moved an entry from its exact value.
        slope: derivatives by the row (move, set, *entry); None where there are none, or none are wanted.
        axis: place of the rows in the graph's tensor, which has no axis of sets; None for a constant (*entry).
        dims: number of axes of an entry.
        fold: 1 where the graph's tensor has the first axis of entries in that of the rows, else 0.
        behind: whether it depends on the errors at the outputs: it has an axis for them before that of sets.
    """

    mid: Tensor
    rad: Tensor
    blur: Tensor
    slope: Ball | None = None
    axis: int | None = None
    dims: int = 0
    fold: int = 0
    behind: bool = False

    @property
    def ball(self) -> Ball:
        """Middle and radius."""
        return Ball(self.mid, self.rad)

    @property
    def most(self) -> Tensor:
        """Largest magnitude of each entry."""
        return self.mid.abs() + self.rad

    @property
    def whole(self) -> Tensor:
        """Whether each entry is a known whole number that single precision holds."""
        mid = self.mid.double()
        return (self.rad == 0) & (mid == mid.round()) & (mid.abs() < _WHOLE)

    @property
    def rank(self) -> int:
        """Number of axes of the graph's tensor."""
        return self.dims + (self.axis is not None) - self.fold

    def moved(self, way: Callable[[Tensor], Tensor], dims: int | None = None, **changed: Any) -> Value:
        """Return what a map that rearranges or adds up entries makes of them; it counts axes from the end."""
        mid, rad = way(self.mid), way(self.rad)
        blur = rad if self.blur is self.rad else way(self.blur)
        slope = None if self.slope is None else Ball(way(self.slope.mid), way(self.slope.rad))
        return replace(
            self, mid=mid, rad=rad, blur=blur, slope=slope, dims=self.dims if dims is None else dims, **changed
        )

    def rounded(self, magnitudes: Tensor) -> Value:
        """Return the same with the roundings of an operation, in units of single precision's."""
        lost = UNIT * magnitudes + TINY
        rad = self.rad + lost
        return replace(self, rad=rad, blur=rad if self.behind or self.axis is None else self.blur + lost)

    def dim(self, dim: int) -> int:
        """Return the axis of entries, from the end, that an axis of the graph's tensor is; refuse that of rows."""
        dim %= self.rank
        if dim == self.axis or self.fold:
            raise RefusedError(_MIXES)
        return dim - (self.axis is not None and dim > self.axis) - self.dims


def constant(thing: Tensor | float | int, rad: Tensor | None = None) -> Value:
    """Return a constant as a value."""
    fixed = torch.as_tensor(thing).detach()
    # An operation of single precision takes numbers of Python, and tensors of one number, in its own precision.
    if rad is None and (fixed.is_floating_point() or not isinstance(thing, Tensor)):
        fixed = fixed.float()
    fixed = fixed if fixed.dtype == torch.bool else fixed.double()
    off = torch.zeros(fixed.shape, dtype=torch.float64) if rad is None else rad
    return Value(fixed, off, off, dims=fixed.dim())


def row_values(row: Ball, blur: Tensor, moves: Tensor | None = None) -> Value:
    """Return rows (set, entry) with their roundings, and directions (move, entry) by which derivatives are wanted."""
    slope = None if moves is None else Ball(moves[:, None], torch.zeros_like(moves)[:, None])
    return Value(row.mid, row.rad, blur, slope, 0, 1)


def errors_of_outputs(width: int) -> Value:
    """Return an error of 1 at each output in turn (output, set, output), with which slopes are followed back."""
    one = torch.eye(width).double()[:, None]
    none = torch.zeros_like(one)
    return Value(one, none, none, None, 0, 1, behind=True)


class ActivationCurve(NamedTuple):
    """A function of one number with its derivative, and the points at which either turns, bends or jumps."""

    at: Callable[[Tensor], Tensor]
    slope: Callable[[Tensor], Tensor]
    turns: tuple[float, ...] = ()
    bends: tuple[float, ...] = ()


def _hull(function: Callable[[Tensor], Tensor], ball: Ball, points: Sequence[float]) -> tuple[Tensor, Tensor]:
    """Return the least and largest value on intervals of a function that is monotone but for some points."""
    low, high = ball.mid - ball.rad, ball.mid + ball.rad
    ends = function(low), function(high)
    least, most = torch.minimum(*ends), torch.maximum(*ends)
    for point in points:
        # It may jump there, and has the value of the side that the interval reaches.
        step = 1e-12 * (1 + abs(point))
        here = (low <= point) & (high >= point)
        for side, there in ((0.0, here), (-step, here & (low < point)), (step, here & (high > point))):
            value = float(function(torch.tensor(point + side, dtype=torch.float64)))
            least = torch.where(there, least.clamp(max=value), least)
            most = torch.where(there, most.clamp(min=value), most)
    return least, most


def _slopes(curve: ActivationCurve, ball: Ball) -> Ball:
    low, high = _hull(curve.slope, ball, (*curve.turns, *curve.bends))
    # The turning points are given to 12 digits and more, so that extremes are right to twice as many.
    return Ball((low + high) / 2, (high - low) / 2 * (1 + 1e-9))


def _by_autograd(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    def slope(at: Tensor) -> Tensor:
        with torch.enable_grad():
            here = at.detach().requires_grad_()
            return torch.autograd.grad(function(here).sum(), here)[0]

    return slope


def _gelu(approximate: str = "none") -> ActivationCurve:
    at = lambda x: functional.gelu(x, approximate=approximate)  # noqa: E731
    if approximate == "tanh":
        return ActivationCurve(at, _by_autograd(at), (-0.7524614220710162,), (-1.4185040087908285, 1.4185040087908285))
    return ActivationCurve(at, _by_autograd(at), (-0.7517915246935645,), (-(2**0.5), 2**0.5))


def _elu(alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> ActivationCurve:
    below = lambda x: (x.clamp(max=0) * input_scale).exp()  # noqa: E731
    return ActivationCurve(
        lambda x: scale * torch.where(x > 0, x, alpha * torch.expm1(x.clamp(max=0) * input_scale)),
        lambda x: scale * torch.where(x > 0, 1.0, alpha * input_scale * below(x)),
        (0.0,), (0.0,),
    )  # fmt: skip


def _leaky_relu(below: float = 0.01) -> ActivationCurve:
    return ActivationCurve(
        lambda x: torch.where(x > 0, x, below * x), lambda x: torch.where(x > 0, 1.0, below).double(), (0.0,), (0.0,)
    )


def _clamp(low: float | None = None, high: float | None = None) -> ActivationCurve:
    ends = tuple(end for end in (low, high) if end is not None and math.isfinite(end))
    low, high = -math.inf if low is None else low, math.inf if high is None else high
    inside = lambda x: ((x > low) & (x < high)).double()  # noqa: E731
    return ActivationCurve(lambda x: x.clamp(low, high), inside, ends, ends)


def _softplus(beta: float = 1.0, threshold: float = 20.0) -> ActivationCurve:
    # From a threshold of 17 on, it is its argument within rounding.
    if threshold < 17:
        raise RefusedError("the threshold of a softplus of the network is too low")
    return ActivationCurve(
        lambda x: functional.softplus(x, beta, math.inf), lambda x: torch.sigmoid(beta * x)
    )  # fmt: skip


_SIGMOID = lambda x: torch.sigmoid(x) * (1 - torch.sigmoid(x))  # noqa: E731
CURVES: dict[str, Callable[..., ActivationCurve]] = {
    "relu": lambda: _clamp(0.0),
    "leaky_relu": _leaky_relu,
    "hardtanh": lambda low=-1.0, high=1.0: _clamp(low, high),
    "elu": _elu,
    "celu": lambda alpha=1.0: _elu(alpha, 1.0, 1 / alpha),
    "gelu": _gelu,
    "softplus": _softplus,
    "tanh": lambda: ActivationCurve(torch.tanh, lambda x: 1 - torch.tanh(x).square(), (), (0.0,)),
    "sigmoid": lambda: ActivationCurve(torch.sigmoid, _SIGMOID, (), (0.0,)),
    "log_sigmoid_forward": lambda: ActivationCurve(functional.logsigmoid, lambda x: torch.sigmoid(-x)),
    "silu": lambda: ActivationCurve(
        functional.silu, _by_autograd(functional.silu), (-1.278464542761074,), (-2.399357280515468, 2.399357280515468)
    ),
    "mish": lambda: ActivationCurve(
        functional.mish, _by_autograd(functional.mish), (-1.1924312145155,), (-2.25637639636079, 1.49057117948543),
    ),
    "hardswish": lambda: ActivationCurve(
        functional.hardswish, lambda x: torch.where(x <= -3, 0.0, torch.where(x >= 3, 1.0, x / 3 + 0.5)).double(),
        (-3.0, -1.5, 3.0), (-3.0, 3.0),
    ),
    "hardsigmoid": lambda: ActivationCurve(
        functional.hardsigmoid, lambda x: ((x > -3) & (x < 3)).double() / 6, (-3.0, 3.0), (-3.0, 3.0)
    ),
    "abs": lambda: ActivationCurve(torch.abs, torch.sign, (0.0,), (0.0,)),
    "exp": lambda: ActivationCurve(torch.exp, torch.exp),
    "expm1": lambda: ActivationCurve(torch.expm1, torch.exp),
    "erf": lambda: ActivationCurve(torch.erf, lambda x: 2 / math.pi**0.5 * (-x.square()).exp(), (), (0.0,)),
    "sqrt": lambda: ActivationCurve(torch.sqrt, lambda x: 0.5 / x.sqrt()),
    "rsqrt": lambda: ActivationCurve(torch.rsqrt, lambda x: -0.5 * x.rsqrt() ** 3),
    "log": lambda: ActivationCurve(torch.log, lambda x: 1 / x),
    "log1p": lambda: ActivationCurve(torch.log1p, lambda x: 1 / (1 + x)),
}  # fmt: skip
# Curves of which the derivative follows from the value: these take it in place of the argument.
_OF_RESULT: dict[str, ActivationCurve] = {
    "tanh": ActivationCurve(torch.tanh, lambda y: 1 - y.clamp(-1, 1).square(), (), (0.0,)),
    "sigmoid": ActivationCurve(torch.sigmoid, lambda y: y.clamp(0, 1) * (1 - y.clamp(0, 1)), (), (0.5,)),
}
_EXACT = {"relu", "hardtanh", "abs", "clamp"}
_FAR = 16.0
# Names of derivatives that are not those of their operations with `_backward`.
_BACKWARD = {"threshold_backward": "relu", "log_sigmoid_backward": "log_sigmoid_forward"}


def _curved(value: Value, curve: ActivationCurve, name: str) -> Value:
    low, high = _hull(curve.at, value.ball, curve.turns)
    mid = curve.at(value.mid)
    rad = torch.maximum(high - mid, mid - low).nan_to_num(torch.inf).clamp(min=0)
    slope = _slopes(curve, value.ball) if value.slope is not None or value.blur is not value.rad else None
    found = replace(value, mid=mid, rad=rad, blur=rad)
    if slope is not None and value.axis is not None:
        blur = (slope.most * value.blur).nan_to_num(torch.inf)
        found = replace(found, blur=blur, slope=None if value.slope is None else value.slope.times(slope))
    if name in _EXACT:
        return found
    own, argument, one, _ = ROUNDED.get(name, (4, 0, 0, 8))
    return found.rounded(own * found.most + argument * value.most.clamp(max=_FAR) + one)


# What an operation may do with what depends on the errors at the outputs. It moves or adds up entries of its first
# argument; it adds several, of which any other is 0; it multiplies one by what does not depend on them; or it is an
# operation's derivative, which takes them first and is linear in them.
_MOVES = {
    *("view", "_unsafe_view", "reshape", "detach", "alias", "clone", "lift_fresh", "lift_fresh_copy", "contiguous"),
    *("permute", "transpose", "t", "slice", "select", "narrow", "split", "split_with_sizes", "unbind", "expand"),
    *("squeeze", "unsqueeze", "neg", "sum", "mean", "_to_copy", "repeat", "constant_pad_nd", "index", "index_select"),
    *("slice_backward", "select_backward"),
}
_ADDS: dict[str, tuple[int, ...]] = {
    "add": (0, 1), "sub": (0, 1), "rsub": (0, 1), "cat": (0,), "stack": (0,), "where": (1, 2), "masked_fill": (0, 2),
    "scatter": (0, 3), "addmm": (0, 1, 2), "baddbmm": (0, 1, 2),
}  # fmt: skip
_MULTIPLIES = {"mul", "mm", "bmm", "addmm", "baddbmm", "div"}
# Operations whose result has no values but yes and no, and those that only show such a tensor in another form.
_ANSWERS = {"gt", "ge", "lt", "le", "eq", "ne", "logical_and", "logical_or", "logical_xor", "logical_not"}
_ANSWERS |= {"bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not"}
_MOVES_ONLY = _MOVES - {"neg", "sum", "mean"}


def _listed(thing: Any) -> Sequence[Any]:
    return [thing] if isinstance(thing, Place) or not isinstance(thing, (tuple, list)) else thing


def _single(options: Iterable[Any]) -> tuple[Any, ...]:
    """Return options of an operation with its numbers in single precision, as it takes them."""
    number = lambda one: isinstance(one, (int, float)) and not isinstance(one, bool)  # noqa: E731
    return tuple(float(torch.tensor(float(one))) if number(one) else one for one in options)


class Evaluator:
    """Puts sets of rows through a graph.

    Args:
        graph: operations of the client's own run.
        known: values of the graph's inputs and parameters.
    """

    def __init__(self, graph: OperationGraph, known: Mapping[Place, Value]) -> None:
        self.rows, self.values = graph.rows, dict(known)
        self.made = {place: operation for operation in graph.operations for place in operation.results}

    def run(self, operations: Iterable[Operation]) -> Evaluator:
        """Compute the values of what some operations return."""
        for operation in operations:
            if operation.results[0] in self.values:
                continue
            self._check_types(operation)
            self._check_linear(operation)
            found = self._result(operation)
            many = found if isinstance(found, list) else [found]
            used = places_in((operation.arguments, operation.options))
            known = [self.values[one] for one in used if one in self.values]
            sloped = next((one.slope for one in known if one.slope is not None and not one.behind), None)
            for place, one, kind in zip(operation.results, many, operation.kinds, strict=False):
                if one is None:
                    continue
                if kind == torch.int64 and one.mid.numel() and not bool((one.most < _WHOLE).all()):
                    raise RefusedError(
                        f"the operation {operation.name} of the network has whole numbers that are too large"
                    )
                self.values[place] = _sound(_jumping(one, sloped))
        return self

    def _check_types(self, operation: Operation) -> None:
        """Refuse arithmetic of yes and no, which is none."""
        answers = torch.bool in operation.kinds
        if answers and operation.name not in {*_ANSWERS, *_MOVES_ONLY, "cat", "stack", "where", *FILLS}:
            raise RefusedError(f"the operation {operation.name} of the network is not bounded for yes and no")
        if torch.int64 in operation.kinds and (operation.name in CURVES or operation.name.startswith("clamp")):
            raise RefusedError(f"the operation {operation.name} of the network is not bounded for whole numbers")

    def _check_linear(self, operation: Operation) -> None:
        """Refuse what is not linear in the errors at the outputs; see ``_MOVES``."""
        name, arguments = operation.name, operation.arguments
        # What was not computed, as an intermediate result that is kept for a derivative, is used by no rule.
        known = lambda thing: [self.values[one] for one in places_in(thing) if one in self.values]  # noqa: E731
        behind = [any(one.behind for one in known(argument)) for argument in arguments]
        options = any(one.behind for one in known(operation.options))
        derived = name.endswith("_backward") and name not in _MOVES
        if not any(behind) and not options:
            if derived:
                raise RefusedError(f"the network takes a derivative of its own ({name})")
            return
        refused = RefusedError(f"the operation {name} of the network is not linear in errors on their way back")
        if options or not (derived or name in _MOVES or name in _ADDS or name in _MULTIPLIES):
            raise refused
        at = [i for i, one in enumerate(behind) if one]
        if (derived or name in _MOVES or name == "div") and at != [0]:
            raise refused
        if name in ("mul", "mm", "bmm") and len(at) > 1:
            raise refused
        if name in ("addmm", "baddbmm"):
            # A product of an error and what is none, and the other term, which is an error or 0.
            if len(at) == 3 or {1, 2} <= {*at} or not ({1, 2} & {*at}):
                raise refused
            if 0 not in at and not self._is_zero(arguments[0]):
                raise refused
        elif name in _ADDS:
            terms = [one for i in _ADDS[name] if i < len(arguments) for one in _listed(arguments[i])]
            if not {*at} <= {*_ADDS[name]} or not all(map(self._is_zero, terms)):
                raise refused

    def _is_zero(self, thing: Any) -> bool:
        """Return whether a term depends on the errors at the outputs, or is 0."""
        value = self.of(thing)
        return value.behind or not bool(value.mid.any() or value.rad.any())

    def of(self, thing: Any) -> Value:
        """Return the value of a place, or of a constant."""
        if isinstance(thing, Tensor) and not thing.is_floating_point() and bool((thing.long().abs() >= _WHOLE).any()):
            raise RefusedError("a constant of the network is a whole number with more digits than single precision")
        return self.values[thing] if isinstance(thing, Place) else constant(thing)

    def _result(self, operation: Operation) -> Value | list[Value]:
        name, arguments, options = operation.name, operation.arguments, operation.options
        self.shape, self.kind = operation.shapes[0], operation.kinds[0]
        options = {key: one for key, one in options.items() if key not in ("device", "layout", "pin_memory")}
        if options.get("memory_format") is not None:
            options = {key: one for key, one in options.items() if key != "memory_format"}
        rule = getattr(self, f"_{name.strip('_')}", None)
        try:
            if name in CURVES:
                numbers, options = _single(arguments[1:]), dict(zip(options, _single(options.values()), strict=True))
                return self._curve(name, self.of(arguments[0]), *numbers, **options)
            if name.endswith("_backward") and (name in _BACKWARD or name.removesuffix("_backward") in CURVES):
                return self._derived(name, *arguments, **options)
            if rule is None:
                raise RefusedError(f"the operation {name} of the network is not bounded")
            return rule(*arguments, **options)
        except (TypeError, KeyError) as error:
            raise RefusedError(f"an option of the operation {name} of the network is not bounded") from error

    # Activations and their derivatives.

    def _curve(self, name: str, value: Value, *options: Any, **named: Any) -> Value | list[Value]:
        found = _curved(value, CURVES[name](*options, **named), name)
        return [found] if name == "log_sigmoid_forward" else found

    def _derived(self, name: str, back: Any, at: Any, *options: Any, **named: Any) -> Value:
        plain, value = _BACKWARD.get(name, name.removesuffix("_backward")), self.of(at)
        options, named = _single(options), dict(zip(named, _single(named.values()), strict=True))
        if plain == "relu" and options == (0,):
            options = ()
        elif plain == "elu":
            # Alpha, the two scales, whether the result follows, and it or the argument, which comes last.
            alpha, (scale, inner, by_result, last) = at, options
            value, options = self.of(last), (alpha, scale, inner)
            if by_result:
                slope = lambda y: torch.where(y > 0, scale, inner * (y + alpha * scale)).double()  # noqa: E731
                return self._times_slope(back, value, ActivationCurve(torch.abs, slope, (), (0.0,)), plain)
        elif plain == "leaky_relu":
            if options[1] and options[0] <= 0:
                raise RefusedError("the derivative of leaky_relu by its result is not bounded")
            options = options[:1]
        elif plain == "log_sigmoid_forward":
            self._check_kept(at, "log_sigmoid_forward", {1: options[0]})
            options = ()
        curve = _OF_RESULT[plain] if plain in _OF_RESULT and not options else CURVES[plain](*options, **named)
        return self._times_slope(back, value, curve, plain)

    def _check_kept(self, at: Any, name: str, kept: Mapping[int, Any]) -> None:
        """Refuse a derivative that takes something else than what its operation kept for it."""
        for which, thing in kept.items():
            made = self.made.get(thing)
            if made is None or (made.name, made.arguments[0], made.results[which : which + 1]) != (name, at, (thing,)):
                raise RefusedError(f"the derivative of {name} takes something else than what was kept for it")

    def _times_slope(self, back: Any, value: Value, curve: ActivationCurve, name: str) -> Value:
        slope = _slopes(curve, value.ball)
        lost = 0.0 if name in _EXACT else ROUNDED.get(name, (4, 0, 0, 8))[3] * UNIT * (1 + value.most.clamp(max=_FAR))
        return self._mul(back, replace(value, mid=slope.mid, rad=slope.rad + lost, blur=slope.rad + lost, slope=None))

    def _prelu_kernel_backward(self, back: Any, at: Any, weight: Any) -> list[Value]:
        value = self.of(at)
        slope = _slopes(CURVES["relu"](), value.ball)
        one = replace(value, mid=slope.mid, rad=slope.rad, blur=slope.rad, slope=None)
        below = replace(one, mid=1 - one.mid)
        return [self._mul(back, self._add(one, self._mul_of(below, self.of(weight))))]

    def _prelu_kernel(self, at: Any, weight: Any) -> Value:
        both = self.of(at), self.of(weight)
        zero = constant(0.0)
        return self._add(self._maximum_of(both[0], zero), self._mul_of(self._minimum_of(both[0], zero), both[1]))

    # Arithmetic of entries.

    def together(self, *values: Value) -> list[Value]:
        """Return values whose entries meet each other, as the graph's tensors do from the last axis on."""
        rowed = [one for one in values if one.axis is not None]
        if not rowed:
            return list(values)
        after = {one.rank - 1 - one.axis for one in rowed if one.axis is not None}
        if len(after) > 1 or len({one.fold for one in rowed}) > 1:
            raise RefusedError(_MIXES)
        [behind] = after
        ready = []
        for one in values:
            if one.axis is None and one.dims > behind:
                one = self.for_each(one, one.dims - 1 - behind)
            ready.append(one)
        dims = max(one.dims for one in ready)
        out = []
        for one in ready:
            if one.axis is not None and one.dims < dims:
                for _ in range(dims - one.dims):
                    one = one.moved(lambda t, d=one.dims: t.unsqueeze(-d - 1), one.dims + 1, axis=one.axis + 1)
            out.append(one)
        return out

    def for_each(self, value: Value, dim: int) -> Value:
        """Return a constant without the axis in which it has an entry for each row, all of them the same."""
        same = value.mid.shape[dim] == 1 or (
            value.mid.shape[dim] == self.rows
            and bool(
                (value.mid == value.mid.narrow(dim, 0, 1)).all() and (value.rad == value.rad.narrow(dim, 0, 1)).all()
            )
        )
        if not same:
            raise RefusedError(_MIXES)
        return value.moved(lambda t: t.select(dim, 0), value.dims - 1)

    def _joined(self, found: Ball, blur: Tensor | None, slope: Ball | None, *values: Value) -> Value:
        rowed = [one for one in values if one.axis is not None]
        like = rowed[0] if rowed else values[0]
        dims = max(one.dims for one in values)
        behind = any(one.behind for one in values)
        mid, rad = torch.broadcast_tensors(*found)
        if blur is None or behind or not rowed:
            return replace(like, mid=mid, rad=rad, blur=rad, slope=None, dims=dims, behind=behind)
        if slope is not None:
            entry = mid.shape[mid.dim() - dims :]
            slope = Ball(*(t.expand(*t.shape[: t.dim() - dims], *entry) for t in torch.broadcast_tensors(*slope)))
        return replace(like, mid=mid, rad=rad, blur=blur.expand_as(mid), slope=slope, dims=dims, behind=False)

    def _add(self, left: Any, right: Any, alpha: float = 1.0) -> Value:
        alpha = float(torch.tensor(float(alpha)))
        one, two = self.together(*self._both(left, right))
        return self._sum_of(one, two, alpha).rounded(ROUNDINGS * (one.most + abs(alpha) * two.most))

    def _sum_of(self, one: Value, two: Value, alpha: float) -> Value:
        """Return the exact sum of entries that meet each other."""
        slope, behind = one.slope, one.behind or two.behind
        if two.slope is not None and not behind:
            slope = (
                Ball(alpha * two.slope.mid, abs(alpha) * two.slope.rad)
                if slope is None
                else slope.plus(two.slope, alpha)
            )
        blur = None if behind else one.blur + abs(alpha) * two.blur
        return self._joined(one.ball.plus(two.ball, alpha), blur, slope, one, two)

    def _sub(self, left: Any, right: Any, alpha: float = 1.0) -> Value:
        return self._add(left, right, -alpha)

    def _rsub(self, left: Any, right: Any, alpha: float = 1.0) -> Value:
        return self._add(right, left, -alpha)

    def _neg(self, at: Any) -> Value:
        value = self.of(at)
        slope = None if value.slope is None else Ball(-value.slope.mid, value.slope.rad)
        return replace(value, mid=-value.mid, slope=slope)

    def _mul(self, left: Any, right: Any) -> Value:
        return self._mul_of(*self._both(left, right))

    def _mul_of(self, left: Value, right: Value) -> Value:
        one, two = self.together(left, right)
        behind = one.behind or two.behind
        parts = [a.slope.times(b.ball) for a, b in ((one, two), (two, one)) if a.slope is not None and not behind]
        slope = parts[0].plus(parts[1]) if len(parts) == 2 else parts[0] if parts else None
        blur = None if behind else one.most * two.blur + one.blur * two.most
        found = self._joined(one.ball.times(two.ball), blur, slope, one, two)
        return found.rounded(ROUNDINGS * one.most * two.most)

    def _div(self, left: Any, right: Any) -> Value:
        if isinstance(left, Place) and self._one_more(right) == left:
            # A softsign.
            return _curved(
                self.of(left),
                ActivationCurve(lambda x: x / (1 + x.abs()), lambda x: (1 + x.abs()) ** -2, (), (0.0,)),
                "",
            )
        return self._mul_of(self.of(left), self._inverse(right))

    def _one_more(self, thing: Any) -> Place | None:
        """Return x where something is 1 + |x|."""
        made = self.made.get(thing) if isinstance(thing, Place) else None
        if made is None or (made.name, made.arguments[1:], made.options) != ("add", (1,), {}):
            return None
        inner = self.made.get(made.arguments[0])
        return inner.arguments[0] if inner is not None and inner.name == "abs" else None

    def _reciprocal(self, at: Any) -> Value:
        found = self._inverse(at)
        return found.rounded(ROUNDINGS * found.most)

    def _inverse(self, at: Any) -> Value:
        """Return exact inverses, of which a quotient is a product."""
        value, floor = self.of(at), 1 - _K if self._one_more(at) is not None else 0.0
        least = (value.mid.abs() - value.rad).clamp(min=floor)
        slope = Ball(-1 / value.mid.square(), 1 / least.square() - 1 / value.mid.square())
        found = replace(
            value, mid=1 / value.mid, rad=(value.rad / (least * value.mid.abs())).nan_to_num(torch.inf),
            blur=(value.blur / least.square()).nan_to_num(torch.inf),
            slope=None if value.slope is None else value.slope.times(slope),
        )  # fmt: skip
        return replace(found, blur=found.rad) if value.axis is None else found

    def _pow(self, at: Any, power: float) -> Value:
        if power not in (1, 2, 3):
            raise RefusedError(f"the power {power} of the network is not bounded")
        if power == 3:
            return self._mul_of(self._pow(at, 2), self.of(at))
        return (
            self.of(at)
            if power == 1
            else _curved(self.of(at), ActivationCurve(torch.square, lambda x: 2 * x, (0.0,)), "square")
        )

    def _maximum(self, left: Any, right: Any) -> Value:
        return self._maximum_of(*self._both(left, right))

    def _minimum(self, left: Any, right: Any) -> Value:
        return self._minimum_of(*self._both(left, right))

    def _maximum_of(self, left: Value, right: Value) -> Value:
        one, two = self.together(left, right)
        return self._chosen(Ball(one.mid >= two.mid, (one.mid - two.mid).abs() <= one.rad + two.rad), one, two, False)

    def _minimum_of(self, left: Value, right: Value) -> Value:
        one, two = self.together(left, right)
        return self._chosen(Ball(one.mid <= two.mid, (one.mid - two.mid).abs() <= one.rad + two.rad), one, two, False)

    def _clamp(self, at: Any, min: Any = None, max: Any = None) -> Value:
        if isinstance(min, (Place, Tensor)) or isinstance(max, (Place, Tensor)):
            value = at if min is None else self._maximum(at, min)
            value = self.of(value) if not isinstance(value, Value) else value
            return value if max is None else self._minimum_of(value, self.of(max))
        ends = [None if end is None else float(torch.tensor(float(cast(float, end)))) for end in (min, max)]
        return _curved(self.of(at), _clamp(*ends), "clamp")

    def _clamp_min(self, at: Any, min: Any) -> Value:
        return self._clamp(at, min)

    def _clamp_max(self, at: Any, max: Any) -> Value:
        return self._clamp(at, None, max)

    def _where(self, chosen: Any, yes: Any, no: Any) -> Value:
        by, one, two = self.together(self.of(chosen), self.of(yes), self.of(no))
        return self._chosen(Ball(by.mid, by.rad > 0), one, two, True, by)

    def _masked_fill(self, at: Any, mask: Any, by: Any) -> Value:
        return self._where(mask, by, at)

    def _chosen(self, by: Ball, one: Value, two: Value, jumps: bool, *more: Value) -> Value:
        """Return one of two values for each entry, or their hull where it is not certain which."""
        unsure, apart = by.rad.bool(), (one.mid - two.mid).abs()
        either = torch.maximum(one.rad, two.rad) + (apart if jumps else 0.0)
        found = Ball(
            torch.where(by.mid, one.mid, two.mid), torch.where(unsure, either, torch.where(by.mid, one.rad, two.rad))
        )
        either = torch.maximum(one.blur, two.blur) + (apart + found.rad if jumps else 0.0)
        blur = torch.where(unsure, either, torch.where(by.mid, one.blur, two.blur))
        slope, behind = None, any(part.behind for part in (one, two, *more))
        if not behind and (one.slope is not None or two.slope is not None):
            zero = Ball(torch.zeros(()).double(), torch.zeros(()).double())
            first, second = one.slope or zero, two.slope or zero
            wide = torch.maximum(first.rad, second.rad) + (first.mid - second.mid).abs()
            wide = torch.full_like(wide, torch.inf) if jumps else wide
            slope = Ball(
                torch.where(by.mid, first.mid, second.mid),
                torch.where(unsure, wide, torch.where(by.mid, first.rad, second.rad)),
            )
        return self._joined(found, blur, slope, one, two, *more)

    def _compared(self, name: str, left: Any, right: Any) -> Value:
        # Yes and no are compared as 1 and 0.
        one, two = (replace(part, mid=part.mid.double()) for part in self.together(*self._both(left, right)))
        # What is no whole number may be equal in one precision, and not in another.
        off = one.rad + two.rad + torch.where(one.whole & two.whole, 0.0, _K * (one.most + two.most) + TINY)
        apart = one.mid - two.mid
        found = Ball(getattr(torch, name)(apart, 0), ((off > 0) & (apart.abs() <= off)).double())
        return self._joined(found, found.rad, None, one, two)

    def _answered(self, name: str, left: Any, right: Any) -> Value:
        one, two = self.together(*self._both(left, right))
        if {one.mid.dtype, two.mid.dtype} != {torch.bool}:
            raise RefusedError(f"the operation {name} of the network is not bounded for numbers")
        found = Ball(getattr(torch, name)(one.mid, two.mid), ((one.rad > 0) | (two.rad > 0)).double())
        return self._joined(found, found.rad, None, one, two)

    _logical_and = _bitwise_and = partialmethod(_answered, "logical_and")
    _logical_or = _bitwise_or = partialmethod(_answered, "logical_or")
    _logical_xor = _bitwise_xor = partialmethod(_answered, "logical_xor")

    def _logical_not(self, at: Any) -> Value:
        value = self.of(at)
        if value.mid.dtype != torch.bool:
            raise RefusedError("the operation logical_not of the network is not bounded for numbers")
        return replace(value, mid=~value.mid, slope=None)

    _bitwise_not = _logical_not

    _gt, _ge = partialmethod(_compared, "gt"), partialmethod(_compared, "ge")
    _lt, _le = partialmethod(_compared, "lt"), partialmethod(_compared, "le")
    _eq, _ne = partialmethod(_compared, "eq"), partialmethod(_compared, "ne")

    def _sgn(self, at: Any) -> Value:
        value = self.of(at)
        unsure = (value.mid.abs() <= value.rad).double() * (value.rad > 0)
        return replace(value, mid=value.mid.sign(), rad=2 * unsure, blur=2 * unsure, slope=None)

    _sign = _sgn

    def _to_copy(self, at: Any, dtype: torch.dtype | None = None, **_: Any) -> Value:
        value = self.of(at)
        if value.mid.dtype == torch.bool:
            return replace(value, mid=value.mid.double(), slope=None)
        if dtype is None or dtype.is_floating_point:
            # Whole numbers, too, may have more digits than single precision.
            exact = not bool(value.rad.any()) and bool((value.mid.float().double() == value.mid).all())
            return value if exact else value.rounded(value.most)
        if dtype == torch.bool or bool(value.rad.any()) or value.behind:
            raise RefusedError("the network rounds what it computes to whole numbers")
        return replace(value, mid=value.mid.trunc(), slope=None)

    def _remainder(self, at: Any, by: Any) -> Value:
        """Return the remainder of known whole numbers by a whole number, which is exact."""
        value = self.of(at)
        divides = isinstance(by, (int, float)) and float(by).is_integer() and 0 < by < _WHOLE
        if not divides or not bool(value.whole.all()):
            raise RefusedError("the network takes a remainder of what is no known whole number")
        return replace(value, mid=torch.remainder(value.mid.double(), float(by)), slope=None)

    # Sums and products of many entries.

    def _sum(self, at: Any, dims: Sequence[int] | None = None, keepdim: bool = False, *, dtype: None = None) -> Value:
        value = self.of(at)
        if dims is None or not len(dims):
            dims = range(value.rank)
        if dtype not in (None, torch.float32):
            raise RefusedError("an option of the operation sum of the network is not bounded")
        axes = [value.dim(d) for d in dims]
        if not axes:
            return value
        below = 0 if value.axis is None or keepdim else sum(d % value.rank < value.axis for d in dims)
        axis = None if value.axis is None else value.axis - below
        gone = 0 if keepdim else len(axes)
        found = value.moved(lambda t: t.double().sum(axes, keepdim), value.dims - gone, axis=axis)
        terms = math.prod(value.mid.shape[d] for d in axes)
        return found.rounded(roundings(terms) / UNIT * value.most.sum(axes, keepdim))

    def _mean(self, at: Any, dims: Sequence[int] | None = None, keepdim: bool = False, *, dtype: None = None) -> Value:
        value, total = self.of(at), self._sum(at, dims, keepdim, dtype=dtype)
        axes = [value.dim(d) for d in (dims or range(value.rank))]
        return self._mul_of(
            total, constant(torch.tensor(1 / math.prod(value.mid.shape[d] for d in axes), dtype=torch.float64))
        )

    def _mm(self, left: Any, right: Any) -> Value:
        one, two = self._both(left, right)
        if one.axis is None and (two.axis, one.dims, two.dims, two.fold) == (1, 2, 1, 0):
            # W x^T = (x W^T)^T.
            return replace(self._product(replace(two, axis=0), one.moved(lambda t: t.T)), axis=1)
        if one.rank != 2 or two.rank != 2 or one.axis not in (None, 0) or two.axis is not None:
            raise RefusedError(_MIXES)
        return self._product(one, two)

    def _bmm(self, left: Any, right: Any) -> Value:
        one, two = self._both(left, right)
        if any(value.rank != 3 or value.fold or value.axis not in (None, 0) for value in (one, two)):
            raise RefusedError(_MIXES)
        if one.axis is None and two.axis is None:
            return self._product(one, two)
        # A matrix for each row: entries (row, a, k) and (row, k, b), of which one may be the same for all.
        return self._product(*(value if value.axis == 0 else self.for_each(value, 0) for value in (one, two)))

    def _product(self, one: Value, two: Value) -> Value:
        """Return products of rows or matrices with matrices, as sums to which one more term may belong.

        The inner axes are the last of the one, and the last but one of the other; none of them is that of rows.
        """
        width, like = one.mid.shape[-1], one if one.axis is not None else replace(two, dims=one.dims)
        lost = roundings(width + 1)
        found = one.ball.through(two.ball, lost)
        behind, rowed = one.behind or two.behind, like.axis is not None
        rad, blur = found.rad + width * TINY, None
        if not behind and rowed:
            blur = (one.blur + lost * one.most) @ two.most + one.most @ two.blur + width * TINY
        parts = [] if one.slope is None or behind else [one.slope.through(two.ball)]
        if two.slope is not None and not behind:
            slope = two.slope
            parts.append(Ball(one.mid @ slope.mid, one.most @ slope.rad + one.rad @ slope.mid.abs()))
        slope = None if not parts else parts[0] if len(parts) == 1 else parts[0].plus(parts[1])
        like = replace(like, mid=found.mid, rad=rad, blur=rad if blur is None else blur)
        return replace(like, slope=None if behind else slope, behind=behind)

    def _addmm(self, bias: Any, left: Any, right: Any) -> Value:
        return self._with_bias(bias, self._mm(left, right), left)

    def _baddbmm(self, bias: Any, left: Any, right: Any) -> Value:
        return self._with_bias(bias, self._bmm(left, right), left)

    def _with_bias(self, bias: Any, product: Value, left: Any) -> Value:
        """Return a product with one more term of the same sums, which meets it as in a sum of two tensors."""
        one, two = self.together(product, self.of(bias))
        return self._sum_of(one, two, 1.0).rounded(roundings(self.of(left).mid.shape[-1] + 1) / UNIT * two.most)

    def _both(self, left: Any, right: Any) -> tuple[Value, Value]:
        return (
            left if isinstance(left, Value) else self.of(left),
            right if isinstance(right, Value) else self.of(right),
        )

    # Normalisations.

    def _native_layer_norm(self, at: Any, shape: Sequence[int], weight: Any, bias: Any, eps: float) -> list[Value]:
        value = self.of(at)
        if len(shape) != 1 or value.dim(-1) != -1:
            raise RefusedError("an option of the operation native_layer_norm of the network is not bounded")
        scaled, spread = _normed(value, eps)
        mean = self._mean_of(value)
        found = scaled if weight is None else self._mul(scaled, self.of(weight))
        found = found if bias is None else self._add(found, self.of(bias))
        return [found, mean, spread]

    def _native_layer_norm_backward(
        self, back: Any, at: Any, shape: Any, mean: Any, spread: Any, weight: Any, bias: Any, mask: Any
    ) -> list[Value]:
        self._check_kept(at, "native_layer_norm", {1: mean, 2: spread})
        value, inverse = self.of(at), self.of(spread)
        scaled = self._mul_of(self._add(value, self._neg_of(self._mean_of(value))), inverse)
        slope = self.of(back) if weight is None else self._mul(back, weight)
        away = self._add(slope, self._neg_of(self._mean_of(slope)))
        along = self._mul_of(scaled, self._mean_of(self._mul_of(slope, scaled)))
        exact = self._mul_of(self._add(away, self._neg_of(along)), inverse)
        # PyTorch computes a s + b x + c, with a = 1 / deviation, b = (mean sum s - sum s x) a^3 / n and
        # c = - b mean - a sum s / n. With g the roundings of such sums, M the largest |x| and y = (x - mean) a, b is
        # off by 4 g M a^3 of the mean of |s|, and stands before x and the mean once more.
        g, large = roundings(value.mid.shape[-1] + 4), value.most.amax(-1, keepdim=True) * inverse.most
        off, root = 2 * g * (1 + large), math.sqrt(value.mid.shape[-1])
        own = torch.where(off <= _UNCERTAIN, scaled.most.clamp(max=(1 + 2 * _UNCERTAIN) * root), scaled.most)
        share = 8 * g * large * (own + 4 * g * large) + 4 * g * (1 + own.square())
        lost = inverse.most * (2 * slope.most.mean(-1, keepdim=True) * share + 4 * g * slope.most)
        # It is a projection divided by the deviation, so that it is no longer than that, but for the deviation's error.
        far = slope.most.norm(dim=-1, keepdim=True) * inverse.most * (1 + 6 * off)
        far = torch.where(off <= _UNCERTAIN, far, torch.inf)
        return [_sharper(exact, far.expand_as(exact.mid)).rounded((lost / UNIT).nan_to_num(torch.inf))]

    def _neg_of(self, value: Value) -> Value:
        slope = None if value.slope is None else Ball(-value.slope.mid, value.slope.rad)
        return replace(value, mid=-value.mid, slope=slope)

    def _mean_of(self, value: Value) -> Value:
        found = value.moved(lambda t: t.mean(-1, keepdim=True))
        return found.rounded(2 * roundings(value.mid.shape[-1] + 1) / UNIT * value.most.mean(-1, keepdim=True))

    def _batch_norm(self, at: Any, weight: Any, bias: Any, mean: Any, variance: Any, eps: float) -> Value:
        value, scale = self.of(at), self._norm_factor(weight, variance, eps)
        wide = lambda one: one.moved(lambda t: t.reshape(-1, *[1] * (value.dims - 1)), value.dims)  # noqa: E731
        found = self._mul_of(self._add(value, self._neg_of(wide(self.of(mean)))), wide(scale))
        return found if bias is None else self._add(found, wide(self.of(bias)))

    def _norm_factor(self, weight: Any, variance: Any, eps: float) -> Value:
        factor = _curved(self._add(self.of(variance), constant(eps)), CURVES["rsqrt"](), "rsqrt")
        return factor if weight is None else self._mul_of(factor, self.of(weight))

    def _native_batch_norm(
        self, at: Any, weight: Any, bias: Any, mean: Any, variance: Any, training: bool, momentum: float, eps: float
    ) -> list[Value]:
        if training or mean is None or self.of(at).axis != 0 or self.of(at).fold:
            raise RefusedError("the network normalises by the batch, which mixes records")
        return [self._batch_norm(at, weight, bias, mean, variance, eps)]

    def _native_batch_norm_legit_no_training(
        self, at: Any, weight: Any, bias: Any, mean: Any, variance: Any, momentum: float, eps: float
    ) -> list[Value]:
        return self._native_batch_norm(at, weight, bias, mean, variance, False, momentum, eps)

    def _native_batch_norm_backward(
        self, back: Any, at: Any, weight: Any, mean: Any, variance: Any, one: Any, two: Any, train: bool, eps: float,
        mask: Any,
    ) -> list[Value]:  # fmt: skip
        value = self.of(back)
        if train or mean is None or value.axis != 0 or value.fold:
            raise RefusedError("the network normalises by the batch, which mixes records")
        scale = self._norm_factor(weight, variance, eps)
        return [self._mul_of(value, scale.moved(lambda t: t.reshape(-1, *[1] * (value.dims - 1)), value.dims))]

    # What moves entries, and what makes constants.

    def _same(self, at: Any, **_: Any) -> Value:
        return self.of(at)

    _detach = _alias = _clone = _lift_fresh = _lift_fresh_copy = _contiguous = _same

    def _view(self, at: Any, sizes: Any) -> Value:
        value, shape = self.of(at), self.shape
        if isinstance(sizes, torch.dtype):
            raise RefusedError("the network reads the digits of its numbers")
        if value.axis is None:
            return value.moved(lambda t: t.reshape(shape), len(shape))
        before = [self.rows, *value.mid.shape[value.mid.dim() - value.dims :]]
        if value.axis or not shape:
            raise RefusedError(_MIXES)
        entry, fold = list(shape[1:]), 0
        if shape[0] != self.rows or (value.fold and math.prod(shape) // shape[0] != math.prod(before) // self.rows):
            # The first axis of entries goes into that of rows, or stays there.
            if len(before) < 2 or shape[0] != self.rows * before[1] or self.rows * before[1] == 0:
                raise RefusedError(_MIXES)
            entry, fold = [before[1], *shape[1:]], 1
        size = math.prod(entry)
        if size != math.prod(before[1:]):
            raise RefusedError(_MIXES)
        dims = value.dims
        way = lambda t: t.reshape(*t.shape[: t.dim() - dims], *entry)  # noqa: E731
        return value.moved(way, len(entry), fold=fold)

    _unsafe_view = _reshape = _view

    def _unsqueeze(self, at: Any, dim: int) -> Value:
        value = self.of(at)
        if value.fold:
            raise RefusedError(_MIXES)
        dim %= value.rank + 1
        if value.axis is not None and dim <= value.axis:
            raise RefusedError("the network puts another axis before that of records")
        inside = dim - (value.axis is not None)
        return value.moved(lambda t: t.unsqueeze(inside - value.dims - 1), value.dims + 1)

    def _squeeze(self, at: Any, dims: Any = None) -> Value:
        value = self.of(at)
        dims = range(value.rank) if dims is None else [dims] if isinstance(dims, int) else dims
        gone = []
        for dim in dims:
            dim %= value.rank
            size = self.rows if dim == value.axis else value.mid.shape[value.dim(dim)]
            gone += [dim] if size == 1 else []
        axes = [value.dim(dim) for dim in gone]
        axis = value.axis if value.axis is None else value.axis - sum(dim < value.axis for dim in gone)
        return value.moved(lambda t: t.squeeze(axes) if axes else t, value.dims - len(axes), axis=axis)

    def _expand(self, at: Any, sizes: Any, implicit: bool = False) -> Value:
        value, shape = self.of(at), self.shape
        if value.axis is None:
            return value.moved(lambda t: t.expand(shape), len(shape))
        axis = value.axis + len(shape) - value.rank
        if shape[axis] != self.rows or value.fold:
            raise RefusedError(_MIXES)
        entry, missing, dims = [*shape[:axis], *shape[axis + 1 :]], len(shape) - value.rank, value.dims

        def way(t: Tensor) -> Tensor:
            lead, own = t.shape[: t.dim() - dims], t.shape[t.dim() - dims :]
            return t.reshape(*lead, *[1] * missing, *own).expand(*lead, *entry)

        return value.moved(way, len(entry), axis=axis)

    def _permute(self, at: Any, order: Sequence[int]) -> Value:
        value = self.of(at)
        order = [d % value.rank for d in order]
        if value.fold:
            raise RefusedError(_MIXES)
        axis = None if value.axis is None else order.index(value.axis)
        entry = [value.dim(d) for d in order if d != value.axis]

        def way(t: Tensor) -> Tensor:
            lead = t.dim() - value.dims
            return t.permute(*range(lead), *(t.dim() + d for d in entry))

        return value.moved(way, axis=axis)

    def _transpose(self, at: Any, one: int, two: int) -> Value:
        order = list(range(rank := self.of(at).rank))
        order[one % rank], order[two % rank] = two % rank, one % rank
        return self._permute(at, order)

    def _t(self, at: Any) -> Value:
        return self._permute(at, [*range(self.of(at).rank)][::-1])

    def _slice(self, at: Any, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Value:
        value, start = self.of(at), start or 0
        if value.axis is not None and dim % value.rank == value.axis:
            if start or step != 1 or (end is not None and not end >= self.rows) or value.fold:
                raise RefusedError(_MIXES)
            return value
        axis, size = value.dim(dim), self.shape[dim % value.rank]
        start = start if start >= 0 else max(0, start + value.mid.shape[axis])
        which = torch.arange(size) * step + start
        return value.moved(lambda t: t.index_select(axis, which))

    def _select(self, at: Any, dim: int, index: int) -> Value:
        value = self.of(at)
        axis = value.dim(dim)
        rows = value.axis if value.axis is None else value.axis - (dim % value.rank < value.axis)
        return value.moved(lambda t: t.select(axis, index), value.dims - 1, axis=rows)

    def _narrow(self, at: Any, dim: int, start: int, length: int) -> Value:
        value = self.of(at)
        axis = value.dim(dim)
        return value.moved(lambda t: t.narrow(axis, start, length))

    def _split(self, at: Any, sizes: Any, dim: int = 0) -> list[Value]:
        value, sizes = self.of(at), sizes if isinstance(sizes, int) else list(sizes)
        axis = value.dim(dim)
        return [value.moved(lambda t, i=i: t.split(sizes, axis)[i]) for i in range(len(value.mid.split(sizes, axis)))]

    _split_with_sizes = _split

    def _unbind(self, at: Any, dim: int = 0) -> list[Value]:
        size = self.of(at).mid.shape[self.of(at).dim(dim)]
        return [self._select(at, dim, i) for i in range(size)]

    def _glu(self, at: Any, dim: int = -1) -> Value:
        one, two = self._halves(self.of(at), dim)
        return self._mul_of(one, _curved(two, CURVES["sigmoid"](), "sigmoid"))

    def _glu_backward(self, back: Any, at: Any, dim: int) -> Value:
        one, two = self._halves(self.of(at), dim)
        gate, slope = _curved(two, CURVES["sigmoid"](), "sigmoid"), _slopes(CURVES["sigmoid"](), two.ball)
        bent = replace(two, mid=slope.mid, rad=slope.rad + 8 * UNIT, blur=slope.rad, slope=None)
        return self._cat([self._mul(back, gate), self._mul_of(self._mul(back, one), bent)], dim)

    def _halves(self, value: Value, dim: int) -> list[Value]:
        axis = value.dim(dim)
        return [value.moved(lambda t, i=i: t.chunk(2, axis)[i]) for i in range(2)]

    def _cat(self, parts: Sequence[Any], dim: int = 0) -> Value:
        values = [one if isinstance(one, Value) else self.of(one) for one in parts]
        rowed = [one for one in values if one.axis is not None]
        if not rowed:
            dim %= values[0].rank
            return values[0].moved(lambda t: t, **{}) if len(values) == 1 else _catted(values, dim - values[0].dims, {})
        first = rowed[0]
        if any((one.axis, one.dims, one.fold) != (first.axis, first.dims, 0) for one in rowed) or first.axis is None:
            raise RefusedError(_MIXES)
        axis, behind = first.dim(dim), any(one.behind for one in rowed)
        ready = [one if one.axis is not None else self.for_each(one, first.axis) for one in values]
        return _catted(ready, axis, {"axis": first.axis, "behind": behind})

    def _stack(self, parts: Sequence[Any], dim: int = 0) -> Value:
        values = [self.of(one) for one in parts]
        places = [Place(-10 - i) for i in range(len(values))]
        self.values |= dict(zip(places, values, strict=True))
        return self._cat([self._unsqueeze(place, dim) for place in places], dim)

    def _repeat(self, at: Any, times: Sequence[int]) -> Value:
        value = self.of(at)
        more = len(times) - value.rank
        if value.axis is None:
            return value.moved(lambda t: t.repeat(*times), len(times))
        axis = value.axis + more
        if times[axis] != 1 or value.fold:
            raise RefusedError(_MIXES)
        own, dims = [*times[:axis], *times[axis + 1 :]], value.dims

        def way(t: Tensor) -> Tensor:
            lead = t.dim() - dims
            return t.reshape(*t.shape[:lead], *[1] * more, *t.shape[lead:]).repeat(*[1] * lead, *own)

        return value.moved(way, dims + more, axis=axis)

    def _constant_pad_nd(self, at: Any, pads: Sequence[int], by: float = 0.0) -> Value:
        value = self.of(at)
        if by or value.fold or (value.axis is not None and len(pads) // 2 > value.rank - 1 - value.axis):
            raise RefusedError(_MIXES)
        return value.moved(lambda t: functional.pad(t, list(pads)))

    def _slice_backward(self, back: Any, sizes: Sequence[int], dim: int, start: int, end: int, step: int) -> Value:
        value = self.of(back)
        if value.axis is not None and dim % value.rank == value.axis:
            if start or step != 1 or end < self.rows:
                raise RefusedError(_MIXES)
            return value
        axis, size = value.dim(dim), sizes[dim % value.rank]
        which = torch.arange(value.mid.shape[axis]) * step + (start if start >= 0 else start + size)

        def way(t: Tensor) -> Tensor:
            wide = [*t.shape]
            wide[axis] = size
            return t.new_zeros(wide).index_copy(t.dim() + axis, which, t)

        return value.moved(way)

    def _select_backward(self, back: Any, sizes: Sequence[int], dim: int, index: int) -> Value:
        place = Place(-3)
        self.values[place] = self._unsqueeze(back, dim % len(sizes))
        index %= sizes[dim % len(sizes)]
        return self._slice_backward(place, sizes, dim % len(sizes), index, index + 1, 1)

    def _index(self, at: Any, which: Sequence[Any]) -> Value:
        value, used = self.of(at), [(dim, one) for dim, one in enumerate(which) if one is not None]
        if len(used) != 1:
            raise RefusedError("an option of the operation index of the network is not bounded")
        [(dim, one)] = used
        if isinstance(one, Place):
            if dim or value.axis is not None:
                raise RefusedError(_MIXES)
            return self._embedding(at, one)
        if one.dtype == torch.bool or one.dim() != 1:
            raise RefusedError("an option of the operation index of the network is not bounded")
        return self._index_select(at, dim, one)

    def _index_select(self, at: Any, dim: int, which: Any) -> Value:
        value = self.of(at)
        if isinstance(which, Place):
            raise RefusedError("an option of the operation index_select of the network is not bounded")
        axis = value.dim(dim)
        return value.moved(lambda t: t.index_select(axis, which % t.shape[axis]))

    def _embedding(self, table: Any, codes: Any, *_: Any) -> Value:
        value, which = self.of(table), self.of(codes)
        if value.axis is not None or bool(which.rad.any()) or which.fold:
            raise RefusedError(_MIXES)
        at = which.mid.long()
        if bool(((at < 0) | (at >= len(value.mid))).any()):
            raise RefusedError("the network looks up an entry that a table does not have")
        found = value.moved(lambda t: t[at], which.dims + value.dims - 1)
        return replace(found, axis=which.axis)

    def _scatter(self, base: Any, dim: int, index: Any, source: Any) -> Value:
        values = [self.of(base), self.of(index), *([self.of(source)] if isinstance(source, (Place, Tensor)) else [])]
        if (
            any(one.rank != values[0].rank or one.fold for one in values)
            or len({one.axis for one in values} - {None}) > 1
        ):
            raise RefusedError(_MIXES)
        axis = next((one.axis for one in values if one.axis is not None), None)
        values = [one if axis is None or one.axis is not None else self.for_each(one, axis) for one in values]
        if bool(values[1].rad.any()):
            raise RefusedError("the network rounds what it computes to whole numbers")
        lead = next((one.mid.shape[: one.mid.dim() - one.dims] for one in values if one.axis == axis), torch.Size())
        lead = (
            torch.broadcast_shapes(*(one.mid.shape[: one.mid.dim() - one.dims] for one in values))
            if axis is not None
            else lead
        )
        wide = lambda t, like: t.expand(*lead, *like.mid.shape[like.mid.dim() - like.dims :])  # noqa: E731
        along = dim % (values[0].dims + (axis is not None))
        if along == axis:
            raise RefusedError(_MIXES)
        along = along - (axis is not None and along > axis) - values[0].dims
        at = wide(values[1].mid, values[1]).long()
        ordered = at.sort(along).values
        if bool((ordered.narrow(along, 1, at.shape[along] - 1) == ordered.narrow(along, 0, at.shape[along] - 1)).any()):
            raise RefusedError("the network writes several numbers to the same place")
        put = lambda part: torch.scatter(  # noqa: E731
            wide(getattr(values[0], part), values[0]).clone(), along, at,
            wide(getattr(values[2], part), values[2]).double() if len(values) > 2
            else torch.full(at.shape, float(cast(float, source)) if part == "mid" else 0.0).double(),
        )  # fmt: skip
        mid, rad = put("mid"), put("rad")
        return Value(mid, rad, rad, None, axis, values[0].dims, 0, any(one.behind for one in values))

    def _made(self, by: float) -> Value:
        return constant(torch.full(self.shape, by, dtype=self.kind))

    def _zeros_like(self, *_: Any, **__: Any) -> Value:
        return self._made(0)

    _zeros = _new_zeros = _zeros_like

    def _ones_like(self, *_: Any, **__: Any) -> Value:
        return self._made(1)

    _ones = _new_ones = _ones_like

    def _full_like(self, at: Any, by: float, **__: Any) -> Value:
        return self._made(by)

    def _full(self, sizes: Any, by: float, **__: Any) -> Value:
        return self._made(by)

    def _new_full(self, at: Any, sizes: Any, by: float, **__: Any) -> Value:
        return self._made(by)


def _catted(values: Sequence[Value], axis: int, like: Mapping[str, Any]) -> Value:
    """Return values one behind another along an axis of entries."""
    sets = torch.broadcast_shapes(*(one.mid.shape[: one.mid.dim() - one.dims] for one in values))
    entries = [one.mid.shape[one.mid.dim() - one.dims :] for one in values]
    join = lambda parts, lead: torch.cat(  # noqa: E731
        [part.double().expand(*lead, *entry) for part, entry in zip(parts, entries, strict=True)], axis
    )
    mid, rad, blur = (join([getattr(one, part) for one in values], sets) for part in ("mid", "rad", "blur"))
    slope, slopes = None, [one.slope for one in values if one.slope is not None]
    if slopes and not like.get("behind"):
        lead = torch.broadcast_shapes(
            *(one.slope.mid.shape[: one.slope.mid.dim() - one.dims] for one in values if one.slope)
        )
        none = torch.zeros(()).double()
        slope = Ball(*(join([none if one.slope is None else one.slope[i] for one in values], lead) for i in range(2)))
    return replace(values[0], mid=mid, rad=rad, blur=blur, slope=slope, **like)


def _sharper(value: Value, far: Tensor) -> Value:
    """Return the better of an interval and of one around zero."""
    better = ~(value.rad <= far)
    return replace(
        value, mid=torch.where(better, 0.0, value.mid), rad=(r := torch.where(better, far, value.rad)), blur=r
    )


def _normed(value: Value, eps: float) -> tuple[Value, Value]:
    """Return entries less their mean, divided by their deviation, and the inverse of that.

    The deviation of x + d is within |d| / root(width) of that of x. The normalised entries are within |d| divided by
    the least deviation, and never beyond the root of the width.
    """
    mid, rad, width = value.mid, value.rad, value.mid.shape[-1]
    deviation = mid.var(-1, correction=0, keepdim=True).sqrt()
    off = rad.square().mean(-1, keepdim=True).sqrt()
    least, most = ((deviation + side * off).clamp(min=0).square().add(eps).rsqrt() for side in (1, -1))
    inverse = (deviation.square() + eps).rsqrt()
    away = mid - mid.mean(-1, keepdim=True)
    after, largest = away * inverse, 2 * math.sqrt(width)
    reach = torch.minimum(rad.norm(dim=-1, keepdim=True) * most, torch.tensor(largest).double())
    # Roundings of the mean, and of the variance, of which PyTorch's way (Welford 1962) loses n u (1 + |x| / deviation)
    # of its magnitude (Chan and Lewis 1979); of the inverse deviation that is half of it.
    large = value.most.amax(-1, keepdim=True) * most
    off = 2 * roundings(width + 4) * (1 + large)
    # Where that is not small, it is at most what no deviation at all would give.
    sure, top = off <= _UNCERTAIN, 1.01 / math.sqrt(eps) if eps > 0 else math.inf
    beyond = 2 * value.most.amax(-1, keepdim=True) * top + after.abs() + math.sqrt(width)
    own = torch.minimum(after.abs() + reach, torch.tensor(math.sqrt(width)).double())
    lost = 4 * roundings(width + 4) * large * (1 + off) + 2 * off * own + TINY
    blur = torch.where(sure, value.blur.norm(dim=-1, keepdim=True) * most + lost, beyond)
    slope = None
    if value.slope is not None:
        far = value.slope.most.norm(dim=-1, keepdim=True) * most
        slope = Ball(none := torch.zeros(far.shape[:-1] + mid.shape[-1:]).double(), far.expand_as(none))
    scaled = replace(
        value, mid=after, rad=torch.where(sure, reach + lost, beyond), blur=blur.expand_as(after), slope=slope
    )
    span = torch.where(sure, torch.maximum(most - inverse, inverse - least), top)
    lost = (2 * off.clamp(max=_UNCERTAIN) / UNIT + ROUNDINGS) * most
    spread = replace(value, mid=inverse, rad=span, blur=span, slope=None).rounded(lost)
    return scaled, spread


def _jumping(value: Value, slope: Ball | None) -> Value:
    """Return a value of which no derivative is known with one that may be anything, where it is not constant."""
    if slope is None or value.axis is None or value.behind or value.slope is not None or not bool(value.rad.any()):
        return value
    rad = torch.where(value.rad > 0, torch.inf, 0.0).expand(len(slope.mid), *value.rad.shape)
    return replace(value, slope=Ball(torch.zeros_like(rad), rad))


def _sound(value: Value) -> Value:
    """Return bounds that hold where single precision overflows, too; refuse overflow of the middle."""
    if value.mid.dtype == torch.bool:
        return value
    if not bool((value.mid.abs() < HUGE).all()):
        raise RefusedError("numbers of the network may be too large for single precision")
    if value.slope is not None and not all(bool((part.abs() < HUGE).all()) for part in value.slope):
        known = (value.slope.mid.abs() < HUGE) & (value.slope.rad < HUGE)
        value = replace(
            value,
            slope=Ball(value.slope.mid.masked_fill(~known, 0.0), value.slope.rad.masked_fill(~known, torch.inf)),
        )
    if bool((value.rad < HUGE).all()) and (value.blur is value.rad or bool((value.blur < HUGE).all())):
        return value
    wide = lambda t: t.nan_to_num(torch.inf).masked_fill(~(t < HUGE), torch.inf)  # noqa: E731
    return replace(value, rad=wide(value.rad), blur=wide(value.blur))
