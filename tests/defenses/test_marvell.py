"""Marvell against a general solver, and what its noise does to messages."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from scipy.stats import norm

from seepage.defenses.marvell import Marvell, Variances, divergence, moments, optimal
from seepage.errors import BadInputError


@pytest.mark.parametrize("case", range(4))
def test_the_noise_is_the_least_that_a_general_solver_finds(case: int) -> None:
    rng = np.random.default_rng(case)
    (zero, one), power = rng.uniform(1e-3, 1, 2), rng.uniform(0.01, 5)
    share, features, kl = rng.uniform(0.05, 0.95), int(rng.integers(2, 30)), rng.uniform(0.05, 3)
    own = np.array([zero, one, zero, one])
    weights = np.array([1 - share, share, (features - 1) * (1 - share), (features - 1) * share])

    def apart(logs: np.ndarray) -> float:
        first, second, left, right = np.exp(logs)
        along = (first + power) / second + (second + power) / first
        return kl - ((along + (features - 1) * (left / right + right / left)) / 2 - features)

    limits = [{"type": "ineq", "fun": apart}, {"type": "ineq", "fun": lambda logs: logs - np.log(own)}]
    found = [
        minimize(
            lambda logs: weights @ (np.exp(logs) - own),
            np.log(own * np.exp(rng.uniform(0, 6, 4))),
            constraints=limits,
            method="SLSQP",
            options={"maxiter": 1000},
        )
        for _ in range(8)
    ]
    best = min(one.fun for one in found if one.success)
    ours = optimal((zero, one), power, share, features, kl)
    assert divergence(ours, power, features) == pytest.approx(kl, rel=1e-6)
    assert weights @ (np.array([*ours.along, *ours.across]) - own) == pytest.approx(best, rel=1e-4)


def test_what_is_close_already_gets_no_noise() -> None:
    assert optimal((1.0, 1.0), power=0.1, share=0.5, features=4, kl=0.5) == Variances((1.0, 1.0), (1.0, 1.0))


def test_messages_of_normal_gradients_are_as_far_apart_as_was_asked() -> None:
    draw = torch.Generator().manual_seed(0)
    labels = (torch.rand(1, 40_000, generator=draw) < 0.2).float()
    shift = torch.tensor([2.0, -1.0, 0.5])
    spread = torch.where(labels == 1, 0.5, 0.2)[..., None]
    gradients = labels[..., None] * shift + spread * torch.randn(1, 40_000, 3, generator=draw)
    sent = Marvell(0.4)(gradients, draw, labels)
    _, means, _ = moments(sent.double(), labels)
    apart = means[0, 1] - means[0, 0]
    torch.testing.assert_close(apart.float(), shift, atol=0.1, rtol=0)
    direction = apart / apart.norm()
    on = (sent[0].double() - means[0].gather(0, labels[0].long()[:, None].expand(-1, 3))) @ direction
    first, second = (float(on[labels[0] == code].var()) for code in (0, 1))
    beside = sent[0].double().sub(means[0].gather(0, labels[0].long()[:, None].expand(-1, 3))).square().sum(1)
    zero, one = (float((beside - on.square())[labels[0] == code].mean() / 2) for code in (0, 1))
    found = Variances((first, second), (zero, one))
    assert divergence(found, float(apart.square().sum()), 3) == pytest.approx(0.4, abs=0.03)
    # The theorem's AUC is an upper bound of what the best direction reads.
    reads = float(norm.cdf(float(apart.norm()) / math.sqrt(first + second)))
    assert reads <= Marvell(0.4).worst_auc


def test_a_batch_of_one_label_sends_nothing_and_others_are_not_touched_by_it() -> None:
    gradients = torch.randn(2, 6, 4, generator=torch.Generator().manual_seed(1))
    labels = torch.tensor([[0.0] * 6, [0.0, 1.0] * 3])
    sent = Marvell()(gradients, torch.Generator().manual_seed(2), labels)
    assert not bool(sent[0].any())
    assert bool(sent[1].any(1).all())
    assert bool(sent.isfinite().all())
    zero = Marvell()(torch.zeros(1, 4, 3), torch.Generator(), torch.tensor([[0.0, 1.0, 0.0, 1.0]]))
    assert torch.equal(zero, torch.zeros(1, 4, 3))


def test_what_it_cannot_hide_is_refused() -> None:
    with pytest.raises(BadInputError, match="kl is a number above 0, got kl=0"):
        Marvell(0)
    with pytest.raises(BadInputError, match="labels up to 2"):
        Marvell()(torch.zeros(1, 2, 3), torch.Generator(), torch.tensor([[0.0, 2.0]]))
    assert Marvell(1.0).worst_auc == pytest.approx(0.875)
