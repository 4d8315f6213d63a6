"""View, knowledge and guess of pooled learning: a party or client, and its joint models."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from seepage.errors import BadInputError
from seepage.shadow.learner import Learner, Trained
from seepage.shadow.pooling import MarkedRows
from seepage.shadow.stacked import Stacked


@dataclass
class PredictionView:
    """Black-box answers of joint models, for each of several targets: a channel that counts, limits and records.

    ``channel`` maps queries to every target's chances of each class; ``limit`` is None for no limit.
    """

    channel: Callable[[Tensor], Tensor] = field(repr=False)
    targets: int
    classes: int
    limit: int | None = None
    recorded: list[tuple[Tensor, Tensor]] = field(default_factory=list, repr=False)

    @property
    def asked(self) -> int:
        """Number of queries so far."""
        return sum(len(queries) for queries, _ in self.recorded)

    def ask(self, queries: Tensor) -> Float[Tensor, "target query label"]:
        """Return every target's answers to queries (on the first axis), and count them; refuse more than are left."""
        left = None if self.limit is None else self.limit - self.asked
        if left is not None and len(queries) > left:
            raise BadInputError(
                f"{len(queries)} queries were to be asked, but {left} of {self.limit} are left; ask fewer, or allow "
                "more queries."
            )
        answers = self.channel(queries)
        expected = (self.targets, len(queries), self.classes)
        if tuple(answers.shape) != expected:
            raise BadInputError(
                f"the query interface answered with numbers of shape {tuple(answers.shape)} where {expected} were "
                "expected (targets, queries, classes); the joint models' classes differ from those that the "
                "attacker knows."
            )
        if not bool((answers.isfinite() & (answers >= 0)).all()):
            raise BadInputError(
                "the query interface answered with numbers that are not probabilities (negative or not finite); "
                "answers are the probability of each class."
            )
        self.recorded.append((queries, answers))
        return answers

    def again(self, limit: int | None = None) -> PredictionView:
        """Return the same channel with an empty record, with another limit if one is given."""
        return PredictionView(self.channel, self.targets, self.classes, self.limit if limit is None else limit)


@dataclass(frozen=True)
class ModelView:
    """The joint models themselves, where they are published: white-box access."""

    models: Trained

    @property
    def targets(self) -> int:
        """Number of joint models."""
        return len(self.models)


@dataclass(frozen=True)
class UpdatedView:
    """Black-box answers before and after a party added new data."""

    before: PredictionView
    after: PredictionView


@dataclass(frozen=True)
class GradientsView:
    """Another party's gradients in federated training, one a round, and the models at which they were taken.

    Snapshots have a joint model for each target, gradients the order of ``Stacked.flat``.
    """

    snapshots: tuple[Stacked, ...]
    gradients: Float[Tensor, "round target parameter"]


@dataclass(frozen=True)
class Shadows:
    """Shadow models and their answers to the attacker's queries, as it would see them.

    ``shares`` are those of the attribute in the rows in the victim's place: in its first rows, and in new ones.
    """

    models: Trained
    shares: Float[Tensor, "shadow part"]
    answers: Float[Tensor, "shadow query label"]

    def __len__(self) -> int:
        return len(self.shares)

    def world(self, shares: Sequence[float]) -> Int[Tensor, " shadow"]:
        """Return the position of each shadow model's share among the shares to distinguish."""
        distance = (self.shares[:, :1] - torch.tensor(list(shares), dtype=self.shares.dtype)).abs()
        if float(distance.min(1).values.max()) > 1e-6:
            raise BadInputError(
                f"shadow models of the shares {list(shares)} are needed to tell these apart, but one has another."
            )
        return distance.argmin(1)


@dataclass(frozen=True)
class HalvedShadows(Shadows):
    """Shadow models each of which is from one of two halves of all rows.

    A half's models show the error of a rule that was fitted on the other half, on models of rows that it has never
    seen.
    """

    halves: Int[Tensor, " shadow"]


@dataclass(frozen=True)
class SpreadShadows(HalvedShadows):
    """Shadow models from halves with shares over a range, in pairs of the same rows.

    Differences between two models of the same rows are due to training alone. ``carrying`` and ``others`` are
    numbers of rows of a half with the attribute and without.
    """

    carrying: float
    others: float
    rows: int

    def drawn_share(self, shares: Float[Tensor, " share"]) -> Float[Tensor, " share"]:
        """Return the share of a half's rows that models draw, rows of both kinds weighed by number.

        This share of the variation between models' rows is common to all models of one half.
        """
        return self.rows * (shares.square() / self.carrying + (1 - shares).square() / self.others)


