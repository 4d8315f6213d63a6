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
from seepage.reproduce.table import Figure, Place, PlannedRun, Printed, PublishedTable, Unit
from seepage.results.rows import Row
from seepage.results.tuning import swept, tuned
from seepage.run.runner import Run
from seepage.settings.horizontal_spec import HorizontalSpec

# Within so much, or within the interval of the difference where that is wider, rates agree.
MARGIN = 0.02

Agreement = Literal["yes", "above", "below", "undetermined"]


@dataclass(frozen=True)
class Difference:
    """Ours less theirs.

    Attributes:
        mean: of the difference.
        low, high: 95% interval; None where ours has fewer than two victims.
        margin: within which figures agree in any case.
    """

    mean: float
    low: float | None
    high: float | None
    margin: float = MARGIN

    @property
    def agreement(self) -> Agreement:
        """Whether it is within the margin or the interval's half width, whichever is wider."""
        if abs(self.mean) <= self.margin:
            return "yes"
        if self.low is None or self.high is None:
            return "undetermined"
        if abs(self.mean) <= (self.high - self.low) / 2:
            return "yes"
        return "above" if self.mean > 0 else "below"


def welch(ours: Estimate, published: Figure, published_victims: int, margin: float = MARGIN) -> Difference | None:
    """Return ours less theirs with Welch's t interval (unequal variances, unequal numbers of victims).

    The published standard deviations are population ones and are corrected to unbiased ones. A published figure
    without one is taken as exact: the interval is then that of ours alone.

    Args:
        ours: our estimate; None is returned where it has no mean.
        published: their figure.
        published_victims: number behind it.
        margin: see ``Difference``.

    Example:
        >>> difference = welch(Estimate(0.80, None, None, 20, 0.04), Figure(mean=0.79, std=0.05), 50)
        >>> round(difference.low, 4), round(difference.high, 4)
        (-0.0131, 0.0331)
    """
    if ours.mean is None:
        return None
    mean = ours.mean - published.mean
    if published.std is None and ours.low is not None and ours.high is not None:
        return Difference(mean, ours.low - published.mean, ours.high - published.mean, margin)
    if published.std is None or ours.std is None or ours.n < 2:
        return Difference(mean, None, None, margin)
    one, other = ours.std**2 / ours.n, published.std**2 / (published_victims - 1)
    if one + other == 0:
        return Difference(mean, mean, mean, margin)
    freedom = (one + other) ** 2 / (one**2 / (ours.n - 1) + other**2 / (published_victims - 1))
    half = float(stats.t.ppf(0.975, freedom)) * math.sqrt(one + other)
    return Difference(mean, mean - half, mean + half, margin)


@dataclass(frozen=True)
class Compared:
    """One cell of a table, ours and theirs; rates in [0, 1].

    Attributes:
        run: which.
        place: its value on each axis of the table.
        unit: of its numbers in print.
        ours, ours_std, n: our mean, unbiased standard deviation and number of victims (or trainings).
        published, published_std: theirs, None where the table has no such figure.
        difference, low, high: ours less theirs, with its 95% interval.
        agrees: see ``Difference``; None without a published figure.
        guess, guess_name, lift: the best correct baseline on the same cells, and the gain over it.
        seconds_per_victim: the attack took; None for what is no attack.
        rows: of the data set, as far as it was at hand.
    """

    run: str
    place: Place
    unit: Unit
    ours: float | None
    ours_std: float | None
    n: int
    published: float | None
    published_std: float | None
    difference: float | None
    low: float | None
    high: float | None
    agrees: Agreement | None
    guess: float | None
    guess_name: str | None
    lift: float | None
    seconds_per_victim: float | None
    rows: int


def compare(
    table: PublishedTable, planned: PlannedRun, spec: HorizontalSpec, made: Sequence[Row], rows: int
) -> list[Compared]:
    """Return the cells of one audit, those of baselines that are held against nothing left out.

    Args:
        table, planned, spec: whose it is.
        made: its results.
        rows: of its data set.
    """
    cells = []
    for row in made:
        if row["metric"] not in table.metrics or row["column"] is not None:
            continue
        called = str(row["attack"])
        if planned.tuned(called) or not (row["is_attack"] or called in planned.compared):
            continue
        place = table.place(
            planned, spec, called, row["metric"], batch_size=row["batch_size"], defense=str(row["defense"])
        )
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
    """Return an estimate beside what the table prints in that place; no guess, no time."""
    reading = table.metrics[metric]
    published = table.figure(place, reading.unit)
    difference = None
    if published is not None and table.judged:
        margin = MARGIN if reading.unit == "percent" else 0.0
        difference = welch(ours, published, reading.published or table.published_victims, margin)
    return Compared(
        run=run,
        place=place,
        unit=reading.unit,
        ours=ours.mean,
        ours_std=ours.std,
        n=ours.n,
        published=None if published is None else published.mean,
        published_std=None if published is None else published.std,
        difference=None if difference is None else difference.mean,
        low=None if difference is None else difference.low,
        high=None if difference is None else difference.high,
        agrees=None if difference is None else difference.agreement,
        guess=None,
        guess_name=None,
        lift=None,
        seconds_per_victim=None,
        rows=rows,
    )


def of_row(table: Printed, run: str, place: Place, row: Row, rows: int) -> Compared:
    """Return a row of results beside what the table prints in that place.

    Args:
        table, run, place: where it belongs.
        row: of an audit or a study.
        rows: of its data set.
    """
    estimate = Estimate(row["mean"], row["low"], row["high"], row["n"], row["std"])
    return replace(
        beside(table, run, place, str(row["metric"]), estimate, rows),
        guess=row["baseline"],
        guess_name=row["baseline_name"],
        lift=row["lift"],
        seconds_per_victim=row["seconds_per_victim"],
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
