"""Typical rows, from public rows, marginals or a tree of columns: planted truths, invariances and rubbish."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor, nn

from seepage import registry
from seepage.assessment import measure
from seepage.baselines import ChowLiu, Likeliest, Random, Stereotypes
from seepage.baselines.chow_liu import chow_liu_tree, levels_of
from seepage.datasets import load
from seepage.errors import BadInputError
from seepage.models.model import Model
from seepage.tabular.schema import Continuous, Discrete, Schema
from seepage.tabular.statistics import Statistics
from seepage.tabular.table import Table
from seepage.wire.horizontal import GradientView, Knowledge, RecordsGuess
from seepage.wire.secret import RecordsSecret


def _view(victims: int, fill: float = 0.0) -> GradientView:
    model = Model(nn.Linear(1, 1, bias=False), "sigmoid", "linear")
    return GradientView(model, {"weight": torch.full((victims, 1, 1), fill)})


def _schema(widths: list[int], numbers: int = 0) -> Schema:
    columns = [Discrete(name=f"d{i}", categories=tuple(range(width))) for i, width in enumerate(widths)]
    columns += [Continuous(name=f"n{i}", low=0, high=100, tolerance=2, integer=True) for i in range(numbers)]
    return Schema(columns=tuple(columns), target=Discrete(name="ill", categories=(0, 1)))


def _knowledge(schema: Schema, rows: Tensor, batch_size: int, public: bool = True) -> Knowledge:
    cells = {
        column.name: values.long().numpy() if isinstance(column, Discrete) else values.numpy()
        for column, values in zip(schema.columns, rows.unbind(1), strict=True)
    }
    frame = pd.DataFrame({**cells, "ill": np.arange(len(rows)) % 2})
    return Knowledge(schema, Statistics.of(Table(schema, frame)), batch_size, auxiliary=rows if public else None)


def _accuracy(knowledge: Knowledge, secret: Tensor, guess: RecordsGuess) -> Tensor:
    true = RecordsSecret(secret, torch.zeros(secret.shape[:2], dtype=torch.float64))
    scores = measure(knowledge.schema, knowledge.statistics, true, guess)
    return next(score.values for score in scores if (score.metric, score.column) == ("accuracy", None))


def _clusters(seed: int, rows: int = 600) -> tuple[Tensor, Tensor]:
    """Return four centres of six discrete columns and two numbers, and rows that stray from one in a tenth of cells."""
    generator = torch.Generator().manual_seed(seed)
    centres = torch.cat(
        [torch.stack([torch.randperm(4, generator=generator) for _ in range(6)], 1), 20 * torch.arange(4)[:, None]], 1
    ).double()
    cells = centres[torch.arange(rows) % 4]
    strays = torch.rand(cells.shape, generator=generator) < 0.1
    strange = torch.cat([torch.randint(4, (rows, 6), generator=generator), torch.full((rows, 1), 90)], 1).double()
    return centres, torch.where(strays, strange, cells)


@pytest.mark.parametrize("seed", range(5))
def test_stereotypes_are_the_modes_of_planted_clusters(seed: int) -> None:
    centres, rows = _clusters(seed)
    knowledge = _knowledge(_schema([4] * 6, numbers=1), rows, batch_size=4)
    found = Stereotypes()(_view(1), knowledge, [0]).cells[0]
    assert {tuple(row) for row in found.tolist()} == {tuple(row) for row in centres.tolist()}


def test_clusters_count_by_their_sizes() -> None:
    """Of four records three are expected from a cluster that holds three quarters of the rows."""
    rows = torch.tensor([[0.0] * 8] * 450 + [[1.0] * 8] * 150, dtype=torch.float64)
    found = Stereotypes()(_view(1), _knowledge(_schema([2] * 8), rows, 4), [0]).cells[0]
    assert sorted(found[:, 0].tolist()) == [0, 0, 0, 1]


@pytest.mark.parametrize("public", [True, False])
def test_one_record_gets_the_likeliest_row(public: bool) -> None:
    rows = torch.tensor([[0.0, 1, 30]] * 60 + [[1.0, 0, 30]] * 25 + [[1.0, 2, 70]] * 15, dtype=torch.float64)
    knowledge = _knowledge(_schema([2, 3], numbers=1), rows, 1, public)
    likeliest = Likeliest()(_view(3), knowledge, range(3)).cells
    assert torch.equal(Stereotypes()(_view(3), knowledge, range(3)).cells, likeliest)


def test_numbers_are_read_within_their_tolerance() -> None:
    """A value is best where most others lie within two of it, not where it occurs most often itself."""
    rows = torch.tensor([10.0] * 20 + [48.0, 49, 50, 51, 52] * 16, dtype=torch.float64)[:, None]
    knowledge = _knowledge(_schema([], numbers=1), rows, 1)
    assert Stereotypes()(_view(1), knowledge, [0]).cells.item() == 50


@pytest.mark.parametrize("name", ["german", "adult"])
@pytest.mark.parametrize("records", [8, 32])
def test_they_read_more_than_rows_drawn_one_by_one_and_than_the_likeliest_row(name: str, records: int) -> None:
    data = load(name)
    generator = torch.Generator().manual_seed(records)
    places = torch.stack([torch.randperm(len(data.train), generator=generator)[:records] for _ in range(20)])
    secret = data.train.cells[places]
    known = Knowledge(data.schema, data.statistics, records)
    assert data.test is not None
    granted = replace(known, auxiliary=data.test.cells[:2_000])

    def read(kind: type[Likeliest | Random | Stereotypes | ChowLiu], knowledge: Knowledge) -> float:
        return float(_accuracy(known, secret, kind()(_view(20), knowledge, range(20))).mean())

    before = max(read(Likeliest, known), read(Random, known))
    assert min(read(Stereotypes, known), read(Stereotypes, granted), read(ChowLiu, granted)) > before + 0.03


def test_the_guess_is_the_same_for_all_victims_and_has_nothing_of_the_view() -> None:
    _, rows = _clusters(0)
    knowledge = _knowledge(_schema([4] * 6, numbers=1), rows, 5)
    guess = Stereotypes()(_view(3), knowledge, [1, 2, 3])
    other = Stereotypes()(_view(2, fill=float("nan")), replace(knowledge, labels=torch.ones(2, 5).double()), [7, 8])
    assert torch.equal(guess.cells[0], guess.cells[2])
    assert torch.equal(guess.cells[:2], other.cells)
    assert (guess.uncertainty, guess.labels, guess.loss) == (None, None, None)


def test_another_seed_draws_other_batches() -> None:
    data = load("german")
    knowledge = Knowledge(data.schema, data.statistics, 16)
    first, second = (Stereotypes(seed)(_view(1), knowledge, [0]).cells for seed in (0, 1))
    assert not torch.equal(first, second)


def _relabelled(schema: Schema, rows: Tensor) -> tuple[Schema, Tensor]:
    """Return the same rows with the categories of each column in reverse order."""
    columns = [
        column.model_copy(update={"categories": column.categories[::-1]}) if isinstance(column, Discrete) else column
        for column in schema.columns
    ]
    cells = torch.stack(
        [
            column.width - 1 - cell if isinstance(column, Discrete) else cell
            for column, cell in zip(schema.columns, rows.unbind(1), strict=True)
        ],
        1,
    )
    return schema.model_copy(update={"columns": tuple(columns)}), cells


@pytest.mark.parametrize("kind", [Stereotypes, ChowLiu])
def test_neither_the_order_of_rows_nor_that_of_categories_or_columns_matters(kind: type) -> None:
    centres, rows = _clusters(3)
    schema = _schema([4] * 6, numbers=1)
    wanted = {tuple(row) for row in centres.tolist()}

    def found(schema: Schema, rows: Tensor) -> Tensor:
        return kind()(_view(1), _knowledge(schema, rows, 4), [0]).cells[0]

    shuffled = rows[torch.randperm(len(rows), generator=torch.Generator().manual_seed(5))]
    assert {tuple(row) for row in found(schema, shuffled).tolist()} == wanted
    relabelled, cells = _relabelled(schema, rows)
    assert {tuple(row) for row in _relabelled(relabelled, found(relabelled, cells))[1].tolist()} == wanted
    turned = schema.model_copy(update={"columns": schema.columns[::-1]})
    assert {tuple(row) for row in found(turned, rows.flip(1)).flip(1).tolist()} == wanted


def _chain(rows: int, seed: int, width: int = 3) -> tuple[Tensor, list[tuple[int, int]]]:
    """Return rows along a planted tree in a shuffled order of columns, and its edges."""
    generator = torch.Generator().manual_seed(seed)
    above = [-1, 0, 1, 1, 0, 4, 4]
    cells = torch.empty(rows, len(above), dtype=torch.int64)
    for i, parent in enumerate(above):
        fresh = torch.randint(width, (rows,), generator=generator)
        kept = torch.rand(rows, generator=generator) < 0.8
        cells[:, i] = fresh if parent < 0 else torch.where(kept, cells[:, parent], fresh)
    order = torch.randperm(len(above), generator=generator)
    place = order.argsort().tolist()
    edges = [tuple(sorted((place[i], place[parent]))) for i, parent in enumerate(above) if parent >= 0]
    return cells[:, order], sorted(edges)


@pytest.mark.parametrize("seed", range(5))
def test_the_tree_has_the_edges_of_a_planted_one(seed: int) -> None:
    rows, edges = _chain(3_000, seed)
    parents = chow_liu_tree(rows)
    assert sorted(tuple(sorted((i, int(p)))) for i, p in enumerate(parents) if p >= 0) == edges


def test_a_column_with_many_levels_is_not_taken_for_one_that_tells_of_all_others() -> None:
    """By chance 60 levels seem to share 0.06 nats with three of 1,000 rows, more than the 0.04 of a true dependence."""
    generator = torch.Generator().manual_seed(0)
    first, other, many = (torch.randint(width, (1_000,), generator=generator) for width in (3, 3, 60))
    follows = torch.where(torch.rand(1_000, generator=generator) < 0.2, first, other)
    assert chow_liu_tree(torch.stack([first, follows, many], 1))[1] == 0


def test_drawn_rows_keep_each_edge_and_the_guess_profits() -> None:
    """Two columns that are always alike stay so, though no column's own shares tell of it."""
    generator = torch.Generator().manual_seed(0)
    first = torch.randint(8, (4_000, 3), generator=generator).double()
    rows = torch.cat([first, 7 - first], 1)
    knowledge = _knowledge(_schema([8] * 6), rows, 6)
    cells = ChowLiu()(_view(1), knowledge, [0]).cells[0]
    alike = (cells[:, 3:] == 7 - cells[:, :3]).double().mean()
    assert alike > 0.8
    alone = Stereotypes()(_view(1), replace(knowledge, auxiliary=None), [0]).cells[0]
    assert (alone[:, 3:] == 7 - alone[:, :3]).double().mean() < 0.5


