"""Area under the ROC curve."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from scipy.stats import rankdata
from torch import Tensor


def auc(scores: Float[Tensor, " record"], positive: Bool[Tensor, " record"]) -> float | None:
    """Return the area under the ROC curve: the probability that a positive record scores above a negative one.

    Ties count half (Mann-Whitney).

    Args:
        scores: score of each record; higher for likelier ones.

    Returns:
        The area, or None without a positive or a negative record.

    Example:
        >>> auc(torch.tensor([0.1, 0.4, 0.4, 0.9]), torch.tensor([False, False, True, True]))
        0.875
    """
    ones = int(positive.sum())
    zeros = len(positive) - ones
    if not ones or not zeros:
        return None
    ranks = torch.from_numpy(rankdata(scores.double().cpu().numpy()))
    return float((ranks[positive.cpu()].sum() - ones * (ones + 1) / 2) / (ones * zeros))
