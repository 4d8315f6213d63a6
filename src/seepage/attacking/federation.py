"""An attack on the captured updates of many clients and rounds, whose rounds are linked client by client."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal, get_args

import torch
from torch import nn

from seepage import registry
from seepage.assessment.row import ResultRow
from seepage.attacking.controls import with_controls
from seepage.attacking.run import Attacked, run_parts, several
from seepage.attacking.updates import Recovered, doubts, recover
from seepage.attacks.horizontal.matching.over_rounds import OverRounds
from seepage.attacks.horizontal.matching.rounds import pooled
from seepage.captures.captured import attacker_statistics, client_schema, load_capture, names_in, read_description
from seepage.captures.folder import CapturedFile, find_captures
from seepage.digests import Json
from seepage.errors import BadInputError, CertifiedWrongError, check_count, one_line
from seepage.models.head import Dropout
from seepage.models.making import make_model
from seepage.models.model import Head, Model
from seepage.models.states import as_state, is_sent
from seepage.models.weights import lacking
from seepage.protocols.recipe import DeclaredLoss
from seepage.run.runner import Listener
from seepage.seeds import stream
from seepage.settings.captured import CapturedAudit, Findings, FindingsSection, FindingsTable, RecordsExposure, Written
from seepage.settings.horizontal.read import FolderSpec
from seepage.settings.setting import Progress
from seepage.settings.spec import Gate
from seepage.tabular.schema import Schema
from seepage.tabular.table import Table
from seepage.text import clean, how_many
from seepage.wire.horizontal import NOT_TRIED, Knowledge, RecordsGuess, RoundsView

Outcome = Literal["proved", "estimated", "nothing", "not tried", "failed"]
"""``not tried``: file, model or method stood in the way. ``failed``: a step broke off with an error of its own."""

OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)

# Mean certainty of its cells from which a record counts as estimated: the lowest tenth from which nine in ten such
# records were whole on both tables of benchmarks/estimates.py.
SURE = 0.9
# Number formats in which a client's gradient has roundings of every rank.
_COARSE = ("float16", "bfloat16", "mixed")
_LINKED = "rounds attacked one by one, equal records linked"
_MATCHED = "all rounds matched together, as of the same records"
_OF_PATHS = set("/\\\0")
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

Keep = Callable[[str, Recovered], None]  # gets what was read of each update, by its name


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


@dataclass(frozen=True)
class FederationAttack:
    """An attack on all captured updates of a folder; fields are described in ``FolderSpec``.

    The model of an update is ``model-ID.safetensors`` or ``model.safetensors`` beside it, else ``weights``. Where the
    update says which model was sent, another one is not used. An update that cannot be attacked, or whose attack fails
    with any error, is reported with the reason, and the others are attacked.

    Rounds of one client are linked as ``attacks.horizontal.matching.rounds`` does. How many records the client holds is
    granted by its own rows (``truth``) or by ``holds``; without either, every round may be of other records. Where all
    rounds have the same records, an attack that matches gradients matches them together.
    """

    model: str | nn.Module | Model
    schema: Schema
    attack: str = "unmix"
    options: Mapping[str, Json] | None = None
    reference: Path | Table | None = None
    truth: Path | None = None
    weights: Path | None = None
    batch_size: int | None = None
    holds: int | None = None
    head: Head | None = None
    separator: str = ","
    device: torch.device | str = "cpu"
    seed: int = 0
    restore_labels: bool = False
    allow_large: bool = False
    model_seed: int = 0
    dropout: Dropout = "on"
    gate: Gate | None = None
    loss: DeclaredLoss | None = None
    control: bool = True

    def run(self, folder: Path, listener: Listener | None = None, keep: Keep | None = None) -> AttackedFederation:
        """Attack all updates and link the rounds of each client; ``keep`` gets what was read of each, by name."""
        files = find_captures(folder, self.weights)
        if self.holds is not None:
            check_count("holds", self.holds)
        # What is wrong for all updates is said once, before any is attacked.
        statistics, _ = attacker_statistics(self.schema, None, self._rows(self.reference, self.schema))
        make_model(self.model, self.schema, statistics, head=self.head)
        registry.attacks.of("horizontal").create(self.attack, **(self.options or {}))
        clients = list(dict.fromkeys(file.client for file in files))
        truths = self._truths(clients)
        for path in truths.values():
            self._rows(path, self.schema)
        shown = Listener() if listener is None else listener
        shown.begin(float(len(files)), jobs=len(files))
        updates, together, recovered_updates = list[UpdateFinding](), list[ClientFinding](), list[Recovered]()
        scored = dict[str, Attacked]()
        for client in clients:
            of_client = [file for file in files if file.client == client]
            attacked = list[Recovered]()
            for file in of_client:
                shown.started(f"client {client}, round {'?' if file.round is None else file.round}")
                finding, recovered = self._attack_file(file, len(updates), truths.get(client), shown, keep)
                updates.append(finding)
                if recovered is None:
                    shown.failed(file.name, finding.why)
                else:
                    attacked.append(recovered)
                shown.ended()
            recovered_updates += attacked
            if whole := [recovered.attacked for recovered in attacked if recovered.is_scored]:
                scored[client] = whole[0]
            if len(of_client) > 1:
                try:
                    together.append(self._linked(client, attacked, truths.get(client)))
                except CertifiedWrongError:
                    raise
                except Exception as error:
                    together.append(ClientFinding(client, why=f"not linked: {one_line(error)}", failed=True))
        audit = None
        if recovered_updates:
            lost = {place: update.why for place, update in enumerate(updates) if update.records is None}
            parts = {
                part.title: part for recovered in recovered_updates for part in recovered.attacked.audit.spec.defenses
            }
            changed = {"defenses": tuple(parts.values()), "gate": self.gate}
            spec = recovered_updates[0].attacked.audit.spec.model_copy(update=changed)
            audit = several("captured updates", spec, [recovered.attacked for recovered in recovered_updates], lost)
            audit = with_controls(audit, scored, FolderSpec.of(control=self.control), shown.started)
        return AttackedFederation(tuple(updates), tuple(together), self.attack, audit)

    def _attack_file(
        self, file: CapturedFile, unit: int, truth: Path | None, listener: Listener, keep: Keep | None
    ) -> tuple[UpdateFinding, Recovered | None]:
        """Attack one file; return its finding, and the attacked update or None where the attack failed."""
        done = 0.0

        def advance(share: float) -> None:
            nonlocal done
            done += share
            listener.advance(share)

        try:
            if file.why is not None:
                raise BadInputError(file.why)
            recovered = self.update(file.path, self._weights(file), truth, advance, alone=False, unit=unit)
        except CertifiedWrongError:
            raise
        # An odd update may break an attack in any way; the others are attacked all the same.
        except Exception as error:
            return _without(file, error), None
        finally:
            listener.advance(1.0 - done)
        try:
            if keep is not None:
                keep(file.name, recovered)
        except (BadInputError, OSError):
            # What cannot be written for one update cannot be for the others.
            raise
        except Exception as error:
            return _without(file, error), None
        records, cells, estimated = _counts(recovered.guess, recovered.certainty)
        regime = "" if recovered.guess.regime is None else recovered.guess.regime[0]
        outcome: Outcome = "proved" if records else "estimated" if estimated else "nothing"
        why, doubt = regime.removeprefix(NOT_TRIED), _doubt(recovered)
        if outcome == "nothing" and regime.startswith(NOT_TRIED):
            outcome = "not tried"
        elif outcome == "nothing" and doubt is not None:
            outcome, why = "not tried", f"{why}: {doubt}"
        score, number = recovered.attacked.row(), recovered.number
        finding = UpdateFinding(file.name, file.client, file.round, number, outcome, why, records, cells, estimated)
        return replace(finding, score=score, notes=recovered.notes), recovered

    def update(
        self,
        path: Path,
        weights: Path | None = None,
        truth: Path | None = None,
        progress: Progress | None = None,
        alone: bool = True,
        unit: int = 0,
    ) -> Recovered:
        """Attack one update with the weights of the model that was sent; those of its initialisation if None.

        Where it is not ``alone``, ``truth`` may be of other rows, which do not score it, and ``batch_size`` is of
        updates that do not say it. ``unit`` is its place among several, each of which has seeds of its own.
        """
        about = read_description(path)
        schema, notes = client_schema(self.schema, about), list[str]()
        statistics, origin = attacker_statistics(schema, about, self._rows(self.reference, schema))
        head, seed, device = self.head or about.head, self.model_seed, self.device
        rows = self._rows(truth, schema)
        options = {"seed": seed, "head": head, "dropout": self.dropout, "device": device}
        model, _ = make_model(self.model, schema, statistics, weights=weights, partial=True, **options)
        unknown = () if weights is None else lacking(model.module, weights)
        if self.loss is not None:
            if about.loss not in (None, self.loss):
                raise BadInputError(
                    f"the update says that its loss is {about.loss.form.describe()}, the option --loss says "
                    f"{self.loss.form.describe()}; leave the option out."
                )
            model = replace(model, form=self.loss.form)
        capture = load_capture(path, model, schema, unknown)
        if self.loss is not None:
            capture = replace(capture, about=capture.about.model_copy(update={"loss": self.loss}))
        if weights is None:
            notes.append(f"weights: those of the model's initialisation with seed {seed}; give --weights if it moved")
        records = about.batch_size or self.batch_size
        if not alone and rows is not None and len(rows) != records:
            of = "an unknown number of" if records is None else f"{records}"
            notes.append(f"not scored by itself: the client's own rows are {len(rows)}, the update is of {of} records")
            rows = None
        if self.restore_labels:
            capture = replace(capture, about=capture.about.model_copy(update={"labels": None}))
        return recover(
            capture,
            schema,
            statistics,
            origin,
            self.attack,
            batch_size=self.batch_size if alone or about.batch_size is None else None,
            options=self.options,
            seed=self.seed,
            truth=rows,
            progress=progress,
            allow_large=self.allow_large,
            gate=self.gate,
            notes=notes,
            unit=unit,
        )

    def _linked(self, client: str, attacked: Sequence[Recovered], truth: Path | None) -> ClientFinding:
        """Attack the updates of a client together."""
        why = _unlinkable(attacked)
        largest = max((recovered.number for recovered in attacked), default=0)
        if not why and self.holds is not None and self.holds < largest:
            why = f"the client holds {self.holds} records, but an update is of {largest}"
        if why:
            return ClientFinding(client, why=f"not linked: {why}")
        first = attacked[0]
        schema, statistics = first.schema, first.statistics
        rows = self._rows(truth, schema)
        if rows is not None and len(rows) < largest:
            rows = None
        client_rows = self.holds if rows is None else len(rows)
        total = sum(recovered.number for recovered in attacked) if client_rows is None else client_rows
        knowledge = Knowledge(schema, statistics, total, defense=first.capture.about.known(first.number))
        view = RoundsView(tuple(recovered.capture.view for recovered in attacked), largest)
        attack = OverRounds(registry.attacks.of("horizontal").create(self.attack, **(self.options or {})))
        same = client_rows == largest and {recovered.number for recovered in attacked} == {largest}
        if same and attack.together(view, knowledge):
            guess = attack(view, knowledge, [stream(self.seed, 0, "starts")])
            method = _MATCHED
        else:
            guess = pooled([recovered.guess for recovered in attacked], knowledge)
            method = _LINKED
        certainty, _ = doubts(schema, statistics, guess)
        records, cells, estimated = _counts(guess, certainty)
        if method == _LINKED:
            # Records that no round has shown are filled by the marginals, which is no estimate from an update.
            estimated = min(estimated, sum(_counts(recovered.guess, recovered.certainty)[2] for recovered in attacked))
        score = None
        if rows is not None:
            audit, stated = first.attacked.audit, first.capture.about.defense
            about, starts = replace(audit.about, settings={}), [0]
            exposure = RecordsExposure(
                view,
                knowledge,
                self.seed,
                starts,
                about,
                self.attack,
                truth=rows,
                attack=lambda *_: guess,
                stated=stated,
            )
            score = run_parts(CapturedAudit(audit.spec, exposure)).row()
        return ClientFinding(client, len(attacked), total, records, cells, estimated, method, score)

    def _weights(self, file: CapturedFile) -> Path:
        """Return the file of the model that was sent when an update was made."""
        about = read_description(file.path)
        labels = dict.fromkeys((file.path.stem.removeprefix("client-"), file.client))
        # A client's name is never a path.
        names = [f"model-{label}" for label in labels if not set(label) & _OF_PATHS]
        places = [file.path.with_name(f"{name}.safetensors") for name in (*names, "model")]
        there = [path for path in (*places, *([self.weights] if self.weights else [])) if path.is_file()]
        if not there:
            raise BadInputError(
                "there is no model.safetensors beside the update; put the model there that the server sent, or name "
                "it with --weights."
            )
        if about.sent is None:
            return there[0]
        for path in there:
            if is_sent(as_state(path, f"the model {str(path)!r}"), about.sent, names_in(file.path)):
                return path
        raise BadInputError(
            f"{' and '.join(repr(path.name) for path in there)} is not the model that the server sent when the update "
            "was made (another digest); give that of its round."
        )

    def _rows(self, rows: Path | Table | None, schema: Schema) -> Table | None:
        return Table.read(rows, schema, self.separator, missing=None) if isinstance(rows, Path) else rows

    def _truths(self, clients: Sequence[str]) -> dict[str, Path]:
        """Return the files of the clients' own rows, by client, as far as they exist."""
        if self.truth is None:
            return {}
        if not self.truth.is_dir():
            if len(clients) > 1:
                raise BadInputError(
                    f"--truth {str(self.truth)!r} is one table, the updates are of {len(clients)} clients; give a "
                    "folder with ID.csv for each client whose rows are known, or the updates of one client."
                )
            return {clients[0]: self.truth}
        files = {}
        for client in clients:
            names = [] if set(client) & _OF_PATHS else [f"{client}.csv", f"client-{client}.csv"]
            there = [self.truth / name for name in names if (self.truth / name).is_file()]
            if there:
                files[client] = there[0]
        if not files:
            raise BadInputError(
                f"--truth {str(self.truth)!r} has no table of any client; name them ID.csv, such as {clients[0]}.csv."
            )
        return files


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


