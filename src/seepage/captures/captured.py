"""A real client's update on disk: checked before anything is made of it; docs/captured-updates.md has the form.

A safetensors file holds a tensor a parameter, the gradient or the change, and running statistics after training. JSON
in its metadata or beside it is a ``Description``. Nothing is ever unpickled.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Literal, TypeVar

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from seepage.errors import BadInputError, unknown_name
from seepage.files import check_file, read_text, write_whole
from seepage.models.batch_norm import Moments, from_running, normalisations, running_statistics
from seepage.models.model import Head, LocalParameters, Model
from seepage.models.pairing import Pairing, is_list, listing, shapes_of
from seepage.models.states import is_buffer, is_sent
from seepage.models.weights import FLOATS, check_numbers, read_paired
from seepage.protocols.recipe import MessageRecipe
from seepage.tabular.client_encoder import ClientEncoder
from seepage.tabular.schema import Discrete, Schema
from seepage.tabular.statistics import Statistics, standardised_statistics, uniform_statistics
from seepage.tabular.table import Table
from seepage.wire.horizontal import View

M = TypeVar("M", bound=BaseModel)


@contextmanager
def opened(path: Path, what: str, advice: str) -> Iterator[safe_open]:
    """Open a safetensors file; a damaged one is refused, then or while it is read."""
    try:
        check_file(path, repr(str(path)))
        with safe_open(str(path), framework="pt") as file:
            yield file
    except (SafetensorError, OSError) as error:
        raise BadInputError(
            f"{what} no whole safetensors file ({' '.join(str(error).split())}): it may have been cut short{advice}."
        ) from error


def text_of(path: Path, what: str, most_bytes: int, advice: str) -> str:
    """Return the text of a description in a file of its own."""
    try:
        return read_text(path, what, most_bytes)
    except (OSError, UnicodeDecodeError) as error:
        raise BadInputError(f"{what} cannot be read ({error}); {advice}.") from error


def json_object(text: str, what: str, advice: str) -> dict[str, object]:
    """Return the values of a JSON object by key."""
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadInputError(f"{what} is not JSON ({error}); {advice}.") from error
    if not isinstance(values, dict):
        raise BadInputError(f"{what} is of type {type(values).__name__} where a JSON object is expected; {advice}.")
    return values


def described(kind: type[M], values: Mapping[str, object], what: str, newest: int | None = None) -> M:
    """Return a model of the given kind from plain values; its format, where it has one, is at most the newest."""
    version = values.get("format", newest)
    if newest is not None and isinstance(version, int) and not isinstance(version, bool) and version > newest:
        formats = f"format{'s' if newest > 1 else ''} {' and '.join(map(str, range(1, newest + 1)))}"
        raise BadInputError(
            f"{what} is of format {version}; this version of seepage reads {formats}: install a newer one."
        )
    keys = [field.alias or name for name, field in kind.model_fields.items()]
    for key in values:
        if key not in keys:
            raise unknown_name(f"key in {what.rstrip(',')}:", str(key)[:80], keys)
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        problems = [
            f"{'.'.join(map(str, p['loc'])) or 'recipe'}: {p['msg'].removeprefix('Value error, ').rstrip('.')}"
            for p in error.errors(include_input=False)
        ]
        raise BadInputError(f"{what.rstrip(',')} cannot be used: {'; '.join(problems[:4])}.") from error


FORMAT = 2
_ENTRY = "seepage"
_LARGEST_JSON = 2**26
# Bits of precision of a number format, by its name.
_PRECISION = {"float16": 11, "bfloat16": 8, "mixed": 8, "float32": 24, "float64": 53}
_ADVICE = "write it with seepage.capture(model.named_parameters(), FILE) or seepage.capture(before, after, FILE)"
_NO_OTHER = f", or be of another format, none of which is read here for safety's sake; {_ADVICE}"


Local = Literal["unknown", "as_sent", "frozen"]
"""What is known of parameters that a client kept to itself: nothing; that it began with the model's values and trained
them; or that it has the model's values and did not train them."""


Origin = Literal["reference rows", "encoding", "bounds"]
"""Where the attacker's statistics of the columns are from."""


