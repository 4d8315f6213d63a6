"""Bounds of what a network computes on sets of rows, and of its derivatives: interval arithmetic, roundings included.

An operation that is not bounded is refused, so that nothing is assumed of a network that was not followed.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode

from seepage.kernel.graphs import Earlier, Named, RowCount, RunGraph
from seepage.kernel.statement import HUGE, ROUNDINGS, TINY, UNIT, Declaration, RefusedError, roundings


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
        return Ball(self.mid * other.mid, self.most * other.rad + self.rad * other.mid.abs() + TINY)

    def inverse(self) -> Ball:
        """Return the reciprocals of entries; infinite where an entry may be 0."""
        least = (self.mid.abs() - self.rad).clamp(min=0)
        return Ball(1 / self.mid, self.rad / (least * self.mid.abs()))

    def plus(self, other: Ball, sign: float = 1.0) -> Ball:
        """Return sums of entries and a number of times others."""
        return Ball(self.mid + sign * other.mid, self.rad + abs(sign) * other.rad)

    def rounded(self, magnitudes: Tensor | None = None) -> Ball:
        """Return the same with the roundings of an operation that adds up these magnitudes; its own, if None."""
        return Ball(self.mid, self.rad + ROUNDINGS * UNIT * (self.most if magnitudes is None else magnitudes) + TINY)

    def through(self, weight: Ball) -> Ball:
        """Return what a linear layer with these weights (output, input) makes of entries, roundings included."""
        if self.mid.dim() == 3 and self.mid.stride(1) == self.rad.stride(1) == 0 < self.mid.shape[1]:
            # Derivatives that are the same for all sets of rows are followed once.
            once = Ball(self.mid[:, 0], self.rad[:, 0]).through(weight)
            return Ball(*(part[:, None].expand(-1, self.mid.shape[1], -1) for part in once))
        width = self.mid.shape[-1]
        rad = (self.rad + roundings(width) * self.most) @ weight.most.T + width * TINY
        # Most weights are known exactly.
        drift = self.mid.abs() @ weight.rad.T if bool(weight.rad.any()) else 0.0
        return Ball(self.mid @ weight.mid.T, rad + drift)


# What an operation of the network takes: tensors and numbers.
Operand = Tensor | float | int
# Sources of derivatives beside layers.
ROW, BLUR = "", "~"


class Value(NamedTuple):
    """Bounds of a tensor of the network for each of several sets of rows (set, *entry).

    ``slopes`` are derivatives (source, set, *entry) by the entries of the row (``ROW``), and by the outputs of layers;
    of ``BLUR`` the radii are what roundings so far may have moved the entries by.
    """

    value: Ball
    slopes: dict[str, Ball]

    def each(self, way: Callable[[Tensor], Tensor | Sequence[Tensor]]) -> list[Value]:
        """Return the bounds of what rearranges or adds up entries, one for each result."""
        many = lambda t: t if isinstance(t, (tuple, list)) else (t,)  # noqa: E731
        value = [many(way(part)) for part in self.value]
        slopes = {name: [many(torch.vmap(way)(part)) for part in ball] for name, ball in self.slopes.items()}
        here = lambda parts, i: Ball(parts[0][i], parts[1][i])  # noqa: E731
        return [Value(here(value, i), {n: here(p, i) for n, p in slopes.items()}) for i in range(len(value[0]))]

    def mapped(self, value: Ball, way: Callable[[Ball], Ball]) -> Value:
        """Return other entries whose derivatives follow from these one by one."""
        return Value(value, {name: way(slope) for name, slope in self.slopes.items()})

    def rounded(self, magnitudes: Tensor) -> Value:
        """Return the same entries with the roundings of an operation that adds up these magnitudes."""
        slopes = dict(self.slopes)
        if BLUR in slopes:
            slopes[BLUR] = slopes[BLUR].rounded(magnitudes)
        return Value(self.value.rounded(magnitudes), slopes)


class TracedLayer(NamedTuple):
    """A layer that sees each record once: name of its bias, and its input."""

    bias: str | None
    entering: Value


# Attributes that say nothing of values or derivatives.
_ATTRIBUTES = {"shape", "ndim", "device", "dtype", "requires_grad", "is_cuda", "layout"}
_LOOKS = {"__get__", "dim", "size", "numel", "is_floating_point", "__len__", "is_contiguous", "stride"}
_REARRANGED = {"getitem", "reshape", "view", "flatten", "unflatten", "squeeze", "unsqueeze", "contiguous", "clone"}
_REARRANGED |= {"narrow", "select", "chunk", "split", "unbind", "expand", "transpose", "permute"}
_REARRANGED |= {"to", "double", "float"}
# Least and largest derivative, and the largest second one; None where the derivative jumps at 0.
_CURVES: dict[str, tuple[float, float, float | None]] = {
    "relu": (0, 1, None), "leaky_relu": (0, 1, None), "elu": (0, 1, 1), "gelu": (-0.13, 1.13, 0.85),
    "tanh": (0, 1, 0.77), "softsign": (0, 1, 2), "log_sigmoid": (0, 1, 0.25),
    "silu": (-0.1, 1.1, 0.5), "sigmoid": (0, 0.25, 0.1), "softplus": (0, 1, 0.25), "mish": (-0.12, 1.09, 0.7),
}  # fmt: skip


class Trace(TorchFunctionMode):
    """Runs a network and carries bounds along; what it cannot bound is refused.

    Args:
        at: trained parameters by name, the tensors that the network uses; other tensors of the module are constants.
        drift: largest change of each parameter over local steps.
        sets: number of sets of rows.
        sloped: whether derivatives by layers are followed.
        watched: whether operations that no function shows are refused, which takes longer.
        masked: whether dropout passes all entries on, however it is set.
    """

    def __init__(
        self, at: Mapping[str, Tensor], module: nn.Module, drift: Mapping[str, Tensor], sets: int, sloped: bool,
        watched: bool = False, masked: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        own = [one for part in module.modules() for one in vars(part).values() if isinstance(one, Tensor)]
        # Tensors of the row with their bounds, or constants, and their version; they are kept, so that identities stay.
        self.held: dict[int, tuple[Tensor, Value | None, int]] = {}
        # A parameter that stands for another one at which derivatives are taken is none of them.
        fixed = [one for name, one in module.named_parameters(remove_duplicate=False) if name not in at]
        for one in (*at.values(), *fixed, *module.buffers(), *own):
            self.held[id(one)] = (one, None, one._version)
        self.names, self.drift, self.sets, self.sloped = {id(t): name for name, t in at.items()}, drift, sets, sloped
        self.layers, self.shared = dict[str, TracedLayer](), set[str]()
        # Operations on tensors of the row, one after another, and the places of these tensors in their order.
        self.graph, self.places, self.masked = RunGraph([], sets), dict[int, int](), masked
        # Functions that are being run, and the mode that sees what they do.
        self.inside, self.entered, self.below = 0, 0, _Below(self) if watched else None

    def enter(self, tensor: Tensor, value: Value | None) -> Tensor:
        """Carry bounds with a tensor; None for a constant."""
        if value is not None and (tensor.shape[:1] != (self.sets,) or tensor.shape != value.value.mid.shape):
            raise RefusedError("the network mixes records of a batch, or puts another axis before theirs")
        # Sums of magnitudes are bounded with it, by their roundings.
        if value is not None and not bool((value.value.most < HUGE).all()):
            raise RefusedError("numbers of the network may be too large for single precision")
        self.held[id(tensor)] = (tensor, value, tensor._version)
        if value is not None:
            self.places[id(tensor)] = self.entered = self.entered + 1
        return tensor

    def record(self, name: str, *arguments: Any) -> None:
        """Keep an operation with all of its arguments."""
        if name in ("view", "reshape", "expand") and len(arguments[0]) > 1:
            row, *sizes = arguments[0]
            nested = isinstance(sizes[0], (tuple, list))
            first, *further = sizes[0] if nested else sizes
            shape = [RowCount() if first == self.sets else first, *further]
            arguments = ((row, shape, *sizes[1:]) if nested else (row, shape), *arguments[1:])
        self.graph.operations.append((name, self._argument(arguments)))

    def _argument(self, thing: object) -> object:
        """Return what an argument is in terms of rows, parameters and constants."""
        if isinstance(thing, Tensor):
            if self.of(thing) is not None:
                return Earlier(self.places[id(thing)])
            return Named(self.names[id(thing)]) if id(thing) in self.names else thing
        if isinstance(thing, slice):
            return (thing.start, thing.stop, thing.step)
        if isinstance(thing, Mapping):
            return [(key, self._argument(thing[key])) for key in sorted(thing)]
        return [self._argument(one) for one in thing] if isinstance(thing, (tuple, list)) else thing

    def of(self, thing: object) -> Value | None:
        """Return bounds of a tensor of the row, None for constants; refuse one that is not followed or was changed."""
        if not isinstance(thing, Tensor):
            return None
        tensor, value, version = self.held.get(id(thing), (thing, None, -1))
        if tensor._version != version:
            raise RefusedError("the network uses a tensor that is not followed")
        return value

    def constant(self, thing: Operand) -> Ball:
        """Return a constant, with what a parameter may drift."""
        fixed = torch.as_tensor(thing).detach().double()
        drift, rounded = self.drift.get(self.names.get(id(thing), "")), (fixed.float().double() - fixed).abs()
        return Ball(fixed, rounded if drift is None else drift + rounded)

    def near(self, tensor: Tensor, value: Value) -> None:
        """Refuse a tensor that is not in the middle of its bounds, but for what roundings may have moved it by."""
        off, most = (tensor.detach().double() - value.value.mid).abs(), float(value.value.most.max())
        allowed = 1e-6 * (value.value.mid.abs() + most)
        if tensor.dtype == torch.float32 and BLUR in value.slopes:
            allowed = value.slopes[BLUR].rad[0]
        if not bool((off <= allowed).all()):
            raise RefusedError("the network uses a tensor that is not followed, or rounds more than single precision")

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation, with the bounds of what it returns."""
        if torch.is_autocast_enabled("cpu"):
            raise RefusedError("the network computes in another precision than declared")
        if self.below is not None and _get_current_dispatch_mode() is not self.below:
            raise RefusedError("the network changes how operations are carried out")
        self.inside += 1
        try:
            return self._carried_out(func, args, kwargs or {})
        finally:
            self.inside -= 1

    def _carried_out(self, func: Any, args: Any, kwargs: Any) -> Any:
        name = func.__name__
        flat = [one for arg in (*args, *kwargs.values()) for one in (arg if isinstance(arg, (tuple, list)) else (arg,))]
        if name in _LOOKS and not isinstance(out := func(*args, **kwargs), Tensor):
            if name == "__get__" and getattr(func.__self__, "__name__", "") not in _ATTRIBUTES:
                raise RefusedError("the network looks at how its tensors were made")
            return out
        if not torch.is_grad_enabled():
            raise RefusedError("the network computes something without derivatives")
        traced = sum(self.of(one) is not None for one in flat) > 0
        if traced and name not in _LOOKS:
            # How dropout is set is no part of a network without its masks.
            self.record(name, *((args[:1], {}) if self.masked and name == "dropout" else (args, kwargs)))
            _check_options(name.strip("_"), args, kwargs)
        if name in _LOOKS and traced:
            raise RefusedError("the network takes a view of a tensor that is not followed")
        used, plain = {self.names[id(one)] for one in flat if id(one) in self.names}, name.strip("_")
        # What is done in place changes versions: bounds come first.
        if traced and plain == "linear":
            values: Sequence[Value | None] = [self._linear(used, *args, **kwargs)]
        else:
            self.shared |= used
            values = self._values(plain, args, kwargs) if traced else ()
        out = args[0].clone() if traced and plain == "dropout" else func(*args, **kwargs)
        results = [out] if isinstance(out, Tensor) else out if isinstance(out, (tuple, list)) else []
        for one, value in zip(results, values or [None] * len(results), strict=True):
            if isinstance(one, Tensor):
                self.enter(one, value)
        return out

    def _linear(self, used: set[str], rows: Tensor, weight: Tensor, bias: Tensor | None = None) -> Value:
        value, name, by = self.of(rows), self.names.get(id(weight)), self.constant(weight)
        if value is None:
            raise RefusedError("the network makes weights of its rows")
        if self.of(weight) is not None or self.of(bias) is not None:
            raise RefusedError("the network makes weights of its rows")
        self.near(rows, value)
        found = value.mapped(value.value.through(by), lambda slope: slope.through(by))
        found = _blurred(found, value, by)
        if bias is not None:
            fixed = self.constant(bias)
            found = found._replace(value=found.value.plus(fixed)).rounded(fixed.most)
        biases = {layer.bias for layer in self.layers.values()} - {None}
        if name is None or name in self.layers or rows.dim() != 2 or self.names.get(id(bias)) in {name, *biases}:
            self.shared |= used
            return found
        self.layers[name] = TracedLayer(self.names.get(id(bias)), value)
        if not self.sloped:
            return found
        own = torch.eye(len(weight)).double()[:, None].expand(-1, self.sets, -1)
        return found._replace(slopes={**found.slopes, name: Ball(own, torch.zeros_like(own))})

    def _values(self, name: str, args: Any, kwargs: Any) -> list[Value]:
        """Return the bounds of what an operation returns."""
        value, other = self.of(args[0]), self.of(args[1]) if len(args) > 1 else None
        dims = [one for one in (*args[1:], *kwargs.values()) if isinstance(one, (int, tuple, list))]
        flat = [d for one in dims for d in (one if isinstance(one, (tuple, list)) else (one,))]
        if value is not None and name in _REARRANGED:
            first = (
                args[1][0] if name == "getitem" and isinstance(args[1], tuple) and args[1] else args[1:2] and args[1]
            )
            if name == "getitem" and first is not Ellipsis and first != slice(None):
                raise RefusedError("the network selects records")
            return value.each(lambda t: t[args[1]] if name == "getitem" else getattr(t, name)(*args[1:], **kwargs))
        if name in ("cat", "concat", "concatenate", "stack"):
            parts, along = [self._row(one) for one in args[0]], kwargs.get("dim", args[1] if len(args) > 1 else 0)
            names = {n: s.mid.shape[0] for part in parts for n, s in part.slopes.items()}
            join = lambda balls, dim: Ball(*(getattr(torch, name)(list(p), dim) for p in zip(*balls, strict=True)))  # noqa: E731
            none = lambda part, n: Ball(*(torch.zeros(names[n], *part.value.mid.shape).double() for _ in range(2)))  # noqa: E731
            slopes = {
                n: join([p.slopes.get(n, none(p, n)) for p in parts], along if along < 0 else along + 1) for n in names
            }
            return [Value(join([p.value for p in parts], along), slopes)]
        if value is not None and name in ("clamp", "clip") and len(args) < 4:
            ends = dict(zip(("min", "max"), args[1:], strict=False)) | kwargs
            if not any(isinstance(end, Tensor) for end in ends.values()):
                return [_clamped(value, **ends)]
        if value is not None and name in _CURVES:
            return [_curved(value, name, args[1:], kwargs)]
        if value is not None and name in ("relu6", "hardtanh"):
            ends = dict(zip(("min_val", "max_val"), args[1:], strict=False)) | kwargs
            ends = {"min_val": 0.0, "max_val": 6.0} if name == "relu6" else ends
            return [_clamped(value, ends.get("min_val", -1.0), ends.get("max_val", 1.0))]
        if value is not None and name in ("neg", "negative"):
            turned = lambda part: Ball(-part.mid, part.rad)  # noqa: E731
            return [value.mapped(turned(value.value), turned)]
        if name == "rsub":
            return [self._sum(args[1], args[0], -1.0)]
        if name in ("add", "sub", "radd", "iadd", "isub"):
            return [self._sum(args[0], args[1], -1.0 if "sub" in name else 1.0)]
        if name in ("mul", "rmul", "imul", "div", "truediv") and (value is None or other is None):
            row, by = (args[0], args[1]) if value is not None else (args[1], args[0])
            if "div" in name and value is None:
                raise RefusedError("the network divides by its rows")
            held, factor = self._row(row), self.constant(by).inverse() if "div" in name else self.constant(by)
            wide = held.value.times(factor)
            found = held.mapped(wide, lambda s: Ball(*(p.expand(len(p), *wide.mid.shape) for p in s.times(factor))))
            return [found.rounded(wide.most)]
        if value is not None and name in ("sum", "mean") and flat and all(d % value.value.mid.dim() for d in flat):
            way = lambda t: getattr(t, name)(*args[1:], **kwargs)  # noqa: E731
            return [one.rounded(way(value.value.most)) for one in value.each(way)]
        if value is not None and name in ("matmul", "mm") and other is None and args[1].dim() == 2:
            by = self.constant(args[1])
            turned = Ball(by.mid.T, by.rad.T)
            found = value.mapped(value.value.through(turned), lambda slope: slope.through(turned))
            return [_blurred(found, value, turned)]
        further = [self.of(one) for one in (*args[1:], *kwargs.values())]
        if value is not None and name == "layer_norm" and len(tuple(args[1])) == 1 and not any(further):
            return [_normed(value, *args[1:], **kwargs)]
        if value is not None and name == "dropout":
            options = dict(zip(("p", "training"), args[1:], strict=False)) | kwargs
            if self.masked or not options.get("training", True) or not options.get("p", 0.5):
                return [value]
        raise RefusedError(f"the operation {name} of the network is not bounded")

    def _row(self, thing: Operand) -> Value:
        held = self.of(thing)
        return Value(self.constant(thing), {}) if held is None else held

    def _sum(self, one: Operand, other: Operand, sign: float) -> Value:
        left, right = self._row(one), self._row(other)
        value = left.value.plus(right.value, sign)
        slopes = {
            name: Ball(*(p.expand(len(p), *value.mid.shape) for p in slope)) for name, slope in left.slopes.items()
        }
        for name, slope in right.slopes.items():
            none = torch.zeros(len(slope.mid), *value.mid.shape).double()
            slopes[name] = slopes.get(name, Ball(none, none)).plus(slope, sign)
        return Value(value, slopes).rounded(left.value.most + right.value.most)


