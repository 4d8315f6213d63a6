from __future__ import annotations

from typing import Literal

import pandas as pd
import pytest
import torch

from seepage.tabular.encoder import Encoder
from seepage.tabular.relaxation import Relaxation
from seepage.tabular.schema import Continuous, Discrete, Schema
from seepage.tabular.statistics import Statistics
from seepage.tabular.table import Table
from tests.oracles.gradients import relaxed

SCHEMA = Schema(
    columns=(
        Discrete(name="job", categories=("cook", "nurse", "never")),
        Continuous(name="age", low=0, high=99, tolerance=5, integer=True),
        Discrete(name="only", categories=("one",)),
        Continuous(name="height", low=0.5, high=2.5, tolerance=0.1),
        Discrete(name="sex", categories=("f", "m")),
    ),
    target=Discrete(name="ill", categories=(False, True)),
)
FRAME = pd.DataFrame(
    {
        "job": ["cook", "nurse", "cook"],
        "age": [10, 20, 60],
        "only": ["one"] * 3,
        "height": [1, 1.5, 2],
        "sex": ["f", "m", "m"],
        "ill": [True, False, True],
    }
)
STATISTICS = Statistics.of(Table(SCHEMA, FRAME))
ENCODER = Encoder(SCHEMA, STATISTICS)
DISCRETE = [block for column, block in zip(SCHEMA.columns, SCHEMA.blocks, strict=True) if isinstance(column, Discrete)]

Logits = Literal["raw", "standardised"]
KINDS = [(a, b, c) for a in (True, False) for b in (True, False) for c in ("raw", "standardised")]


