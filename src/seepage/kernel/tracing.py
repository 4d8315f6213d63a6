"""The graph of a computation: all of its PyTorch operations, forward and backward, on tensors without any values.

A client's computation is run as the client runs it: its own module with its own parameters, in single precision, on its
own number of rows. Rows have a shape and no values, so that nothing that Python does can depend on them; what asks for
a value is refused. What is computed of constants alone is a constant. All names of PyTorch that are private stand here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from seepage.kernel.statement import RefusedError, random_states

# Types of numbers of a client's computation: double precision is not the declared one, and short integers wrap.
_TYPES = (torch.float32, torch.bool, torch.int64)


class Place(NamedTuple):
    """A tensor of a graph: an input, a parameter, or what an operation returned."""

    number: int


class Operation(NamedTuple):
    """An operation: its name, arguments with ``Place`` for tensors of the graph, results, their shapes and types."""

    name: str
    arguments: tuple[Any, ...]
    options: dict[str, Any]
    results: tuple[Place, ...]
    shapes: tuple[tuple[int, ...], ...]
    kinds: tuple[torch.dtype, ...]


class OperationGraph(NamedTuple):
    """All operations of a computation.

    Attributes:
        operations: in their order.
        inputs: places of the inputs.
        parameters: place of each parameter that is used, by name.
        results: what the computation returned: places, or constants.
        rows: number of rows that it was run on.
    """

    operations: list[Operation]
    inputs: list[Place]
    parameters: dict[str, Place]
    results: list[Any]
    rows: int

    def before(self, *wanted: Place) -> list[Operation]:
        """Return the operations that some places depend on, in their order."""
        needed, found = set(wanted), list[Operation]()
        for operation in reversed(self.operations):
            if needed & set(operation.results):
                needed |= set(places_in((operation.arguments, operation.options)))
                found.append(operation)
        return found[::-1]


def places_in(thing: object) -> list[Place]:
    """Return all places among arguments."""
    if isinstance(thing, Place):
        return [thing]
    parts = thing.values() if isinstance(thing, Mapping) else thing if isinstance(thing, (tuple, list)) else ()
    return [place for part in parts for place in places_in(part)]


# Operations whose lists are shapes, of which the first size may be the number of rows; their numbers are none.
_FILLED = ("zeros", "ones", "full")
_SHAPED = {
    *_FILLED,
    "view",
    "_unsafe_view",
    "expand",
    "new_zeros",
    "new_ones",
    "new_full",
    "slice_backward",
    "select_backward",
}


# Operations that make a tensor of one number, of another's shape at most.
FILLS = {f"{how}{by}" for by in ("zeros", "ones", "full") for how in ("", "new_")}
FILLS |= {"zeros_like", "ones_like", "full_like"}
# Operations that add up entries, among them what there is one of for each row.
_REDUCING = {"sum", "mean", "mm", "bmm", "addmm", "baddbmm", "native_layer_norm"}


def same(one: Operation, other: Operation, rows: tuple[int, int] = (0, 0)) -> bool:
    """Return whether two operations of different runs are the same, with the same constants, on two numbers of rows."""
    shapes = _alike(one.shapes, other.shapes, rows) and one.kinds == other.kinds
    shaped, mine, others = rows if one.name in _SHAPED else (0, 0), list(one.arguments), list(other.arguments)
    if one.name in ("full", "new_full", "slice_backward", "select_backward") and len(mine) == len(others):
        # The number that fills a shape, or a place in it, is no size.
        at = int(one.name != "full")
        if not _alike(tuple(mine[at + 1 :]), tuple(others[at + 1 :]), _bounds(one.name, rows)):
            return False
        mine, others = mine[: at + 1], others[: at + 1]
    arguments = _alike((tuple(mine), one.options), (tuple(others), other.options), shaped, rows)
    return one.name == other.name and shapes and arguments


def counts_rows(one: OperationGraph, other: OperationGraph) -> bool:
    """Return whether the same operations, on two numbers of rows, add up or pick what depends on them alone."""
    shapes = [
        {place: shape for op in graph.operations for place, shape in zip(op.results, op.shapes, strict=True)}
        for graph in (one, other)
    ]
    of_rows = set(one.inputs)
    for first, second in zip(one.operations, other.operations, strict=True):
        mine, others = (places_in((op.arguments, op.options)) for op in (first, second))
        if of_rows & set(mine) and first.name not in FILLS:
            of_rows |= set(first.results)
        for place, twin in zip(mine, others, strict=True) if first.name not in FILLS else ():
            if place in of_rows or shapes[0].get(place) == shapes[1].get(twin):
                continue
            if first.name in _REDUCING or (first.shapes == second.shapes and not of_rows & set(first.results)):
                return True
    return False


def _bounds(name: str, rows: tuple[int, int]) -> tuple[int, int]:
    """Return the numbers of rows where all rows are a slice."""
    return rows if name == "slice_backward" else (0, 0)


def _alike(one: object, other: object, shape: tuple[int, int], rows: tuple[int, int] = (0, 0)) -> bool:
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        # A constant with the same entries for each row.
        if one.dim() and one.shape[1:] == other.shape[1:] and (len(one), len(other)) == rows:
            return bool((one == one[:1]).all()) and bool((other == one[:1]).all())
        return one.shape == other.shape and one.dtype == other.dtype and bool((one == other).all())
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(_alike(one[key], other[key], shape, rows) for key in one)
    if isinstance(one, tuple) and isinstance(other, tuple) and type(one) is type(other):
        pairs = zip(one, other, strict=False)
        return len(one) == len(other) and all(_sized(a, b, shape) or _alike(a, b, shape, rows) for a, b in pairs)
    return type(one) is type(other) and one == other


def _sized(one: object, other: object, rows: tuple[int, int]) -> bool:
    return isinstance(one, int) and isinstance(other, int) and (one, other) == rows


class _Valueless(Tensor):
    """A tensor of the graph: shape and type without values, and a tensor of PyTorch's own kind of those."""

    place: Place
    form: Tensor
    __torch_function__ = cast(Any, torch._C._disabled_torch_function_impl)

    @staticmethod
    def __new__(cls, inner: Tensor, place: Place) -> _Valueless:
        made = Tensor._make_wrapper_subclass(
            cls, inner.shape, inner.stride(), inner.storage_offset(), dtype=inner.dtype, device=torch.device("cpu")
        )
        made.form, made.place = inner, place
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Refuse what is computed where nothing is recorded."""
        raise RefusedError(f"the network computes {func} where it is not followed")

    def __repr__(self, **_: object) -> str:
        """Refuse to show values."""
        raise RefusedError("the network looks at values of its rows")

    def tolist(self) -> Any:
        """Refuse to show values."""
        raise RefusedError("the network looks at values of its rows")


class _Recorder(TorchDispatchMode):
    def __init__(self, parameters: Mapping[str, Tensor]) -> None:
        super().__init__()
        self.names = {id(part): name for name, part in parameters.items()}
        self.stored = {part.untyped_storage().data_ptr() for part in parameters.values()}
        self.operations, self.parameters = list[Operation](), dict[str, Place]()
        # Places by their storage, those whose values were changed behind them, and all tensors, so that storages stay.
        self.sharing, self.stale, self.kept = dict[int, list[Place]](), set[Place](), list[Tensor]()
        # Constants with the version of their values, and the tensors without values that stand for real ones.
        self.constants, self.shadows = list[tuple[Tensor, int]](), dict[int, tuple[Tensor, Tensor]]()

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Return that PyTorch's compiler, which takes seconds to import, has nothing to do with a recorder."""
        return False

    def place(self, inner: Tensor) -> Place:
        found = Place(len(self.kept))
        self.kept.append(inner)
        self.sharing.setdefault(inner.untyped_storage()._cdata, []).append(found)
        return found

    def entered(self, shape: Sequence[int], kind: torch.dtype) -> _Valueless:
        inner = torch.empty(*shape, dtype=kind, device="meta")
        return _Valueless(inner, self.place(inner))

    def shadow(self, tensor: Tensor) -> Tensor:
        """Return the tensor without values that stands for a real one."""
        if id(tensor) not in self.shadows:
            self.shadows[id(tensor)] = tensor, tensor.detach().to("meta")
            if id(tensor) in self.names:
                self.parameters[self.names[id(tensor)]] = self.place(self.shadows[id(tensor)][1])
        return self.shadows[id(tensor)][1]

    def recorded(self, thing: Any) -> Any:
        """Return what an argument is in terms of places and constants."""
        if isinstance(thing, _Valueless):
            if thing.place in self.stale:
                raise RefusedError("the network changes a tensor in place that it uses elsewhere")
            return thing.place
        if isinstance(thing, Tensor):
            self.shadow(thing)
            if id(thing) in self.names:
                found = self.parameters[self.names[id(thing)]]
                if found in self.stale:
                    raise RefusedError("the network changes a parameter in place")
                return found
            if thing.requires_grad or thing.untyped_storage().data_ptr() in self.stored:
                raise RefusedError("the network uses a parameter in a way that is not followed")
            self.constants.append((thing, thing._version))
            # What it holds now: its numbers may be changed where no operation shows it.
            return thing.detach().clone()
        if isinstance(thing, (tuple, list)):
            return tuple(self.recorded(part) for part in thing)
        return {key: self.recorded(part) for key, part in thing.items()} if isinstance(thing, dict) else thing

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Record an operation, and return tensors without values."""
        kwargs = kwargs or {}
        name = func._schema.name.removeprefix("aten::")
        if torch.Tag.nondeterministic_seeded in func.tags:
            raise RefusedError(f"the network draws random numbers ({name})")
        # What is filled with one number may be changed in place, by rows.
        if name not in _FILLED and not any(
            isinstance(t, _Valueless) or id(t) in self.names for t in _tensors((args, kwargs))
        ):
            return func(*args, **kwargs)
        if name in ("_local_scalar_dense", "equal", "is_nonzero", "nonzero"):
            raise RefusedError("the network looks at values of its rows")
        arguments, options = self.recorded(args), self.recorded(kwargs)
        # A scalar of another overload, such as `alpha`, is a keyword of its own.
        kwargs = kwargs | ({"device": torch.device("meta")} if name in _FILLED else {})
        inner = lambda t: t.form if isinstance(t, _Valueless) else self.shadow(t)  # noqa: E731
        out = func(*_mapped(args, inner), **_mapped(kwargs, inner))
        if func._schema.is_mutable:
            return self._changed(name, args, arguments, options)
        many = out if isinstance(out, (tuple, list)) else [out]
        if not all(isinstance(one, Tensor) or one is None for one in many):
            raise RefusedError("the network looks at values of its rows")
        found = [one if one is None else _Valueless(one, self.place(one)) for one in many]
        self._append(name, arguments, options, [one for one in found if one is not None])
        return found[0] if isinstance(out, Tensor) else type(out)(found)

    def _changed(self, name: str, args: Any, arguments: Any, options: Any) -> Tensor:
        """Record an operation in place as one that returns another tensor, which has the changed one's name."""
        target = args[0]
        if not name.endswith("_") or not isinstance(target, _Valueless) or target.shape != target.form.shape:
            raise RefusedError(f"the network changes a tensor in place ({name})")
        self.stale |= set(self.sharing[target.form.untyped_storage()._cdata])
        target.place = self.place(target.form)
        self._append(name.removesuffix("_"), arguments, options, [target])
        return target

    def _append(self, name: str, arguments: Any, options: Any, found: Sequence[_Valueless]) -> None:
        kinds = {one.form.dtype for one in found}
        kinds |= {one for one in (*arguments, *options.values()) if isinstance(one, torch.dtype)}
        if not kinds <= set(_TYPES):
            raise RefusedError("the network computes in another precision than declared")
        shapes, types = tuple(tuple(one.form.shape) for one in found), tuple(one.form.dtype for one in found)
        self.operations.append(Operation(name, arguments, options, tuple(one.place for one in found), shapes, types))


