"""Studies from end to end: run, keep, report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from seepage.assessment.row import ResultRow
from seepage.errors import BadInputError
from seepage.files import write_whole
from seepage.report import frames
from seepage.report.frames import Record
from seepage.report.html import FILE as PAGE
from seepage.report.html import Part, page
from seepage.report.report import DOCUMENT
from seepage.report.study_sections import Picture, headline, sections
from seepage.results.checks import Alarm, Where
from seepage.results.checks.certainty import open_tier
from seepage.results.rows import frame, write_results
from seepage.results.tiers import settings
from seepage.results.verdict import UNDEFENDED, pick
from seepage.run.provenance import check_study_folder, study_provenance, write_provenance
from seepage.run.runner import Listener
from seepage.run.store import Store
from seepage.settings.study import Study, run_study, study_rows
from seepage.settings.study_spec import StudySpec
from seepage.text import clean, flattened, listed, points

# An attack works if it closes so much of the gap where nothing protects the records.
_WORKS = 0.5
# Repetitions below which intervals are doubted.
_FEW = 3


@dataclass(frozen=True)
class StudyReport:
    """What a study found.

    Attributes:
        study: what was done.
        rows: one result each, see ``seepage.run.study.study_rows``.
        alarms: what the study doubts about itself.
        pictures: what was measured, by defense and name, with a picture of what it found.

    Example:
        >>> from seepage.settings.studies import study_kind
        >>> split = study_kind("split")
        >>> spec = split.spec.of(dataset="german", private=["housing"], units=1, epochs=1, attacks=["exact"])
        >>> [report] = run_studies([(spec, split.study(spec))])
        >>> report.frame().query("metric == 'accuracy' and column == 'housing' and is_attack")["mean"].tolist()
        [1.0]
    """

    study: Study
    rows: list[ResultRow]
    alarms: Sequence[Alarm] = field(default_factory=tuple)
    pictures: Sequence[Picture] = field(default_factory=tuple)

    @property
    def worst(self) -> Record | None:
        """The defense under which most leaks, see ``frames.overview``; None without attacks."""
        return frames.worst(frames.overview(self.rows, self.alarms))

    def frame(self) -> pd.DataFrame:
        """Return the results as a DataFrame, one row each."""
        return frame(self.rows)


def run_studies(
    studies: Sequence[tuple[StudySpec, Study]],
    folder: Path | None = None,
    listener: Listener | None = None,
    document: str | None = None,
) -> list[StudyReport]:
    """Run studies and keep their results in a folder.

    The folder gets ``audit.sqlite`` as they go on (a stopped run continues), and ``report.html``, ``results.json``,
    ``results.csv`` and ``provenance.json`` when they have ended. Files of one's own data are private (mode 0600).

    Args:
        studies: specs with the studies that were made of them.
        folder: the run folder, made if need be; None to keep nothing.
        listener: told about the progress.
        document: text that the studies were started from, copied into the folder.

    Raises:
        BadInputError: the folder holds something else, or whatever a part of a study raises.
    """
    private = any(study.own for _, study in studies)
    if folder is not None and folder.exists() and not folder.is_dir():
        raise BadInputError(f"--out {str(folder)!r} is a file; give the name of a folder, which is made if need be.")
    with Store(folder, private) as store:
        if folder is not None:
            check_study_folder(folder, store, studies)
            if document is not None:
                write_whole(folder / DOCUMENT, document, private)
        reports = []
        for _, study in studies:
            outcome = run_study(study, store, listener)
            rows = study_rows(outcome)
            pictures = [Picture(run.defense, run.part.called, run.picture) for run in outcome.runs if run.picture]
            reports.append(StudyReport(study, rows, study_alarms(study, rows), pictures))
        store.add_run(study_provenance(studies))
        origin = store.runs()[-1]
        if folder is not None:
            write_provenance(folder, store, private)
    if folder is not None:
        write_whole(folder / PAGE, render_studies(reports, origin), private)
        write_results(folder, [row for report in reports for row in report.rows], private)
    return reports


def study_alarms(study: Study, rows: Sequence[ResultRow]) -> list[Alarm]:
    """Return what a study doubts about itself: attacks that lose to guesses, few repetitions, wide intervals.

    An attack that loses to a guess does not use what crossed the wire well. Under a defense that is what success looks
    like; there it is a warning if the same attack closes half of the gap without one.
    """
    alarms = []
    scores = [row for row in pick(rows, metric="accuracy", column=None) if row.is_attack and row.mean is not None]
    working = {
        row.attack
        for row in scores
        if row.defense == UNDEFENDED
        and row.lift is not None
        and row.baseline is not None
        and row.lift >= _WORKS * (1 - row.baseline)
    }
    for row in scores:
        if row.lift_high is None or row.lift_high >= 0:
            continue
        excused = row.defense != UNDEFENDED and row.attack in working
        said = (
            f"{row.attack} under {row.defense}: {points(row.lift)} points of accuracy against "
            f"{row.baseline_name} (95% interval {points(row.lift_low)} to {points(row.lift_high)}). An "
            "attacker could still guess instead, so read it as no less than guessing."
        )
        where = (Where(row.batch_size, row.defense, row.attack),)
        severity = "warning" if excused else "error"
        alarms.append(Alarm("SEEP001", severity, "An attack does worse than guessing", said, where))
    if study.units < _FEW:
        said = (
            f"There is one {study.unit}, so no figure has an interval, and no verdict can be given but on what is "
            "wholly read. Ask for three or more."
            if study.units == 1
            else f"There are {study.units} {study.unit}s, so intervals are wide and rest on the assumption that "
            f"{study.unit}s vary as a normal distribution does. Ask for three or more, better five."
        )
        alarms.append(Alarm("SEEP007", "warning", "Few repetitions", said))
    open_ = [
        (Where(*setting), found)
        for setting in settings(rows)
        if (found := open_tier(rows, *setting, study.unit)) is not None
    ]
    if open_:
        where = tuple(at for at, _ in open_)
        told = "; ".join(f"{clean(at.defense or UNDEFENDED)}: {found}" for at, found in open_)
        said = (
            f"With these {study.unit}s the tier of leakage is open under {told}. The tier shown is that of the upper "
            f"end. Ask for more {study.unit}s; four times as many halve an interval."
        )
        alarms.append(Alarm("SEEP006", "warning", "An interval is too wide to decide", said, where))
    without = [row for row in scores if row.baseline is None]
    if without:
        said = (
            f"No guess was run beside {listed(sorted({clean(row.attack) for row in without}))}, so nothing shows "
            f"what could have been known without {study.seen}. Leave the default guesses on."
        )
        alarms.append(Alarm("SEEP016", "error", "Nothing to compare with", said))
    return sorted(alarms, key=lambda alarm: (("error", "warning", "note").index(alarm.severity), alarm.code))


def render_studies(reports: Sequence[StudyReport], provenance: Mapping[str, Any]) -> str:
    """Return the page of a run's studies."""
    several = len(reports) > 1
    names = [_name(report.study) for report in reports]
    parts = [
        Part(
            f"audit-{i}",
            name,
            sections(report.study, report.rows, report.alarms, f"a{i}-" if several else "", report.pictures),
        )
        for i, (name, report) in enumerate(zip(names, reports, strict=True), start=1)
    ]
    heads = [headline(report.study, report.worst) for report in reports]
    gravest = frames.worst([head["record"] for head in heads if head["record"] is not None])
    overall = next((i for i, head in enumerate(heads) if head["record"] is gravest and gravest is not None), 0)
    study = reports[0].study
    return page(
        "report.html",
        f"Audit of {clean(study.dataset)}",
        [figure for part in parts for section in part.sections for figure, _ in section.figures],
        lead=study.lead,
        unit=study.unit,
        parts=parts,
        several=several,
        over_rounds=None,
        overall={"name": names[overall], **heads[overall]} if heads else None,
        heads=list(zip(parts, heads, strict=True)),
        provenance=flattened(provenance),
        own=any(report.study.own for report in reports),
    )


def _name(study: Study) -> str:
    told = f"{clean(study.dataset)}, {clean(study.protocol).replace('_', ' ')}"
    return told if study.variant is None else f"{told}, {clean(study.variant, 80)}"
