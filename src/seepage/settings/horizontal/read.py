"""A captured update as an exposure: the records behind it, for an attacker that has model, schema and description."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, ClassVar, cast

import torch
from pydantic import Field, model_validator

from seepage import kernel, registry
from seepage.attacks.horizontal.exact.record_count import count_records
from seepage.attacks.horizontal.matching.profile import Profile
from seepage.captures.captured import Capture, Origin, coarse, states_encoding
from seepage.digests import Json
from seepage.errors import BadInputError, Remedy, check_count
from seepage.models.head import Dropout, Head
from seepage.models.model import Model
from seepage.models.wrapping import returns_chances
from seepage.registry import reporting
from seepage.seeds import stream
from seepage.settings.captured import (
    Attacks,
    BatchSize,
    CapturedSpec,
    ClientSchema,
    Network,
    RecordsExposure,
)
from seepage.settings.horizontal.spec import HorizontalSpec
from seepage.settings.loss import BatchLoss
from seepage.settings.option import ATTACK, KNOWLEDGE, OUTPUT, PARTIES, Option, fields_of
from seepage.settings.part import Part
from seepage.settings.setting import About, Progress
from seepage.settings.spec import File
from seepage.tabular.schema import Schema
from seepage.tabular.statistics import Statistics
from seepage.tabular.table import Table
from seepage.wire.horizontal import GradientView, Knowledge, RecordsGuess

# Arguments with which an attack spends next to nothing on what it cannot prove.
PROOFS_ONLY = {"restarts": 1, "iterations": 1}
_OF_AUDITS = fields_of(HorizontalSpec)
# Of the dummy rows of all restarts; four bytes each in float32, and a descent holds a handful of copies.
_MOST_NUMBERS = 2**26
# Records are matched with each other, all pairs at once.
_MOST_RECORDS = 2**13

_ORIGIN_WORDS: dict[Origin, str] = {
    "reference rows": "marginals and moments of the reference rows",
    "encoding": "what rows are standardised with, as the update says; normal and independent columns assumed",
    "bounds": "assumed: every category and every number within the schema's bounds equally likely",
}


class UpdatesSpec(CapturedSpec):
    """An attack on captured updates; each field describes itself."""

    setting: ClassVar[str] = "horizontal"
    unit: ClassVar[str] = "captured update"
    repeats: ClassVar[str] = "updates"
    needs: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("model", "schema_file"), "captured updates are attacked with their model and schema"
    )

    model: Network = None
    schema_file: ClientSchema = None
    weights: Annotated[
        File | None,
        Option(
            "Weights of the network as the server sent it (.safetensors).",
            PARTIES,
            "FILE",
            default="those of its initialisation",
        ),
    ] = None
    head: Annotated[Head | None, _OF_AUDITS["head"].option] = None
    loss: Annotated[
        BatchLoss | None,
        replace(_OF_AUDITS["loss"].option, default="what the update says; else fitted on the update"),
    ] = None
    model_seed: Annotated[
        int, Field(ge=0, lt=2**63), Option("Seed of the network's initialisation, without --weights.", PARTIES)
    ] = 0
    dropout: Annotated[Dropout, _OF_AUDITS["dropout"].option] = "on"
    batch_size: BatchSize = None
    attacks: Attacks = ()
    proofs_only: Annotated[bool, Option("Spend next to no time on estimates of what is not proved.", ATTACK)] = False
    restore_labels: Annotated[bool, Option("Do not use the labels that the update may hold.", KNOWLEDGE)] = False
    profile: Annotated[Profile, _OF_AUDITS["profile"].option] = "default"
    restarts: Annotated[int | None, Field(ge=1), _OF_AUDITS["restarts"].option] = None
    iterations: Annotated[int | None, Field(ge=1), _OF_AUDITS["iterations"].option] = None

    @property
    def attack(self) -> Part:
        """The attack with all its options; the attack itself refuses those that it does not take."""
        if len(self.attacks) > 1:
            raise BadInputError(
                f"captured updates are read by one attack, got {' and '.join(part.title for part in self.attacks)}; "
                "name one, and the others in further commands with an --out of their own."
            )
        named = self.attacks[0] if self.attacks else Part(name="unmix")
        factory = registry.attacks.of(self.setting)[named.name].factory
        profiled = self.profile != "default" or "profile" in inspect.signature(factory).parameters
        limits = {"restarts": self.restarts, "iterations": self.iterations}
        options: dict[str, Json] = {"profile": self.profile} if profiled else {}
        options |= {limit: value for limit, value in limits.items() if value is not None}
        return Part(name=named.name, options={**options, **(PROOFS_ONLY if self.proofs_only else {}), **named.options})

    @property
    def client_records(self) -> int | None:
        """Number of records that each client holds; None where it is not known."""
        return None

    @model_validator(mode="after")
    def _nothing_to_estimate(self) -> UpdatesSpec:
        if self.proofs_only and (self.restarts is not None or self.iterations is not None):
            raise BadInputError("--proofs-only estimates nothing; leave out --restarts and --iterations.")
        return self


class UpdateSpec(UpdatesSpec):
    """An attack on one captured update."""

    certificate: Annotated[
        File | None,
        Option("File (.json) for a certificate of what was proved; `seepage verify` checks it.", OUTPUT, "FILE"),
    ] = None
    open_certificate: Annotated[
        bool, Option("Write cells and salts into the certificate, not into a file beside it.", OUTPUT, name="open")
    ] = False

    @model_validator(mode="after")
    def _certificates(self) -> UpdateSpec:
        if self.open_certificate and self.certificate is None:
            raise BadInputError("--open says what a certificate holds; give its file with --certificate FILE.")
        return self


class FolderSpec(UpdatesSpec):
    """An attack on a folder of captured updates."""

    holds: Annotated[
        int | None,
        Option("For a folder: number of records that each client holds, from which it draws its batches.", KNOWLEDGE),
    ] = None

    @property
    def client_records(self) -> int | None:
        """Number of records that each client holds; None where it is not known."""
        return self.holds


def exposed(
    capture: Capture,
    schema: Schema,
    statistics: Statistics,
    origin: Origin,
    attack: str,
    *,
    batch_size: int | None = None,
    options: Mapping[str, Json] | None = None,
    seed: int = 0,
    truth: Table | None = None,
    allow_large: bool = False,
    notes: Sequence[str] = (),
    unit: int = 0,
) -> RecordsExposure:
    """Return a captured update as an exposure to one attack, as an audit of the same seed has its victim ``unit``.

    Without ``batch_size``, records that the update does not number are counted.
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

    def read(*inputs: object, progress: Progress | None = None) -> RecordsGuess:
        guess = method(*inputs, **reporting(method, progress))
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
    return RecordsExposure(
        capture.view,
        knowledge,
        seed,
        [stream(seed, unit, "starts")],
        facts,
        attack,
        truth=truth,
        attack=read,
        unit=unit,
        stated=about.defense,
        granted=granted,
    )


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
