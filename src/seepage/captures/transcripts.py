"""A transcript of split or vertical training on disk: what crossed the wire, round by round, checked as it is read.

The files of its folder are those of docs/transcripts.md. Nothing is ever unpickled, and no code that the folder names
is run.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import torch
from jaxtyping import Float
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from seepage.captures.captured import described, json_object, opened, text_of
from seepage.errors import BadInputError, unknown_name
from seepage.models.message import Format, ScaleOf
from seepage.models.split import SplitHead
from seepage.models.weights import FLOATS
from seepage.protocols.recipe import DeclaredForm
from seepage.tabular.reading import open_table
from seepage.tabular.schema import Column, Schema
from seepage.tabular.table import Table
from seepage.tabular.texts import TextColumn
from seepage.text import how_many
from seepage.wire.topology import SplitAttacker, Topology, holds_second_cut

TRANSCRIPT, SCHEMA, OWN, SERVER = "transcript.json", "schema.yaml", "own.csv", "server.safetensors"
FORMAT = 1
# The messages of a round, and of gradients what they are of.
_MESSAGES = {"activations": None, "gradients": "activations", "outputs": None, "output_gradients": "outputs"}
_TENSORS = ("ids", "activations", "gradients", "behind", "clip", "outputs", "output_gradients")
_LARGEST_JSON = 2**24
_NUMBERED = re.compile(r"(round|client)-([0-9]{1,12})\.safetensors")
_ADVICE = "write it with seepage.TranscriptWriter, or as docs/transcripts.md says"

Plainly = bool | int | float | str


class TrainingRecipe(BaseModel):
    """The recipe of the recorded training, as far as it is known; for people, since no attack replays it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    epochs: Annotated[int, Field(ge=1)] | None = None
    batch_size: Annotated[int, Field(ge=1)] | None = None
    learning_rate: Annotated[float, Field(gt=0)] | None = None
    optimizer: str | None = None


class DeclaredMessages(DeclaredForm):
    """The fields of ``MessageForm`` that are declared of messages at a cut; those left out are the usual ones."""

    scale_of: ScaleOf = "known"
    format: Format = "float32"
    training: bool = False


