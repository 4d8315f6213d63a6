"""Attacks on a model's update: the share in the rows that were added."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from seepage.attacks.pooled.meta import Features, Meta, chances_of
from seepage.attacks.pooled.parts.classifiers import Published
from seepage.errors import BadInputError, check_choice
from seepage.registry import attacks
from seepage.wire.pooled import PooledKnowledge, PropertyGuess, UpdatedView


@attacks.register("dominant", "pooled", needs=("auxiliary", "queries"))
@dataclass(frozen=True)
class Dominant:
    """The value that dominates the new rows: the published attack on a model's update.

    Source: Zhang, Tople and Ohrimenko (2021), section 5.3. The fine-grained attack on the models before and after; if
    the same value dominates the victim's rows in both, it is guessed for the new rows, otherwise the other one.

    Attributes:
        features, classifier, shadows: settings of the attack on each model, see ``Meta``.

    Raises:
        BadInputError: the classifier is not one of the published ones, or see ``Meta``.
    """

    features: Features = "raw"
    classifier: Published = "lr"
    shadows: int | None = None

    def __post_init__(self) -> None:
        check_choice("classifier", self.classifier, Published)
        Meta(self.features, self.classifier, shadows=self.shadows)

    def __call__(self, view: UpdatedView, knowledge: PooledKnowledge, seeds: Sequence[int] = (0,)) -> PropertyGuess:
        """Return whether the attribute dominates the new rows: a chance of 0 or 1 for the first and last share."""
        # Shadow models are of the model before the update, and of twice the victim's rows, by the share in all of them.
        shares = torch.tensor(knowledge.shares, dtype=torch.float64)
        attack = Meta(self.features, self.classifier, shadows=self.shadows)
        first = attack(view.before, knowledge, seeds)
        after = {"even": knowledge.trained("even_after")}
        second = attack(view.after, replace(knowledge, rows=2 * knowledge.rows, shadows=after), [seeds[0] + 1])
        # Above, below or at an even split.
        side = torch.sign((shares - 0.5).round(decimals=9))
        was, becomes = side[first.chosen], side[second.chosen]
        same = was == becomes
        dominant = torch.where(same, was, -was)
        # Where the first model shows no dominant value, only the second can.
        dominant = torch.where(was == 0, becomes, dominant)
        chances = torch.stack([dominant < 0, dominant > 0], dim=1).double()
        chances = torch.where((dominant == 0)[:, None], torch.full_like(chances, 0.5), chances)
        return PropertyGuess((knowledge.shares[0], knowledge.shares[-1]), chances)


@attacks.register("joint", "pooled", needs=("auxiliary", "queries"))
@dataclass(frozen=True)
class Joint:
    """The new rows' share from both models' answers at once.

    Source: our own.

    Shadow models go through both trainings with known shares of both kinds of rows; the classifiers of ``Meta`` take
    the answers of both models and their change, and distinguish the new rows' shares.
    """

    def __call__(self, view: UpdatedView, knowledge: PooledKnowledge, seeds: Sequence[int] = (0,)) -> PropertyGuess:
        """Return the chances of the two shares that shadow models have of new rows."""
        # The same shadow models before and after; shares after have a column each for the first and the new rows.
        before, after = knowledge.trained("pairs"), knowledge.trained("pairs_after")
        if after.shares.shape[1] != 2 or not torch.equal(before.shares[:, 0], after.shares[:, 0]):
            raise BadInputError(
                "the same shadow models are needed before and after the update, with a share of the first and one of "
                f"the new rows; got {tuple(before.shares.shape)} and {tuple(after.shares.shape)} shares."
            )
        shares = tuple(after.shares[:, 1].unique().tolist())
        if len(shares) != 2:
            raise BadInputError(f"two shares of new rows are told apart, got {list(shares)}; train models of two.")
        worlds = replace(after, shares=after.shares[:, 1:]).world(shares)
        answers = [channel.ask(knowledge.queries) for channel in (view.before, view.after)]
        chances = chances_of("all", "ridge", [before.answers, after.answers], worlds, answers, seeds[0])
        return PropertyGuess(shares, chances)