class Encoding(BaseModel):
    """Mean and standard deviation by which a client standardises the encoded columns, in the schema's order."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    mean: tuple[float, ...]
    std: tuple[float, ...]


class Description(MessageRecipe):
    """The facts about a captured update besides its numbers, see docs/captured-updates.md; None is unknown.

    Files of format 1, which knows only gradients, are read as this one.
    """

    format: int = Field(default=FORMAT, ge=1)
    model: str | None = None
    sent: Annotated[str, Field(pattern="^[0-9a-f]{64}$")] | None = None
    head: Head | None = None
    encoding: Encoding | None = None
    encoder: ClientEncoder | None = None
    client: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    round: Annotated[int, Field(ge=0, lt=10**9)] | None = None
    labels: tuple[Annotated[float, Field(allow_inf_nan=False)], ...] | None = None
    local: Local | None = None


@dataclass(frozen=True)
class Capture:
    """A captured update that fits a model: one victim's view, and the running statistics that came with it.

    ``coarsest`` is the type of the file's coarsest tensor, where that is coarser than the model's.
    """

    view: View
    about: Description
    notes: tuple[str, ...]
    running: dict[str, Tensor] = field(default_factory=dict)
    coarsest: str | None = None

    @property
    def batch_statistics(self) -> dict[str, Moments] | None:
        """Moments of the batch, with a victim axis, that running statistics give away after one step; else None."""
        module, about, training = self.view.model.module, self.about, self.about.training
        before = running_statistics(module)
        steps = 1 if training is None else training.steps((about.batch_size or about.clients) // about.clients)
        single = steps == about.clients == 1
        if training is not None:
            single &= about.batch_size is not None and training.accumulation == 1
        if not single or not normalisations(module) or not before or before.keys() - self.running.keys():
            return None
        moments = from_running(module, before, self.running, batches=0)
        return {name: Moments(m.mean[None], m.variance[None]) for name, m in moments.items()}


def encoding_of(statistics: Statistics) -> Encoding:
    """Return the mean and standard deviation with which rows are standardised."""
    return Encoding(mean=tuple(statistics.mean.tolist()), std=tuple(statistics.std.tolist()))


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


def save_capture(path: str | Path, update: Mapping[str, Tensor], about: Description | None = None) -> None:
    """Write one victim's update, made dense, to a file that only its owner may read, whole or not at all."""
    about = about or Description()
    _check_labels(about)
    if not update:
        raise BadInputError("an update holds at least one parameter's gradient or change, got none.")
    what, tensors = _word(about), {}
    for name, tensor in update.items():
        dense = (tensor.to_dense() if tensor.layout != torch.strided else tensor).detach().cpu().contiguous()
        if dense.dtype.is_floating_point or not is_buffer(name, dense):
            check_numbers(f"the {what} of {name!r}", dense, torch.float64)
        # Tensors may share memory; safetensors does not.
        tensors[name] = dense.clone()
    text = json.dumps(about.model_dump(mode="json", exclude_none=True), allow_nan=False)
    write_whole(Path(path), save(tensors, {_ENTRY: text}), private=True)


def read_description(path: str | Path) -> Description:
    """Return the description of a captured update; without one, the default description."""
    path = Path(path)
    what, texts = f"the captured update {str(path)!r}", dict[str, str]()
    if not path.is_file():
        raise BadInputError(f"{what} does not exist; {_ADVICE}.")
    with opened(path, f"{what} is", _NO_OTHER) as file:
        inside = (file.metadata() or {}).get(_ENTRY)
    if inside is not None:
        texts[f"the metadata of {what}"] = inside
    beside = path.with_suffix(".json")
    if beside.is_file() and beside != path:
        advice = "it should hold a description in JSON, or not be there"
        texts[f"{str(beside)!r}, which describes {what},"] = text_of(beside, repr(str(beside)), _LARGEST_JSON, advice)
    descriptions = [as_description(json_object(text, place, _ADVICE), place) for place, text in texts.items()]
    if len(descriptions) == 2 and descriptions[0] != descriptions[1]:
        raise BadInputError(
            f"the metadata of {what} and {str(beside)!r} contradict each other; delete the file that is wrong, or "
            "write the update again."
        )
    return descriptions[0] if descriptions else Description()


def names_in(path: str | Path) -> tuple[str, ...]:
    """Return the names of the arrays of a captured update."""
    with opened(Path(path), f"the captured update {str(path)!r} is", _NO_OTHER) as file:
        return tuple(file.keys())


