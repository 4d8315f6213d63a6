"""Share of records and cells that an attack certifies."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from seepage.assessment.matched import Matched
from seepage.assessment.measurement import Measurement
from seepage.registry import metrics
from seepage.tabular.align import match, tolerances
from seepage.tabular.schema import Schema


def contradicted(
    schema: Schema,
    cells: Float[Tensor, "victim guess column"],
    true: Float[Tensor, "victim true column"],
    certified: Bool[Tensor, "victim guess column"],
) -> Float[Tensor, " victim"]:
    """Return the number of wrong certified cells of each victim.

    Certified records are matched with the true ones, one to one, so that as few certified cells as possible are wrong.
    """
    apart = (cells[:, :, None] - true[:, None]).abs()
    cost = (certified[:, :, None] & ~(apart <= tolerances(schema).to(apart))).double().sum(-1)
    # What is certified beyond the number of true records is wrong.
    surplus = certified.double().sum(-1)[:, :, None].expand(-1, -1, cells.shape[1] - true.shape[1])
    cost = torch.cat([cost, surplus], 2)
    return cost.gather(1, match(cost)[:, None]).sum((1, 2))


@metrics.register("certified")
@dataclass(frozen=True)
class CertifiedShare:
    """Share of certified records and cells, and the share of certified cells that are wrong.

    Returns:
        ``certified``, the share of records with a certified cell; ``certified_cells``, the share of cells; and
        ``certified_given``, the share of cells that are certified only with other things held fixed;
        ``certified_wrong``, the share of certified cells that are wrong, NaN for a victim without any; ``visible``, the
        share of records that stand above the client's own rounding in the message, where that is known. Nothing for
        an attack that proves nothing.
    """

    def __call__(self, matched: Matched) -> list[Measurement]:
        """Return the shares of each victim."""
        if matched.certified is None or matched.given is None:
            return []
        certain = matched.certified
        counts = certain.flatten(1).sum(1)
        wrong = contradicted(matched.schema, matched.guess, matched.true, certain)
        shares = {
            "certified": certain.any(-1).double().mean(-1),
            "certified_cells": certain.double().mean((1, 2)),
            "certified_given": matched.given.double().mean((1, 2)),
            "certified_wrong": torch.where(counts > 0, wrong / counts, torch.nan),
        }
        if matched.visible is not None:
            shares["visible"] = matched.visible.double().mean(1)
        return [Measurement(name, None, share, name != "certified_wrong", (0.0, 1.0)) for name, share in shares.items()]
