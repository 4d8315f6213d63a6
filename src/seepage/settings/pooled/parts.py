"""Defenses and attacks of pooled learning, as an audit of it uses them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

from seepage import registry
from seepage.defenses.answers import CoarseAnswers
from seepage.defenses.joint_training import DpTraining, QueryLimit, WithoutColumns
from seepage.settings.part import Part, entry_of, mechanisms_of
from seepage.settings.pooled.spec import PooledSpec


@dataclass(frozen=True)
class PooledDefense:
    """Defense of parties that pool their rows, ready to use."""

    without: tuple[str, ...] = ()  # columns that models are not trained on
    answers: CoarseAnswers | None = None
    queries: int | None = None  # any number if None
    training: DpTraining | None = None


def defense_of(part: Part) -> PooledDefense:
    """Return a defense ready to use."""
    kinds = (WithoutColumns, *get_args(CoarseAnswers), QueryLimit, DpTraining)
    without, *answers, limit, training = mechanisms_of("pooled", part, *kinds)
    columns, queries = () if without is None else tuple(without.columns), None if limit is None else limit.queries
    return PooledDefense(columns, next(filter(None, answers), None), queries, training)


def views_of(part: Part) -> tuple[type, ...]:
    """Return the view types that an attack takes."""
    return entry_of(registry.attacks.of("pooled"), part).sees


def estimates_shares(spec: PooledSpec) -> bool:
    """Return whether an attack estimates a share, from shadow models over a range of shares."""
    entries = [entry_of(registry.attacks.of("pooled"), part) for part in spec.attacks]
    return any(entry.traits.shares for entry in entries)
