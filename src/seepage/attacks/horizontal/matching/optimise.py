"""Gradient descent on dummy rows: all victims and restarts in one loop."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from seepage.attacks.horizontal.matching.engine import Engine
from seepage.errors import BadInputError, check_choice, check_count
from seepage.tabular.relaxation import Relaxation

Progress = Callable[[float], None]
Schedule = Literal["constant", "cosine"]

# The share of the work done is reported about this often.
_REPORTS = 100


class Descended(NamedTuple):
    """Where a descent ended and how it got there.

    Attributes:
        variables: free variables after the last step.
        course: the loss before the first step, after nine tenths of the steps and before the last.
    """

    variables: Float[Tensor, "victim restart record encoded"]
    course: Float[Tensor, "victim restart 3"]


def scaled(progress: Progress | None, share: float) -> Progress | None:
    """Return what reports the progress of a part that makes up ``share`` of the whole."""
    return None if progress is None else lambda done: progress(done * share)


@dataclass(frozen=True)
class Descent:
    """Adam on the signs of the derivative (TabLeak, Inverting Gradients).

    Attributes:
        iterations: number of steps; the last iterate is returned.
        step: Adam's learning rate.
        schedule: ``constant`` (as published) or ``cosine``: the step falls to zero along half a
            cosine, so that the last iterate does not jitter by the step size.
        signed: whether Adam sees only the sign of each derivative.
    """

    iterations: int = 1500
    step: float = 0.06
    schedule: Schedule = "constant"
    signed: bool = True

    def __post_init__(self) -> None:
        check_count("iterations", self.iterations)
        check_choice("schedule", self.schedule, Schedule)
        if not self.step > 0:
            raise BadInputError(f"the step must be positive, got step={self.step}.")

    def run(
        self,
        engine: Engine,
        relaxation: Relaxation,
        start: Float[Tensor, "victim restart record encoded"],
        labels: Float[Tensor, "victim labelled"],
        progress: Progress | None = None,
    ) -> Descended:
        """Return the free variables after the last step, and the loss along the way.

        Args:
            engine: gives the loss and its derivative in the rows.
            relaxation: from free variables to rows.
            start: free variables to begin with; left unchanged.
            labels: of the true records; of several dummy records for each, all have its label.
            progress: called now and then with the share of iterations done since the last call.
        """
        z = torch.nn.Parameter(start.clone(memory_format=torch.contiguous_format))
        # A sign has square 1, so that Adam is momentum of signs here, except where a derivative vanishes.
        adam = torch.optim.Adam([z], lr=self.step, fused=True)
        every = max(1, self.iterations // _REPORTS)
        marks = (0, (self.iterations - 1) * 9 // 10, self.iterations - 1)
        losses: dict[int, Tensor] = {}
        with torch.no_grad():
            for i in range(self.iterations):
                if self.schedule == "cosine":
                    adam.param_groups[0]["lr"] = self.step * 0.5 * (1 + math.cos(math.pi * i / self.iterations))
                loss, by_rows = engine(relaxation.relax(z), labels)
                if i in marks:
                    losses[i] = loss
                by_z = relaxation.pullback(by_rows)
                # Fused Adam walks through memory and pairs entries as they lie there, whatever their strides.
                z.grad = (by_z.sign_() if self.signed else by_z).contiguous()
                adam.step()
                if progress is not None and ((i + 1) % every == 0 or i + 1 == self.iterations):
                    progress(((i % every) + 1) / self.iterations)
        return Descended(z.detach(), torch.stack([losses[i] for i in marks], dim=-1))
