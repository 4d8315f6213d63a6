"""Accuracy of the cells that the attacker is most and least certain of."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from seepage.assessment.matched import KINDS, Matched
from seepage.assessment.measurement import Measurement
from seepage.registry import metrics


@metrics.register("quarters")
@dataclass(frozen=True)
class Quarters:
    """Accuracy of the most and of the least certain quarter of a victim's cells, by kind of column.

    TabLeak (Vero et al., 2023), tables 29 to 32: the cells of one kind are pooled over the batch
    and sorted by entropy; a quarter is rounded up to whole cells. Cells of equal entropy at the edge
    of a quarter count with their mean accuracy, which is the average over random orders of them
    (the official code takes the order of the sort, hence of the records).

    Args:
        official_count: whether the discrete quarters are sized by the number of *continuous* cells, as in the official
            code (18.75% of the discrete cells on Adult instead of 25%; D7).

    Returns:
        ``top_quarter_discrete``, ``bottom_quarter_discrete`` and the same of continuous cells;
        nothing for a guess without uncertainty. With ``official_count`` only the discrete ones, which it
        changes, under names that end in ``_as_coded``.
    """

    official_count: bool = False

    def __call__(self, matched: Matched) -> list[Measurement]:
        """Return the accuracies of each victim."""
        if matched.uncertainty is None:
            return []
        scores = []
        for kind in KINDS:
            if not (columns := list(matched.columns(kind))):
                continue
            uncertainty = matched.uncertainty[..., columns].flatten(1)
            right = matched.right[..., columns].flatten(1)
            quarter, ending = None, ""
            if self.official_count:
                if kind == "continuous":
                    continue
                ending = "_as_coded"
                quarter = -(-matched.true.shape[1] * len(matched.columns("continuous")) // 4)
            top, bottom = _ends(uncertainty, right, quarter)
            scores.append(Measurement(f"top_quarter_{kind}{ending}", None, top, True, (0.0, 1.0)))
            scores.append(Measurement(f"bottom_quarter_{kind}{ending}", None, bottom, True, (0.0, 1.0)))
        return scores


def _ends(
    uncertainty: Float[Tensor, "victim cell"], right: Bool[Tensor, "victim cell"], quarter: int | None
) -> tuple[Float[Tensor, " victim"], Float[Tensor, " victim"]]:
    """Return the accuracy of the ``quarter`` most and least certain cells; cells of NaN entropy have no rank."""
    ranked = (~uncertainty.isnan()).sum(dim=1, keepdim=True)
    take = (ranked + 3) // 4 if quarter is None else ranked.clamp(max=quarter)
    order = torch.where(uncertainty.isnan(), torch.inf, uncertainty)
    order, positions = order.sort(dim=1)
    score = right.double().gather(1, positions)
    # Replace each cell's score by the mean of those that tie with it.
    total = torch.nn.functional.pad(score.cumsum(dim=1), (1, 0))
    first = torch.searchsorted(order, order)
    last = torch.searchsorted(order, order, right=True)
    score = (total.gather(1, last) - total.gather(1, first)) / (last - first)
    rank = torch.arange(score.shape[1])[None, :]
    top = torch.where(rank < take, score, 0).sum(dim=1, keepdim=True) / take
    bottom = torch.where((rank >= ranked - take) & (rank < ranked), score, 0).sum(dim=1, keepdim=True) / take
    return top[:, 0], bottom[:, 0]
