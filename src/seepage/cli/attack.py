"""``seepage attack``: what captured messages give away."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from seepage.attacking.sources import PAGE, RESULTS, CaptureResult, open_source, options
from seepage.auditing import captured_report
from seepage.cli.app import app
from seepage.cli.exits import Exit, print_message, shown_path
from seepage.cli.options import options_from
from seepage.cli.running import exit_of
from seepage.files import make_folder, write_whole
from seepage.report.captured import captured_document, read_document
from seepage.report.page import page
from seepage.report.progress import Bar
from seepage.report.report import Report, verdicts_of
from seepage.report.terminal import make_console, show
from seepage.results.rows import as_csv, lifts_of
from seepage.results.rows import as_json as results_json
from seepage.settings.captured import RECONSTRUCTION


@app.command()
@options_from(options())
def attack(
    update: Annotated[
        Path,
        typer.Argument(
            help="The captured update (.safetensors), see seepage capture --help; a folder of those of many clients "
            "and rounds; the folder of a transcript of split or vertical training; that of a site's messages of "
            "federated statistics; or a client's trees as xgboost's JSON, or a folder with those of its rounds."
        ),
    ],
    *,
    given: dict[str, object],
    out: Annotated[Path | None, typer.Option(help="Folder for the results, made if need be. Required.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as JSON instead of tables.")] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Print all tables, checks and the threat model of scored updates, too.")
    ] = False,
) -> None:
    """Reconstruct the records behind captured updates, without knowing them.

    The folder gets reconstruction.csv (the records that were read), confidence.csv (how sure the attacker is of
    each cell: certainty from 0 to 1, and for numbers the spread of its attempts), results.json, results.csv and
    report.html, for their owner alone. Certainty is the attacker's own: attempts can agree and be wrong.

    Of a folder every update is attacked, and the rounds of one client are linked. Each update gets a folder in --out,
    all of them report.html and results.json. An update that cannot be attacked, or fails, is reported, and the others
    go on; the status is then 3.

    With --truth, figures, checks, gate and report are those of an audit.

    [bold]Examples[/bold]

        seepage attack update.safetensors --model nn3 --weights model.safetensors --schema people.yaml --out read

        seepage attack update.safetensors --model networks:build --schema people.yaml --truth batch.csv --out read

        seepage attack captured --model nn3 --schema people.yaml --proofs-only --out read

        seepage attack transcript --truth people.csv --out read

        seepage attack client.json --schema people.yaml --data public.csv --out read

        seepage attack sums --truth own.csv --out read
    """
    source = open_source(update, given, out)
    assert out is not None
    with Bar(make_console(stderr=True)) as bar:
        result = source(bar)
    attacked = result.attacked
    report = None if attacked is None else captured_report(attacked)
    plain = _write_files(out, result, report)
    if as_json:
        print(plain)
    else:
        _show_findings(out, result, report, verbose)
    decision = None if report is None else report.decision
    if decision is not None:
        print_message(decision.line)
    status = exit_of(decision, [], failed=result.incomplete)
    if status is not Exit.DONE:
        raise typer.Exit(status)


def _write_files(out: Path, result: CaptureResult, report: Report | None) -> str:
    """Write tables, page and results for their owner alone; return the results as JSON."""
    make_folder(out, private=True)
    for name, table in result.findings.files.items():
        write_whole(out / name, table.to_csv(index=False), private=True)
    origin = {} if report is None else report.origin
    write_whole(out / PAGE, page(captured_document(result.findings, report, origin)), private=True)
    rows = [] if report is None else report.rows
    lifts = [] if report is None else lifts_of(report.audit, report.runs)
    verdicts = [] if report is None else verdicts_of([report])
    write_whole(out / "results.csv", as_csv(rows), private=True)
    headline = [words for section in result.findings.sections for words in section.words]
    plain = results_json(rows, verdicts, lifts, {"headline": headline, **result.findings.figures})
    # Last: where it is, the others are whole.
    write_whole(out / RESULTS, plain + "\n", private=True)
    return plain


def _show_findings(out: Path, result: CaptureResult, report: Report | None, verbose: bool) -> None:
    """Print what was found, and where the files are."""
    console = make_console()
    show(console, read_document(result.findings))
    if report is not None and report.worst is not None:
        report.show(console, verbose)
    console.print(Text(f"Report: {shown_path(out / PAGE)}; results: {shown_path(out / RESULTS)}"))
    where = out / RECONSTRUCTION if result.findings.files else f"{out} (a folder an update)"
    console.print(Text(f"Read records: {shown_path(where)}"))
    if (written := result.certificate) is not None:
        console.print(Text(f"Certificate: {written}. File: {shown_path(written.certificate)}"))
        if written.opened is not None:
            opened = shown_path(written.opened)
            console.print(Text(f"Cells and salts, which are personal data, stay with you: {opened}"))