def _without(file: CapturedFile, error: Exception) -> UpdateFinding:
    """Return the finding on an update whose attack failed."""
    outcome: Outcome = "not tried" if isinstance(error, BadInputError) else "failed"
    return UpdateFinding(file.name, file.client, file.round, None, outcome, one_line(error).rstrip("."))


def _doubt(recovered: Recovered) -> str | None:
    """Return why an update without a proved cell may still leak; None where the search was complete."""
    guess, about = recovered.guess, recovered.capture.about
    [search] = guess.searches or [None]
    if search is None or about.defense is not None or about.sent_as != "full" or about.precision in _COARSE:
        return None
    return search.doubt(recovered.number, recovered.schema.width)


def _counts(guess: RecordsGuess, certainty: torch.Tensor) -> tuple[int, int, int]:
    """Return the numbers of records with a proved cell, of proved cells, and of further records that are estimated."""
    proved = torch.zeros_like(certainty, dtype=torch.bool) if guess.certified is None else guess.certified[0]
    whole = proved.any(1)
    # A mean with an unknown certainty is unknown, and not above anything.
    estimated = (certainty.mean(1) >= SURE) & ~whole
    return int(whole.sum()), int(proved.sum()), int(estimated.sum())


def _unlinkable(attacked: Sequence[Recovered]) -> str:
    """Return why rounds cannot be linked; empty where they can."""
    if len(attacked) < 2:
        return f"{len(attacked)} of the client's updates could be attacked"
    if any(recovered.capture.about.clients > 1 for recovered in attacked):
        return "an update is the mean over several clients"
    if len({recovered.capture.about.protocol for recovered in attacked}) > 1:
        return "the updates are of two protocols"
    if any(recovered.schema != attacked[0].schema for recovered in attacked):
        return "the client encoded its rows in several ways"
    if any((recovered.guess.labels is None) != (attacked[0].guess.labels is None) for recovered in attacked):
        return "labels are known in some rounds only"
    return ""
