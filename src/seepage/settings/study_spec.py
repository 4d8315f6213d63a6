"""What the defenses of split, vertical and pooled learning have in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from pydantic import Field, model_validator

from seepage.errors import BadInputError
from seepage.settings.spec import Plain

L = TypeVar("L", bound="Labelled")
# What results call no defense.
NONE = "none"


class Labelled(Plain):
    """A defense of a study; subclasses add its settings.

    Attributes:
        label: what results call it; ``none`` for no defense.
    """

    label: str = Field(default=NONE, min_length=1)

    @model_validator(mode="after")
    def _named(self: L) -> L:
        does = any(getattr(self, name) != field.get_default() for name, field in type(self).model_fields.items())
        if self.label == NONE and does:
            raise BadInputError(
                f"a defense that does something would be called {NONE!r} in results; give it a label of its own, such "
                "as label: mine."
            )
        return self


def told_apart(kind: str, called: Sequence[str]) -> None:
    """Refuse two things that results would call the same.

    Raises:
        BadInputError: names the first.
    """
    for name in called:
        if list(called).count(name) > 1:
            raise BadInputError(f"two {kind}s would both be called {name!r} in results; give one another label.")
