"""What the columns of a table were taken for, on the terminal."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from seepage.report.terminal import make_table
from seepage.tabular.infer import Inferred
from seepage.text import clean

_COLUMNS = 40


def show_inferred(console: Console, inferred: Inferred) -> None:
    """Print a line a column: what it was taken for and why; those left out first, where there are many.

    Args:
        console: where to.
        inferred: what was found.
    """
    columns = inferred.columns
    shown = columns
    if len(columns) > _COLUMNS:
        shown = sorted(columns, key=lambda column: column.taken != "left out")[:_COLUMNS]
    counts = {kind: sum(column.taken == kind for column in columns) for kind in ("discrete", "continuous", "left out")}
    table = make_table(
        f"Columns as inferred from {inferred.rows:,} rows: "
        + ", ".join(f"{count} {kind}" for kind, count in counts.items())
        + f"; {inferred.schema.width:,} encoded"
    )
    for name in ("column", "taken as", "because"):
        table.add_column(name)
    for column in shown:
        marks = " (target)" if column.name == inferred.schema.target.name else ""
        style = "yellow" if column.taken == "left out" else ""
        table.add_row(Text(clean(column.name, 32) + marks), Text(column.taken, style), Text(clean(column.why, 120)))
    console.print(table)
    if len(columns) > len(shown):
        console.print(Text(f"  ... and {len(columns) - len(shown)} more columns."))
    console.print(Text("  Write it down with seepage schema, correct it and give it with --schema.\n", "dim"))
