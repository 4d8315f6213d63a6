"""Small federations of trees that the tests of attacks share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch

from seepage.protocols.trees import (
    Boosting,
    bagging,
    encoded,
    forest_of,
    histograms,
    objective_of,
    train_together,
)
from seepage.tabular.align import match, pairwise_error, reorder, right_cells
from seepage.tabular.schema import Continuous, Discrete, Schema
from seepage.tabular.statistics import Statistics
from seepage.tabular.table import Table
from seepage.wire.trees import HistogramMessage, HistogramsView, TreeFilesView, TreesGuess, TreesKnowledge

Target = Discrete | Continuous


def people(rows: int, classes: int = 2, seed: int = 0, incomes: int = 10_000, idle: int = 0) -> Table:
    """Rows with two numbers and three categories, of which the target follows some; classes 1 for a regression.

    Of 100 rows in order the first ``idle`` have the same income, half of the largest.
    """
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "income": rng.integers(0, incomes, rows),
            "age": rng.integers(18, 80, rows),
            "city": rng.choice(["a", "b", "c", "d"], rows, p=[0.5, 0.3, 0.15, 0.05]),
            "married": rng.choice(["no", "yes"], rows),
            "grade": rng.choice(list("uvwxyz"), rows),
        }
    )
    frame.loc[frame.index % 100 < idle, "income"] = incomes // 2
    score = frame["income"] / incomes + frame["age"] / 60 + (frame["city"] == "a") + rng.normal(0, 0.6, rows)
    target: Target = Continuous(name="y", low=-10, high=10, tolerance=0.1)
    frame["y"] = score.round(3)
    if classes > 1:
        target = Discrete(name="y", categories=tuple(range(classes)))
        frame["y"] = np.searchsorted(np.quantile(score, np.arange(1, classes) / classes), score)
    schema = Schema(
        columns=(
            Continuous(name="income", low=0, high=incomes, tolerance=0.1 * incomes, integer=True),
            Continuous(name="age", low=18, high=80, tolerance=2, integer=True),
            Discrete(name="city", categories=("a", "b", "c", "d")),
            Discrete(name="married", categories=("no", "yes")),
            Discrete(name="grade", categories=tuple("uvwxyz")),
        ),
        target=target,
    )
    return Table(schema, frame)


def categories(rows: int, classes: int) -> Table:
    """The categories of ``people``, with a further one."""
    table = people(rows, classes)
    frame = table.frame.drop(columns=["income", "age"])
    frame.insert(0, "shift", np.random.default_rng(1).choice(["early", "late", "night"], rows))
    kinds = (Discrete(name="shift", categories=("early", "late", "night")), *table.schema.columns[2:])
    return Table(Schema(columns=kinds, target=table.schema.target), frame)


@dataclass(frozen=True)
class Federation:
    """Clients with the same number of rows of a table, and what the first of them sends.

    Attributes:
        table: rows of all clients, one client after another.
        count: number of rows of a client.
        recipe: recipe of the trees.
        parts, labels: encoded rows and labels of each client.
    """

    table: Table
    count: int
    recipe: Boosting
    parts: tuple[np.ndarray, ...]
    labels: tuple[np.ndarray, ...]

    @classmethod
    def of(cls, table: Table, count: int, rounds: int, **recipe: float) -> Federation:
        """Return the clients of a table."""
        objective, classes = objective_of(table.schema)
        rows = encoded(table.schema, Statistics.of(table), table.cells)
        places = range(0, len(table), count)
        return cls(
            table,
            count,
            Boosting(objective, classes, rounds, **recipe),  # pyright: ignore[reportArgumentType]
            tuple(rows[place : place + count] for place in places),
            tuple(table.labels.numpy()[place : place + count] for place in places),
        )

    def sums(self, clients: Sequence[int] = (0,)) -> HistogramMessage:
        """Return the sums of some clients together."""
        booster, cuts = train_together(self.parts, self.labels, self.recipe)
        rows, labels = (np.concatenate([held[c] for c in clients]) for held in (self.parts, self.labels))
        return histograms(forest_of(booster), cuts, rows, labels, self.recipe.depth)

    def files(self) -> TreeFilesView:
        """Return the tree files of the first client."""
        return TreeFilesView((bagging(self.parts, self.labels, self.recipe)[1][0],))

    def knows(self, clients: int = 1, noise: float = 0.0) -> TreesKnowledge:
        """Return what an attacker knows of some clients."""
        return TreesKnowledge(
            self.table.schema, Statistics.of(self.table), self.count * clients, max_bin=self.recipe.max_bin, noise=noise
        )


def score(federation: Federation, guess: TreesGuess, client: int = 0, clients: int = 1) -> tuple[float, int, int]:
    """Return the share of right cells after matching, the number of certified cells, and of wrong ones among these."""
    schema, count = federation.table.schema, federation.count
    true = federation.table.cells[client * count : (client + clients) * count][None]
    index = match(pairwise_error(schema, guess.cells, true))
    right = right_cells(schema, reorder(guess.cells, index), true)
    certified = torch.zeros_like(right)
    if guess.certified is not None:
        certified = reorder(guess.certified.double(), index) > 0
    return float(right.double().mean()), int(certified.sum()), int((certified & ~right).sum())


def view_of(*messages: HistogramMessage) -> HistogramsView:
    """Return a view of messages."""
    return HistogramsView(messages)