class _Below(TorchDispatchMode):
    """Refuses operations that no function of a trace carries out."""

    def __init__(self, trace: Trace) -> None:
        super().__init__()
        self.trace = trace

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation."""
        if not self.trace.inside:
            raise RefusedError("the network computes something that is not followed")
        return func(*args, **(kwargs or {}))


def _blurred(found: Value, before: Value, weight: Ball) -> Value:
    """Return what a linear layer makes of entries with the roundings of its sums."""
    if BLUR not in found.slopes:
        return found
    width = before.value.mid.shape[-1]
    more = roundings(width) * before.value.most @ weight.most.T + width * TINY
    blur = found.slopes[BLUR]
    return found._replace(slopes={**found.slopes, BLUR: Ball(blur.mid, blur.rad + more)})


# Options of operations that are followed; further ones are refused, so that none is passed over.
_OPTIONS_OF = {
    "sum": {"dim", "axis", "keepdim"},
    "mean": {"dim", "axis", "keepdim"},
    "clamp": {"min", "max"},
    "clip": {"min", "max"},
    "linear": {"bias"},
    "layer_norm": {"weight", "bias", "eps"},
    "dropout": {"p", "training", "inplace"},
    "gelu": {"approximate"},
    "elu": {"alpha", "inplace"},
    "leaky_relu": {"negative_slope", "inplace"},
    "softplus": {"beta", "threshold"},
    "hardtanh": {"min_val", "max_val", "inplace"},
    **{
        name: set[str]()
        for name in ("add", "sub", "radd", "rsub", "iadd", "isub", "mul", "rmul", "imul", "div", "truediv")
    },
}
# Operations of two tensors, and types of numbers that round no more than the client does.
_OF_TWO = {"add", "sub", "radd", "rsub", "iadd", "isub", "mul", "rmul", "imul", "div", "truediv", "matmul", "mm"}
_SAME_TYPE = (torch.float32, torch.float64)


def _check_options(name: str, args: Sequence[object], kwargs: Mapping[str, object]) -> None:
    """Refuse an operation with options that its bound does not heed."""
    kinds = [one for one in (*args, *kwargs.values()) if isinstance(one, torch.dtype)]
    # A tensor may say the type of another, too.
    kinds += [one.dtype for one in args[1:] if name == "to" and isinstance(one, Tensor)]
    unknown = set() if name in _REARRANGED else kwargs.keys() - _OPTIONS_OF.get(name, {"dim", "inplace"})
    if unknown or any(name != "to" or one not in _SAME_TYPE for one in kinds) or (name in _OF_TWO and len(args) > 2):
        raise RefusedError(f"an option of the operation {name} of the network is not bounded")


_OPTIONS = {"leaky_relu": ("negative_slope", "inplace"), "elu": ("alpha", "inplace"), "softplus": ("beta", "threshold")}
# Values of options, which are numbers, flags and names.
_Option = float | int | str
# Times the usual roundings that an operation may lose: of a GELU 5.3 were measured, of all others at most 2.5.
_FUNCTIONS: dict[str, Any] = {"log_sigmoid": functional.logsigmoid}
_TIMES = {"gelu": 2.0}
_CANCELLING = ("gelu", "silu", "mish", "elu")
_USUAL = {"approximate": "none", "alpha": 1.0, "beta": 1, "threshold": 20}


def _curved(value: Value, name: str, args: Sequence[_Option], kwargs: Mapping[str, _Option]) -> Value:
    least, most, bend = _CURVES[name]
    if len(args) > len(_OPTIONS.get(name, ("inplace",))):
        raise RefusedError(f"the options of {name} are not bounded")
    given = dict(zip(_OPTIONS.get(name, ("inplace",)), args, strict=False)) | dict(kwargs)
    usual = _USUAL | ({"approximate": "tanh"} if given.get("approximate") == "tanh" else {})
    if any(key not in ("inplace", "negative_slope") and given[key] != usual.get(key) for key in given):
        raise RefusedError(f"the options of {name} are not bounded")
    options = {key: given[key] for key in given if key in ("negative_slope", "approximate")}
    curve = functools.partial(_FUNCTIONS.get(name) or getattr(functional, name), **options)
    mid, rad = value.value
    if bend is None:
        below = float(options.get("negative_slope", 0.01 if name == "leaky_relu" else 0.0))
        low, high = (torch.where(end > 0, 1.0, below).double() for end in (mid - rad, mid + rad))
        low, high = torch.minimum(low, high), torch.maximum(low, high)
    else:
        at = mid.detach().requires_grad_()
        with torch.enable_grad():
            slope = torch.autograd.grad(curve(at).sum(), at)[0]
        low, high = (slope - bend * rad).clamp(least, most), (slope + bend * rad).clamp(least, most)
    slope = Ball((low + high) / 2, (high - low) / 2)
    found = value.mapped(Ball(curve(mid), slope.most * rad), lambda s: s.times(slope))
    # Of those that multiply their argument by a difference, single precision rounds the argument.
    lost = found.value.most + value.value.most * (name in _CANCELLING)
    return found if name == "relu" else found.rounded(lost * _TIMES.get(name, 1.0))


def _clamped(value: Value, min: float | int | None = None, max: float | int | None = None) -> Value:
    """Return bounds between two constants: entries that stay between them move on, those beyond do not."""
    mid, rad = value.value
    low, high = -math.inf if min is None else min, math.inf if max is None else max
    inside = (mid - rad >= low) & (mid + rad <= high)
    beyond = (mid + rad < low) | (mid - rad > high)
    slope = Ball(torch.where(inside, 1.0, torch.where(beyond, 0.0, 0.5)).double(), (~inside & ~beyond) * 0.5)
    return value.mapped(Ball(mid.clamp(low, high), torch.where(beyond, 0.0, rad)), lambda s: s.times(slope))


def _normed(
    value: Value, shape: Sequence[int], weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Value:
    """Return bounds behind a layer normalisation, whose derivative is a projection divided by the deviation."""
    mid, rad = value.value
    deviation = mid.var(-1, correction=0, keepdim=True).sqrt() - rad.square().mean(-1, keepdim=True).sqrt()
    deviation = deviation.clamp(min=0)
    weight, bias = (None if part is None else part.detach().double() for part in (weight, bias))
    factor = (torch.ones(()) if weight is None else weight.abs()) / (deviation.square() + eps).sqrt()
    after = functional.layer_norm(mid, shape, weight, bias, eps)
    far = lambda ball, size: Ball(torch.zeros_like(size), size)  # noqa: E731
    norm = lambda ball: ball.most.norm(dim=-1, keepdim=True) * factor  # noqa: E731
    # Any value is at most the root of the width, so that intervals stay finite.
    largest = 2 * math.sqrt(mid.shape[-1]) * (factor * (deviation.square() + eps).sqrt())
    reach = torch.minimum(rad.norm(dim=-1, keepdim=True) * factor, largest)
    found = value.mapped(Ball(after.detach(), reach.expand_as(after)), lambda s: far(s, norm(s).expand_as(s.mid)))
    return found.rounded(after.detach().abs() + 2 * value.value.most.amax(-1, keepdim=True) * factor)


class Boxes(NamedTuple):
    """Sets of rows: a category of each column with categories, -1 for any, and an interval of each number.

    Intervals are middles and half widths in units of the number's range.
    """

    codes: Tensor
    center: Tensor
    reach: Tensor

    def some(self, which: Tensor) -> Boxes:
        """Return some of the boxes."""
        return Boxes(self.codes[which], self.center[which], self.reach[which])

    def encoded(self, declared: Declaration, rounded: bool = True) -> Ball:
        """Return the rows as the network takes them, with the roundings of numbers in their radius or without."""
        at, own = declared.layout, self.codes[:, declared.layout.column]
        mid, rad = torch.empty(2, len(self.codes), len(at.mean)).double()
        mid[:, at.number] = at.low + self.center * at.span
        mid[:, ~at.number] = torch.where(own < 0, 0.5, (own == at.category).double())
        # Entries and what they are standardised by are rounded, too.
        size = (self.center * at.span + at.low).abs() + self.reach * at.span + at.mean[at.number].abs()
        rad[:, at.number] = self.reach * at.span + rounded * ROUNDINGS * UNIT * size
        most = torch.where(own < 0, 1.0, mid[:, ~at.number]) + at.mean[~at.number].abs()
        rad[:, ~at.number] = torch.where(own < 0, 0.5, 0.0) + rounded * ROUNDINGS * UNIT * most
        return Ball((mid - at.mean) / at.scale, rad / at.scale)


def everything(declared: Declaration) -> Boxes:
    """Return the box of all rows."""
    half = torch.full((1, len(declared.numbers)), 0.5, dtype=torch.float64)
    return Boxes(torch.full((1, len(declared.columns) - len(declared.numbers)), -1), half, half)


def single_rows(declared: Declaration, cells: Tensor) -> Boxes:
    """Return a box for each record (record, column) that holds it alone."""
    number = torch.tensor([column.categories is None for column in declared.columns], dtype=torch.bool)
    span = declared.layout.span
    center = (cells[:, number] - declared.layout.low) / torch.where(span > 0, span, 1.0)
    return Boxes(cells[:, ~number].long(), center, torch.zeros_like(center))
