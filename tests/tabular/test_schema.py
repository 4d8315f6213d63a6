from __future__ import annotations

import datetime
import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from seepage.errors import BadInputError
from seepage.tabular.schema import Continuous, Discrete, Schema

ILL = Discrete(name="ill", categories=("no", "yes"))
AGE = Continuous(name="age", low=0, high=99, tolerance=5, integer=True, unit="years")


@pytest.mark.parametrize(
    ("width", "category_counts", "continuous"),
    [
        pytest.param(105, (8, 16, 7, 14, 6, 5, 2, 41), 6, id="adult"),
        pytest.param(63, (4, 5, 11, 5, 5, 5, 3, 4, 3, 3, 4, 2, 2), 7, id="german"),
        pytest.param(39, (4, 2, 24, 5, 2), 2, id="law_school"),
        pytest.param(110, (46, 13, 18, 9, 10, 3), 11, id="health_heritage"),
    ],
)
def test_encoded_widths_are_the_published_ones(width: int, category_counts: tuple[int, ...], continuous: int) -> None:
    discrete = [Discrete(name=f"d{i}", categories=tuple(range(n))) for i, n in enumerate(category_counts)]
    numbers = [Continuous(name=f"c{i}", low=0, high=1, tolerance=0.1) for i in range(continuous)]
    schema = Schema(columns=(*numbers, *discrete), target=ILL)
    assert schema.width == width
    covered = [i for block in schema.blocks for i in range(block.start, block.stop)]
    assert covered == list(range(width))
    assert (len(schema.discrete), len(schema.continuous)) == (len(category_counts), continuous)


@pytest.mark.parametrize("low", [0.5, 2.0**49, -(2.0**49)])
def test_integer_bounds_are_whole_and_exactly_decodable(low: float) -> None:
    with pytest.raises(ValidationError, match=r"'x'.*whole numbers of at most 2\*\*48"):
        Continuous(name="x", low=low, high=2.0**50, tolerance=0, integer=True)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 1e301])
@pytest.mark.parametrize("field", ["low", "high", "tolerance"])
def test_bounds_and_tolerance_are_finite(field: str, bad: float) -> None:
    fields = {"low": 0.0, "high": 1.0, "tolerance": 0.0} | {field: bad}
    with pytest.raises(ValidationError, match=r"must be finite and at most 1e\+300|greater than or equal to 0"):
        Continuous(name="x", low=fields["low"], high=fields["high"], tolerance=fields["tolerance"])


def test_a_copy_with_other_columns_has_their_widths() -> None:
    schema = Schema(
        columns=(Discrete(name="a", categories=("x", "y")), Continuous(name="b", low=0, high=1, tolerance=0.1)),
        target=Discrete(name="t", categories=("no", "yes")),
    )
    assert (schema.width, schema.names, schema.blocks) == (3, ("a", "b"), (slice(0, 2), slice(2, 3)))
    shorter = schema.model_copy(update={"columns": schema.columns[1:]})
    assert (shorter.width, shorter.names, shorter.blocks, shorter.discrete) == (1, ("b",), (slice(0, 1),), ())
    same = schema.model_copy()
    assert (same, hash(same), same.model_dump(), repr(same)) == (
        schema,
        hash(schema),
        schema.model_dump(),
        repr(schema),
    )


def test_bounds_come_in_order_and_may_be_equal() -> None:
    with pytest.raises(ValidationError, match=r"'x': low 2\.0 is above high 1\.0; swap them"):
        Continuous(name="x", low=2, high=1, tolerance=0)
    assert Continuous(name="x", low=1, high=1, tolerance=0).width == 1


