"""Bounds of the numbers of records of each pattern: sums of real rows, alternatives found by search, and forgeries."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from seepage import kernel
from seepage.attacks.statistics import solving
from seepage.attacks.statistics.risk_sets import RiskSets
from seepage.attacks.statistics.solving import solve
from seepage.captures.captured import attacker_statistics
from seepage.protocols.statistics import Newton, fit
from seepage.settings.statistics.design import coarse
from seepage.solve import directions, multipliers
from seepage.wire.statistics import (
    NewtonMessage,
    NewtonStep,
    RiskSetMessage,
    RiskSetView,
    RiskStep,
    StatisticsKnowledge,
    rows_of,
    totals_of,
)
from tests.settings.test_statistics import data

SCHEMA = coarse(data(), ["area", "ward", "smoker"], 4).schema


def site(rows: int, seed: int, widths: tuple[int, ...] = (3, 2, 2), family: Any = "binomial", **recipe: Any) -> Any:
    rng = np.random.default_rng(seed)
    codes = np.stack([rng.integers(0, width, 3 * rows) for width in widths], axis=1)
    levels = tuple(tuple(range(width)) for width in widths)
    x = rows_of(codes, levels)
    y = (rng.uniform(size=len(x)) < 1 / (1 + np.exp(-x @ rng.normal(0, 0.7, x.shape[1])))).astype(float)
    own = [(x[k * rows : (k + 1) * rows], y[k * rows : (k + 1) * rows]) for k in range(3)]
    steps = fit(Newton(family, **recipe), own).steps[0]
    return codes[:rows], y[:rows], NewtonMessage(family, levels, rows, steps)


def numbers(patterns: torch.Tensor, codes: np.ndarray) -> torch.Tensor:
    here = {tuple(p): i for i, p in enumerate(patterns.tolist())}
    count = torch.zeros(len(patterns), dtype=torch.float64)
    for code in codes.astype(int).tolist():
        count[here[tuple(code)]] += 1
    return count


@pytest.mark.parametrize("labels", [False, True])
@pytest.mark.parametrize(("start", "sends"), [("zero", "score"), ("outcome", "right"), ("zero", "right")])
@pytest.mark.parametrize("family", ["binomial", "poisson", "gaussian"])
def test_the_sums_of_real_rows_have_the_equations(family: str, start: str, sends: str, labels: bool) -> None:
    codes, y, message = site(40, 1, family=family, start=start, sends=sends)
    sent = totals_of(message, SCHEMA, labels)
    patterns, most = kernel.patterns_of(sent)
    system = kernel.equations(sent, patterns)
    count = numbers(patterns, np.concatenate([codes, y[:, None]], axis=1) if labels else codes)
    assert bool((count <= most).all())
    off = (system.matrix @ count - system.values).abs()
    assert bool((off <= system.slack).all())
    assert float((system.slack / (1 + system.values.abs())).max()) < 1e-9


def test_bounds_hold_for_any_multipliers_and_agree_where_the_equations_are_solved() -> None:
    codes, _, message = site(30, 2)
    sent = totals_of(message, SCHEMA)
    patterns, _ = kernel.patterns_of(sent)
    count = numbers(patterns, codes)
    equations = len(kernel.equations(sent, patterns).values)
    random = torch.randn(200, equations, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    _, low, high = kernel.bounds(sent, random, count)
    assert bool(((low <= count) & (count <= high)).all())
    solved = solve(sent)
    _, low, high = kernel.bounds(sent, *solved.evidence)
    assert bool((low == count).all())
    assert bool((high == count).all())


def test_a_number_is_proved_only_where_all_tables_with_the_sums_agree() -> None:
    # Cross tables of two columns of three leave single numbers open, which an exhaustive search shows.
    codes = np.array([[0, 0, 0], [0, 1, 1], [1, 0, 1], [1, 1, 0], [0, 0, 0], [2, 1, 1]])
    levels = ((0, 1, 2), (0, 1), (0, 1))
    steps = fit(Newton("gaussian", iterations=1), [(rows_of(codes, levels), np.arange(6.0))]).steps[0]
    sent = totals_of(NewtonMessage("gaussian", levels, 6, steps), SCHEMA)
    patterns, most = kernel.patterns_of(sent)
    system = kernel.equations(sent, patterns)
    fitting = [
        table
        for table in itertools.product(*(range(int(m) + 1) for m in most))
        if sum(table) == 6
        and bool(((system.matrix @ torch.tensor(table).double() - system.values).abs() <= system.slack).all())
    ]
    assert len(fitting) > 1
    least, greatest = np.min(fitting, axis=0), np.max(fitting, axis=0)
    solved = solve(sent)
    _, low, high = kernel.bounds(sent, *solved.evidence)
    assert bool((low.numpy() <= least).all())
    assert bool((high.numpy() >= greatest).all())
    # Branches prove all that the search shows to be settled.
    assert np.array_equal(low.numpy() == high.numpy(), least == greatest)


def test_forged_sums_numbers_and_multipliers_prove_nothing_false() -> None:
    codes, _, message = site(30, 3)
    sent = totals_of(message, SCHEMA)
    solved = solve(sent)
    cells = torch.from_numpy(codes).double()
    multipliers, witness, _ = solved.evidence
    assert bool(kernel.certify_counts(sent, cells, multipliers, witness).cells.all())
    wrong = cells.clone()
    wrong[0] = (wrong[0] + 1) % torch.tensor([3.0, 2.0, 2.0])
    proof = kernel.certify_counts(sent, wrong, multipliers, witness)
    assert int(proof.cells.all(1).sum()) < 30
    assert kernel.certify_counts(sent, cells[:29], multipliers, witness).doubt == "the guess has 29 records, not 30"
    assert kernel.certify_counts(sent, cells, multipliers[:, 1:], witness).doubt is not None
    assert "is no number" in str(kernel.certify_counts(sent, cells, multipliers * torch.nan, witness).doubt)
    noisy = kernel.certify_counts(sent._replace(defense="noise"), cells, multipliers, witness)
    assert "prove nothing" in str(noisy.doubt)
    another = sent._replace(records=31)
    assert kernel.certify_counts(another, torch.cat([cells, cells[:1]]), multipliers, witness).doubt is not None


@pytest.mark.parametrize("rounded", [0.0, 1e-3, 1e-1])
def test_no_certificate_is_false(rounded: float) -> None:
    certificates = 0
    for seed in range(12):
        codes, _, message = site(20 + 5 * seed, seed, widths=(3, 3, 2) if seed % 2 else (2, 4, 3))
        if rounded:
            rounded_steps = tuple(
                type(s)(
                    s.coefficients,
                    np.round(s.information / rounded) * rounded,
                    None if s.score is None else np.round(s.score / rounded) * rounded,
                )
                for s in message.steps
            )
            message = NewtonMessage("binomial", message.levels, message.records, rounded_steps, rounded)
        wide = coarse(data(), ["area", "ward", "smoker"], 4).schema
        sent = totals_of(message, wide)
        solved = solve(sent)
        if not solved.fits:
            continue
        patterns, low, high = kernel.bounds(sent, *solved.evidence)
        count = numbers(patterns, codes)
        assert bool(((low <= count) & (count <= high)).all())
        certificates += int((low > 0).sum())
    assert (certificates > 0) == (rounded < 1e-1)


@pytest.mark.parametrize("weight", [lambda mu, eta: mu * (1 - mu), lambda mu, eta: 1 / (2 + 2 * np.cosh(eta))])
def test_sums_far_out_have_the_equations_however_projects_write_the_weights(weight: Any) -> None:
    rng = np.random.default_rng(5)
    codes, levels = np.stack([rng.integers(0, 3, 50), rng.integers(0, 4, 50)], axis=1), ((0, 1, 2), (0, 1, 2, 3))
    x, y = rows_of(codes, levels), (rng.uniform(size=50) < 0.9).astype(float)
    steps = []
    for far in (0.0, 1.0, 8.0, -8.0, 15.0):
        coefficients = far * rng.uniform(0.5, 1, x.shape[1])
        eta = x @ coefficients
        mu = 1 / (1 + np.exp(-eta))
        held = np.clip(mu, 2.0**-52, 1 - 2.0**-52)
        deviance = float(-2 * (y * np.log(held) + (1 - y) * np.log(1 - held)).sum())
        steps.append(NewtonStep(coefficients, x.T @ (x * weight(mu, eta)[:, None]), x.T @ (y - mu), None, deviance))
    sent = totals_of(NewtonMessage("binomial", levels, 50, tuple(steps)), SCHEMA)
    patterns, _ = kernel.patterns_of(sent)
    assert kernel.equations(sent, patterns).fits(numbers(patterns, codes))


def test_residuals_that_weights_of_zero_take_with_them_are_counted() -> None:
    rng = np.random.default_rng(6)
    codes, levels = np.stack([rng.integers(0, 3, 50), rng.integers(0, 4, 50)], axis=1), ((0, 1, 2), (0, 1, 2, 3))
    x, y = rows_of(codes, levels), (rng.uniform(size=50) < 0.5).astype(float)
    steps = []
    for far in (0.0, 45.0, 1.0):
        coefficients = far * rng.uniform(0.5, 1, x.shape[1])
        eta = x @ coefficients
        mu = 1 / (1 + np.exp(-eta))
        weight = mu * (1 - mu)
        right = weight * (eta + np.divide(y - mu, weight, out=np.zeros(50), where=weight > 0))
        steps.append(NewtonStep(coefficients, x.T @ (x * weight[:, None]), None, x.T @ right))
    assert bool((weight > 0).all())
    sent = totals_of(NewtonMessage("binomial", levels, 50, tuple(steps)), SCHEMA)
    patterns, _ = kernel.patterns_of(sent)
    assert kernel.equations(sent, patterns).fits(numbers(patterns, codes))


def test_sums_that_are_not_as_declared_prove_nothing() -> None:
    codes, _, message = site(30, 2)
    sent = totals_of(message, SCHEMA)
    evidence = solve(sent).evidence
    patterns, low, _ = kernel.bounds(sent, *evidence)
    assert bool((low == numbers(patterns, codes)).all())
    step = sent.steps[2]
    assert step.information is not None
    altered = step.information.clone()
    altered[1, 3] = altered[3, 1] = altered[1, 3] * (1 + 1e-9)
    forged = sent._replace(steps=(*sent.steps[:2], step._replace(information=altered), *sent.steps[3:]))
    with pytest.raises(kernel.RefusedError, match="as they are declared"):
        kernel.bounds(forged, *evidence)
    # Means of 30 records are those of 60 as well, each twice.
    means = replace(message, steps=tuple(divided(step, 30) for step in message.steps), means=True)
    assert len(kernel.bounds(totals_of(means, SCHEMA), *evidence)) == 3
    twice = totals_of(replace(means, records=60), SCHEMA)
    with pytest.raises(kernel.RefusedError, match="fewer records than 60, such as those of 30"):
        kernel.bounds(twice, *solve(twice).evidence)


def test_entries_of_one_column_have_to_be_those_of_levels() -> None:
    # Only these differ where a design has all levels and no intercept, or other columns than declared.
    _, _, message = site(30, 2)
    sent = totals_of(replace(message, steps=message.steps[1:3]), SCHEMA)
    evidence = solve(sent).evidence
    kernel.bounds(sent, *evidence)
    information = sent.steps[0].information
    assert information is not None
    for i, j in ((1, 1), (1, 2)):
        altered = information.clone()
        altered[i, j] = altered[j, i] = altered[i, j] + 1e-9
        forged = sent._replace(steps=(sent.steps[0]._replace(information=altered), *sent.steps[1:]))
        with pytest.raises(kernel.RefusedError, match="not those of the levels of one column"):
            kernel.bounds(forged, *evidence)


@pytest.mark.parametrize(
    ("counts", "of_sums", "of_table"),
    [
        ([60, 25, 15], "multiples of 5", "multiples of 5"),
        # The first number is that of all less the others.
        ([2003, 1230, 27], "3 significant digits", None),
        ([2010, 1230, 29], None, "3 significant digits"),
        ([61, 25, 14], None, None),
        ([2000, 1230, 1771], None, None),
    ],
)
def test_counts_on_a_coarser_grid_than_declared_prove_nothing(
    counts: list[int], of_sums: str | None, of_table: str | None
) -> None:
    codes = np.repeat([[0], [1], [2]], counts, axis=0)
    rows = rows_of(codes, ((0, 1, 2),))
    message = NewtonMessage("gaussian", ((0, 1, 2),), len(codes), (NewtonStep(np.zeros(3), rows.T @ rows),))
    table = kernel.CountTable((0,), torch.tensor(counts).double())
    schema = coarse(data(), ["area"], 4).schema
    tables = totals_of(replace(message, steps=()), schema)._replace(tables=(table,))
    for sent, said in ((totals_of(message, schema), of_sums), (tables, of_table)):
        if said is None:
            _, low, high = kernel.bounds(sent, *solve(sent).evidence)
            assert low.tolist() == high.tolist() == counts
        else:
            with pytest.raises(kernel.RefusedError, match=said):
                kernel.bounds(sent, *solve(sent).evidence)


def leaving(kinds: list[list[int]], records: int, beta: list[float] | None = None) -> kernel.Certified:
    """What is proved where records leave one after the other, -1 before a record that joins."""
    coefficients = np.zeros(4) if beta is None else np.array(beta)
    signs = np.array([-1.0 if kind[0] < 0 else 1.0 for kind in kinds])
    codes = np.abs(np.array(kinds)) - 1
    rows = rows_of(codes, ((0, 1, 2), (0, 1), (0, 1)))
    weight = signs * np.exp(rows[:, 1:] @ coefficients)
    each = rows[:, :, None] * rows[:, None, :] * weight[:, None, None]
    sums = np.cumsum(each[::-1], axis=0)[::-1]
    times = np.arange(1.0, len(codes) + 1)
    message = RiskSetMessage(((0, 1, 2), (0, 1), (0, 1)), records, times, times, (RiskStep(coefficients, sums),))
    statistics, _ = attacker_statistics(SCHEMA, reference=None)
    guess = RiskSets()(RiskSetView((message,)), StatisticsKnowledge(SCHEMA, statistics, records), [0])
    assert guess.cells.shape[1] == records
    assert guess.proofs is not None
    assert guess.proofs[0].cells.shape == (records, 3)
    return guess.proofs[0]


def test_risk_sets_that_records_join_or_that_have_too_many_prove_nothing() -> None:
    left = [[1, 1, 1], [2, 2, 1], [3, 1, 2]]
    good = leaving(left, 4)
    assert good.cells.all(1).tolist() == [True, True, True, False]
    assert len(good.conditions) == 3
    joined = leaving([left[0], [-1, -2, -2], *left[1:]], 4)
    assert not bool(joined.cells.any())
    assert "no sum over records that leave" in str(joined.doubt)
    assert "3 records leave the risk sets, more than the 2" in str(leaving(left, 2).doubt)
    assert "no iteration is at coefficients of zero" in str(leaving(left, 4, [0.5, 0.0, 0.0, 0.0]).doubt)


def test_patterns_that_are_priced_out_are_excluded_by_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    codes, _, message = site(20, 4, widths=(4, 4, 3))
    sent = totals_of(message, coarse(data(), ["area", "ward", "smoker"], 4).schema)
    patterns, _ = kernel.patterns_of(sent)
    occupied = len({tuple(code) for code in codes.tolist()})
    assert len(patterns) > occupied
    for module in (directions, multipliers, solving):
        monkeypatch.setattr(module, "TOGETHER", occupied)
    monkeypatch.setattr(directions, "_FIRST", 8)
    monkeypatch.setattr(directions, "_ENTER", 4)
    solved = solve(sent)
    _, low, high = kernel.bounds(sent, *solved.evidence)
    assert bool((low == numbers(patterns, codes)).all())
    assert bool((high == low).all())
    monkeypatch.setattr(solving, "_TIMES", 1e9)
    with pytest.raises(kernel.RefusedError, match=r"need about .* s, and 20 s were given"):
        solve(sent)


def divided(step: NewtonStep, by: int) -> NewtonStep:
    assert step.score is not None
    deviance = None if step.deviance is None else step.deviance / by
    return replace(step, information=step.information / by, score=step.score / by, deviance=deviance)
