"""Isolated clients against elimination in fractions over every subset."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seepage.errors import BadInputError
from seepage.participation import IsolatedGroup, Participation, isolated
from seepage.participation.row_space import RowSpace, reduced


def rank(rows: list[list[int]]) -> int:
    """Return the rank over the rationals, by elimination in fractions."""
    left = [[Fraction(x) for x in row] for row in rows]
    found = 0
    while left and left[0]:
        lead = next((row for row in left if row[0]), None)
        if lead is not None:
            found += 1
            left.remove(lead)
            left = [[x - row[0] / lead[0] * y for x, y in zip(row, lead, strict=True)] for row in left]
        left = [row[1:] for row in left]
    return found


def smallest_groups(rows: list[list[int]], below: int) -> set[tuple[int, ...]]:
    """Return the sets of columns with a row vector that is 0 elsewhere, smallest ones, by trying every set."""
    found: list[tuple[int, ...]] = []
    for size in range(1, below):
        for group in combinations(range(len(rows[0])), size):
            outside = [[x for i, x in enumerate(row) if i not in group] for row in rows]
            if rank(outside) < rank(rows) and not any(set(of) < set(group) for of in found):
                found.append(group)
    return set(found)


def table(rows: list[list[int]]) -> Participation:
    rounds, clients = [f"r{i}" for i in range(len(rows))], [f"c{i}" for i in range(len(rows[0]))]
    return Participation(rounds, clients, rows)


def check(group: IsolatedGroup, participation: Participation) -> None:
    """Multiply the combination out: it is the weighted sum of the group, and no other client is in it."""
    rows = dict(zip(participation.rounds, participation.matrix.astype(int).tolist(), strict=True))
    weights = dict(zip(group.clients, group.weights, strict=True))
    for i, client in enumerate(participation.clients):
        assert sum(share * rows[of][i] for of, share in group.combination) == weights.get(client, 0)


def check_earliest(group: IsolatedGroup, participation: Participation) -> None:
    """The rounds before the last one of the combination do not isolate the group."""
    weights = dict(zip(group.clients, group.weights, strict=True))
    before = participation.matrix[: participation.rounds.index(group.since)].astype(int).tolist()
    vector = [weights.get(client, 0) for client in participation.clients]
    assert not before or rank([*before, vector]) > rank(before)


matrices = st.integers(2, 7).flatmap(
    lambda width: st.lists(st.lists(st.integers(0, 1), min_size=width, max_size=width), min_size=1, max_size=6)
)


@given(matrices, st.integers(2, 6))
def test_groups_are_those_of_every_subset(rows: list[list[int]], below: int) -> None:
    """Every smallest group is found, and no other; coefficients multiply out."""
    found = isolated(table(rows), below)
    assert found.complete
    assert found.rank == rank(rows)
    assert not found.further
    for group in found.groups:
        check(group, table(rows))
        check_earliest(group, table(rows))
    places = {tuple(int(name[1:]) for name in group.clients) for group in found.groups}
    # Of clients that were always together every group holds all.
    assert places == smallest_groups(rows, below)


@given(matrices, st.randoms(use_true_random=False))
def test_the_order_of_rounds_and_clients_does_not_matter(rows: list[list[int]], random) -> None:
    """Shuffled rounds and clients isolate the same groups."""
    rounds, clients = [*range(len(rows))], [*range(len(rows[0]))]
    random.shuffle(rounds)
    random.shuffle(clients)
    shuffled = Participation(
        [f"r{i}" for i in rounds], [f"c{i}" for i in clients], [[rows[i][j] for j in clients] for i in rounds]
    )
    groups, others = (
        {frozenset(zip(g.clients, g.weights, strict=True)) if min(g.weights) > 0 else frozenset(g.clients) for g in of}
        for of in (isolated(table(rows)).groups, isolated(shuffled).groups)
    )
    assert groups == others


def test_one_patient_joins_between_two_runs() -> None:
    """The difference of two runs is the patient who joined; one who leaves too is told apart only by a third run."""
    joined = isolated(Participation(("jan", "feb"), ("a", "b", "c", "d"), [[1, 1, 1, 0], [1, 1, 1, 1]]), 2)
    assert [group.clients for group in joined.groups] == [("d",)]
    assert joined.groups[0].combination == (("jan", Fraction(-1)), ("feb", Fraction(1)))
    assert joined.groups[0].noise == pytest.approx(2**0.5)
    assert joined.inseparable == (("a", "b", "c"),)
    swapped = isolated(Participation(("jan", "feb"), ("a", "b", "c", "d"), [[1, 1, 1, 0], [0, 1, 1, 1]]), 3)
    assert [(group.clients, group.weights) for group in swapped.groups] == [(("a", "d"), (1, -1))]


def test_a_known_client_is_subtracted() -> None:
    """Of two clients in every round one is isolated where the other colludes."""
    pair = Participation(("1", "2"), ("a", "b", "c"), [[1, 1, 0], [0, 0, 1]])
    assert [group.clients for group in isolated(pair, 2).groups] == [("c",)]
    assert [group.clients for group in isolated(pair, 2, known=["a"]).groups] == [("b",), ("c",)]


def test_a_planted_client_is_found_among_hundreds() -> None:
    """One client of 300 missing in one of two equal rounds is found, with just these rounds."""
    rows = np.random.default_rng(0).random((120, 300)) < 0.4
    rows[70], rows[70, 211] = rows[33], not rows[33, 211]
    found = isolated(table(rows.astype(int).tolist()), 3)
    assert [group.clients for group in found.groups] == [("c211",)]
    assert {of for of, _ in found.groups[0].combination} == {"r33", "r70"}
    assert found.complete


def test_what_is_not_searched_is_said() -> None:
    """Groups beyond the number of comparisons are left out and not called searched."""
    rows = np.random.default_rng(1).random((20, 40)) < 0.5
    found = isolated(table(rows.astype(int).tolist()), 5, most_compared=2_000)
    assert (found.searched, found.complete) == (3, False)
    assert isolated(table(rows.astype(int).tolist()), 5).complete


@pytest.mark.parametrize("size", [8, 40])
def test_dense_combinations_are_exact(size: int) -> None:
    """An invertible matrix isolates everybody; fractions of many digits multiply out."""
    rows = np.random.default_rng(6).random((size, size)) < 0.5
    assert rank(rows.astype(int).tolist()) == size
    participation = table(rows.astype(int).tolist())
    found = isolated(participation)
    assert len(found.groups) + found.further == size
    for group in found.groups:
        check(group, participation)


def test_a_prime_that_divides_a_minor_is_not_believed() -> None:
    """Modulo 2, 3 and 5 ranks fall; the next prime is taken until the dependent rows are so over the rationals."""
    rows = np.array([[1, 1, 0], [0, 1, 1], [1, 0, 1]])
    assert len(reduced(rows, 2)[1]) == 2
    space = RowSpace.__new__(RowSpace)
    space.matrix, space.prime = np.concatenate([rows, rows[:1]]), 2
    space._reduce()
    assert not space._spans_all()
    assert RowSpace(np.concatenate([rows, rows[:1]]).astype(bool)).rank == 3


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((("1",), ("a", "b"), [[1, 2]]), "participation is 0 or 1, got 2"),
        ((("1",), ("a", "a"), [[1, 1]]), "'a' twice"),
        ((("1", "2"), ("a",), [[1]]), "for each of 2 rounds"),
        (((), (), []), "at least one of both"),
    ],
)
def test_bad_tables_are_refused(arguments, said: str) -> None:
    with pytest.raises(BadInputError, match=said):
        Participation(*arguments)


def test_bad_arguments_are_refused() -> None:
    participation = table([[1, 0], [1, 1]])
    with pytest.raises(BadInputError, match="at least 2, got 1"):
        isolated(participation, 1)
    with pytest.raises(BadInputError, match="unknown client 'z'"):
        isolated(participation, known=["z"])
    with pytest.raises(BadInputError, match="every client's value is known already"):
        isolated(participation, known=["c0", "c1"])
