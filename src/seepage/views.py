"""What crosses the wire, as the curious party receives it: a small closed set of frozen types.

A leading ``victim`` axis holds several attacked units that share one model, so that an attack runs
them as one batched computation.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from seepage.models.model import Model


@dataclass(frozen=True)
class GradientView:
    """The gradient one client sends for one FedSGD step, for each of several victims.

    Attributes:
        model: the global model the server sent out (the server made it, so it knows it).
        gradient: by parameter name in module order, mean over the client's batch,
            shape (victim, *parameter).
    """

    model: Model
    gradient: dict[str, Tensor]

    @property
    def victims(self) -> int:
        """Number of victims."""
        return len(next(iter(self.gradient.values())))


View = GradientView
