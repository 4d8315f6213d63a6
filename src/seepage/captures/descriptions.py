"""Descriptions beside captured tensors: what is in a text is refused unless it is a JSON object."""

from __future__ import annotations

import json
from typing import Any

from seepage.errors import BadInputError


def json_object(text: str, what: str, advice: str) -> dict[str, Any]:
    """Return the values of a JSON object by key.

    Args:
        text: text that should be one.
        what: words for the text, for messages.
        advice: remedy, for messages.

    Raises:
        BadInputError: the text is not JSON, or no object.

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
