"""An attack on a captured update: what the records behind it were, without knowing the truth."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, cast

import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from seepage import kernel, registry
from seepage.assessment import certainties, spreads
from seepage.attacks.horizontal.exact.record_count import count_records
from seepage.captures.audit import Attacked, RecordsExposure, run_parts
from seepage.captures.captured import Capture, Description, coarse
from seepage.captures.explained import without_certainty
from seepage.captures.spec import AttackSpec
from seepage.digests import Json
from seepage.errors import BadInputError, Remedy, check_count
from seepage.files import check_out, make_folder, write_whole
from seepage.models.model import Model
from seepage.models.wrapping import returns_chances
from seepage.registry import reporting
from seepage.results.rows import as_json
from seepage.seeds import stream
from seepage.settings.part import Part
from seepage.settings.setting import About, Progress
from seepage.settings.spec import Gate
from seepage.tabular.schema import Discrete, Schema
from seepage.tabular.statistics import Statistics, standardised_statistics, uniform_statistics
from seepage.tabular.table import Table, frame_of
from seepage.wire.horizontal import GradientView, Knowledge, RecordsGuess

FILES = ("reconstruction.csv", "confidence.csv", "results.json")

# Of the dummy rows of all restarts; four bytes each in float32, and a descent holds a handful of copies.
_MOST_NUMBERS = 2**26
# Records are matched with each other, all pairs at once.
_MOST_RECORDS = 2**13

Origin = Literal["reference rows", "encoding", "bounds"]
_ORIGIN_WORDS: dict[Origin, str] = {
    "reference rows": "marginals and moments of the reference rows",
    "encoding": "what rows are standardised with, as the update says; normal and independent columns assumed",
    "bounds": "assumed: every category and every number within the schema's bounds equally likely",
}


@dataclass(frozen=True)
class Recovered:
    """The records that an attack read from one update, in no particular order.

    Certainty is in [0, 1], see ``assessment.certainties``; NaN where the attack has no ensemble. Spread is the standard
    deviation of a continuous cell in its column's unit; NaN elsewhere.
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

    @property
    def number(self) -> int:
        """Number of records."""
        return self.guess.cells.shape[1]

    @property
    def schema(self) -> Schema:
        """Schema of the table."""
        return self.attacked.audit.schema

    @property
    def records(self) -> pd.DataFrame:
        """The guessed records, and the labels that were used in the target's column."""
        frame = frame_of(self.schema, self.guess.cells[0])
        if self.guess.labels is not None:
            alone = self.schema.model_copy(update={"columns": (self.schema.target,), "target": self.schema.columns[0]})
            frame = pd.concat([frame, frame_of(alone, self.guess.labels[0][:, None])], axis=1)
        return frame

    @property
    def tables(self) -> dict[str, pd.DataFrame]:
        """Records and confidence by the name of their file."""
        return {FILES[0]: self.records, FILES[1]: self.confidence}

    def to_plain(self) -> dict[str, object]:
        """Return settings, knowledge, notes and certainty as JSON values, without any guessed cell."""
        means = self.certainty.nanmean(dim=0)
        certain = {name: _plain(mean) for name, mean in zip(self.schema.names, means, strict=True)}
        notes = list(self.notes)
        return {"settings": self.settings, "knowledge": self.knowledge, "notes": notes, "certainty": certain}

    @property
    def confidence(self) -> pd.DataFrame:
        """One row a guessed cell: record (from 1), column, guess, certainty and spread."""
        frame, names = frame_of(self.schema, self.guess.cells[0]), self.schema.names
        rows = [
            (r + 1, name, frame.iat[r, i], _plain(self.certainty[r, i]), _plain(self.spread[r, i]))
            for r in range(len(frame))
            for i, name in enumerate(names)
        ]
        return pd.DataFrame(rows, columns=["record", "column", "guess", "certainty", "spread"])


