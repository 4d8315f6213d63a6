"""Checks of the table and of the attacker's side information on it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from seepage.datasets import Dataset
from seepage.datasets.about import card_of
from seepage.results.checks.facts import Facts
from seepage.results.checks.finding import few, few_of, share
from seepage.results.checks.registry import Fault, check
from seepage.tabular.dependence import dependences, determining
from seepage.tabular.schema import Discrete
from seepage.tabular.table import Table
from seepage.text import how_many

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
    table = facts.table.train
    repeated = float(pd.Series(_digests(table)).duplicated(keep=False).mean())
    if repeated >= _SOME:
        yield Fault(
            f"{share(repeated)} of the client's {len(table)} rows occur more than once. A batch may hold a record "
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
