"""Roundings of a computation: every operation of single precision is followed in double beside a running bound.

Each operation may be off by k roundings of single precision of the sum of magnitudes that it adds up, and passes on
what its inputs are off. An operation without a rule is refused.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, fx
from torch._decomp import get_decompositions
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from seepage.kernel.graphs import Earlier, RowCount, RunGraph, check_same
from seepage.kernel.intervals import Ball
from seepage.kernel.statement import HUGE, ROUNDINGS, TINY, UNIT, RefusedError, random_states, roundings

_K = ROUNDINGS * UNIT
# Operations that move entries or make constants, those that only make constants, those that never fall, and those that
# are followed in parts.
_MOVED = """
alias broadcast_in_dim cat clone constant_pad_nd detach diagonal embedding empty expand full_like getitem index
index_select lift_fresh_copy neg new_zeros ones_like permute repeat scalar_tensor select select_backward slice
slice_backward split split_with_sizes squeeze stack t transpose unbind unsqueeze view zeros zeros_like _to_copy
_unsafe_view
""".split()  # noqa: SIM905 - a line each would be a page
_CONSTANT = {"full_like", "new_zeros", "ones_like", "zeros_like"}
_RISING = {"erf", "exp", "expm1", "log", "log1p", "sigmoid", "softplus", "sqrt", "tanh"}
_IN_PARTS = """
elu elu_backward leaky_relu leaky_relu_backward native_layer_norm native_layer_norm_backward rsub
sigmoid_backward silu silu_backward softplus_backward tanh_backward threshold_backward var_mean
""".split()  # noqa: SIM905 - as above
# Operations whose lists are shapes, of which the first size may be the number of rows.
_SHAPED = {"empty", "expand", "full", "new_full", "new_zeros", "ones", "repeat", "select_backward", "slice_backward"}
_SHAPED |= {"broadcast_in_dim", "view", "zeros", "_unsafe_view"}
# Rows of which graphs are compared where the number of a client's rows is not known, as of sums, and most numbers.
_USUAL_ROWS, _MOST_SIZES = (1, 2, 3, 8, 10, 16, 32, 50, 64, 100, 128, 256), 32
# Roundings that a GELU loses of its argument, up to a size, and its derivative of 1 and of that: 5.5 and 3.8 are the
# most on CPUs with AVX-512, AVX2 and neither. Of all other operations it is at most 0.6 of what is allowed.
_GELU, _FAR = 8.0, 16.0
# Whole numbers below this are exact in single precision.
_WHOLE = 2.0**24
# Threshold of a softplus from which on it is its argument within rounding.
_SMOOTH = 17
_aten = torch.ops.aten
# What operations compute with: bounds, exact tensors, and numbers.
_Operand = Ball | Tensor | float | int


def followed(function: Callable[..., object], *inputs: Tensor, rows: Sequence[int] = ()) -> Callable[..., Any]:
    """Return a computation in double precision that returns a ``Ball`` for each tensor that a function returns.

    ``inputs`` have the shapes and types that all others will have. The graph is the same on the numbers of rows that
    the client has, or on usual ones if none is known.
    """
    table: Any = get_decompositions([getattr(_aten, name) for name in _IN_PARTS])
    before, sizes = random_states(), sorted({2, *(rows or _USUAL_ROWS)})
    if len(sizes) > _MOST_SIZES:
        raise RefusedError("the batches of the client have too many different numbers of records")
    try:
        graphs = []
        for some in (inputs, *([one[:1].expand(size, *one.shape[1:]) for one in inputs] for size in sizes)):
            with _Unchecked():
                graphs.append((make_fx(function, table)(*some), len(some[0])))
    except RefusedError:
        raise
    except Exception as error:  # A user's module may raise anything.
        raise RefusedError(f"the client part cannot be followed ({type(error).__name__})") from error
    if random_states() != before:
        raise RefusedError("the client part draws random numbers")
    first, *others = (_graph_of(*one) for one in graphs)
    for other in others:
        check_same(first, other, "the client part computes something that depends on the time or the number of rows")
    found = _Followed(graphs[0][0])
    found.extra_traceback = False
    return found.run


class _Unchecked(TorchFunctionMode):
    """Writes codes as entries of 0 and 1 without a look at their values, which no graph shows."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation."""
        if getattr(func, "__name__", "") != "one_hot":
            return func(*args, **(kwargs or {}))
        options = dict(zip(("tensor", "num_classes"), args, strict=False)) | (kwargs or {})
        if not options.get("num_classes", -1) > 0:
            raise RefusedError("the client part takes the number of categories from the records of a batch")
        codes = options["tensor"]
        return (codes[..., None] == torch.arange(options["num_classes"], device=codes.device)).to(codes.dtype)


