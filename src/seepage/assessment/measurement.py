"""Results of a metric: one value a victim, or one pair of values a victim to correlate."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from seepage.assessment.intervals import Estimate, clustered, interval, tau_b
from seepage.assessment.matched import Matched
from seepage.errors import BadInputError


@dataclass(frozen=True)
class Measurement:
    """A figure that every single victim has; victims are aggregated by their mean.

    Attributes:
        metric: name of the figure, such as ``accuracy_discrete``.
        column: name of the column, None for all of them.
        values: one a victim, NaN where not applicable.
        higher_leaks: whether a higher value means that more leaked.
        bounds: range of the figure; infinite where it has no bound.
        clusters: values whose mean is each of ``values``, where known; the interval is then that of ``clustered``.

    Example:
        >>> Measurement("accuracy", None, torch.tensor([0.25, 0.75])).estimate().mean
        0.5
    """

    metric: str
    column: str | None
    values: Float[Tensor, " victim"]
    higher_leaks: bool = True
    bounds: tuple[float, float] = (0.0, 1.0)
    clusters: tuple[Float[Tensor, " _member"], ...] | None = None

    @classmethod
    def of_unit(
        cls,
        metric: str,
        column: str | None,
        value: float | Float[Tensor, ""] | None,
        members: Float[Tensor, " member"] | None = None,
    ) -> Measurement:
        """Return a rate of a single victim or other unit.

        Args:
            value: the figure; None where not applicable.
            members: values whose mean it is, one for each record or other member of the unit.

        Example:
            >>> Measurement.of_unit("accuracy", "age", None).values.tolist()
            [nan]
        """
        values = torch.tensor([float("nan") if value is None else float(value)], dtype=torch.float64)
        return cls(metric, column, values, clusters=None if members is None else (members,))

    def estimate(self, level: float = 0.95) -> Estimate:
        """Return the mean over victims with its interval."""
        if self.clusters is None:
            return interval(self.values, level, self.bounds)
        return clustered(self.clusters, level, self.bounds)

    def less(self, other: Measurement) -> Measurement:
        """Return the difference of each victim to ``other``, whose clusters are taken as points.

        Raises:
            BadInputError: the victims differ in number.
        """
        if len(self.values) != len(other.values):
            raise BadInputError(
                f"a paired difference needs the same victims on both sides, got {len(self.values)} and "
                f"{len(other.values)}; assess attack and baseline on the same transcript."
            )
        low, high = self.bounds
        clusters = None
        if self.clusters is not None:
            clusters = tuple(cluster - float(by) for cluster, by in zip(self.clusters, other.values, strict=True))
        return replace(
            self,
            values=self.values.double().cpu() - other.values.double().cpu(),
            bounds=(low - high, high - low),
            clusters=clusters,
        )


@dataclass(frozen=True)
class Association:
    """A correlation across victims, which no single victim has.

    Attributes:
        metric: name of the figure, such as ``kendall_discrete``.
        accuracy, entropy: value of each victim, NaN where not applicable.
    """

    metric: str
    column: str | None
    accuracy: Float[Tensor, " victim"]
    entropy: Float[Tensor, " victim"]

    def estimate(self, level: float = 0.95) -> Estimate:
        """Return Kendall's tau-b across victims with its interval."""
        return tau_b(self.accuracy, self.entropy, level)


Measured = Measurement | Association

# A registered metric is a class: its constructor takes the settings, a call computes the figures. Figures that do not
# apply are left out.
Metric = Callable[[Matched], Sequence[Measured]]
