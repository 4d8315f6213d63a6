"""Label scores from the gradients' norms and directions alone (Li et al., Label Leakage and Protection, ICLR 2022)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from seepage.errors import BadInputError
from seepage.wire.split import CutView


@dataclass(frozen=True)
class LabelScores:
    """Scores of records for the sought label; only their order is meaningful.

    Attributes:
        scores: score of each record; higher for likelier ones.
        method: name of the scoring method.
    """

    scores: Float[Tensor, " record"]
    method: str


def norm_scores(view: CutView) -> LabelScores:
    """Score records by the norm of their gradient, which is larger for a rare label (Li et al., section 3.1).

    Example:
        >>> norm_scores.__name__
        'norm_scores'
    """
    return LabelScores(torch.linalg.vector_norm(view.own_gradient, dim=1).double().cpu(), "norm")


def direction_scores(view: CutView, known: int) -> LabelScores:
    """Score records by the cosine between their gradient and that of one whose label is known (section 3.2).

    For two classes the gradients of records with the same label point to the same side just below the logit, so that
    the sign separates the labels.

    Args:
        view: view of the server.
        known: position of a record with the sought label; it should be left out of any figure.

    Raises:
        BadInputError: there is no such record, or its gradient is zero.
    """
    if not 0 <= known < view.records:
        raise BadInputError(
            f"record {known} was asked for of a view of {view.records} records, 0 to {view.records - 1}."
        )
    if not bool(view.gradient[known].any()):
        raise BadInputError(
            f"the gradient of record {known} is zero, so that it has no direction; take another record."
        )
    found = functional.cosine_similarity(view.gradient, view.gradient[known][None], dim=1)
    return LabelScores(found.double().cpu(), "direction")
