"""The one place in which an attack or a baseline is made, run, timed and held to the form of its setting."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from torch import Tensor

from seepage import registry
from seepage.errors import BadInputError
from seepage.registry import Attack, Entry, Need, takes
from seepage.settings.part import Part, entry_of, make_part
from seepage.settings.setting import PlannedPart, Progress

G = TypeVar("G")


def entry_in(setting: str, part: PlannedPart) -> Entry[Attack]:
    """Return the registry entry of an attack or a baseline."""
    return entry_of((registry.attacks if part.kind == "attack" else registry.baselines).of(setting), part.part)


def needs_in(setting: str, part: PlannedPart) -> tuple[Need, ...]:
    """Return the side information that an attack or a baseline is given."""
    return entry_in(setting, part).needs


def attack_in(setting: str, part: PlannedPart) -> Attack:
    """Return an attack or a baseline, ready to use."""
    return make_part((registry.attacks if part.kind == "attack" else registry.baselines).of(setting), part.part)


def guessed(
    part: PlannedPart,
    kind: type[G],
    attack: Callable[..., Any],
    view: object,
    knowledge: object,
    seeds: Sequence[int],
    sizes: Mapping[str, int] | None = None,
    progress: Progress | None = None,
) -> tuple[G, float]:
    """Run an attack or a baseline once, and return its guess with the seconds that it took.

    Args:
        kind: type of the setting's guesses.
        attack: attack or baseline, ready to use.
        seeds: one seed for each attacked unit of the view.
        sizes: names and lengths of the first and the last axis of the guessed cells; not checked if None.
        progress: callback that gets the share of the work done, where the attack reports it, and 0 once there is a
            guess: whoever only wants to know whether a part can be run raises then.

    Raises:
        BadInputError: what is returned is no guess of this type, or has other sizes.
    """
    more = {"progress": progress} if progress is not None and takes(attack, "progress") else {}
    guess, seconds = timed(part, kind, lambda: attack(view, knowledge, seeds, **more), sizes)
    if progress is not None:
        progress(0.0)
    return guess, seconds


def timed(
    part: PlannedPart, kind: type[G], call: Callable[[], object], sizes: Mapping[str, int] | None = None
) -> tuple[G, float]:
    """Return the guess of a call that includes more than the attack, and its seconds, see ``guessed``."""
    begun = time.perf_counter()
    returned = call()
    seconds = time.perf_counter() - begun
    return check_guess(part.part, returned, kind, sizes), seconds


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