def test_levels_are_quantiles_of_numbers_and_frequent_categories() -> None:
    cells = torch.stack([torch.arange(320).double() % 101, (torch.arange(320) % 64).double()], 1)
    schema = _schema([64], numbers=1)
    levels = levels_of(schema.model_copy(update={"columns": schema.columns[::-1]}), cells)
    assert levels[:, 0].unique().tolist() == list(range(16))
    assert torch.bincount(levels[:, 0]).max() <= 40
    assert levels[:, 1].unique().tolist() == list(range(32))


def test_without_public_rows_there_is_no_tree() -> None:
    data = load("german")
    with pytest.raises(BadInputError, match="needs auxiliary rows"):
        ChowLiu()(_view(1), Knowledge(data.schema, data.statistics, 8), [0])
    assert registry.baselines.of("horizontal")["chow_liu"].needs == ("auxiliary",)


RUBBISH = {
    "one row": lambda rows: rows[:1],
    "fewer rows than records": lambda rows: rows[:3],
    "no row": lambda rows: rows[:0],
    "missing cells": lambda rows: rows.index_fill(0, torch.arange(0, len(rows), 2), torch.nan),
    "missing everywhere": lambda rows: torch.full_like(rows, torch.nan),
    "all alike": lambda rows: rows[:1].repeat(50, 1),
}


