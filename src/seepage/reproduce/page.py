"""A reproduced table as a document."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from seepage.report.document import Block, Document, Grid, GridCell, Points, Section, heads, rows_of
from seepage.reproduce.compare import Compared
from seepage.reproduce.reproduce import TableComparison
from seepage.reproduce.table import Place, Unit
from seepage.results.agreement import FINE_MARGIN, MARGIN
from seepage.text import percent, points


def table_document(comparison: TableComparison) -> Document:
    """Return ours beside theirs, run by run, and what differs."""
    table = comparison.table
    blocks: list[Block] = [f"{table.source}. Rates in percent, differences in points."]
    if not comparison.cells:
        blocks.append("Nothing has been measured yet.")
    runs: dict[str, list[Compared]] = {}
    for cell in comparison.cells:
        runs.setdefault(cell.run, []).append(cell)
    blocks += [_grid(run, table.axes, cells) for run, cells in runs.items()]
    for run, gains in comparison.gains.items():
        axes, constant = varying(table.axes, [gained.place for gained in gains])
        lines = []
        for gained in gains:
            estimate = gained.gain
            between = "" if estimate.low is None else f" [{points(estimate.low)}, {points(estimate.high)}]"
            gain = f"{points(estimate.mean)}{between}"
            lines.append([*(str(gained.place.get(axis, "")) for axis in axes), gain, str(estimate.n)])
        numbers = ("points [95%]", "n")
        columns = heads(*map(_head, axes), *numbers, numbers=numbers)
        title = f"{run} less {table.first}, same victims{_constant_axes(constant)}"
        blocks.append(Grid(title, columns, rows_of(lines), most=None))
    if comparison.cells:
        blocks += [f"Note: {note}." for note in (*table.notes, *comparison.notes)]
    title = f"{table.name}: {table.title}"
    return Document(title, [Section(table.name, title, [*blocks, *_outcomes(comparison)])])


def _outcomes(comparison: TableComparison) -> list[Block]:
    """Return how many cells have which outcome, and each that is shown to differ."""
    checked = [cell for cell in comparison.cells if cell.agreement is not None]
    if not checked:
        return []
    counts = Counter(cell.agreement for cell in checked)
    shares = ", ".join(f"{number} {outcome}" for outcome, number in counts.most_common())
    differing = []
    for cell in checked:
        where = ", ".join(f"{_head(axis)} {value}" for axis, value in cell.place.items())
        if cell.direction is not None:
            between = "" if cell.low is None else f" [{_change(cell.low, cell.unit)}, {_change(cell.high, cell.unit)}]"
            cause = "" if cell.cause is None else f"; cause {cell.cause} of docs/discrepancies.md"
            differing.append(f"{cell.agreement}: {where}: {_change(cell.difference, cell.unit)}{between}{cause}")
    return [
        f"{comparison.table.first}: of {len(checked)} printed cells {shares} (margin {100 * MARGIN:g} points, "
        f"{100 * FINE_MARGIN:g} where the deviations are small enough; two one-sided Welch tests at 5%; a print "
        "without a deviation is taken at its word; 'open (9)': 9 units would tell, by the figures so far).",
        *([Points(differing)] if differing else []),
    ]


def varying(axes: Sequence[str], places: Sequence[Place]) -> tuple[list[str], Place]:
    """Return the axes on which places differ, and the values of the other axes."""
    differ = [axis for axis in axes if len({place.get(axis) for place in places}) > 1]
    return differ, {axis: places[0][axis] for axis in axes if axis not in differ and axis in places[0]}


def _grid(run: str, axes: Sequence[str], cells: list[Compared]) -> Grid:
    differ, constant = varying(axes, [cell.place for cell in cells])
    amounts = [axis for axis in differ if all(isinstance(cell.place.get(axis, 0), int | float) for cell in cells)]
    names = ("ours ± sd", "n", "printed ± sd", "difference [95%]", "outcome", "best baseline", "lift", "s/victim")
    columns = heads(*map(_head, differ), *names, numbers=[*map(_head, amounts), *names])
    order = {axis: list(dict.fromkeys(cell.place.get(axis) for cell in cells)) for axis in differ}
    axes = sorted(differ, key=lambda axis: axis == "method")
    lines = []
    for cell in sorted(cells, key=lambda cell: [order[axis].index(cell.place.get(axis)) for axis in axes]):
        between = "" if cell.low is None else f" [{_change(cell.low, cell.unit)}, {_change(cell.high, cell.unit)}]"
        needed = "" if cell.needed is None else f" ({cell.needed})"
        outcome = f"{cell.agreement or ''}{needed}"
        lines.append(
            [
                *(str(cell.place.get(axis, "")) for axis in differ),
                _with_spread(cell.ours, cell.ours_std, cell.unit),
                str(cell.n),
                _with_spread(cell.published, cell.published_std, cell.unit),
                f"{_change(cell.difference, cell.unit)}{between}",
                GridCell(outcome, outcome, "tier mostly" if cell.direction == "below" else None),
                "" if cell.guess is None or cell.unit == "plain" else f"{percent(cell.guess)} {cell.guess_name}",
                "" if cell.lift is None else _change(cell.lift, cell.unit),
                "" if cell.seconds_per_victim is None else f"{cell.seconds_per_victim:.2f}",
            ]
        )
    return Grid(f"{run}{_constant_axes(constant)}", columns, rows_of(lines), most=None)


def _head(axis: str) -> str:
    return "batch" if axis == "batch_size" else axis.replace("_", " ")


def _constant_axes(constant: Place) -> str:
    return "".join(f", {_head(axis)} {value}" for axis, value in constant.items())


def _change(difference: float | None, unit: Unit) -> str:
    if unit == "percent":
        return points(difference)
    return "–" if difference is None else f"{difference:+.2f}"


def _with_spread(mean: float | None, std: float | None, unit: Unit) -> str:
    if mean is None:
        return "–"
    by, digits = (100, 1) if unit == "percent" else (1, 2)
    return f"{by * mean:.{digits}f}" + ("" if std is None else f" ± {by * std:.{digits}f}")
