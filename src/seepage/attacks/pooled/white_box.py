"""White-box attack: a classifier of models, trained on the weights of shadow models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from seepage.attacks.pooled.meta import agreed, chances_of, shadows_for
from seepage.attacks.pooled.parts.classifiers import Classifier, fitted_chances
from seepage.attacks.pooled.parts.features import standardised
from seepage.errors import check_choice
from seepage.registry import attacks
from seepage.wire.pooled import ModelView, PooledKnowledge, PropertyGuess


@attacks.register("white_box", "pooled", needs=("auxiliary", "queries"))
@dataclass(frozen=True)
class WhiteBox:
    """Distinguishes shares of an attribute by a classifier of models' weights.

    Source: Zhang, Tople and Ohrimenko (2021), appendix. All weights in one row, classified by a network of 200 and 50
    hidden units (``mlp``). The default is ours: a regularised regression of standardised weights and, since hidden
    units can be exchanged without changing a network, what ``Meta`` says of the model's own answers to the queries.
    See ``DeepSets`` for a classifier of weights that minds no order.

    Attributes:
        classifier: kind of classifier: ``mlp`` as published, or another, see ``fitted_chances``.

    Raises:
        BadInputError: there is no such classifier.
    """

    classifier: Classifier = "ridge"

    def __post_init__(self) -> None:
        check_choice("classifier", self.classifier, Classifier)

    def __call__(self, view: ModelView, knowledge: PooledKnowledge, seeds: Sequence[int] = (0,)) -> PropertyGuess:
        """Return the chances of each share for each target; ``seeds`` are those of the classifier."""
        shadows, halves = shadows_for(self.classifier, knowledge)
        worlds = shadows.world(knowledge.shares)
        weights, wanted = shadows.models.flat().double(), view.models.flat().double()
        if self.classifier != "ridge":
            chances = fitted_chances(self.classifier, weights, worlds, wanted, seeds[0], hidden=(200, 50))
            return PropertyGuess(knowledge.shares, chances)
        weights, wanted = standardised(weights, wanted)
        of_weights = fitted_chances("ridge", weights, worlds, wanted, seeds[0], halves=halves)
        answers = [models.answers(knowledge.queries) for models in (shadows.models, view.models)]
        of_answers = chances_of("all", "ridge", answers[:1], worlds, answers[1:], seeds[0], halves)
        return PropertyGuess(knowledge.shares, agreed([of_weights, of_answers]))