class TranscriptDescription(BaseModel):
    """The facts about a transcript besides its messages, see docs/transcripts.md; a field that is None is unknown.

    In all topologies but ``columns`` the client holds all columns. The attacker is who wrote the transcript: in
    ``multi_hop`` the hop, or the server behind it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: int = Field(default=FORMAT, ge=1)
    setting: Literal["split", "vertical"]
    topology: Topology = "columns"
    attacker: SplitAttacker = "server"
    private: tuple[str, ...]
    id: Annotated[str, Field(min_length=1)] = "id"
    loss: Literal["mean", "sum"] = "mean"
    message: DeclaredMessages | None = None
    model: str | None = None
    options: dict[str, Plainly | tuple[int, ...]] = Field(default_factory=dict)
    head: SplitHead | None = None
    top: bool = True
    defense: dict[str, dict[str, Plainly]] | None = None
    training: TrainingRecipe | None = None

    @property
    def whole(self) -> bool:
        """Whether the attacked party is a client that holds all columns."""
        return self.topology != "columns"

    @property
    def behind_hop(self) -> bool:
        """Whether the attacker gets a hop's outputs, and not the client's activations."""
        return self.topology == "multi_hop" and self.attacker == "server"

    @property
    def second_cut(self) -> bool:
        """Whether the attacker sends something on, and gets gradients of it back."""
        return holds_second_cut(self.topology, self.attacker)


@dataclass(frozen=True)
class RoundMessages:
    """The messages of one round. Outputs are what the attacker sent on at a second cut.

    Gradients are those of the round's loss, as they crossed the wire; None where none came back, as at inference. Each
    record's is of a mean loss over ``behind`` records; ``clip`` bounds the norm of its own, where clients publish it.
    """

    number: int
    ids: tuple[str, ...]
    behind: Float[Tensor, " record"]
    clip: float | None
    activations: Float[Tensor, "record cut"]
    gradients: Float[Tensor, "record cut"] | None = None
    outputs: Float[Tensor, "record entry"] | None = None
    output_gradients: Float[Tensor, "record entry"] | None = None


@dataclass(frozen=True)
class RecordedTraining:
    """A transcript that was read and checked: messages, and files of weights by the round that they precede."""

    folder: Path
    about: TranscriptDescription
    schema: Schema
    rounds: tuple[RoundMessages, ...]
    weights: tuple[tuple[int, Path], ...]

    @property
    def private(self) -> tuple[int, ...]:
        """Positions of the attacked party's columns in the schema."""
        return tuple(self.schema.names.index(name) for name in self.about.private)

    @property
    def private_columns(self) -> tuple[Column, ...]:
        """The attacked party's columns."""
        return tuple(self.schema.columns[i] for i in self.private)

    @property
    def public(self) -> tuple[int, ...]:
        """Positions of the attacker's own columns."""
        return tuple(i for i in range(len(self.schema.columns)) if i not in self.private)

    @cached_property
    def ids(self) -> tuple[str, ...]:
        """Ids of all records, in the order in which they first crossed the wire."""
        return tuple(dict.fromkeys(identifier for messages in self.rounds for identifier in messages.ids))

    def gathered(self, name: str, exchange: Iterable[tuple[int, int]]) -> Tensor:
        """Return one tensor of the messages as rows, for pairs of round index and row in that round."""
        return torch.stack([getattr(self.rounds[k], name)[row] for k, row in exchange])

    @cached_property
    def own_columns(self) -> tuple[dict[str, int], Float[Tensor, "row column"], bool] | None:
        """The attacker's own columns: row of each id, cells, and whether the last column is the label; None without."""
        file = self.folder / OWN
        if self.about.whole or not file.is_file():
            return None
        columns = [self.schema.columns[i] for i in self.public]
        labelled = self.about.setting == "vertical" and self.schema.target.name in open_table(file).names
        if labelled:
            columns.append(self.schema.target)
        if not columns:
            return None
        rows, cells = read_cells(file, columns, self.about.id, "the attacker's own columns")
        lacking = [identifier for identifier in self.ids if identifier not in rows]
        if lacking:
            raise BadInputError(
                f"the attacker's own columns, {str(file)!r}, lack {len(lacking)} of the {len(self.ids)} records that "
                f"crossed the wire, the first with the id {lacking[0]!r}; add their rows, or move the file away."
            )
        return rows, cells, labelled


def read_transcript(folder: Path, schema: Schema | None = None) -> RecordedTraining:
    """Read a transcript and check that it is whole, with the schema of its folder if None."""
    about = read_about(folder / TRANSCRIPT)
    if schema is None:
        if not (folder / SCHEMA).is_file():
            raise BadInputError(
                f"the transcript {str(folder)!r} holds no {SCHEMA}; give the schema of the table with --schema FILE."
            )
        schema = Schema.load(folder / SCHEMA)
    check_columns(about, schema)
    files: dict[str, dict[int, Path]] = {"round": {}, "client": {}}
    for path in sorted(folder.iterdir()):
        if (match := _NUMBERED.fullmatch(path.name)) is not None:
            other = files[match[1]].setdefault(int(match[2]), path)
            if other != path:
                raise BadInputError(
                    f"{path.name!r} and {other.name!r} in {str(folder)!r} are both of round {int(match[2])}; give each "
                    "round one file."
                )
    if not files["round"]:
        raise BadInputError(
            f"the transcript {str(folder)!r} holds no messages, which are files round-0.safetensors and so on; "
            f"{_ADVICE}."
        )
    rounds = tuple(_read_round(files["round"][number], number, about) for number in sorted(files["round"]))
    first = rounds[0]
    for messages in rounds:
        if messages.activations.shape[1] != first.activations.shape[1]:
            raise BadInputError(
                f"activations of round {messages.number} have {messages.activations.shape[1]} entries, those of round "
                f"{first.number} {first.activations.shape[1]}; a transcript is of one network: move the others away."
            )
    return RecordedTraining(folder, about, schema, rounds, tuple(sorted(files["client"].items())))