# Shadow models by what they were trained on: equally many of each share (``even``), the same from two halves of the
# rows (``halved``), shares over the range (``spread``); after an update, equally many of each share in all the victim's
# rows (``even_after``). ``pairs`` and ``pairs_after`` are the same models before and after an update, equally many with
# each share of the first and of the new rows.
ShadowKind = Literal["even", "halved", "spread", "even_after", "pairs", "pairs_after"]


@dataclass(frozen=True)
class PooledKnowledge:
    """Side information of a party of pooled learning, or of a client of its model.

    Attributes:
        auxiliary: rows of the same kind, with the attribute known.
        own: rows that the attacker itself contributed to the pool; None where it is no party.
        shares: possible shares of the attribute in the victim's rows, in increasing order.
        others: shares of further parties with the same number of rows.
        answers: defense of the model's answers, as far as the attacker knows; None for nothing.
        within: range of the share where it is estimated, each share in it equally likely beforehand.
        shadows: shadow models that the attacker trained, of each kind that it needs.

    Raises:
        BadInputError: there are fewer than two shares, shares are not in increasing order, the range is none in [0, 1],
            auxiliary rows all carry the attribute or none does, or own rows or queries have other columns than
            auxiliary rows.
    """

    learner: Learner
    auxiliary: MarkedRows
    queries: Tensor
    own: MarkedRows | None
    rows: int
    shares: tuple[float, ...] = (0.33, 0.67)
    others: tuple[float, ...] = ()
    answers: Callable[[Tensor], Tensor] | None = None
    within: tuple[float, float] = (0.1, 0.9)
    shadows: Mapping[ShadowKind, Shadows] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        low, high = self.within
        if not 0 <= low < high <= 1:
            raise BadInputError(f"the range of a share is two numbers in [0, 1], the smaller first; got {self.within}.")
        if len(self.shares) < 2 or any(a >= b for a, b in zip(self.shares, self.shares[1:], strict=False)):
            raise BadInputError(
                f"an attack tells at least two shares apart, in increasing order; got {list(self.shares)}."
            )
        carrying = int(self.auxiliary.carries.sum())
        if carrying in (0, len(self.auxiliary)):
            raise BadInputError(
                f"{carrying} of {len(self.auxiliary)} auxiliary rows carry the sensitive attribute, so that it has one "
                "value and no share to learn; choose another attribute, or rows where it differs."
            )
        compared = {"queries": self.queries, **({} if self.own is None else {"the adversary's rows": self.own.inputs})}
        for name, rows in compared.items():
            if rows.shape[1:] != self.auxiliary.inputs.shape[1:]:
                raise BadInputError(
                    f"{name} have {tuple(rows.shape[1:])} numbers each, auxiliary rows "
                    f"{tuple(self.auxiliary.inputs.shape[1:])}; they are rows of the same columns."
                )

    def trained(self, kind: ShadowKind) -> Shadows:
        """Return the shadow models of a kind; where there are none, refuse with BadInputError."""
        if kind not in self.shadows:
            raise BadInputError(
                f"shadow models of the kind {kind!r} are needed, got {', '.join(self.shadows) or 'none'}; train them "
                f"(seepage.attacks.pooled) and give them as shadows={{{kind!r}: ...}}."
            )
        return self.shadows[kind]

    def answered(self, answers: Tensor) -> Tensor:
        """Return a model's answers after the defense, as the attacker would see them."""
        return answers if self.answers is None else self.answers(answers)

    def describe(self) -> dict[str, object]:
        """Return what is granted, as plain values for a result or report."""
        return {
            "training": self.learner.describe(),
            "auxiliary": len(self.auxiliary),
            "own rows": 0 if self.own is None else len(self.own),
            "the victim's rows": self.rows,
            "shares": list(self.shares),
            "other parties": len(self.others),
            "queries": len(self.queries),
        }


@dataclass(frozen=True)
class PropertyGuess:
    """Guessed share of the victim's rows that carry a sensitive attribute, for each joint model.

    ``share``, ``low`` and ``high`` are an estimate on the whole range and its interval; None without one.
    """

    shares: tuple[float, ...]
    chances: Float[Tensor, "target share"]
    share: Float[Tensor, " target"] | None = None
    low: Float[Tensor, " target"] | None = None
    high: Float[Tensor, " target"] | None = None

    @property
    def chosen(self) -> Int[Tensor, " target"]:
        """Position of each target's likeliest share."""
        return self.chances.argmax(1)
