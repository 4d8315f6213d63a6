"""The report on an audit, as Python and notebooks use it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from rich.console import Console

from seepage.errors import BadInputError, unknown_name
from seepage.files import write_whole
from seepage.report.document import figures_of
from seepage.report.frames import setting_of
from seepage.report.notebook import Picture, compact, drawn
from seepage.report.questions import questions
from seepage.report.result import AuditResult
from seepage.report.sections import FILE, audit_document, render
from seepage.report.summary import NOT_TRIED, headline, summary
from seepage.report.terminal import SCREEN_WIDTH, TABLE_WIDTH, make_console, show
from seepage.results.attack_differences import attack_differences
from seepage.results.rows import frame, lifts_of, write_results
from seepage.results.verdict import INCOMPLETE, NOT_REACHED
from seepage.text import clean


def verdicts_of(reports: Sequence[AuditResult]) -> list[dict[str, object]]:
    """Return the verdict on each configuration of some audits as plain values, or the reason why there is none."""
    verdicts = []
    for report in reports:
        about = report.audit.about
        named = {"dataset": about.dataset, "model": about.model, "variant": report.audit.spec.variant}
        for record in report.overviews:
            where = {"batch_size": record["batch_size"], "defense": record["defense"]}
            unknown = report.missing(setting_of(record)) if record["tier"] in (INCOMPLETE, NOT_REACHED) else None
            verdicts.append({**named, **where, "tier": record["tier"], "incomplete": unknown})
        for name, why in report.audit.not_tried.items():
            where = {"batch_size": None, "defense": name}
            verdicts.append({**named, **where, "tier": NOT_TRIED, "incomplete": why})
    return verdicts


# What completion in notebooks and shells offers.
_SHOWN = (
    "audit",
    "compare",
    "decision",
    "examples",
    "failed",
    "figure",
    "figures",
    "findings",
    "frame",
    "rows",
    "save",
)
_SHOWN += ("show", "summary")


class Report(AuditResult):
    """What an audit found, and all that can be made of it.

    In a notebook a report shows itself: verdict, main table and findings.

    Example:
        >>> from seepage.auditing import audit
        >>> report = audit("german", batch_sizes=2, attacks="dlg", victims=2, iterations=3, control=False)
        >>> report.summary().partition(" reads ")[0]
        'At batch size 2 the server'
        >>> report.figures
        ['defenses', 'columns', 'groups']
    """

    def __repr__(self) -> str:
        """Return which audit this is and its verdict, in a few lines."""
        about, head = self.audit.about, headline(self)
        which = f"{self.audit.setting}, {clean(about.dataset)}, {clean(about.protocol)}, model {clean(about.model)}"
        beside = [f"{tier}: {clean(words, 160)}" for tier, words in head.beside[:4]]
        return "\n".join([f"<Report: {which}>", f"{head.tier}: {clean(head.words, 600)}", *beside])

    def frame(self) -> pd.DataFrame:
        """Return the results as a DataFrame, one row each."""
        return frame(self.rows)

    def compare(self, first: str, second: str, metric: str = "accuracy", column: str | None = None) -> pd.DataFrame:
        """Return how much more one attack reads than another on the same units, one row a configuration.

        Args:
            first, second: names of two attacks, as in ``frame``.
            metric: name of a figure, such as ``accuracy`` or ``exact_match``.
            column: name of a column; None for all cells together.

        Raises:
            BadInputError: an attack or figure is unknown, or no configuration has both on the same units.

        Example:
            >>> from seepage.auditing import audit
            >>> small = {"batch_sizes": 2, "victims": 3, "iterations": 3, "restarts": 1, "control": False}
            >>> report = audit("german", attacks=["dlg", "tableak"], **small)
            >>> table = report.compare("tableak", "dlg")
            >>> [*table.columns[-4:]], len(table)
            (['difference', 'low', 'high', 'n'], 1)
        """
        return attack_differences(self.runs, first, second, metric, column)

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if name.startswith("_") or name in _SHOWN]

    def summary(self) -> str:
        """Return what was found, in sentences; where nothing could be measured, the reason."""
        return summary(self)

    def show(self, console: Console | None = None, verbose: bool = False) -> None:
        """Print the answer on one screen; with ``verbose`` all sections of the report."""
        width = TABLE_WIDTH if verbose else SCREEN_WIDTH
        show(console or make_console(width=width), audit_document(self), verbose)

    @property
    def figures(self) -> list[str]:
        """Names of the figures of this report."""
        return list(figures_of(audit_document(self)))

    def figure(self, name: str) -> Picture:
        """Return a figure of the page, which a notebook shows and ``save`` writes as an SVG file.

        Args:
            name: one of ``figures``, such as ``columns``, ``batch-size`` (``defenses`` where batch sizes are all the
                same), ``frontier`` or ``reliability``.

        Raises:
            BadInputError: this report has no such figure.
        """
        figures = figures_of(audit_document(self))
        if not figures:
            raise BadInputError(f"there is no figure {name!r}, since this report has none. {summary(self)}")
        if name not in figures:
            raise unknown_name("figure of this report", name, figures)
        return drawn(figures[name])

    def save(self, folder: str | Path) -> Path:
        """Write report and results to a folder; return the path of the report.

        Raises:
            BadInputError: a file cannot be written.
        """
        place = Path(folder)
        write_whole(place / FILE, render([self], self.origin), self.audit.own)
        lifts = lifts_of(self.audit, self.runs)
        write_results(place, self.rows, self.audit.own, verdicts_of([self]), lifts, questions(self))
        return place / FILE

    def _repr_html_(self) -> str:
        return compact(audit_document(self))
