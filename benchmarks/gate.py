"""How often the gate and the rule before it err: on simulated lifts and on real victims that are read whole or not.

    python benchmarks/gate.py victims --batch-size 90 --victims 150 --out benchmarks/results/gate_leaks.csv
    python benchmarks/gate.py victims --batch-size 91 --victims 150 --out benchmarks/results/gate_leaks.csv
    python benchmarks/gate.py victims --batch-size 92 --victims 300 --out benchmarks/results/gate_leaks.csv
    python benchmarks/gate.py audits --out benchmarks/results/gate.csv
    python benchmarks/gate.py audits --real benchmarks/results/gate_leaks.csv --out benchmarks/results/gate.csv

`victims`: `unmix` on Health Heritage, NN3 untrained, FedSGD, batch size 90 or another. What takes over where a batch is
not read whole has one restart of 100 steps. One line a victim; those in the file are not attacked again. The baseline
is the one with the best mean on 200 other batches.

`audits`: audits of independent victims whose lifts come from the distributions of `SHAPES`, or with `--real` are drawn
with replacement from a file of real ones. What `figure` counts:

- `false_pass`: passed a limit at which the mean lift is, or above which it is. The gate looks after each of up to 400
  victims. The t rule passes where the upper end of the 95% t interval is below the limit, after 5, 10 or 20 victims,
  or at any of the looks after 5, 10, 20, 40 and 80.
- `false_fail`: shown to be above a limit at which the mean is; the gate alone.
- `bound_below_mean`: the upper bound of the mean after 5, 10 or 20 victims is below it.
- `units_to_pass`: of audits with a small lift, those that passed within 400 victims, and after how many.

Shares come with exact 95% intervals (Clopper and Pearson).
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from csv_lines import add_lines, read_lines
from numpy.typing import NDArray
from scipy import stats

from seepage import baselines, registry
from seepage.assessment import measure
from seepage.assessment.decision import ALPHA, least_units, log_growth, mixture, upper_bound
from seepage.assessment.measurement import Measurement
from seepage.devices import keep_freed_memory
from seepage.protocols.fedsgd import FedSGD
from seepage.seeds import stream
from seepage.settings.horizontal.spec import make_spec
from seepage.settings.horizontal.subject import prepare
from seepage.tabular.encoder import Encoder
from seepage.wire.horizontal import Knowledge, RecordsGuess
from seepage.wire.secret import RecordsSecret

Lifts = NDArray[np.float64]
Draw = Callable[[np.random.Generator, float, tuple[int, int]], Lifts]

LIMITS = (0.05, 0.1, 0.2)
FIXED = (5, 10, 20)
LOOKS = (5, 10, 20, 40, 80)
MOST = 400
# Audits that are simulated at once: a bet's log wealth after each victim takes 200 kB an audit.
BLOCK = 200
VICTIM = ("dataset", "batch_size", "victim", "score", "baseline", "lift", "certified", "seconds", "commit", "kernel")
AUDIT = ("figure", "lifts", "mean", "limit", "rule", "victims", "audits", "count", "value", "low", "high")
AUDIT += ("median_victims", "victims_95", "commit")


def two(low: float, high: float) -> Draw:
    """Return lifts that are one of two values."""
    return lambda generator, mean, shape: np.where(generator.random(shape) < (mean - low) / (high - low), high, low)


def rare(share: float, value: float, spread: float) -> Draw:
    """Return lifts that are mostly alike, and another value in a share of all victims."""

    def draw(generator: np.random.Generator, mean: float, shape: tuple[int, int]) -> Lifts:
        usual = (mean - share * value) / (1 - share) + generator.uniform(-spread, spread, shape)
        return np.where(generator.random(shape) < share, value, usual)

    return draw


def around(half: float) -> Draw:
    """Return lifts that are spread evenly around their mean."""
    return lambda generator, mean, shape: mean + generator.uniform(-half, half, shape)


# Lifts with a given mean, exactly.
SHAPES: dict[str, Draw] = {
    "even within 0.02": around(0.02),
    "even within 0.2": around(0.2),
    "even within 0.8": around(0.8),
    "bell within 0.3": lambda generator, mean, shape: mean + 0.3 * (2 * generator.beta(4, 4, shape) - 1),
    "0 or 1": two(0.0, 1.0),
    "0 or 0.5": two(0.0, 0.5),
    "-1 or 1": two(-1.0, 1.0),
    "1 in 10 at 0.9": rare(0.1, 0.9, 0.02),
    "1 in 50 at 1": rare(0.02, 1.0, 0.02),
    "1 in 20 at -0.8": rare(0.05, -0.8, 0.02),
    "skewed": lambda generator, mean, shape: generator.beta(mean, 1 - mean, shape),
}


def main() -> None:
    """Add lines to a CSV file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("victims", "audits"))
    parser.add_argument("--victims", type=int, default=300)
    parser.add_argument("--batch-size", type=int, default=90)
    parser.add_argument("--audits", type=int, default=2000)
    parser.add_argument("--real", type=Path, help="file of real victims, in place of simulated ones")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    if arguments.what == "victims":
        lines, fields = victims(arguments.out, arguments.batch_size, arguments.victims), VICTIM
    else:
        simulated = arguments.real is None
        lines = audits(arguments.audits) if simulated else real_audits(arguments.audits, read_lines(arguments.real))
        fields = AUDIT
    for line in lines:
        rounded = {name: round(value, 5) if isinstance(value, float) else value for name, value in line.items()}
        add_lines(arguments.out, fields, [rounded])


