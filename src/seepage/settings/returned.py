"""Validation of what attacks and baselines return."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from torch import Tensor

from seepage.errors import BadInputError
from seepage.settings.part import Part

G = TypeVar("G")


def check_guess(part: Part, guess: object, kind: type[G], sizes: Mapping[str, int] | None = None) -> G:
    """Return a guess of the type that a setting takes, with ``cells`` of these sizes along first and last axis."""
    if not isinstance(guess, kind):
        raise BadInputError(
            f"{part.title!r} returned an object of type {type(guess).__name__} where "
            f"{kind.__module__}.{kind.__name__} is expected; return one."
        )
    cells = getattr(guess, "cells", None)
    if sizes is not None and isinstance(cells, Tensor):
        (first, rows), *_, (last, columns) = sizes.items()
        if cells.ndim != 3 or (cells.shape[0], cells.shape[-1]) != (rows, columns) or not cells.is_floating_point():
            raise BadInputError(
                f"{part.title!r} returned cells of shape {tuple(cells.shape)} and type {cells.dtype}, expected "
                f"float64 of shape ({first}, record, {last}) = ({rows}, records, {columns}); decode encoded rows "
                "(Encoder.decode), one column a cell."
            )
    return guess
