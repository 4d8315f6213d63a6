"""The published attack: a classifier of models, trained on the answers of shadow models."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

from seepage.attacks.property.parts.classifiers import Classifier, fitted_chances
from seepage.attacks.property.parts.features import Reduced, logarithms, raw
from seepage.attacks.property.parts.shadows import Shadows
from seepage.errors import check_choice
from seepage.guesses import PropertyGuess
from seepage.knowledge import PooledKnowledge
from seepage.registry import property_attacks
from seepage.views import PredictionView

Features = Literal["raw", "log"]


@property_attacks.register("meta")
@dataclass(frozen=True)
class Meta:
    """Tell shares of an attribute apart by a classifier of models' answers.

    Source: Zhang, Tople and Ohrimenko (2021), algorithm 1 and section 4.3: answers to all queries side by side
    (``features="raw"``), classified by logistic regression for linear, recurrent and graph models (``lr``) and by a
    network of 20 and 8 hidden units for networks (``mlp``). Two shares, or as many as the shadow models have. Ours is
    the default: logarithms, standardised over shadow models, with a strength of regularisation that cross-validation
    over the shadow models chooses.

    Attributes:
        features: ``raw`` chances or their ``log``, standardised.
        classifier: see ``fitted_chances``.
        shuffled: whether shadow models' shares are shuffled before: what remains is guessing, so that anything beyond
            it is a fault of the audit.

    Raises:
        BadInputError: ``features`` or ``classifier`` is none of these.
    """

    features: Features = "log"
    classifier: Classifier = "regularised"
    shuffled: bool = False

    def __post_init__(self) -> None:
        check_choice("features", self.features, Features)
        check_choice("classifier", self.classifier, Classifier)

    def __call__(self, view: PredictionView, known: PooledKnowledge, shadows: Shadows, seed: int) -> PropertyGuess:
        """Return the chances of each share for each target.

        Args:
            view: is asked the attacker's queries.
            known: gives queries and shares.
            shadows: with as many of each share.
            seed: of the classifier.

        Raises:
            BadInputError: shadow models have other shares, or queries are not answered.
        """
        worlds = shadows.world(known.shares)
        if self.shuffled:
            worlds = worlds[torch.randperm(len(worlds), generator=torch.Generator().manual_seed(seed))]
        answers = view.ask(known.queries)
        if self.features == "raw":
            features, asked = raw(shadows.answers), raw(answers)
        else:
            features, asked = logarithms(shadows.answers), logarithms(answers)
            reduced = Reduced.of(features)
            features, asked = reduced(features), reduced(asked)
        return PropertyGuess(known.shares, fitted_chances(self.classifier, features, worlds, asked, seed))