def attacker_statistics(
    schema: Schema, about: Description | None = None, reference: Table | None = None
) -> tuple[Statistics, Origin]:
    """Return the attacker's statistics of the columns, and their origin.

    Rows of the same kind are best; else what the update says rows are standardised with; else the schema's bounds
    alone. Where the update says it, rows are standardised as the client did.
    """
    stated = None
    if about is not None and about.encoder is not None:
        stated = standardised_statistics(schema, about.encoder.mean, about.encoder.scale)
    elif about is not None and about.encoding is not None:
        stated = standardised_statistics(schema, about.encoding.mean, about.encoding.std)
    if reference is None:
        return (uniform_statistics(schema), "bounds") if stated is None else (stated, "encoding")
    rows = Statistics.of(reference)
    return rows if stated is None else replace(rows, mean=stated.mean, std=stated.std), "reference rows"


def states_encoding(about: Description) -> bool:
    """Return whether an update states how its rows were standardised."""
    return about.encoding is not None or about.encoder is not None


def client_schema(schema: Schema, about: Description) -> Schema:
    """Return the schema with columns and categories in the order in which the client's encoder has them."""
    return schema if about.encoder is None else about.encoder.arranged(schema)


def recover(
    capture: Capture,
    schema: Schema,
    statistics: Statistics,
    origin: Origin,
    attack: str = "unmix",
    *,
    batch_size: int | None = None,
    options: Mapping[str, Json] | None = None,
    seed: int = 0,
    truth: Table | None = None,
    progress: Callable[[float], None] | None = None,
    allow_large: bool = False,
    gate: Gate | None = None,
    notes: Sequence[str] = (),
    unit: int = 0,
) -> Recovered:
    """Attack a captured update in the way in which an audit of the same seed attacks its victim number ``unit``.

    Without ``batch_size``, records that the update does not number are counted. The truth scores the guess, in any
    order.
    """
    about, model = capture.about, capture.view.model
    records, counted = _records(capture, schema, statistics, batch_size, truth, seed)
    knowledge = _knowledge(capture, schema, statistics, records)
    method = registry.attacks.of("horizontal").create(attack, **(options or {}))
    restarts = int(registry.argument(method, "restarts", 1))
    numbers = records * schema.width * restarts
    if not allow_large and (numbers > _MOST_NUMBERS or records > _MOST_RECORDS):
        raise BadInputError(
            f"{records:,} records of {schema.width} encoded columns, searched from {restarts:,} random starts, are "
            f"{numbers:,} numbers; above {_MOST_RECORDS:,} records or {_MOST_NUMBERS:,} numbers an attack may take "
            "more memory than there is. Check the number of records, ask for fewer restarts, or allow it: ",
            Remedy("allow_large", True),
            ".",
        )
    doubt = coarse(about, model)

    def read(*seen: object, progress: Progress | None = None) -> RecordsGuess:
        guess = method(*seen, **reporting(method, progress))
        if guess.proofs is None or doubt is None:
            return guess
        return replace(guess, proofs=(kernel.nothing(guess.cells.shape[1], guess.cells.shape[2], doubt),))

    settings: dict[str, Json] = {
        "attack": attack,
        "options": dict(options or {}),
        "seed": seed,
        "protocol": about.protocol,
        "model": model.name,
        "head": model.head,
        "batch_size": records,
    }
    granted: dict[str, Json] = {
        **cast("dict[str, Json]", knowledge.describe()),
        "statistics": _ORIGIN_WORDS[origin],
        "encoding": "as the update says" if states_encoding(about) else "that of the statistics",
        "labels": "restored" if knowledge.labels is None else "those in the update",
        "records": "counted in the update" if counted else "granted",
    }
    all_notes = (*capture.notes, *notes, *_assumed(model))
    facts = About(
        "captured update",
        about.protocol,
        model.name,
        lead="What a captured update gives away of the records behind it.",
        message="the update",
        threat_model=(
            "The attacker is the server, honest but curious: it has the update, the model that it sent and the schema.",
            f"The update is {about.describe()}, of {records:,} records.",
            f"Columns: {_ORIGIN_WORDS[origin]}.",
        ),
        notes=all_notes,
        settings=dict(settings),
        without_dropout=model.switched_off,
    )
    spec = AttackSpec.of(attacks=(Part(name=attack, options=dict(options or {})),), seed=seed, gate=gate)
    starts = [stream(seed, unit, "starts")]
    exposure = RecordsExposure(capture.view, knowledge, seed, starts, truth, attack=read, unit=unit)
    attacked = run_parts(exposure.audit(spec, facts, about.defense, granted), progress=lambda _: progress)
    guess = exposure.guess
    assert guess is not None
    certainty, spread = doubts(schema, statistics, guess)
    unsure, why = without_certainty(capture, schema, statistics, guess)
    certainty[unsure] = torch.nan
    all_notes = all_notes if why is None else (*all_notes, why)
    settings["loss"] = None if guess.loss is None else _plain(guess.loss[0])
    return Recovered(attacked, capture, statistics, guess, certainty, spread, settings, granted, all_notes)


