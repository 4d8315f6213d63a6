"""What captured updates of many clients and rounds give away: a finding an update, and one a client with several."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Literal, get_args

import torch

from seepage.assessment.row import ResultRow
from seepage.attacking.run import Attacked
from seepage.settings.findings import Findings, FindingsSection, FindingsTable, Written
from seepage.text import clean, how_many
from seepage.wire.horizontal import RecordsGuess

Outcome = Literal["proved", "estimated", "nothing", "not tried", "failed"]
"""``not tried``: file, model or method stood in the way. ``failed``: a step broke off with an error of its own."""

OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)

# Mean certainty of its cells from which a record counts as estimated: the lowest tenth from which nine in ten such
# records were whole on both tables of benchmarks/estimates.py.
_SURE = 0.9
# Columns of the tables on updates and on clients.
_CLIENT: tuple[str, str, Written] = ("Client", "client", "text")
_FIGURES: tuple[tuple[str, str, Written], ...] = (
    ("Records", "records", "count"),
    ("Proved", "proved", "count"),
    ("Proved cells", "cells", "count"),
    ("Estimated", "estimated", "count"),
    ("Cells read", "mean", "share"),
    ("Best baseline", "baseline", "share"),
    ("Lift", "lift", "gain"),
    ("Why", "why", "long"),
)
_OF_UPDATES: tuple[tuple[str, str, Written], ...] = (
    _CLIENT,
    ("Round", "round", "count"),
    ("Outcome", "outcome", "outcome"),
    *_FIGURES,
)
_OF_CLIENTS: tuple[tuple[str, str, Written], ...] = (_CLIENT, ("Rounds", "rounds", "count"), *_FIGURES)


@dataclass(frozen=True)
class UpdateFinding:
    """The finding on one update; estimated are further records of whose cells the attacker is sure, 0.9 in the mean."""

    file: str
    client: str
    round: int | None
    records: int | None
    outcome: Outcome
    why: str
    proved_records: int = 0
    proved_cells: int = 0
    estimated_records: int = 0
    score: ResultRow | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class ClientFinding:
    """The finding on all updates of one client together; proved are the records of the update that proves most."""

    client: str
    rounds: int = 0
    records: int | None = None
    proved_records: int = 0
    proved_cells: int = 0
    estimated_records: int = 0
    why: str = ""
    score: ResultRow | None = None
    failed: bool = False


@dataclass(frozen=True)
class AttackedFederation:
    """The results on all captured updates of a federation; those that were scored are the units of ``attacked``."""

    updates: tuple[UpdateFinding, ...]
    clients: tuple[ClientFinding, ...]
    attack: str
    attacked: Attacked | None = None

    @property
    def counts(self) -> dict[Outcome, int]:
        """Number of updates of each outcome, in order of gravity."""
        outcomes = [update.outcome for update in self.updates]
        return {outcome: outcomes.count(outcome) for outcome in OUTCOMES}

    @property
    def incomplete(self) -> bool:
        """Whether an update could not be attacked at all, or an attack or the linking of rounds failed."""
        return any(update.records is None for update in self.updates) or any(client.failed for client in self.clients)

    @property
    def findings(self) -> Findings:
        """What each update gives away, and all rounds of a client together."""
        updates = [
            {**_record(update, update.notes), "round": update.round, "outcome": update.outcome}
            for update in self.updates
        ]
        title = "What each update gives away"
        table = FindingsTable(title, _OF_UPDATES, tuple(updates), sparse=True)
        sections = [FindingsSection(title, tuple(self._words()), (), (table,), "updates")]
        if self.clients:
            clients = tuple({**_record(client), "rounds": client.rounds} for client in self.clients)
            together = "What all rounds of a client give away together"
            table = FindingsTable(together, _OF_CLIENTS, clients, sparse=True)
            words = ("Records are the most that a client was taken to hold.",)
            sections.append(FindingsSection(together, words, (), (table,), "clients"))
        plain = {
            "counts": self.counts,
            "attack": self.attack,
            "updates": [_plain(update) for update in self.updates],
            "clients": [_plain(client) for client in self.clients],
        }
        return Findings(tuple(sections), plain)

    def _words(self) -> list[str]:
        """Return what was found in the updates as sentences."""
        counts, clients = self.counts, len({update.client for update in self.updates})
        words = [
            f"{how_many(len(self.updates), 'update')} of {how_many(clients, 'client')}, attacked by "
            f"{clean(self.attack)}: {', '.join(f'{count} {outcome}' for outcome, count in counts.items())}."
        ]
        if counts["estimated"]:
            words.append(
                "Estimates are records that the attacker is sure of without a proof; attempts can agree and be wrong."
            )
        if counts["nothing"]:
            words.append("Nothing found does not show that an update is safe: a better attack may exist.")
        partial = sum(any(note.startswith("not sent: ") for note in update.notes) for update in self.updates)
        if partial:
            words.append(
                f"Of {how_many(partial, 'update')} something stayed with the client. Where its values are not "
                "declared, the attack is weaker, and nothing is proved."
            )
        if counts["not tried"] or counts["failed"]:
            words.append("An update that was not tried, or failed, is not known to be safe.")
        return words


def _record(finding: UpdateFinding | ClientFinding, notes: Sequence[str] = ()) -> dict[str, object]:
    """Return the figures of an update, or a client, as a line of a table; those of what was not tried are missing."""
    tried, score = finding.records is not None, finding.score
    return {
        "client": clean(finding.client, 24),
        "records": finding.records,
        "proved": finding.proved_records if tried else None,
        "cells": finding.proved_cells if tried else None,
        "estimated": finding.estimated_records if tried else None,
        **{name: None if score is None else getattr(score, name) for name in ("mean", "baseline", "lift")},
        "why": "; ".join(part for part in (finding.why, *notes) if part),
    }


def _plain(finding: UpdateFinding | ClientFinding) -> dict[str, object]:
    score = None if finding.score is None else finding.score.as_dict()
    return {**asdict(replace(finding, score=None)), "score": score}


def counts_of(guess: RecordsGuess, certainty: torch.Tensor) -> tuple[int, int, int]:
    """Return the numbers of records with a proved cell, of proved cells, and of further records that are estimated."""
    proved = torch.zeros_like(certainty, dtype=torch.bool) if guess.certified is None else guess.certified[0]
    whole = proved.any(1)
    # A mean with an unknown certainty is unknown, and not above anything.
    estimated = (certainty.mean(1) >= _SURE) & ~whole
    return int(whole.sum()), int(proved.sum()), int(estimated.sum())
