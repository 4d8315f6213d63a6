"""Dropout in networks: where values are dropped in training, masks in place of that for replays, or no dropout."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from seepage.errors import BadInputError
from seepage.models.copies import copied
from seepage.models.wrapping import same_buffers

_LAYER = nn.modules.dropout._DropoutNd  # pyright: ignore[reportPrivateUsage]
_RATE = "dropout"
_DROPS = "_seepage_drops"
# Places that a message names.
_NAMED = 3
# A prime, so that an axis of this size is that of the rows.
_ROWS = 7
_HEADS = inspect.signature(functional.multi_head_attention_forward)


def dropping(module: nn.Module) -> list[str]:
    """Return the parts of a module that may drop values at random in training, each as ``Kind at 'name'``."""
    return [place_of(name, part) for name, part in module.named_modules() if _rates(part)]


def without_dropout(module: nn.Module) -> tuple[nn.Module, tuple[str, ...]]:
    """Return a copy of a module in which every rate of dropout is 0, and the places that had one.

    A rate is the argument of ``nn.Dropout`` and its kind, or a number between 0 and 1 in an attribute of any module
    with "dropout" in its name.
    """
    copy = copied(module)
    places = tuple(dropping(copy))
    for part in copy.modules():
        for rate in _rates(part):
            setattr(part, rate, 0.0)
    return copy, places


@dataclass(frozen=True)
class Drop:
    """A place in a network's run where values are dropped: number of values a record, and the chance of each."""

    size: int
    rate: float


@dataclass(frozen=True)
class Drops:
    """The places in a run where values are dropped, in order; ``width`` is that of a row before its masks."""

    width: int
    places: tuple[Drop, ...]

    @property
    def size(self) -> int:
        """Number of entries of a record's masks."""
        return sum(place.size for place in self.places)

    @property
    def rates(self) -> Float[Tensor, " mask"]:
        """Chance of each entry of a record's masks to be 0."""
        return torch.cat([torch.full((place.size,), place.rate) for place in self.places])

    @property
    def factors(self) -> Float[Tensor, " mask"]:
        """Factor of each value that is kept, 1 / (1 - rate); 0 where all are dropped."""
        rates = self.rates
        return torch.where(rates < 1, 1 / (1 - rates), torch.zeros_like(rates))

    def draw(self, shape: Sequence[int], generator: torch.Generator) -> Float[Tensor, "*shape mask"]:
        """Return masks as a client draws them: 0 or ``factors``."""
        stays = torch.rand(*shape, self.size, generator=generator) >= self.rates
        return stays * self.factors


def with_masks(module: nn.Module, width: int) -> nn.Module:
    """Return a copy of a module that takes its dropout masks as further entries of each row; without, it drops nothing.

    Masks replace ``functional.dropout`` and its callers, and the attention of ``nn.MultiheadAttention``; a module that
    calls none of them is returned as it is.
    """
    if drops_of(module) is not None:
        return module
    first = next(module.parameters())
    drops: list[Drop] = []
    try:
        with torch.no_grad(), same_buffers(module), _Masking(drops=drops):
            module(torch.zeros(_ROWS, width, dtype=first.dtype, device=first.device))
    except BadInputError:
        raise
    except Exception:  # A user's module may raise anything; ``Model.check`` says what.
        return module
    if not drops:
        return module
    masked = copied(module)
    vars(masked)[_DROPS] = Drops(width, tuple(drops))
    # Not a bound method, which worker processes would look up in the module by its name.
    masked.forward = partial(_forward, masked)
    return masked


def undropped() -> AbstractContextManager[object]:
    """Switch dropout off in networks that run in the block."""
    return _Masking()


def drops_of(module: nn.Module) -> Drops | None:
    """Return the places where a module that ``with_masks`` returned drops values; None for any other."""
    drops = vars(module).get(_DROPS)
    return drops if isinstance(drops, Drops) else None


def _forward(module: nn.Module, rows: Tensor) -> Tensor:
    drops = drops_of(module)
    assert drops is not None
    masks = None
    if rows.shape[-1] > drops.width:
        sizes = [drops.width, *(place.size for place in drops.places)]
        rows, *masks = rows.split(sizes, dim=-1)
    with _Masking(masks):
        return type(module).forward(module, rows)


