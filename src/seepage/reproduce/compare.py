"""Our figures beside the published ones."""

from __future__ import annotations

import csv
import io
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace

import torch

from seepage.assessment import Estimate, paired
from seepage.assessment.intervals import with_student
from seepage.assessment.row import ResultRow
from seepage.reproduce.causes import NO_SPAN, NONE_OF_OURS, SOMETHING_ELSE, WIDE_PRINT, cause_of
from seepage.reproduce.table import Place, PublishedTable, Reading, TableAudit, Unit
from seepage.results.agreement import Agreement, Basis, Direction, Judgement, judge, welch
from seepage.results.tuning import swept, tuned
from seepage.run.runner import Run
from seepage.settings.setting import About, Configuration


@dataclass(frozen=True)
class Compared:
    """One cell of a table: our figure, and the printed one where both are of the same thing; rates in [0, 1].

    Attributes:
        ours_std: unbiased standard deviation.
        published, published_std, published_n: the printed mean, its deviation and the number of units behind it; None
            where the table has no such figure, or has it of another attack than this run's.
        difference, low, high: our mean less the printed one, with its 95% interval.
        margin, agreement, direction, needed: see ``judge``; None where there is no printed figure.
        cause: code of the cause why ours differs or lies more than 20 points off, see ``docs/discrepancies.md``.
        reason: why the cell is not judgeable.
        guess, guess_name, lift: the best correct baseline on the same cells, and the gain over it.
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
    direction: Direction | None = None
    basis: Basis | None = None
    needed: int | None = None
    cause: str | None = None
    reason: str | None = None
    guess: float | None = None
    guess_name: str | None = None
    lift: float | None = None
    seconds_per_victim: float | None = None
    rows: int = 0


# A cell, with the name in results and the configuration that it is of.
Cell = tuple[Compared, str, Configuration]


def compare(audit: TableAudit, rows: Sequence[ResultRow], about: About) -> list[Cell]:
    """Return the cells of the comparison for one audit, without results that the table does not show."""
    cells, table, shown, once = [], audit.table, audit.shown, set[tuple[str, str, str | None]]()
    for row in rows:
        label, run, what = row.attack, shown.get(row.attack), (row.attack, row.metric, row.column)
        if run is None or audit.planned.tuned(label) or row.metric not in table.metrics:
            continue
        # Figures of all columns together and of single ones never stand in the same table.
        if ("column" in table.axes) == (row.column is None) or (label in table.once and what in once):
            continue
        once.add(what)
        configuration = Configuration(row.defense, row.batch_size)
        place = audit.place(label, row.metric, configuration, "label" if row.column == about.target else row.column)
        ours = Estimate(row.mean, row.low, row.high, row.n, row.std)
        cell = replace(
            beside(table, run, place, row.metric, _as_printed(ours, table.metrics[row.metric]), about.rows),
            guess=row.baseline,
            guess_name=row.baseline_name,
            lift=row.lift,
            seconds_per_victim=row.seconds_per_victim,
        )
        cells.append((cell, label, configuration))
    return cells


def compare_tuned(
    audit: TableAudit, configurations: Sequence[Configuration], runs: Sequence[Run], about: About
) -> list[Cell]:
    """Return the cells of attacks with a grid: the point that is best on the truth, and the one chosen on a pilot.

    Both are of the same victims, all but the first, on which the pilot's choice is made. What has not been measured
    at every point is left out.
    """
    cells, planned = [], audit.planned
    for attack, configuration in itertools.product(planned.grid, configurations):
        points = [run for run in swept(runs, attack) if run.configuration == configuration]
        wanted = sum(planned.tuned(part.title) == attack for part in audit.spec.attacks)
        units = {run.units for run in points}
        if len(points) < wanted or len(units) != 1 or len(points[0].units) < 2:
            continue
        pilot, oracle = tuned(points, points[0].units[:1])
        place = audit.place(points[0].label, "accuracy", configuration)
        seconds = sum(run.seconds or 0.0 for run in points)
        for name, recovered in ((planned.name, oracle), (f"{planned.name}, tuned on a pilot", pilot)):
            ours = _as_printed(recovered.estimate, audit.table.metrics["accuracy"])
            cell = beside(audit.table, name, place, "accuracy", ours, about.rows)
            cells.append((replace(cell, seconds_per_victim=seconds), points[0].label, configuration))
    return cells


def _as_printed(ours: Estimate, reading: Reading) -> Estimate:
    """Return an estimate with Student's t interval, the form of printed tables and of the judgement beside them."""
    return with_student(ours, (0.0, 1.0)) if reading.unit == "percent" else with_student(ours)


