"""Outcome of one of our figures beside a printed one."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from seepage.assessment import Estimate

# Margins of agreement, in rates. The finer one serves where both deviations are small enough for it.
MARGIN, FINE_MARGIN = 0.05, 0.02
# One-sided level of each test, and the power that the finer margin asks for where both means are alike.
LEVEL, POWER = 0.05, 0.8
# Units that give a deviation at all, as the papers with fewest have; and the most that are proposed.
LEAST, MOST = 3, 1_000

Agreement = Literal["agrees", "differs", "shown within", "shown below", "shown above", "open", "not judgeable"]
Basis = Literal["printed", "binomial", "at its word"]
Direction = Literal["below", "above"]


@dataclass(frozen=True)
class PublishedFigure:
    """One figure that a paper prints, in [0, 1] if a rate, with the population deviation over its units."""

    mean: float
    std: float | None
    basis: Basis = "printed"

    def as_share(self, targets: int) -> PublishedFigure:
        """Return the figure with the binomial deviation of one target, where none is printed.

        Two successes and two failures are added (Agresti and Coull 1998), so that a share of 1 is not without doubt.
        """
        if self.std is not None:
            return self
        share = (self.mean * targets + 2) / (targets + 4)
        return replace(self, std=math.sqrt(share * (1 - share)), basis="binomial")


@dataclass(frozen=True)
class Difference:
    """Our mean less the printed one, with Welch's 95% interval; None where ours has no deviation."""

    mean: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Judgement:
    """The outcome of a rate beside a printed one; None where nothing is printed.

    ``agrees`` or ``differs`` beside a deviation of the print; ``shown within``, ``shown below`` or ``shown above``
    where the print is taken at its word; ``open`` where more of our units would tell, of which ``needed`` are the
    least, if at most ``MOST``; ``not judgeable`` where no number of them would.
    """

    agreement: Agreement | None = None
    margin: float | None = None
    direction: Direction | None = None
    needed: int | None = None


def welch(ours: Estimate, published: PublishedFigure, published_n: int) -> Difference | None:
    """Return our mean less the printed one, with Welch's t interval; Student's where the print has no deviation.

    Published standard deviations are population ones and are corrected to unbiased ones.
    """
    if ours.mean is None:
        return None
    mean, std = ours.mean - published.mean, _deviation(ours)
    if std is None:
        return Difference(mean, None, None)
    half = float(_reach(std, np.array([ours.n]), published, published_n, 0.975)[0])
    return Difference(mean, mean - half, mean + half)


def margin_of(ours: Estimate, published: PublishedFigure, published_n: int, span: float = 1.0) -> float | None:
    """Return the margin within which a figure counts as the printed one; None where ours has no deviation.

    It is a share of ``span``, the width of the range of what is measured, which is 1 for rates.

    It never depends on the difference: the finer margin is taken where two like means would be found to agree within
    it with a power of 0.8, the coarse one beside a print without a deviation.
    """
    std = _deviation(ours)
    if std is None:
        return None
    return float(_margins(std, np.array([ours.n]), published, published_n, span)[0])


def judge(ours: Estimate, published: PublishedFigure, published_n: int, span: float = 1.0) -> Judgement:
    """Return the outcome of our mean beside the printed one, with margins in shares of ``span``.

    With the difference d, its standard error se, the 95% quantile q of Welch's t and the margin D: within where
    ``|d| + q se < D``, beyond where ``|d| - q se > D``, open otherwise. A print without a deviation has an error of 0.
    Nothing can be judged where the print's own error is so wide that like means would not be found within D.
    """
    std, margin = _deviation(ours), margin_of(ours, published, published_n, span)
    if ours.mean is None or std is None or margin is None:
        return Judgement("open", needed=LEAST)
    away, units = abs(ours.mean - published.mean), np.arange(ours.n, max(ours.n, MOST) + 1)
    reach = _reach(std, units, published, published_n, 1 - LEVEL)
    if away + reach[0] < margin:
        return Judgement("agrees" if published.std is not None else "shown within", margin)
    if away - reach[0] > margin:
        direction: Direction = "below" if ours.mean < published.mean else "above"
        if published.std is not None:
            return Judgement("differs", margin, direction)
        return Judgement("shown below" if direction == "below" else "shown above", margin, direction)
    if _reach(0.0, units[:1], published, published_n, 1 - LEVEL)[0] >= margin:
        return Judgement("not judgeable", margin)
    # The finer margin may be the one of more units.
    decided = abs(away - _margins(std, units, published, published_n, span)) > reach
    return Judgement("open", margin, needed=int(units[decided.argmax()]) if decided.any() else None)


def _margins(
    std: float, units: NDArray[np.int_], published: PublishedFigure, published_n: int, span: float
) -> NDArray[np.float64]:
    """Return the margin at each number of our units."""
    if published.std is None:
        return np.full(len(units), span * MARGIN)
    variance = std**2 / units + published.std**2 / (published_n - 1)
    needed = float(stats.norm.ppf(1 - LEVEL) + stats.norm.ppf((1 + POWER) / 2))
    return span * np.where(variance <= (span * FINE_MARGIN / needed) ** 2, FINE_MARGIN, MARGIN)


def _reach(
    std: float, units: NDArray[np.int_], published: PublishedFigure, published_n: int, level: float
) -> NDArray[np.float64]:
    """Return half the width of the difference's interval at each number of our units, with ``level`` below its end."""
    variance = std**2 / units
    other = 0.0 if published.std is None else published.std**2 / (published_n - 1)
    if std == other == 0:
        return np.zeros(len(units))
    freedom = (variance + other) ** 2 / (variance**2 / (units - 1) + other**2 / (published_n - 1))
    return stats.t.ppf(level, freedom) * np.sqrt(variance + other)


def _deviation(ours: Estimate) -> float | None:
    """Return the standard deviation of an estimate, from its interval where it is not given."""
    if ours.n < 2 or ours.std is not None:
        return ours.std if ours.n >= 2 else None
    if ours.low is None or ours.high is None:
        return None
    return (ours.high - ours.low) / 2 / float(stats.t.ppf(0.975, ours.n - 1)) * math.sqrt(ours.n)
