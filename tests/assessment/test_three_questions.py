"""Singling out, linkability and inference: planted guesses, naive counts, and guesses that know nothing."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from seepage.assessment.matched import matching, scales
from seepage.assessment.measurement import Measurement
from seepage.assessment.row import CONTROL, INFERRED, LINKED, POSSIBLE, SINGLED_OUT
from seepage.assessment.three_questions import (
    Population,
    Questions,
    check_quasi_identifiers,
    nearest_first,
    questions_of_batches,
    questions_of_records,
)
from seepage.datasets.german import german
from seepage.errors import BadInputError
from seepage.tabular.align import reorder
from seepage.tabular.schema import Continuous, Discrete, Schema
from seepage.tabular.statistics import Statistics
from seepage.tabular.table import Table

GERMAN = german()
ROWS = Population.of(GERMAN.train, GERMAN.schema, GERMAN.statistics)


def small_table(rows: int, seed: int) -> Table:
    """Return a table with few different rows: a category, a coin that is sensitive, and a number."""
    generator = np.random.default_rng(seed)
    schema = Schema(
        columns=(
            Discrete(name="town", categories=("a", "b", "c")),
            Discrete(name="ill", categories=(0, 1), sensitive=True),
            Continuous(name="age", low=0, high=10, tolerance=1.0),
        ),
        target=Discrete(name="label", categories=(0, 1)),
    )
    frame = pd.DataFrame(
        {
            "town": generator.choice(["a", "b", "c"], rows),
            "ill": generator.integers(0, 2, rows),
            "age": generator.integers(0, 11, rows),
            "label": generator.integers(0, 2, rows),
        }
    )
    return Table(schema, frame)


def population(table: Table, *named: str) -> Population:
    return Population.of(table, table.schema, Statistics.of(table), named)


def by_name(figures: list[Measurement]) -> dict[tuple[str, str | None], list[float]]:
    return {(figure.metric, figure.column): figure.values.tolist() for figure in figures}


def batches(victims: int, size: int, seed: int) -> torch.Tensor:
    drawn = np.random.default_rng(seed)
    places = [drawn.choice(len(GERMAN.train), size, replace=False) for _ in range(victims)]
    return GERMAN.train.take(torch.tensor(np.stack(places)))[0]


@pytest.mark.long
@given(rows=st.integers(2, 12), seed=st.integers(0, 10_000))
def test_rows_are_isolated_and_linked_as_a_count_says(rows: int, seed: int) -> None:
    table = small_table(rows, seed)
    named = population(table, "town", "age")
    drawn = torch.Generator().manual_seed(seed)
    guess = torch.stack([torch.randint(width, (4,), generator=drawn).double() for width in (3, 2, 11)], 1)
    used = torch.rand(4, 3, 3, generator=drawn) < 0.6
    isolated, nearest = named.isolated(guess, used), named.nearest(guess)
    cells, near = table.cells.tolist(), (0.0, 0.0, 1.0)
    for g, predicate in product(range(4), range(3)):
        true_for = [
            row
            for row, values in enumerate(cells)
            if all(abs(values[i] - float(guess[g, i])) <= near[i] for i in range(3) if used[g, predicate, i])
        ]
        assert int(isolated[g, predicate]) == (true_for[0] if len(true_for) == 1 else -1)
    for g in range(4):
        apart = [(row[0] != guess[g, 0]) + abs(row[2] - float(guess[g, 2])) / 10 for row in cells]
        least = [row for row, distance in enumerate(apart) if math.isclose(distance, min(apart), abs_tol=1e-9)]
        assert int(nearest[g]) == (least[0] if len(least) == 1 else -1)


def test_a_guess_that_is_the_truth_isolates_links_and_infers() -> None:
    true = batches(victims=3, size=4, seed=0)
    figures = by_name(questions_of_batches(Questions(ROWS, [1, 2, 3]), true, true))
    assert figures[SINGLED_OUT, None] == pytest.approx(figures[SINGLED_OUT + POSSIBLE, None], abs=0.4)
    assert min(figures[SINGLED_OUT, None]) > 0.6
    assert figures[LINKED, None] == figures[LINKED + POSSIBLE, None]
    assert min(figures[LINKED, None]) > 0.9
    assert max(figures[SINGLED_OUT + CONTROL, None]) == max(figures[LINKED + CONTROL, None]) == 0
    for column in ("age", "savings"):
        assert figures[INFERRED, column] == [1.0] * 3
        assert max(figures[INFERRED + CONTROL, column]) < 1


def test_one_guess_for_all_isolates_nobody() -> None:
    true = batches(victims=2, size=4, seed=1)
    # The most frequent row is nobody's own: its values are shared by several rows, or by none.
    constant = torch.stack(
        [marginal.values[marginal.probabilities.argmax()] for marginal in GERMAN.statistics.marginals]
    )
    figures = by_name(questions_of_batches(Questions(ROWS, [1, 2]), true, constant.expand_as(true).clone()))
    assert figures[SINGLED_OUT, None] == figures[LINKED, None] == [0.0, 0.0]


def test_no_cell_that_is_not_guessed_isolates_or_links() -> None:
    true = batches(victims=1, size=3, seed=2)
    nothing = torch.full_like(true, torch.nan)
    figures = by_name(questions_of_batches(Questions(ROWS, [1]), true, nothing))
    assert figures[SINGLED_OUT, None] == figures[LINKED, None] == figures[INFERRED, "age"] == [0.0]
    partly = true.clone()
    partly[..., ::2] = torch.nan
    figures = by_name(questions_of_batches(Questions(ROWS, [1]), true, partly))
    assert figures[SINGLED_OUT, None][0] > 0


@pytest.mark.long
def test_guesses_that_know_nothing_do_as_well_against_controls() -> None:
    table = small_table(rows=24, seed=5)
    rows, victims = population(table), 80
    drawn = np.random.default_rng(6)
    places = np.stack([drawn.choice(24, 3, replace=False) for _ in range(victims)])
    true = table.take(torch.tensor(places))[0]
    guess = table.take(torch.tensor(drawn.integers(0, 24, (victims, 3))))[0]
    index = matching(table.schema, scales(table.schema, rows.statistics), true, guess)
    figures = questions_of_batches(Questions(rows, range(victims)), true, reorder(guess, index))
    by = {(figure.metric, figure.column): figure for figure in figures}
    for name in ((SINGLED_OUT, None), (LINKED, None), (INFERRED, "ill")):
        own, control = by[name], by[name[0] + CONTROL, name[1]]
        gain = own.less(control).estimate(0.999)
        assert gain.low is not None
        assert gain.high is not None
        assert gain.low <= 0 <= gain.high
        assert (own.estimate().mean or 0) > 0.02


def test_controls_are_other_rows_and_share_granted_labels() -> None:
    table = small_table(rows=40, seed=7)
    own, labels = table.take(torch.arange(4)[None])
    # Whoever copies its own batch has no success against others where rows differ; where labels are granted, controls
    # have the same ones, so that a guess of the label's own value is as right for them.
    cells = torch.stack([torch.zeros(40), table.labels, torch.zeros(40)], 1).double()
    marked = table.of_cells(cells, table.labels)
    rows = population(marked)
    guess = marked.take(torch.arange(4)[None])[0]
    held = by_name(questions_of_batches(Questions(rows, [3], labels[..., None]), guess, guess))
    without = by_name(questions_of_batches(Questions(rows, [3]), guess, guess))
    assert held[INFERRED + CONTROL, "ill"] == [1.0]
    assert without[INFERRED + CONTROL, "ill"][0] < 1
    whole = by_name(questions_of_batches(Questions(population(table.rows(range(4))), [3]), own, own))
    assert (SINGLED_OUT + CONTROL, None) not in whole


@given(
    values=st.lists(st.integers(0, 6), min_size=1, max_size=12),
    label=st.integers(0, 6),
    count=st.integers(1, 12),
)
def test_control_labels_are_the_nearest_in_their_order(values: list[int], label: int, count: int) -> None:
    count = min(count, len(values))
    naive = sorted(range(len(values)), key=lambda place: (abs(values[place] - label), place))
    assert nearest_first(torch.tensor(values).double(), float(label), count) == naive[:count]


@pytest.mark.long
@given(rows=st.integers(2, 40), seed=st.integers(0, 10_000))
def test_the_nearest_row_is_that_of_all_distances(rows: int, seed: int) -> None:
    table = small_table(rows, seed)
    named, guess = population(table, "town", "ill", "age"), small_table(4, seed + 1).cells.clone()
    guess[0, 0], guess[1, 2] = math.nan, 4.5
    for nearest, values in zip(named.nearest(guess).tolist(), guess, strict=True):
        apart = (table.cells != values).double()
        apart[:, 2] = ((table.cells[:, 2] - values[2]).abs() / 10).clamp(max=1)
        distance = apart[:, ~values.isnan()].sum(1)
        tied = (distance <= distance.min() + 1e-9).nonzero()[:, 0].tolist()
        assert nearest == (tied[0] if len(tied) == 1 else -1)


@pytest.mark.long
@given(rows=st.integers(2, 40), numbers=st.integers(2, 12), steps=st.integers(1, 50), seed=st.integers(0, 10_000))
def test_the_nearest_row_by_many_numbers_is_that_of_all_distances(
    rows: int, numbers: int, steps: int, seed: int
) -> None:
    generator = np.random.default_rng(seed)
    label, coin = Discrete(name="label", categories=(0, 1)), Discrete(name="coin", categories=(0, 1))
    # Few different values make ties.
    columns = (*(Continuous(name=f"n{i}", low=0, high=steps, tolerance=0.5) for i in range(numbers)), coin)
    frame = pd.DataFrame(generator.integers(0, steps + 1, (rows + 4, numbers)).astype(float)).add_prefix("n")
    frame["coin"], frame["label"] = generator.integers(0, 2, (2, rows + 4))
    table = Table(Schema(columns=columns, target=label), frame)
    cells, guess = table.cells[:rows], table.cells[rows:].clone()
    guess[0, 0], guess[1, 1] = math.nan, -2.0 * steps
    for nearest, values in zip(population(table.rows(range(rows))).nearest(guess).tolist(), guess, strict=True):
        apart = ((cells - values).abs() / torch.tensor([*[steps] * numbers, 1])).clamp(max=1)
        distance = apart[:, ~values.isnan()].sum(1)
        tied = (distance <= distance.min() + 1e-9).nonzero()[:, 0].tolist()
        assert nearest == (tied[0] if len(tied) == 1 else -1)


def test_the_control_of_a_known_record_is_the_nearest_in_what_the_attacker_holds() -> None:
    table = small_table(rows=30, seed=8)
    rows = population(table)
    true = table.cells[None]
    # The attacker holds the coin itself: a guess of it is no more right than of another record with the same coin.
    figures = by_name(questions_of_records(Questions(rows, [1], true[..., 1:2]), true, true))
    assert figures[INFERRED, "ill"] == figures[INFERRED + CONTROL, "ill"] == [1.0]
    figures = by_name(questions_of_records(Questions(rows, [1]), true, true))
    # Of records that are equally near, each guess has one of its own: about half of the coins are alike.
    assert 0.2 < figures[INFERRED + CONTROL, "ill"][0] < 0.8
    assert figures[SINGLED_OUT + CONTROL, None] == [0.0]


def test_a_victims_figures_do_not_depend_on_others() -> None:
    true, guess = batches(victims=3, size=4, seed=3), batches(victims=3, size=4, seed=4)
    guess[:, :2] = true[:, :2]
    together = by_name(questions_of_batches(Questions(ROWS, [1, 2, 3]), true, guess))
    alone = by_name(questions_of_batches(Questions(ROWS, [2]), true[1:2], guess[1:2]))
    assert {name: values[1:2] for name, values in together.items()} == alone


def test_quasi_identifiers_are_the_named_columns_or_those_that_are_not_sensitive() -> None:
    named = Population.of(GERMAN.train, GERMAN.schema, GERMAN.statistics, ["job", "age"])
    assert {GERMAN.schema.names[i] for i in named.quasi_identifiers} == {"job", "age"}
    assert {GERMAN.schema.names[i] for i in ROWS.quasi_identifiers}.isdisjoint({"age", "savings"})
    with pytest.raises(BadInputError, match="unknown quasi-identifier 'joob'"):
        check_quasi_identifiers(GERMAN.schema, ["joob"])
