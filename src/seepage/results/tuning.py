"""Figure of a swept attack: its point is chosen on victims outside the count, or by an oracle."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from seepage.assessment import Estimate
from seepage.assessment.intervals import interval
from seepage.errors import BadInputError
from seepage.run.runner import Run


@dataclass(frozen=True)
class Tuned:
    """Figure of the chosen point over the victims that count, the same for both ways to choose.

    ``pilot`` is a choice that an attacker can make with batches whose records it knows; ``oracle``, the best on the
    truth itself, as papers report it, is an upper bound that no attacker reaches but by luck.
    """

    by: Literal["pilot", "oracle"]
    called: str
    estimate: Estimate
    points: int


def swept(runs: Sequence[Run], attack: str) -> list[Run]:
    """Return the runs of one attack with swept options, by its registered name or its label."""
    return [run for run in runs if run.label == attack or run.label.startswith(f"{attack}(")]


def tuned(runs: Sequence[Run], pilots: Sequence[int] = (0,), metric: str = "accuracy") -> tuple[Tuned, Tuned]:
    """Return the score on all other victims of the point chosen on pilot victims, and that of the oracle's choice.

    Runs are the points: one attack with other options each, on the same victims at one batch size under one defense.
    Pilots do not count. The metric is over all columns, the higher, the more leaks; of equals the first is taken.
    """
    if len({(run.configuration.batch_size, run.configuration.defense, run.units) for run in runs}) != 1:
        raise BadInputError(
            f"an attack is tuned on points of the same batch size, defense and victims, got {len(runs)} points with "
            f"{len({run.configuration.batch_size for run in runs})} batch sizes, "
            f"{len({run.configuration.defense for run in runs})} defenses and "
            f"{len({run.units for run in runs})} sets of victims; choose them with swept() and finish the audit."
        )
    victims = runs[0].units
    missing = [pilot for pilot in pilots if pilot not in victims]
    counted = [place for place, victim in enumerate(victims) if victim not in pilots]
    if missing or not pilots or not counted:
        raise BadInputError(
            f"an attack is tuned on some of its victims and counted on the others, got pilots {tuple(pilots)} of "
            f"{len(victims)} victims; measure more victims or name fewer pilots."
        )
    values = torch.stack([_values(run, metric) for run in runs])
    places = [place for place, victim in enumerate(victims) if victim in pilots]
    best = int(values[:, places].mean(1).argmax())
    oracle = int(values[:, counted].mean(1).argmax())
    return (
        Tuned("pilot", runs[best].label, interval(values[best, counted], bounds=(0.0, 1.0)), len(runs)),
        Tuned("oracle", runs[oracle].label, interval(values[oracle, counted], bounds=(0.0, 1.0)), len(runs)),
    )


def _values(run: Run, metric: str) -> Float[Tensor, " victim"]:
    for measured in run.measured:
        if (measured.metric, measured.column) == (metric, None) and measured.entropy is None:
            if not measured.higher_leaks or bool(measured.values.isnan().any()):
                break
            return measured.values.double()
    raise BadInputError(
        f"{run.label} has no {metric} of every victim that grows with what leaks; tune on another metric, such as "
        "'accuracy'."
    )
