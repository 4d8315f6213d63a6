"""An attack on a captured update: what the records behind it were, without knowing the truth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from seepage.assessment import certainties, spreads
from seepage.attacking.explained import refuted_counts, unexplained, without_certainty
from seepage.attacking.run import Attacked, run_parts
from seepage.captures.captured import Capture, Origin, left_out_words
from seepage.digests import Json
from seepage.errors import BadInputError
from seepage.files import check_out, make_folder, write_whole
from seepage.results.rows import as_json
from seepage.settings.captured import RECONSTRUCTION, CapturedAudit
from seepage.settings.findings import Findings, FindingsSection, FindingsTable
from seepage.settings.horizontal.read import UpdateSpec, exposed
from seepage.settings.part import Part
from seepage.settings.setting import Progress
from seepage.settings.spec import Gate
from seepage.tabular.schema import Discrete, Schema
from seepage.tabular.statistics import Statistics
from seepage.tabular.table import frame_of, frame_of_columns
from seepage.text import as_sentence, clean, how_many, percent, plain_number, shown_value
from seepage.wire.horizontal import RecordsGuess

CONFIDENCE = "confidence.csv"
FILES = (RECONSTRUCTION, CONFIDENCE, "results.json")
_NO_COUNTS = (
    "estimated, since no counts of labels give this update (the nearest miss it by {} of a record): the client's "
    "recipe is not the declared one"
)
# Records that are shown where they are read.
_SHOWN_RECORDS = 4


@dataclass(frozen=True)
class Recovered:
    """The records that an attack read from one update, in no particular order.

    Certainty is in [0, 1], see ``assessment.certainties``; NaN where the attack has no ensemble. Spread is the standard
    deviation of a continuous cell in its column's unit; NaN elsewhere. ``left`` is the share of the update that they do
    not explain; None where that is not known.
    """

    attacked: Attacked
    capture: Capture
    statistics: Statistics
    guess: RecordsGuess
    certainty: Float[Tensor, "record column"]
    spread: Float[Tensor, "record column"]
    settings: dict[str, Json]
    knowledge: dict[str, Json]
    notes: tuple[str, ...]
    left: float | None

    @property
    def number(self) -> int:
        """Number of records."""
        return self.guess.cells.shape[1]

    @property
    def schema(self) -> Schema:
        """Schema of the table."""
        return self.attacked.audit.schema

    @property
    def is_scored(self) -> bool:
        """Whether the records are known, and the guess was held against them."""
        return self.attacked.row() is not None

    @property
    def records(self) -> pd.DataFrame:
        """The guessed records, and the labels that were used in the target's column."""
        frame = frame_of(self.schema, self.guess.cells[0])
        if self.guess.labels is not None:
            frame = pd.concat([frame, frame_of_columns([self.schema.target], self.guess.labels[0][:, None])], axis=1)
        return frame

    @property
    def findings(self) -> Findings:
        """What was read, in words, and the records themselves as tables."""
        settings, knowledge, notes = self.settings, self.knowledge, list(self.notes)
        means = self.certainty.nanmean(dim=0)
        certain = {name: _finite_number(mean) for name, mean in zip(self.schema.names, means, strict=True)}
        unsent = left_out_words(self.capture.view.model)
        points = [
            f"number of records: {knowledge['records']}",
            f"columns: {knowledge['statistics']}",
            f"labels: {knowledge['labels']}",
            *([] if self.guess.regime is None else [f"method: {self.guess.regime[0]}"]),
            *([] if self.left is None else [f"left unexplained by these records: {percent(self.left)} of the update"]),
            *(note for note in notes if note != unsent),
        ]
        words = f"{settings['protocol']}, model {clean(settings['model'])}"
        section = FindingsSection(
            f"{settings['attack']} on an update of {how_many(self.number, 'record')}",
            (words,) if unsent is None else (words, clean(as_sentence(unsent), 400)),
            tuple(points),
        )
        plain = {"settings": settings, "knowledge": knowledge, "notes": notes, "certainty": certain}
        return Findings(
            (section,), plain, {RECONSTRUCTION: self.records, CONFIDENCE: self.confidence}, self._first_records
        )

    @property
    def _first_records(self) -> FindingsTable:
        """The first records, with the attacker's certainty."""
        records, names = self.records, self.schema.names
        shown = min(_SHOWN_RECORDS, len(records))
        lines = [
            {
                "column": clean(name, 32),
                **{
                    str(r): _cell_in_words(records.iat[r, i], self.certainty[r, i], self.spread[r, i])
                    for r in range(shown)
                },
            }
            for i, name in enumerate(names)
        ]
        if self.guess.labels is not None:
            target = self.schema.target.name
            labels = {str(r): clean(records[target].iat[r], 24) for r in range(shown)}
            lines.append({"column": f"{clean(target, 32)} (label)", **labels})
        part = "" if shown == len(records) else f", first {shown} of {len(records)} records"
        columns = [("column", "column"), *((f"record {r + 1}", str(r)) for r in range(shown))]
        return FindingsTable(
            f"What was read{part} (certainty)", tuple((title, key, "text") for title, key in columns), tuple(lines)
        )

    @property
    def confidence(self) -> pd.DataFrame:
        """One row a guessed cell: record (from 1), column, guess, certainty and spread."""
        frame, names = frame_of(self.schema, self.guess.cells[0]), self.schema.names
        rows = [
            (r + 1, name, frame.iat[r, i], _finite_number(self.certainty[r, i]), _finite_number(self.spread[r, i]))
            for r in range(len(frame))
            for i, name in enumerate(names)
        ]
        return pd.DataFrame(rows, columns=["record", "column", "guess", "certainty", "spread"])


