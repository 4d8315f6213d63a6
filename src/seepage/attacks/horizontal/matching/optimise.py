"""Gradient descent on dummy rows: all victims and restarts in one loop."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from seepage.attacks.horizontal.matching.engine import Engine
from seepage.errors import BadInputError, check_choice, check_count
from seepage.pace import Progress
from seepage.tabular.relaxation import Relaxation

Schedule = Literal["constant", "cosine"]

# Number of progress reports, and of steps between two of them: a long search has to say soon how fast it is.
_REPORTS, _MOST_STEPS = 100, 50


class Descended(NamedTuple):
    """Result of a descent, and its loss before the first step, after nine tenths of the steps and before the last."""

    variables: Float[Tensor, "victim restart record encoded"]
    course: Float[Tensor, "victim restart 3"]


def report_interval(iterations: int) -> int:
    """Return the number of steps between two progress reports."""
    return min(max(1, iterations // _REPORTS), _MOST_STEPS)


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
        """Return the free variables after the last step, and the loss along the way."""
        z = torch.nn.Parameter(start.clone(memory_format=torch.contiguous_format))
        # The square of a sign is 1, so that Adam reduces to momentum of signs, except where a derivative vanishes.
        adam = torch.optim.Adam([z], lr=self.step, fused=True)
        interval = report_interval(self.iterations)
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
                # Fused Adam pairs entries by their position in memory, whatever their strides.
                z.grad = (by_z.sign_() if self.signed else by_z).contiguous()
                adam.step()
                if progress is not None and ((i + 1) % interval == 0 or i + 1 == self.iterations):
                    progress(((i % interval) + 1) / self.iterations)
        return Descended(z.detach(), torch.stack([losses[i] for i in marks], dim=-1))
