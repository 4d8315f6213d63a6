"""View, knowledge and guess of federated statistics: regressions by Newton steps, survival models and tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float, Int

from seepage import kernel
from seepage.tabular.schema import Continuous, Discrete, Schema
from seepage.wire.horizontal import Knowledge, RecordsGuess

Family = Literal["binomial", "gaussian", "poisson"]


@dataclass(frozen=True)
class NewtonStep:
    """Sums over a site's records at coefficients that all know; None is what is not sent.

    Attributes:
        coefficients: coefficients of the iteration; None where it starts from the outcomes themselves.
        information: sum of w x x^T over the records.
        score: sum of x (y - mu).
        right: sum of w x z, the right side of the normal equations.
        deviance: deviance of the records.
        dispersion: sum of (y - mu)^2 / w.
        mean: mean of the site's outcomes, which it sends; None where it does not, or sites are summed.
    """

    coefficients: Float[np.ndarray, " coefficient"] | None
    information: Float[np.ndarray, "coefficient coefficient"]
    score: Float[np.ndarray, " coefficient"] | None = None
    right: Float[np.ndarray, " coefficient"] | None = None
    deviance: float | None = None
    dispersion: float | None = None
    mean: float | None = None


@dataclass(frozen=True)
class NewtonMessage:
    """Sums of a site over all iterations, or of several sites together.

    Attributes:
        levels: for each column of the design, codes of the levels that are in the model; the first is the reference.
        records: number of records behind the sums.
        rounded: distance of neighbouring numbers that can be sent; 0 for double precision.
        noise: standard deviation of normal noise on each entry of the information, and of the score or right side.
        means: whether sums were divided by the number of records.
        alone: whether they follow from the site's own fit: the inverse of its covariance, and a score of 0.
        outcomes: number that each category of the outcome counts as; None for those of the function ``outcomes``.
    """

    family: Family
    levels: tuple[tuple[int, ...], ...]
    records: int
    steps: tuple[NewtonStep, ...] = field(repr=False)
    rounded: float = 0.0
    noise: tuple[float, float] = (0.0, 0.0)
    means: bool = False
    alone: bool = False
    outcomes: tuple[float, ...] | None = None


@dataclass(frozen=True)
class NewtonView:
    """Sums of a generalised linear model's Newton steps, of a site or added up over several."""

    messages: tuple[NewtonMessage, ...]

    @property
    def victims(self) -> int:
        """Number of victims."""
        return len(self.messages)


@dataclass(frozen=True)
class RiskStep:
    """Sums over the records at risk at each event time, at coefficients that all know.

    Attributes:
        coefficients: coefficients of the iteration, without an intercept.
        sums: sums of exp(x beta) (1, x) (1, x)^T, which hold those of exp(x beta), of x exp(x beta) and of x x^T exp(x
            beta).
    """

    coefficients: Float[np.ndarray, " coefficient"]
    sums: Float[np.ndarray, "time entry entry"]


@dataclass(frozen=True)
class RiskSetMessage:
    """Risk-set sums of a site over all iterations of a survival model, or of several sites together.

    Attributes:
        levels: for each column of the design, codes of the levels that are in the model; the first is the reference.
        records: number of records of the site.
        times: event times of all sites, in ascending order.
        events: number of the site's events at each.
        rounded: distance of neighbouring numbers that can be sent; 0 for double precision.
    """

    levels: tuple[tuple[int, ...], ...]
    records: int
    times: Float[np.ndarray, " time"]
    events: Float[np.ndarray, " time"]
    steps: tuple[RiskStep, ...] = field(repr=False)
    rounded: float = 0.0

    @property
    def noise(self) -> tuple[float, float]:
        """Standard deviations of noise, of which there is none."""
        return 0.0, 0.0

    @property
    def at_zero(self) -> int | None:
        """Place of the first iteration at coefficients of zero, whose sums count records; None without one."""
        return next((k for k, step in enumerate(self.steps) if not step.coefficients.any()), None)

    def group(self, sums: Sequence[Float[np.ndarray, "entry entry"]], records: int) -> NewtonMessage:
        """Return sums of each iteration as those of a Poisson model, whose weights are exp(x beta), too."""
        steps = [
            NewtonStep(np.concatenate([[0.0], step.coefficients]), information)
            for step, information in zip(self.steps, sums, strict=True)
        ]
        return NewtonMessage("poisson", self.levels, records, tuple(steps), self.rounded)

    @property
    def first(self) -> NewtonMessage:
        """Sums of the records at risk at the first event time."""
        sums = [step.sums[0] for step in self.steps]
        return self.group(sums, round(float(sums[0][0, 0])))


@dataclass(frozen=True)
class RiskSetView:
    """Risk-set sums of a survival model at each event time, of a site or added up over several."""

    messages: tuple[RiskSetMessage, ...]

    @property
    def victims(self) -> int:
        """Number of victims."""
        return len(self.messages)


