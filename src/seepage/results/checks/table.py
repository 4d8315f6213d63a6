"""Checks of the table, its dependences, and the attacker's side information on it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.special import logsumexp

from seepage.datasets import Dataset
from seepage.datasets.about import card_of
from seepage.results.checks.facts import Facts, Fault, check
from seepage.results.checks.finding import few, few_of, share
from seepage.tabular.schema import Column, Discrete
from seepage.tabular.table import Table
from seepage.text import how_many

# Rows that are looked at first; what holds there is looked at in all rows.
_SAMPLE = 2_000
# Probability below which it is no chance that equal cells of a column always come with equal cells of another.
_CHANCE = 1e-6
# Share of a column's variance that a linear function of others may leave: what rounding to a few digits does.
_LEFT = 1e-6
# Share of a standard deviation below which a column has no part in a sum.
_NO_PART = 1e-3
# Rows for each column of numbers, so that no sum fits by chance.
_ROWS_A_COLUMN = 3


@dataclass(frozen=True)
class Dependence:
    """A column that is a linear function of numbers ``by``; if not ``linear``, equal cells come with equal cells."""

    column: str
    by: tuple[str, ...]
    linear: bool


def dependences(table: Table) -> list[Dependence]:
    """Return which input columns are functions of others; of two that determine each other, the later one.

    Example:
        >>> import pandas as pd
        >>> from seepage.tabular.infer import infer_schema
        >>> rows = pd.DataFrame({"a": range(40), "b": [i % 7 for i in range(40)], "y": [0, 1] * 20})
        >>> rows["c"] = 2 * rows["a"] - rows["b"]
        >>> [(follower.column, follower.by) for follower in dependences(Table(infer_schema(rows, "y"), rows))]
        [('c', ('a', 'b'))]
    """
    columns = table.schema.columns
    cells = np.stack([_sampled(table.column(i).numpy()) for i in range(len(columns))], axis=1)
    dependent: dict[int, Dependence] = {}
    for i, by in enumerate(columns):
        for j in _followers(cells, i):
            earlier = dependent.get(j)
            mutual = i in dependent and dependent[i].by == (columns[j].name,)
            if earlier is None and not mutual and _follows(table.column(j).numpy(), table.column(i).numpy()):
                dependent[j] = Dependence(columns[j].name, (by.name,), linear=False)
    numbers = []
    for i, column in enumerate(columns):
        if isinstance(column, Discrete) and all(isinstance(value, int | float) for value in column.categories):
            cells[:, i] = np.array(column.categories, dtype=np.float64)[cells[:, i].astype(int)]
        elif isinstance(column, Discrete):
            continue
        if i not in dependent:
            numbers.append(i)
    for j, by in _sums(cells, numbers):
        dependent[j] = Dependence(columns[j].name, tuple(columns[i].name for i in by), linear=True)
    return [dependent[j] for j in sorted(dependent)]


def determining(table: Table) -> list[str]:
    """Return the names of columns from which the target follows.

    Equal cells come with equal targets, a bound parts the classes, or a target of numbers is a linear function.
    """
    target = table.labels.numpy()
    return [
        column.name
        for i, column in enumerate(table.schema.columns)
        if _tells(table.schema.target, target, table.column(i).numpy())
    ]


def _tells(kind: Column, target: np.ndarray, cells: np.ndarray) -> bool:
    if not isinstance(kind, Discrete):
        both = np.stack([_sampled(cells), _sampled(target)], axis=1)
        return bool(np.ptp(cells)) and (bool(_sums(both, [0, 1])) or _follows(target, cells))
    # What does not hold for some rows does not for all, which take longer.
    for sampling in (_sampled, np.asarray):
        if not _pure(sampling(target), sampling(cells)) and not _parted(sampling(target), sampling(cells)):
            return False
    return _follows(target, cells) or _parted(target, cells)


def _parted(target: np.ndarray, cells: np.ndarray) -> bool:
    """Return whether bounds of a column part the classes of a target, beyond chance."""
    order = np.argsort(cells, kind="stable")
    ordered, counts = target[order], np.unique(target, return_counts=True)[1]
    changes = np.flatnonzero(ordered[1:] != ordered[:-1])
    # Where cells are equal, targets must be.
    parted = bool((cells[order][changes] != cells[order][changes + 1]).all())
    # Of rows in random order, classes are apart with a probability below 2^-(rows of all but the largest).
    return len(changes) == len(counts) - 1 and parted and 2.0 ** -float(len(target) - counts.max()) < _CHANCE


def _pure(column: np.ndarray, by: np.ndarray) -> bool:
    """Return whether equal cells of one column always come with equal cells of another."""
    groups, values = (np.unique(cells, return_inverse=True)[1].astype(np.int64) for cells in (by, column))
    return bool(len(np.unique(groups * (values.max() + 1) + values)) == groups.max() + 1)


def _sampled(cells: np.ndarray) -> np.ndarray:
    return cells[np.linspace(0, len(cells) - 1, min(len(cells), _SAMPLE)).astype(int)]


def _followers(cells: np.ndarray, by: int) -> list[int]:
    """Return the other columns of a sample, constant ones apart, that are constant wherever a given one is."""
    order = np.argsort(cells[:, by], kind="stable")
    ordered = cells[order]
    starts = np.flatnonzero(np.diff(ordered[:, by], prepend=np.nan) != 0)
    if len(starts) == len(cells):
        return []
    same = (np.minimum.reduceat(ordered, starts) == np.maximum.reduceat(ordered, starts)).all(0)
    same &= np.ptp(cells, axis=0) > 0
    same[by] = False
    return np.flatnonzero(same).tolist()


def _follows(column: np.ndarray, by: np.ndarray) -> bool:
    """Return whether equal cells of one column always come with equal cells of another, beyond chance."""
    sizes, counts = (np.unique(cells, return_counts=True)[1] for cells in (by, column))
    if len(counts) < 2 or not _pure(_sampled(column), _sampled(by)) or not _pure(column, by):
        return False
    # A group of n rows is constant by chance with a probability of sum p^n over the values' shares p.
    shares = counts / counts.sum()
    several, times = np.unique(sizes[sizes > 1], return_counts=True)
    chance = sum(time * logsumexp(size * np.log(shares)) for size, time in zip(several, times, strict=True))
    return bool(chance < np.log(_CHANCE))


def _sums(cells: np.ndarray, numbers: Sequence[int]) -> list[tuple[int, tuple[int, ...]]]:
    """Return columns that are linear functions of earlier ones, each with those."""
    if len(cells) < _ROWS_A_COLUMN * len(numbers):
        return []
    basis: list[np.ndarray] = []
    independent: list[int] = []
    sums = []
    for j in numbers:
        column = cells[:, j] - cells[:, j].mean()
        size = np.linalg.norm(column)
        if not size or not np.isfinite(size):
            continue
        column = left = column / size
        # Twice, as one pass of Gram and Schmidt leaves roundings.
        for _ in range(2):
            if basis:
                directions = np.stack(basis)
                left = left - directions.T @ (directions @ left)
        rest = float(left @ left)
        if rest > _LEFT:
            basis.append(left / np.sqrt(rest))
            independent.append(j)
            continue
        others = cells[:, independent] - cells[:, independent].mean(0)
        spread = np.linalg.norm(others, axis=0)
        weights = np.linalg.lstsq(others / spread, column, rcond=None)[0]
        sums.append((j, tuple(i for i, weight in zip(independent, weights, strict=True) if abs(weight) > _NO_PART)))
    return sums


_SOME, _MANY = 0.01, 0.1
# Shares of a column's cells that are taken together as one category.
_PART, _MOST = 0.1, 0.5
# Share of a victim's rows that another party holds too.
_SHARED = 0.2
# Any odd multiplier keeps 64-bit digests apart; this is 2**64 over the golden ratio.
_ODD = np.uint64(0x9E3779B97F4A7C15)


@check("SEEP012", "note", "The table holds duplicates", "table")
def duplicates(facts: Facts) -> Iterator[Fault]:
    """At least a hundredth of the client's rows equal another one in every column but the target."""
    # Of a few columns nearly all rows are alike, whoever they are of.
    table = facts.table.train if facts.audit.whole is None else facts.audit.whole.all
    repeated = float(pd.Series(_digests(table)).duplicated(keep=False).mean())
    if repeated >= _SOME:
        yield Fault(
            f"{share(repeated)} of the client's {len(table):,} rows occur more than once, by their "
            f"{how_many(len(table.schema.columns), 'column')}. A batch may hold a record "
            "twice. Frequent rows are easier for attacks and baselines, and a record that comes back whole may fit "
            "several people. Drop the rows if they are copies. If not, read whole and rare records with that in mind.",
            severity="warning" if repeated >= _MANY else None,
        )


