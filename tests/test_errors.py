"""Checks of options, called without the shape checks that stop a wrong type first."""

from __future__ import annotations

import inspect
from typing import Any, Literal

import pytest

from seepage.attacks.horizontal.matching.optimise import Schedule
from seepage.attacks.horizontal.matching.reconstruct import Select, Start
from seepage.errors import (
    BadInputError,
    Remedy,
    check_choice,
    check_count,
    nearest,
    non_negative,
    one_line,
    positive,
    unknown_name,
)
from seepage.tabular.relaxation import Logits


@pytest.mark.parametrize("value", [0, -1, 2.5, "3", True, None])
def test_a_count_is_a_whole_number_from_1_up(value: object) -> None:
    with pytest.raises(BadInputError, match="restarts is a whole number from 1 up, got restarts="):
        inspect.unwrap(check_count)("restarts", value)


def test_good_values_pass() -> None:
    check_count("restarts", 1)
    check_choice("select", "soft", Literal["projected", "soft"])


@pytest.mark.parametrize(
    ("kind", "value", "choices", "meant"),
    [
        ("select", "sfot", Select, "soft"),
        ("logits", "standardized", Logits, "standardised"),
        ("start", "Symmetric", Start, "symmetric"),
        ("schedule", "cosin", Schedule, "cosine"),
    ],
)
def test_a_misspelt_choice_is_named_with_the_one_meant(kind: str, value: str, choices: Any, meant: str) -> None:
    with pytest.raises(BadInputError, match=f"unknown {kind} '{value}'; did you mean '{meant}'"):
        check_choice(kind, value, choices)


def test_numbers_out_of_range_are_refused() -> None:
    with pytest.raises(BadInputError, match=r"share is a number above 0 and at most 1, got share=2\.$"):
        positive("share", 2, most=1.0)
    with pytest.raises(BadInputError, match=r"^noise is a number from 0 up, got noise=-1\.$"):
        non_negative("noise", -1)


def test_unknown_names_come_with_near_ones() -> None:
    wrong = unknown_name("dataset", "adlut", ["adult", "german"])
    assert str(wrong) == "unknown dataset 'adlut'; did you mean 'adult'? Known: adult, german."
    several = unknown_name("column", "age,job", ["age", "job", "sex"])
    assert str(several).endswith("'age,job'; these are 2 names: give each one by itself. Known: age, job, sex.")
    long = str(unknown_name("attribute", "sex", [f"word {number}" for number in range(1433)]))
    assert long.startswith("unknown attribute 'sex'. Known: word 0, word 1,")
    assert long.endswith(" and 1,403 more.")
    assert [nearest("0.wieght", ["0.weight", "0.bias"]), nearest("x", ["0.bias"])] == ["did you mean '0.weight'?", ""]


def test_errors_and_advice_are_worded() -> None:
    errors = [BadInputError("the file is empty."), MemoryError(), KeyError("a")]
    assert [one_line(error) for error in errors] == ["the file is empty.", "MemoryError", "KeyError: 'a'"]
    advice = [Remedy("missing", "category"), Remedy("drop", ["id"]), Remedy("data", placeholder="FILE")]
    assert [str(remedy) for remedy in advice] == ["missing='category'", "drop=['id']", "data=FILE"]
