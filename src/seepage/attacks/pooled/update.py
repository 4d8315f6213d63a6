"""Attacks on a model's update: the share in the rows that were added."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch

from seepage.attacks.pooled.meta import Features, Meta
from seepage.attacks.pooled.parts.classifiers import Classifier, fitted_chances
from seepage.attacks.pooled.parts.features import Reduced, logarithms
from seepage.attacks.pooled.parts.shadows import Shadows
from seepage.errors import BadInputError
from seepage.registry import attacks
from seepage.wire.pooled import PooledKnowledge, PropertyGuess, UpdatedView


@attacks.register("dominant", "pooled", needs=("auxiliary", "queries"))
@dataclass(frozen=True)
class Dominant:
    """The value that dominates the new rows: the published attack on a model's update.

    Source: Zhang, Tople and Ohrimenko (2021), section 5.3. The fine-grained attack on the models before and after; if
    the same value dominates the victim's rows in both, it is guessed for the new rows, otherwise the other one.

    Attributes:
        features, classifier: settings of the attack on each model, see ``Meta``.
    """

    features: Features = "raw"
    classifier: Classifier = "lr"

    def __call__(
        self, view: UpdatedView, known: PooledKnowledge, before: Shadows, after: Shadows, seed: int
    ) -> PropertyGuess:
        """Return whether the attribute dominates the new rows: a chance of 0 or 1 for the first and last share.

        Args:
            view: black-box access to both models.
            known: side information with the shares that the attack on each model distinguishes.
            before: shadow models of the model before the update.
            after: shadow models of twice the victim's rows, by the share in all of them.
            seed: seed of the attack.

        Raises:
            BadInputError: see the attack.
        """
        shares = torch.tensor(known.shares, dtype=torch.float64)
        attack = Meta(self.features, self.classifier)
        first = attack(view.before, known, before, seed)
        second = attack(view.after, replace(known, rows=2 * known.rows), after, seed + 1)
        # Above, below or at an even split.
        side = torch.sign((shares - 0.5).round(decimals=9))
        was, becomes = side[first.chosen], side[second.chosen]
        same = was == becomes
        dominant = torch.where(same, was, -was)
        # Where the first model shows no dominant value, only the second can.
        dominant = torch.where(was == 0, becomes, dominant)
        chances = torch.stack([dominant < 0, dominant > 0], dim=1).double()
        chances = torch.where((dominant == 0)[:, None], torch.full_like(chances, 0.5), chances)
        return PropertyGuess((known.shares[0], known.shares[-1]), chances)


@attacks.register("joint", "pooled", needs=("auxiliary", "queries"))
@dataclass(frozen=True)
class Joint:
    """The new rows' share from both models' answers at once.

    Source: our own.

    Shadow models go through both trainings with known shares of both kinds of rows; two strongly regularised
    classifiers of the standardised logarithms of all answers distinguish the new rows' shares.
    """

    # Shadow models are trained on pairs of shares, of first and of new rows.
    paired: ClassVar[bool] = True

    def __call__(
        self,
        view: UpdatedView,
        known: PooledKnowledge,
        before: Shadows,
        after: Shadows,
        seed: int,
    ) -> PropertyGuess:
        """Return each share's chance for the new rows.

        Args:
            view: black-box access to both models.
            known: side information with the shares to distinguish.
            before, after: data of the same shadow models before and after the update; shares of ``after`` have a
                column for the first rows and one for the new ones.
            seed: seed of the classifier.

        Raises:
            BadInputError: the two are not of the same shadow models, or new rows have other shares.
        """
        if after.shares.shape[1] != 2 or not torch.equal(before.shares[:, 0], after.shares[:, 0]):
            raise BadInputError(
                "the same shadow models are needed before and after the update, with a share of the first and one of "
                f"the new rows; got {tuple(before.shares.shape)} and {tuple(after.shares.shape)} shares."
            )
        worlds = replace(after, shares=after.shares[:, 1:]).world(known.shares)
        features = torch.cat([logarithms(before.answers), logarithms(after.answers)], dim=1)
        asked = torch.cat(
            [logarithms(view.before.ask(known.queries)), logarithms(view.after.ask(known.queries))], dim=1
        )
        reduced = Reduced.of(features)
        return PropertyGuess(known.shares, fitted_chances("mixed", reduced(features), worlds, reduced(asked), seed))
