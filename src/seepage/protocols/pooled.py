"""Pooled learning: parties train one model on all their rows as if by a trusted party, and share its answers.

The cryptography is taken as ideal: only the trained model's answers cross the wire, or the model itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from seepage.defenses.answers import CoarseAnswers
from seepage.errors import BadInputError, check_count
from seepage.shadow.learner import Learner, Trained
from seepage.shadow.pooling import MarkedRows, joint_models
from seepage.shadow.stacked import Dense
from seepage.wire.pooled import GradientsView, ModelView, PredictionView, UpdatedView
from seepage.wire.secret import PooledTranscript


@dataclass(frozen=True)
class PooledLearning:
    """Many joint models, each of one victim's rows, the adversary's rows, and perhaps further parties'.

    Source: Zhang, Tople and Ohrimenko, *Leakage of Dataset Properties in Multi-Party Machine Learning* (2021).

    Attributes:
        rows: number of rows of the victim, and of each further party.
        others: shares of the attribute in each further party's rows; none in the paper.
        answers: defense of answers; none if None.
        limit: largest number of queries that are answered; None for any number.

    Raises:
        BadInputError: a count is below 1.
    """

    # The joint model's answers, the joint model where it is published, and what federated training sends.
    reveals: ClassVar[tuple[type, ...]] = (PredictionView, ModelView, GradientsView)
    # The same of a model that is trained again with new rows.
    reveals_updates: ClassVar[tuple[type, ...]] = (UpdatedView,)

    learner: Learner
    rows: int
    others: tuple[float, ...] = ()
    answers: CoarseAnswers | None = None
    limit: int | None = None

    def __post_init__(self) -> None:
        check_count("rows", self.rows)
        if self.limit is not None:
            check_count("limit", self.limit)

    def train(
        self, pool: MarkedRows, adversary: MarkedRows | None, shares: Float[Tensor, " target"], seed: int
    ) -> PooledTranscript:
        """Train one joint model for each share of the attribute in the victim's rows.

        Parties draw rows from ``pool`` without replacement; those of the ``adversary`` are None with a single party.
        """
        generator = torch.Generator().manual_seed(seed)
        chosen = pool.drawn(shares[:, None], self.rows, generator, self.others)
        models = joint_models(self.learner, pool, adversary, chosen, generator)
        return PooledTranscript(self._predictions(models), ModelView(models), shares)

    def update(
        self, pool: MarkedRows, adversary: MarkedRows | None, shares: Float[Tensor, "target 2"], seed: int
    ) -> tuple[UpdatedView, Float[Tensor, "target 2"]]:
        """Train joint models before and after the victim adds as many new rows with another share; return them too."""
        generator = torch.Generator().manual_seed(seed)
        chosen = pool.drawn(shares, self.rows, generator, self.others)
        parts_before = [part for part in range(chosen.shape[1]) if part != 1]
        before = joint_models(self.learner, pool, adversary, chosen[:, parts_before], generator)
        after = joint_models(self.learner, pool, adversary, chosen, generator)
        return UpdatedView(self._predictions(before), self._predictions(after)), shares

    def drawn(
        self, pool: MarkedRows, shares: Float[Tensor, "target part"], seed: int
    ) -> Int[Tensor, "target _parts rows"]:
        """Return positions of the rows that victims and further parties of each joint model hold, without training."""
        return pool.drawn(shares, self.rows, torch.Generator().manual_seed(seed), self.others)

    def _predictions(self, models: Trained) -> PredictionView:
        def channel(queries: Tensor) -> Tensor:
            answers = models.answers(queries)
            return answers if self.answers is None else self.answers(answers)

        return PredictionView(channel, len(models), self.learner.classes, self.limit)


def federated(
    learner: Dense,
    pool: MarkedRows,
    adversary: MarkedRows,
    shares: Float[Tensor, " target"],
    rows: int,
    rounds: int,
    rate: float | int,
    seed: int,
) -> GradientsView:
    """Train joint models by federated gradient descent of two parties, and return one party's view of the other.

    In each round both send the gradient of all their rows, and the model takes a step against their mean. A party that
    knows its own gradient can therefore compute the other's.
    """
    check_count("rounds", rounds)
    generator = torch.Generator().manual_seed(seed)
    chosen = pool.drawn(shares[:, None], rows, generator)[:, 0]
    seeds = torch.randint(2**62, (len(shares),), generator=generator).tolist()
    models, _ = learner.initial(pool.inputs.shape[1], seeds)
    mine = torch.arange(len(adversary)).expand(len(shares), len(adversary))
    snapshots, gradients = [], []
    for _ in range(rounds):
        theirs = learner.gradients(models, pool.inputs, pool.labels, chosen)
        snapshots.append(models)
        gradients.append(theirs)
        ours = learner.gradients(models, adversary.inputs, adversary.labels, mine)
        models = models.moved(rate * (theirs + ours) / 2)
    return GradientsView(tuple(snapshots), torch.stack(gradients))


def alternating(shares: Sequence[float], targets: int) -> Float[Tensor, " target"]:
    """Return the shares in turn, one for each target.

    Raises:
        BadInputError: targets are not a multiple of the shares, so that accuracy would weigh shares differently.

    Example:
        >>> alternating((0.25, 0.75), 4).tolist()
        [0.25, 0.75, 0.25, 0.75]
    """
    check_count("targets", targets)
    if targets % len(shares):
        raise BadInputError(
            f"targets take {len(shares)} shares in turn, so their number is a multiple of {len(shares)}; got {targets}."
        )
    return torch.tensor(list(shares), dtype=torch.float64).repeat(targets // len(shares))


@dataclass(frozen=True)
class Sets:
    """Partition of the rows: the attacker's with the attribute known, the adversary's, its queries, and others'."""

    auxiliary: MarkedRows
    adversary: MarkedRows
    queries: MarkedRows
    held: MarkedRows


