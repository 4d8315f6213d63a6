"""What a metric returns: a value a victim, or a pair of values a victim to correlate."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from seepage.assessment.intervals import Estimate, interval, tau_b
from seepage.assessment.matched import Matched


@dataclass(frozen=True)
class Measurement:
    """A figure that every single victim has; victims are aggregated by their mean.

    Attributes:
        metric: name of the figure, such as ``accuracy_discrete``.
        column: the column it speaks of, None for all of them.
        values: one a victim, NaN where not applicable.
        higher_leaks: whether a higher value means that more leaked.
        bounds: range of the figure; infinite where it has no bound.
    """

    metric: str
    column: str | None
    values: Float[Tensor, " victim"]
    higher_leaks: bool
    bounds: tuple[float, float]

    def estimate(self, level: float = 0.95) -> Estimate:
        """Return the mean over victims with its interval."""
        return interval(self.values, level, self.bounds)


@dataclass(frozen=True)
class Association:
    """A correlation across victims, which no single victim has.

    Attributes:
        metric: name of the figure, such as ``kendall_discrete``.
        column: the column it speaks of, None for all of them.
        accuracy, entropy: of each victim, NaN where not applicable.
    """

    metric: str
    column: str | None
    accuracy: Float[Tensor, " victim"]
    entropy: Float[Tensor, " victim"]

    def estimate(self, level: float = 0.95) -> Estimate:
        """Return Kendall's tau-b across victims with its interval."""
        return tau_b(self.accuracy, self.entropy, level)


Measured = Measurement | Association

# What is registered makes one: its constructor takes the settings, a call does the work. Figures
# that do not apply are left out.
Metric = Callable[[Matched], Sequence[Measured]]
