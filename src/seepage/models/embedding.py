"""Adapter for networks that take codes: a one-hot vector times the table in place of each look-up, differentiable."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from seepage.errors import BadInputError, one_line
from seepage.models.copies import copied
from seepage.models.dropout import random_outputs, undropped
from seepage.models.wrapping import same_buffers
from seepage.tabular.encoder import Encoder
from seepage.tabular.schema import Schema
from seepage.tabular.statistics import Statistics
from seepage.text import how_many

CODES = ("codes", "categories", "categorical", "x_cat", "x_categ", "cat", "cats")
NUMBERS = ("numbers", "continuous", "numerical", "x_num", "x_cont", "num", "cont")

_ADVICE = (
    "let the forward method only select columns of the codes, add constants to them and look them up with "
    "nn.Embedding (or torch.nn.functional.embedding or one_hot)"
)
_RANDOM_ROWS = 32
_SIGNATURE = inspect.signature(functional.embedding)


class Embedded(nn.Module):
    """A network of codes and numbers, as one of seepage's encoded rows; it is copied, parameters keep their names.

    Its forward method takes ``codes`` (record, discrete column), int64, positions in the schema's categories, and
    ``numbers`` (record, continuous column), standardised; or only codes. For columns that there are none of, it is
    given an empty tensor or, where it does not take that, None. Look-ups are found by trial, on rows that differ in one
    code each. Offsets, shared and stacked tables are followed; so is ``padding_idx``, whose row gets no gradient.
    """

    _inner: nn.Module
    seepage_mean: Tensor
    seepage_std: Tensor
    _absent: tuple[str, ...]

    def __init__(self, module: nn.Module, schema: Schema, statistics: Statistics) -> None:
        super().__init__()
        inner = copied(module)
        roles = _roles(inner)
        if roles is None:
            raise BadInputError(
                f"the network {type(module).__name__} takes no argument called {', '.join(CODES[:3])} or the like; "
                "only a network that takes codes needs this adapter."
            )
        if schema.continuous and "numbers" not in roles:
            raise BadInputError(
                f"the network {type(module).__name__} takes only codes, but the schema has "
                f"{how_many(len(schema.continuous), 'continuous column')}; add an argument called numbers to its "
                "forward method."
            )
        # The module's own dictionaries, so that parameters keep their names and functional_call reaches them; the
        # module itself is not registered as a child, since its parameters would be counted twice.
        object.__setattr__(self, "_inner", inner)
        for part in ("_parameters", "_buffers", "_modules", "_non_persistent_buffers_set"):
            object.__setattr__(self, part, getattr(inner, part))
        self.training = inner.training
        self._roles, self._discrete = roles, [schema.blocks[i] for i in schema.discrete]
        self._continuous = [schema.blocks[i].start for i in schema.continuous]
        self._describe = f"{type(module).__name__} of {len(self._discrete)} codes, {len(self._continuous)} numbers"
        first = next(inner.parameters())
        for name, values in (("seepage_mean", statistics.mean), ("seepage_std", statistics.std)):
            if hasattr(inner, name):
                raise BadInputError(f"the network has an attribute {name!r}, which seepage needs; rename it.")
            inner.register_buffer(name, values.to(device=first.device, dtype=first.dtype), persistent=False)
        # Some networks insist on no tensor at all for columns that there are none of.
        self._absent = self._refused(first)
        self._plan = _plan(self._tried, schema, self._discrete, len(self._continuous), first)
        self._verify(schema, statistics, first)

    def forward(self, encoded: Float[Tensor, "*batch record encoded"]) -> Tensor:
        """Return the module's outputs for encoded rows (*batch, record, output)."""
        rows = encoded.reshape(-1, encoded.shape[-1])
        raw = rows * self.seepage_std + self.seepage_mean
        numbers = rows[:, self._continuous]
        # If a code is used for anything but a look-up, these zeros change the outputs, which the comparison detects.
        codes = torch.zeros(len(rows), len(self._discrete), dtype=torch.int64, device=rows.device)
        with _Multiplying(self._plan, [raw[:, block] for block in self._discrete], rows):
            outputs = self._module_outputs(codes, numbers)
        return outputs.reshape(*encoded.shape[:-1], *outputs.shape[1:])

    def train(self, mode: bool = True) -> Embedded:
        """Set the mode of the module and of its parts."""
        self._inner.train(mode)
        self.training = mode
        return self

    def extra_repr(self) -> str:
        """Return a description of the adapted network."""
        return self._describe

    def _module_outputs(self, codes: Tensor, numbers: Tensor) -> Tensor:
        given = {"codes": codes, "numbers": numbers}
        return self._inner(*(None if role in self._absent else given[role] for role in self._roles))

    def _tried(self, codes: Tensor, numbers: Tensor) -> Tensor:
        with same_buffers(self._inner):
            return self._module_outputs(codes, numbers)

    def _refused(self, like: Tensor) -> tuple[str, ...]:
        """Return the arguments without columns that the module does not take as an empty tensor."""
        self._absent = ()
        sizes = {"codes": len(self._discrete), "numbers": len(self._continuous)}
        empty = tuple(role for role in self._roles if not sizes[role])
        if not empty:
            return ()
        codes = torch.zeros(2, sizes["codes"], dtype=torch.int64, device=like.device)
        try:
            with torch.no_grad():
                self._tried(codes, torch.zeros(2, sizes["numbers"], dtype=like.dtype, device=like.device))
        except Exception:  # A user's module may raise anything.
            return empty
        return ()

    def _verify(self, schema: Schema, statistics: Statistics, like: Tensor) -> None:
        generator = torch.Generator().manual_seed(0)
        codes = torch.zeros(_RANDOM_ROWS, len(self._discrete), dtype=torch.int64, device=like.device)
        for i, block in enumerate(self._discrete):
            codes[:, i] = torch.randint(block.stop - block.start, (_RANDOM_ROWS,), generator=generator)
        numbers = torch.randn(_RANDOM_ROWS, len(self._continuous), generator=generator, dtype=torch.float64)
        encoder = Encoder(schema, statistics, dtype=like.dtype, device=like.device)
        raw = torch.zeros(_RANDOM_ROWS, encoder.width, dtype=torch.float64, device=like.device)
        for i, block in enumerate(self._discrete):
            raw[:, block] = functional.one_hot(codes[:, i], block.stop - block.start).double()
        encoded = encoder.standardise(raw).to(like.dtype)
        encoded[:, self._continuous] = numbers.to(encoded)
        with torch.no_grad(), undropped():
            real, again = (self._tried(codes, numbers.to(like)) for _ in range(2))
            with same_buffers(self._inner):
                adapted = self(encoded)
        if not torch.equal(real, again):
            raise random_outputs(self._describe)
        scale = real.abs().max().clamp_min(1)
        if real.shape != adapted.shape or not bool(((real - adapted).abs() <= 1e-3 * scale).all()):
            raise BadInputError(
                f"the network {self._describe} does more with its codes than look them up, "
                f"so an attack cannot reach its tables; {_ADVICE}."
            )


