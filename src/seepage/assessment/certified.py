"""Share of records and cells that an attack certifies."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from seepage.assessment.matched import Matched
from seepage.assessment.measurement import Measurement
from seepage.registry import metrics


@metrics.register("certified")
@dataclass(frozen=True)
class Certified:
    """Share of certified records and cells, and the share of certified cells that are wrong.

    Returns:
        ``certified``, the share of records with a certified cell; ``certified_cells``, the share of cells; and
        ``certified_wrong``, the share of certified cells that are wrong, NaN for a victim without any; ``visible``, the
        share of records that stand above the client's own rounding in the message, where that is known. Nothing for
        an attack that proves nothing.
    """

    def __call__(self, matched: Matched) -> list[Measurement]:
        """Return the shares of each victim."""
        if matched.certified is None:
            return []
        certain = matched.certified
        held = certain.flatten(1).sum(1)
        wrong = (certain & ~matched.right).flatten(1).sum(1).double()
        shares = {
            "certified": certain.any(-1).double().mean(-1),
            "certified_cells": certain.double().mean((1, 2)),
            "certified_wrong": torch.where(held > 0, wrong / held, torch.nan),
        }
        if matched.visible is not None:
            shares["visible"] = matched.visible.double().mean(1)
        return [Measurement(name, None, share, name != "certified_wrong", (0.0, 1.0)) for name, share in shares.items()]
