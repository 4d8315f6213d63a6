"""Fields that a message advises to give, in the words of a document and of the command line."""

from __future__ import annotations

from collections.abc import Mapping

from seepage.config.choices import shown
from seepage.errors import Remedy
from seepage.settings.option import SpecField, fields_of
from seepage.settings.spec import Spec


def as_key(remedy: Remedy, spec: type[Spec] = Spec) -> str:
    """Return the entry of a document that sets a field."""
    name, _, inner = remedy.field.partition(".")
    field = _field(name, spec)
    if field.option.consent:
        return as_option(remedy, spec)
    key, value = field.key, _value(remedy)
    if inner:
        return f"{key}: {{{inner}: {value}}}"
    return f"{key}: {value}" if value else key


def as_option(remedy: Remedy, spec: type[Spec] = Spec) -> str:
    """Return the option of the command line that sets a field."""
    name, _, inner = remedy.field.partition(".")
    field = _field(name, spec)
    flag = field.fields[inner].flag if inner else field.flag
    if isinstance(remedy.value, list | tuple):
        return " ".join(f"{flag} {_word(item)}" for item in remedy.value)
    if isinstance(remedy.value, Mapping):
        return " ".join(f"{flag} {key}={_word(value)}" for key, value in remedy.value.items())
    if isinstance(remedy.value, bool):
        return flag if remedy.value else f"--no-{flag[2:]}"
    value = remedy.placeholder or ("" if remedy.value is None else _word(remedy.value))
    return f"{flag} {value}".rstrip()


def _field(name: str, spec: type[Spec]) -> SpecField:
    return fields_of(spec).get(name) or fields_of(Spec)[name]


def _value(remedy: Remedy) -> str:
    if remedy.placeholder is not None:
        return remedy.placeholder
    if isinstance(remedy.value, Mapping):
        return "{" + ", ".join(f"{key}: {shown(value)}" for key, value in remedy.value.items()) + "}"
    if isinstance(remedy.value, list | tuple):
        return "[" + ", ".join(map(shown, remedy.value)) + "]"
    return "" if remedy.value is None else shown(remedy.value)


def _word(value: object) -> str:
    """Return a value in the quoting of a shell."""
    text = str(value)
    return text if text.replace("_", "").replace("-", "").replace(".", "").isalnum() else repr(text)