def adapted(module: nn.Module, schema: Schema, statistics: Statistics) -> nn.Module:
    """Return a module of encoded rows: the module itself, or an adapter where it takes codes."""
    if isinstance(module, Embedded) or _roles(module) is None:
        return module
    return Embedded(module, schema, statistics)


def _roles(module: nn.Module) -> tuple[str, ...] | None:
    """Return the roles of the forward method's arguments by their names, in order; None where it takes encoded rows.

    Two arguments are refused where none, or not only the other, is known to be the codes.
    """
    try:
        parameters = list(inspect.signature(module.forward).parameters.values())
    except (TypeError, ValueError):
        return None
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    roles = ["codes" if p.name in CODES else "numbers" if p.name in NUMBERS else None for p in positional]
    required = [p.name for p in positional if p.default is p.empty]
    if len(required) >= 2 and ("codes" not in roles or len(required) > 2 or set(roles[:2]) != {"codes", "numbers"}):
        raise BadInputError(
            f"the forward method of the network {type(module).__name__} takes {', '.join(map(repr, required))}; "
            "seepage hands it either encoded rows (one argument) or codes of the discrete and numbers of the "
            "continuous columns. Call the arguments codes and numbers."
        )
    if not roles or "codes" not in roles[:2]:
        return None
    return tuple(role for role in roles[:2] if role is not None)


