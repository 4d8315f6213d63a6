"""How often 95% intervals hold the truth, and how wide they are, by the distribution of the units and their number.

    python benchmarks/coverage.py --out benchmarks/results/coverage.csv

Units are drawn from distributions with a known mean. A line counts the repeats of which the interval holds it, for the
betting interval that results have (``ours``) and for Student's t, clipped to the range of the figure. Figures are

- `rate`: a mean over units in [0, 1];
- `clusters`: the same, of units that are means of 40 records each, which are right or wrong;
- `lift`: a mean paired difference of two rates;
- `ratio`: right cells of all cells, of units with 1 to 20 cells of which all or none are right; Student's is that of a
  ratio estimate (Cochran, "Sampling Techniques", 1977, section 6.4);
- `difference`: a difference of two rates over different units, from their intervals; Student's is Welch's.

Coverage comes with its exact 95% interval (Clopper and Pearson); ``points`` is the share of intervals without a width.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from csv_lines import add_lines, read_lines
from numpy.typing import NDArray
from scipy import stats

from seepage.assessment.intervals import Estimate, difference, interval, paired, ratio, student
from seepage.seeds import stream

Floats = NDArray[np.float64]
Ends = tuple[float, float]
Draw = Callable[[np.random.Generator, int], Floats]

UNITS = (2, 3, 5, 10, 20)
RATE = (0.0, 1.0)
# Largest number of cells of a unit.
MOST = 20
KEYS = ("figure", "units", "n", "rule")
FIELDS = (*KEYS, "truth", "repeats", "covered", "low", "high", "points", "median_width", "commit")


def some(share: float, value: float, usual: float) -> tuple[float, Draw]:
    """Return units that are all alike but for a share of them, and their mean."""
    mean = share * value + (1 - share) * usual
    return mean, lambda generator, n: np.where(generator.random(n) < share, value, usual)


def skewed(a: float, b: float) -> tuple[float, Draw]:
    """Return units of a beta distribution, and their mean."""
    return a / (a + b), lambda generator, n: generator.beta(a, b, n)


def ties(records: int, share: float) -> tuple[float, Draw]:
    """Return units of few records each, and their mean."""
    return share, lambda generator, n: generator.binomial(records, share, n) / records


RATES: dict[str, tuple[float, Draw]] = {
    "1 in 10 at 0.9, else 0": some(0.1, 0.9, 0.0),
    "1 in 20 at 0.2, else 1": some(0.05, 0.2, 1.0),
    "1 in 50 at 1, else 0.3": some(0.02, 1.0, 0.3),
    "beta(0.1, 0.9)": skewed(0.1, 0.9),
    "beta(0.5, 5)": skewed(0.5, 5.0),
    "beta(9, 1)": skewed(9.0, 1.0),
    "beta(20, 20)": skewed(20.0, 20.0),
    "4 records at 0.7": ties(4, 0.7),
    "8 records at 0.5": ties(8, 0.5),
}


def main() -> None:
    """Add the lines that the file lacks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="CSV file, which is continued")
    parser.add_argument("--repeats", type=int, default=2000)
    arguments = parser.parse_args()
    done = {tuple(line[key] for key in KEYS) for line in read_lines(arguments.out)}
    for figure, simulate in SIMULATED.items():
        for units in UNITS_OF[figure]:
            for n in UNITS:
                if (figure, units, str(n), "ours") not in done:
                    generator = np.random.default_rng(stream(0, n, f"{figure} of {units}"))
                    add_lines(
                        arguments.out,
                        FIELDS,
                        measured(figure, units, n, simulate(generator, units, n, arguments.repeats)),
                    )


Both = tuple[float, Ends, Ends]


def measured(figure: str, units: str, n: int, simulated: Iterator[Both]) -> list[dict[str, object]]:
    """Return a line for our intervals and one for Student's, of a truth and both intervals each."""
    truths, ours, others = zip(*simulated, strict=True)
    lines = []
    for rule, ends in (("ours", np.array(ours)), ("student", np.array(others))):
        held = (ends[:, 0] <= np.array(truths)) & (np.array(truths) <= ends[:, 1])
        exact = stats.binomtest(int(held.sum()), len(held)).proportion_ci(method="exact")
        width = ends[:, 1] - ends[:, 0]
        place = dict(zip(KEYS, (figure, units, n, rule), strict=True))
        shares = {"covered": held.mean(), "low": exact.low, "high": exact.high, "points": (width < 1e-9).mean()}
        rounded = {name: round(float(share), 4) for name, share in shares.items()}
        truth, median = round(float(truths[0]), 4), round(float(np.median(width)), 4)
        lines.append({**place, "truth": truth, "repeats": len(held), **rounded, "median_width": median})
    return lines


