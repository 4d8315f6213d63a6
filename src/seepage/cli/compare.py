"""``seepage compare``."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.padding import Padding
from rich.table import Column
from rich.text import Text

from seepage.cli.app import app
from seepage.cli.exits import Exit, print_message, shown_path
from seepage.files import write_whole
from seepage.report.comparing import render_comparison
from seepage.report.terminal import figures, make_console, make_table
from seepage.results.compare import Comparison, Record, by_column, compare_runs, in_words, judge, load_run, overall
from seepage.text import clean, percent, points, printable_json, span

_STATUS = {"passed": Exit.DONE, "undecided": Exit.UNDECIDED, "refused": Exit.JOBS_FAILED, "failed": Exit.GATE_FAILED}
_MOST_ENTRIES = 20
_MOST_COLUMNS = 15


@app.command()
def compare(
    first: Annotated[Path, typer.Argument(help="Run folder.", metavar="OLD")],
    second: Annotated[Path, typer.Argument(help="Run folder that is compared with it.", metavar="NEW")],
    out: Annotated[
        Path | None, typer.Option(help="File of the page.", show_default="compare.html in the folder NEW")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the comparison as JSON instead of tables, and write no page.")
    ] = False,
    fail_if_worse: Annotated[
        bool,
        typer.Option(
            "--fail-if-worse",
            help="End with status 1 where leakage is shown to have risen, 4 where that is undecided, 3 where jobs of a "
            "run failed, and 0 where every figure is shown to have risen by less than the margin.",
        ),
    ] = False,
    margin: Annotated[float, typer.Option(help="Largest rise of a mean lift that is no reason to fail.")] = 0.1,
) -> None:
    """Lay two runs side by side: what differs between them, and every figure that both have.

    Reads results.json and provenance.json of both run folders and nothing else. Differences are the second run
    less the first, with a 95% interval. With [bold]--fail-if-worse[/bold] the exit status says whether the lifts of
    single victims, trainings or records rose, by the rule of the gate; without it, it is 0.

    [bold]Example[/bold]

        seepage compare runs/before runs/after --fail-if-worse
    """
    runs = load_run(first), load_run(second)
    comparison = compare_runs(*runs)
    decision = judge(*runs, margin) if fail_if_worse else None
    if as_json:
        print(printable_json(asdict(comparison)))
    else:
        page = second / "compare.html" if out is None else out
        # Figures of a table of one's own are private, and nothing in results says whose they are.
        write_whole(page, render_comparison(comparison, decision), private=True)
        console = make_console()
        _show(console, comparison)
        console.print(Text(f"Comparison: {shown_path(page)}"))
    if decision is not None:
        print_message(decision.line)
        status = _STATUS[decision.outcome]
        if status is not Exit.DONE:
            raise typer.Exit(status)


def _show(console: Console, comparison: Comparison) -> None:
    for sentence in in_words(comparison):
        console.print(Padding(Text(sentence), (0, 0, 0, 2)))
    console.print()
    if comparison.differing:
        heads = [Column(Text(clean(head)), overflow="fold") for head in ("entry", *comparison.names)]
        rows = [[Text(clean(cell, 60)) for cell in entry] for entry in comparison.differing[:_MOST_ENTRIES]]
        console.print(make_table("What differs, but for the time", heads, rows))
        if len(comparison.differing) > _MOST_ENTRIES:
            console.print(Text(f"  and {len(comparison.differing) - _MOST_ENTRIES} more\n", "dim"))
    if shares := overall(comparison):
        _show_figures(console, comparison, "Cells read, in percent [95% interval]", shares)
    clear = [record for record in by_column(comparison) if record["clear"]]
    if clear:
        title = f"Columns that differ clearly ({min(len(clear), _MOST_COLUMNS)} of {len(clear)})"
        _show_figures(console, comparison, title, clear[:_MOST_COLUMNS])


def _show_figures(console: Console, comparison: Comparison, title: str, records: list[Record]) -> None:
    columns = any(record["column"] is not None for record in records)
    defended = any(record["defense"] not in (None, "none") for record in records)
    heads = [
        *(["column"] if columns else []),
        *figures("batch"),
        *(["defense"] if defended else []),
        "attack",
        *(Column(Text(clean(name)), justify="right") for name in (*comparison.names, "difference")),
    ]
    rows = []
    for record in records:
        cells = [Text(clean(record["column"], 32))] if columns else []
        cells.append(Text("" if record["batch_size"] is None else str(record["batch_size"])))
        if defended:
            cells.append(Text(clean(record["defense"] or "", 32)))
        cells.append(Text(clean(record["attack"] or "", 32)))
        cells += [Text(f"{percent(s['mean'])} {span(s['low'], s['high'])}".strip()) for s in (record["a"], record["b"])]
        gained = f"{points(record['difference'])} {span(record['difference_low'], record['difference_high'])}".strip()
        cells.append(Text(gained, style="bold" if record["clear"] else ""))
        rows.append(cells)
    console.print(make_table(title, heads, rows))
