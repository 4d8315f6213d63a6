"""What a system of whole numbers excludes does not exist: every result is held against listing all numbers."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seepage.errors import BadInputError
from seepage.solve import whole_numbers
from seepage.solve.whole_numbers import Elimination, WholeNumbers

FACTORS = st.sampled_from([-2.0, -1.0, -0.3, 0.0, 0.0, 0.1, 1.0, 1.0, 2.5])


@st.composite
def systems(draw: st.DrawFn, columns: int | None = None) -> WholeNumbers:
    """A few equations in up to four numbers; most have a solution, some have none."""
    unknowns, equations = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    matrix = np.array(draw(st.lists(FACTORS, min_size=unknowns * equations, max_size=unknowns * equations)))
    matrix = matrix.reshape(equations, unknowns)
    slack = np.array(draw(st.lists(st.sampled_from([0.0, 0.0, 1e-6, 0.4]), min_size=equations, max_size=equations)))
    shape = (unknowns,) if columns is None else (unknowns, columns)
    size = int(np.prod(shape))
    low = np.array(draw(st.lists(st.integers(-1, 1), min_size=size, max_size=size)), dtype=float).reshape(shape)
    span = np.array(draw(st.lists(st.integers(0, 3), min_size=size, max_size=size))).reshape(shape)
    share = np.array(draw(st.lists(st.floats(0, 1), min_size=size, max_size=size))).reshape(shape)
    values = matrix @ (low + np.rint(share * span)) + draw(st.sampled_from([0.0, 0.0, 0.0, 0.5]))
    return WholeNumbers(matrix, values, slack, low, low + span)


def listed(system: WholeNumbers) -> np.ndarray:
    """All numbers of a vector within its bounds that have the sums, by trying each; roundings are allowed for."""
    ranges = [range(int(a), int(b) + 1) for a, b in zip(system.low, system.high, strict=True)]
    combinations = list(itertools.product(*ranges))
    every = np.array(combinations, dtype=float).reshape(len(combinations), len(ranges))
    near = np.abs(every @ system.matrix.T - system.values) <= system.slack + 1e-9
    return every[near.all(1)]


def column(system: WholeNumbers, number: int) -> WholeNumbers:
    """The vector of one column."""
    values, low, high = (part[:, number] for part in (system.values, system.low, system.high))
    return WholeNumbers(system.matrix, values, system.slack, low, high)


def elimination_of(system: WholeNumbers) -> Elimination:
    """The inverse for all unknowns that are not sure."""
    return Elimination(system, np.flatnonzero(~system.sure.reshape(len(system.low), -1).all(1)))


def holds(before: WholeNumbers, after: WholeNumbers) -> None:
    """No solution was lost; what is sure is in all of them; without any solution nothing is claimed but that."""
    solutions = listed(before)
    assert ((after.low >= before.low) & (after.high <= before.high) & (after.low <= after.high)).all()
    if after.contradicted:
        assert not len(solutions)
    elif len(solutions):
        assert (solutions >= after.low).all()
        assert (solutions <= after.high).all()
        assert (solutions[:, after.sure] == after.low[after.sure]).all()


@given(systems())
def test_bounds_exclude_no_solution(system: WholeNumbers) -> None:
    holds(system, system.bounded())


@given(systems(), st.sampled_from([0, 1_000]))
def test_elimination_excludes_no_solution(system: WholeNumbers, decomposed: int) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(whole_numbers, "_DECOMPOSED", decomposed)
        holds(system, system.eliminated(elimination_of(system)))
        bounded = system.bounded()
        holds(system, bounded.eliminated(elimination_of(system)))
        holds(system, bounded.eliminated(elimination_of(bounded)))


@given(systems())
def test_a_complete_search_finds_every_solution_and_a_stopped_one_says_so(system: WholeNumbers) -> None:
    expected = listed(system)
    found = system.solutions()
    assert found.complete
    assert sorted(found.numbers.tolist()) == sorted(expected.tolist())
    assert all(system.fits(np.array(one, dtype=float)) for one in found.numbers.tolist())
    stopped = system.solutions(most=2)
    if stopped.complete:
        assert sorted(stopped.numbers.tolist()) == sorted(expected.tolist())
    else:
        assert not len(stopped.numbers)


@given(systems(columns=3))
def test_columns_are_searched_as_if_each_were_alone(system: WholeNumbers) -> None:
    groups = [(0,), list(range(len(system.matrix)))]
    after = system.searched(groups)
    each = [column(system, k) for k in range(3)]
    for k, before in enumerate(each):
        if len(listed(before)):
            holds(before, column(after, k))
    # One column without a solution is enough.
    assert not after.contradicted or not all(len(listed(one)) for one in each)
    assert (system.searched(groups, most=0).low == system.low).all()
    assert (system.searched(groups, most=0).high == system.high).all()


@given(systems(columns=3))
def test_columns_have_the_totals_of_rows(system: WholeNumbers) -> None:
    ranges = [listed(column(system, k)) for k in range(3)]
    tables = [np.stack(parts, 1) for parts in itertools.product(*ranges)]
    if not tables:
        return
    totals = tables[len(tables) // 2].sum(1)
    after = system.bounded(totals)
    assert not after.contradicted
    for table in tables:
        if (table.sum(1) == totals).all():
            assert ((table >= after.low) & (table <= after.high)).all()


@pytest.mark.parametrize("decomposed", [True, False])
@pytest.mark.parametrize("equations", [12, 60])
def test_estimates_are_those_of_the_pseudo_inverse(
    equations: int, decomposed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(whole_numbers, "_DECOMPOSED", 1_000 if decomposed else 0)
    rng = np.random.default_rng(equations)
    part = rng.normal(size=(equations, 30))
    # The first eight equations hold three numbers alone, which they determine; the last two numbers are alike.
    part[:8, 3:] = part[8:, :3] = 0
    part[:, 29] = part[:, 28]
    numbers = rng.integers(0, 2, (30, 5)).astype(float)
    most = np.broadcast_to(rng.integers(1, 4, 30)[:, None], (30, 5)).astype(float)
    system = WholeNumbers(part, part @ numbers, np.full(equations, 1e-6), np.zeros((30, 5)), most)
    elimination = elimination_of(system)
    np.testing.assert_allclose(
        elimination.estimate(system), np.linalg.pinv(part, rcond=1e-8) @ system.values, atol=1e-5
    )
    few = equations < 30
    assert elimination.determined.tolist() == [True] * 3 + [not few] * 25 + [False] * 2
    after = system.eliminated(elimination)
    assert after.sure[elimination.determined].all()
    assert ((after.low <= numbers) & (numbers <= after.high)).all()


def test_what_no_numbers_have_is_contradicted_by_each_of_the_three() -> None:
    twice = WholeNumbers(np.array([[2.0]]), np.array([[5.0]]), np.zeros(1), np.zeros((1, 1)), np.full((1, 1), 9.0))
    assert twice.bounded().contradicted
    assert twice.eliminated(elimination_of(twice)).contradicted
    assert twice.searched([[0]]).contradicted
    assert not replace(twice, values=np.array([[6.0]])).bounded().contradicted


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"values": np.zeros(3)}, r"values of 1 equations in 2 whole numbers has the shape \(3,\), not \(1,\)"),
        ({"low": np.zeros(1)}, r"low of .* has the shape \(1,\), not \(2,\)"),
        (
            {"high": np.array([1.0, np.inf])},
            "high of .* has an entry that is no finite number",
        ),
        ({"matrix": np.full((1, 2), np.nan)}, "matrix of .* no finite number"),
        ({"slack": np.array([-1.0])}, "or a slack below 0"),
        ({"matrix": np.zeros((0, 2)), "values": np.zeros(0), "slack": np.zeros(0)}, "no equation"),
    ],
)
def test_what_is_no_system_is_refused(changes: dict[str, np.ndarray], said: str) -> None:
    good = WholeNumbers(np.ones((1, 2)), np.ones(1), np.zeros(1), np.zeros(2), np.ones(2))
    with pytest.raises(BadInputError, match=said):
        replace(good, **changes)
