"""A reproduced table on the terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from seepage.report.terminal import figures, make_table
from seepage.reproduce.compare import Compared
from seepage.reproduce.reproduce import TableComparison
from seepage.reproduce.table import Place, Unit
from seepage.results.agreement import FINE_MARGIN, MARGIN
from seepage.text import percent, points


def show_comparison(console: Console, comparison: TableComparison) -> None:
    """Print ours beside theirs, run by run, and what differs."""
    table = comparison.table
    console.print(Text(f"\n{table.name}: {table.title}", style="bold"))
    console.print(Text(f"{table.source}. Rates in percent, differences in points.\n"))
    if not comparison.cells:
        console.print(Text("Nothing has been measured yet."))
        return
    runs: dict[str, list[Compared]] = {}
    for cell in comparison.cells:
        runs.setdefault(cell.run, []).append(cell)
    for run, cells in runs.items():
        console.print(_table(run, table.axes, cells))
    for run, gains in comparison.gains.items():
        axes, constant = varying(table.axes, [gained.place for gained in gains])
        title = f"{run} less {table.first}, same victims{_constant_axes(constant)}"
        grid = make_table(title, [*map(_head, axes), *figures("points [95%]", "n")])
        for gained in gains:
            estimate = gained.gain
            between = "" if estimate.low is None else f" [{points(estimate.low)}, {points(estimate.high)}]"
            grid.add_row(
                *(str(gained.place.get(axis, "")) for axis in axes),
                f"{points(estimate.mean)}{between}",
                str(estimate.n),
            )
        console.print(grid)
    for note in (*table.notes, *comparison.notes):
        console.print(Text(f"Note: {note}."))
    _show_outcomes(console, comparison)


def _show_outcomes(console: Console, comparison: TableComparison) -> None:
    """Print how many cells have which outcome, and each that is shown to differ."""
    checked = [cell for cell in comparison.cells if cell.agreement is not None]
    if not checked:
        return
    counts = Counter(cell.agreement for cell in checked)
    shares = ", ".join(f"{number} {outcome}" for outcome, number in counts.most_common())
    console.print(
        Text(
            f"{comparison.table.first}: of {len(checked)} printed cells {shares} (margin {100 * MARGIN:g} points, "
            f"{100 * FINE_MARGIN:g} where the deviations are small enough; two one-sided Welch tests at 5%; a print "
            "without a deviation is taken at its word; 'open (9)': 9 units would tell, by the figures so far)."
        )
    )
    for cell in checked:
        where = ", ".join(f"{_head(axis)} {value}" for axis, value in cell.place.items())
        if cell.direction is not None:
            between = "" if cell.low is None else f" [{_change(cell.low, cell.unit)}, {_change(cell.high, cell.unit)}]"
            cause = "" if cell.cause is None else f"; cause {cell.cause} of docs/discrepancies.md"
            console.print(Text(f"  {cell.agreement}: {where}: {_change(cell.difference, cell.unit)}{between}{cause}"))


def varying(axes: Sequence[str], places: Sequence[Place]) -> tuple[list[str], Place]:
    """Return the axes on which places differ, and the values of the other axes."""
    differ = [axis for axis in axes if len({place.get(axis) for place in places}) > 1]
    return differ, {axis: places[0][axis] for axis in axes if axis not in differ and axis in places[0]}


def _table(run: str, axes: Sequence[str], cells: list[Compared]) -> Table:
    differ, constant = varying(axes, [cell.place for cell in cells])
    heads = []
    for axis in differ:
        number = all(isinstance(cell.place.get(axis, 0), int | float) for cell in cells)
        heads.append(Column(_head(axis), justify="right" if number else "left", no_wrap=True))
    names = ("ours ± sd", "n", "printed ± sd", "difference [95%]", "outcome", "best baseline", "lift", "s/victim")
    grid = make_table(f"{run}{_constant_axes(constant)}", [*heads, *figures(*names, no_wrap=True)])
    order = {axis: list(dict.fromkeys(cell.place.get(axis) for cell in cells)) for axis in differ}
    axes = sorted(differ, key=lambda axis: axis == "method")
    for cell in sorted(cells, key=lambda cell: [order[axis].index(cell.place.get(axis)) for axis in axes]):
        grid.add_row(
            *(str(cell.place.get(axis, "")) for axis in differ),
            _with_spread(cell.ours, cell.ours_std, cell.unit),
            str(cell.n),
            _with_spread(cell.published, cell.published_std, cell.unit),
            _change(cell.difference, cell.unit)
            + ("" if cell.low is None else f" [{_change(cell.low, cell.unit)}, {_change(cell.high, cell.unit)}]"),
            Text(_outcome(cell), style="red" if cell.direction == "below" else ""),
            "" if cell.guess is None or cell.unit == "plain" else f"{percent(cell.guess)} {cell.guess_name}",
            "" if cell.lift is None else _change(cell.lift, cell.unit),
            "" if cell.seconds_per_victim is None else f"{cell.seconds_per_victim:.2f}",
        )
    return grid


def _outcome(cell: Compared) -> str:
    return f"{cell.agreement or ''}" + (f" ({cell.needed})" if cell.needed is not None else "")


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
