"""Changes of a deployment that may lower its leakage, with a strength that can be searched."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from seepage.settings.part import Part
from seepage.settings.spec import Spec

S = TypeVar("S", bound=Spec)
# Decimals of strengths that are tried: enough to tell neighbours of a search apart.
_DIGITS = 2


@dataclass(frozen=True)
class Lever:
    """One change of a deployment: a defense, or other values of fields of the spec.

    Its strength is searched on a log scale between two positive ends, alike where there is nothing to search.
    """

    name: str
    weakest: float | int  # may be the larger number
    strongest: float | int
    whole: bool = False
    mechanism: str | None = None  # names of a defense's mechanisms with ``+`` between them; the lever's name if None
    options: Mapping[str, object] = field(default_factory=dict)
    strengths: tuple[tuple[str, ...], ...] = ()  # path to each option that is set, such as ``("noise_multiplier",)``
    spec_field: str | None = None  # field of the spec that is set to the strength; None for a defense
    key: str | None = None  # of the field, where it is a mapping
    beside: Mapping[str, Any] = field(default_factory=dict)

    @property
    def changes(self) -> tuple[str, ...]:
        """Names of the fields of the spec that change."""
        changed = "defenses" if self.spec_field is None else self.spec_field
        return (changed, *self.beside)

    @property
    def searched(self) -> bool:
        """Whether there is a range of strengths."""
        return self.weakest != self.strongest

    def free(self, spec: Spec) -> bool:
        """Return whether a spec leaves the changed fields open; fields that were given are fixed."""
        for name in self.changes:
            if name not in spec.model_fields_set:
                continue
            value = getattr(spec, name)
            # A mapping may set other keys than this one.
            if name != self.spec_field or self.key is None or not isinstance(value, Mapping) or self.key in value:
                return False
        return True

    def between(self, weaker: float | int, stronger: float | int) -> float | int | None:
        """Return the strength in the middle of two on a log scale; None where there is none left between them."""
        middle = self.rounded(math.sqrt(weaker * stronger))
        return None if middle in (self.rounded(weaker), self.rounded(stronger)) else middle

    def rounded(self, strength: float | int) -> float | int:
        """Return a strength as it is tried: a whole number, or one of few digits."""
        return round(strength) if self.whole else float(f"{strength:.{_DIGITS}g}")

    def words(self, strength: float | int) -> str:
        """Return the change as a label of results, such as ``dp_sgd(0.1)``."""
        return f"{self.name}({strength:g})" if self.searched else self.name

    def fields(self, spec: Spec, strength: float | int) -> dict[str, Any]:
        """Return the values of fields that change."""
        if self.spec_field is None:
            name = self.name if self.mechanism is None else self.mechanism
            defense = Part(name=name, options=self._options(strength), label=self.words(strength))
            return {"defenses": (defense,), **self.beside}
        value = strength if self.key is None else {**getattr(spec, self.spec_field), self.key: strength}
        return {self.spec_field: value, **self.beside}

    def applied(self, spec: S, strength: float | int) -> S:
        """Return a spec with this change; raise where it does not go together with what the spec says."""
        given = {name: getattr(spec, name) for name in spec.model_fields_set}
        return type(spec).of(**{**given, **self.fields(spec, strength)})

    def _options(self, strength: float | int) -> dict[str, Any]:
        options: dict[str, Any] = copy.deepcopy(dict(self.options))
        for path in self.strengths:
            place = options
            for name in path[:-1]:
                place = place.setdefault(name, {})
            place[path[-1]] = strength
        return options