def _graph_of(module: fx.GraphModule, rows: int) -> RunGraph:
    """Return the operations of a trace in terms of earlier ones and of constants."""
    places = {node: place for place, node in enumerate(module.graph.nodes)}

    def argument(thing: Any) -> object:
        if isinstance(thing, fx.Node):
            constant = thing.op == "get_attr"
            return operator.attrgetter(str(thing.target))(module) if constant else Earlier(places[thing])
        if isinstance(thing, Mapping):
            return [(key, argument(thing[key])) for key in sorted(thing)]
        return [argument(one) for one in thing] if isinstance(thing, (tuple, list)) else thing

    found: list[tuple[str, object]] = []
    for node in module.graph.nodes:
        name, arguments = str(node.target), (*node.args, dict(node.kwargs))
        plain = name.split(".")[1] if node.op == "call_function" and name.count(".") else name
        if plain in _SHAPED:
            arguments = [
                [RowCount(), *one[1:]] if isinstance(one, (tuple, list)) and one and one[0] == rows else one
                for one in arguments
            ]  # fmt: skip
        inplace = node.op == "call_function" and plain.endswith("_") and not plain.endswith("__")
        if inplace and len(getattr(node.args[0], "users", ())) > 1:
            raise RefusedError("the client part changes a tensor in place that it uses elsewhere")
        found.append((name if node.op == "call_function" else node.op, argument(arguments)))
    return RunGraph(found, rows)