def load_capture(
    path: str | Path, model: Model, schema: Schema | None = None, unknown: Collection[str] = ()
) -> Capture:
    """Read a captured update and check that it can be one of ``model``, and with a schema of its table.

    Arrays are paired with the model's tensors as ``models.pairing`` says. Parameters that the file lacks stayed with
    the client: the capture's model keeps them, see ``Model.local``. ``unknown`` are tensors that the weights of the
    model lack; these have to be among them. Numbers are converted to the type of the model's parameters.
    """
    about = read_description(path)
    what, word = f"the captured update {str(path)!r}", _word(about)
    buffers = dict(model.module.named_buffers())
    expected = shapes_of({n: t for n, t in model.module.state_dict(keep_vars=True).items() if isinstance(t, Tensor)})
    expected |= shapes_of(buffers)
    read, pairing = read_paired(path, expected, what, _ADVICE, buffers)
    model = _keeping(model, about, pairing, unknown, what)
    parameters = model.parameters
    shapes = shapes_of(parameters)
    tensors = {name: tensor for name, tensor in read.items() if name in shapes}
    # What is frozen may stand in the file, as where two states were captured, and is zero there.
    trained = [name for name, tensor in read.items() if name in model.frozen and bool(tensor.any())]
    if trained:
        raise BadInputError(
            f"{what} holds a {word} of {', '.join(map(repr, trained[:3]))} that is not zero, but the model "
            f"{model.name!r} freezes it (requires_grad=False); give the network as the client trained it."
        )
    first = next(iter(parameters.values()))
    notes = [*pairing.notes, *_left_out(model, pairing, buffers)]
    rounded: dict[torch.dtype, list[str]] = {}
    for name, tensor in tensors.items():
        check_numbers(f"{what}: the {word} of {name!r}", tensor, torch.float64)
        if FLOATS[tensor.dtype] < FLOATS[first.dtype]:
            rounded.setdefault(tensor.dtype, []).append(name)
        if not bool(tensor.to(first.dtype).isfinite().all()):
            raise BadInputError(
                f"{what}: the {word} of {name!r} holds {float(tensor.abs().max()):g}, which the model's "
                f"{_type(first.dtype)} cannot hold; make the model float64."
            )
    for kind, names in rounded.items():
        first_names = ", ".join(map(repr, names[:3])) + (" ..." if len(names) > 3 else "")
        notes.append(
            f"{len(names)} of {len(shapes)} tensors were rounded to {_type(kind)} before they were captured: "
            f"{first_names}"
        )
    if not any(bool(tensor.any()) for tensor in tensors.values()):
        raise BadInputError(
            f"{what} is zero everywhere, so it says nothing about any record; capture it after loss.backward() and "
            "before the gradients are set to zero."
        )
    if schema is not None:
        _check_against(about, model, schema, what)
    if (doubt := coarse(about, model)) is not None:
        notes.append(doubt)
    if about.sent is not None and not _is_sent(model, about.sent, pairing, path):
        notes.append(
            "the model is not the one that the server sent when the update was made; give the weights of that round"
        )
    update = {name: tensors[name].to(device=first.device, dtype=first.dtype) for name in shapes}
    running = {name: read[name].to(device=first.device) for name in buffers if name in read}
    if about.training is not None and is_list(pairing.places.values()):
        # Without names their change was captured, as that of parameters.
        moved = [name for name, tensor in running.items() if tensor.dtype.is_floating_point]
        running |= {name: buffers[name] - running[name] for name in moved}
    for name, tensor in running.items():
        if tensor.dtype.is_floating_point:
            check_numbers(f"{what}: the running statistic {name!r}", tensor, torch.float64)
    # The file has the message as it came: where all of a gradient was rounded alike, it was cast before it was sent.
    [kind, *others] = rounded or {first.dtype: []}
    if about.training is None and about.sent_as == "full" and not others and len(rounded.get(kind, ())) == len(shapes):
        about = about.model_copy(update={"sent_as": _type(kind)})
    coarsest = min(rounded, key=FLOATS.__getitem__, default=None)
    return Capture(about.view(model, update), about, tuple(notes), running, coarsest and _type(coarsest))


def _word(about: Description) -> str:
    """Return the word for the tensors of the file: gradient or change."""
    return "gradient" if about.training is None else "change"


