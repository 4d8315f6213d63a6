"""Bounds of the numbers of records of each pattern: sums of real rows, alternatives found by search, and forgeries."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch

from seepage import kernel
from seepage.attacks.statistics.solving import solve
from seepage.protocols.statistics import Newton, fit
from seepage.settings.statistics.design import coarse
from seepage.wire.statistics import NewtonMessage, rows_of, totals_of
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
    _, low, high = kernel.bounds(sent, random)
    assert bool(((low <= count) & (count <= high)).all())
    solved = solve(sent)
    _, low, high = kernel.bounds(sent, torch.from_numpy(solved.multipliers))
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
    _, low, high = kernel.bounds(sent, torch.from_numpy(solved.multipliers))
    assert bool((low.numpy() <= least).all())
    assert bool((high.numpy() >= greatest).all())


def test_forged_sums_numbers_and_multipliers_prove_nothing_false() -> None:
    codes, _, message = site(30, 3)
    sent = totals_of(message, SCHEMA)
    solved = solve(sent)
    multipliers, cells = torch.from_numpy(solved.multipliers), torch.from_numpy(codes).double()
    assert bool(kernel.certify_counts(sent, cells, multipliers).cells.all())
    wrong = cells.clone()
    wrong[0] = (wrong[0] + 1) % torch.tensor([3.0, 2.0, 2.0])
    proof = kernel.certify_counts(sent, wrong, multipliers)
    assert int(proof.cells.all(1).sum()) < 30
    assert kernel.certify_counts(sent, cells[:29], multipliers).doubt == "the guess has 29 records, not 30"
    assert kernel.certify_counts(sent, cells, multipliers[:, 1:]).doubt is not None
    assert "is no number" in str(kernel.certify_counts(sent, cells, multipliers * torch.nan).doubt)
    noisy = kernel.certify_counts(sent._replace(defense="noise"), cells, multipliers)
    assert "prove nothing" in str(noisy.doubt)
    another = sent._replace(records=31)
    assert kernel.certify_counts(another, torch.cat([cells, cells[:1]]), multipliers).doubt is not None


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
        patterns, low, high = kernel.bounds(sent, torch.from_numpy(solved.multipliers))
        count = numbers(patterns, codes)
        assert bool(((low <= count) & (count <= high)).all())
        certificates += int((low > 0).sum())
    assert (certificates > 0) == (rounded < 1e-1)