@dataclass(frozen=True)
class _Call:
    """One look-up, with records along ``axis`` of its index: by entry, the column if any, and each category's row."""

    axis: int
    rest: tuple[int, ...]
    entries: tuple[tuple[int | None, Int[Tensor, " _"]], ...]


class _Watching(TorchFunctionMode):
    """Records the look-ups while a module runs on real codes."""

    def __init__(self, describe: Callable[[Tensor], str]) -> None:
        super().__init__()
        self.calls: list[Tensor] = []
        self._describe = describe

    def __torch_function__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        if func in (functional.embedding, functional.one_hot):
            index, rows = _index_and_rows(func, args, dict(kwargs or {}))
            outside = (index < 0) | (index >= rows)
            if bool(outside.any()):
                raise BadInputError(
                    f"the network looks up row {int(index[outside][0])} in a table of {rows} rows"
                    f"{self._describe(outside)}; give each table as many rows as its column has categories."
                )
            self.calls.append(index.detach().clone())
        return func(*args, **(kwargs or {}))


class _Multiplying(TorchFunctionMode):
    """Replaces every look-up of a module by the product of one-hot blocks with the table."""

    def __init__(self, plan: list[_Call | None], blocks: list[Tensor], like: Tensor) -> None:
        super().__init__()
        self._calls, self._blocks, self._like = iter(plan), blocks, like

    def __torch_function__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        if func is torch.column_stack:
            return _beside(*args, **(kwargs or {}))
        if func not in (functional.embedding, functional.one_hot):
            return func(*args, **(kwargs or {}))
        try:
            call = next(self._calls)
        except StopIteration:
            raise _changing() from None
        if call is None:
            return func(*args, **(kwargs or {}))
        table = _table(func, args, dict(kwargs or {}), self._like)
        records = len(self._like)
        products = []
        for column, rows in call.entries:
            # The adapter may have been moved to another device since.
            picked = table[rows.to(table.device)]
            products.append(
                picked.expand(records, -1) if column is None else torch.tensordot(self._blocks[column], picked, 1)
            )
        none = self._like.new_empty(records, 0, table.shape[-1])
        stacked = (torch.stack(products, dim=1) if products else none).reshape(records, *call.rest, table.shape[-1])
        return stacked.movedim(0, call.axis)


def _beside(tensors: Sequence[Tensor]) -> Tensor:
    """Return columns side by side; PyTorch's own (2.13) cannot be vectorised by ``vmap``."""
    return torch.cat([t.reshape(len(t), -1) if t.dim() < 2 else t for t in tensors], 1)


def _bound(func: object, args: tuple[Any, ...], kwargs: Mapping[str, object]) -> dict[str, Any]:
    if func is functional.one_hot:
        return dict(zip(("input", "num_classes"), args, strict=False)) | {
            ("input" if name in ("input", "tensor", "self") else name): value for name, value in kwargs.items()
        }
    return dict(_SIGNATURE.bind(*args, **kwargs).arguments)


def _index_and_rows(func: object, args: tuple[Any, ...], kwargs: Mapping[str, object]) -> tuple[Tensor, int]:
    """Return the index of a look-up and the number of rows of its table."""
    given = _bound(func, args, kwargs)
    if func is functional.one_hot:
        if given.get("num_classes", -1) < 1:
            raise BadInputError(
                "the network calls one_hot without a number of classes, which then depends on the given rows; give "
                "num_classes."
            )
        return given["input"], given["num_classes"]
    for option, why in (("max_norm", "rescales its table"), ("scale_grad_by_freq", "rescales its gradient")):
        if given.get(option):
            raise BadInputError(
                f"the network has an embedding that {why} while it runs ({option}={given[option]}), which the attacks "
                "here do not follow; leave that option out."
            )
    return given["input"], len(given["weight"])


