"""Figures of an audit as rows, their files, and proofs that the truth contradicts."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from seepage.assessment import Estimate, Lift, Measurement
from seepage.assessment.gain import Reference, References, pooled
from seepage.assessment.intervals import over_trainings, with_student
from seepage.assessment.lifts import lifts
from seepage.assessment.measurement import drawn_from, estimates
from seepage.assessment.row import FIELDS, ResultRow
from seepage.assessment.task import is_beside, rows_behind
from seepage.errors import BadInputError, FieldError
from seepage.files import read_text, write_whole
from seepage.results.checks.finding import Where, where_of
from seepage.run.limits import by_units, judged_figures, samples_of
from seepage.run.runner import Run
from seepage.settings.part import NONE
from seepage.settings.setting import Audit
from seepage.text import clean, printable_json

# Bytes of a file that a program writes, with all records or trees.
_MOST_BYTES = 2**30
# Metric of certified cells that are wrong, no result: above 0 it is a mistake in seepage.
WRONG = "certified_wrong"


def contradicted(runs: Sequence[Run]) -> dict[Where, float]:
    """Return the attacks whose certified cells contradict the truth, and the share of these cells."""
    shares = {}
    for run in runs:
        for figure in run.measured:
            if figure.metric == WRONG and bool((figure.values > 0).any()):
                point = where_of(run)
                shares[point] = float(figure.values.nanmean())
    return shares


def withdrawn(run: Run) -> Run:
    """Return a run as if its attack had proved nothing."""
    evidence = run.evidence
    if evidence is not None:
        evidence = replace(evidence, certified=None, conditions=None)
    measured = [figure for figure in run.measured if not figure.metric.startswith("certified")]
    return replace(run, measured=measured, evidence=evidence)


RESULTS = "results.json"
SCHEMA_VERSION = 1
# A spreadsheet takes a text with one of these at its start for a formula, and may run it.
_FORMULA = ("=", "+", "-", "@")


def rows_of(
    audit: Audit, runs: Sequence[Run], references: Mapping[int | None, References] | None = None
) -> list[ResultRow]:
    """Return one row for each configuration, part, metric and column; attacks first in each configuration.

    The lift is over the best baseline on the same metric and column, for attacks and for parts that must not exceed the
    baselines; figures that are no leakage have none. Where a job failed, figures are of the other units; where there
    was no time for any unit of an attack, there is one row without a figure.

    Args:
        references: figures of baselines over draws that no attack sees, by batch size. Where there is one, it is the
            figure of the baseline; else that on the attacked units is.
    """
    rows: list[ResultRow] = []
    for configuration in audit.configurations:
        total = audit.batches(configuration)
        of_configuration = [
            replace(run, measured=drawn_from(run.measured, total))
            for run in runs
            if run.configuration == configuration and not run.nothing_to_add
        ]
        baselines = [run for run in of_configuration if run.part.kind == "baseline"]
        beside = (references or {}).get(configuration.batch_size, {})
        for run in sorted(of_configuration, key=lambda run: not run.is_attack):
            rows.extend(_rows_of(audit, run, baselines, beside))
    return rows


def lifts_of(audit: Audit, runs: Sequence[Run]) -> list[dict[str, object]]:
    """Return the lift of each unit over the best baseline, for every figure that a gate judges, as plain values.

    Where repetitions hold many attacked members, each repetition has an entry with the lifts of its members.
    """
    entries: list[dict[str, object]] = []
    for run in (run for run in runs if run.is_attack):
        configuration = run.configuration
        beside = [other for other in runs if other.part.kind == "baseline" and other.configuration == configuration]
        compared = [measured for others in on_the_same(run.units, beside).values() for measured in others]
        where = {
            "variant": audit.spec.variant,
            "batch_size": configuration.batch_size,
            "defense": configuration.defense,
            "attack": run.label,
        }
        for metric, column in judged_figures(audit):
            mine, others_own = (
                [figure for figure in measured if (figure.metric, figure.column) == (metric, column)]
                for measured in (run.measured, compared)
            )
            if not mine or not others_own:
                continue
            for sample, (scores, others) in samples_of(mine[0], others_own, by_units(audit.spec)).items():
                finite = np.isfinite(scores) & np.isfinite(others).all(0)
                if finite.any():
                    best = others[:, finite][others[:, finite].mean(1).argmax()]
                    lifts = [round(float(lift), 6) for lift in scores[finite] - best]
                    entries.append({**where, "metric": metric, "column": column, "sample": sample, "lifts": lifts})
    return entries


def on_the_same(units: Sequence[int], runs: Sequence[Run]) -> dict[str, list[Measurement]]:
    """Return the measurements of runs on some units, of those runs that have all of these units."""
    return {
        run.label: [_of(m, [run.units.index(unit) for unit in units]) for m in run.measured]
        for run in runs
        if {*units} <= {*run.units}
    }


def _rows_of(audit: Audit, run: Run, baselines: Sequence[Run], references: References) -> list[ResultRow]:
    if not run.measured:
        nothing = Estimate(None, None, None, 0)
        return [_row(audit, run, ("accuracy", None), nothing, None)] if run.is_attack else []
    compares = run.is_attack or run.label in audit.about.of_nothing
    # A baseline that lacks some units is no reference.
    compared = on_the_same(run.units, baselines) if compares else {}
    beside = [measured for measured in run.measured if is_beside(measured.metric)]
    shown = [measured for measured in run.measured if measured.metric != WRONG and not is_beside(measured.metric)]
    telling = [compares and audit.about.scale(measured.metric).higher_leaks is not None for measured in shown]
    by_members = not by_units(audit.spec)
    own_estimates = _estimates(shown, by_members)
    if run.part.kind == "baseline":
        reference = references.get(run.label, {})
        own_estimates = [
            _of_reference(reference.get((m.metric, m.column)), e) for e, m in zip(own_estimates, shown, strict=True)
        ]
    proving = run.configuration.defense == NONE
    gains = lifts(shown, telling, compared, beside, references, by_members, proving)
    for i, measured in enumerate(shown):
        if (records := rows_behind(measured, beside)) is not None:
            own_estimates[i] = over_trainings(measured.values, records)
            gains[i] = _over_constant(gains[i], own_estimates[i])
        elif measured.metric == "auc" and measured.column is None:
            # An average over all pairs of rows of a training, so that trainings vary about as a normal distribution.
            own_estimates[i] = with_student(own_estimates[i], (0.0, 1.0))
    rows: list[ResultRow] = []
    for measured, estimate, lift in zip(shown, own_estimates, gains, strict=True):
        rows.append(_row(audit, run, (measured.metric, measured.column), estimate, lift))
        if run.is_attack and (measured.metric, measured.column) == ("accuracy", None):
            rows.extend(
                _row(audit, run, (metric, None), _derived(function, estimate), None)
                for metric, function in audit.about.derived.items()
            )
    return rows


def _over_constant(lift: Lift | None, estimate: Estimate) -> Lift | None:
    """Return the lift of a share of the task over a constant answer, with the interval of the share."""
    if lift is None or lift.reference is None or estimate.mean is None:
        return lift
    low, high = (None if end is None else end - lift.reference for end in (estimate.low, estimate.high))
    gain = Estimate(estimate.mean - lift.reference, low, high, estimate.n, estimate.std)
    return Lift(lift.baseline, lift.reference, gain)


def _estimates(shown: Sequence[Measurement], by_members: bool) -> list[Estimate]:
    """Return the estimate of each figure over its units; with an interval over all members where these are judged."""
    over_units = estimates(shown)
    if not by_members:
        return over_units
    clusters = [(measured, measured.clusters) for measured in shown if measured.clusters is not None]
    over_members = iter(estimates([replace(m, values=pooled(of_members), clusters=None) for m, of_members in clusters]))
    return [
        units if measured.clusters is None else _with_ends_of(units, next(over_members))
        for measured, units in zip(shown, over_units, strict=True)
    ]


def _with_ends_of(estimate: Estimate, other: Estimate) -> Estimate:
    return replace(estimate, low=other.low, high=other.high)


def _of_reference(known: Reference | None, estimate: Estimate) -> Estimate:
    return estimate if known is None else Estimate(known.mean, known.low, known.high, known.n, known.std)


def _derived(function: Callable[[float], float | None], estimate: Estimate) -> Estimate:
    """Return a function of a mean, and of the ends of its interval."""
    mean, low, high = (None if end is None else function(end) for end in (estimate.mean, estimate.low, estimate.high))
    return Estimate(mean, low, high, estimate.n)


def _row(audit: Audit, run: Run, figure: tuple[str, str | None], estimate: Estimate, gained: Lift | None) -> ResultRow:
    metric, column = figure
    measured = "undefined" if estimate.mean is None else "ok"
    gains: dict[str, Any] = {}
    if gained is not None:
        gain = gained.gain
        gains = {"baseline": gained.reference, "baseline_name": gained.baseline}
        gains |= {"lift": gain.mean, "lift_low": gain.low, "lift_high": gain.high, "lift_std": gain.std}
    return ResultRow(
        setting=audit.setting,
        dataset=audit.about.dataset,
        protocol=audit.about.protocol,
        model=audit.about.model,
        variant=audit.spec.variant,
        batch_size=run.configuration.batch_size,
        attack=run.label,
        defense=run.configuration.defense,
        metric=metric,
        column=column,
        **asdict(estimate),
        **gains,
        seconds_per_victim=run.seconds,
        kind=run.part.kind,
        status=measured if run.measured and not run.failures else run.status,
        seed=audit.spec.seed,
        settings=run.settings,
        knowledge=run.knowledge,
        captured=not audit.repeatable,
    )


def _of(measured: Measurement, places: list[int]) -> Measurement:
    clusters = None if measured.clusters is None else tuple(measured.clusters[i] for i in places)
    entropy = None if measured.entropy is None else measured.entropy[places]
    return replace(measured, values=measured.values[places], clusters=clusters, entropy=entropy)


def write_results(
    folder: Path,
    rows: Sequence[ResultRow],
    private: bool = False,
    verdicts: Sequence[Mapping[str, object]] = (),
    lifts: Sequence[Mapping[str, object]] = (),
    answers: Sequence[Mapping[str, object]] = (),
) -> None:
    """Write ``results.json`` and ``results.csv``, each whole or not at all, and for their owner alone if private.

    ``answers`` are those to the three questions, see ``report.questions``.
    """
    write_whole(
        folder / RESULTS,
        as_json(rows, verdicts, lifts, {"three_questions": [*answers]} if answers else None) + "\n",
        private,
    )
    write_whole(folder / "results.csv", as_csv(rows), private)


def read_results(path: Path) -> list[ResultRow]:
    """Read a ``results.json``; earlier ones, which are a plain list of rows, are read too."""
    content = read_json(path)
    if isinstance(content, dict):
        came = content.get("schema_version")
        if came != SCHEMA_VERSION:
            raise BadInputError(
                f"{str(path)!r} was not written by this version of an audit: its schema_version is {clean(came, 40)}, "
                f"and {SCHEMA_VERSION} is read here; read it with the version of seepage that wrote it, or run the "
                "audit again."
            )
        content = content.get("rows")
    if not isinstance(content, list):
        raise BadInputError(
            f"{str(path)!r} is not what an audit writes (expected a list of rows, got {clean(content, 80)}); run the "
            "audit again."
        )
    return [_read_row(path, place, row) for place, row in enumerate(content)]


def _read_row(path: Path, place: int, row: object) -> ResultRow:
    try:
        if not isinstance(row, Mapping):
            raise FieldError((place,), f"expected the fields of a row, got {row!r}.")
        return ResultRow.from_dict(row)
    except FieldError as error:
        where = error.field if error.path == (place,) else f"{place}.{error.field}"
        raise BadInputError(
            f"{str(path)!r} was not written by this version of an audit: {clean(f'{where}: {error.reason}', 200)} Run "
            "the audit again."
        ) from error


def read_json(path: Path) -> Any:
    """Return the content of a JSON file of a run folder."""
    try:
        text = read_text(path, repr(str(path)), _MOST_BYTES)
        if not text:
            raise BadInputError(f"{str(path)!r} is empty (0 bytes), not what an audit writes; run the audit again.")
        return json.loads(text, parse_constant=_refused)
    except OSError as error:
        raise BadInputError(
            f"{str(path)!r} cannot be read ({error.strerror}); finish the audit in that folder, then read its files."
        ) from error
    except BadInputError:
        raise
    except (ValueError, RecursionError) as error:
        raise BadInputError(
            f"{str(path)!r} is not what an audit writes ({clean(error, 120)}); run the audit again."
        ) from error


def _refused(constant: str) -> None:
    raise ValueError(f"{constant} is no figure")


def as_json(
    rows: Sequence[ResultRow],
    verdicts: Sequence[Mapping[str, object]] = (),
    lifts: Sequence[Mapping[str, object]] = (),
    further: Mapping[str, object] | None = None,
) -> str:
    """Return the JSON document that ``results.json`` holds: schema_version, verdicts, rows and, if any, lifts."""
    document: dict[str, object] = {
        "schema_version": SCHEMA_VERSION,
        "verdicts": [*map(dict, verdicts)],
        "rows": [row.as_dict() for row in rows],
    }
    if lifts:
        document["lifts"] = [*map(dict, lifts)]
    return printable_json({**document, **(further or {})}, allow_nan=False)


def as_csv(rows: Sequence[ResultRow]) -> str:
    """Return rows as CSV text: None is empty, settings are JSON, what a spreadsheet would run gets an apostrophe."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(FIELDS)
    for row in rows:
        writer.writerow([_cell(value) for value in row.as_dict().values()])
    return text.getvalue()


def _cell(value: object) -> object:
    if isinstance(value, Mapping):
        return json.dumps(value, ensure_ascii=False)
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value


def frame(rows: Sequence[ResultRow]) -> pd.DataFrame:
    """Return rows as a DataFrame, a column each field and ``is_attack``."""
    return pd.DataFrame([row.as_dict() for row in rows], columns=list(FIELDS))
