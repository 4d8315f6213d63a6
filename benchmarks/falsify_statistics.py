"""Puts sums of drawn tables before the kernel, and holds what it proves of them against the true numbers.

    python benchmarks/falsify_statistics.py --draws 400 --out benchmarks/results/falsify_statistics.csv

Every draw has its own columns, levels, rows, family, coefficients, iterations, and what is sent. Sums are computed
here, in the ways in which projects write them. A line is a form: the first ones are declared as they are, and no
proof may be false. The others are declared wrongly, which statements are conditional on: these count how often the
kernel refuses. ``unfit`` counts draws whose true numbers do not have the equations within what these may be off by. A
form that is in the file already is not drawn again.
"""

from __future__ import annotations

import argparse
import math
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from csv_lines import add_lines, read_lines
from scipy.stats import beta

from seepage import kernel
from seepage.attacks.statistics.solving import solve
from seepage.tabular.schema import Discrete, Schema
from seepage.wire.statistics import Family, NewtonMessage, NewtonStep, rows_of, totals_of

FIELDS = ("form", "declared", "draws", "unfit", "refused", "patterns", "proved", "records", "singled_out", "false",
          "upper", "commit", "kernel")  # fmt: skip
# Forms whose declarations are right, and forms whose declarations are not.
TRUE = ("as sent", "weights as mu (1 - mu)", "weights as R writes them", "added in another order", "sum of sites",
        "rounded", "means", "copies of columns", "rare levels", "far coefficients", "rare outcomes",
        "start from outcomes", "one iteration", "poisson", "gaussian", "cross tables of two runs",
        "figures of numbers", "figures of two runs", "rounded figures", "rounded figures of two runs")  # fmt: skip
WRONG = ("entry off by 1e-9", "entry off by 1e-3", "single precision", "rounding understated", "weights",
         "record leaves", "twice the records", "offset", "variances by n", "figures cut off",
         "quantiles of another rule")  # fmt: skip
# Forms of tables, which have no steps.
TABLES = (*TRUE[-5:], *WRONG[-3:])
_SECONDS = 0.3


@dataclass(frozen=True)
class Site:
    """Sites that are drawn: codes and outcomes of each, and how they compute."""

    codes: list[np.ndarray]
    outcomes: list[np.ndarray]
    levels: tuple[tuple[int, ...], ...]
    family: Family
    formula: str
    weights: list[np.ndarray]
    offset: float


