"""The published white-box attack: a classifier of models, trained on the weights of shadow models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from seepage.attacks.pooled.parts.classifiers import Classifier, fitted_chances
from seepage.attacks.pooled.parts.features import standardised
from seepage.errors import check_choice
from seepage.registry import attacks
from seepage.wire.pooled import ModelView, PooledKnowledge, PropertyGuess


@attacks.register("white_box", "pooled", needs=("auxiliary",))
@dataclass(frozen=True)
class WhiteBox:
    """Distinguishes shares of an attribute by a classifier of models' weights.

    Source: Zhang, Tople and Ohrimenko (2021), appendix. All weights in one row, classified by a network of 200 and 50
    hidden units. Hidden units can be exchanged without changing a network, which such a classifier ignores; see
    ``DeepSets`` for one that does not.

    Attributes:
        classifier: kind of classifier: ``mlp`` as published, or another, see ``fitted_chances``.
        standardised: whether weights are standardised over the shadow models first, which the paper does not say.

    Raises:
        BadInputError: there is no such classifier.
    """

    classifier: Classifier = "mlp"
    standardised: bool = False

    def __post_init__(self) -> None:
        check_choice("classifier", self.classifier, Classifier)

    def __call__(self, view: ModelView, knowledge: PooledKnowledge, seeds: Sequence[int] = (0,)) -> PropertyGuess:
        """Return the chances of each share for each target; ``seeds`` are those of the classifier."""
        shadows = knowledge.trained("even")
        worlds = shadows.world(knowledge.shares)
        features, targets = shadows.models.flat().double(), view.models.flat().double()
        if self.standardised:
            features, targets = standardised(features, targets)
        chances = fitted_chances(self.classifier, features, worlds, targets, seeds[0], hidden=(200, 50))
        return PropertyGuess(knowledge.shares, chances)