def _digests(table: Table) -> np.ndarray:
    """Return a number for each row, the same for equal rows and, but for a chance of 2**-64, for no others."""
    digests = np.zeros(len(table), dtype=np.uint64)
    for i in range(len(table.schema.columns)):
        # Adding zero turns -0.0 into 0.0, whose bits are hashed.
        digests = digests * _ODD + pd.util.hash_array(table.column(i).numpy() + 0.0)
    return digests


@check("SEEP013", "note", "The labels were granted")
def labels_granted(facts: Facts) -> Iterator[Fault]:
    """The attacker was granted the labels."""
    attacks = {row.attack for row in facts.rows if row.is_attack and row.knowledge.get("labels") == "true"}
    if attacks:
        yield Fault(
            "The attacker was granted the true labels of all records instead of restoring them. That is "
            "generous to it: read the figures as an upper bound. Where the target is a category, an audit with the "
            "labels restored says less."
        )


@check("SEEP014", "warning", "The dataset is partial", "table")
def partial(facts: Facts) -> Iterator[Fault]:
    """A registered dataset has fewer rows than its complete original."""
    dataset = facts.table
    card = None if facts.audit.own else card_of(dataset.name)
    # Generated tables have no complete original.
    if card is None or not (card.bundled or card.files):
        return
    rows = len(dataset.train) + (0 if dataset.test is None else len(dataset.test))
    if rows < card.rows:
        yield Fault(
            f"These are {rows} of the {card.rows} rows of the complete {dataset.name}. Statistics, bounds and "
            "tolerances are those of the part, so figures are not comparable with published ones."
        )


