"""Networks that return one number a record without an axis for it."""

from __future__ import annotations

from types import MethodType

from torch import Tensor, nn

from seepage.models.copies import copied

_INNER = "_seepage_inner"


def as_column(module: nn.Module) -> nn.Module:
    """Return a copy of a module whose outputs (record,) are a column (record, output).

    Parameters keep their names and values.

    Example:
        >>> import torch
        >>> as_column(nn.Flatten(0))(torch.ones(3, 1)).shape
        torch.Size([3, 1])
    """
    found = copied(module)
    vars(found)[_INNER] = found.forward
    found.forward = MethodType(_forward, found)
    return found


def _forward(module: nn.Module, rows: Tensor) -> Tensor:
    return vars(module)[_INNER](rows)[..., None]
