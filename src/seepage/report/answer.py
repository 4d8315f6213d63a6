"""The answer of an audit on one configuration: what is read, how sure that is, and of which columns.

Below twenty units a sentence has counts and the range over units, and no interval; from there on it has the interval.

A baseline that is right in the share b of the cells misses 1 - b of them. An attack that is right in v closes the share
``(v - b) / (1 - b)`` of that gap, which sentences give as a number of 100 that an informed guess misses. Upper ends of
intervals are rounded up, since a bound may say too much and never too little.
"""

from __future__ import annotations

import numpy as np

from seepage.assessment.gain import pooled
from seepage.assessment.intervals import interval
from seepage.assessment.lifts import PROVED_CELLS
from seepage.assessment.measurement import Measurement
from seepage.report.frames import Record, setting_of
from seepage.report.result import AuditResult
from seepage.results.verdict import INCOMPLETE, LITTLE, UNDECIDED
from seepage.run.limits import by_units
from seepage.run.runner import Run
from seepage.settings.option import fields_of
from seepage.settings.spec import Spec
from seepage.text import clean, how_many, listed, lowered, percent

FEW = 20
"""Fewest units with an interval in a sentence."""
SAME_FOLDER = "the same run folder (--out)"
"""Where a run that was stopped goes on, as advice names it."""
_COLUMNS = 3
_WHOLE = 1 - 1e-9


def answer(result: AuditResult, record: Record) -> list[str]:
    """Return what the strongest attack of a configuration reads, and why that is not decided where it is not."""
    whole = _whole_records(result, record) if record["of"] is None else []
    return [*whole, *_missed_by_guessing(result, record), *_why_open(result, record)]


def run_of(result: AuditResult, record: Record) -> Run | None:
    """Return the run of the strongest attack of a configuration; None where none is kept."""
    place = (*setting_of(record), record["attack"])
    return next(
        (run for run in result.runs if (run.configuration.batch_size, run.configuration.defense, run.label) == place),
        None,
    )


def _figure(run: Run | None, metric: str, column: str | None = None) -> Measurement | None:
    figures = () if run is None else run.measured
    return next((m for m in figures if (m.metric, m.column) == (metric, column)), None)


def _whole_records(result: AuditResult, record: Record) -> list[str]:
    """Return a sentence on whole records that no baseline gets; none where none is read."""
    run = run_of(result, record)
    exact, proved = _figure(run, "exact_match"), _figure(run, PROVED_CELLS)
    if exact is None or record["exact"] is None or record["exact"] <= 0 or result.audit.about.trials is not None:
        return []
    spec, known = result.audit.spec, ~exact.values.isnan()
    values, n = exact.values[known], int(known.sum())
    if not by_units(spec) and exact.clusters is not None:
        members = pooled(exact.clusters)
        read = int((members[~members.isnan()] > _WHOLE).sum())
        return [f"{_whole(result)}: {read:,} of {len(members):,} are read whole, in {how_many(n, spec.unit)}."]
    read = values > _WHOLE
    count = int(read.sum())
    if not count and not (record["lift"] or 0) > 0:
        # Records that agree by chance, where no more is read than is guessed.
        return []
    if not count:
        return [f"{_whole(result)}: {percent(record['exact'], 0)} are read whole."]
    how = []
    if result.audit.repeatable and n > 1:
        how.append(f" (at least {percent(interval(read.double(), bounds=(0.0, 1.0)).low, 0)} of all {spec.unit}s)")
    if proved is not None and bool((proved.values[known][read] > _WHOLE).all()):
        how.append(", proved")
    are = "is" if count == 1 else "are"
    return [f"{_whole(result)}: {count} of {how_many(n, spec.unit)} {are} read whole{''.join(how)}."]


def _whole(result: AuditResult) -> str:
    """Return the name of whole records, with what a record is where that is not all of its cells."""
    about = result.audit.about
    cells = clean(about.record, 240) or ("" if about.secret == "all cells" else clean(about.secret, 80))
    return f"Whole records ({cells})" if cells else "Whole records"


def what_is_missed(result: AuditResult, record: Record) -> str:
    """Return what counts as read, in the plural."""
    of_label = record["by_label"] or record["of"] is not None
    return "labels" if of_label else "cells" if result.audit.about.trials is None else "trials"


def done(result: AuditResult) -> str:
    """Return the participle of what attacks do with cells or trials."""
    return "read" if result.audit.about.trials is None else "answered right"


def more_units(spec: Spec) -> str:
    """Return what narrows the intervals of an audit, with its option."""
    flag = fields_of(type(spec))[spec.repeats if by_units(spec) else spec.members].flag
    return f"more {spec.unit if by_units(spec) else spec.member}s ({flag})"