class _Masking(TorchFunctionMode):
    """Multiplies values by masks (record, size), in order, where dropout would drop them; leaves them without masks."""

    def __init__(self, masks: Sequence[Tensor] | None = None, drops: list[Drop] | None = None) -> None:
        super().__init__()
        self._masks: Iterator[Tensor] | None = None if masks is None else iter(masks)
        self._drops = drops

    def __torch_function__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        given = kwargs or {}
        if func in (functional.dropout, torch.dropout):
            return self._dropout(*args, **given)
        if func is functional.scaled_dot_product_attention:
            return self._attention(*args, **given)
        if func is functional.multi_head_attention_forward:
            bound = _HEADS.bind(*args, **given)
            bound.apply_defaults()
            return self._heads(func, bound.arguments)
        return func(*args, **given)

    def _dropout(
        self, input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False, train: bool = True
    ) -> Tensor:
        if not (training and train) or p == 0:
            return input
        if self._drops is not None:
            if input.shape[0] % _ROWS:
                raise BadInputError(
                    f"the network drops values of a tensor of shape {tuple(input.shape)} for {_ROWS} rows, so that a "
                    "record's mask cannot be told; put the records on the first axis, or audit it with dropout='off' "
                    "(--dropout off), as if clients trained without it."
                )
            self._drops.append(Drop(input.numel() // _ROWS, float(p)))
            return input
        return input if self._masks is None else input * next(self._masks).to(input.dtype).reshape(input.shape)

    def _attention(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Tensor:
        if dropout_p == 0 or is_causal or enable_gqa:
            return functional.scaled_dot_product_attention(
                query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
            )
        weights = query @ key.mT * (1 / math.sqrt(query.shape[-1]) if scale is None else scale)
        if attn_mask is not None:
            weights = (
                weights.masked_fill(~attn_mask, -math.inf) if attn_mask.dtype == torch.bool else weights + attn_mask
            )
        return self._dropout(weights.softmax(-1), dropout_p) @ value

    def _heads(self, func: Callable[..., Any], given: dict[str, Any]) -> Any:
        """Return the outputs of ``nn.MultiheadAttention`` without attention masks, as encoders of tables use it."""
        rate = given["dropout_p"] if given["training"] else 0.0
        special = ("bias_k", "bias_v", "add_zero_attn", "key_padding_mask", "attn_mask", "static_k", "static_v")
        if (
            rate == 0
            or given["use_separate_proj_weight"]
            or any(given[name] is not None and given[name] is not False for name in special)
        ):
            return func(**given)
        query, key, value = given["query"], given["key"], given["value"]
        weight, bias = given["in_proj_weight"], given["in_proj_bias"]
        biases = (None,) * 3 if bias is None else bias.chunk(3)
        heads = given["num_heads"]
        # Records are on the second axis here, behind tokens.
        parts = [
            functional.linear(entering, part, shift).unflatten(-1, (heads, -1)).permute(1, 2, 0, 3)
            for entering, part, shift in zip((query, key, value), weight.chunk(3), biases, strict=True)
        ]
        weights = (parts[0] @ parts[1].mT / math.sqrt(parts[0].shape[-1])).softmax(-1)
        weights = self._dropout(weights, rate)
        mixed = (weights @ parts[2]).permute(2, 0, 1, 3).flatten(2)
        sent = functional.linear(mixed, given["out_proj_weight"], given["out_proj_bias"])
        if not given["need_weights"]:
            return sent, None
        return sent, weights.mean(1) if given["average_attn_weights"] else weights


def random_outputs(model: str, places: Sequence[str] = ()) -> BadInputError:
    """Return the refusal of a model that returns other outputs for the same rows each time."""
    dropped = f" It drops values: {', '.join(places[:_NAMED])}." if places else ""
    return BadInputError(
        f"model {model!r} returns other outputs for the same rows each time, so its gradient cannot be replayed."
        f"{dropped} Masks can be told to nn.Dropout, functional.dropout and attention; anything else that is random is "
        "switched off by dropout='off' (--dropout off) where its rate is an attribute with 'dropout' in its name, such "
        "as self.dropout, or has to be removed."
    )


def place_of(name: str, part: nn.Module) -> str:
    """Return the name of a part of a module for messages."""
    return f"{type(part).__name__} at {repr(name) if name else 'its root'}"


def _rates(part: nn.Module) -> list[str]:
    """Return the attributes of one module that are rates of dropout above 0."""
    names = ["p"] if isinstance(part, _LAYER) else [name for name in vars(part) if _RATE in name.lower()]
    values = {name: getattr(part, name) for name in names}
    return [n for n, rate in values.items() if isinstance(rate, float | int) and rate is not True and 0 < rate <= 1]