def read_about(path: Path) -> TranscriptDescription:
    """Return the description of a transcript."""
    what = f"the description {str(path)!r}"
    return transcript_description(json_object(text_of(path, what, _LARGEST_JSON, _ADVICE), what, _ADVICE), what)


def transcript_description(values: Mapping[str, object], what: str) -> TranscriptDescription:
    """Return a description from plain values."""
    return described(TranscriptDescription, values, what, FORMAT)


def check_columns(about: TranscriptDescription, schema: Schema) -> None:
    """Refuse private columns that are not in the schema, and schemas that leave a party without columns."""
    for name in about.private:
        if name not in schema.names:
            raise unknown_name("private column of the transcript:", name, schema.names)
        if about.private.count(name) > 1:
            raise BadInputError(f"the transcript names the private column {name!r} twice; name it once.")
    if not about.private:
        raise BadInputError("the transcript names no private column, so that there is nothing to attack; name some.")
    if (about.whole and about.setting != "split") or (about.attacker == "hop" and about.topology != "multi_hop"):
        raise BadInputError(
            f"a transcript of {about.setting} learning has no topology {about.topology!r} with the attacker "
            f"{about.attacker!r}; vanilla, u_shaped and multi_hop are of split learning, and a hop is in multi_hop."
        )
    if about.message is not None and (about.whole or about.setting != "split"):
        raise BadInputError(
            "the form of messages (message) is of split learning in which the server holds columns; leave it out of "
            f"a transcript of {about.setting} learning with the topology {about.topology!r}."
        )
    if about.whole:
        lacking = [name for name in schema.names if name not in about.private]
        if lacking:
            raise BadInputError(
                f"in the topology {about.topology!r} the client holds all columns, but {lacking[0]!r} is not named as "
                "private; name all columns of the schema."
            )
    elif len(about.private) == len(schema.names) and about.setting == "split":
        raise BadInputError(
            f"all {len(schema.names)} columns of the schema are private, but the server of split learning holds some "
            "of its own; add them to the schema."
        )
    if about.id in (*schema.names, schema.target.name):
        raise BadInputError(
            f"the column of ids is called {about.id!r}, as a column of the schema; name another (id) in {TRANSCRIPT}."
        )


def _read_round(path: Path, number: int, about: TranscriptDescription) -> RoundMessages:
    what = f"the messages {str(path)!r}"
    with opened(path, f"{what} are", f"; {_ADVICE}") as file:
        names = list(file.keys())
        for name in names:
            if name not in _TENSORS:
                raise unknown_name(f"tensor in {what}:", name, _TENSORS)
        tensors: dict[str, Tensor] = {name: file.get_tensor(name) for name in names}
    for name in ("ids", "activations"):
        if name not in tensors:
            raise BadInputError(f"{what} lack the tensor {name!r}; {_ADVICE}.")
    ids = _ids(tensors["ids"], what)
    repeated = len(ids) - len(set(ids))
    if repeated:
        raise BadInputError(f"{what} hold {how_many(repeated, 'record')} twice; ids are unique within a round.")
    second = {"outputs", "output_gradients"} & tensors.keys()
    if second and (not about.second_cut or "outputs" not in second):
        raise BadInputError(
            f"{what} hold {'outputs' if 'outputs' in second else 'output_gradients alone'}; what is sent on at a "
            "second cut is in transcripts of the server of u_shaped and of the hop of multi_hop."
        )
    messages: dict[str, Tensor] = {}
    for name, sent in _MESSAGES.items():
        if name not in tensors:
            continue
        messages[name] = numbers = _numbers(tensors[name], len(ids), name, what)
        if sent is not None:
            messages[name] = numbers.to(messages[sent].dtype)
            if numbers.shape != messages[sent].shape:
                raise BadInputError(
                    f"{what} hold {name} of shape {tuple(numbers.shape)} for {sent} of shape "
                    f"{tuple(messages[sent].shape)}; give one gradient for each of the {sent}."
                )
    behind = torch.full((len(ids),), float(len(ids)) if about.loss == "mean" else 1.0)
    if "behind" in tensors:
        behind = tensors["behind"].float().flatten()
        if behind.shape != (len(ids),) or not bool((behind >= 1).all()):
            raise BadInputError(
                f"{what} hold 'behind' of shape {tuple(behind.shape)}; give one number from 1 a record."
            )
    clip = None
    if "clip" in tensors:
        clip = float(tensors["clip"].flatten()[0]) if tensors["clip"].numel() == 1 else -1.0
        if not 0 < clip < float("inf"):
            raise BadInputError(f"{what} hold a bound ('clip') that is no single positive number; give one, or none.")
    return RoundMessages(number, ids, behind, clip, **messages)


