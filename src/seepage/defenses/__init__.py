"""Defenses of the parties, by setting. A new defense is one file and one line in its setting."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from seepage import registry
from seepage.packages import lazy_package

if TYPE_CHECKING:
    from seepage.defenses.defense import AnyDefense, Defense, RecordDefense, defended, guarded

# The only one that belongs to every setting.
registry.defenses.declare({"none": "seepage.defenses.none"})


def create(name: str, **options: object) -> AnyDefense:
    """Return a defense of horizontal learning; an unknown name or option is a BadInputError."""
    return cast("AnyDefense", registry.defenses.of("horizontal").create(name, **options))


lazy_package(__name__)

__all__ = ["AnyDefense", "Defense", "RecordDefense", "create", "defended", "guarded"]
