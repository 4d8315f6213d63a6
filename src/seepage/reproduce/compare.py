"""Our figures beside the published ones."""

from __future__ import annotations

import csv
import io
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Literal

import torch
from scipy import stats

from seepage.assessment import Estimate, Measurement, paired
from seepage.assessment.row import ResultRow
from seepage.reproduce.table import Figure, Place, PlannedRun, Printed, PublishedTable, Unit
from seepage.results.tuning import swept, tuned
from seepage.run.runner import Run
from seepage.settings.horizontal_spec import HorizontalSpec

# Margins of agreement, in rates. The finer one serves where both deviations are small enough for it.
MARGIN, FINE_MARGIN = 0.05, 0.02
# One-sided level of each test, and the power that the finer margin asks for where both means are alike.
LEVEL, POWER = 0.05, 0.8

Agreement = Literal["agrees", "differs", "too few to tell"]


@dataclass(frozen=True)
class Difference:
    """Our mean less the printed one.

    Attributes:
        mean: the difference.
        low, high: its 95% interval (Welch); None where ours or the print has no deviation.
    """

    mean: float
    low: float | None
    high: float | None


def welch(ours: Estimate, published: Figure, published_n: int) -> Difference | None:
    """Return our mean less the printed one, with Welch's t interval (unequal variances, unequal numbers of units).

    Printed standard deviations are population ones and are corrected to unbiased ones.

    Args:
        ours: our estimate; None is returned where it has no mean.
        published: the printed figure.
        published_n: number of units behind it.

    Example:
        >>> difference = welch(Estimate(0.80, None, None, 20, 0.04), Figure(mean=0.79, std=0.05), 50)
        >>> round(difference.low, 4), round(difference.high, 4)
        (-0.0131, 0.0331)
    """
    if ours.mean is None:
        return None
    mean = ours.mean - published.mean
    std = _deviation(ours)
    if published.std is None or std is None:
        return Difference(mean, None, None)
    one, other = std**2 / ours.n, published.std**2 / (published_n - 1)
    if one + other == 0:
        return Difference(mean, mean, mean)
    freedom = (one + other) ** 2 / (one**2 / (ours.n - 1) + other**2 / (published_n - 1))
    half = float(stats.t.ppf(0.975, freedom)) * math.sqrt(one + other)
    return Difference(mean, mean - half, mean + half)


def margin_of(ours: Estimate, published: Figure, published_n: int) -> float | None:
    """Return the margin within which a rate counts as the printed one.

    It depends on deviations and numbers of units alone, never on the difference: the finer margin is taken where two
    like means would be found to agree within it with a power of 0.8.

    Args:
        ours: our estimate.
        published: the printed figure.
        published_n: number of units behind it.

    Returns:
        The margin; None where ours or the print has no deviation.

    Example:
        >>> margin_of(Estimate(0.8, None, None, 20, 0.05), Figure(mean=0.8, std=0.05), 50)
        0.05
        >>> margin_of(Estimate(0.8, None, None, 10, 0.002), Figure(mean=0.8, std=0.001), 5)
        0.02
    """
    std = _deviation(ours)
    if published.std is None or std is None:
        return None
    variance = std**2 / ours.n + published.std**2 / (published_n - 1)
    needed = float(stats.norm.ppf(1 - LEVEL) + stats.norm.ppf((1 + POWER) / 2))
    return FINE_MARGIN if variance <= (FINE_MARGIN / needed) ** 2 else MARGIN


