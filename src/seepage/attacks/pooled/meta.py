"""The published attack: a classifier of models, trained on the answers of shadow models."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from seepage.attacks.pooled.parts.classifiers import Classifier, fitted_chances
from seepage.attacks.pooled.parts.features import LEAST, logarithms, ratios, raw, standardised
from seepage.errors import BadInputError, check_choice, check_count
from seepage.registry import attacks
from seepage.wire.pooled import HalvedShadows, PooledKnowledge, PredictionView, PropertyGuess, Shadows

Features = Literal["raw", "log", "all"]


@attacks.register("meta", "pooled", needs=("auxiliary", "queries"))
@dataclass(frozen=True)
class Meta:
    """Distinguishes shares of an attribute by a classifier of models' answers.

    Source: Zhang, Tople and Ohrimenko (2021), algorithm 1 and section 4.3. Answers to all queries side by side
    (``features="raw"``), classified by logistic regression for linear, recurrent and graph models (``lr``) and by
    a network of 20 and 8 hidden units for networks (``mlp``), for two or more shares. The default is ours:
    regularised regressions of chances, of their logarithms, and of their logarithms relative to the other classes',
    each of which has a say, on shadow models of two halves of the auxiliary rows.

    Attributes:
        features: ``raw`` chances, their ``log``, standardised, or the geometric mean of what classifiers of ``all``
            three kinds say.
        classifier: kind of classifier, see ``fitted_chances``.
        shuffled: whether shadow models' shares are permuted first, each with equally many models of every true one.
            What remains is chance, so that any result beyond it is a fault of the audit.
        queries: number of queries that are asked, the first ones; None for all.
        shadows: number of shadow models that are used, the first ones; None for all.

    Raises:
        BadInputError: ``features`` or ``classifier`` is none of these, or a count is below 1.
    """

    features: Features = "all"
    classifier: Classifier = "ridge"
    shuffled: bool = False
    queries: int | None = None
    shadows: int | None = None

    def __post_init__(self) -> None:
        check_choice("features", self.features, Features)
        check_choice("classifier", self.classifier, Classifier)
        for name in ("queries", "shadows"):
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name))

    def __call__(self, view: PredictionView, knowledge: PooledKnowledge, seeds: Sequence[int] = (0,)) -> PropertyGuess:
        """Return the chances of each share for each target; ``seeds`` are those of the classifier."""
        shadows, halves = shadows_for(self.classifier, knowledge)
        worlds = shadows.world(knowledge.shares)[: self.shadows]
        if self.shuffled:
            worlds = shuffled(worlds, seeds[0])
        answers_of_shadows = shadows.answers[: self.shadows, : self.queries]
        answers = view.ask(knowledge.queries[: self.queries])
        halves = None if halves is None else halves[: self.shadows]
        chances = chances_of(self.features, self.classifier, [answers_of_shadows], worlds, [answers], seeds[0], halves)
        return PropertyGuess(knowledge.shares, chances)


def shadows_for(classifier: Classifier, knowledge: PooledKnowledge) -> tuple[Shadows, Int[Tensor, " shadow"] | None]:
    """Return the shadow models that a classifier learns from, and the half of the rows of each if there are halves."""
    # The published classifiers have no setting to choose on models of other rows.
    if classifier != "ridge":
        return knowledge.trained("even"), None
    shadows = knowledge.trained("halved")
    if not isinstance(shadows, HalvedShadows):
        raise BadInputError("shadow models of the kind 'halved' are HalvedShadows; train them with halved_shadows.")
    return shadows, shadows.halves


def chances_of(
    features: Features,
    classifier: Classifier,
    shadows: Sequence[Float[Tensor, "shadow query label"]],
    worlds: Int[Tensor, " shadow"],
    targets: Sequence[Float[Tensor, "target query label"]],
    seed: int,
    halves: Int[Tensor, " shadow"] | None = None,
) -> Float[Tensor, "target world"]:
    """Return chances of each world from answers of shadow models and targets: of one model, or before and after."""
    kinds = {"raw": (raw,), "log": (logarithms,), "all": (raw, logarithms, ratios)}[features]
    chances = []
    for kind in kinds:
        of_shadows, of_targets = (_side_by_side([kind(part) for part in parts]) for parts in (shadows, targets))
        if kind is not raw or len(shadows) > 1:
            # Raw chances of one model count by how much they vary, which is little where a class is rare.
            of_shadows, of_targets = standardised(of_shadows, of_targets)
        chances.append(fitted_chances(classifier, of_shadows, worlds, of_targets, seed, halves=halves))
    return agreed(chances)


def agreed(several: Sequence[Float[Tensor, "target world"]]) -> Float[Tensor, "target world"]:
    """Return the geometric mean of the chances that several classifiers give."""
    return torch.softmax(torch.stack([chances.clamp(min=LEAST).log() for chances in several]).mean(0), dim=1)


def _side_by_side(parts: Sequence[Float[Tensor, "model _feature"]]) -> Float[Tensor, "model _features"]:
    """Return features of one set of answers or of several, and how each differs from the one before."""
    changes = [after - before for before, after in itertools.pairwise(parts)]
    return torch.cat([*parts, *changes], dim=1)


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
