from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from seepage.defenses.cut_noise import CutNoise
from seepage.defenses.label_flip import LabelFlip
from seepage.errors import BadInputError


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("classes", [2, 5])
def test_so_many_labels_are_flipped_and_evenly(classes: int) -> None:
    labels = torch.randint(classes, (20_000,), generator=seeded(1)).double()
    sent = LabelFlip(0.3)(labels, classes, seeded())
    changed = sent != labels
    assert abs(float(changed.double().mean()) - 0.3) < 5 * math.sqrt(0.21 / 20_000)
    by = ((sent - labels) % classes)[changed]
    shares = torch.bincount(by.long(), minlength=classes)[1:] / len(by)
    assert float((shares - 1 / (classes - 1)).abs().max()) < 0.03


@given(st.floats(0.001, 0.49), st.integers(2, 9))
def test_the_epsilon_of_flips_is_the_worst_ratio_of_chances(probability: float, classes: int) -> None:
    ratio = (1 - probability) / (probability / (classes - 1))
    assert LabelFlip(probability).epsilon(classes) == pytest.approx(math.log(ratio))


def test_gradients_are_clipped_to_the_bound_and_noise_is_in_its_units() -> None:
    gradients = torch.randn(4_000, 6, generator=seeded(1)) * torch.tensor([[0.01], [3.0]]).repeat(2_000, 1)
    assert torch.equal(CutNoise(0.0)(gradients[::2], 1.0, seeded()), gradients[::2])
    assert float(CutNoise(0.0)(gradients, 0.5, seeded()).norm(dim=1).max()) == pytest.approx(0.5, rel=1e-5)
    noise = CutNoise(0.2)(gradients, 0.5, seeded()) - CutNoise(0.0)(gradients, 0.5, seeded())
    assert float(noise.std()) == pytest.approx(0.1, rel=0.02)
    own = CutNoise(0.0, rule="own")(gradients, 0.5, seeded())
    torch.testing.assert_close(own, gradients / 2)
    assert float(
        ((CutNoise(0.2, rule="own")(gradients, 0.5, seeded()) - own) / gradients.norm(dim=1, keepdim=True)).std()
    ) == pytest.approx(0.1, rel=0.02)


@pytest.mark.parametrize("quantile", [0.2, 0.5, 0.9])
def test_the_bound_follows_the_quantile(quantile: float) -> None:
    noise, bound = CutNoise(0.0, quantile=quantile), 5.0
    for step in range(300):
        bound = noise.follow(bound, torch.rand(256, 1, generator=seeded(step)))
    assert bound == pytest.approx(quantile, abs=0.05)


@given(st.floats(0.3, 20), st.integers(1, 30))
def test_epsilon_and_delta_are_those_of_two_normal_distributions(multiplier: float, exchanges: int) -> None:
    epsilon = CutNoise(multiplier).epsilon(exchanges, delta=1e-5)
    assert epsilon is not None
    # The chance of what is likelier by more than e^epsilon, less e^epsilon times its chance under the neighbour.
    distance = 2 * math.sqrt(exchanges) / multiplier
    if epsilon == 0:
        assert norm.cdf(distance / 2) - norm.cdf(-distance / 2) <= 1e-5
        return
    threshold = epsilon / distance + distance / 2
    likelier = norm.sf(threshold - distance)
    assert likelier - math.exp(epsilon + norm.logsf(threshold)) == pytest.approx(1e-5, rel=1e-3)


def test_nothing_is_guaranteed_without_noise_or_by_bounds_that_tell() -> None:
    assert CutNoise(0.0).epsilon(1, 1e-5) is None
    assert CutNoise(9.0, rule="own").epsilon(1, 1e-5) is None


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: LabelFlip(0.0), "between 0 and 1"),
        (lambda: LabelFlip(0.6).epsilon(2), "more often than random labels; use a probability of at most 0.5"),
        (lambda: CutNoise(-1), "noise_multiplier is a number from 0 up"),
        (lambda: CutNoise(1, quantile=1), "a quantile lies between 0 and 1"),
        (lambda: CutNoise(1, start=0), "start is a number"),
        (lambda: CutNoise(1).epsilon(0, 1e-5), "exchanges is a whole number"),
        (lambda: CutNoise(1).epsilon(1, 0), "delta lies between 0 and 1"),
    ],
)
def test_what_cannot_be_used_is_refused(make: object, said: str) -> None:
    with pytest.raises(BadInputError, match=said):
        make()  # pyright: ignore[reportCallIssue]