def _type(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def coarse(about: Description, model: Model) -> str | None:
    """Return why nothing is proved for a client with a coarser number format than the model; None for other clients."""
    dtype = _type(next(iter(model.parameters.values())).dtype)
    if about.precision is None or _PRECISION[about.precision] >= _PRECISION[dtype]:
        return None
    return f"the client computed in {about.precision}, the model is {dtype}: the message is no exact one"


def _keeping(model: Model, about: Description, pairing: Pairing, unknown: Collection[str], what: str) -> Model:
    """Return the model of a client that kept to itself what its update lacks."""
    local = tuple(name for name in model.parameters if name in pairing.left_out)
    if len(local) == len(model.parameters):
        raise BadInputError(
            f"{what} holds none of the {len(local)} parameters that model {model.name!r} trains; name the network that "
            f"the client trains. Expected: {listing(local, shapes_of(model.parameters))}."
        )
    foreign = [name for name in unknown if name not in pairing.left_out]
    if foreign:
        raise BadInputError(
            f"{what} holds {', '.join(map(repr, foreign[:3]))}, which the weights of the model lack; give the weights "
            "from which the client began, as far as the server sent them."
        )
    unknown_too = [name for name in local if name in unknown]
    if about.local in ("as_sent", "frozen") and unknown_too:
        raise BadInputError(
            f"{what} says that the parameters that stayed with the client are {about.local}, but the weights of the "
            f"model lack {', '.join(map(repr, unknown_too[:3]))}; give weights that have them."
        )
    if not local:
        return model
    return model.keeping(LocalParameters(local, about.local != "frozen", about.local in ("as_sent", "frozen")))


def left_out_words(model: Model) -> str | None:
    """Return what a client that keeps parameters to itself does not send, as a clause; None where it sends all."""
    if (local := model.local) is None:
        return None
    total = len(local.names) + len(model.parameters)
    weaker = "" if local.known else "; the attack has the model's in their place, is weaker and proves nothing"
    return f"not sent: {len(local.names)} of {total} parameters: {local.in_words()}{weaker}"


def _left_out(model: Model, pairing: Pairing, buffers: Mapping[str, Tensor]) -> list[str]:
    """Return notes on what is not in an update."""
    notes = [words] if (words := left_out_words(model)) is not None else []
    running = [n for n in pairing.left_out if n in buffers and n.rpartition(".")[2] != "num_batches_tracked"]
    if running and any(normalisations(model.module)):
        notes.append(f"not sent: running statistics ({', '.join(map(repr, running[:3]))}{' ...' * (len(running) > 3)})")
    return notes


def _is_sent(model: Model, digest: str, pairing: Pairing, path: str | Path) -> bool:
    """Return whether the digest of what the server sent is that of the model, by its own names or by the file's."""
    state = {name: tensor for name, tensor in model.module.state_dict().items() if isinstance(tensor, Tensor)}
    if is_sent(state, digest, pairing.places):
        return True
    with opened(Path(path), "the captured update is", _NO_OTHER) as file:
        came = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
    written = pairing.written(state, came)
    return is_sent(written, digest, came)


def as_description(values: Mapping[str, object], what: str) -> Description:
    """Return a description from plain values, such as those of a JSON object."""
    description = described(Description, values, what, FORMAT)
    _check_labels(description)
    # What was written as format 1 means the same here.
    return description.model_copy(update={"format": FORMAT})


def _check_labels(about: Description) -> None:
    if about.labels is not None and about.batch_size is not None and len(about.labels) != about.batch_size:
        raise BadInputError(
            f"the update has {len(about.labels)} labels for a batch of {about.batch_size} records; give one a record."
        )


def _check_against(about: Description, model: Model, schema: Schema, what: str) -> None:
    if about.head is not None and about.head != model.head:
        raise BadInputError(
            f"{what} is of a network with a {about.head} head, the model has a {model.head} head; give --head "
            f"{about.head}."
        )
    if about.encoder is not None:
        about.encoder.arranged(schema)
        about.encoder.check_inputs(model.module, model.name)
    if about.encoding is not None:
        given = (len(about.encoding.mean), len(about.encoding.std))
        if given != (schema.width, schema.width):
            raise BadInputError(
                f"{what} was made of rows of {given[0]} encoded columns (and {given[1]} standard deviations), the "
                f"schema takes {schema.width}; give the schema that the client used."
            )
    if about.labels is not None and isinstance(schema.target, Discrete):
        codes = range(schema.target.width)
        wrong = [label for label in about.labels if label not in codes]
        if wrong:
            raise BadInputError(
                f"{what} has the label {wrong[0]:g} ({len(wrong)} such), but the target {schema.target.name!r} takes "
                f"codes from 0 to {codes[-1]}; labels are positions in its categories."
            )
