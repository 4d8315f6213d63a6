"""No defense, in every setting."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from seepage.defenses.defense import Update, check_seeds
from seepage.registry import defenses
from seepage.wire.horizontal import KnownDefense


@defenses.register("none")
@dataclass(frozen=True)
class Undefended:
    """No defense: what crosses the wire is sent as it is.

    Example:
        >>> import torch
        >>> update = {"weight": torch.ones(2, 3)}
        >>> Undefended()(update, seeds=[0, 1]) is update
        True
    """

    def __call__(self, update: Update, seeds: Sequence[int]) -> Update:
        """Return the update itself, whatever the seeds."""
        check_seeds(update, seeds)
        return update

    def describe(self) -> KnownDefense:
        """Return the knowledge that there is no defense."""
        return KnownDefense()
