"""Root mean squared error of continuous columns."""

from __future__ import annotations

import math
from dataclasses import dataclass

from seepage.assessment.matched import Matched
from seepage.assessment.measurement import Measurement
from seepage.registry import metrics


@metrics.register("rmse")
@dataclass(frozen=True)
class RMSE:
    """Root mean squared error of the continuous columns, in standard deviations.

    TabLeak (Vero et al., 2023), Eq. 8: the mean over columns of each column's root mean squared
    error over the records. The paper names neither matching nor units; here it is the matching of
    the accuracy, and every column is divided by its standard deviation so that they can be averaged.

    Returns:
        ``rmse``, over all and of each continuous column; nothing for a table without any.
    """

    def __call__(self, matched: Matched) -> list[Measurement]:
        """Return the errors of each victim."""
        if not (columns := list(matched.columns("continuous"))):
            return []
        off = (matched.guess - matched.true)[..., columns] / matched.scale[columns]
        errors = off.square().mean(dim=1).sqrt()
        names = [matched.schema.names[i] for i in columns]
        scores = [(None, errors.mean(dim=-1)), *zip(names, errors.unbind(dim=-1), strict=True)]
        return [Measurement("rmse", column, values, False, (0.0, math.inf)) for column, values in scores]
