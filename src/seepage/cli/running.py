"""Running audits from the command line: progress, tables, the gate and the exit status."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, process_time

import typer

from seepage.auditing import check_place, fitting, run_all
from seepage.cli.app import interruptible, new_folder
from seepage.cli.exits import Exit, print_message, shown_path
from seepage.cli.options import THIS_MACHINE, ClusterOptions
from seepage.errors import BadInputError, Remedy
from seepage.files import check_out, write_whole
from seepage.report.inferred import guesses, inferred_document
from seepage.report.junit import junit
from seepage.report.progress import Bar
from seepage.report.report import Report, verdicts_of
from seepage.report.sarif import sarif
from seepage.report.sections import FILE as PAGE
from seepage.report.sections import run_document
from seepage.report.terminal import SCREEN_WIDTH, TABLE_WIDTH, make_console, show
from seepage.results.gate import Decision, combined, needed
from seepage.results.rows import as_json as results_json
from seepage.run.runner import Listener
from seepage.settings.command import quoted
from seepage.settings.spec import Spec

_ENDINGS = {"--junit": (".xml",), "--sarif": (".sarif", ".sarif.json")}


@dataclass(frozen=True)
class Answers:
    """Files in which a pipeline reads what a gate says about a document."""

    junit: Path | None = None
    sarif: Path | None = None
    document: Path | None = None

    def check(self, specs: Sequence[Spec]) -> None:
        """Refuse files that cannot be written, and files about a gate that is not there."""
        given = {name: path for name, path in (("--junit", self.junit), ("--sarif", self.sarif)) if path is not None}
        for name, path in given.items():
            if all(spec.gate is None for spec in specs):
                raise BadInputError(
                    f"{name} writes what a gate says, and this audit has no gate; give --fail-above 0.2, for example."
                )
            endings = _ENDINGS[name]
            # Nothing else that a run reads or writes ends like this, so that no result is written over.
            if not path.name.endswith(endings) or (path.exists() and not path.is_file()):
                raise BadInputError(f"{name} takes the name of a file that ends in {endings[0]}, got {str(path)!r}.")
            folder = next(folder for folder in path.resolve().parents if folder.exists())
            if not folder.is_dir() or not os.access(folder, os.W_OK):
                raise BadInputError(f"{name} {str(path)!r} cannot be written; name a folder that may be written to.")

    def write(self, reports: Sequence[Report], status: Exit, place: Path) -> None:
        """Write the files."""
        private, page = any(report.audit.own for report in reports), place / PAGE
        if self.junit is not None:
            write_whole(self.junit.resolve(), junit(reports, page), private)
        if self.sarif is not None:
            write_whole(self.sarif.resolve(), sarif(reports, status, self.document or page), private)


_NOWHERE = Answers()


def run(
    specs: Sequence[Spec],
    out: Path | None,
    wording: Callable[[Remedy, type[Spec]], str],
    *,
    as_json: bool = False,
    quiet: bool = False,
    verbose: bool = False,
    document_text: str | None = None,
    cluster: ClusterOptions = THIS_MACHINE,
    given: Collection[str] | None = None,
    answers: Answers = _NOWHERE,
) -> None:
    """Run audits with a progress bar, print what they found, and decide a gate.

    ``wording`` words fields that messages advise to give, as the table was named: in a document, or by options.
    Default parts that do not fit table or network are not tried, with a line that says why; ``given`` are the fields
    that the user gave, those of the specs if None.
    """
    begun = process_time(), monotonic()
    answers.check(specs)
    check_out(out)
    try:
        audits = fitting(specs, out, given)
        for line in (line for audit in audits for line in audit.untried):
            print_message(line)
    except BadInputError as error:
        raise BadInputError(error.worded(lambda remedy: wording(remedy, type(specs[0])))) from error
    check_place(audits, out)
    place = out or new_folder(audits[0].about.dataset, audits[0].own, quiet)
    messages = make_console(stderr=True, width=SCREEN_WIDTH)
    inferred = audits[0].inferred
    if inferred is not None:

        def words(remedy: Remedy) -> str:
            return wording(remedy, type(specs[0]))

        if quiet:
            # What was guessed decides what counts as read, so that it is said in any case.
            for line in guesses(inferred, words):
                print_message(line)
        else:
            show(messages, inferred_document(inferred, wording=words))
    if not quiet and audits[0].spec.gate is not None:
        print_message(needed(audits[0].spec, audits[0].spec.gate))
    with cluster.connect() as machines, nullcontext(Listener()) if quiet else Bar(messages) as listener:
        spent = process_time() - begun[0] if specs[0].workers == 1 else monotonic() - begun[1]
        budget = None if specs[0].time_budget is None else max(0.0, specs[0].time_budget - spent)
        reports = interruptible(lambda: run_all(audits, place, listener, budget, document_text, machines), place)
    if as_json:
        print(results_json([row for report in reports for row in report.rows], verdicts_of(reports)))
    elif not quiet:
        width = TABLE_WIDTH if verbose else SCREEN_WIDTH
        show(make_console(width=width), run_document(reports), verbose)
        # A path stays whole, however long it is.
        print(f"Report: {shown_path(place / PAGE)} (figures: results.json, results.csv)")
        if any(report.left_out for report in reports):
            print(f"To go on where time ran out, give the same command --out {quoted(str(place))}")
    decisions = [report.decision for report in reports if report.decision is not None]
    decision = combined(decisions) if decisions else None
    status = exit_of(decision, reports)
    if decision is not None:
        print_message(decision.line)
    if status is Exit.WRONG_PROOF:
        print_message(
            "A certified cell is not what the truth says: a mistake in seepage. Nothing counts as certified in this "
            "report; see SEEP019."
        )
    answers.write(reports, status, place)
    if status is not Exit.DONE:
        raise typer.Exit(status)


def exit_of(decision: Decision | None, reports: Sequence[Report], failed: bool = False) -> Exit:
    """Return the exit status of what a gate says, None where there is none, and of jobs that failed."""
    if any(report.contradicted for report in reports):
        return Exit.WRONG_PROOF
    if decision is not None and decision.outcome == "failed":
        return Exit.GATE_FAILED
    if failed or any(report.failed for report in reports):
        return Exit.JOBS_FAILED
    return Exit.UNDECIDED if decision is not None and decision.outcome == "undecided" else Exit.DONE