def main() -> None:
    """Draw what is not in the file yet."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--draws", type=int, default=400, help="number of draws of each form")
    arguments = parser.parse_args()
    for form in (*TRUE, *WRONG):
        if form not in {line["form"] for line in read_lines(arguments.out)}:
            add_lines(arguments.out, FIELDS, [falsified(form, arguments.draws)])


def falsified(form: str, draws: int) -> dict[str, object]:
    """Return how many numbers of drawn tables were proved, and how many of these are false."""
    count = Counter[str]()
    for seed in range(draws):
        sent, truth = drawn(form, seed)
        try:
            listed, _ = kernel.patterns_of(sent)
            there = torch.tensor([truth[tuple(p)] for p in listed.tolist()], dtype=torch.float64)
            count["unfit"] += not kernel.equations(sent, listed).fits(there)
            table, low, high = kernel.bounds(sent, *solve(sent, _SECONDS).evidence)
        except kernel.RefusedError:
            count["refused"] += 1
            continue
        settled = low == high
        count["patterns"] += len(table)
        count["proved"] += int(settled.sum())
        count["records"] += int(low.sum())
        count["singled_out"] += int(((low == 1) & settled).sum())
        count["false"] += int(((low > there) | (high < there)).sum()) + int(sum(truth.values()) != there.sum())
    counted = {name: count[name] for name in FIELDS[3:10]}
    proved, false = count["proved"], count["false"]
    upper = f"{beta.ppf(0.95, false + 1, proved - false):.2g}" if proved > false else ""
    declared = "as it is" if form in TRUE else "wrongly"
    return {"form": form, "declared": declared, "draws": draws, **counted, "upper": upper}


def drawn(form: str, seed: int) -> tuple[kernel.Totals, Counter[tuple[int, ...]]]:
    """Return sums of drawn tables with the true number of records of each pattern."""
    if form in TABLES:
        return drawn_tables(form, np.random.default_rng([seed, (*TRUE, *WRONG).index(form)]))
    rng = np.random.default_rng([seed, (*TRUE, *WRONG).index(form)])
    site = _site(form, rng)
    means = form in ("means", "twice the records")
    step = (
        10.0 ** -int(rng.integers(1, 7))
        if form == "rounded" or (form == "sum of sites" and rng.random() < 0.3)
        else 0.0
    )
    sent_step = 1e-3 if form == "rounding understated" else step
    records = sum(map(len, site.codes))
    steps = []
    for number, coefficients in enumerate(_path(form, site, rng)):
        some = replace(site, codes=[site.codes[0][1:]], outcomes=[site.outcomes[0][1:]], weights=[site.weights[0][1:]])
        own = some if form == "record leaves" and number == 2 else site
        parts = [_sums(own, k, coefficients) for k in range(len(own.codes))]
        if sent_step:
            parts = [{name: np.round(x / sent_step) * sent_step for name, x in part.items()} for part in parts]
        total = {name: np.sum([part[name] for part in parts], axis=0) for name in parts[0]}
        total = {name: x / (records if means else 1) for name, x in total.items()}
        if form == "single precision":
            total = {name: np.asarray(x, dtype=np.float32).astype(float) for name, x in total.items()}
        if form.startswith("entry off") and number == 1:
            at = tuple(rng.integers(0, len(total["information"]), 2))
            total["information"][at] *= 1 + float(form.split()[-1])
            total["information"][at[::-1]] = total["information"][at]
        steps.append(_sent(total, coefficients, seed, site))
    declared = step * len(site.codes) if form != "rounding understated" else 1e-4
    message = NewtonMessage(
        site.family,
        site.levels,
        records * (2 if form == "twice the records" else 1),
        tuple(steps),
        declared,
        means=means,
    )  # pyright: ignore[reportArgumentType]
    columns = tuple(Discrete(name=f"c{k}", categories=own) for k, own in enumerate(site.levels))
    sent = totals_of(message, Schema(columns=columns, target=Discrete(name="y", categories=(0, 1))))
    return sent, Counter(map(tuple, np.concatenate(site.codes).tolist()))


def drawn_tables(form: str, rng: np.random.Generator) -> tuple[kernel.Totals, Counter[tuple[int, ...]]]:
    """Return published tables and figures of drawn numbers, with the true number of records of each pattern."""
    values = np.unique(np.round(rng.normal(50, 10.0 ** rng.uniform(-1, 3), rng.integers(2, 25)), rng.integers(0, 3)))
    widths = (len(values), *rng.integers(1, 4, rng.integers(0, 3)).tolist())
    added = int(rng.integers(1, 8))
    first = int(rng.integers(3, 400)) if "two runs" in form or rng.random() < 0.3 else 0
    shares = [rng.dirichlet(np.full(width, rng.uniform(0.3, 3))) for width in widths]
    codes = np.stack([rng.choice(len(s), first + added, p=s) for s in shares], axis=1)
    rule = kernel.QUANTILES[rng.integers(len(kernel.QUANTILES))]
    digits = int(rng.integers(0, 4)) if form.startswith("rounded") or form == "figures cut off" else None
    way = _Way(rule, int(rng.integers(2)), digits, int(rng.integers(3)), form)
    groups: list[tuple[tuple[int, int], ...]] = [()]
    groups += [((1, level),) for level in range(widths[1])] if len(widths) > 1 and rng.random() < 0.7 else []
    pairs = []
    for group in groups if form != "cross tables of two runs" else []:
        figures = [_figures(own, values, group, way, rng) for own in (codes, codes[:first])]
        if figures[0] is not None and (figures[1] is not None or not first):
            pairs.append((figures[0], figures[1]))
    tables = []
    for columns in (
        [(i,) for i in range(1, len(widths))] if pairs else [(i, j) for j in range(len(widths)) for i in range(j)]
    ):
        counts = []
        for own in (codes, codes[:first]):
            table = np.zeros([widths[i] for i in columns])
            np.add.at(table, tuple(own[:, i] for i in columns), 1)
            counts.append(np.where((table > 0) & (table < 3), np.nan, table) if rng.random() < 0.3 and first else table)
        tables.append(kernel.CountTable(columns, torch.from_numpy(counts[0] - counts[1]), added + 1))
    names = tuple(kernel.EncodedColumn(f"c{k}", (), (), tuple(range(width))) for k, width in enumerate(widths))
    sent = kernel.Totals(names, tuple(tuple(range(width)) for width in widths), "gaussian", added, tables=tuple(tables),
                         summaries=tuple(pairs))  # fmt: skip
    return sent, Counter(map(tuple, codes[first:].tolist()))


@dataclass(frozen=True)
class _Way:
    """How figures are computed: definition of quantiles, divisor, decimals, and formula of the variance."""

    rule: str
    freedom: int
    digits: int | None
    formula: int
    form: str


def _figures(
    codes: np.ndarray, values: np.ndarray, group: tuple[tuple[int, int], ...], way: _Way, rng: np.random.Generator
) -> kernel.Summary | None:
    """Return some of the figures of a group, as projects and spreadsheets compute them."""
    for column, level in group:
        codes = codes[codes[:, column] == level]
    own, n = values[codes[:, 0]], len(codes)
    if n < 2:
        return None
    mean = [own.mean(), math.fsum(own) / n, float(np.cumsum(own[::-1])[-1]) / n][way.formula]
    squares = [np.square(own - mean).sum(), max(np.square(own).sum() - n * mean**2, 0.0), np.var(own) * n][way.formula]
    variance = squares / (n - (0 if way.form == "variances by n" else way.freedom))
    rule = "hazen" if way.form == "quantiles of another rule" else way.rule
    shares = rng.choice([0.0, 0.05, 0.1, 0.25, 1 / 3, 0.5, 0.75, 0.9, 1.0], rng.integers(0, 5), replace=False)

    def sent(x: float) -> float:
        if way.digits is None:
            return float(x)
        scaled = x * 10.0**way.digits
        # To even, up, or cut off, which is declared as rounding.
        up = math.floor(scaled) if way.form == "figures cut off" else math.floor(scaled + 0.5)
        return float(
            np.round(x, way.digits) if way.formula == 0 and way.form != "figures cut off" else up / 10.0**way.digits
        )

    figures: dict[str, float] = {}
    if rng.random() < 0.8:
        figures |= {"mean": sent(mean)} if rng.random() < 0.7 else {"total": sent(own.sum())}
        spread = [
            {},
            {"variance": sent(variance)},
            {"deviation": sent(variance**0.5)},
            {"squares": sent(np.square(own).sum())},
        ]
        figures |= spread[rng.integers(4)]
    cuts = tuple((float(p), sent(float(np.quantile(own, p, method=rule)))) for p in shares)  # pyright: ignore[reportArgumentType, reportCallIssue]
    step = 0.0 if way.digits is None else 10.0**-way.digits
    freedom = 1 if way.form == "variances by n" else way.freedom
    return kernel.Summary(0, tuple(values.tolist()), n, quantiles=cuts, within=group, freedom=freedom, rule=way.rule,
                          rounded=step, **figures)  # fmt: skip  # pyright: ignore[reportArgumentType]


def _site(form: str, rng: np.random.Generator) -> Site:
    widths = rng.integers(2, 6, rng.integers(1, 5)).tolist()
    while math.prod(widths) > 150:
        widths = widths[:-1]
    rows, sites = int(rng.integers(4, 200)), int(rng.integers(2, 4)) if form == "sum of sites" else 1
    close = 0.15 if form == "rare levels" else rng.uniform(0.3, 3)
    shares = [rng.dirichlet(np.full(width, close)) for width in widths]
    codes = np.stack([rng.choice(len(s), rows * sites, p=s) for s in shares], axis=1)
    if form == "copies of columns":
        codes, widths = np.concatenate([codes, codes[:, :1]], axis=1), [*widths, widths[0]]
    levels = tuple(tuple(range(width)) for width in widths)
    x = rows_of(codes, levels)
    eta = x @ rng.normal(0, 0.8, x.shape[1]) - (5 if form == "rare outcomes" else 0)
    family = form if form in ("poisson", "gaussian") else "poisson" if rng.random() < 0.2 else "binomial"
    y = {
        "binomial": (rng.uniform(size=len(x)) < 1 / (1 + np.exp(-eta))).astype(float),
        "poisson": rng.poisson(np.exp(np.clip(eta, -2, 3))).astype(float),
        "gaussian": rng.normal(size=len(x)) * 10.0 ** rng.integers(-3, 6),
    }[family]
    weight = rng.integers(0, 3, len(x)).astype(float) if form == "weights" else np.ones(len(x))
    formula = {"weights as mu (1 - mu)": "minus", "weights as R writes them": "R", "added in another order": "order"}
    parts = np.split(np.arange(len(x)), sites)
    return Site(
        [codes[p] for p in parts], [y[p] for p in parts], levels, family,
        formula.get(form, ("own", "minus", "R", "order")[rng.integers(4)]), [weight[p] for p in parts],
        0.3 if form == "offset" else 0.0,
    )  # fmt: skip


def _path(form: str, site: Site, rng: np.random.Generator) -> list[np.ndarray | None]:
    """Return the coefficients of each iteration: Newton steps, or any."""
    width = 1 + sum(len(own) - 1 for own in site.levels)
    number = 1 if form == "one iteration" else int(rng.integers(3, 10))
    far = rng.uniform(3, 12) if form == "far coefficients" else rng.uniform(0.2, 1.5)
    path: list[np.ndarray | None] = [np.zeros(width)]
    if form == "start from outcomes" and site.family == "binomial":
        path = [None, rng.normal(0, far, width)]
    newton = rng.random() < 0.5 and form != "far coefficients"
    while len(path) < number:
        last = path[-1]
        if newton and last is not None:
            parts = [_sums(site, k, last) for k in range(len(site.codes))]
            inverse = np.linalg.pinv(sum(part["information"] for part in parts), rcond=1e-8)
            path.append(np.clip(last + inverse @ sum(part["score"] for part in parts), -8, 8))
        else:
            path.append(rng.normal(0, far, width) - (4 if form == "rare outcomes" else 0) * (np.arange(width) == 0))
    return path


def _sums(site: Site, k: int, coefficients: np.ndarray | None) -> dict[str, np.ndarray]:
    """Return the sums of a site in the way that its project writes them."""
    x, y = rows_of(site.codes[k], site.levels), site.outcomes[k]
    if coefficients is None:
        mu = (y + 0.5) / 2
        eta, weight = np.log(mu / (1 - mu)), mu * (1 - mu)
    else:
        eta = x @ coefficients + site.offset
        mu, weight = _mean_and_weight(site, eta)
    weight, left = weight * site.weights[k], (y - mu) * site.weights[k]
    deviance = _deviances(site, y, eta, mu) * site.weights[k]
    z = weight * eta + left if site.formula == "own" else weight * (eta + left / np.maximum(weight, 1e-300))
    parts = {"information": x[:, :, None] * x[:, None, :] * weight[:, None, None], "score": x * left[:, None],
             "right": x * z[:, None], "deviance": deviance}  # fmt: skip
    if site.formula == "order":
        return {name: np.cumsum(part[::-1], axis=0)[-1] for name, part in parts.items()}
    return {**{name: part.sum(0) for name, part in parts.items()}, "information": x.T @ (x * weight[:, None])}


def _mean_and_weight(site: Site, eta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    if site.family == "poisson":
        return np.exp(eta), np.exp(eta)
    if site.family == "gaussian":
        return eta, np.ones_like(eta)
    small = np.finfo(float).eps
    if site.formula == "R":
        slope = np.maximum(np.exp(eta) / (1 + np.exp(eta)) ** 2, small)
        mu = np.exp(np.clip(eta, -36, 36)) / (1 + np.exp(np.clip(eta, -36, 36)))
        return mu, slope**2 / np.maximum(mu * (1 - mu), 1e-300)
    mu = 1 / (1 + np.exp(-eta))
    return mu, mu * (1 - mu) if site.formula == "minus" else mu * (1 / (1 + np.exp(eta)))


def _deviances(site: Site, y: np.ndarray, eta: np.ndarray, mu: np.ndarray) -> np.ndarray:
    if site.family == "gaussian":
        return np.square(y - mu)
    if site.family == "poisson":
        return 2 * (np.where(y > 0, y * np.log(np.maximum(y, 1e-300) / mu), 0) - (y - mu))
    if site.formula in ("R", "minus"):
        small = np.finfo(float).eps
        held = np.clip(mu, small, 1 - small)
        return -2 * (y * np.log(held) + (1 - y) * np.log(1 - held))
    return 2 * (np.logaddexp(0, eta) - y * eta)


def _sent(total: dict[str, np.ndarray], coefficients: np.ndarray | None, seed: int, site: Site) -> NewtonStep:
    """Return what is sent of the sums: score or right side, with or without the deviance."""
    deviance = float(total["deviance"]) if seed % 4 < 2 and coefficients is not None else None
    if seed % 2 or coefficients is None:
        return NewtonStep(coefficients, total["information"], None, total["right"], deviance)
    return NewtonStep(coefficients, total["information"], total["score"], None, deviance)


if __name__ == "__main__":
    main()
