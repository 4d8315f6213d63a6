"""How this project's modules are read for the reference: an extension of griffe."""

from __future__ import annotations

import re
from typing import Any

import griffe

_EXAMPLE = re.compile(r"^(\s*)Example:$", re.MULTILINE)


class Reading(griffe.Extension):
    """Reads a section ``Example:`` as one of examples, whose prompts are code, and shows each object once."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rename the section before it is parsed."""
        if obj.docstring is not None:
            obj.docstring.value = _EXAMPLE.sub(r"\1Examples:", obj.docstring.value)

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Leave what a package passes on to the module that defines it."""
        waiting = [pkg]
        while waiting:
            module = waiting.pop()
            for member in module.members.values():
                if isinstance(member, griffe.Alias):
                    member.public = False
                elif isinstance(member, griffe.Module):
                    waiting.append(member)
