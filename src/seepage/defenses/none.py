"""The update as it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from seepage.registry import defenses


@defenses.register("none")
@dataclass(frozen=True)
class Undefended:
    """No defense: the update is sent as it is."""

    def __call__(self, update: dict[str, Tensor], seeds: Sequence[int]) -> dict[str, Tensor]:
        """Return the update unchanged, whatever the seeds.

        Args:
            update: a tensor a parameter, victims leading.
            seeds: one a victim; not used.
        """
        return update
