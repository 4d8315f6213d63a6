"""Stored evidence of an attacked victim besides its scores: right cells, and the attacker's certainty of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from seepage.assessment import Matched
from seepage.kernel import Certified
from seepage.tabular.align import tolerances
from seepage.tabular.schema import Discrete, Schema
from seepage.tabular.statistics import Marginal, Statistics
from seepage.wire.horizontal import RecordsGuess

# Number of records that examples show.
SHOWN = 3
# Largest number of categories of a grouping; more would single records out.
_GROUPS = 20
# category -> (cells, cells that were right)
Counts = dict[str, tuple[int, int]]


@dataclass(frozen=True)
class Evidence:
    """Cells of the victims of one attack in one setting; arrays have a leading victim axis. None is what there is not.

    Attributes:
        right, certified: bool (victim, record, column), whether the guessed cell counts as right, or is certified.
        uncertainty: float32 (victim, record, column), the attacker's own, see ``RecordsGuess``.
        rarity: float32 (victim, record), see ``rarity``.
        groups: for each sensitive discrete column and the target, cells and right cells in records of each category.
        loss, course: float64 (victim,) and (victim, 3), losses after and during the descent, see ``RecordsGuess``.
        true, guess: float64 (victim, record, column), cells as in ``RecordsSecret``, matched; of split and vertical
            learning those of the first records. None for a user's own data, unless records are to be kept.
        regime: for each victim, the method that the attack chose.
        conditions: for each victim, the conditions of its certified cells, as sentences, empty without any.
        choice: columns that each way of an attack with several ways answers, in words, for each victim.
    """

    column_names: tuple[str, ...]
    right: np.ndarray
    uncertainty: np.ndarray | None
    rarity: np.ndarray
    groups: dict[str, Counts]
    loss: np.ndarray | None
    course: np.ndarray | None
    true: np.ndarray | None
    guess: np.ndarray | None
    certified: np.ndarray | None = None
    regime: tuple[str, ...] | None = None
    conditions: tuple[str, ...] | None = None
    choice: tuple[str, ...] | None = None

    @property
    def victims(self) -> int:
        """Number of victims."""
        return len(self.right)


def evidence_of(
    matched: Matched,
    statistics: Statistics,
    labels: Float[Tensor, "victim record"],
    guess: RecordsGuess,
    keep_records: bool,
) -> list[Evidence]:
    """Return the evidence of each victim, with a victim axis of one."""
    schema = matched.schema
    tensors = {
        "right": matched.right,
        "uncertainty": None if matched.uncertainty is None else matched.uncertainty.float(),
        "rarity": rarity(schema, statistics.marginals, matched.true).float(),
        "loss": None if guess.loss is None else guess.loss.double(),
        "course": None if guess.course is None else guess.course.double(),
        "certified": matched.certified,
        "true": matched.true if keep_records else None,
        "guess": matched.guess if keep_records else None,
    }
    arrays = {name: None if part is None else part.numpy() for name, part in tensors.items()}

    def of_victim(v: int) -> dict[str, Any]:
        return {name: None if array is None else array[v : v + 1] for name, array in arrays.items()}

    return [
        Evidence(
            schema.names,
            groups=_groups(schema, matched.true[v], labels[v], matched.right[v].numpy()),
            regime=None if guess.regime is None else (guess.regime[v],),
            conditions=None if guess.proofs is None else (_conditions(guess.proofs[v]),),
            **of_victim(v),
        )
        for v in range(len(matched.right))
    ]


def evidence_of_columns(
    schema: Schema,
    marginals: Sequence[Marginal],
    true: Float[Tensor, "record column"],
    guess: Float[Tensor, "record column"],
    right: Bool[Tensor, "record column"],
    labels: Float[Tensor, " record"],
    keep_records: bool,
    choice: str | None = None,
) -> Evidence:
    """Return the evidence of a training whose records come in a known order; cells are NaN where the attack failed."""
    shown = slice(0, SHOWN)
    return Evidence(
        column_names=schema.names,
        right=right[None].numpy(),
        uncertainty=None,
        rarity=rarity(schema, marginals, true[None]).float().numpy(),
        groups=_groups(schema, true, labels, right.numpy()),
        loss=None,
        course=None,
        certified=None,
        true=true[None, shown].double().numpy() if keep_records else None,
        guess=guess[None, shown].double().numpy() if keep_records else None,
        choice=None if choice is None else (choice,),
    )


def _conditions(proof: Certified) -> str:
    """Return the conditions of a proof, as sentences; empty where nothing is proved."""
    if not bool((proof.cells | proof.given).any()):
        return ""
    fixed = [f"What is certified only in part is given that {fixed_fact}." for fixed_fact in proof.fixed]
    return " ".join([*proof.conditions, *fixed])


def rarity(
    schema: Schema, marginals: Sequence[Marginal], cells: Float[Tensor, "victim record column"]
) -> Float[Tensor, "victim record"]:
    """Return the surprise of each record: mean over its cells of -log P(a public value counts as right), in nats.

    A cell that is not near any public value counts as if half a value of the rarest did.
    """
    total = torch.zeros(cells.shape[:-1], dtype=torch.float64)
    allowed = tolerances(schema)
    for i, marginal in enumerate(marginals):
        total -= marginal.near(cells[..., i], float(allowed[i])).log()
    return total / len(schema.columns)


def _groups(schema: Schema, cells: Tensor, labels: Tensor, right: np.ndarray) -> dict[str, Counts]:
    by_column = [(column, cells[:, i]) for i, column in enumerate(schema.columns) if column.sensitive]
    by_name: dict[str, Counts] = {}
    for column, codes in [*by_column, (schema.target, labels)]:
        if not isinstance(column, Discrete) or column.width > _GROUPS:
            continue
        scored = right.sum(axis=1)
        counts: Counts = {}
        for code in codes.unique().long().tolist():
            mask = (codes.long() == code).numpy()
            counts[str(column.categories[code])] = (int(mask.sum()) * right.shape[1], int(scored[mask].sum()))
        by_name[column.name] = counts
    return by_name


def together(parts: Sequence[Evidence]) -> Evidence:
    """Return the evidence of several victims of the same attack and setting as one."""
    groups: dict[str, Counts] = {}
    for part in parts:
        for name, counts in part.groups.items():
            merged = groups.setdefault(name, {})
            for category, (cells, right) in counts.items():
                before = merged.get(category, (0, 0))
                merged[category] = (before[0] + cells, before[1] + right)
    arrays: dict[str, np.ndarray | None] = {}
    for name in ARRAYS:
        values = [getattr(part, name) for part in parts]
        arrays[name] = None if any(array is None for array in values) else np.concatenate(values)
    return replace(
        parts[0],
        groups=groups,
        regime=_all_of([part.regime for part in parts]),
        conditions=_all_of([part.conditions for part in parts]),
        choice=_all_of([part.choice for part in parts]),
        **arrays,
    )


def _all_of(parts: Sequence[tuple[str, ...] | None]) -> tuple[str, ...] | None:
    return None if any(part is None for part in parts) else tuple(text for part in parts for text in part or ())


_TEXTS = ("column_names", "groups", "regime", "conditions", "choice")
ARRAYS = tuple(f.name for f in fields(Evidence) if f.name not in _TEXTS)
