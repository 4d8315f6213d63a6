from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seepage.datasets.planted import distinct
from seepage.errors import BadInputError
from seepage.tabular.partition import Partition, by_names, by_shares
from seepage.tabular.schema import Continuous, Discrete, Schema

SCHEMA = distinct(rows=8, continuous=3, discrete=5).schema


@settings(max_examples=40)
@given(st.integers(1, 9), st.integers(1, 9), st.integers(2, 4), st.none() | st.integers(0, 99))
def test_every_column_has_one_party_and_shares_hold_for_each_kind(
    continuous: int, discrete: int, parties: int, seed: int | None
) -> None:
    schema = distinct(rows=4, continuous=continuous, discrete=discrete).schema
    try:
        split = by_shares(schema, [1 / parties] * parties, seed)
    except BadInputError as error:
        assert "holds no column" in str(error)  # noqa: PT017
        assert continuous < parties
        assert discrete < parties
        return
    assert sorted(i for held in split.columns for i in held) == list(range(continuous + discrete))
    for held in split.columns:
        for kind in (schema.discrete, schema.continuous):
            assert abs(len(set(held) & set(kind)) - len(kind) / parties) <= 1


def test_the_active_party_takes_what_the_others_leave() -> None:
    split = by_names(SCHEMA, [(), ["discrete_1", "continuous_0"], ["discrete_0"]])
    assert split.schemas[1].names == ("continuous_0", "discrete_1")
    assert split.schemas[2].names == ("discrete_0",)
    assert len(split.schemas[0].names) == 5
    assert all(schema.target == SCHEMA.target for schema in split.schemas)


@pytest.mark.parametrize(
    ("parties", "message"),
    [
        ([["discrete_0"]], "at least two parties"),
        ([(), ["discrete_0"], ["discrete_0"]], "'discrete_0' is held 2 times, by parties 1 and 2"),
        ([["discrete_0"], ["discrete_1"]], "no party holds"),
        ([(), ["discrete_0"], []], "party 2 of 3 holds no column"),
        ([(), ["label"]], "labels are the active party's"),
        ([(), ["discrete_9"]], "did you mean"),
    ],
)
def test_parties_that_do_not_fit_the_columns_are_refused(parties: list[list[str]], message: str) -> None:
    with pytest.raises(BadInputError, match=re.escape(message)):
        by_names(SCHEMA, parties)


def test_an_active_party_may_hold_labels_alone() -> None:
    split = by_names(SCHEMA, [(), list(SCHEMA.names[:3]), list(SCHEMA.names[3:])])
    assert [schema.names for schema in split.schemas] == [(), SCHEMA.names[:3], SCHEMA.names[3:]]
    assert split.schemas[0].target == SCHEMA.target
    with pytest.raises(BadInputError, match="party 0 of 2 holds no column once"):
        by_shares(distinct(rows=4, continuous=0, discrete=1).schema, [0.3, 0.7])


@pytest.mark.parametrize("shares", [[0.5, 0.6], [1.0], [0.0, 1.0], [-0.5, 1.5], [True, 0.0]])
def test_shares_that_are_none_are_refused(shares: list[float]) -> None:
    with pytest.raises(BadInputError, match="sum to 1"):
        by_shares(SCHEMA, shares)


@pytest.mark.parametrize(("party", "message"), [(0, "attacker itself"), (2, "no party 2"), (-1, "no party -1")])
def test_a_target_is_a_passive_party(party: int, message: str) -> None:
    with pytest.raises(BadInputError, match=message):
        Partition(SCHEMA, ((0, 1, 2, 3), (4, 5, 6, 7))).check_target(party)


def test_a_column_of_either_kind_is_enough_for_two_parties() -> None:
    columns = (Discrete(name="ward", categories=("a", "b")), Continuous(name="age", low=0, high=9, tolerance=1))
    schema = Schema(columns=columns, target=Discrete(name="ill", categories=(0, 1)))
    parts = by_shares(schema, (0.5, 0.5)).columns
    assert sorted(place for part in parts for place in part) == [0, 1]
    assert all(len(part) == 1 for part in parts)
