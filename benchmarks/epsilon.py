"""How often canaries accuse a correct mechanism, and how often they find a broken one, by what the bound assumes.

    python benchmarks/epsilon.py --out benchmarks/results/epsilon.csv

`message_epsilon` sends 50,000 messages with the canary and as many without, 200 times. Each mechanism blurs the sum of
clipped gradients, whose neighbours differ by the clipping bound. Its epsilon is known: that of pure noise (`laplace`,
`geometric`, `randomised response`), or at delta 1e-5 from the closed form (`gaussian`) and from its probabilities
(`discrete gaussian`). `fault` is

- `none`: the mechanism is correct, and a lower bound above its epsilon is an accusation without a cause;
- `half`: its noise has half the scale that its epsilon needs, or twice the log odds of the true answer;
- `none at all`: its noise is forgotten.

``above`` counts runs whose lower bound, at 97.5%, is above the stated epsilon, with the exact 95% interval of their
share (Clopper and Pearson); ``median`` is the median lower bound.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from csv_lines import add_lines, read_lines
from numpy.typing import NDArray
from scipy import stats
from scipy.optimize import root_scalar
from torch import Tensor

from seepage.assessment.empirical_epsilon import Reading, message_epsilon
from seepage.defenses.accounting import gaussian_epsilon
from seepage.models.model import Model
from seepage.seeds import stream

Floats = NDArray[np.float64]
Blur = Callable[[np.random.Generator, Floats], Floats]

DELTA = 1e-5
EPSILONS = (0.5, 1.0, 2.0, 4.0)
READINGS: tuple[Reading, ...] = ("any", "gaussian")
KEYS = ("mechanism", "epsilon", "fault", "bound")
FIELDS = (*KEYS, "delta", "messages", "runs", "above", "low", "high", "median", "commit")


def laplace(scale: float) -> Blur:
    """Return noise of Laplace's distribution."""
    return lambda generator, sums: sums + generator.laplace(0, scale, len(sums))


def geometric(scale: float) -> Blur:
    """Return whole numbers as noise, two-sided geometric."""
    rate = 1 - math.exp(-1 / scale)
    return lambda generator, sums: sums + generator.geometric(rate, len(sums)) - generator.geometric(rate, len(sums))


def response(scale: float) -> Blur:
    """Return whether the sum is above its middle, truly with a probability whose log odds are 1 / scale."""
    truthful = 1 / (1 + math.exp(-1 / scale))
    return lambda generator, sums: ((sums > sums.mean()) == (generator.random(len(sums)) < truthful)).astype(float)


def gaussian(scale: float) -> Blur:
    """Return normal noise."""
    return lambda generator, sums: sums + generator.normal(0, scale, len(sums))


def discrete_gaussian(scale: float) -> Blur:
    """Return whole numbers as noise, in proportion to the normal density."""
    values, chances = _discrete(scale)
    return lambda generator, sums: sums + generator.choice(values, len(sums), p=chances)


def _discrete(scale: float) -> tuple[Floats, Floats]:
    values = np.arange(-math.ceil(12 * scale) - 2, math.ceil(12 * scale) + 3).astype(float)
    weights = np.exp(-(values**2) / (2 * scale**2))
    return values, weights / weights.sum()


def discrete_epsilon(scale: float) -> float:
    """Return the epsilon of discrete normal noise at delta, from its probabilities."""
    _, chances = _discrete(scale)
    here, moved = np.append(chances, 0.0), np.append(0.0, chances)

    def excess(epsilon: float) -> float:
        return float(np.maximum(here - math.exp(epsilon) * moved, 0.0).sum()) - DELTA

    return _root(excess, 0.0, 50.0)


def _root(function: Callable[[float], float], low: float, high: float) -> float:
    return float(root_scalar(function, bracket=(low, high), method="brentq").root)


# Mechanism by its scale, the scale that an epsilon needs, and delta.
MECHANISMS: dict[str, tuple[Callable[[float], Blur], Callable[[float], float], float]] = {
    "laplace": (laplace, lambda epsilon: 1 / epsilon, 0.0),
    "geometric": (geometric, lambda epsilon: 1 / epsilon, 0.0),
    "randomised response": (response, lambda epsilon: 1 / epsilon, 0.0),
    "gaussian": (gaussian, lambda e: 1 / _root(lambda mu: gaussian_epsilon(mu, DELTA) - e, 1e-3, 10), DELTA),
    "discrete gaussian": (discrete_gaussian, lambda e: _root(lambda s: discrete_epsilon(s) - e, 0.4, 30), DELTA),
}
FAULTS = {"none": 1.0, "half": 0.5, "none at all": 1e-3}


def main() -> None:
    """Add the lines that the file lacks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="CSV file, which is continued")
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--messages", type=int, default=50_000)
    arguments = parser.parse_args()
    done = {tuple(line[key] for key in KEYS) for line in read_lines(arguments.out)}
    for name, (mechanism, scale_of, delta) in MECHANISMS.items():
        for epsilon in EPSILONS:
            for fault, factor in FAULTS.items():
                blur = mechanism(factor * scale_of(epsilon))
                for bound in READINGS:
                    if (name, str(epsilon), fault, bound) not in done:
                        # A Gaussian reading has no epsilon at a delta of 0.
                        at = delta if bound == "any" else DELTA
                        lows = [low_of(blur, at, bound, arguments.messages, run) for run in range(arguments.runs)]
                        place = dict(zip(KEYS, (name, epsilon, fault, bound), strict=True))
                        counts = {"delta": at, "messages": arguments.messages}
                        add_lines(arguments.out, FIELDS, [{**place, **counts, **counted(np.array(lows), epsilon)}])


def low_of(blur: Blur, delta: float, bound: Reading, messages: int, run: int) -> float:
    """Return the lower bound of one run."""

    def defended(model: Model, encoded: Tensor, labels: Tensor, seeds: Sequence[int]) -> dict[str, Tensor]:
        # The gradient of a record, clipped to 1, is the sign of its label turned over.
        sent = blur(np.random.default_rng(seeds[0]), -labels.sign().sum(1).double().numpy())
        return {"weight": torch.from_numpy(sent)[:, None, None]}

    options = {"messages": messages, "seed": stream(0, run, "epsilon"), "batch_size": 2}
    return message_epsilon(defended, 1.0, delta, **options, bound=bound).low


def counted(lows: Floats, epsilon: float) -> dict[str, object]:
    """Return how many lower bounds are above an epsilon."""
    above = int((lows > epsilon).sum())
    exact = stats.binomtest(above, len(lows)).proportion_ci(method="exact")
    shares = {"low": round(exact.low, 4), "high": round(exact.high, 4), "median": round(float(np.median(lows)), 3)}
    return {"runs": len(lows), "above": above, **shares}


if __name__ == "__main__":
    main()
