"""Checks of options, called without the shape checks that stop a wrong type first."""

from __future__ import annotations

import inspect
from typing import Any, Literal

import pytest

from seepage.attacks.horizontal.matching.optimise import Schedule
from seepage.attacks.horizontal.matching.reconstruct import Select, Start
from seepage.errors import BadInputError, check_choice, check_count
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