def agreement_of(ours: Estimate, published: Figure, published_n: int) -> Agreement:
    """Return whether our mean agrees with the printed one.

    With the difference d, its standard error se, the 95% quantile q of Welch's t and the margin D: ``agrees`` where
    ``|d| + q se < D``, ``differs`` where ``|d| - q se > D``, ``too few to tell`` otherwise, and always where the print
    does not say what its deviation is of.

    Args:
        ours: our estimate.
        published: the printed figure.
        published_n: number of units behind it.

    Example:
        >>> agreement_of(Estimate(0.80, None, None, 20, 0.04), Figure(mean=0.79, std=0.05), 50)
        'agrees'
        >>> agreement_of(Estimate(0.80, None, None, 3, 0.04), Figure(mean=0.79, std=0.05), 50)
        'too few to tell'
    """
    std, margin = _deviation(ours), margin_of(ours, published, published_n)
    if margin is None or std is None or ours.mean is None or published.std is None:
        return "too few to tell"
    if std == published.std == 0:
        # Without any deviation the t statistic is not defined, and the difference is exact.
        return "agrees" if abs(ours.mean - published.mean) < margin else "differs"
    unbiased = published.std * math.sqrt(published_n / (published_n - 1))
    # p-values of 'not above the lower limit' and 'not below the upper limit'.
    low, high = (
        float(
            stats.ttest_ind_from_stats(
                ours.mean, std, ours.n, limit, unbiased, published_n, equal_var=False, alternative=side
            ).pvalue
        )
        for limit, side in ((published.mean - margin, "greater"), (published.mean + margin, "less"))
    )
    if max(low, high) < LEVEL:
        return "agrees"
    return "differs" if max(low, high) > 1 - LEVEL else "too few to tell"


def _deviation(ours: Estimate) -> float | None:
    """Return the standard deviation of an estimate, from its interval where it is not given."""
    if ours.n < 2 or ours.std is not None:
        return ours.std if ours.n >= 2 else None
    if ours.low is None or ours.high is None:
        return None
    return (ours.high - ours.low) / 2 / float(stats.t.ppf(0.975, ours.n - 1)) * math.sqrt(ours.n)


@dataclass(frozen=True)
class Compared:
    """One cell of a table: our figure, and the printed one where both are of the same thing; rates in [0, 1].

    Attributes:
        run: name of the run.
        place: its value on each axis of the table.
        unit: unit of its numbers in print.
        ours, ours_std, n: our mean, unbiased standard deviation and number of victims (or trainings).
        ours_low, ours_high: 95% interval of our mean.
        published, published_std, published_n: the printed mean, its deviation and the number of units behind it; None
            where the table has no such figure, or has it of another attack than this run's.
        difference, low, high: our mean less the printed one, with its 95% interval.
        margin, agreement: see ``agreement_of``; None where there is nothing to judge.
        guess, guess_name, lift: the best correct baseline on the same cells, and the gain over it.
        seconds_per_victim: time of the attack; None for what is no attack.
        rows: number of rows of the data set, as far as it was at hand.
    """

    run: str
    place: Place
    unit: Unit
    ours: float | None
    ours_std: float | None
    ours_low: float | None
    ours_high: float | None
    n: int
    published: float | None
    published_std: float | None
    published_n: int | None
    difference: float | None
    low: float | None
    high: float | None
    margin: float | None
    agreement: Agreement | None
    guess: float | None
    guess_name: str | None
    lift: float | None
    seconds_per_victim: float | None
    rows: int


def compare(
    table: PublishedTable, planned: PlannedRun, spec: HorizontalSpec, made: Sequence[ResultRow], rows: int
) -> list[Compared]:
    """Return the cells of one audit, those of baselines that are held against nothing left out.

    Args:
        table, planned, spec: whose it is.
        made: its results.
        rows: of its data set.
    """
    cells = []
    for row in made:
        if row.metric not in table.metrics or row.column is not None:
            continue
        called = row.attack
        if planned.tuned(called) or not (row.is_attack or called in planned.compared):
            continue
        place = table.place(planned, spec, called, row.metric, batch_size=row.batch_size, defense=row.defense)
        cells.append(of_row(table, planned.name, place, row, rows))
    return cells


def compare_tuned(
    table: PublishedTable, planned: PlannedRun, spec: HorizontalSpec, runs: Sequence[Run], rows: int
) -> list[Compared]:
    """Return the cells of attacks with a grid: the point that is best on the truth, and the one chosen on a pilot.

    Both are of the same victims, all but the first, on which the pilot's choice is made. What has not been measured
    at every point is left out.

    Args:
        table, planned, spec: whose they are.
        runs: what was measured.
        rows: of the data set.
    """
    cells = []
    for attack, size, defense in itertools.product(planned.grid, spec.batch_sizes, spec.defenses):
        points = [run for run in swept(runs, attack) if (run.batch_size, run.defense) == (size, defense.called)]
        wanted = sum(planned.tuned(part.called) == attack for part in spec.attacks)
        victims = {run.victims for run in points}
        if len(points) < wanted or len(victims) != 1 or len(points[0].victims) < 2:
            continue
        pilot, oracle = tuned(points, points[0].victims[:1])
        place = table.place(planned, spec, points[0].called, "accuracy", batch_size=size, defense=defense.called)
        seconds = sum(run.seconds or 0.0 for run in points)
        for name, found in ((planned.name, oracle), (f"{planned.name}, tuned on a pilot", pilot)):
            cell = beside(table, name, place, "accuracy", found.estimate, rows)
            cells.append(replace(cell, seconds_per_victim=seconds))
    return cells


