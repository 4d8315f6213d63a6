from __future__ import annotations

import gzip
import io
import time

import pandas as pd
import pytest
import torch
from sklearn.model_selection import train_test_split

from seepage.datasets import load
from seepage.datasets.dataset import bundled, split
from seepage.errors import BadInputError
from seepage.tabular.encoder import Encoder
from seepage.tabular.schema import Continuous, Discrete
from tests.datasets.parts import categories, sizes


def test_adult_is_tableaks():
    data = load("adult")
    assert (*sizes(data), len(data.all)) == (30_162, 15_060, 45_222)
    assert data.schema.width == 105
    widths = {column.name: column.width for column in data.schema.columns if isinstance(column, Discrete)}
    assert list(widths.values()) == [8, 16, 7, 14, 6, 5, 2, 41]
    assert data.schema.names == (
        "age",
        "workclass",
        "fnlwgt",
        "education",
        "education-num",
        "marital-status",
        "occupation",
        "relationship",
        "race",
        "sex",
        "capital-gain",
        "capital-loss",
        "hours-per-week",
        "native-country",
    )
    assert categories(data.schema.target)[1] == "<=50K"
    assert data.all.labels.mean() == pytest.approx(0.7522, abs=1e-4)


def test_adult_tolerances_and_bounds():
    data = load("adult")
    columns = {column.name: column for column in data.schema.columns if isinstance(column, Continuous)}
    published = {
        "age": 4.2,
        "fnlwgt": 33_699,
        "education-num": 0.8,
        "capital-gain": 2395,
        "capital-loss": 129,
        "hours-per-week": 3.8,
    }
    assert list(columns) == list(published)
    for name, value in published.items():
        digits = 1 if value < 10 else 0
        assert round(columns[name].tolerance, digits) == value
        whole = data.all.frame[name].astype(float)
        assert columns[name].tolerance == pytest.approx(0.319 * whole.std(), rel=1e-12)
        assert (columns[name].low, columns[name].high) == (whole.min(), whole.max())
    assert (columns["age"].low, columns["age"].high) == (17, 90)


def test_adult_keeps_the_official_order():
    data = load("adult")
    first = data.train.frame.iloc[0]
    assert (first["age"], first["workclass"], first["fnlwgt"]) == (39, "State-gov", 77_516)
    assert data.test is not None
    held_out = data.test.frame.iloc[0]
    assert (held_out["fnlwgt"], held_out["income"]) == (226_802, "<=50K")


def test_adult_with_missing_as_a_category():
    data = load("adult", missing="category")
    assert sizes(data) == (32_561, 16_281)
    assert data.schema.width == 108
    missing = {name for name in data.schema.names if (data.all.frame[name] == "?").any()}
    assert missing == {"workclass", "occupation", "native-country"}
    assert len(load("adult").all) == (~(data.all.frame == "?").any(axis=1)).sum()


def test_german_is_tableaks():
    data = load("german")
    assert sizes(data) == (800, 200)
    assert data.schema.width == 63
    assert (len(data.schema.discrete), len(data.schema.continuous)) == (13, 7)
    assert categories(data.schema.target) == ("good", "bad")
    assert data.all.labels.sum() == 300
    unseen = [
        category
        for i in data.schema.discrete
        for category in categories(data.schema.columns[i])
        if not (data.all.frame[data.schema.names[i]] == category).any()
    ]
    assert unseen == ["vacation", "female, single"]


@pytest.mark.parametrize("rows", [5, 97, 1000])
@pytest.mark.parametrize("share", [0.2, 0.25, 0.5])
@pytest.mark.parametrize("seed", [0, 42])
def test_split_is_that_of_scikit_learn(rows, share, seed):
    table = load("german").all.rows(list(range(rows)))
    train, test = split(table, share, seed)
    expected_train, expected_test = train_test_split(range(rows), test_size=share, random_state=seed)
    assert torch.equal(train.cells, table.cells[expected_train])
    assert torch.equal(test.cells, table.cells[expected_test])


@pytest.mark.parametrize("share", [0.0, 1.0, -0.1, 1.5, 0.9999])
def test_split_refuses_shares_that_leave_nothing(share):
    with pytest.raises(BadInputError, match="share"):
        split(load("german").all, share, 0)


@pytest.mark.parametrize("name", ["adult", "german"])
def test_encoding_round_trip(name):
    data = load(name)
    encoder = Encoder(data.schema, data.statistics)
    rows = data.train.rows(list(range(500)))
    assert torch.equal(encoder.decode(encoder.encode(rows.cells)), rows.cells)
    whole = encoder.encode(data.all.cells)
    assert torch.allclose(whole.mean(dim=0), torch.zeros(data.schema.width, dtype=whole.dtype), atol=1e-9)


def test_adult_loads_fast():
    load("adult")
    start = time.process_time()
    load("adult")
    assert time.process_time() - start < 1


def test_bundled_rows_are_the_published_ones(real):
    parts = []
    for part, file in (("train", "adult.data.gz"), ("test", "adult.test.gz")):
        text = gzip.decompress((real(file) / file).read_bytes()).decode()
        lines = [line.rstrip(".").split(", ") for line in text.splitlines() if line.count(",") == 14]
        parts += [[*line, part] for line in lines]
    kept = bundled("adult")
    assert len(parts) == len(kept) == 48_842
    assert kept.astype(object).where(kept.notna(), "?").astype(str).to_numpy().tolist() == parts
    text = gzip.decompress((real("german.data.gz") / "german.data.gz").read_bytes()).decode()
    expected = pd.read_csv(io.StringIO(text), sep=" ", header=None)
    assert (bundled("german").to_numpy() == expected.to_numpy()).all()


def test_a_folder_is_of_no_concern_to_bundled_data(tmp_path):
    assert len(load("german", tmp_path / "nowhere").all) == 1000


def test_unknown_names_and_options():
    with pytest.raises(BadInputError, match="did you mean 'adult'"):
        load("adlut")
    with pytest.raises(BadInputError, match="did you mean 'missing'"):
        load("adult", mising="drop")
    with pytest.raises(BadInputError, match="got 'zero'"):
        load("adult", missing="zero")