def _ids(tensor: Tensor, what: str) -> tuple[str, ...]:
    """Return ids as texts: whole numbers, or rows of UTF-8 bytes that are filled up with zeros."""
    if not tensor.numel():
        raise BadInputError(f"{what} hold no record; leave empty rounds out.")
    if tensor.ndim == 1 and not tensor.dtype.is_floating_point and not tensor.dtype.is_complex:
        return tuple(str(int(number)) for number in tensor.tolist())
    if tensor.ndim == 2 and tensor.dtype == torch.uint8:
        try:
            return tuple(bytes(row).rstrip(b"\0").decode() for row in tensor.tolist())
        except UnicodeDecodeError as error:
            raise BadInputError(f"{what} hold ids that are no text in UTF-8 ({error}); {_ADVICE}.") from error
    raise BadInputError(
        f"{what} hold ids of shape {tuple(tensor.shape)} and type {str(tensor.dtype).removeprefix('torch.')}; give "
        "whole numbers, one a record, or texts as rows of bytes."
    )


def _numbers(tensor: Tensor, records: int, name: str, what: str) -> Float[Tensor, "record cut"]:
    if tensor.ndim != 2 or len(tensor) != records:
        raise BadInputError(
            f"{what} hold {name} of shape {tuple(tensor.shape)} for {records} ids; give a row of numbers a record."
        )
    if tensor.dtype not in FLOATS:
        raise BadInputError(
            f"{what} hold {name} of type {str(tensor.dtype).removeprefix('torch.')} where floating-point numbers are "
            "expected; decode or dequantise them first."
        )
    broken = ~tensor.isfinite()
    if bool(broken.any()):
        raise BadInputError(
            f"{what} hold {int(broken.sum())} {name} that are not finite; training diverged or the file is broken."
        )
    return tensor if FLOATS[tensor.dtype] > 1 else tensor.float()


def read_cells(
    path: Path, columns: Sequence[Column], id_column: str, what: str, separator: str = ","
) -> tuple[dict[str, int], Float[Tensor, "row column"]]:
    """Return the row of each id in a table, and the cells of some columns."""
    source = open_table(path, separator)
    if id_column not in source.names:
        raise BadInputError(
            f"{what}, {str(path)!r}, have no column {id_column!r} of record ids; they have "
            f"{', '.join(map(repr, source.shown_names()[:12]))}. Add it, or name another one (id) in {TRANSCRIPT}."
        )
    [(_, raw)] = source.columns([id_column])
    texts = (
        np.array(raw.distinct.to_pylist(), dtype=object)[raw.position] if isinstance(raw, TextColumn) else raw.tolist()
    )
    rows: dict[str, int] = {}
    for row, text in enumerate(texts):
        name = str(int(text)) if isinstance(text, float) and text.is_integer() else str(text)
        if name in rows:
            raise BadInputError(f"{what}, {str(path)!r}, have the id {name!r} twice; ids are unique.")
        rows[name] = row
    # A schema of these columns alone; what is its target makes no difference to reading.
    alone = Schema.model_construct(columns=tuple(columns[:-1]), target=columns[-1])
    table = Table(alone, open_table(path, separator), missing=None)
    return rows, torch.cat([table.cells, table.labels[:, None]], dim=1)
