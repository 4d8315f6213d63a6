"""Captured messages of federated statistics as an exposure: sums, or tables, of a site."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, cast

import numpy as np
import pandas as pd

from seepage.assessment.statistics import measure_tables
from seepage.captures.statistics import DECLARATION
from seepage.digests import Json, plain
from seepage.errors import BadInputError
from seepage.seeds import stream
from seepage.settings.captured import RECONSTRUCTION, Attacks, CapturedSpec, Reader, RecordsExposure
from seepage.settings.findings import Findings, FindingsSection
from seepage.settings.setting import About
from seepage.settings.statistics.audit import METRICS, STATISTICS_SCALES, view_of
from seepage.settings.statistics.messages import read_statistics
from seepage.tabular.schema import Discrete, Schema
from seepage.tabular.statistics import Statistics, uniform_statistics
from seepage.tabular.table import frame_of, frame_of_columns
from seepage.text import how_many, percent
from seepage.wire.horizontal import RecordsGuess
from seepage.wire.statistics import StatisticsGuess, StatisticsKnowledge, TablesMessage

_USUAL = {"glm": "counts", "cox": "risk_sets", "table": "differencing"}


class StatisticsMessagesSpec(CapturedSpec):
    """An attack on captured messages of federated statistics."""

    setting: ClassVar[str] = "statistics"
    unit: ClassVar[str] = "site"
    repeats: ClassVar[str] = "sites"

    attacks: Attacks = ()


def read(path: Path, spec: StatisticsMessagesSpec) -> RecordsExposure:
    """Return the messages of a folder as the exposure of one site."""
    declared, message = read_statistics(path)
    schema = declared.table
    truth = spec.read_rows(spec.truth, schema)
    records = message.changed if isinstance(message, TablesMessage) else message.records
    if truth is not None and len(truth) != records:
        raise BadInputError(
            f"the truth has {len(truth):,} rows, but the messages are of {records:,}; give the rows of the same site."
        )
    public = spec.read_rows(spec.data, schema)
    statistics = uniform_statistics(schema) if public is None else Statistics.of(public)
    shares = None
    if isinstance(schema.target, Discrete):
        shares = np.array(statistics.target.probabilities.tolist())
    knowledge = StatisticsKnowledge(schema, statistics, records, label_shares=shares)
    about = About(
        "captured statistics",
        declared.protocol,
        f"{declared.family} regression" if declared.protocol == "glm" else declared.protocol,
        lead="What the sums of a site in federated statistics give away of the records behind them.",
        message="the sums of all iterations",
        size="site size",
        threat_model=(
            "The attacker receives the sums. It has the declared design, and the coefficients of every iteration.",
            "Public rows say how frequent categories are." if public is not None else "It holds no public rows.",
        ),
        scales=STATISTICS_SCALES,
        settings={"seed": spec.seed},
    )
    return RecordsExposure(
        view_of([message]),
        knowledge,
        spec.seed,
        [stream(spec.seed, 0, "starts") % 2**62],
        about,
        _USUAL[declared.protocol],
        lambda guess, attack: _findings(guess, schema, attack),
        truth,
        "statistics",
        METRICS,
        further=measure_tables,
        granted=cast("Mapping[str, Json]", plain(knowledge.describe())),
    )


def _findings(guess: RecordsGuess, schema: Schema, attack: str) -> Findings:
    """Return how many records were guessed, and how many of them are certified."""
    cells, proof = guess.cells[0], guess.proofs[0] if guess.proofs else None
    records, read = len(cells), int(cells.isfinite().all(1).sum())
    certified = 0.0 if proof is None else float(proof.cells.all(1).double().mean())
    facts = dict(guess.facts[0]) if isinstance(guess, StatisticsGuess) and guess.facts else {}
    words = [f"{attack} guesses {how_many(read, 'record')} of {records:,}; {percent(certified)} of them are certified."]
    if proof is not None and proof.doubt:
        words.append(f"Nothing is certified: {proof.doubt}.")
    if proof is not None and certified:
        words.append("A certified record is in the table on these conditions: " + " ".join(proof.conditions))
    points = [f"method: {guess.regime[0]}"] if guess.regime else []
    points.append(f"{schema.target.name}, the outcome: guessed beside the columns, and never certified with them")
    if "proved_alone" in facts:
        points.append(
            f"{percent(facts['proved_alone'])} of the records are proved to be the only ones of their pattern"
        )
    plainly = {"records": records, "certified_records": certified, "facts": facts, "method": points[:1]}
    frame = frame_of(schema, cells)
    if guess.labels is not None and bool(guess.labels.isfinite().all()):
        frame = pd.concat([frame, frame_of_columns([schema.target], guess.labels[0][:, None])], axis=1)
    section = FindingsSection(f"{how_many(records, 'record')} behind sums", tuple(words), tuple(points))
    return Findings((section,), plainly, {RECONSTRUCTION: frame})


READER = Reader(
    "messages of federated statistics",
    lambda path: (path / DECLARATION).is_file(),
    StatisticsMessagesSpec,
    read,
    lambda path, _: read_statistics(path),
)
