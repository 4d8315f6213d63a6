from __future__ import annotations

import pandas as pd
import pytest
import torch

from seepage.datasets import from_frame, load
from seepage.datasets.about import card_of
from seepage.datasets.planted import distinct, telling
from seepage.errors import BadInputError
from seepage.tabular.schema import Continuous, Discrete, Schema
from tests.datasets.parts import sizes
from tests.tables import twins, uniform


def test_synthetic_has_what_was_asked_for():
    data = load("synthetic", discrete=3, continuous=7, rows=1000, seed=5)
    assert (len(data.schema.discrete), len(data.schema.continuous)) == (3, 7)
    assert sizes(data) == (800, 200)
    assert all(2 <= data.schema.columns[i].width <= 6 for i in data.schema.discrete)
    assert data.all.labels.sum() == 500


def test_synthetic_is_class_conditional_within_the_published_ranges():
    data = load("synthetic", discrete=0, continuous=10, rows=40_000)
    for label in (0, 1):
        cells = data.all.cells[data.all.labels == label]
        mean, std = cells.mean(dim=0), cells.std(dim=0)
        assert ((mean > -0.1) & (mean < 5.1)).all()
        assert ((std > 0.95) & (std < 3.05)).all()
    means = [data.all.cells[data.all.labels == label].mean(dim=0) for label in (0, 1)]
    assert (means[0] - means[1]).abs().max() > 1


def test_synthetic_uses_every_domain_size():
    tables = [load("synthetic", discrete=10, continuous=0, rows=40, seed=seed) for seed in range(20)]
    sizes = {column.width for table in tables for column in table.schema.columns}
    assert sizes == {2, 3, 4, 5, 6}


@pytest.mark.parametrize("name", ["synthetic", "synthetic_highdim"])
def test_seeds_fix_everything(name):
    one, same, other = (load(name, rows=50, seed=seed) for seed in (1, 1, 2))
    assert one.schema == same.schema
    assert torch.equal(one.train.cells, same.train.cells)
    assert one.schema != other.schema


@pytest.mark.parametrize("name", ["synthetic", "synthetic_highdim"])
def test_the_card_describes_the_default(name):
    data, card = load(name), card_of(name)
    assert card is not None
    assert (len(data.all), len(data.schema.columns), data.schema.width) == (card.rows, card.columns, card.width)


@pytest.mark.parametrize(
    "options", [{"discrete": 0, "continuous": 0}, {"discrete": -1}, {"rows": 3}, {"test_share": 1.0}]
)
def test_synthetic_refuses(options):
    with pytest.raises(BadInputError):
        load("synthetic", **options)


def test_planted_tables_hold_what_they_promise():
    table = distinct(rows=20, seed=3).train
    assert all(len(column.unique()) == 20 for column in table.cells.T)
    table = twins(pairs=7, columns=3, seed=1).train
    unique, counts = table.cells.unique(dim=0, return_counts=True)
    assert len(unique) == 7
    assert (counts == 2).all()
    assert len(uniform(rows=9).train.cells.unique(dim=0)) == 1
    table = telling(rows=500, seed=2).train
    assert torch.equal(table.cells[:, 0], table.labels)
    for noise in table.cells[:, 1:].T:
        assert abs(torch.corrcoef(torch.stack([noise, table.labels]))[0, 1]) < 0.15


@pytest.mark.parametrize(
    ("make", "options"),
    [
        (distinct, {"rows": 1}),
        (distinct, {"continuous": 0, "discrete": 0}),
        (telling, {"rows": 1}),
    ],
)
def test_planted_tables_refuse(make, options):
    with pytest.raises(BadInputError, match="planted"):
        make(**options)


SCHEMA = Schema(
    columns=(
        Continuous(name="age", low=0, high=99, tolerance=5, integer=True),
        Discrete(name="zip", categories=("01", "02")),
    ),
    target=Discrete(name="ill", categories=("no", "yes")),
)
PEOPLE = pd.DataFrame({"age": range(10), "zip": ["01", "02"] * 5, "extra": 1, "ill": ["no", "yes"] * 5})


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz", ".parquet"])
def test_own_files(tmp_path, suffix):
    path = tmp_path / f"people{suffix}"
    PEOPLE.to_parquet(path) if suffix == ".parquet" else PEOPLE.to_csv(path, index=False)
    data = from_frame(path, SCHEMA, test_share=0.3, seed=1)
    assert (*sizes(data), data.source) == (7, 3, path.name)
    assert sorted(data.all.frame["age"]) == list(range(10))
    assert torch.equal(data.train.cells, from_frame(PEOPLE, SCHEMA, 0.3, 1).train.cells)


def test_own_data_without_a_test_part():
    data = from_frame(PEOPLE, SCHEMA, test_share=0.0, name="patients")
    assert data.test is None
    assert data.all is data.train
    assert (data.name, len(data.train)) == ("patients", 10)


def test_own_data_that_does_not_fit(tmp_path):
    with pytest.raises(BadInputError, match="'zip'"):
        from_frame(PEOPLE.drop(columns="zip"), SCHEMA)
    with pytest.raises(BadInputError, match="test_share"):
        from_frame(PEOPLE, SCHEMA, test_share=1.0)
    with pytest.raises(BadInputError):
        from_frame(tmp_path / "nowhere.csv", SCHEMA)
