"""Missing cells, identifiers and columns of very many categories: what becomes of them, and what is said."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seepage.datasets import own_table
from seepage.errors import BadInputError
from seepage.tabular.infer import Policy, infer, infer_schema, rounded_outwards
from seepage.tabular.schema import Continuous, Discrete, Schema
from seepage.tabular.table import Table

ROWS = 200
_GENERATOR = np.random.default_rng(3)
BASE = pd.DataFrame({"x": _GENERATOR.normal(size=ROWS), "ill": np.arange(ROWS) % 2})


def gaps(every: int) -> np.ndarray:
    return np.arange(ROWS) % every == 0


HOLES = BASE.assign(
    age=pd.Series(_GENERATOR.integers(18, 90, ROWS)).astype(float).mask(gaps(10)),
    job=pd.Series(_GENERATOR.choice(["cook", "nurse", "clerk"], ROWS)).mask(gaps(7)),
    smokes=pd.Series(_GENERATOR.choice([True, False], ROWS), dtype=object).mask(gaps(9)),
)


def test_missing_cells_are_all_named_at_once_and_the_ways_out_too() -> None:
    with pytest.raises(BadInputError) as caught:
        infer(HOLES, "ill")
    told = str(caught.value)
    assert "20 in 'age' (first in data row 1), 29 in 'job' (first in data row 1), 23 in 'smokes'" in told
    assert "missing='drop'" in told
    assert "missing='category'" in told
    filled = infer_schema(HOLES, "ill", missing="category", drop=["smokes"])
    bare = tuple(column.model_copy(update={"missing": None}) for column in filled.columns)
    with pytest.raises(BadInputError, match=r"20 in 'age'.* 29 in 'job'"):
        Table(filled.model_copy(update={"columns": bare}), HOLES)


def test_dropping_rows_leaves_the_table_of_the_complete_rows() -> None:
    complete = HOLES.dropna().infer_objects().reset_index(drop=True)
    data, inferred = own_table(HOLES, target="ill", policy=Policy(missing="drop"))
    assert inferred is not None
    assert inferred.schema == infer_schema(complete, "ill")
    assert data.train.cells.equal(Table(inferred.schema, complete).cells)
    assert any(f"{ROWS - len(complete)} of {ROWS} rows have missing cells and were dropped" in n for n in data.notes)


def test_missing_as_a_category_keeps_every_row() -> None:
    data, inferred = own_table(HOLES, target="ill", policy=Policy(missing="category"))
    assert inferred is not None
    schema, cells = inferred.schema, data.train.cells
    assert len(data.train) == ROWS
    age, job, smokes = schema.column("age"), schema.column("job"), schema.column("smokes")
    assert isinstance(age, Continuous)
    assert isinstance(job, Discrete)
    assert isinstance(smokes, Discrete)
    held = sorted(HOLES["age"].dropna())
    assert age.missing == held[(len(held) - 1) // 2]
    assert age.integer
    assert cells[gaps(10), schema.names.index("age")].unique().tolist() == [age.missing]
    assert job.categories == ("clerk", "cook", "nurse", "(missing)")
    assert cells[gaps(7), schema.names.index("job")].unique().tolist() == [3]
    assert smokes.categories == (False, True, "(missing)")
    assert (cells[gaps(9), schema.names.index("smokes")] == 2).all()
    first, second = (note for note in data.notes if "missing" in note)
    assert first.startswith(f"'age': {int(gaps(10).sum())} of {ROWS} cells are missing and filled with one number;")
    each = f"'job' {int(gaps(7).sum())}, 'smokes' {int(gaps(9).sum())}"
    assert second == f"missing cells of 2 columns are taken as a category of their own, of {ROWS} rows: {each}"
    # Written down and read back, the schema says the same about the same rows.
    again = Table(Schema.from_yaml(schema.to_yaml()), HOLES)
    assert again.cells.equal(cells)


def test_rows_without_a_target_cannot_be_learnt_from() -> None:
    frame = BASE.assign(ill=BASE["ill"].astype(float).mask(gaps(5)))
    data, _ = own_table(frame, target="ill", policy=Policy(missing="category"))
    assert len(data.train) == ROWS - gaps(5).sum()
    assert "missing" not in data.train.schema.to_yaml()
    with pytest.raises(BadInputError, match="missing cells: 40 in 'ill'"):
        own_table(frame, target="ill")


def test_dropping_rows_looks_at_the_columns_that_are_kept() -> None:
    frame = BASE.assign(
        name=pd.Series([f"person {i}" for i in range(ROWS)]).mask(gaps(2)),
        note=pd.Series(["a", "b"] * 100).mask(gaps(3)),
    )
    data, inferred = own_table(frame, target="ill", policy=Policy(missing="drop", drop=("note",)))
    assert inferred is not None
    assert inferred.schema.names == ("x",)
    assert len(data.train) == ROWS


def test_a_table_without_a_complete_row_says_so() -> None:
    frame = BASE.assign(a=np.where(gaps(2), 1.5, np.nan), b=np.where(gaps(2), np.nan, 2.5))
    frame.loc[:, "a"] += frame.index
    frame.loc[:, "b"] += frame.index
    with pytest.raises(BadInputError, match="at least two rows, this table has 0 without missing cells"):
        own_table(frame, target="ill", policy=Policy(missing="drop"))


def test_a_column_without_a_cell_is_left_out_with_a_word() -> None:
    inferred = infer(BASE.assign(empty=np.nan), "ill", Policy(missing="category"))
    assert inferred.schema.names == ("x",)
    assert "'empty' (it is empty)" in inferred.notes[0]


def test_a_column_s_own_word_on_missing_cells_counts_whatever_the_policy() -> None:
    overrides: dict[str, dict[str, Any]] = {
        "age": {"missing": 50},
        "job": {"categories": ["clerk", "cook", "nurse", "?"], "missing": "?"},
    }
    data, _ = own_table(HOLES, target="ill", policy=Policy(overrides=overrides, drop=("smokes",)))
    assert data.train.cells[0].tolist()[1:] == [50, 3]
    with pytest.raises(BadInputError, match="missing must be one of its categories"):
        infer(HOLES, "ill", Policy(overrides={"job": {"missing": "none"}}, drop=("smokes", "age")))
    with pytest.raises(BadInputError, match="missing must be a whole number from"):
        infer(HOLES, "ill", Policy(overrides={"age": {"missing": 20.5}}, drop=("smokes", "job")))


@pytest.mark.parametrize("tick", ["X", 1.0, 1.5, True])
def test_a_single_value_beside_missing_cells_is_a_category_beside_theirs(tick: object) -> None:
    frame = BASE.assign(ticked=pd.Series([tick] * ROWS, dtype=object).where(gaps(3)))
    inferred = infer(frame, "ill", Policy(missing="category"))
    column = inferred.schema.column("ticked")
    assert isinstance(column, Discrete)
    assert column.width == 2
    ticked = Table(inferred.schema, frame).cells[:, 1]
    assert (ticked == (0 if column.categories[0] == tick else 1)).tolist() == gaps(3).tolist()
    without = infer(frame, "ill")
    assert without.schema.names == ("x",)
    assert "one value only, beside missing cells, which can be a category" in without.notes[0]


def test_identifiers_are_left_out_with_a_word() -> None:
    frame = BASE.assign(name=[f"person {i}" for i in range(ROWS)], row=np.arange(ROWS) + 1000)
    data, inferred = own_table(frame, target="ill")
    assert inferred is not None
    assert [(one.name, one.taken) for one in inferred.columns] == [
        ("x", "continuous"),
        ("ill", "discrete"),
        ("name", "left out"),
        ("row", "left out"),
    ]
    [note] = data.notes
    assert note.startswith(
        "columns left out: 'name' (200 different values in 200 rows: an identifier or free text), 'row'"
    )
    assert "person" not in note
    with pytest.raises(BadInputError, match=r"'name' is sensitive, but 200 different values .* would be left out"):
        infer(frame, "ill", Policy(sensitive=("name",)))
    with pytest.raises(BadInputError, match="no column besides the target 'ill' is left: 'name': 200 diff"):
        infer(frame.drop(columns="x"), "ill")


def counts() -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(1, 9), min_size=25, max_size=60)


@pytest.mark.long
@given(counts(), st.integers(2, 30))
def test_the_most_frequent_categories_are_kept(frequencies: list[int], most: int) -> None:
    names = [f"v{i:02d}" for i in range(len(frequencies))]
    cells = [name for name, count in zip(names, frequencies, strict=True) for _ in range(count + 1)]
    frame = pd.DataFrame({"x": cells, "ill": [0, 1, *[0] * (len(cells) - 2)]})
    data, inferred = own_table(frame, target="ill", policy=Policy(most_categories=most))
    assert inferred is not None
    column = inferred.schema.column("x")
    assert isinstance(column, Discrete)
    if len(names) <= most:
        assert column.categories == tuple(names)
        assert column.other is None
        return
    assert column.width == most
    assert column.categories[-1] == column.other == "(other)"
    kept = set(column.categories[:-1])
    least = min(frequencies[names.index(str(name))] for name in kept) if kept else 10
    assert all(count <= least for name, count in zip(names, frequencies, strict=True) if name not in kept)
    shown = ["(other)" if name not in kept else name for name in cells]
    assert data.train.frame["x"].tolist() == shown
    assert any(f"{shown.count('(other)'):,} of {len(cells):,} cells are rare" in note for note in data.notes)


@pytest.mark.long
def test_a_wide_table_keeps_fewer_categories_of_each_column() -> None:
    generator = np.random.default_rng(0)
    many = {f"c{i}": [f"v{j}" for j in generator.integers(0, 60, 3000)] for i in range(20)}
    frame = pd.DataFrame(many | {"few": np.arange(3000) % 9, "ill": np.arange(3000) % 2})
    assert infer_schema(frame, "ill", most_encoded=5000).width == 20 * 60 + 9
    narrow = infer(frame, "ill", Policy(most_encoded=800))
    assert narrow.schema.width == 20 * 39 + 9
    assert narrow.notes == ()
    least = infer(frame, "ill", Policy(most_encoded=100))
    assert [column.width for column in least.schema.columns] == [20] * 20 + [9]
    assert "409 encoded columns, more than the 100 aimed at" in least.notes[-1]


def test_a_name_that_is_taken_is_bracketed_again() -> None:
    jobs = ["(other)"] * 50 + ["(missing)"] * 40 + [f"job {i % 25}" for i in range(100)] + [None] * 10
    column = infer(
        BASE.assign(job=pd.Series(jobs)), "ill", Policy(missing="category", most_categories=10)
    ).schema.column("job")
    assert isinstance(column, Discrete)
    assert (column.other, column.missing) == ("((other))", "((missing))")


def test_a_target_is_never_merged() -> None:
    frame = BASE.assign(place=[f"place {i % 60}" for i in range(ROWS)])
    with pytest.raises(BadInputError, match=r"the target 'place' has 60 different values; .* at most 50"):
        infer(frame, "place", Policy(most_categories=50))
    assert infer_schema(frame, "place").target.width == 60


@pytest.mark.long
def test_numbers_and_dates_that_are_written_as_text_are_read(tmp_path: Path) -> None:
    generator = np.random.default_rng(1)
    amounts = generator.integers(1_000, 9_999_999, ROWS)
    dates = [datetime.date(2001, 1, 1) + datetime.timedelta(days=int(d)) for d in generator.integers(0, 999, ROWS)]
    plain = BASE.assign(amount=amounts, day=pd.to_datetime(dates))
    written = BASE.assign(amount=[f"{a:,}" for a in amounts], day=[date.isoformat() for date in dates])
    schema = infer_schema(written, "ill")
    assert schema == infer_schema(plain, "ill")
    day = schema.column("day")
    assert isinstance(day, Continuous)
    assert (day.unit, day.integer) == ("days since 1970-01-01", True)
    earliest, latest = (float((day - datetime.date(1970, 1, 1)).days) for day in (min(dates), max(dates)))
    assert (day.low, day.high) == rounded_outwards(earliest, latest, whole=True)
    written.to_csv(tmp_path / "people.csv", index=False)
    plain.to_parquet(tmp_path / "people.parquet")
    for name in ("people.csv", "people.parquet"):
        assert infer_schema(tmp_path / name, "ill") == schema
        assert Table.read(tmp_path / name, schema).cells.equal(Table(schema, written).cells)
    for shifted in (plain.assign(day=plain["day"].dt.tz_localize("UTC")), plain.assign(day=dates)):
        assert Table(schema, shifted).cells.equal(Table(schema, plain).cells)


def test_codes_and_mixtures_are_not_taken_for_numbers() -> None:
    codes = [f"{i % 90:05d}" for i in range(ROWS)]
    zips = infer_schema(BASE.assign(zip=codes), "ill").column("zip")
    assert isinstance(zips, Discrete)
    decimals = [f"{i % 97},{i % 9}{'' if i % 4 else '55'}" for i in range(ROWS)]
    half = ["normal" if i % 10 == 0 else f"{i * 1.5}" for i in range(ROWS)]
    with pytest.raises(BadInputError, match=r"'half' holds numbers, but 20 of its cells \(1 diff.*\) are not numbers"):
        infer(BASE.assign(half=half), "ill")
    kept = infer_schema(BASE.assign(half=half), "ill", overrides={"half": {"kind": "discrete"}}).column("half")
    assert kept.width == 100
    # 12,5 can only be a decimal comma; beside 12.5 it can be nothing.
    read = Table(infer_schema(BASE.assign(decimal=decimals), "ill"), BASE.assign(decimal=decimals))
    assert read.frame["decimal"].tolist() == [float(text.replace(",", ".")) for text in decimals]
    mixed = [text.replace(",", ".") if i % 3 == 0 else text for i, text in enumerate(decimals)]
    with pytest.raises(BadInputError, match="'decimal' holds numbers with a decimal comma and others"):
        infer(BASE.assign(decimal=mixed), "ill")


def test_all_that_is_wrong_is_said_at_once() -> None:
    frame = HOLES.assign(when=pd.Series([datetime.time(i % 24) for i in range(ROWS)]), lists=pd.Series([[1]] * ROWS))
    with pytest.raises(BadInputError) as caught:
        infer(frame, "ill")
    told = str(caught.value)
    for part in ("3 things keep the table", "'when' holds time cells", "'lists' holds list objects", "'job'"):
        assert part in told
    schema = infer_schema(HOLES, "ill", missing="category")
    wrong = HOLES.assign(age=-1, job="judge")
    with pytest.raises(BadInputError, match=r"^2 things .*\(1\) column 'age' .*\(2\) column 'job' holds 200 cell"):
        Table(schema, wrong)


def test_policies_that_are_none_are_refused() -> None:
    with pytest.raises(BadInputError, match="from 2 up"):
        Policy(most_categories=1)
