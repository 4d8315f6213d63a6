"""A client's encoder, read from scikit-learn: it gives the very rows that the client's pipeline gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import MinMaxScaler, OneHotEncoder, OrdinalEncoder, StandardScaler
from torch import nn

import seepage
from seepage.errors import BadInputError
from seepage.tabular.client_encoder import ClientEncoder, EmbeddedInput, NumberInput, OneHotInput
from seepage.tabular.schema import Continuous, Discrete, Schema

FRAME = pd.DataFrame(
    {
        "age": [30.0, 50.0, 41.0, 17.0],
        "hours": [40, 20, 60, 38],
        "sex": ["f", "m", "m", "f"],
        "class": ["b", "a", "c", "a"],
        "gain": [0.0, 5.0, 0.0, 1.0],
    }
)
SCHEMA = Schema(
    columns=(
        Continuous(name="age", low=0, high=99, tolerance=3),
        Discrete(name="class", categories=("c", "b", "a")),
        Discrete(name="sex", categories=("f", "m")),
    ),
    target=Discrete(name="y", categories=(0, 1)),
)


def fitted(*parts: tuple[str, Any, Any], remainder: str = "drop") -> ColumnTransformer:
    return ColumnTransformer(list(parts), remainder=remainder, sparse_threshold=0).fit(FRAME)


@pytest.mark.parametrize(
    "transformer",
    [
        fitted(("n", StandardScaler(), ["age", "hours"]), ("c", OneHotEncoder(), ["sex", "class"])),
        fitted(("c", OneHotEncoder(), ["class"]), ("n", MinMaxScaler((-1, 1)), ["hours", "age"])),
        fitted(("n", StandardScaler(with_mean=False), [0]), ("c", OneHotEncoder(), [2]), remainder="drop"),
        fitted(("n", StandardScaler(with_std=False), slice(0, 2)), ("c", OneHotEncoder(), slice("sex", "class"))),
        fitted(("p", "passthrough", ["gain"]), ("d", "drop", ["age"]), ("c", OneHotEncoder(), ["sex"])),
        fitted(("c", OneHotEncoder(), ["sex", "class"]), remainder="passthrough"),
        fitted(("n", make_pipeline(SimpleImputer(), StandardScaler()), ["age"]), ("c", OneHotEncoder(), ["sex"])),
        fitted(("n", Pipeline([("i", SimpleImputer())]), ["age"])),
        fitted(("n", StandardScaler(), np.array([True, False, False, False, True]))),
        fitted(("n", StandardScaler(), lambda frame: ["gain", "age"])),
    ],
)
def test_a_declaration_gives_the_pipelines_own_rows(transformer: ColumnTransformer) -> None:
    encoder = seepage.capture(encoder=transformer)
    rows = np.asarray(transformer.transform(FRAME))
    assert encoder.width == rows.shape[1]
    encoder.check_rows(FRAME, rows)
    with pytest.raises(BadInputError, match=f"column {encoder.columns[-1].name!r} enters the network otherwise"):
        encoder.check_rows(FRAME, np.concatenate([rows[:, :-1], rows[:, -1:] + 0.01], 1))


def test_a_declaration_is_written_and_read_back(tmp_path: Path) -> None:
    encoder = seepage.capture(tmp_path / "encoder.json", encoder=fitted(("c", OneHotEncoder(), ["sex", "class"])))
    assert ClientEncoder.load(tmp_path / "encoder.json") == encoder
    with pytest.raises(BadInputError, match="cannot be read"):
        ClientEncoder.load(tmp_path / "none.json")


def marked(then: Any) -> ColumnTransformer:
    """Fit a pipeline that marks missing cells in columns of their own."""
    pipeline = Pipeline([("i", SimpleImputer(add_indicator=True)), ("s", then)])
    frame = FRAME.assign(gain=[0.0, 5.0, np.nan, 1.0])
    return ColumnTransformer([("n", pipeline, ["gain", "age"])]).fit(frame)


weighted = ColumnTransformer([("n", StandardScaler(), ["age"])], transformer_weights={"n": 2.0}).fit(FRAME)


@pytest.mark.parametrize(
    ("transformer", "message"),
    [
        (fitted(("c", OneHotEncoder(drop="first"), ["sex"])), "drop=None"),
        (fitted(("c", OneHotEncoder(min_frequency=2), ["class"])), "without min_frequency"),
        (fitted(("o", OrdinalEncoder(), ["class"])), "go through OrdinalEncoder"),
        (fitted(("n", make_pipeline(StandardScaler(), MinMaxScaler()), ["age"])), "go through Pipeline"),
        (fitted(("n", MinMaxScaler(clip=True), ["age"])), "clip=True"),
        (marked(StandardScaler()), r"the SimpleImputer of 'gain', 'age' adds"),
        (marked("passthrough"), "add_indicator=False"),
        (weighted, "multiplies its part 'n' by a weight"),
        (fitted(("a", StandardScaler(), ["age"]), ("b", MinMaxScaler(), ["age"])), "takes a column twice"),
        (fitted(("d", "drop", ["age"])), "lets no column into the network"),
        (ColumnTransformer([("n", StandardScaler(), ["age"])]), "is not fitted"),
        (
            ColumnTransformer([("n", StandardScaler(), [0])]).fit(FRAME.to_numpy()[:, :1]),
            "is not fitted on a DataFrame",
        ),
    ],
)
def test_what_no_declaration_says_is_refused(transformer: ColumnTransformer, message: str) -> None:
    with pytest.raises(BadInputError, match=message) as raised:
        seepage.capture(encoder=transformer)
    assert "np.str_" not in str(raised.value)


AGE = NumberInput(name="age")
SEX = OneHotInput(name="sex", categories=("m", "f"))
CLASS = EmbeddedInput(name="class", categories=("a", "b", "c"))


def test_a_schema_is_brought_into_the_encoders_order() -> None:
    arranged = ClientEncoder(columns=(SEX, CLASS, AGE)).arranged(SCHEMA)
    assert arranged.names == ("sex", "class", "age")
    assert [getattr(column, "categories", None) for column in arranged.columns] == [("m", "f"), ("a", "b", "c"), None]
    assert arranged.target == SCHEMA.target


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ((AGE, SEX), "the client's encoder has no column 'class'"),
        ((AGE, SEX, CLASS, NumberInput(name="gain")), "the schema has no column 'gain'"),
        (
            (NumberInput(name="sex"), AGE, CLASS),
            "'sex' holds categories in the schema and enters the network as number",
        ),
        ((AGE, SEX, OneHotInput(name="class", categories=("a", "b"))), "2 categories in the client's encoder and 3"),
    ],
)
def test_a_schema_of_other_columns_is_refused(columns: Any, message: str) -> None:
    with pytest.raises(BadInputError, match=message):
        ClientEncoder(columns=columns).arranged(SCHEMA)


def test_the_width_is_compared_with_the_networks_inputs() -> None:
    encoder = ClientEncoder(columns=(AGE, SEX, CLASS))
    encoder.check_inputs(nn.Sequential(nn.Linear(6, 9), nn.Linear(9, 2)), "mine")
    encoder.check_inputs(nn.Embedding(5, 2), "mine")
    with pytest.raises(
        BadInputError, match=r"6 entries \(age 1, sex 2, class 3\), the first layer of model 'mine' takes 7"
    ):
        encoder.check_inputs(nn.Sequential(nn.Linear(7, 9), nn.Linear(9, 2)), "mine")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "text: Invalid JSON"),
        ('{"columns": [{"kind": "number", "name": "a", "scale": 0}]}', "greater than 0"),
        ('{"columns": [{"kind": "one_hot", "name": "a", "categories": ["x"], "mean": [1, 2]}]}', "2 numbers for 1 cat"),
        ('{"columns": [{"kind": "number", "name": "a"}, {"kind": "number", "name": "a"}]}', "declared once, got 'a'"),
        ('{"columns": [{"kind": "hash", "name": "a"}]}', "'hash'"),
    ],
)
def test_declarations_that_make_no_sense_are_refused(text: str, message: str) -> None:
    with pytest.raises(BadInputError, match=message):
        ClientEncoder.from_json(text)
