"""What the attacker is granted beyond what crosses the wire; printed with every result."""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from seepage.tabular.schema import Schema
from seepage.tabular.statistics import Statistics


@dataclass(frozen=True)
class Knowledge:
    """Side information of the attacker.

    Attributes:
        schema: columns, categories, bounds.
        statistics: marginals and moments (TabLeak grants those of train and test together).
        batch_size: number of records behind each victim's update.
        labels: each victim's labels (victim, record) in no particular order, or None: restore them.
    """

    schema: Schema
    statistics: Statistics
    batch_size: int
    labels: Float[Tensor, "victim record"] | None = None

    def describe(self) -> dict[str, object]:
        """Return what is granted, as plain values for a result or report."""
        return {
            "schema": "columns, categories and bounds",
            "statistics": "marginals, means and standard deviations of every column",
            "batch_size": self.batch_size,
            "labels": "true" if self.labels is not None else "restored",
        }
