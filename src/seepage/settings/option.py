"""Metadata of a spec's fields, from which commands, documents, starter documents and the reference are generated."""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, Field
from pydantic.fields import FieldInfo

from seepage.sources import is_reference

Kind = Literal["switch", "whole", "number", "text", "choice", "path", "list", "mapping", "model"]
_KINDS: dict[type, Kind] = {
    **{bool: "switch", int: "whole", float: "number", Path: "path", tuple: "list", dict: "mapping", BaseModel: "model"}
}

# Panels of help and reference, in their order.
TABLE, PARTIES, ATTACK = "The table", "The parties and what they train", "What is attacked, and how"
KNOWLEDGE, OUTPUT, GATE, RUNNING = "What the attacker knows", "Output", "Gate", "Running"
PANELS = (TABLE, PARTIES, ATTACK, KNOWLEDGE, OUTPUT, GATE, RUNNING)


# Types of fields: numbers of things with at least one, and with none at all; numbers of several layers' units; a share
# that is neither 0 nor 1; a rate.
Count = Annotated[int, Field(ge=1)]
Counts = tuple[Count, ...]
Amount = Annotated[int, Field(ge=0)]
Fraction = Annotated[float, Field(gt=0, lt=1)]
Positive = Annotated[float, Field(gt=0)]


@dataclass(frozen=True)
class Option:
    """Metadata of a field beside its type, bounds and default.

    Attributes:
        help: description of the field for users.
        panel: one of ``PANELS``.
        metavar: placeholder of the value in help; follows from the type if None.
        name: key in documents and, with dashes, option of the command line; the field's name if None, of a field with
            several values in the singular on the command line.
        default: description of the default, where its value does not say it.
        below: field that documents may say this one with, as in ``protocol: {name: fedsgd, batch_size: 8}``.
        key: key there; empty for the field that takes all keys of no other field.
        parts: kind of registry that names are looked up in, such as ``attacks``.
        own: whether users may name their own object.
        code: whether the user's own object is code, which documents may name only with consent.
        replaces: fields that add to the value of this one, and have no use for another value.
        of_attacks: whether single attacks may have an option of the same name, which this one replaces.
        whole: the field of a nested model that may stand for the whole, as in ``gate: 0.2``.
        example: a value in YAML, for starter documents, where the default is None.
        as_text: whether the value is written as text, whatever its type.
        swept: whether an audit goes through the items of a list one by one, so that repeats say nothing.
        consent: whether the value is the user's consent, which a document, maybe of somebody else, cannot give.
    """

    help: str
    panel: str
    metavar: str | None = None
    name: str | None = None
    default: str | None = None
    below: str | None = None
    key: str | None = None
    parts: str | None = None
    own: bool = False
    code: bool = False
    replaces: tuple[str, ...] = ()
    of_attacks: bool = False
    whole: str | None = None
    example: str | None = None
    as_text: bool = False
    swept: bool = False
    consent: bool = False

    @classmethod
    def network(cls, description: str) -> Option:
        """Return the metadata of a field that names a network, which may be the user's own."""
        whole = f"{description} package.module:factory or path/to/file.py:factory."
        return cls(whole, PARTIES, "NAME", parts="models", own=True, code=True)


@dataclass(frozen=True)
class SpecField:
    """A field of a spec as front ends see it."""

    name: str
    option: Option
    kind: Kind
    annotation: object
    item: object
    info: FieldInfo

    @property
    def several(self) -> bool:
        """Whether a list is one value of the field."""
        return self.kind == "list"

    @property
    def parts(self) -> bool:
        """Whether its values are attacks, defenses, baselines or metrics, with options and labels."""
        return self.several and self.option.parts is not None

    @property
    def key(self) -> str:
        """Key in documents."""
        return self.option.name or self.name

    @property
    def flag(self) -> str:
        """Option of the command line."""
        name = self.key
        # An option that can be given several times is named in the singular.
        if self.kind in ("list", "mapping") and name.endswith("s") and self.option.name is None:
            name = name[:-1]
        return f"--{name.replace('_', '-')}"

    @property
    def choices(self) -> tuple[str, ...]:
        """Values that there are; empty where they are not listed."""
        return get_args(self.annotation) if self.kind == "choice" else ()

    @property
    def default(self) -> Any:
        """The default, as Python has it."""
        return self.info.get_default(call_default_factory=True, validated_data={})

    @property
    def fields(self) -> Mapping[str, SpecField]:
        """Fields of a nested model; empty for anything else."""
        return fields_of(self.annotation) if self.kind == "model" else {}


@cache
def fields_of(model: type[BaseModel]) -> Mapping[str, SpecField]:
    """Return the fields of a spec, or of a model nested in one, by their names."""
    return {name: _field(name, info) for name, info in model.model_fields.items()}


def code_of(spec: BaseModel) -> list[str]:
    """Return the names of code that a spec holds, such as ``file.py:factory`` as its model."""
    fields = fields_of(type(spec)).items()
    named = [str(getattr(spec, name)) for name, field in fields if field.option.code]
    parts = [part for name, field in fields if field.parts for part in getattr(spec, name) if part.passed is None]
    mechanisms = [name for part in parts for name in part.name.split("+") if is_reference(name)]
    return [*(name for name in named if ":" in name), *mechanisms]


def _field(name: str, info: FieldInfo) -> SpecField:
    option = next((item for item in reversed(info.metadata) if isinstance(item, Option)), None)
    if option is None:
        raise TypeError(f"the field {name} says nothing of itself; annotate it with an Option.")
    annotation = _bare(info.annotation)
    kind = _kind(annotation)
    item = _bare(get_args(annotation)[0]) if kind == "list" else None
    return SpecField(name, option, kind, annotation, item, info)


def _bare(annotation: object) -> object:
    """Return a type without metadata and without None."""
    while True:
        origin = get_origin(annotation)
        if origin is Annotated:
            annotation = get_args(annotation)[0]
        elif origin in (Union, types.UnionType) and type(None) in get_args(annotation):
            rest = [member for member in get_args(annotation) if member is not type(None)]
            annotation = rest[0] if len(rest) == 1 else Union[tuple(rest)]  # noqa: UP007 - the members are data
            if len(rest) > 1:
                return annotation
        else:
            return annotation


def _kind(annotation: object) -> Kind:
    origin = get_origin(annotation) or annotation
    if origin is Literal:
        return "choice"
    if isinstance(origin, type):
        for python, kind in _KINDS.items():
            if issubclass(origin, python):
                return kind
    return "text"
