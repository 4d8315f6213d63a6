"""The published attack: a classifier of models, trained on the answers of shadow models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Int
from torch import Tensor

from seepage.attacks.pooled.parts.classifiers import Classifier, fitted_chances
from seepage.attacks.pooled.parts.features import Reduced, logarithms, raw
from seepage.errors import check_choice, check_count
from seepage.registry import attacks
from seepage.wire.pooled import PooledKnowledge, PredictionView, PropertyGuess

Features = Literal["raw", "log"]


@attacks.register("meta", "pooled", needs=("auxiliary", "queries"))
@dataclass(frozen=True)
class Meta:
    """Distinguishes shares of an attribute by a classifier of models' answers.

    Source: Zhang, Tople and Ohrimenko (2021), algorithm 1 and section 4.3. Answers to all queries side by side
    (``features="raw"``), classified by logistic regression for linear, recurrent and graph models (``lr``) and by
    a network of 20 and 8 hidden units for networks (``mlp``), for two or more shares. The default is ours:
    logarithms, standardised over shadow models, and two strongly regularised classifiers, mixed.

    Attributes:
        features: ``raw`` chances or their ``log``, standardised.
        classifier: kind of classifier, see ``fitted_chances``.
        shuffled: whether shadow models' shares are permuted first, each with equally many models of every true one.
            What remains is chance, so that any result beyond it is a fault of the audit.
        queries: number of queries that are asked, the first ones; None for all.

    Raises:
        BadInputError: ``features`` or ``classifier`` is none of these, or ``queries`` is below 1.
    """

    features: Features = "log"
    classifier: Classifier = "mixed"
    shuffled: bool = False
    queries: int | None = None

    def __post_init__(self) -> None:
        check_choice("features", self.features, Features)
        check_choice("classifier", self.classifier, Classifier)
        if self.queries is not None:
            check_count("queries", self.queries)

    def __call__(self, view: PredictionView, knowledge: PooledKnowledge, seeds: Sequence[int] = (0,)) -> PropertyGuess:
        """Return the chances of each share for each target; ``seeds`` are those of the classifier."""
        shadows = knowledge.trained("even")
        worlds = shadows.world(knowledge.shares)
        if self.shuffled:
            worlds = shuffled(worlds, seeds[0])
        answers, seen = view.ask(knowledge.queries[: self.queries]), shadows.answers[:, : self.queries]
        if self.features == "raw":
            features, targets = raw(seen), raw(answers)
        else:
            features, targets = logarithms(seen), logarithms(answers)
            reduced = Reduced.of(features)
            features, targets = reduced(features), reduced(targets)
        return PropertyGuess(knowledge.shares, fitted_chances(self.classifier, features, worlds, targets, seeds[0]))


def shuffled(worlds: Int[Tensor, " shadow"], seed: int) -> Int[Tensor, " shadow"]:
    """Return permuted shares for shadow models, which are unrelated to the true ones."""
    # Models of each true share get all shares in turn, in a random order, so that no direction in which true shares
    # differ is related to them by chance.
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.empty_like(worlds)
    count = int(worlds.max()) + 1
    for world in range(count):
        positions = (worlds == world).nonzero()[:, 0]
        # Where the shares do not divide the number of models of one share, the remainders of all shares together do.
        given = (torch.arange(len(positions)) + world * len(positions)) % count
        drawn[positions] = given[torch.randperm(len(positions), generator=generator)]
    return drawn
