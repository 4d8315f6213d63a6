"""Captured tensors and the descriptions beside them: safetensors files, and JSON objects with the fields of a model."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError
from safetensors import SafetensorError, safe_open

from seepage.errors import BadInputError, unknown_name

M = TypeVar("M", bound=BaseModel)


@contextmanager
def opened(path: Path, what: str, advice: str) -> Iterator[safe_open]:
    """Open a safetensors file; a damaged one is refused, then or while it is read."""
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