# What shows a tensor's memory to Python or to other programs, or puts other memory in its place.
_UNSEEN = {
    *("numpy", "tolist", "__array__", "__dlpack__", "data_ptr", "storage", "untyped_storage", "set_", "__setstate__"),
    *("share_memory_", "__cuda_array_interface__", "swap_tensors", "from_numpy", "frombuffer"),
}


class _Unchecked(TorchFunctionMode):
    """Refuses what no operation shows; writes codes as entries of 0 and 1 without a look at their values."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation."""
        name, kind = getattr(func, "__name__", ""), getattr(getattr(func, "__self__", None), "__name__", "")
        if name in _UNSEEN or kind in _UNSEEN or (name == "__set__" and kind in ("data", "grad")):
            raise RefusedError(f"the network uses {kind if name == '__set__' else name}, which no operation shows")
        if name != "one_hot":
            return func(*args, **(kwargs or {}))
        options = dict(zip(("tensor", "num_classes"), args, strict=False)) | (kwargs or {})
        codes, width = options["tensor"], options.get("num_classes", -1)
        if not width > 0:
            raise RefusedError("the network takes the number of categories from the records of a batch")
        return (codes[..., None] == torch.arange(width)).to(codes.dtype)


def traced(
    function: Callable[..., Sequence[Tensor]], shapes: Sequence[Sequence[int]], parameters: Mapping[str, Tensor]
) -> OperationGraph:
    """Return the graph of a function of tensors of single precision with these shapes, of which the first size is rows.

    ``parameters`` are the tensors, by name, whose values are not fixed; all others are constants.
    """
    recorder, before = _Recorder(parameters), _surroundings(parameters)
    inputs = [recorder.entered(shape, torch.float32) for shape in shapes]
    try:
        with torch.enable_grad(), recorder, _Unchecked():
            results = function(*inputs)
            found = [recorder.recorded(one) for one in results]
    except RefusedError:
        raise
    except Exception as error:  # A user's module may raise anything.
        why = " ".join(str(error).split())[:200] or type(error).__name__
        raise RefusedError(f"the network cannot be followed ({why})") from error
    after = _surroundings(parameters)
    if after[0] != before[0]:
        raise RefusedError("the network draws random numbers")
    if after != before:
        raise RefusedError("the network changes its parameters, or the precision of products, as it is run")
    if any(one._version != version for one, version in recorder.constants):
        raise RefusedError("the network changes a constant in place that it used before")
    return OperationGraph(recorder.operations, [one.place for one in inputs], recorder.parameters, found, shapes[0][0])


def _surroundings(parameters: Mapping[str, Tensor]) -> tuple[object, ...]:
    """Return what a run must not change: states of random numbers, parameters' memory, the precision of products."""
    memory = [(part.data_ptr(), part._version) for part in parameters.values()]
    return random_states(), memory, torch.get_float32_matmul_precision(), torch.get_default_dtype()


def _tensors(thing: Any) -> list[Tensor]:
    if isinstance(thing, Tensor):
        return [thing]
    parts = thing.values() if isinstance(thing, dict) else thing if isinstance(thing, (tuple, list)) else ()
    return [tensor for part in parts for tensor in _tensors(part)]


def _mapped(thing: Any, inner: Callable[[Tensor], Tensor]) -> Any:
    """Return arguments with tensors without values, on their device."""
    if isinstance(thing, Tensor):
        return inner(thing)
    if isinstance(thing, (tuple, list)):
        return type(thing)(_mapped(part, inner) for part in thing)
    if isinstance(thing, dict):
        return {key: _mapped(part, inner) for key, part in thing.items()}
    return torch.device("meta") if isinstance(thing, torch.device) else thing
