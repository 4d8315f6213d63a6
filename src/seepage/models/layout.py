"""Layout of a party's columns where rows are no table, such as the pixels of an image."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from jaxtyping import Float
from torch import Tensor, nn


@runtime_checkable
class PartLayout(Protocol):
    """Layout of a party's columns, as an attacker knows it: networks for such columns, and rows that look alike.

    Networks and rows have a leading axis of trainings, with a seed each.
    """

    @property
    def layers(self) -> int:
        """Number of layers of an inverse network, where an attack asks for none."""
        ...

    def bottom(self, seeds: Sequence[int]) -> nn.Module:
        """Return bottom models as parties use them, from encoded rows to features."""
        ...

    def inverse(self, layers: int, seeds: Sequence[int]) -> nn.Module:
        """Return networks from features to encoded rows."""
        ...

    def queries(self, rows: int, seeds: Sequence[int]) -> Float[Tensor, "training row encoded"]:
        """Return encoded rows that an attacker invents."""
        ...