def recover(
    capture: Capture,
    schema: Schema,
    statistics: Statistics,
    origin: Origin,
    attack: str = "unmix",
    *,
    options: Mapping[str, Json] | None = None,
    seed: int = 0,
    progress: Progress | None = None,
    gate: Gate | None = None,
    **given: Any,
) -> Recovered:
    """Attack a captured update; ``given`` are further arguments of ``exposed``. The truth scores it, in any order."""
    exposure = exposed(capture, schema, statistics, origin, attack, options=options, seed=seed, **given)
    spec = UpdateSpec.of(attacks=(Part(name=attack, options=dict(options or {})),), seed=seed, gate=gate)
    attacked = run_parts(CapturedAudit(spec, exposure), lambda _: progress)
    guess, notes, settings = exposure.guess, exposure.about.notes, dict(exposure.about.settings)
    assert guess is not None
    certainty, spread = doubts(schema, statistics, guess)
    solved = 0 if guess.searches is None else guess.searches[0].read
    left = None if solved >= guess.cells.shape[1] else unexplained(capture, schema, statistics, guess)
    unsure, why = without_certainty(capture, guess, left)
    certainty[unsure] = torch.nan
    notes = notes if why is None else (*notes, why)
    settings["loss"] = None if guess.loss is None else _finite_number(guess.loss[0])
    granted = dict(exposure.granted)
    if granted["labels"] == "restored":
        off = refuted_counts(capture, schema, statistics, guess)
        granted["labels"] = "restored" if off is None else _NO_COUNTS.format(f"{off:.2g}")
    # Records that were solved for may be of a fitted form of message, which is not what is replayed.
    left = None if solved else left
    return Recovered(attacked, capture, statistics, guess, certainty, spread, settings, granted, notes, left)


def doubts(
    schema: Schema, statistics: Statistics, guess: RecordsGuess
) -> tuple[Float[Tensor, "record column"], Float[Tensor, "record column"]]:
    """Return certainty and spread of each cell of the first victim; ``Recovered`` describes both."""
    doubt = torch.full_like(guess.cells, torch.nan) if guess.uncertainty is None else guess.uncertainty
    stds = [
        torch.nan if isinstance(column, Discrete) else float(statistics.std[block.start])
        for column, block in zip(schema.columns, schema.blocks, strict=True)
    ]
    scale = torch.tensor(stds, dtype=doubt.dtype)
    return certainties(schema, doubt[0], scale), spreads(schema, doubt[0], scale)


def write_recovered(folder: Path, recovered: Recovered) -> None:
    """Write ``reconstruction.csv``, ``confidence.csv`` and ``results.json``, readable for their owner alone."""
    check_new(folder)
    make_folder(folder, private=True)
    findings = recovered.findings
    for name, table in findings.files.items():
        write_whole(folder / name, table.to_csv(index=False), private=True)
    # Last: where it is, the others are whole.
    results = as_json(recovered.attacked.rows, further=findings.figures)
    write_whole(folder / FILES[2], results + "\n", private=True)


def check_new(folder: Path, files: Sequence[str] = FILES) -> None:
    """Refuse a folder that already holds one of the files."""
    check_out(folder)
    there = [name for name in files if (folder / name).exists()]
    if there:
        raise BadInputError(f"{str(folder)!r} holds {there[0]} already; choose another --out or move it away.")


def _cell_in_words(value: object, certainty: Tensor, spread: Tensor) -> str:
    text = shown_value(value, 24)
    if not bool(certainty.isfinite()):
        return text
    around = f", ±{plain_number(float(spread))}" if bool(spread.isfinite()) else ""
    return f"{text} ({percent(float(certainty), 0)}{around})"


def _finite_number(value: Tensor) -> float | None:
    number = float(value)
    return number if abs(number) < float("inf") else None
