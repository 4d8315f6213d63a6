"""A reproduced table on the terminal."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from seepage.report import make_table
from seepage.report.text import percent, points
from seepage.reproduce.compare import MARGIN, Compared
from seepage.reproduce.reproduce import Comparison


def show_comparison(console: Console, comparison: Comparison) -> None:
    """Print ours beside theirs, run by run, and what differs."""
    table = comparison.table
    console.print(Text(f"\n{table.name}: {table.title}", style="bold"))
    console.print(
        Text(f"{table.source}; {table.published_victims} batches. Rates in percent, differences in points.\n")
    )
    if not comparison.cells:
        console.print(Text("Nothing has been measured yet."))
        return
    groups: dict[tuple[str, str], list[Compared]] = {}
    for cell in comparison.cells:
        groups.setdefault((cell.run, cell.labels), []).append(cell)
    for (run, labels), cells in groups.items():
        console.print(_table(run, labels, cells))
    for run, gains in comparison.gains.items():
        grid = make_table(f"{run} less {table.runs[0].name}, same victims")
        for name in ("method", "labels", "batch", "points [95%]", "n"):
            grid.add_column(name, justify="left" if name in ("method", "labels") else "right")
        for gained in sorted(gains, key=lambda g: (g.method, g.batch_size)):
            estimate = gained.gain
            between = "" if estimate.low is None else f" [{points(estimate.low)}, {points(estimate.high)}]"
            grid.add_row(
                gained.method,
                gained.labels,
                str(gained.batch_size),
                f"{points(estimate.mean)}{between}",
                str(estimate.n),
            )
        console.print(grid)
    # A run meant to be stronger is not expected to agree.
    checked = [cell for cell in comparison.cells if cell.run == table.runs[0].name and cell.agrees is not None]
    off = [cell for cell in checked if cell.agrees in ("above", "below")]
    unsure = [cell for cell in checked if cell.agrees == "undetermined"]
    console.print(
        Text(
            f"{table.runs[0].name}: {len(checked) - len(off) - len(unsure)} of {len(checked)} cells agree with the "
            f"print (within {100 * MARGIN:g} points or the half width of the difference's 95% interval)"
            + (f"; {len(unsure)} have too few victims to tell" if unsure else "")
            + "."
        )
    )
    for cell in off:
        console.print(
            Text(
                f"  {cell.agrees}: {cell.method}, {cell.labels} labels, batch size {cell.batch_size}: "
                f"{points(cell.difference)} [{points(cell.low)}, {points(cell.high)}]"
            )
        )


def _table(run: str, labels: str, cells: list[Compared]) -> Table:
    grid = make_table(f"{run}, {labels} labels")
    grid.add_column("method", no_wrap=True)
    for name in ("batch", "ours ± sd", "n", "printed ± sd", "difference [95%]", "", "best guess", "lift", "s/victim"):
        grid.add_column(name, justify="right", no_wrap=True)
    for cell in sorted(cells, key=lambda cell: (cell.batch_size,)):
        grid.add_row(
            cell.method,
            str(cell.batch_size),
            _with_spread(cell.ours, cell.ours_std),
            str(cell.n),
            _with_spread(cell.published, cell.published_std),
            points(cell.difference) + ("" if cell.low is None else f" [{points(cell.low)}, {points(cell.high)}]"),
            Text(
                {"yes": "✓", "above": "↑", "below": "↓", "undetermined": "?"}.get(cell.agrees or "", ""),
                style="red" if cell.agrees == "below" else "",
            ),
            "" if cell.guess is None else f"{percent(cell.guess)} {cell.guess_name}",
            "" if cell.lift is None else points(cell.lift),
            "" if cell.seconds_per_victim is None else f"{cell.seconds_per_victim:.2f}",
        )
    return grid


def _with_spread(mean: float | None, std: float | None) -> str:
    return "–" if mean is None else f"{100 * mean:.1f}" + ("" if std is None else f" ± {100 * std:.1f}")
