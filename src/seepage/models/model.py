"""A network with its task: what the parties train together and every attacker knows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor, nn

Head = Literal["softmax", "sigmoid", "regression"]


@dataclass(frozen=True)
class Model:
    """A module and how its outputs are read.

    Attributes:
        module: maps encoded rows (..., record, encoded) to outputs (..., record, output).
        head: ``softmax``: one logit a class, cross-entropy; ``sigmoid``: one logit, binary
            cross-entropy; ``regression``: one number, squared error.
        name: registry name, or the module's class for a user's own.
    """

    module: nn.Module
    head: Head
    name: str

    @property
    def parameters(self) -> dict[str, Tensor]:
        """Parameters by name in module order, detached."""
        return {name: parameter.detach() for name, parameter in self.module.named_parameters()}