def _knowledge(capture: Capture, schema: Schema, statistics: Statistics, records: int) -> Knowledge:
    """Return the attacker's knowledge besides the update."""
    given, model = capture.about.labels, capture.view.model
    if given is None and model.head == "regression":
        raise BadInputError(
            f"model {model.name!r} has a regression head: its labels are numbers, which cannot be restored from an "
            "update. Capture the update with labels=..., for an attacker that knows them."
        )
    if given is not None and len(given) != records:
        raise BadInputError(f"the update has {len(given)} labels for a batch of {records} records; give one a record.")
    labels = None if given is None else torch.tensor([given], dtype=torch.float64)
    defense, moments = capture.about.known(records), capture.batch_statistics
    return Knowledge(schema, statistics, records, labels, defense=defense, batch_statistics=moments)


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


def _assumed(model: Model) -> list[str]:
    """Return notes on what the attack assumes about the client's training."""
    notes = []
    if model.switched_off:
        notes.append(
            "dropout is switched off: an update of a client that drops values is not that of the network attacked here"
        )
    if returns_chances(model.module):
        notes.append(
            "the network returns chances, as of a sigmoid: the client is taken to have trained it as with nn.BCELoss"
        )
    return notes


def write_recovered(folder: Path, recovered: Recovered) -> None:
    """Write ``reconstruction.csv``, ``confidence.csv`` and ``results.json``, readable for their owner alone."""
    check_new(folder)
    make_folder(folder, private=True)
    for name, table in recovered.tables.items():
        write_whole(folder / name, table.to_csv(index=False), private=True)
    # Last: where it is, the others are whole.
    results = as_json(recovered.attacked.rows, further=recovered.to_plain())
    write_whole(folder / FILES[2], results + "\n", private=True)


def check_new(folder: Path, files: Sequence[str] = FILES) -> None:
    """Refuse a folder that already holds one of the files."""
    check_out(folder)
    there = [name for name in files if (folder / name).exists()]
    if there:
        raise BadInputError(f"{str(folder)!r} holds {there[0]} already; choose another --out or move it away.")


def _records(
    capture: Capture, schema: Schema, statistics: Statistics, batch_size: int | None, truth: Table | None, seed: int
) -> tuple[int, bool]:
    """Return the number of records, and whether it was counted in the update itself."""
    if batch_size is not None:
        check_count("batch_size", batch_size)
    stated = capture.about.batch_size
    if stated is None and capture.about.labels is not None:
        stated = len(capture.about.labels)
    if batch_size is not None and stated not in (None, batch_size):
        raise BadInputError(
            f"the update says that it is of {stated} records, --batch-size says {batch_size}; leave the option out."
        )
    records, counted = batch_size or stated, False
    if records is None and isinstance(capture.view, GradientView):
        records = count_records(capture.view, schema, statistics, seed=seed)
        counted = records is not None
    if records is None:
        raise BadInputError(
            "the update does not say how many records are behind it, and they could not be counted in it, as in exact "
            "gradients of ReLU networks with two hidden layers they can; say it with --batch-size, or capture it with "
            "batch_size=..."
        )
    if truth is not None and len(truth) != records:
        raise BadInputError(
            f"the truth has {len(truth)} rows, the update is of {records} records; give exactly the rows of its batch."
        )
    return records, counted


def _plain(value: Tensor) -> float | None:
    number = float(value)
    return number if abs(number) < float("inf") else None
