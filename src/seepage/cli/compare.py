"""``seepage compare``."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from seepage.cli.app import app
from seepage.cli.exits import Exit, print_message, shown_path
from seepage.files import write_whole
from seepage.report.comparing import comparison_document
from seepage.report.page import page
from seepage.report.terminal import make_console, show
from seepage.results.compare import compare_runs, judge, load_run
from seepage.text import printable_json

_STATUS = {"passed": Exit.DONE, "undecided": Exit.UNDECIDED, "refused": Exit.JOBS_FAILED, "failed": Exit.GATE_FAILED}


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
        file = second / "compare.html" if out is None else out
        # Figures of a table of one's own are private, and nothing in results says whose they are.
        document = comparison_document(comparison, decision)
        write_whole(file, page(document), private=True)
        show(make_console(), document)
        print(f"Comparison: {shown_path(file)}")
    if decision is not None:
        print_message(decision.line)
        status = _STATUS[decision.outcome]
        if status is not Exit.DONE:
            raise typer.Exit(status)