def beside(table: Printed, run: str, place: Place, metric: str, ours: Estimate, rows: int) -> Compared:
    """Return an estimate beside what the table prints in that place; no guess, no time.

    Only the run that is as the paper's stands beside the print. Figures that are no rates have no margin in points and
    get no verdict.

    Args:
        table: the printed table.
        run: name of the run.
        place: value on each axis.
        metric: name in results.
        ours: our estimate.
        rows: number of rows of the data set.
    """
    reading = table.metrics[metric]
    published = table.figure(place, reading.unit) if run == table.first else None
    number = reading.published or table.published_victims
    alike = published is not None and table.judges(place)
    # A deviation of nobody knows what is shown, but not calculated with.
    told = published if table.spread_stated or published is None else Figure(mean=published.mean, std=None)
    difference = welch(ours, told, number) if told is not None and alike else None
    rate = difference is not None and reading.unit == "percent"
    return Compared(
        run=run,
        place=place,
        unit=reading.unit,
        ours=ours.mean,
        ours_std=ours.std,
        ours_low=ours.low,
        ours_high=ours.high,
        n=ours.n,
        published=None if published is None else published.mean,
        published_std=None if published is None else published.std,
        published_n=None if told is None or told.std is None else number,
        difference=None if difference is None else difference.mean,
        low=None if difference is None else difference.low,
        high=None if difference is None else difference.high,
        margin=margin_of(ours, told, number) if rate and told is not None else None,
        agreement=agreement_of(ours, told, number) if rate and told is not None else None,
        guess=None,
        guess_name=None,
        lift=None,
        seconds_per_victim=None,
        rows=rows,
    )


def of_row(table: Printed, run: str, place: Place, row: ResultRow, rows: int) -> Compared:
    """Return a row of results beside what the table prints in that place.

    Args:
        table, run, place: where it belongs.
        row: of an audit or a study.
        rows: of its data set.
    """
    estimate = Estimate(row.mean, row.low, row.high, row.n, row.std)
    return replace(
        beside(table, run, place, row.metric, estimate, rows),
        guess=row.baseline,
        guess_name=row.baseline_name,
        lift=row.lift,
        seconds_per_victim=row.seconds_per_victim,
    )


def as_csv(table: Printed, cells: Sequence[Compared], commit: str = "") -> str:
    """Return the comparison as CSV text: None is empty, numbers have six digits.

    Args:
        table: gives the axes, a column each.
        cells: a line each.
        commit: of the program that measured them.
    """
    values = [field.name for field in fields(Compared) if field.name not in ("run", "place")]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["run", *table.axes, *values, "commit"])
    for cell in cells:
        where = [cell.place.get(axis, "") for axis in table.axes]
        writer.writerow([cell.run, *where, *(_short(getattr(cell, name)) for name in values), commit])
    return text.getvalue()


def _short(value: object) -> object:
    return f"{value:.6g}" if isinstance(value, float) else value


@dataclass(frozen=True)
class Gain:
    """One run against another on the same victims.

    Attributes:
        place: its value on each axis of the table.
        gain: mean of the paired difference over the victims that both have, with its interval.
    """

    place: Place
    gain: Estimate


def gain(metric: str, place: Place, ours: Run, other: Run) -> Gain:
    """Return how much ``ours`` scored above ``other`` on the same victims."""
    values = [
        next(
            measured.values
            for measured in run.measured
            if isinstance(measured, Measurement) and (measured.metric, measured.column) == (metric, None)
        )
        for run in (ours, other)
    ]
    both = sorted({*ours.victims} & {*other.victims})
    first, second = (
        torch.stack([v[run.victims.index(victim)] for victim in both])
        for v, run in zip(values, (ours, other), strict=True)
    )
    return Gain(place, paired(first, second))