def victims(out: Path, records: int, number: int) -> Iterator[dict[str, Any]]:
    """Attack the victims that are not in the file yet."""
    keep_freed_memory()
    torch.set_num_threads(1)
    subject = prepare(make_spec(dataset="health_heritage", model="nn3"))
    data = subject.dataset
    encoder = Encoder(data.schema, data.statistics, dtype=torch.float32)
    protocol, known = FedSGD(records, replacement=False), Knowledge(data.schema, data.statistics, records)

    def accuracy(secret: RecordsSecret, guess: RecordsGuess, metric: str = "accuracy") -> list[float]:
        found = measure(data.schema, data.statistics, secret, guess)
        [values] = [m.values for m in found if isinstance(m, Measurement) and (m.metric, m.column) == (metric, None)]
        return values.tolist()

    others = range(200)
    ran = protocol.run(subject.model, data.train, encoder, [stream(0, other, "other batch") for other in others])
    # Those that need rows of the same kind are left out: this attacker holds none.
    entries = [entry for entry in registry.baselines.of("horizontal").entries() if not entry.needs]
    kinds = {entry.name: baselines.create(entry.name, "horizontal") for entry in entries}
    seeds = [stream(0, other, "baseline") for other in others]
    means = {name: np.mean(accuracy(ran.secret, kind(ran.view, known, seeds))) for name, kind in kinds.items()}
    best = max(means, key=lambda name: means[name])
    attack = registry.attacks.create("unmix", restarts=1, iterations=100)
    done = {line["victim"] for line in read_lines(out) if line["batch_size"] == str(records)}
    for victim in range(number):
        if str(victim) in done:
            continue
        ran = protocol.run(subject.model, data.train, encoder, [stream(0, victim, "batch")])
        begun = time.perf_counter()
        guess = attack(ran.view, known, [stream(0, victim, "starts")])
        seconds = round(time.perf_counter() - begun, 2)
        [score] = accuracy(ran.secret, guess)
        [baseline] = accuracy(ran.secret, kinds[best](ran.view, known, [stream(0, victim, "baseline")]))
        [certified] = accuracy(ran.secret, guess, "certified")
        line = {"dataset": "health_heritage", "batch_size": records, "victim": victim, "seconds": seconds}
        yield line | {"score": score, "baseline": baseline, "lift": score - baseline, "certified": certified}


def audits(number: int) -> Iterator[dict[str, Any]]:
    """Simulate audits of every distribution and limit."""
    for name, draw in SHAPES.items():
        for limit in LIMITS:
            yield from at_limit(name, draw, limit, limit, number)
        yield from bounds(name, draw, 0.1, number)
    for limit in LIMITS:
        yield from passing("0", still, 0.0, limit, 1)
        yield from passing("0.01 ± 0.02", noisy, 0.01, limit, number)


def real_audits(number: int, lines: list[dict[str, str]]) -> Iterator[dict[str, Any]]:
    """Draw audits from real victims of each batch size, at limits at and below their mean."""
    for size in sorted({line["batch_size"] for line in lines}):
        pool = np.array([float(line["lift"]) for line in lines if line["batch_size"] == size])
        name, mean = f"unmix, batch size {size}", float(pool.mean())
        for below in (0.0, 0.02):
            yield from at_limit(name, again(pool), mean, mean - below, number)
        yield from bounds(name, again(pool), mean, number)


def still(generator: np.random.Generator, mean: float, shape: tuple[int, int]) -> Lifts:
    """Return lifts that are all the mean."""
    return np.full(shape, mean)


def noisy(generator: np.random.Generator, mean: float, shape: tuple[int, int]) -> Lifts:
    """Return normal lifts with a standard deviation of 0.02."""
    return np.clip(generator.normal(mean, 0.02, shape), -1, 1)


