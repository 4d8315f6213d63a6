"""Scores computed the slow way: every permutation tried, every cell compared on its own, no tensors."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from seepage.tabular.schema import Continuous, Discrete, Schema

Row = Sequence[float]


def small_schema(discrete: int = 2, continuous: int = 2) -> Schema:
    """Return a schema of columns d0, d1, ... (three categories) and c0, c1, ... (0 to 10, tolerance 1)."""
    return Schema(
        columns=(
            *(Discrete(name=f"d{i}", categories=("a", "b", "c")) for i in range(discrete)),
            *(Continuous(name=f"c{i}", low=0, high=10, tolerance=1) for i in range(continuous)),
        ),
        target=Discrete(name="target", categories=("no", "yes")),
    )


def right(schema: Schema, guess: Row, true: Row) -> list[bool]:
    """Say of each cell of a row whether it is right."""
    answers = []
    for column, guessed, wanted in zip(schema.columns, guess, true, strict=True):
        if math.isnan(guessed):
            answers.append(False)
        elif isinstance(column, Discrete):
            answers.append(guessed == wanted)
        else:
            answers.append(abs(guessed - wanted) <= column.tolerance)
    return answers


def least_matching(schema: Schema, scale: Row, guess: Sequence[Row], true: Sequence[Row]) -> tuple[int, ...]:
    """Return, for each true row, the guessed row of the matching with the fewest wrong cells.

    Among equals, the one with the least sum of z / (1 + z) over continuous cells.
    """

    def wrong_cells(order: tuple[int, ...]) -> int:
        return sum(right(schema, guess[g], row).count(False) for g, row in zip(order, true, strict=True))

    def distance(order: tuple[int, ...]) -> float:
        total = 0.0
        for g, row in zip(order, true, strict=True):
            for i in schema.continuous:
                z = abs(guess[g][i] - row[i]) / scale[i]
                total += 1.0 if math.isnan(z) else z / (1 + z)
        return total

    orders = list(itertools.permutations(range(len(guess)), len(true)))
    fewest = min(wrong_cells(order) for order in orders)
    return min((order for order in orders if wrong_cells(order) == fewest), key=distance)


def scores(
    schema: Schema, scale: Row, guess: Sequence[Row], true: Sequence[Row]
) -> dict[tuple[str, str | None], float]:
    """Return accuracy, exact match and RMSE of one victim by metric and column."""
    order = least_matching(schema, scale, guess, true)
    rows = [right(schema, guess[g], row) for g, row in zip(order, true, strict=True)]

    def share(columns: Sequence[int]) -> float:
        cells = [row[i] for row in rows for i in columns]
        return sum(cells) / len(cells)

    found: dict[tuple[str, str | None], float] = {
        ("accuracy", None): share(range(len(schema.columns))),
        ("exact_match", None): sum(all(row) for row in rows) / len(rows),
    }
    if schema.discrete:
        found["accuracy_discrete", None] = share(schema.discrete)
    if schema.continuous:
        found["accuracy_continuous", None] = share(schema.continuous)
    for i, column in enumerate(schema.columns):
        found["accuracy", column.name] = share([i])
        if isinstance(column, Continuous):
            squares = [((guess[g][i] - row[i]) / scale[i]) ** 2 for g, row in zip(order, true, strict=True)]
            found["rmse", column.name] = math.sqrt(sum(squares) / len(squares))
    if schema.continuous:
        errors = [found["rmse", schema.names[i]] for i in schema.continuous]
        found["rmse", None] = sum(errors) / len(errors)
    return found


def expected_quarter(certainty: Sequence[float], right_cells: Sequence[bool], count: int, most: bool) -> float:
    """Return the mean accuracy of the ``count`` most (or least) certain cells over all orders of tied cells."""
    order = sorted(range(len(certainty)), key=lambda i: certainty[i], reverse=not most)
    edge = certainty[order[count - 1]]
    inside = [i for i in order if (certainty[i] < edge if most else certainty[i] > edge)]
    tied = [i for i in order if certainty[i] == edge]
    ways = list(itertools.combinations(tied, count - len(inside)))
    return sum(sum(right_cells[i] for i in [*inside, *way]) / count for way in ways) / len(ways)


def tau_b(x: Sequence[float], y: Sequence[float]) -> float:
    """Return Kendall's tau-b by counting pairs."""
    concordant = discordant = only_x = only_y = 0
    for i, j in itertools.combinations(range(len(x)), 2):
        a, b = x[i] - x[j], y[i] - y[j]
        concordant += a * b > 0
        discordant += a * b < 0
        only_x += a != 0 and b == 0
        only_y += b != 0 and a == 0
    pairs = concordant + discordant
    return (concordant - discordant) / math.sqrt((pairs + only_x) * (pairs + only_y))
