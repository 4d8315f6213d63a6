"""Dropout in networks: where values are dropped at random in training, and the same network without it."""

from __future__ import annotations

from torch import nn

from seepage.errors import BadInputError
from seepage.models.copies import copied

_LAYER = nn.modules.dropout._DropoutNd  # pyright: ignore[reportPrivateUsage]
_RATE = "dropout"


def dropping(module: nn.Module) -> list[str]:
    """Return the layers of PyTorch's in a module that drop values at random in training, each as ``Kind at 'name'``.

    Example:
        >>> dropping(nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.1), nn.MultiheadAttention(2, 1, dropout=0.2)))
        ["Dropout at '1'", "MultiheadAttention at '2'"]
        >>> dropping(nn.Dropout(0.0))
        []
    """
    return [
        _place(name, part)
        for name, part in module.named_modules()
        if isinstance(part, _LAYER | nn.MultiheadAttention) and _rates(part)
    ]


def without_dropout(module: nn.Module) -> tuple[nn.Module, tuple[str, ...]]:
    """Return a copy of a module in which every rate of dropout is 0, and the places that had one.

    A rate is the argument of ``nn.Dropout`` and its kind, or a number between 0 and 1 in an attribute of any module
    with "dropout" in its name, such as that of ``nn.MultiheadAttention`` or ``nn.LSTM``. Functional dropout with a rate
    that is written into a forward method stays. Parameters keep their names and values.

    Example:
        >>> without_dropout(nn.Sequential(nn.Linear(1, 1), nn.Dropout(0.5)))[0][1]
        Dropout(p=0.0, inplace=False)
    """
    found = copied(module)
    places = []
    for name, part in found.named_modules():
        rates = _rates(part)
        places += [_place(name, part)] if rates else []
        for rate in rates:
            setattr(part, rate, 0.0)
    return found, tuple(places)


def random_outputs(model: str) -> BadInputError:
    """Return the refusal of a model that returns other outputs for the same rows each time."""
    return BadInputError(
        f"model {model!r} returns other outputs for the same rows each time, so its gradient cannot be replayed. "
        "Remove what is random from it. A functional dropout is switched off by dropout='off' (--dropout off) where "
        "its rate is an attribute with 'dropout' in its name, such as self.dropout."
    )


def _place(name: str, part: nn.Module) -> str:
    return f"{type(part).__name__} at {repr(name) if name else 'its root'}"


def _rates(part: nn.Module) -> list[str]:
    """Return the attributes of one module that are rates of dropout above 0."""
    names = ["p"] if isinstance(part, _LAYER) else [name for name in vars(part) if _RATE in name.lower()]
    return [name for name in names if _is_rate(getattr(part, name))]


def _is_rate(value: object) -> bool:
    return isinstance(value, float | int) and value is not True and 0 < value <= 1
