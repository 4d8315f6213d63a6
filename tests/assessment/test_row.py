"""The row of results, from values and back."""

from __future__ import annotations

import json
from dataclasses import FrozenInstanceError
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seepage.assessment.row import FIELDS, ResultRow, RowKind
from seepage.errors import FieldError
from tests.rows import row

FIGURES = st.none() | st.floats(allow_nan=False, allow_infinity=False)


def test_the_names_that_others_read_are_there_in_their_order() -> None:
    own = ("attack", "defense", "metric", "column", "mean", "low", "high")
    assert tuple(name for name in row().as_dict() if name in own) == own
    assert {"n", "baseline", "baseline_name", "lift", "batch_size", "seconds_per_victim", "is_attack"} < {*FIELDS}
    assert tuple(row().as_dict()) == FIELDS
    assert row().as_dict()["column"] is None


def test_a_row_stays_as_it_was_measured() -> None:
    with pytest.raises(FrozenInstanceError):
        row().mean = 1.0  # pyright: ignore[reportAttributeAccessIssue]


@given(
    FIGURES, FIGURES, FIGURES, st.sampled_from(["attack", "baseline", "about"]), st.none() | st.text(), st.integers(0)
)
def test_what_is_written_is_read_again(
    mean: float | None, low: float | None, lift: float | None, kind: RowKind, column: str | None, n: int
) -> None:
    fields: dict[str, Any] = {"mean": mean, "low": low, "lift": lift, "kind": kind, "column": column, "n": n}
    made = row(setting="split", batch_size=None, settings={"options": {"a": [1, None]}}, **fields)
    read = ResultRow.from_dict(json.loads(json.dumps(made.as_dict())))
    assert read == made
    assert read.as_dict() == made.as_dict()
    assert made.as_dict()["is_attack"] is (kind == "attack")


@pytest.mark.parametrize(
    ("attack", "is_attack", "kind"), [("unmix", True, "attack"), ("mode", False, "baseline"), ("none", False, "about")]
)
def test_rows_of_the_earlier_form_are_read(attack: str, is_attack: bool, kind: str) -> None:
    earlier = {**row(attack=attack).as_dict(), "is_attack": is_attack}
    del earlier["setting"], earlier["kind"]
    read = ResultRow.from_dict(earlier)
    assert (read.setting, read.kind, read.is_attack) == ("horizontal", kind, is_attack)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"mean": "much"}, "mean"),
        ({"high": float("inf")}, "high"),
        ({"n": 1.5}, "n"),
        ({"attack": None}, "attack"),
        ({"kind": "guess"}, "kind"),
        ({"settings": []}, "settings"),
    ],
)
def test_a_value_of_another_kind_is_refused_by_name(change: dict[str, Any], field: str) -> None:
    with pytest.raises(FieldError) as refused:
        ResultRow.from_dict({**row().as_dict(), **change})
    assert refused.value.path[0] == field
    assert repr(change[field]) in str(refused.value)


def test_a_missing_figure_is_no_figure_that_does_not_apply() -> None:
    held = row().as_dict()
    del held["mean"]
    with pytest.raises(FieldError, match="mean: the field is missing"):
        ResultRow.from_dict(held)
