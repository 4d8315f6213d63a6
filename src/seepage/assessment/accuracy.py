"""Share of cells guessed right."""

from __future__ import annotations

from dataclasses import dataclass

from seepage.assessment.matched import KINDS, Matched
from seepage.assessment.measurement import Measurement
from seepage.registry import metrics


@metrics.register("accuracy")
@dataclass(frozen=True)
class Accuracy:
    """Share of cells guessed right: over all, by kind of column and by column.

    TabLeak (Vero et al., 2023), Eq. 6: a discrete cell is right when equal, a continuous one within
    the column's tolerance. All figures are computed from the one matching that minimises the total.

    Returns:
        ``accuracy``, ``accuracy_discrete`` and ``accuracy_continuous`` (where such columns exist),
        and ``accuracy`` of each column.
    """

    def __call__(self, matched: Matched) -> list[Measurement]:
        """Return the shares of each victim."""
        right = matched.right.double()
        scores = [("accuracy", None, right.mean(dim=(1, 2)))]
        for kind in KINDS:
            if columns := matched.columns(kind):
                scores.append((f"accuracy_{kind}", None, right[..., list(columns)].mean(dim=(1, 2))))
        by_column = right.mean(dim=1).unbind(dim=-1)
        scores += [("accuracy", name, values) for name, values in zip(matched.schema.names, by_column, strict=True)]
        return [Measurement(metric, column, values, True, (0.0, 1.0)) for metric, column, values in scores]
