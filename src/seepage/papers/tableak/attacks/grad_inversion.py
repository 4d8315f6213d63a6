"""GradInversion (Yin et al., CVPR 2021) as TabLeak's official code adapts it (D11), and its priors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from seepage.attacks.horizontal.matching.priors import Term
from seepage.attacks.horizontal.matching.profiles import Profile, reconstruction
from seepage.attacks.horizontal.matching.reconstruct import Reconstruction
from seepage.errors import BadInputError
from seepage.learning import batch_statistics
from seepage.models.batch_norm import Moments, normalisations
from seepage.models.model import Model
from seepage.registry import attacks
from seepage.wire.horizontal import Knowledge, View


@attacks.register("grad_inversion", "horizontal")
def grad_inversion(
    profile: Profile = "default", l1: float = 1e-4, l2: float = 1e-3, **options: object
) -> Reconstruction:
    """GradInversion: cosine matching of unconstrained rows, with priors on their squares and on the batch's statistics.

    Source: Yin et al., See through Gradients (CVPR 2021).

    The objective is 1 - cosine + l1 * sum of squares of the batch's standardised rows + l2 * squared distance of mean
    and unbiased variance from the true ones, summed over the inputs of each batch normalisation. The published grid
    takes l1 and l2 from 1, 0.1, 0.01, 0.001, 1e-4, 1e-5 and 0: 49 points, or the 7 of l1 for networks without batch
    normalisation, where l2 has no effect.

    Deviations from Yin et al., all of them TabLeak's: cosine instead of squared distance, squared norms in the
    statistics' term, sign-Adam at a constant step, true statistics of the batch instead of running ones; no total
    variation, group consistency, gradient noise or several seeds.

    Args:
        profile, options: arguments of ``reconstruction``.
        l1: weight of the squares.
        l2: weight of the statistics; above 0 the attacker needs them where the model normalises batches.
    """
    weighted = ((Squares, float(l1)), (BatchStatistics, float(l2)))
    priors = tuple(prior(weight) for prior, weight in weighted if weight != 0)
    preset = {"priors": priors, "softmax": False, "sigmoid": False, "restarts": 1, "entropy": "counts"}
    return reconstruction(profile, **{**preset, **options})


@dataclass(frozen=True)
class Squares:
    """``weight`` times the sum of the squares of all entries of a batch's standardised rows."""

    weight: float

    def __post_init__(self) -> None:
        check_weight("squares", self.weight)

    def on(self, view: View, knowledge: Knowledge) -> Term:
        """Return the penalty, the same for all victims."""
        return self.of

    def of(
        self, rows: Float[Tensor, "victim restart record encoded"]
    ) -> tuple[Float[Tensor, "victim restart"], Float[Tensor, "victim restart record encoded"]]:
        """Return the penalty of each restart and its derivative."""
        return self.weight * rows.square().sum((2, 3)), 2 * self.weight * rows


@dataclass(frozen=True)
class BatchStatistics:
    """``weight`` times the squared distance of the batch's statistics from the true ones, over all normalised layers.

    These are mean and unbiased variance of the inputs of each batch normalisation, over records and positions; their
    squared differences are summed over channels and layers (Yin et al. 2021 take the norms instead of their squares).
    A model without batch normalisation has none, so that nothing is added.
    """

    weight: float

    def __post_init__(self) -> None:
        check_weight("batch statistics", self.weight)

    def on(self, view: View, knowledge: Knowledge) -> Term:
        """Return the penalty of rows of these victims."""
        if not normalisations(view.model.module):
            return lambda rows: (rows.new_zeros(rows.shape[:2]), torch.zeros_like(rows))
        if knowledge.batch_statistics is None:
            raise BadInputError(
                f"a prior on batch statistics needs those of the true batches, which the attacker is not granted for "
                f"model {view.model.name!r}; grant them (batch_statistics='granted') or leave the prior "
                "out (l2=0 of grad_inversion)."
            )
        return _Statistics(self.weight, view.model, knowledge.batch_statistics)


class _Statistics:
    def __init__(self, weight: float, model: Model, true: Mapping[str, Moments]) -> None:
        first = next(iter(model.parameters.values()))
        self._weight, self._model = weight, model
        self._true = {
            name: [t.to(device=first.device, dtype=first.dtype)[:, None] for t in moments]
            for name, moments in true.items()
        }

    def __call__(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        with torch.enable_grad():
            rows = rows.detach().requires_grad_()
            distances = [
                (computed - true).square().sum(-1)
                for name, moments in batch_statistics(self._model, rows).items()
                for computed, true in zip(moments, self._true[name], strict=True)
            ]
            penalty = self._weight * torch.stack(distances).sum(0)
            (derivative,) = torch.autograd.grad(penalty.sum(), rows)
        return penalty.detach(), derivative


def check_weight(what: str, weight: float) -> None:
    """Refuse a weight that is not a number from 0 up."""
    if not 0 <= weight < float("inf"):
        raise BadInputError(f"the weight of the prior on {what} must be 0 or a positive number, got {weight}.")
