"""Area under the ROC curve."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from scipy.stats import rankdata
from torch import Tensor


def auc(scores: Float[Tensor, " record"], positive: Bool[Tensor, " record"]) -> float | None:
    """Return the probability that a positive record scores above a negative one (Mann-Whitney, ties count half)."""
    ones = int(positive.sum())
    zeros = len(positive) - ones
    if not ones or not zeros:
        return None
    ranks = torch.from_numpy(rankdata(scores.double().cpu().numpy()))
    return float((ranks[positive.cpu()].sum() - ones * (ones + 1) / 2) / (ones * zeros))
