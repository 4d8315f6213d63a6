"""Rank correlation of a victim's accuracy with the attacker's certainty about it."""

from __future__ import annotations

from dataclasses import dataclass

from seepage.assessment.entropy import mean_entropy
from seepage.assessment.matched import KINDS, Matched
from seepage.assessment.measurement import Measurement
from seepage.registry import metrics


@metrics.register("kendall")
@dataclass(frozen=True)
class Kendall:
    """Kendall's tau-b across victims between a victim's accuracy and its mean entropy, by kind.

    TabLeak (Vero et al., 2023), tables 25 to 28. Strongly negative: low entropy shows the attacker which
    reconstructions to trust.

    Returns:
        ``kendall_discrete`` and ``kendall_continuous``; nothing for a guess without uncertainty.
    """

    def __call__(self, matched: Matched) -> list[Measurement]:
        """Return the pairs to correlate."""
        if matched.uncertainty is None:
            return []
        return [
            Measurement(
                f"kendall_{kind}",
                None,
                matched.right[..., columns].double().mean(dim=(1, 2)),
                bounds=(-1.0, 1.0),
                entropy=mean_entropy(matched.uncertainty[..., columns]),
            )
            for kind in KINDS
            if (columns := list(matched.columns(kind)))
        ]
