"""An audit's figures as rows, and the files that hold them."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from seepage.assessment import Association, Estimate, Lift, Measured, lift
from seepage.files import write_whole
from seepage.run.runner import Outcome, Run
from seepage.settings.horizontal_spec import HorizontalSpec
from seepage.settings.subject import Subject

Row = dict[str, Any]


def rows(spec: HorizontalSpec, subject: Subject, outcome: Outcome) -> list[Row]:
    """Return one row a setting, attack or baseline, metric and column.

    Each has dataset, protocol, model, variant (what else tells the audits of one document apart), batch_size,
    attack (or the baseline's name), defense, metric,
    column (None: all of them), mean, low, high and std over n victims, baseline and baseline_name
    (the best baseline's mean on the same metric and column), lift with lift_low and lift_high (paired
    mean of the gain over it), seconds_per_victim, is_attack, status, seed, settings and knowledge. Rates
    are in [0, 1]. What does not apply is None; ``status`` is ``undefined`` where the figure itself does not
    (too few victims for a correlation, for example), ``failed`` where a job of the setting failed (its
    figures are of the others, n says how many) and ``left_out`` where there was no time for any victim.
    """
    made: list[Row] = []
    for batch_size in spec.batch_sizes:
        for defense in spec.defenses:
            here = [run for run in outcome.runs if (run.batch_size, run.defense) == (batch_size, defense.called)]
            guessing = [run for run in here if not run.is_attack]
            for run in sorted(here, key=lambda run: not run.is_attack):
                made.extend(_rows_of(spec, subject, run, guessing if run.is_attack else []))
    return made


def _rows_of(spec: HorizontalSpec, subject: Subject, run: Run, guessing: list[Run]) -> list[Row]:
    if not run.measured:
        return [_row(spec, subject, run, ("accuracy", None), None, None)] if run.is_attack else []
    # On the very same victims, all of them: a baseline that lacks some cannot be compared with.
    compared = {
        other.called: [_of(m, [other.victims.index(victim) for victim in run.victims]) for m in other.measured]
        for other in guessing
        if {*run.victims} <= {*other.victims}
    }
    made = []
    for measured in run.measured:
        gained = lift(measured, compared)
        made.append(_row(spec, subject, run, (measured.metric, measured.column), measured.estimate(), gained))
    return made


def _row(
    spec: HorizontalSpec,
    subject: Subject,
    run: Run,
    figure: tuple[str, str | None],
    estimate: Estimate | None,
    gained: Lift | None,
) -> Row:
    metric, column = figure
    status = run.status if estimate is None or run.failures else "undefined" if estimate.mean is None else "ok"
    return {
        "dataset": subject.dataset.name,
        "protocol": spec.protocol,
        "model": subject.model.name,
        "variant": spec.variant,
        "batch_size": run.batch_size,
        "attack": run.called,
        "defense": run.defense,
        "metric": metric,
        "column": column,
        "mean": None if estimate is None else estimate.mean,
        "low": None if estimate is None else estimate.low,
        "high": None if estimate is None else estimate.high,
        "std": None if estimate is None else estimate.std,
        "n": 0 if estimate is None else estimate.n,
        "baseline": None if gained is None else gained.reference.mean,
        "baseline_name": None if gained is None else gained.baseline,
        "lift": None if gained is None else gained.gain.mean,
        "lift_low": None if gained is None else gained.gain.low,
        "lift_high": None if gained is None else gained.gain.high,
        "seconds_per_victim": run.seconds,
        "is_attack": run.is_attack,
        "status": status,
        "seed": spec.seed,
        "settings": run.settings,
        "knowledge": run.knowledge,
    }


def _of(measured: Measured, places: list[int]) -> Measured:
    if isinstance(measured, Association):
        return replace(measured, accuracy=measured.accuracy[places], entropy=measured.entropy[places])
    return replace(measured, values=measured.values[places])


def write_results(folder: Path, made: Sequence[Row], private: bool = False) -> None:
    """Write ``results.json`` and ``results.csv``, each whole or not at all.

    Raises:
        BadInputError: a file cannot be written.
    """
    write_whole(
        folder / "results.json", json.dumps(made, indent=1, allow_nan=False, ensure_ascii=False) + "\n", private
    )
    write_whole(folder / "results.csv", as_csv(made), private)


def as_csv(made: Sequence[Row]) -> str:
    """Return rows as CSV text: None is empty, settings and knowledge are JSON."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    if made:
        writer.writerow(made[0])
    for row in made:
        # Rows of attacks and of trainings hold the same fields, not in the same order.
        values = [row.get(name) for name in made[0]]
        writer.writerow([json.dumps(v, ensure_ascii=False) if isinstance(v, dict | list) else v for v in values])
    return text.getvalue()