def normal(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return 3 * torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


@pytest.mark.parametrize("shape", [(), (4,), (2, 3, 4), (2, 0, 4)])
@pytest.mark.parametrize(("softmax", "sigmoid", "logits"), KINDS)
def test_rows_are_those_of_the_formulas(softmax: bool, sigmoid: bool, logits: Logits, shape: tuple[int, ...]) -> None:
    z = normal(*shape, ENCODER.width)
    relaxation = Relaxation(ENCODER, softmax, sigmoid, logits)
    expected = relaxed(SCHEMA, ENCODER.mean, ENCODER.std, z, softmax, sigmoid, logits == "standardised")
    torch.testing.assert_close(relaxation.relax(z), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("softmax", "sigmoid", "logits"), KINDS)
def test_pullback_is_the_derivative(softmax: bool, sigmoid: bool, logits: Logits) -> None:
    z, toward = normal(2, 3, ENCODER.width).requires_grad_(), normal(2, 3, ENCODER.width, seed=1)
    rows = relaxed(SCHEMA, ENCODER.mean, ENCODER.std, z, softmax, sigmoid, logits == "standardised")
    (expected,) = torch.autograd.grad(rows, z, toward)
    relaxation = Relaxation(ENCODER, softmax, sigmoid, logits)
    (own,) = torch.autograd.grad(relaxation.relax(z), z, toward)
    torch.testing.assert_close(own, expected, rtol=1e-11, atol=1e-12)
    torch.testing.assert_close(relaxation.pullback(toward), expected, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize(("softmax", "sigmoid", "logits"), KINDS)
def test_single_precision_differs_by_roundings(softmax: bool, sigmoid: bool, logits: Logits) -> None:
    encoder = Encoder(SCHEMA, STATISTICS, dtype=torch.float32)
    single, double = (Relaxation(one, softmax, sigmoid, logits) for one in (encoder, ENCODER))
    z, toward = normal(40, ENCODER.width), normal(40, ENCODER.width, seed=1)
    # Values of one size: rare categories' deviations make some columns large.
    size = (ENCODER.high - ENCODER.low).clamp_min(1)
    rows, recorded = double.relax(z), z.float().requires_grad_()
    fast, slow = single.relax(z.float()), single.relax(recorded)
    torch.testing.assert_close(fast.double() / size, rows / size, rtol=1e-5, atol=2e-6)
    torch.testing.assert_close(slow.double() / size, rows / size, rtol=1e-5, atol=2e-6)
    expected = double.pullback(toward)
    (own,) = torch.autograd.grad(slow, recorded, toward.float())
    scale = float(expected.abs().max())
    torch.testing.assert_close(own.double(), expected, rtol=1e-4, atol=1e-5 * scale)
    torch.testing.assert_close(single.pullback(toward.float()).double(), expected, rtol=1e-4, atol=1e-5 * scale)


def test_pullback_belongs_to_the_last_rows() -> None:
    relaxation = Relaxation(ENCODER)
    first, second, toward = (normal(2, ENCODER.width, seed=seed) for seed in range(3))
    relaxation.relax(first)
    at_first = relaxation.pullback(toward)
    relaxation.relax(second)
    assert not torch.allclose(relaxation.pullback(toward), at_first)
    relaxation.relax(first)
    assert torch.equal(relaxation.pullback(toward), at_first)
    with pytest.raises(RuntimeError, match="relax call before"):
        Relaxation(ENCODER).pullback(toward)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("logits", ["raw", "standardised"])
@pytest.mark.parametrize("size", [1.0, 80.0, 1e4, 1e30])
def test_relaxed_rows_are_near_valid_ones(dtype: torch.dtype, logits: Logits, size: float) -> None:
    encoder = Encoder(SCHEMA, STATISTICS, dtype=dtype)
    relaxation = Relaxation(encoder, logits=logits)
    rows = relaxation.relax(size * normal(50, encoder.width, dtype=dtype))
    raw = encoder.destandardise(rows)
    assert rows.isfinite().all()
    assert relaxation.pullback(torch.ones_like(rows)).isfinite().all()
    slack = 1e-12 if dtype == torch.float64 else 1e-5
    for block in DISCRETE:
        torch.testing.assert_close(raw[..., block].sum(-1), torch.ones(50, dtype=dtype), rtol=0, atol=slack)
    assert (rows >= encoder.low - slack).all()
    assert (rows <= encoder.high + slack).all()


def test_certain_variables_are_valid_rows() -> None:
    # No row of the table lies on a bound.
    cells = torch.tensor([[2.0, 0.0, 0.0, 2.5, 1.0], [0.0, 99.0, 0.0, 0.5, 0.0]], dtype=torch.float64)
    encoded = ENCODER.encode(cells)
    z = torch.where(ENCODER.destandardise(encoded) > 0.5, 70.0, -70.0).double()
    z[:, ENCODER.is_continuous] = torch.tensor([[-70.0, 70.0], [70.0, -70.0]], dtype=torch.float64)
    torch.testing.assert_close(Relaxation(ENCODER).relax(z), encoded, rtol=0, atol=1e-12)


def test_without_both_maps_rows_are_the_variables() -> None:
    z = normal(2, ENCODER.width)
    relaxation = Relaxation(ENCODER, softmax=False, sigmoid=False)
    assert torch.equal(relaxation.relax(z), z)
    assert torch.equal(relaxation.pullback(z), z)


def test_standardised_logits_of_zero_start_near_the_marginals_order() -> None:
    # The logits are then the categories' frequencies: not uniform, but the commonest leads.
    zeros = torch.zeros(ENCODER.width, dtype=torch.float64)
    share = ENCODER.destandardise(Relaxation(ENCODER, logits="standardised").relax(zeros))
    expected = torch.softmax(torch.tensor([2 / 3, 1 / 3, 0], dtype=torch.float64), 0)
    torch.testing.assert_close(share[:3], expected, rtol=1e-12, atol=1e-12)
    uniform = ENCODER.destandardise(Relaxation(ENCODER).relax(zeros))
    torch.testing.assert_close(uniform[:3], torch.full((3,), 1 / 3, dtype=torch.float64), rtol=1e-12, atol=0)
