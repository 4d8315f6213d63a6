"""Priors of GradInversion: on the squares of a batch's rows, and on its statistics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from seepage.attacks.horizontal.matching.priors import Term
from seepage.errors import BadInputError
from seepage.learning import batch_statistics
from seepage.models.batch_norm import Moments, normalisations
from seepage.models.model import Model
from seepage.wire.horizontal import Knowledge, View


@dataclass(frozen=True)
class Squares:
    """``weight`` times the sum of the squares of all entries of a batch's standardised rows.

    Example:
        >>> squares = Squares(0.5)
        >>> [t.tolist() for t in squares.of(torch.tensor([[[[1.0, 2.0]]]]))]
        [[[2.5]], [[[[1.0, 2.0]]]]]
    """

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
        """Return the penalty of rows of these victims.

        Raises:
            BadInputError: the model normalises batches, but the attacker is not granted their statistics.
        """
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
                (own - true).square().sum(-1)
                for name, moments in batch_statistics(self._model, rows).items()
                for own, true in zip(moments, self._true[name], strict=True)
            ]
            penalty = self._weight * torch.stack(distances).sum(0)
            (derivative,) = torch.autograd.grad(penalty.sum(), rows)
        return penalty.detach(), derivative


def check_weight(what: str, weight: float) -> None:
    """Refuse a weight that is not a number from 0 up.

    Raises:
        BadInputError: the weight is not one; the message has it.
    """
    if not 0 <= weight < float("inf"):
        raise BadInputError(f"the weight of the prior on {what} must be 0 or a positive number, got {weight}.")
