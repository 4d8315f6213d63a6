"""How docstrings of this project are read for the reference: an extension of griffe."""

from __future__ import annotations

import re
from typing import Any

import griffe

_EXAMPLE = re.compile(r"^(\s*)Example:$", re.MULTILINE)


class Docstrings(griffe.Extension):
    """Reads a section ``Example:`` as one of examples, whose prompts are code."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rename the section before it is parsed."""
        if obj.docstring is not None:
            obj.docstring.value = _EXAMPLE.sub(r"\1Examples:", obj.docstring.value)
