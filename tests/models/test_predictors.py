from __future__ import annotations

import pytest
import torch

from seepage.models.predictors import gains, shrunk


@pytest.mark.long
@pytest.mark.parametrize("inputs", [3, 60])
def test_regression_recovers_coefficients_by_either_method(inputs: int) -> None:
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(6000, inputs, generator=draw).double()
    codes = (torch.rand(6000, generator=draw) < torch.sigmoid(2 * x[:, 0] - 1)).long()
    fit = shrunk(x, codes, torch.full((6000, 2), 0.5).log().double()).logistic
    slope = (fit.weight[:, 1] - fit.weight[:, 0]) / fit.spread
    bias = fit.bias[1] - fit.bias[0] - (slope * fit.center).sum()
    # Twice the standard error of a logistic coefficient, which is about 0.05 here.
    assert abs(float(slope[0]) - 2) < 0.15
    assert abs(float(bias) + 1) < 0.15
    assert float(slope[1:].abs().max()) < 0.15


def test_untelling_inputs_leave_what_was_known_before() -> None:
    draw = torch.Generator().manual_seed(0)
    before = torch.tensor([0.7, 0.2, 0.1]).log().double().expand(200, 3)
    for seed in range(5):
        codes = torch.multinomial(before.exp(), 1, generator=draw.manual_seed(seed))[:, 0]
        found = shrunk(torch.randn(200, 10, generator=draw), codes, before)
        assert float((found.left_out - before).abs().max()) < 0.7
        assert bool((found.left_out.argmax(1) == 0).all())
    few = shrunk(torch.randn(5, 2, generator=draw), torch.tensor([0, 0, 0, 1, 2]), before[:5])
    assert torch.equal(few.left_out, before[:5])
    assert gains(torch.tensor([1.0, 1.1]))
    assert not gains(torch.tensor([1.0, -1.0]))
