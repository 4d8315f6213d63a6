"""Fewer features from passive parties of vertical learning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from seepage.errors import check_count
from seepage.registry import ActsOn, defenses


@defenses.register("bottleneck", "vertical")
@dataclass(frozen=True)
class Bottleneck:
    """Passive parties send fewer features than the audit's networks do otherwise.

    Attributes:
        width: number of features that each passive party sends.

    Raises:
        BadInputError: the width is no whole number from 1 up.
    """

    words: ClassVar[str] = "fewer features sent, {width} of them"
    acts_on: ClassVar[ActsOn] = "number of features"

    width: int

    def __post_init__(self) -> None:
        check_count("width", self.width)
