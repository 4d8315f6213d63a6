"""One-hot encoded columns against the table that they were encoded from."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from seepage.datasets.dataset import own_table
from seepage.errors import BadInputError
from seepage.settings.horizontal.spec import HorizontalSpec
from seepage.settings.units import load_rows
from seepage.tabular.infer import Policy, infer
from seepage.tabular.one_hot import NONE_OF_THEM, one_hot_groups
from seepage.tabular.reading import FrameSource, open_table
from seepage.tabular.schema import Discrete, Schema

ROWS = 200


def people(rows: int = ROWS) -> pd.DataFrame:
    """Columns of categories, some with names that begin alike, beside a number and independent flags."""
    draw = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "age": draw.normal(40, 10, rows).round(1),
            "job": draw.choice(["cook", "nurse", "smith"], rows),
            "job_place": draw.choice(["at_home", "away"], rows),
            "PAY_0": draw.choice(["late", "on time", "never"], rows),
            "PAY_2": draw.choice(["late", "on time", "never"], rows),
            "has_car": draw.integers(0, 2, rows),
            "has_house": draw.integers(0, 2, rows),
            "income": draw.choice(["<=50K", ">50K"], rows),
        }
    )


CATEGORIES = ["job", "job_place", "PAY_0", "PAY_2", "income"]


def encoded(drop_first: bool = False, dtype: type = int) -> pd.DataFrame:
    return pd.get_dummies(people(), columns=CATEGORIES, drop_first=drop_first, dtype=dtype)


def written(frame: pd.DataFrame, folder: Path, suffix: str) -> Path:
    path = folder / f"people{suffix}"
    if suffix == ".parquet":
        frame.to_parquet(path)
    else:
        frame.to_csv(path, index=False)
    return path


@pytest.mark.parametrize("dtype", [int, bool, float])
@pytest.mark.parametrize("suffix", ["frame", ".csv", ".csv.gz", ".parquet"])
def test_the_table_that_was_encoded_comes_back(tmp_path: Path, suffix: str, dtype: type) -> None:
    frame = encoded(dtype=dtype)
    data, inferred = own_table(frame if suffix == "frame" else written(frame, tmp_path, suffix), target="income_>50K")
    assert inferred is not None
    assert [c.name for c in inferred.columns] == ["age", "has_car", "has_house", *CATEGORIES]
    assert data.schema.target.name == "income"
    for name in CATEGORIES:
        assert data.train.frame[name].tolist() == people()[name].tolist()
    assert data.train.frame["has_car"].tolist() == people()["has_car"].tolist()
    [note] = [note for note in data.notes if "one-hot" in note]
    assert "'job' (3 columns)" in note
    assert "'income' (2 columns)" in note


def test_a_first_category_that_was_left_out_is_one_of_its_own() -> None:
    data, _ = own_table(encoded(drop_first=True), target="income_>50K")
    # Of two categories one column is left, which is binary as it is.
    assert data.schema.target.name == "income_>50K"
    pay = data.schema.column("PAY_0")
    assert isinstance(pay, Discrete)
    assert set(pay.categories) == {"never", "on time", NONE_OF_THEM}
    expected = people()["PAY_0"].replace("late", NONE_OF_THEM)
    assert data.train.frame["PAY_0"].tolist() == expected.tolist()


def test_a_drafted_schema_fits_the_encoded_table_and_the_original_one(tmp_path: Path) -> None:
    schema = infer(encoded(), "income_>50K").schema
    (tmp_path / "schema.yaml").write_text(schema.to_yaml())
    loaded = Schema.load(tmp_path / "schema.yaml")
    merged, _ = own_table(encoded(), loaded)
    plain, _ = own_table(people(), loaded)
    assert torch.equal(merged.train.cells, plain.train.cells)
    assert torch.equal(merged.train.labels, plain.train.labels)
    first_left_out = infer(encoded(drop_first=True), "income_>50K").schema
    again, _ = own_table(encoded(drop_first=True), first_left_out)
    inferred, _ = own_table(encoded(drop_first=True), target="income_>50K")
    assert torch.equal(again.train.cells, inferred.train.cells)


def test_columns_stay_apart_where_they_are_asked_to() -> None:
    frame = encoded()
    kept = infer(frame, "income_>50K", Policy(keep_dummies=True))
    assert set(kept.schema.names) == set(frame.columns) - {"income_>50K"}
    assert kept.groups == ()
    named = infer(frame, "income_>50K", Policy(drop=("job_cook",), overrides={"PAY_0_late": {"kind": "discrete"}}))
    assert "PAY_0_late" in named.schema.names
    assert "job_cook" not in named.schema.names
    # Two of three are left of the job, and at most one is 1.
    assert "job" in named.schema.names
    sensitive = infer(frame, "income_>50K", Policy(sensitive=("job_nurse",)))
    assert sensitive.schema.column("job").sensitive


@pytest.mark.parametrize(
    "columns",
    [
        pytest.param({"is_old": [0, 1, 1, 0], "is_ill": [1, 1, 0, 0]}, id="two 1s in a row"),
        pytest.param({"is_old": [0, 1, 0, 0] * 5, "is_ill": [1, 0, 0, 0] * 5}, id="too few rows to tell"),
        pytest.param({"is_old": [0, 1, 2, 0], "is_ill": [1, 0, 0, 1]}, id="a 2"),
        pytest.param({"is_old": [0, 1, None, 0], "is_ill": [1, 0, 1, 1]}, id="a missing cell"),
        pytest.param({"old": [0, 1], "ill": [1, 0]}, id="no common beginning"),
        pytest.param({"is": [3, 4], "is_old": [0, 1], "is_ill": [1, 0]}, id="the name is taken"),
        pytest.param({"_old": [0, 1], "_ill": [1, 0]}, id="nothing but a separator"),
        pytest.param({"is_old": ["0", "1"], "is_ill": ["1", "0"]}, id="texts"),
    ],
)
def test_what_is_no_group_stays(columns: dict[str, list[object]]) -> None:
    assert one_hot_groups(FrameSource(pd.DataFrame(columns))) == ()


@given(
    cells=st.lists(st.sampled_from(["a", "b", "c", "b_c"]), min_size=2, max_size=30),
    separator=st.sampled_from(["_", "=", ": ", ".", "__"]),
)
def test_any_column_comes_back(cells: list[str], separator: str) -> None:
    frame = pd.get_dummies(pd.DataFrame({"x": cells}), prefix_sep=separator, dtype=int)
    if len(frame.columns) < 2:
        return
    [group] = one_hot_groups(FrameSource(frame))
    assert group.rest is None
    assert group.merged(FrameSource(frame).columns(group.members)).tolist() == cells


def test_an_empty_category_is_kept_and_sources_are_opened_by_name(tmp_path: Path) -> None:
    frame = pd.DataFrame({"x_a": [1, 0, 1], "x_b": [0, 1, 0], "x_c": [0, 0, 0], "y": [1.5, 2.5, 3.5]})
    path = written(frame, tmp_path, ".csv")
    [group] = one_hot_groups(open_table(path))
    assert group.categories == ("a", "b", "c")
    schema = infer(path, "y").schema
    assert schema.columns[0] == Discrete(name="x", categories=("a", "b", "c"))


def test_a_column_of_the_target_still_selects_it_beside_a_drafted_schema(tmp_path: Path) -> None:
    path = written(encoded(), tmp_path, ".csv")
    (tmp_path / "schema.yaml").write_text(infer(path, "income_>50K").schema.to_yaml())
    for name in ("income", "income_>50K", "income_<=50K"):
        data, _ = load_rows(HorizontalSpec.of(data=path, schema_file=tmp_path / "schema.yaml", target=name))
        assert data.schema.target.name == "income"
    with pytest.raises(BadInputError, match="unknown target of the schema"):
        load_rows(HorizontalSpec.of(data=path, schema_file=tmp_path / "schema.yaml", target="job_cook"))
