"""One job: an attack or a baseline on one group of victims, scored. What runs in a worker process."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from seepage.assessment import Measured, Metric, match_records, measure_matched
from seepage.assessment.evidence import Evidence, evidence_of
from seepage.registry import takes
from seepage.tabular.schema import Schema
from seepage.tabular.statistics import Statistics
from seepage.wire.horizontal import AnyView, Knowledge, RecordsGuess
from seepage.wire.secret import Transcript


@dataclass(frozen=True)
class Job:
    """What a worker needs beside the schema and the statistics, which it holds already.

    Attributes:
        key: of the setting.
        first: index of the first victim.
        made: the attack or baseline.
        is_attack: which of the two.
        transcript: of the victims.
        granted: what the attacker knows beside schema and statistics, arguments of ``Knowledge``.
        seeds: of its random numbers, one a victim.
        keep_records: whether true and guessed cells are kept.
        metrics: what is measured.
    """

    key: str
    first: int
    made: Callable[..., Any]
    is_attack: bool
    transcript: Transcript[AnyView]
    granted: dict[str, Any]
    seeds: tuple[int, ...]
    keep_records: bool
    metrics: tuple[Metric, ...]

    @property
    def victims(self) -> range:
        """Indices of the victims."""
        return range(self.first, self.first + len(self.seeds))


@dataclass(frozen=True)
class Done:
    """What came out of a job.

    Attributes:
        measured: scores of its victims.
        seconds: the attack took, a victim.
        evidence: one a victim of an attack, none of a baseline.
    """

    measured: list[Measured]
    seconds: float
    evidence: list[Evidence]


def carry_out(
    job: Job, schema: Schema, statistics: Statistics, progress: Callable[[float], None] | None = None
) -> Done:
    """Attack the victims of a job and score what comes out.

    Args:
        job: what to do.
        schema, statistics: of the table; workers hold them, so that jobs stay small.
        progress: called now and then with the share of the work done since the last call.

    Raises:
        BadInputError: the attack cannot be run on these victims.
    """
    knowledge = Knowledge(schema, statistics, **job.granted)
    begun = time.perf_counter()
    guess = attack(job.made, job.transcript, knowledge, job.seeds, progress if job.is_attack else None)
    seconds = (time.perf_counter() - begun) / len(job.seeds)
    secret = job.transcript.secret
    matched = match_records(schema, statistics, secret, guess)
    evidence = []
    if job.is_attack:
        evidence = evidence_of(matched, statistics, secret.labels, guess, job.keep_records)
    return Done(measure_matched(matched, job.metrics), seconds, evidence)


def attack(
    made: Callable[..., Any],
    transcript: Transcript,
    knowledge: Knowledge,
    seeds: Sequence[int],
    progress: Callable[[float], None] | None,
) -> RecordsGuess:
    """Return the guess of an attack or baseline, which is told of progress only if it can be."""
    reports = progress is not None and takes(made, "progress")
    return made(transcript.view, knowledge, seeds, **({"progress": progress} if reports else {}))