def parted(
    rows: MarkedRows,
    auxiliary: int,
    own: int,
    queries: int,
    seed: int,
    auxiliary_share: float | None = 0.5,
    own_share: float = 0.33,
    apart: bool = False,
) -> Sets:
    """Split rows into auxiliary rows, the adversary's, queries, and the rest for victims, none of them twice.

    Where rows have groups, all rows of a group go to one part. Those of them that the part has no place for are left
    out.

    Args:
        auxiliary_share, own_share: share of the attribute in each part; that of the drawn rows if None.
        apart: whether queries are rows of their own; otherwise they are drawn from the auxiliary ones.
    """
    generator = torch.Generator().manual_seed(seed)
    wanted = auxiliary + own + (queries if apart else 0)
    if min(auxiliary, own, queries) < 1 or wanted >= len(rows) or (not apart and queries > auxiliary):
        raise BadInputError(
            f"{auxiliary} auxiliary rows, {own} of the adversary and {queries} queries "
            f"{'of their own' if apart else 'among the auxiliary rows'} do not fit into {len(rows)} rows with some "
            "left for victims; give smaller numbers, each at least 1."
        )

    def taken(left: MarkedRows, count: int, share: float | None) -> tuple[MarkedRows, MarkedRows]:
        rest = torch.ones(len(left), dtype=torch.bool)
        eligible = left
        if left.groups is not None:
            whole = _whole_groups(left, left.groups, count, share, generator)
            rest[whole], eligible = False, left.rows(whole)
        if share is None:
            chosen = torch.randperm(len(eligible), generator=generator)[:count]
        else:
            chosen = eligible.drawn(torch.tensor([[share]], dtype=torch.float64), count, generator)[0, 0]
        if left.groups is None:
            rest[chosen] = False
        # Rows drawn by share come in two runs.
        return eligible.rows(chosen[torch.randperm(count, generator=generator)]), left.rows(rest.nonzero()[:, 0])

    auxiliary_rows, left = taken(rows, auxiliary, auxiliary_share)
    adversary, left = taken(left, own, own_share)
    if apart:
        query_rows, left = taken(left, queries, None)
    else:
        query_rows = auxiliary_rows.rows(torch.arange(queries))
    return Sets(auxiliary_rows, adversary, query_rows, left)


def _whole_groups(
    rows: MarkedRows, groups: Int[Tensor, " row"], count: int, share: float | None, generator: torch.Generator
) -> Int[Tensor, " chosen"]:
    """Return positions of all rows of random groups that have enough rows, of both kinds where a share is asked for."""
    kinds = [torch.ones(len(rows), dtype=torch.bool)] if share is None else [rows.carries.cpu(), ~rows.carries.cpu()]
    carrying = count if share is None else round(share * count)
    lacking = [carrying, count - carrying][: len(kinds)]
    names, of = groups.unique(return_inverse=True)
    sizes = torch.stack([torch.bincount(of[kind], minlength=len(names)) for kind in kinds], dim=1).tolist()
    chosen = torch.zeros(len(names), dtype=torch.bool)
    for group in torch.randperm(len(names), generator=generator).tolist():
        # A group without rows of a kind that is lacking would only take rows from the other parts.
        if any(wanted > 0 and there for wanted, there in zip(lacking, sizes[group], strict=True)):
            chosen[group] = True
            lacking = [wanted - there for wanted, there in zip(lacking, sizes[group], strict=True)]
    if max(lacking) > 0:
        raise BadInputError(
            f"{len(names)} whole groups have too few rows for {count} of one party"
            + ("" if share is None else f" with a share of {share:.0%}")
            + f": {max(lacking)} are lacking; give fewer rows a party, or a column with more and smaller groups."
        )
    return chosen[of].nonzero()[:, 0]
