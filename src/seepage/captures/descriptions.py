"""Descriptions beside captured tensors: JSON objects whose keys and values are those of a model."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from seepage.errors import BadInputError, unknown_name

M = TypeVar("M", bound=BaseModel)


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
        values: values by key.
        what: words for the description, for messages.
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
