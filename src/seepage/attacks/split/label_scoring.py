"""Label scores from the gradients' norms and directions alone (Li et al., Label Leakage and Protection, ICLR 2022)."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from seepage.errors import BadInputError
from seepage.wire.split import CutView


def norm_scores(view: CutView) -> Float[Tensor, " record"]:
    """Score records by the norm of their gradient, which is larger for a rare label (Li et al., section 3.1)."""
    return torch.linalg.vector_norm(view.own_gradient, dim=1).double().cpu()


def direction_scores(view: CutView, record: int) -> Float[Tensor, " record"]:
    """Score records by the cosine between their gradient and that of a record with the sought label (section 3.2)."""
    # For two classes the gradients of records with the same label point to the same side just below the logit, so that
    # the sign separates the labels. The known record should be left out of any figure.
    if not 0 <= record < view.records:
        raise BadInputError(
            f"record {record} was asked for of a view of {view.records} records, 0 to {view.records - 1}."
        )
    if not bool(view.gradient[record].any()):
        raise BadInputError(
            f"the gradient of record {record} is zero, so that it has no direction; take another record."
        )
    return functional.cosine_similarity(view.gradient, view.gradient[record][None], dim=1).double().cpu()
