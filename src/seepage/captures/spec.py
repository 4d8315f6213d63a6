"""What an attack on a capture is to do: fields as those of an audit, checked before anything is read."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, ClassVar

from pydantic import Field, field_validator, model_validator

from seepage.attacks.horizontal.matching.profile import Profile
from seepage.config.choices import describe
from seepage.errors import BadInputError
from seepage.models.head import Dropout, Head
from seepage.settings.horizontal.spec import HorizontalSpec
from seepage.settings.loss import BatchLoss
from seepage.settings.option import ATTACK, KNOWLEDGE, OUTPUT, PARTIES, TABLE, Option, fields_of
from seepage.settings.part import Part, Parts, as_part
from seepage.settings.spec import File, Spec

# Arguments with which an attack spends next to nothing on what it cannot prove.
PROOFS_ONLY = {"restarts": 1, "iterations": 1}
_OF_AUDITS = fields_of(HorizontalSpec)


class AttackSpec(Spec):
    """The spec of an attack on a captured update or on a folder of updates; each field describes itself."""

    setting: ClassVar[str] = "horizontal"
    unit: ClassVar[str] = "captured update"
    repeats: ClassVar[str] = "updates"

    model: Annotated[
        str | None,
        Option(
            "Network: a name of `seepage models`, package.module:factory or path/to/file.py:factory. Of a transcript "
            "the one that it names, if left out; of tree files none.",
            PARTIES,
            "NAME",
        ),
    ] = None
    schema_file: Annotated[
        File | None,
        Option(
            "YAML schema of the client's table; `seepage schema` drafts one. Of a transcript the one in its folder, if "
            "left out.",
            TABLE,
            "FILE",
            name="schema",
        ),
    ] = None
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
    data: Annotated[
        File | None,
        Option(
            "Public rows of the same kind (.csv, .parquet): what the attacker knows of the columns.", KNOWLEDGE, "FILE"
        ),
    ] = None
    batch_size: Annotated[
        int | None,
        Option("Number of records behind the update, where it does not say it.", KNOWLEDGE, default="counted"),
    ] = None
    attacks: Annotated[
        Parts,
        Option(
            "Attack; `seepage attacks` lists them. Several of a transcript, one of updates.",
            ATTACK,
            "NAME[:OPTIONS]",
            parts="attacks",
            default="unmix, of a transcript those of an audit of its setting",
        ),
    ] = ()
    known: Annotated[
        File | None,
        Option(
            "For a transcript: records that the attacker knows, with ids and the label, private columns or both.",
            KNOWLEDGE,
            "FILE",
        ),
    ] = None
    truth: Annotated[
        File | None,
        Option(
            "True rows of the batch, in any order: scores what was read. For a folder the client's own rows, or a "
            "folder with ID.csv for each client. For a transcript rows with ids.",
            OUTPUT,
            "FILE",
        ),
    ] = None
    holds: Annotated[
        int | None,
        Option("For a folder: number of records that each client holds, from which it draws its batches.", KNOWLEDGE),
    ] = None
    proofs_only: Annotated[bool, Option("Spend next to no time on estimates of what is not proved.", ATTACK)] = False
    certificate: Annotated[
        File | None,
        Option("File (.json) for a certificate of what was proved; `seepage verify` checks it.", OUTPUT, "FILE"),
    ] = None
    open_certificate: Annotated[
        bool, Option("Write cells and salts into the certificate, not into a file beside it.", OUTPUT, name="open")
    ] = False
    restore_labels: Annotated[bool, Option("Do not use the labels that the update may hold.", KNOWLEDGE)] = False
    profile: Annotated[Profile, _OF_AUDITS["profile"].option] = "default"
    restarts: Annotated[int | None, Field(ge=1), _OF_AUDITS["restarts"].option] = None
    iterations: Annotated[int | None, Field(ge=1), _OF_AUDITS["iterations"].option] = None
    regularisation: Annotated[
        float, Field(ge=0, lt=float("inf")), Option("For tree files: lambda of the client's trees.", PARTIES)
    ] = 1.0
    learning_rate: Annotated[
        float, Field(gt=0, lt=float("inf")), Option("For tree files: eta of the client's trees.", PARTIES)
    ] = 0.3

    @model_validator(mode="after")
    def _fits_the_table(self) -> AttackSpec:
        return self

    @field_validator("attacks", mode="before")
    @classmethod
    def _labelled(cls, value: object) -> object:
        """Leave out repeats, and give attacks of the same name their options as label."""
        if not isinstance(value, list | tuple):
            return value
        given = [Part.model_validate(as_part(item)) for item in value]
        parts = {part.model_dump_json(): part for part in given}.values()
        titles = [part.title for part in parts]
        return tuple(
            part.model_copy(update={"label": describe(part.name, part.options)})
            if part.label is None and titles.count(part.title) > 1
            else part
            for part in parts
        )

    @model_validator(mode="after")
    def _certificates(self) -> AttackSpec:
        if self.proofs_only and (self.restarts is not None or self.iterations is not None):
            raise BadInputError("--proofs-only estimates nothing; leave out --restarts and --iterations.")
        if self.open_certificate and self.certificate is None:
            raise BadInputError("--open says what a certificate holds; give its file with --certificate FILE.")
        return self


class SplitTranscriptSpec(AttackSpec):
    """An attack on a transcript of split training."""

    setting: ClassVar[str] = "split"
    unit: ClassVar[str] = "training"
    repeats: ClassVar[str] = "trainings"
    member: ClassVar[str | None] = "record"
    members: ClassVar[str] = "records"

    def check_parts(self) -> None:
        """Check nothing: an attack whose options do not fit is reported as not tried, and the others run."""


class VerticalTranscriptSpec(SplitTranscriptSpec):
    """An attack on a transcript of vertical training."""

    setting: ClassVar[str] = "vertical"


class TreeFilesSpec(AttackSpec):
    """An attack on the tree files of a client."""

    setting: ClassVar[str] = "trees"
    unit: ClassVar[str] = "client"
    repeats: ClassVar[str] = "clients"


_KINDS: tuple[type[AttackSpec], ...] = (AttackSpec, SplitTranscriptSpec, VerticalTranscriptSpec, TreeFilesSpec)
SPECS = {kind.setting: kind for kind in _KINDS}
"""Spec of an attack on a capture, by the setting of the capture."""
