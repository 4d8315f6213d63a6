"""Checks of whether all planned units were measured."""

from __future__ import annotations

from collections.abc import Iterator

from seepage.results.checks.facts import Facts
from seepage.results.checks.finding import Where
from seepage.results.checks.registry import Fault, check
from seepage.results.checks.wording import few, place, where_of
from seepage.run.runner import Run


@check("SEEP015", "error", "A job failed")
def failed(facts: Facts) -> Iterator[Fault]:
    """An attack or a baseline ended with an error on some units."""
    runs = [run for run in facts.runs if run.failures]
    if runs:
        # Without a baseline no attack of its setting has a reference.
        where = [
            Where(run.configuration.batch_size, run.configuration.defense, run.label if run.is_attack else None)
            for run in runs
        ]
        cases = [f"{_missing(run, facts.audit.spec.unit, facts.size)} ({run.failures[0].message})" for run in runs]
        yield Fault(
            f"Not measured because of an error: {few(cases)}. Figures are of the others, which may be easier or "
            "harder than those. The traceback is in the run folder's audit.sqlite, table failures; the same command "
            "tries again.",
            tuple(dict.fromkeys(where)),
        )


@check("SEEP017", "warning", "There was no time for all repetitions")
def left_out(facts: Facts) -> Iterator[Fault]:
    """The time budget did not suffice."""
    runs = [run for run in facts.runs if run.status == "left_out"]
    if runs:
        cases = [_missing(run, facts.audit.spec.unit, facts.size) for run in runs]
        yield Fault(
            f"Left out for lack of time: {few(cases)}. Figures rest on fewer repetitions than were asked for, or are "
            "missing. The same command with more time, or without a time budget, measures the rest.",
            tuple(where_of(run) for run in runs),
        )


def _missing(run: Run, unit: str, size: str) -> str:
    missing = run.planned - len(run.units)
    at = place(Where(run.configuration.batch_size, run.configuration.defense), size)
    return f"{run.label}{f' at {at}' if at else ''}, {missing} of {run.planned} {unit}s"
