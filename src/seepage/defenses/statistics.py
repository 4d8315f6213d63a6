"""Defenses of federated statistics: rounded sums, and normal noise on them with an accountant."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Float

from seepage.defenses.accounting import Guarantee, gaussian_guarantee
from seepage.errors import check_count, positive
from seepage.registry import ActsOn, defenses


@defenses.register("rounded_sums", "statistics")
@dataclass(frozen=True)
class RoundedSums:
    """Every sum is rounded to a number of decimals before it is sent.

    Attributes:
        digits: number of decimals.

    Raises:
        BadInputError: the number is no whole number from 0 up.

    Example:
        >>> RoundedSums(2)(np.array([1.2345])).tolist()
        [1.23]
    """

    words: ClassVar[str] = "rounded sums, decimals kept: {digits}"
    acts_on: ClassVar[ActsOn] = "precision of sums"

    digits: int = 3

    def __post_init__(self) -> None:
        check_count("digits", self.digits + 1 if isinstance(self.digits, int) else self.digits)

    @property
    def step(self) -> float:
        """Distance of neighbouring numbers that can be sent."""
        return 10.0**-self.digits

    def __call__(self, sums: Float[np.ndarray, "*shape"]) -> Float[np.ndarray, "*shape"]:
        """Return rounded sums."""
        rounded: Float[np.ndarray, "*shape"] = np.asarray(np.round(sums, self.digits))
        return rounded


@defenses.register("sum_noise", "statistics")
@dataclass(frozen=True)
class SumNoise:
    """Each site adds normal noise to the information and the score of every iteration, and sends nothing else.

    Attributes:
        multiplier: standard deviation of the noise / largest change of an iteration's sums by one record.

    Raises:
        BadInputError: the multiplier is no number above 0.

    Example:
        >>> round(SumNoise(10.0).guarantee(6, 1e-5).epsilon, 1)
        1.0
    """

    words: ClassVar[str] = "noise of {multiplier} times what one record can change"
    acts_on: ClassVar[ActsOn] = "sums"

    multiplier: float | int = 1.0

    def __post_init__(self) -> None:
        positive("multiplier", self.multiplier)

    def deviations(self, columns: int) -> tuple[float, float]:
        """Return the standard deviations on entries of the information and of the score.

        With two classes a record has weight at most 1/4 and a residual below 1. Its design row has the intercept and at
        most one entry of each column, so that at most (m + 1)(m + 2)/2 entries of the information's upper triangle
        change, and m + 1 of the score. Both parts get half of the squared sensitivity.
        """
        information = math.sqrt((columns + 1) * (columns + 2) / 2) / 4
        score = math.sqrt(columns + 1)
        return tuple(self.multiplier * math.sqrt(2) * part for part in (information, score))  # pyright: ignore[reportReturnType]

    def guarantee(self, iterations: int, delta: float) -> Guarantee | None:
        """Return the guarantee for single records of all iterations together."""
        return gaussian_guarantee(float(self.multiplier), 1.0, iterations, delta)


@defenses.register("one_shot", "statistics")
@dataclass(frozen=True)
class OneShot:
    """Each site fits the model alone and sends coefficients with their covariance, which are averaged.

    Source: DataSHIELD's ``ds.glmSLMA`` (study-level meta-analysis), here with weights of inverse variances. Its sites
    send the whole covariance and the deviance beside the standard errors (``glmSLMADS2`` of dsBase).
    """

    words: ClassVar[str] = "coefficients of each site alone, averaged"
    acts_on: ClassVar[ActsOn] = "sums"


@defenses.register("coarser_times", "statistics")
@dataclass(frozen=True)
class CoarserTimes:
    """Times of a survival model are cut down to a grid before risk sets are formed.

    Source: ``COXPH_TIME_BIN_WIDTH`` of vantage6's ``v6-cox-ph``.

    Attributes:
        width: distance of neighbouring times on the grid.

    Raises:
        BadInputError: the width is no number above 0.

    Example:
        >>> CoarserTimes(30)(np.array([1.0, 59.0, 60.0])).tolist()
        [0.0, 30.0, 60.0]
    """

    words: ClassVar[str] = "times cut to multiples of {width}"
    acts_on: ClassVar[ActsOn] = "times"

    width: float | int = 30

    def __post_init__(self) -> None:
        positive("width", self.width)

    def __call__(self, times: Float[np.ndarray, " record"]) -> Float[np.ndarray, " record"]:
        """Return times on the grid."""
        coarse: Float[np.ndarray, " record"] = np.floor(times / self.width) * self.width
        return coarse


@defenses.register("jump_guard", "statistics")
@dataclass(frozen=True)
class JumpGuard:
    """Risk sets of a site differ by none or at least this number of records, and have as many.

    Source: ``COXPH_MIN_RISK_SET_CHANGE`` of vantage6's ``v6-cox-ph``, 5 by default.

    Attributes:
        records: least number of records that leave together.

    Raises:
        BadInputError: the number is no whole number from 1 up.
    """

    words: ClassVar[str] = "at least {records} records leave a risk set together"
    acts_on: ClassVar[ActsOn] = "risk sets"

    records: int = 5

    def __post_init__(self) -> None:
        check_count("records", self.records)


@defenses.register("minimum_count", "statistics")
@dataclass(frozen=True)
class MinimumCount:
    """Numbers of a table below a minimum, but above 0, are left out.

    Source: ``nfilter.tab`` of DataSHIELD, 3 by default.

    Attributes:
        count: least number that is published.

    Raises:
        BadInputError: the number is no whole number from 1 up.

    Example:
        >>> MinimumCount(3)(np.array([0.0, 2.0, 3.0])).tolist()
        [0.0, nan, 3.0]
    """

    words: ClassVar[str] = "numbers below {count} left out"
    acts_on: ClassVar[ActsOn] = "counts"

    count: int = 3

    def __post_init__(self) -> None:
        check_count("count", self.count)

    def __call__(self, table: Float[np.ndarray, "*level"]) -> Float[np.ndarray, "*level"]:
        """Return a table with what may be published."""
        shown: Float[np.ndarray, "*level"] = np.where((table > 0) & (table < self.count), np.nan, table)
        return shown


@defenses.register("rounded_counts", "statistics")
@dataclass(frozen=True)
class RoundedCounts:
    """Numbers of a table are rounded to multiples of a base.

    Attributes:
        base: multiple that numbers are rounded to.

    Raises:
        BadInputError: the base is no whole number from 1 up.

    Example:
        >>> RoundedCounts(5)(np.array([2.0, 13.0])).tolist()
        [0.0, 15.0]
    """

    words: ClassVar[str] = "numbers rounded to multiples of {base}"
    acts_on: ClassVar[ActsOn] = "precision of sums"

    base: int = 5

    def __post_init__(self) -> None:
        check_count("base", self.base)

    def __call__(self, table: Float[np.ndarray, "*level"]) -> Float[np.ndarray, "*level"]:
        """Return a rounded table."""
        rounded: Float[np.ndarray, "*level"] = np.round(table / self.base) * self.base
        return rounded