def _missed_by_guessing(result: AuditResult, record: Record) -> list[str]:
    """Return a sentence on what guessing misses and the attack reads; none without a figure."""
    if record["closed"] is None:
        return []
    spec, n = result.audit.spec, record["n"]
    missed = f"{what_is_missed(result, record)} that an informed guess misses"
    low, high = record["closed_low"], record["upper"]
    units = how_many(n, spec.unit)
    if record["tier"] == LITTLE and high is not None and high <= 0:
        return [f"No gain found by these attacks: they read less than an informed guess gets (n = {n})."]
    if record["tier"] == LITTLE and low is not None and high is not None and low <= 0:
        return [f"No gain found by these attacks; up to {rounded_up(high)} of 100 {missed} are not excluded (n = {n})."]
    read, verb = in_hundred(record["closed"]), done(result)
    are = "none are" if read == 0 else "1 is" if read == 1 else f"{read} are"
    if n == 1 and not result.audit.repeatable:
        return [f"Of 100 {missed}, {are} {verb} in this {spec.unit}."]
    if low is None or high is None:
        return [f"Of 100 {missed}, {are} {verb} ({units})."]
    if n >= FEW or not by_units(spec):
        return [f"Of 100 {missed}, {read} [{in_hundred(low)}, {rounded_up(high)}] are {verb} ({units})."]
    shares = [in_hundred(share) for share in _closed_shares(result, record)]
    if len(shares) < 2:
        return [f"Of 100 {missed}, {are} {verb} ({units})."]
    if min(shares) == max(shares):
        return [f"Of 100 {missed}, {are} {verb} in each of {units}."]
    return [f"Of 100 {missed}, {are} {verb} ({units}, from {min(shares)} to {max(shares)})."]


def _closed_shares(result: AuditResult, record: Record) -> list[float]:
    """Return the share of the gap that is closed in each unit."""
    column = record["of"] or (result.audit.about.label if record["by_label"] else None)
    attack = record["label"]["attack"] if record["by_label"] and record["label"] else record["attack"]
    figure = _figure(run_of(result, {**record, "attack": attack}), "accuracy", column)
    beside = record["label"]["baseline"] if record["by_label"] and record["label"] else record["baseline"]
    if figure is None or beside is None or beside >= 1:
        return []
    values = figure.values.numpy()
    return [float(share) for share in (values[~np.isnan(values)] - beside) / (1 - beside)]


def in_hundred(share: float) -> int:
    """Return a share as a number of 100; neither all nor none where it is not."""
    return int(percent(max(0.0, min(1.0, share)), 0).removesuffix("%"))


def rounded_up(share: float) -> int:
    """Return a share as a number of 100, rounded up: an upper bound says too much rather than too little."""
    return min(100, max(0, int(np.ceil(100 * round(share, 6)))))


def _why_open(result: AuditResult, record: Record) -> list[str]:
    """Return why nothing is decided, and what would decide it, in a sentence; none where it is decided."""
    spec, tier = result.audit.spec, record["tier"]
    if tier == INCOMPLETE:
        return [f"Incomplete: {result.missing(setting_of(record))}."]
    if tier != UNDECIDED:
        return []
    place = (setting_of(record), record["attack"])
    if (finding := result.unreliable(*place)) is not None:
        return [f"No verdict: {lowered(finding.title)} ({finding.code})."]
    if record["closed"] is None:
        always = (record["baseline"] or 0.0) >= 1
        reason = "an informed guess is always right already" if always else "there is no baseline to compare with"
        return [f"No verdict: {reason}."]
    if (record["upper"] or 0.0) < 1 and (why := result.not_tried(*place)):
        return [f"No verdict: {why}."]
    if (late := ran_out_of_time(result, record)) is not None:
        return [f"No verdict yet: {late}"]
    if not result.audit.repeatable:
        return [f"No verdict from {how_many(record['n'], spec.unit)}: capture more."]
    high = 1.0 if record["upper"] is None else record["upper"]
    return [
        f"The attack may be no better than guessing, and up to {rounded_up(high)} of 100 are not excluded: "
        f"audit {more_units(spec)}."
    ]


def ran_out_of_time(result: AuditResult, record: Record) -> str | None:
    """Return that there was no time for all units of a configuration, and what to do; None where there was."""
    run = run_of(result, record)
    if run is None or run.status != "left_out":
        return None
    unit = result.audit.spec.unit
    return f"time ran out after {record['n']} of {run.planned} {unit}s. Run it again with {SAME_FOLDER} to finish."


def exposed_columns(result: AuditResult, record: Record) -> list[str]:
    """Return a sentence on the columns of which most is read above guessing, shown ones if any; none without a gain."""
    columns = [column for column in result.by_column.get(setting_of(record), []) if column["lift"] is not None]
    shown = [column for column in columns if column["lift_low"] is not None and column["lift_low"] > 0]
    # Of few units nothing may be shown of a single column; where little is read, a mean is chance.
    open_ = [] if record["tier"] == LITTLE else [column for column in columns if column["lift"] > 0]
    ranked = sorted(shown or open_, key=lambda column: -column["lift"])[:_COLUMNS]
    if not ranked:
        return []
    names = [
        f"{clean(c['column'], 32)} ({percent(c['mean'], 0)} read, {percent(c['baseline'], 0)} guessed)" for c in ranked
    ]
    so_far = "" if shown else " so far"
    return [f"Most exposed column{'s' if len(names) > 1 else ''}{so_far}: {listed(names)}."]