class _Followed(fx.Interpreter):
    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        """Run an operation with its bound."""
        found = self._bounded(target, args, kwargs)
        return _sound(found) if isinstance(found, (Ball, Tensor)) else [_sound(one) for one in found]

    def _bounded(self, target: Any, args: Any, kwargs: Any) -> Any:
        name = target.__name__.split(".")[0]
        types = [one for one in (*args, *kwargs.values()) if isinstance(one, torch.dtype) and one.is_floating_point]
        if not set(types) <= {torch.float32, torch.float64}:
            raise RefusedError("the client part computes in another precision than declared")
        # What is exact, or bounded, needs no rounding.
        args, kwargs = _in_double(args), {key: _in_double(one) for key, one in kwargs.items()}
        number = lambda one: isinstance(one, Ball) or (isinstance(one, Tensor) and one.is_floating_point())  # noqa: E731
        if not _any(args, number):
            return target(*args, **kwargs)
        if name in _MOVED:
            out, rad = (target(*_part(args, i), **kwargs) for i in range(2))
            if not _any(args, lambda one: isinstance(one, Ball)) or name in _CONSTANT:
                return out
            if isinstance(out, Tensor) and not out.is_floating_point():
                raise RefusedError("the client part rounds what it computes to whole numbers")
            return Ball(out, rad.abs()) if isinstance(out, Tensor) else [*map(Ball, out, rad)]
        if name in ("scatter", "scatter_"):
            return self._scatter(*args, **kwargs)
        if name == "softplus" and len(args) > 2 and args[2] < _SMOOTH:
            raise RefusedError("the threshold of a softplus of the client part is too low")
        if name in _RISING:
            at, rest = _ball(args[0]), args[1:]
            out, low, high = (target(at.mid + side * at.rad, *rest) for side in (0, -1, 1))
            spread = torch.maximum(high - out, out - low).nan_to_num(torch.inf)
            return Ball(out, spread + _K * (out.abs() + (name == "erf")) + TINY)
        if name in ("gt", "ge", "lt", "le"):
            # What is no whole number may be equal in one precision, and not in another.
            sides = [_ball(one) for one in args[:2]]
            whole = [(one.rad == 0) & (one.mid == one.mid.round()) & (one.mid.abs() < _WHOLE) for one in sides]
            exact, apart = whole[0] & whole[1], sides[0].plus(sides[1], -1.0)
            lost = _K * (sides[0].most + sides[1].most) + TINY
            apart = Ball(apart.mid, apart.rad + torch.where(exact, 0.0, lost))
            return Ball(getattr(torch, name)(apart.mid, 0), (apart.rad > 0) & (apart.mid.abs() <= apart.rad))
        rule = getattr(self, f"_{name}", None)
        if rule is None:
            raise RefusedError(f"the operation {name} of the client part is not bounded")
        return rule(*args, **kwargs)

    def _add(self, left: _Operand, right: _Operand, alpha: float | int = 1.0) -> Ball:
        return _rounded(_ball(left).plus(_ball(right), alpha), _ball(left).most + abs(alpha) * _ball(right).most)

    def _sub(self, left: _Operand, right: _Operand, alpha: float | int = 1.0) -> Ball:
        return self._add(left, right, -alpha)

    def _mul(self, left: _Operand, right: _Operand) -> Ball:
        return _rounded(_ball(left).times(_ball(right)), _ball(left).most * _ball(right).most)

    def _div(self, left: _Operand, right: _Operand) -> Ball:
        return self._mul(left, _ball(right).inverse())

    def _reciprocal(self, at: _Operand) -> Ball:
        return self._div(1.0, at)

    def _pow(self, at: _Operand, power: float | int) -> Ball:
        if power not in (1, 2, 3):
            raise RefusedError(f"the power {power} of the client part is not bounded")
        return _ball(at) if power == 1 else self._mul(at, self._pow(at, power - 1))

    def _mm(self, left: _Operand, right: _Operand) -> Ball:
        one, two = _ball(left), _ball(right)
        width = one.mid.shape[-1]
        rad = (one.rad + roundings(width) * one.most) @ two.most + width * TINY
        return Ball(one.mid @ two.mid, rad + one.mid.abs() @ two.rad if bool(two.rad.any()) else rad)

    _bmm = _mm

    def _addmm(self, bias: _Operand, left: _Operand, right: _Operand) -> Ball:
        return self._add(bias, self._mm(left, right))

    def _sum(self, at: _Operand, *dims: Any, **kwargs: Any) -> Ball:
        part = _ball(at)
        return _rounded(Ball(*(one.sum(*dims, **kwargs) for one in part)), part.most.sum(*dims, **kwargs))

    def _mean(self, at: _Operand, *dims: Any, **kwargs: Any) -> Ball:
        part = _ball(at)
        return _rounded(Ball(*(one.mean(*dims, **kwargs) for one in part)), part.most.mean(*dims, **kwargs))

    def _var(self, at: _Operand, dims: Sequence[int], correction: float | int = 1.0) -> Ball:
        apart = self._sub(at, self._mean(at, dims, keepdim=True))
        count = math.prod(apart.mid.shape[dim] for dim in dims)
        return self._mul(self._mean(self._mul(apart, apart), dims), count / (count - correction))

    def _rsqrt(self, at: _Operand) -> Ball:
        return self._div(1.0, self.call_function(_aten.sqrt.default, (at,), {}))

    def _relu(self, at: _Operand) -> Ball:
        part = _ball(at)
        return Ball(part.mid.relu(), torch.where(part.mid < -part.rad, 0.0, part.rad))

    def _where(self, chosen: _Operand, yes: _Operand, no: _Operand) -> Ball:
        by, one, two = _ball(chosen), _ball(yes), _ball(no)
        either = torch.maximum(one.rad, two.rad) + (one.mid - two.mid).abs()
        rad = torch.where(by.rad > 0, either, torch.where(by.mid, one.rad, two.rad))
        return Ball(torch.where(by.mid, one.mid, two.mid), rad)

    def _scatter(self, base: _Operand, dim: int, index: Tensor, source: _Operand) -> Ball | Tensor:
        place = lambda one, other: _aten.scatter(one, dim, index, other)  # noqa: E731
        if not _any((base, source), lambda one: isinstance(one, Ball)):
            return place(base, source)
        before = _ball(base)
        if not isinstance(source, (Ball, Tensor)):
            return Ball(place(before.mid, source), place(before.rad, 0.0))
        return Ball(*(place(one, other) for one, other in zip(before, _ball(source), strict=True)))

    def _gelu(self, at: _Operand, approximate: str = "none") -> Ball:
        part = _ball(at)
        out = functional.gelu(part.mid, approximate=approximate)
        # Its derivative lies between -0.13 and 1.13.
        lost = _GELU * UNIT * (out.abs() + part.mid.abs().clamp(max=_FAR))
        return Ball(out, 1.13 * part.rad + lost + TINY)

    def _gelu_backward(self, back: _Operand, at: _Operand, approximate: str = "none") -> Ball:
        part = _ball(at)
        slope = _aten.gelu_backward(torch.ones_like(part.mid), part.mid, approximate=approximate)
        # Its second derivative is at most 0.8, its derivative between -0.13 and 1.13.
        spread = (0.8 * part.rad).clamp(max=1.26)
        lost = _GELU * UNIT * (1 + part.mid.abs().clamp(max=_FAR))
        return self._mul(back, Ball(slope, spread + lost))

    def _abs(self, at: _Operand) -> Ball:
        return Ball(_ball(at).mid.abs(), _ball(at).rad)