@pytest.mark.parametrize("kind", RUBBISH)
@pytest.mark.parametrize("name", ["stereotypes", "chow_liu"])
def test_poor_public_rows_cost_little_beside_the_marginals(kind: str, name: str) -> None:
    _, rows = _clusters(1)
    known = _knowledge(_schema([4] * 6, numbers=1), rows, 8, public=False)
    granted = replace(known, auxiliary=RUBBISH[kind](rows))
    baseline = registry.baselines.of("horizontal").create(name)
    if name == "chow_liu" and kind == "no row":
        with pytest.raises(BadInputError, match="needs auxiliary rows"):
            baseline(_view(1), granted, [0])
        return
    cells = baseline(_view(10), granted, range(10)).cells
    assert cells.shape == (10, 8, 7)
    assert cells.isfinite().all()
    secret = rows[torch.randint(len(rows), (10, 8), generator=torch.Generator().manual_seed(2))]
    alone = _accuracy(known, secret, Stereotypes()(_view(10), known, range(10)))
    assert _accuracy(known, secret, RecordsGuess(cells)).mean() > alone.mean() - 0.06


@pytest.mark.long
@pytest.mark.parametrize("name", ["stereotypes", "chow_liu"])
def test_wide_tables_constant_columns_and_long_lists_of_categories(name: str) -> None:
    """300 columns, one of them with 10,000 categories, and constant ones; several records share a stereotype."""
    generator = torch.Generator().manual_seed(0)
    schema = _schema([10_000, 1, *([3] * 248)], numbers=50)
    rows = torch.cat(
        [
            torch.randint(10_000, (300, 1), generator=generator),
            torch.zeros(300, 1),
            torch.randint(3, (300, 248), generator=generator),
            torch.full((300, 50), 7),
        ],
        1,
    ).double()
    knowledge = _knowledge(schema, rows, 150)
    cells = registry.baselines.of("horizontal").create(name)(_view(1), knowledge, [0]).cells[0]
    assert cells.shape == (150, 300)
    assert (cells[:, 1] == 0).all()
    assert (cells[:, 250:] == 7).all()
    assert (cells[:, 0] >= 0).all()
    assert (cells[:, 0] < 10_000).all()


def test_more_records_than_stereotypes_share_them_evenly() -> None:
    _, rows = _clusters(2)
    knowledge = _knowledge(_schema([4] * 6, numbers=1), rows, 3_000)
    cells = Stereotypes()(_view(1), knowledge, [0]).cells[0]
    _, counts = cells.unique(dim=0, return_counts=True)
    assert cells.shape == (3_000, 7)
    assert len(counts) < 1_000


@pytest.mark.parametrize("setting", ["horizontal", "trees", "statistics"])
def test_they_are_registered_wherever_rows_are_guessed(setting: str) -> None:
    assert "stereotypes" in registry.baselines.of(setting).names()
