from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from seepage.datasets import Dataset, load
from seepage.datasets.marked import marked, with_synthetic
from seepage.errors import BadInputError
from seepage.tabular.schema import Continuous, Discrete, Schema
from seepage.tabular.table import Table

ADULT = load("adult_education")


def small(target: Discrete | Continuous | None = None) -> Dataset:
    frame = pd.DataFrame(
        {
            "job": ["cook", "nurse", "cook", "smith"],
            "sex": ["f", "m", "m", "m"],
            "age": [20.0, 30.0, 40.0, 90.0],
            "same": [1.0, 1.0, 1.0, 1.0],
            "ill": ["no", "yes", "no", "yes"],
        }
    )
    schema = Schema(
        columns=(
            Discrete(name="job", categories=("cook", "nurse", "smith")),
            Discrete(name="sex", categories=("f", "m")),
            Continuous(name="age", low=0, high=99, tolerance=5),
            Continuous(name="same", low=0, high=1, tolerance=0),
        ),
        target=target or Discrete(name="ill", categories=("no", "yes")),
    )
    if target is not None:
        frame["ill"] = [1.0, 2.0, 3.0, 4.0]
    return Dataset("small", Table(schema, frame), None, (), "made up", "none")


def test_adult_is_the_papers() -> None:
    assert (len(ADULT.train), len(ADULT.schema.columns), ADULT.test) == (32_561, 12, None)
    assert {"fnlwgt", "education", "education-num"}.isdisjoint(ADULT.schema.names)
    assert "income" in ADULT.schema.names
    original = load("adult", missing="category").train.frame
    expected = pd.cut(
        original["education-num"].astype(float), [0, 4, 8, 12, 16], labels=["1-4", "5-8", "9-12", "13-16"]
    )
    assert (ADULT.train.frame["education-level"] == expected.astype(object)).all()
    levels = load("adult_education", classes=16).train
    assert torch.equal(levels.labels + 1, torch.from_numpy(original["education-num"].to_numpy(dtype=float)))
    with pytest.raises(BadInputError, match="classes=3"):
        load("adult_education", classes=3)


def test_categories_are_zero_and_one_and_numbers_standardised() -> None:
    rows = marked(small(), "sex")
    assert rows.carries.tolist() == [True, False, False, False]
    assert rows.labels.tolist() == [0, 1, 0, 1]
    assert rows.inputs[:, :5].tolist() == [[1, 0, 0, 1, 0], [0, 1, 0, 0, 1], [1, 0, 0, 0, 1], [0, 0, 1, 0, 1]]
    age = np.array([20.0, 30.0, 40.0, 90.0])
    np.testing.assert_allclose(rows.inputs[:, 5].numpy(), (age - age.mean()) / age.std(ddof=1), rtol=1e-6)
    assert rows.inputs[:, 6].tolist() == [0, 0, 0, 0]
    assert marked(small(), "sex", keep=False).inputs.shape[1] == 5
    assert marked(small(), "sex", keep=False, without=["job", "same"]).inputs.shape[1] == 1
    assert marked(small(), "age").carries.tolist() == [False, False, True, True]
    assert marked(small(), "age", 80).carries.tolist() == [False, False, False, True]
    assert marked(small(), "job", "cook").carries.tolist() == [True, False, True, False]


def test_a_synthetic_attribute_moves_what_it_is_told_to() -> None:
    made = with_synthetic(ADULT, ["income", "age"], target=True, strength=0.6, seed=3)
    assert made.schema.names == (*ADULT.schema.names, "A")
    attribute = made.train.column(12).numpy()
    assert set(attribute.tolist()) == {0, 1, 2, 3, 4, 6, 7, 8, 9, 10}
    above = attribute > 5
    assert abs(above.mean() - 0.5) < 0.01
    before, after = ADULT.train, made.train
    for name, upper in (("income", 0.5), ("age", float(before.column(0).median()))):
        position = ADULT.schema.names.index(name)
        was, now = before.column(position).numpy() > upper, after.column(position).numpy() > upper
        assert now[above].mean() == pytest.approx(0.6 + 0.4 * was.mean(), abs=0.02)
        assert now[~above].mean() == pytest.approx(0.4 * was.mean(), abs=0.02)
    high = after.labels.numpy() >= 2
    assert high[above].mean() - high[~above].mean() == pytest.approx(0.6, abs=0.02)
    untouched = [i for i, name in enumerate(ADULT.schema.names) if name not in ("income", "age")]
    assert torch.equal(before.cells[:, untouched], after.cells[:, untouched])
    plain = with_synthetic(ADULT, target=False, seed=3)
    assert torch.equal(plain.train.cells[:, :12], before.cells)
    assert torch.equal(plain.train.labels, before.labels)


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda: marked(small(), "ill"), "is the target"),
        (lambda: marked(small(), "agee"), "did you mean 'age'"),
        (lambda: marked(small(), "sex", without=["jb"]), "did you mean 'job'"),
        (lambda: marked(small(), "job"), "3 categories; name the one"),
        (lambda: marked(small(), "job", "coke"), "category of 'job'"),
        (lambda: marked(small(), "same"), "one value"),
        (lambda: marked(small(), "age", 5), "4 of 4 rows carry"),
        (lambda: marked(small(), "age", "old"), "column of numbers"),
        (lambda: marked(small(), "sex", keep=False, without=["job", "age", "same"]), "no column is left"),
        (lambda: marked(small(Continuous(name="ill", low=0, high=9, tolerance=0)), "sex"), "chances of classes"),
        (lambda: with_synthetic(small(), ["jb"]), "did you mean 'job'"),
        (lambda: with_synthetic(small(), ["same"]), "no upper half"),
        (lambda: with_synthetic(small(), strength=2), "strength=2"),
        (lambda: with_synthetic(with_synthetic(small())), "already has a column 'A'"),
    ],
)
def test_what_has_no_attribute_is_refused(made, said: str) -> None:
    with pytest.raises(BadInputError, match=said):
        made()


def test_rows_held_out_for_a_test_belong_to_it() -> None:
    whole = small()
    halves = replace(whole, train=whole.train.rows([0, 1]), test=whole.train.rows([2, 3]))
    assert torch.equal(marked(halves, "sex").inputs, marked(whole, "sex").inputs)