def _ends(found: Estimate) -> Ends:
    assert found.low is not None
    assert found.high is not None
    return found.low, found.high


def _student(values: Floats, bounds: Ends = RATE) -> Ends:
    ends = student(float(values.mean()), float(values.std(ddof=1)), len(values))
    assert ends is not None
    return max(bounds[0], ends[0]), min(bounds[1], ends[1])


def of_rates(generator: np.random.Generator, units: str, n: int, repeats: int) -> Iterator[Both]:
    """Yield intervals of means."""
    truth, draw = RATES[units]
    for _ in range(repeats):
        values = draw(generator, n)
        yield truth, _ends(interval(torch.from_numpy(values), bounds=RATE)), _student(values)


def of_clusters(generator: np.random.Generator, units: str, n: int, repeats: int) -> Iterator[Both]:
    """Yield intervals of means of units whose records are right or wrong."""
    truth, draw = RATES[units]
    for _ in range(repeats):
        values = generator.binomial(40, draw(generator, n)) / 40
        yield truth, _ends(interval(torch.from_numpy(values), bounds=RATE)), _student(values)


def of_lifts(generator: np.random.Generator, units: str, n: int, repeats: int) -> Iterator[Both]:
    """Yield intervals of paired differences to a baseline of 0.5 that varies by 0.1."""
    truth, draw = RATES[units]
    for _ in range(repeats):
        values, baseline = draw(generator, n), generator.uniform(0.4, 0.6, n)
        found = paired(torch.from_numpy(values), torch.from_numpy(baseline), RATE)
        yield truth - 0.5, _ends(found), _student(values - baseline, (-1.0, 1.0))


def of_ratios(generator: np.random.Generator, units: str, n: int, repeats: int) -> Iterator[Both]:
    """Yield intervals of pooled rates, of units that are right in all cells or in none."""
    share = float(units)
    for _ in range(repeats):
        counts = generator.integers(1, MOST + 1, n)
        hits = counts * (generator.random(n) < share)
        found = ratio(torch.from_numpy(hits * 1.0), torch.from_numpy(counts * 1.0), MOST)
        ends = student(found.mean, found.std, n)
        assert ends is not None
        yield share, _ends(found), (max(0.0, ends[0]), min(1.0, ends[1]))


def of_differences(generator: np.random.Generator, units: str, n: int, repeats: int) -> Iterator[Both]:
    """Yield intervals of differences of two such means over different units, of which the truth is 0."""
    _, draw = RATES[units]
    for _ in range(repeats):
        first, second = draw(generator, n), draw(generator, n)
        found = difference(*(interval(torch.from_numpy(values), bounds=RATE) for values in (first, second)))
        yield 0.0, _ends(found), _welch(first, second)


def _welch(first: Floats, second: Floats) -> Ends:
    at = float(second.mean() - first.mean())
    parts = [values.var(ddof=1) / len(values) for values in (first, second)]
    if sum(parts) == 0:
        return at, at
    freedom = sum(parts) ** 2 / sum(part**2 / (len(first) - 1) for part in parts)
    half = float(stats.t.ppf(0.975, freedom)) * math.sqrt(sum(parts))
    return at - half, at + half


SIMULATED: dict[str, Callable[[np.random.Generator, str, int, int], Iterator[Both]]] = {
    "rate": of_rates,
    "clusters": of_clusters,
    "lift": of_lifts,
    "ratio": of_ratios,
    "difference": of_differences,
}
_SOME = ("1 in 10 at 0.9, else 0", "1 in 20 at 0.2, else 1", "beta(0.1, 0.9)")
UNITS_OF: dict[str, tuple[str, ...]] = {
    "rate": tuple(RATES),
    "clusters": (*_SOME, "beta(20, 20)"),
    "lift": _SOME,
    "ratio": ("0.9", "0.5"),
    "difference": _SOME,
}


if __name__ == "__main__":
    main()