@dataclass(frozen=True)
class TablesMessage:
    """Tables of two runs that differ by some records: of every two columns or of single ones, the outcome the last.

    Attributes:
        levels: for each column, codes of the levels that tables have.
        records: number of records of the first run; 0 where there is one run alone, whose tables are ``after``.
        changed: number of records that the second run has beside them.
        before, after: numbers of records by the levels of columns i < j, under (i, j), or of one column, under (i,);
            NaN for those left out.
        base: multiple that numbers were rounded to; 0 for those that were not.
        nearest: whether that is the nearest multiple; else they were rounded up or down, such as at random.
        least: least number that is not left out, where that is known.
        summaries: figures of numbers in groups, of the second run and of the first, None where there is no first.
    """

    levels: tuple[tuple[int, ...], ...]
    records: int
    changed: int
    before: Mapping[tuple[int, ...], Float[np.ndarray, "... _"]] = field(repr=False)
    after: Mapping[tuple[int, ...], Float[np.ndarray, "... _"]] = field(repr=False)
    base: int = 0
    least: int | None = None
    summaries: tuple[tuple[kernel.Summary, kernel.Summary | None], ...] = field(repr=False, default=())
    nearest: bool = True

    @property
    def minimum(self) -> int:
        """Number of the added records that is above any which was left out."""
        return self.changed + 1 if self.records or self.least is None else self.least

    def totals(self, schema: Schema, labels: bool = False) -> kernel.Totals:
        """Return the kernel's question about the records that were added; ``labels`` makes their outcome a column."""
        target, last = schema.target, len(self.levels)
        assert isinstance(target, Discrete)
        tables = tuple(
            kernel.CountTable(
                pair, torch.from_numpy(table - self.before[pair] if self.records else table), self.minimum
            )
            for pair, table in self.after.items()
            if labels or last not in pair
        )
        summaries = tuple(
            pair for pair in self.summaries if labels or last not in {column for column, _ in pair[0].within}
        )
        columns = tuple(_encoded(c) for c in (*schema.columns, *([target] if labels else [])))
        levels = (*self.levels, *([tuple(range(target.width))] if labels else []))
        rounded = (self.base if self.nearest else 2 * max(self.base - 1, 0)) * (2.0 if self.records else 1.0)
        return kernel.Totals(
            columns, levels, "gaussian", self.changed, tables=tables, rounded=rounded, summaries=summaries
        )


@dataclass(frozen=True)
class TablesView:
    """Published cross tables of two runs that differ by some records."""

    messages: tuple[TablesMessage, ...]

    @property
    def victims(self) -> int:
        """Number of victims."""
        return len(self.messages)


def _encoded(column: Discrete | Continuous) -> kernel.EncodedColumn:
    assert isinstance(column, Discrete)
    return kernel.EncodedColumn(column.name, (), (), column.categories)


StatisticsView = NewtonView | RiskSetView | TablesView
StatisticsMessage = NewtonMessage | RiskSetMessage | TablesMessage


@dataclass(frozen=True)
class StatisticsKnowledge(Knowledge):
    """Side information about federated statistics: the model's design, and the number of records of each message.

    ``label_shares`` are the shares of the outcome's categories in the public rows; None for a number.
    """

    label_shares: Float[np.ndarray, " category"] | None = None

    def describe(self) -> dict[str, object]:
        """Return what is granted, as plain values for a result or report."""
        described = super().describe()
        del described["labels"]
        return {**described, "design": "levels of every column, and the coefficients of every iteration"}


@dataclass(frozen=True)
class StatisticsGuess(RecordsGuess):
    """Guessed records of each victim, with facts on the equations that they solve.

    Attributes:
        facts: for each victim, figures by name, such as the rank of the equations over the patterns.
    """

    facts: tuple[Mapping[str, float], ...] | None = None


def totals_of(message: NewtonMessage, schema: Schema, labels: bool = False, off: float = 0.0) -> kernel.Totals:
    """Return the kernel's question about a message; ``labels`` asks for patterns with an outcome.

    ``off`` is by how much sums may be off beyond their own roundings.
    """
    target = schema.target
    values = None
    if labels and isinstance(target, Discrete):
        values = tuple(outcomes(target)) if message.outcomes is None else message.outcomes
    times = message.records if message.means else 1
    tensor = lambda x: None if x is None else torch.from_numpy(np.asarray(x, dtype=np.float64)) * times  # noqa: E731
    steps = tuple(
        kernel.Step(
            None if s.coefficients is None else tuple(s.coefficients.tolist()),
            information=tensor(s.information),
            score=tensor(s.score),
            right=tensor(s.right),
            deviance=None if s.deviance is None else s.deviance * times,
            dispersion=None if s.dispersion is None else s.dispersion * times,
            mean=s.mean,
        )
        for s in message.steps
    )
    columns = tuple(_encoded(c) for c in schema.columns)
    defense = "noise" if any(message.noise) else "one_shot" if message.alone else "none"
    return kernel.Totals(
        columns, message.levels, message.family, message.records, steps,
        labels=values, rounded=message.rounded * times, off=off, defense=defense, means=message.means,
    )  # fmt: skip


def outcomes(target: Discrete) -> list[float]:
    """Return the number that stands for each code of an outcome: its value, or its place in the sorted order.

    Example:
        >>> outcomes(Discrete(name="ill", categories=("yes", "no")))
        [1.0, 0.0]
    """
    numbers = [c for c in target.categories if isinstance(c, int | float)]
    if len(numbers) == target.width and target.width > 2:
        return [float(number) for number in numbers]
    place = {code: float(i) for i, code in enumerate(target.sorted_codes)}
    return [place[code] for code in range(target.width)]


def rows_of(
    codes: Int[np.ndarray, "record column"], levels: tuple[tuple[int, ...], ...]
) -> Float[np.ndarray, "record _"]:
    """Return design rows: 1, then an entry of 0 or 1 for each level but the first of each column."""
    parts = [np.ones((len(codes), 1))]
    for i, column_levels in enumerate(levels):
        parts.append((codes[:, i, None] == np.array(column_levels[1:])[None]).astype(np.float64))
    return np.concatenate(parts, axis=1)
