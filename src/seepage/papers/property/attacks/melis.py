"""Attack on the share through another party's gradients in federated training (Melis et al., 2019)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from sklearn.ensemble import RandomForestClassifier
from torch import Tensor

from seepage.attacks.pooled.parts.classifiers import fitted_chances
from seepage.attacks.pooled.parts.features import standardised
from seepage.errors import BadInputError, check_choice, check_count
from seepage.registry import attacks
from seepage.shadow.stacked import Dense, Stacked
from seepage.wire.pooled import GradientsView, PooledKnowledge, PropertyGuess

Classifier = Literal["forest", "ridge"]


@attacks.register("melis", "pooled", needs=("auxiliary",))
@dataclass(frozen=True)
class Melis:
    """Distinguishes shares by a classifier of gradients, trained on those of auxiliary rows at the same models.

    Source: Melis, Song, De Cristofaro and Shmatikov, *Exploiting Unintended Feature Leakage in Collaborative Learning*
    (2019), section 4. In each round the attacker computes gradients of its own batches with and without the
    property at the joint model, and a random forest of 100 trees with leaves of five classifies the other party's.
    Deviations: the property is the share in all of a party's rows; one forest reads the gradients of all rounds
    side by side instead of one score a round; small networks need no pooling of gradients. ``ridge`` is ours:
    gradients with their signs, standardised, and a regularised linear rule (see ``fitted_chances``).

    Attributes:
        classifier: ``forest`` or ``ridge``.
        references: number of batches of auxiliary rows for each share.
        rounds: number of rounds of training that the attacker sees.
        rate: learning rate of the parties' gradient descent.

    Raises:
        BadInputError: ``classifier`` is none of these, a count is below 1 (references: 5), or the rate is not above 0.
    """

    classifier: Classifier = "forest"
    references: int = 25
    rounds: int = 3
    rate: float | int = 0.5

    def __post_init__(self) -> None:
        check_choice("classifier", self.classifier, Classifier)
        check_count("rounds", self.rounds)
        if self.references < 5:
            raise BadInputError(f"references are five batches a share at least, got references={self.references!r}.")
        if not self.rate > 0:
            raise BadInputError(f"rate is above 0, got rate={self.rate!r}.")

    def __call__(self, view: GradientsView, knowledge: PooledKnowledge, seeds: Sequence[int] = (0,)) -> PropertyGuess:
        """Return the chances of each share for each target."""
        if not isinstance(knowledge.learner, Dense):
            raise BadInputError("the attack melis reads gradients of fully connected networks; choose meta or kl.")
        generator = torch.Generator().manual_seed(seeds[0])
        worlds = torch.arange(len(knowledge.shares)).repeat(self.references)
        shares = torch.tensor(knowledge.shares, dtype=torch.float64)[worlds]
        chosen = knowledge.auxiliary.drawn(shares[:, None], knowledge.rows, generator)[:, 0]
        chances = []
        for target in range(view.gradients.shape[1]):
            gradients = [
                knowledge.learner.gradients(
                    _repeated(models, target, len(chosen)),
                    knowledge.auxiliary.inputs,
                    knowledge.auxiliary.labels,
                    chosen,
                )
                for models in view.snapshots
            ]
            features, point = torch.cat(gradients, dim=1), view.gradients[:, target].reshape(1, -1)
            chances.append(self._chances(features.double(), worlds, point.double(), seeds[0]))
        return PropertyGuess(knowledge.shares, torch.cat(chances))

    def _chances(
        self, features: Float[Tensor, "batch feature"], worlds: Tensor, point: Float[Tensor, "1 feature"], seed: int
    ) -> Float[Tensor, "1 world"]:
        if self.classifier == "ridge":
            rows, target = standardised(features, point)
            return fitted_chances("ridge", rows, worlds, target, seed)
        forest = RandomForestClassifier(100, min_samples_leaf=5, min_samples_split=5, random_state=seed % 2**32)
        lengths = features.norm(dim=1, keepdim=True), point.norm(dim=1, keepdim=True)
        forest.fit((features.abs() / lengths[0].clamp(min=1e-12)).numpy(), worlds.numpy())
        chances = forest.predict_proba((point.abs() / lengths[1].clamp(min=1e-12)).numpy())
        return torch.as_tensor(chances, dtype=torch.float64)


def _repeated(models: Stacked, target: int, times: int) -> Stacked:
    model = models.of(slice(target, target + 1))
    return model.holding(part.expand(times, *part.shape[1:]) for part in model.parameters)
