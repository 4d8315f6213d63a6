"""NoPeek: passive parties learn features whose distances say little about those of their rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from seepage.errors import positive
from seepage.registry import ActsOn, defenses

# Least product of distance variances, so that features that are all alike have a derivative.
_LEAST = 1e-12


@defenses.register("nopeek", "vertical")
@dataclass(frozen=True)
class NoPeek:
    """Each passive party adds the distance correlation between its rows and its features to the loss.

    Source: Vepakomma et al., NoPeek: Information Leakage Reduction to Share Activations in Distributed Deep Learning
    (ICDM workshops 2020), equation 1; distance correlation after Szekely, Rizzo and Bakirov (2007), of the records of a
    batch. Deviation: the term is weighed against a cross-entropy of weight 1. It changes what bottom models learn, not
    what is done to a message, so that nothing is guaranteed.

    Attributes:
        weight: weight of the distance correlation in the loss.

    Raises:
        BadInputError: the weight is not a positive number.
    """

    words: ClassVar[str] = "features trained to tell less"
    acts_on: ClassVar[ActsOn] = "training"

    weight: float | int = 1.0

    def __post_init__(self) -> None:
        positive("weight", self.weight)

    def loss(
        self, rows: Float[Tensor, "training record encoded"], features: Float[Tensor, "training record feature"]
    ) -> Float[Tensor, ""]:
        """Return the term of a party in the loss of a batch, summed over trainings; it has a derivative."""
        return self.weight * distance_correlation(rows, features).sum()


def distance_correlation(
    first: Float[Tensor, "training record value"], second: Float[Tensor, "training record other"]
) -> Float[Tensor, " training"]:
    """Return the distance correlation of two descriptions of the same records, from 0 to 1."""
    A, B = _centred(first), _centred(second)
    together, alone, again = (a.mul(b).mean((1, 2)) for a, b in ((A, B), (A, A), (B, B)))
    squared = together / (alone * again).clamp(min=_LEAST).sqrt()
    return squared.clamp(min=_LEAST).sqrt()


def _centred(values: Float[Tensor, "training record value"]) -> Float[Tensor, "training record record"]:
    """Return distances between records, less the means of their rows and columns."""
    apart = torch.cdist(values, values)
    return apart - apart.mean(1, keepdim=True) - apart.mean(2, keepdim=True) + apart.mean((1, 2), keepdim=True)
