"""Share of records guessed whole."""

from __future__ import annotations

from dataclasses import dataclass

from seepage.assessment.matched import Matched
from seepage.assessment.measurement import Measurement
from seepage.registry import metrics


@metrics.register("exact_match")
@dataclass(frozen=True)
class ExactMatch:
    """Share of records of which every cell was guessed right.

    Accuracy overstates the number of completely exposed people; this figure does not. It is computed from the matching
    that minimises the total cell error. It can therefore miss a whole record that another matching would show at the
    price of more wrong cells.

    Returns:
        ``exact_match``.
    """

    def __call__(self, matched: Matched) -> list[Measurement]:
        """Return the share of each victim."""
        values = matched.right.all(dim=-1).double().mean(dim=-1)
        return [Measurement("exact_match", None, values, True, (0.0, 1.0))]