def beside(table: PublishedTable, run: str, place: Place, metric: str, ours: Estimate, rows: int) -> Compared:
    """Return an estimate with the figure that the table prints at the same place; no figure for baselines and times."""
    return _beside(table, run, place, table.metrics[metric], ours, rows)


def _beside(table: PublishedTable, run: str, place: Place, reading: Reading, ours: Estimate, rows: int) -> Compared:
    """Return ``beside`` of what a table prints: only the run that is as the paper's stands beside the print."""
    printed = table.figure(place, reading.unit) if run == table.first else None
    number = reading.published or table.published_victims
    published = printed.as_share(number) if printed is not None and table.binomial else printed
    difference = welch(ours, published, number) if published is not None and table.judges(place) else None
    judgement, cause, reason = Judgement(), None, None
    if published is not None:
        span = 1.0 if reading.unit == "percent" else reading.span
        if difference is not None and span is not None:
            judgement = judge(ours, published, number, span)
            rate = reading.unit == "percent"
            cause = cause_of(table, place, difference.mean if rate else 0.0, judgement)
            # More or less of a number that is no rate is not more or less leakage.
            judgement = judgement if rate else replace(judgement, direction=None)
        else:
            judgement = Judgement("not judgeable")
        if not table.judges(place):
            reason = SOMETHING_ELSE
        elif judgement.agreement == "not judgeable":
            reason = NONE_OF_OURS if difference is None else NO_SPAN if span is None else WIDE_PRINT
    spread = published is not None and published.std is not None
    return Compared(
        run=run,
        place=place,
        unit=reading.unit,
        ours=ours.mean,
        ours_std=ours.std,
        ours_low=ours.low,
        ours_high=ours.high,
        n=ours.n,
        published=None if printed is None else printed.mean,
        published_std=None if printed is None else printed.std,
        published_n=number if spread else None,
        difference=None if difference is None else difference.mean,
        low=None if difference is None else difference.low,
        high=None if difference is None else difference.high,
        **asdict(judgement),
        basis=None if published is None else published.basis if spread else "at its word",
        cause=cause,
        reason=reason,
        rows=rows,
    )


_VALUES = tuple(field.name for field in fields(Compared) if field.name not in ("run", "place"))
# The columns of a comparison that follow from what was measured and what is printed.
JUDGED = (
    *("published", "published_std", "published_n", "difference", "low", "high"),
    *("margin", "agreement", "direction", "basis", "needed", "cause", "reason"),
)


def judged_anew(table: PublishedTable, line: Mapping[str, str]) -> dict[str, str]:
    """Return a line of a table's ``comparison.csv`` with the columns about the print made anew; the rest stays."""
    place: Place = {axis: line[axis] for axis in table.axes}
    ours = Estimate(
        *(_float(line.get(name, "")) for name in ("ours", "ours_low", "ours_high")),
        n=int(line["n"]),
        std=_float(line.get("ours_std", "")),
    )
    cell = _beside(table, line["run"], place, table.reading(place), ours, 0)
    judged = {name: "" if (value := getattr(cell, name)) is None else str(_short(value)) for name in JUDGED}
    return {name: judged.get(name, line.get(name, "")) for name in ("run", *table.axes, *_VALUES, "commit")}


def _float(text: str) -> float | None:
    return float(text) if text else None


def as_csv(table: PublishedTable, cells: Sequence[Compared], commit: str = "") -> str:
    """Return the comparison as CSV text, a column each axis: None is empty, numbers have six digits."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["run", *table.axes, *_VALUES, "commit"])
    for cell in cells:
        where = [cell.place.get(axis, "") for axis in table.axes]
        writer.writerow([cell.run, *where, *(_short(getattr(cell, name)) for name in _VALUES), commit])
    return text.getvalue()


def _short(value: object) -> object:
    return f"{value:.6g}" if isinstance(value, float) else value


@dataclass(frozen=True)
class Gain:
    """The gain of one run over another: mean of the paired difference over the victims that both have."""

    place: Place
    gain: Estimate


def gain(metric: str, place: Place, ours: Run, other: Run) -> Gain:
    """Return how much ``ours`` scored above ``other`` on the same victims."""
    figures = [
        next(measured for measured in run.measured if (measured.metric, measured.column) == (metric, None))
        for run in (ours, other)
    ]
    both = sorted({*ours.units} & {*other.units})
    first, second = (
        torch.stack([figure.values[run.units.index(unit)] for unit in both])
        for figure, run in zip(figures, (ours, other), strict=True)
    )
    return Gain(place, paired(first, second, figures[0].bounds))
