"""The one place in which an attack or a baseline is made, run, timed, held to the form of its setting and scored."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from torch import Tensor

from seepage import registry
from seepage.errors import BadInputError
from seepage.registry import Attack, Entry, reporting
from seepage.settings.part import Part, entry_of, make_part
from seepage.settings.setting import Outcome, PlannedPart, Progress

G = TypeVar("G")


@dataclass(frozen=True)
class AttackedSecret(Generic[G]):
    """One secret of an exposure: what attacks and baselines get to guess it, and how a guess is scored.

    A setting gives plain values; ``measure`` does the rest, the same for records, columns, labels and shares.

    Attributes:
        setting: setting in whose registries the attack is found.
        guess: type of the guesses.
        see: function that returns view and knowledge; what it trains or asks counts as the attack's time.
        seeds: one seed for each attacked unit of the view.
        score: function from a guess to its figures; the truth is known to it alone.
        number: number of units, or of records in them, by which seconds are counted.
        shape: names of the axes of guessed cells, or labels, and their lengths; None for an axis of any length. Not
            checked where there is none.
        attack: attack that is run in place of the part's own.
        further: secrets that the same part guesses beside this one; their figures follow, in the seconds of this one.
    """

    setting: str
    guess: type[G]
    see: Callable[[], tuple[object, object]]
    seeds: Sequence[int]
    score: Callable[[G], Outcome]
    number: int
    shape: Mapping[str, int | None] | None = None
    attack: Callable[..., object] | None = None
    further: Sequence[AttackedSecret[Any]] = ()


def entry_in(setting: str, part: PlannedPart) -> Entry[Attack]:
    """Return the registry entry of an attack or a baseline."""
    return entry_of((registry.attacks if part.kind == "attack" else registry.baselines).of(setting), part.part)


def attack_in(setting: str, part: PlannedPart) -> Attack:
    """Return an attack or a baseline, ready to use."""
    return make_part((registry.attacks if part.kind == "attack" else registry.baselines).of(setting), part.part)


def measure(part: PlannedPart, secret: AttackedSecret[G], progress: Progress | None = None) -> Outcome:
    """Run an attack or a baseline on a secret, and return the figures of its guess.

    Args:
        progress: callback that gets the share of the work done, where the attack reports it, and 0 once there is a
            guess: whoever only wants to know whether a part can be run raises then.

    Raises:
        BadInputError: what is returned is no guess of the secret's type, or has another shape.
    """
    attack = attack_in(secret.setting, part) if secret.attack is None else secret.attack
    begun = time.perf_counter()
    returned = attack(*secret.see(), secret.seeds, **reporting(attack, progress))
    seconds = time.perf_counter() - begun
    guess = check_guess(part.part, returned, secret.guess, secret.shape)
    if progress is not None:
        progress(0.0)
    outcome = secret.score(guess)
    beside = [figure for other in secret.further for figure in measure(part, other).measured]
    return replace(outcome, measured=[*outcome.measured, *beside], seconds=seconds / secret.number)


def check_guess(part: Part, guess: object, kind: type[G], shape: Mapping[str, int | None] | None = None) -> G:
    """Return a guess of the type that a setting takes, with ``cells``, or ``labels``, of a shape."""
    if not isinstance(guess, kind):
        raise BadInputError(
            f"{part.title!r} returned an object of type {type(guess).__name__} where "
            f"{kind.__module__}.{kind.__name__} is expected; return one."
        )
    what = "cells" if hasattr(guess, "cells") else "labels"
    values = getattr(guess, what, None)
    if shape is not None and isinstance(values, Tensor):
        fits = len(shape) == values.ndim and all(
            length in (None, size) for length, size in zip(shape.values(), values.shape, strict=True)
        )
        if not fits or not values.is_floating_point():
            lengths = (f"{name}s" if length is None else str(length) for name, length in shape.items())
            remedy = "decode encoded rows (Encoder.decode), one column a cell" if what == "cells" else "one a record"
            raise BadInputError(
                f"{part.title!r} returned {what} of shape {tuple(values.shape)} and type {values.dtype}, expected "
                f"float64 of shape ({', '.join(shape)}) = ({', '.join(lengths)}); {remedy}."
            )
    return guess