@pytest.mark.parametrize(
    ("categories", "message"),
    [
        ((), "at least one value"),
        (("a", "b", "a"), "'a' and 'a' are equal"),
        ((1, "x", 1.0), r"1 and 1\.0 are equal"),
        ((0, False), "0 and False are equal"),
        ((1.0, math.nan), "nan is not finite; give missing values a category of their own"),
        (("a", None), "None is of type NoneType"),
        ((datetime.date(2005, 1, 1),), r"2005, 1, 1\) is of type date, .*put it in quotes"),
    ],
)
def test_bad_categories_are_named(categories: tuple, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        Discrete(name="x", categories=categories)


def test_numpy_categories_become_plain_ones() -> None:
    categories: tuple[Any, ...] = (np.int64(3), np.float32(0.5), np.bool_(True), np.str_("a"))
    column = Discrete(name="x", categories=categories)
    assert [type(category) for category in column.categories] == [int, float, bool, str]
    assert column.categories == (3, 0.5, True, "a")


def test_names_are_unique_target_included() -> None:
    with pytest.raises(ValidationError, match=r"must be unique .*: age"):
        Schema(columns=(AGE,), target=AGE)


def test_a_column_is_found_by_name() -> None:
    schema = Schema(columns=(AGE,), target=ILL)
    assert (schema.column("age"), schema.column("ill")) == (AGE, ILL)
    with pytest.raises(BadInputError, match="unknown column 'agge'; did you mean 'age'"):
        schema.column("agge")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "schema: Input should be a valid dictionary"),
        ("columns: [", "not valid YAML: while parsing"),
        (
            "columns: []\ntarget: {kind: discrete, name: y, categories: [0, 1]}",
            "schema: a schema needs at least one column",
        ),
        ("columns: [{name: a}]\ntarget: {}", "columns.0: Unable to extract tag using discriminator 'kind'"),
        (
            "columns: [{kind: discrete, name: a, categories: [2005-01-01, 2006-01-01], colour: red}]\n"
            "target: {kind: discrete, name: y, categories: [0, 1]}",
            r"categories.0: datetime.date\(2005, 1, 1\) is of type date, .*colour: Extra inputs are not permitted",
        ),
        (
            "columns: [{kind: continuous, name: a, low: 5, high: 1, tolerance: 0}]\n"
            "target: {kind: discrete, name: y, categories: [0, 1]}",
            r"columns.0.continuous: column 'a': low 5.0 is above high 1.0; swap them\.$",
        ),
    ],
)
def test_yaml_that_is_no_schema_is_refused_in_one_paragraph(text: str, message: str) -> None:
    with pytest.raises(BadInputError, match=message) as caught:
        Schema.from_yaml(text)
    assert "\n" not in str(caught.value)


def test_yaml_is_readable_and_keeps_control_characters() -> None:
    schema = Schema(columns=(AGE,), target=Discrete(name="größe", categories=("groß", "no", "2005", "1e5")))
    assert "größe" in schema.to_yaml()
    assert Schema.from_yaml(schema.to_yaml()) == schema
    odd = Schema(columns=(AGE,), target=Discrete(name="a\x85b", categories=("\x85", "\u2028", "\r\n", "\0")))
    assert Schema.from_yaml(odd.to_yaml()) == odd


def test_a_schema_is_loaded_from_a_file(tmp_path: Path) -> None:
    schema = Schema(columns=(AGE,), target=ILL)
    path = tmp_path / "schema.yaml"
    path.write_text(schema.to_yaml(), encoding="utf-8")
    assert Schema.load(path) == schema
    with pytest.raises(BadInputError, match=r"missing\.yaml' cannot be read: .*No such file"):
        Schema.load(tmp_path / "missing.yaml")
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(BadInputError, match=r"cannot be read: .*UTF-8"):
        Schema.load(path)


@pytest.mark.long
@pytest.mark.parametrize(
    "text",
    [
        "[" * 10_000,
        "columns: " + "[" * 10_000 + "]" * 10_000,
        "a: " * 1 + "{a: " * 5_000 + "1" + "}" * 5_000,
        "a: 2020-99-99",
        "a: " + "1" * 5_000,
        "a: &a [x, x, x, x, x, x, x, x, x, x]\n"
        + "".join(f"{n}: &{n} [{', '.join([f'*{o}'] * 10)}]\n" for o, n in pairwise("abcdefgh"))
        + "columns: *h\n",
    ],
)
def test_texts_that_unfold_without_end_are_refused(text: str) -> None:
    with pytest.raises(
        BadInputError, match=r"the schema (is nested too deeply|is not valid YAML|unfolds to more than)"
    ):
        Schema.from_yaml(text)


def test_aliases_of_a_schema_are_read() -> None:
    text = (
        "columns:\n- &a {name: a, kind: discrete, categories: [x, y]}\n- {<<: *a, name: b}\ntarget: {<<: *a, name: c}"
    )
    assert [column.width for column in Schema.from_yaml(text).columns] == [2, 2]
