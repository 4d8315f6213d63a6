"""Our figures beside the published ones."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Literal

import torch
from scipy import stats

from seepage.assessment import Estimate, Measurement, paired
from seepage.audit import AuditSpec, Row, Run
from seepage.reproduce.table import Figure, PlannedRun, PublishedTable

# Within so much, or within the interval of the difference where that is wider, figures agree.
MARGIN = 0.02

Agreement = Literal["yes", "above", "below", "undetermined"]


@dataclass(frozen=True)
class Difference:
    """Ours less theirs.

    Attributes:
        mean: of the difference.
        low, high: 95% interval; None where ours has fewer than two victims.
    """

    mean: float
    low: float | None
    high: float | None

    @property
    def agreement(self) -> Agreement:
        """Whether it is within the margin or the interval's half width, whichever is wider."""
        if abs(self.mean) <= MARGIN:
            return "yes"
        if self.low is None or self.high is None:
            return "undetermined"
        if abs(self.mean) <= (self.high - self.low) / 2:
            return "yes"
        return "above" if self.mean > 0 else "below"


def welch(ours: Estimate, published: Figure, published_victims: int) -> Difference | None:
    """Return ours less theirs with Welch's t interval (unequal variances, unequal numbers of victims).

    The published standard deviations are population ones and are corrected to unbiased ones.

    Args:
        ours: our estimate; None is returned where it has no mean.
        published: their figure.
        published_victims: number behind it.

    Example:
        >>> difference = welch(Estimate(0.80, None, None, 20, 0.04), Figure(mean=0.79, std=0.05), 50)
        >>> round(difference.low, 4), round(difference.high, 4)
        (-0.0131, 0.0331)
    """
    if ours.mean is None:
        return None
    mean = ours.mean - published.mean
    if ours.std is None or ours.n < 2:
        return Difference(mean, None, None)
    one, other = ours.std**2 / ours.n, published.std**2 / (published_victims - 1)
    if one + other == 0:
        return Difference(mean, mean, mean)
    freedom = (one + other) ** 2 / (one**2 / (ours.n - 1) + other**2 / (published_victims - 1))
    half = float(stats.t.ppf(0.975, freedom)) * math.sqrt(one + other)
    return Difference(mean, mean - half, mean + half)


@dataclass(frozen=True)
class Compared:
    """One cell of a table, ours and theirs; rates in [0, 1].

    Attributes:
        run, labels, batch_size, method: which.
        ours, ours_std, n: our mean, unbiased standard deviation and number of victims.
        published, published_std: theirs, None where the table has no such figure.
        difference, low, high: ours less theirs, with its 95% interval.
        agrees: see ``Difference``; None without a published figure.
        guess, guess_name, lift: the best correct baseline on the same cells, and the gain over it.
        seconds_per_victim: the attack took; None for a baseline.
    """

    run: str
    labels: str
    batch_size: int
    method: str
    ours: float | None
    ours_std: float | None
    n: int
    published: float | None
    published_std: float | None
    difference: float | None
    low: float | None
    high: float | None
    agrees: Agreement | None
    guess: float | None
    guess_name: str | None
    lift: float | None
    seconds_per_victim: float | None


def compare(table: PublishedTable, planned: PlannedRun, spec: AuditSpec, made: Sequence[Row]) -> list[Compared]:
    """Return the cells of one run, those of baselines that are held against nothing left out."""
    cells = []
    for row in made:
        if row["metric"] != table.metric or row["column"] is not None:
            continue
        attack = str(row["attack"])
        method = planned.compared.get(attack, attack)
        if not row["is_attack"] and attack not in planned.compared:
            continue
        published = table.figure(spec.labels, method, row["batch_size"])
        estimate = Estimate(row["mean"], row["low"], row["high"], row["n"], row["std"])
        difference = None if published is None else welch(estimate, published, table.published_victims)
        cells.append(
            Compared(
                run=planned.name,
                labels=spec.labels,
                batch_size=row["batch_size"],
                method=method,
                ours=row["mean"],
                ours_std=row["std"],
                n=row["n"],
                published=None if published is None else published.mean,
                published_std=None if published is None else published.std,
                difference=None if difference is None else difference.mean,
                low=None if difference is None else difference.low,
                high=None if difference is None else difference.high,
                agrees=None if difference is None else difference.agreement,
                guess=row["baseline"],
                guess_name=row["baseline_name"],
                lift=row["lift"],
                seconds_per_victim=row["seconds_per_victim"],
            )
        )
    return cells


def as_csv(cells: Sequence[Compared]) -> str:
    """Return the comparison as CSV text; None is empty."""
    text = io.StringIO()
    writer = csv.DictWriter(text, [field.name for field in fields(Compared)], lineterminator="\n")
    writer.writeheader()
    writer.writerows(asdict(cell) for cell in cells)
    return text.getvalue()


@dataclass(frozen=True)
class Gain:
    """One run against another on the same victims.

    Attributes:
        labels, batch_size, method: which.
        gain: mean of the paired difference over the victims that both have, with its interval.
    """

    labels: str
    batch_size: int
    method: str
    gain: Estimate


def gain(metric: str, labels: str, ours: Run, other: Run) -> Gain:
    """Return how much ``ours`` scored above ``other`` on the same victims."""
    values = [
        next(
            measured.values
            for measured in run.measured
            if isinstance(measured, Measurement) and (measured.metric, measured.column) == (metric, None)
        )
        for run in (ours, other)
    ]
    both = sorted({*ours.victims} & {*other.victims})
    first, second = (
        torch.stack([v[run.victims.index(victim)] for victim in both])
        for v, run in zip(values, (ours, other), strict=True)
    )
    return Gain(labels, ours.batch_size, ours.called, paired(first, second))