@check("SEEP018", "note", "Rare values are taken together", "table")
def pooled(facts: Facts) -> Iterator[Fault]:
    """At least a tenth of a column's cells are rare values that the schema takes together as one category."""
    table = facts.table.train
    parts = {name: part for name, part in pooled_shares(facts.table).items() if part >= _PART}
    if parts:
        largest = sorted(parts, key=lambda name: -parts[name])
        cases = [
            f"{name!r}: {round(parts[name] * len(table)):,} of {len(table):,} ({share(parts[name])})"
            for name in largest
        ]
        yield Fault(
            f"In {how_many(len(parts), 'column')} many cells are one of the rarer values that are taken together: "
            f"{few(cases)}. "
            "An attack or a baseline that answers with the collective category counts as right without the value. "
            "So both figures of such a column say little about its values. Keep more values (--most-categories, "
            "most_categories in a document), or group them as their meaning suggests before you audit.",
            severity="warning" if max(parts.values()) >= _MOST else None,
            columns=tuple(largest),
        )


@check("SEEP022", "warning", "Parties hold the same rows")
def shared_rows(facts: Facts) -> Iterator[Fault]:
    """More than a fifth of victims' rows are in other victims' data too, or equal rows of the attacker."""
    shares = {
        metric: max(
            (row.mean for row in facts.rows if row.kind == "about" and row.metric == metric and row.mean is not None),
            default=0.0,
        )
        for metric in ("overlap", "duplicates")
    }
    cases = []
    if shares["overlap"] > _SHARED:
        cases.append(f"two victims with the same share have {share(shares['overlap'])} of their rows in common")
    if shares["duplicates"] > _SHARED:
        cases.append(f"{share(shares['duplicates'])} of a victim's rows equal a row that the attacker holds")
    if cases:
        yield Fault(
            f"In this table {' and '.join(cases)}. Victims that have rows in common are alike, so figures say little "
            "about other victims. Rows that the attacker holds too tell it more than it would know of strangers. Give "
            "fewer rows a party or a larger table, and where several rows are of one person, name the column that says "
            "so (--group)."
        )


@check("SEEP028", "warning", "A column determines the target", "table")
def determines_target(facts: Facts) -> Iterator[Fault]:
    """The target follows from a single input column, such as its exact complement."""
    target = facts.table.schema.target.name
    names = determining(facts.table.train)
    if names:
        listed = ", ".join(few_of([repr(name) for name in names]))
        yield Fault(
            f"The target {target!r} follows from {'each of ' * (len(names) > 1)}{how_many(len(names), 'column')} "
            f"alone: {listed}. "
            "Whoever knows the label then knows such a column, and the reverse. So figures of both are those of one "
            "cell that is counted twice, and a model learns nothing but this column. Leave it out (--drop) unless the "
            "deployed model gets it too."
        )


@check("SEEP029", "note", "A column is a function of others", "table")
def functions_of_others(facts: Facts) -> Iterator[Fault]:
    """A column follows from another one, or is a linear function of several."""
    functions = dependences(facts.table.train)
    if functions:
        cases = [
            f"{dependence.column!r} of {' and '.join(few_of([repr(name) for name in dependence.by]))}"
            for dependence in functions
        ]
        yield Fault(
            f"{how_many(len(functions), 'column')} {'is a function' if len(functions) == 1 else 'are functions'} of "
            f"others: {few(cases)}. An attack that reads the others has "
            "read them too, so that shares of cells count the same information several times. A column that is left "
            "out, or that another party holds, is known from those that are not. Drop them (--drop) unless the "
            "deployed table has them."
        )


def pooled_shares(dataset: Dataset) -> dict[str, float]:
    """Return the share of the client's cells that are rare values taken together, by column with such a category."""
    shares = {}
    for i, column in enumerate(dataset.schema.columns):
        if isinstance(column, Discrete) and column.other is not None:
            place = column.categories.index(column.other)
            shares[column.name] = float((dataset.train.column(i) == place).double().mean())
    return shares