def _table(func: object, args: tuple[Any, ...], kwargs: Mapping[str, object], like: Tensor) -> Tensor:
    given = _bound(func, args, kwargs)
    if func is functional.one_hot:
        return torch.eye(given["num_classes"], dtype=like.dtype, device=like.device)
    weight, padding = given["weight"], given.get("padding_idx")
    if padding is None:
        return weight
    is_padding = (torch.arange(len(weight), device=weight.device) == padding % len(weight))[:, None]
    return torch.where(is_padding, weight.detach(), weight)


def _plan(
    outputs_of: Callable[[Tensor, Tensor], Tensor], schema: Schema, blocks: list[slice], numbers: int, like: Tensor
) -> list[_Call | None]:
    """Return the module's look-ups, found by changing one code at a time."""
    widths = [block.stop - block.start for block in blocks]
    starts = [1 + sum(widths[:i]) for i in range(len(widths))]
    rows = 1 + sum(widths)
    probes = torch.zeros(rows, len(blocks), dtype=torch.int64, device=like.device)
    for i, (start, width) in enumerate(zip(starts, widths, strict=True)):
        probes[start : start + width, i] = torch.arange(width, device=like.device)

    def describe(outside: Tensor) -> str:
        """Name the column that an index outside its table comes from, found by trying one category after the other."""
        if outside.ndim == 0 or len(outside) != rows:
            return ""
        row = int(outside.reshape(rows, -1).any(1).nonzero()[0])
        i = next((i for i in reversed(range(len(starts))) if row >= starts[i]), None)
        return "" if i is None else f" for column {schema.names[schema.discrete[i]]!r}, which has {widths[i]}"

    def watched(codes: Tensor) -> list[Tensor]:
        zeros = torch.zeros(len(codes), numbers, dtype=like.dtype, device=like.device)
        with torch.no_grad(), _Watching(describe) as watching:
            try:
                outputs_of(codes, zeros)
            except BadInputError:
                raise
            except Exception as error:  # A user's module may raise anything.
                reason = one_line(error)
                raise BadInputError(
                    f"the network does not take {len(blocks)} codes and {numbers} numbers a record ({reason}); "
                    "build it for the columns of this schema."
                ) from error
        return watching.calls

    calls, longer = watched(probes), watched(torch.cat([probes, probes[:1]]))
    if len(calls) != len(longer):
        raise _changing()
    return [_entries(index, other, starts, widths, schema) for index, other in zip(calls, longer, strict=True)]


def _entries(index: Tensor, longer: Tensor, starts: list[int], widths: list[int], schema: Schema) -> _Call | None:
    rows = starts[-1] + widths[-1] if starts else 1
    grown = [axis for axis in range(index.ndim) if index.shape[axis] != longer.shape[axis]]
    if index.ndim != longer.ndim or len(grown) > 1 or (grown and index.shape[grown[0]] != rows):
        raise BadInputError(
            "the network mixes records and columns into one axis of an index before it looks it up, which cannot be "
            f"followed; {_ADVICE}."
        )
    if not grown:
        # The same rows for all records, such as those of positions.
        if not torch.equal(index, longer):
            raise _changing()
        return None
    by_record = index.movedim(grown[0], 0)
    entries: list[tuple[int | None, Tensor]] = []
    for entry in by_record.reshape(rows, -1).unbind(1):
        picked = [entry[start : start + width] for start, width in zip(starts, widths, strict=True)]
        moved = [i for i, p in enumerate(picked) if bool((p != entry[0]).any())]
        if len(moved) > 1:
            names = ", ".join(repr(schema.names[schema.discrete[i]]) for i in moved[:3])
            raise BadInputError(
                f"the network looks up a row that depends on several columns at once ({names}); {_ADVICE}."
            )
        entries.append((moved[0], picked[moved[0]]) if moved else (None, entry[:1]))
    return _Call(grown[0], tuple(by_record.shape[1:]), tuple(entries))


def _changing() -> BadInputError:
    return BadInputError(
        f"the network looks up other tables from one call to the next, which cannot be followed; {_ADVICE}."
    )
