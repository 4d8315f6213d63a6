"""An audit's figures as rows, and the files that hold them."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from seepage.assessment import Association, Measured, lift
from seepage.audit.files import write_whole
from seepage.audit.run import Outcome, Run
from seepage.audit.spec import AuditSpec
from seepage.audit.subject import Subject

Row = dict[str, Any]


def rows(spec: AuditSpec, subject: Subject, outcome: Outcome) -> list[Row]:
    """Return one row a setting, attack or baseline, metric and column.

    Each has dataset, protocol, model, variant (what else tells the audits of one document apart), batch_size,
    attack (or the baseline's name), defense, metric,
    column (None: all of them), mean, low, high and std over n victims, baseline and baseline_name
    (the best baseline's mean on the same metric and column), lift with lift_low and lift_high (paired
    mean of the gain over it), seconds_per_victim, status, seed, settings and knowledge. Rates are in
    [0, 1]. What does not apply is None; ``status`` is ``undefined`` where the figure itself does not
    (too few victims for a correlation, for example).
    """
    made: list[Row] = []
    for batch_size in spec.batch_sizes:
        at_size = [run for run in outcome.runs if run.batch_size == batch_size]
        guessing = {run.called: run.measured for run in at_size if not run.is_attack}
        for run in sorted(at_size, key=lambda run: not run.is_attack):
            made.extend(_rows_of(spec, subject, run, guessing if run.is_attack else {}))
    return made


def _rows_of(spec: AuditSpec, subject: Subject, run: Run, guessing: dict[str, list[Measured]]) -> list[Row]:
    made = []
    for measured in run.measured:
        estimate = measured.estimate()
        gained = lift(measured, {name: [_first(m, run.victims) for m in of] for name, of in guessing.items()})
        made.append(
            {
                "dataset": subject.dataset.name,
                "protocol": spec.protocol,
                "model": subject.model.name,
                "variant": spec.variant,
                "batch_size": run.batch_size,
                "attack": run.called,
                "defense": "none",
                "metric": measured.metric,
                "column": measured.column,
                "mean": estimate.mean,
                "low": estimate.low,
                "high": estimate.high,
                "std": estimate.std,
                "n": estimate.n,
                "baseline": None if gained is None else gained.reference.mean,
                "baseline_name": None if gained is None else gained.baseline,
                "lift": None if gained is None else gained.gain.mean,
                "lift_low": None if gained is None else gained.gain.low,
                "lift_high": None if gained is None else gained.gain.high,
                "seconds_per_victim": run.seconds,
                "status": "undefined" if estimate.mean is None else "ok",
                "seed": spec.seed,
                "settings": run.settings,
                "knowledge": run.knowledge,
            }
        )
    return made


def _first(measured: Measured, victims: int) -> Measured:
    if isinstance(measured, Association):
        return replace(measured, accuracy=measured.accuracy[:victims], entropy=measured.entropy[:victims])
    return replace(measured, values=measured.values[:victims])


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
        writer.writerow([json.dumps(v, ensure_ascii=False) if isinstance(v, dict | list) else v for v in row.values()])
    return text.getvalue()