def again(pool: Lifts) -> Draw:
    """Return lifts that are drawn from real ones with replacement."""
    return lambda generator, mean, shape: generator.choice(pool, shape)


def at_limit(name: str, draw: Draw, mean: float, limit: float, number: int) -> Iterator[dict[str, Any]]:
    """Count audits that pass a limit which the mean is not below, and those that fail where it is the mean."""
    passed, failed, t_passed = [], [], []
    for lifts in blocks(name, draw, mean, number):
        passed.append(first((1 - lifts) / (1 - limit)))
        failed.append(first((1 + lifts) / (1 + limit)))
        t_passed.append(np.stack([t_upper(lifts[:, :n]) < limit for n in LOOKS]))
    told = {"lifts": name, "mean": mean, "limit": limit, "audits": number}
    looks, every = np.concatenate(t_passed, axis=1), f"every one to {MOST}"
    yield told | {"figure": "false_pass", "rule": "gate", "victims": every} | share(np.concatenate(passed) > 0)
    for n in FIXED:
        yield told | {"figure": "false_pass", "rule": "t", "victims": n} | share(looks[LOOKS.index(n)])
    at_any = ", ".join(map(str, LOOKS))
    yield told | {"figure": "false_pass", "rule": "t", "victims": at_any} | share(looks.any(0))
    if mean == limit:
        yield told | {"figure": "false_fail", "rule": "gate", "victims": every} | share(np.concatenate(failed) > 0)


def bounds(name: str, draw: Draw, mean: float, number: int) -> Iterator[dict[str, Any]]:
    """Count upper bounds below the mean."""
    below = {(rule, n): np.zeros(0, dtype=bool) for rule in ("gate", "t") for n in FIXED}
    for lifts in blocks(name, draw, mean, number):
        for n in FIXED:
            found = {"gate": np.array([upper_bound(one) for one in lifts[:, :n]]), "t": t_upper(lifts[:, :n])}
            for rule, upper in found.items():
                below[rule, n] = np.append(below[rule, n], upper < mean)
    for (rule, n), missed in below.items():
        told = {"figure": "bound_below_mean", "lifts": name, "mean": mean, "rule": rule, "victims": n}
        yield told | {"audits": number} | share(missed)


def passing(name: str, draw: Draw, mean: float, limit: float, number: int) -> Iterator[dict[str, Any]]:
    """Say after how many victims an audit of small lifts passes."""
    units = np.concatenate([first((1 - lifts) / (1 - limit)) for lifts in blocks(name, draw, mean, number)])
    if name == "0" and units[0] != least_units(limit):
        raise RuntimeError(f"limit {limit}: {units[0]} victims passed it here, {least_units(limit)} in the package.")
    line = {"figure": "units_to_pass", "lifts": name, "mean": mean, "limit": limit, "rule": "gate", "audits": number}
    line |= {"victims": f"every one to {MOST}"} | share(units > 0)
    # An audit that did not pass needs more than all others.
    ranked = np.where(units > 0, units, MOST + 1)
    median, most = (int(value) for value in np.quantile(ranked, (0.5, 0.95), method="inverted_cdf"))
    yield line | {"median_victims": median, "victims_95": most if most <= MOST else ""}


def blocks(name: str, draw: Draw, mean: float, number: int) -> Iterator[Lifts]:
    """Yield lifts of some audits at a time, from a seed of the distribution."""
    generator = np.random.default_rng(list(name.encode()))
    for begin in range(0, number, BLOCK):
        yield draw(generator, mean, (min(BLOCK, number - begin), MOST))


def first(payoffs: Lifts) -> NDArray[np.int64]:
    """Return after how many victims the gate's evidence suffices in each audit, 0 where it never does."""
    growth = log_growth(payoffs.ravel())
    wealth = np.cumsum(growth.reshape(-1, *payoffs.shape), axis=2).reshape(growth.shape)
    enough = mixture(wealth).reshape(payoffs.shape) >= np.log(1 / ALPHA)
    return np.where(enough.any(1), enough.argmax(1) + 1, 0)


def t_upper(lifts: Lifts) -> Lifts:
    """Return the upper end of each audit's 95% t interval."""
    n = lifts.shape[1]
    return lifts.mean(1) + stats.t.ppf(1 - ALPHA, n - 1) * lifts.std(1, ddof=1) / np.sqrt(n)


def share(found: NDArray[np.bool_]) -> dict[str, Any]:
    """Return how many of some audits, and their share with its exact interval."""
    count = int(found.sum())
    interval = stats.binomtest(count, len(found)).proportion_ci(method="exact")
    figures = {"value": count / len(found), "low": interval.low, "high": interval.high}
    return {"count": count, **{name: float(value) for name, value in figures.items()}}


if __name__ == "__main__":
    main()
