"""Captured tensors and the descriptions beside them: safetensors files, and JSON objects with the fields of a model."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from safetensors import SafetensorError, safe_open

from seepage.errors import BadInputError, unknown_name

M = TypeVar("M", bound=BaseModel)


@contextmanager
def opened(path: Path, what: str, advice: str) -> Iterator[safe_open]:
    """Open a safetensors file; a damaged one is refused, then or while it is read.

    Args:
        what: words for the file with their verb, such as "the update is", for messages.
        advice: end of the sentence that says that the file may have been cut short.
    """
    try:
        with safe_open(str(path), framework="pt") as file:
            yield file
    except (SafetensorError, OSError) as error:
        raise BadInputError(
            f"{what} no whole safetensors file ({' '.join(str(error).split())}): it may have been cut short{advice}."
        ) from error


def text_of(path: Path, what: str, most_bytes: int, advice: str) -> str:
    """Return the text of a description in a file of its own."""
    try:
        size = path.stat().st_size
        if size > most_bytes:
            raise BadInputError(f"{what} takes {size:,} bytes, more than a description can need; {advice}.")
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInputError(f"{what} cannot be read ({error}); {advice}.") from error


def json_object(text: str, what: str, advice: str) -> dict[str, Any]:
    """Return the values of a JSON object by key.

    Example:
        >>> json_object('{"batch_size": 4}', "the description", "write it anew")
        {'batch_size': 4}
    """
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadInputError(f"{what} is not JSON ({error}); {advice}.") from error
    if not isinstance(values, dict):
        raise BadInputError(f"{what} is of type {type(values).__name__} where a JSON object is expected; {advice}.")
    return values


def described(kind: type[M], values: Mapping[str, object], what: str, newest: int) -> M:
    """Return a description of the given kind from plain values, such as those of a JSON object.

    Args:
        kind: model of the description, with the field ``format``.
        newest: newest format that is read.

    Raises:
        BadInputError: a key is unknown, a value cannot be used, or the format is a later one.

    Example:
        >>> class Note(BaseModel):
        ...     format: int = 1
        ...     text: str
        >>> described(Note, {"text": "a"}, "the note", newest=1).text
        'a'
    """
    version = values.get("format", newest)
    if isinstance(version, int) and not isinstance(version, bool) and version > newest:
        formats = f"format{'s' if newest > 1 else ''} {' and '.join(map(str, range(1, newest + 1)))}"
        raise BadInputError(
            f"{what} is of format {version}; this version of seepage reads {formats}: install a newer one."
        )
    for key in values:
        if key not in kind.model_fields:
            raise unknown_name(f"key in {what.rstrip(',')}:", str(key)[:80], kind.model_fields)
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        problems = [
            f"{'.'.join(map(str, p['loc'])) or 'recipe'}: {p['msg'].removeprefix('Value error, ').rstrip('.')}"
            for p in error.errors(include_input=False)
        ]
        raise BadInputError(f"{what.rstrip(',')} cannot be used: {'; '.join(problems[:4])}.") from error