def _rounded(ball: Ball, magnitudes: Tensor) -> Ball:
    return Ball(ball.mid, ball.rad + _K * magnitudes + TINY)


def _sound(thing: Any) -> Any:
    """Return bounds that hold where single precision overflows, too; refuse overflow of the middle."""
    if not isinstance(thing, Ball) or thing.mid.dtype == torch.bool:
        return thing
    if not bool((thing.mid.abs() < HUGE).all()):
        raise RefusedError("numbers of the client part are too large for single precision")
    # The roundings of a sum are a share of what is added up.
    return Ball(thing.mid, thing.rad.nan_to_num(torch.inf).masked_fill(thing.rad >= HUGE, torch.inf))


def _in_double(thing: Any) -> Any:
    if isinstance(thing, (list, tuple)) and not isinstance(thing, Ball):
        return [_in_double(one) for one in thing]
    if isinstance(thing, Tensor) and thing.dtype == torch.float32:
        return thing.double()
    return torch.float64 if thing is torch.float32 else thing


def _ball(thing: _Operand) -> Ball:
    if isinstance(thing, Ball):
        return thing
    fixed = torch.as_tensor(thing)
    fixed = fixed if fixed.dtype == torch.bool else fixed.double()
    return Ball(fixed, torch.zeros_like(fixed))


def _any(thing: object, wanted: Callable[[object], bool]) -> bool:
    return wanted(thing) or (isinstance(thing, (list, tuple)) and any(_any(one, wanted) for one in thing))


def _part(thing: Any, i: int) -> Any:
    """Return arguments with the middles (0) or the radii (1) of balls in place of these."""
    if isinstance(thing, Ball):
        return thing[i]
    if isinstance(thing, (list, tuple)):
        return [_part(one, i) for one in thing]
    # Constants beside balls are exact; indices stay what they are.
    return torch.zeros_like(thing) if i and isinstance(thing, Tensor) and thing.is_floating_point() else thing
