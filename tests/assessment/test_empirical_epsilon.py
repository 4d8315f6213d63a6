"""Lower bounds of epsilon: the closed form of one Gaussian step is the anchor, planted faults are caught."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from opacus import GradSampleModule
from opacus.optimizers import DPOptimizer
from scipy.optimize import root_scalar
from scipy.stats import binom
from torch import Tensor, nn

from seepage.assessment.empirical_epsilon import Reading, error_bound, message_epsilon, one_run_bound, training_epsilon
from seepage.defenses.accounting import gaussian_epsilon
from seepage.defenses.defense import with_noise
from seepage.defenses.dp_sgd import DPSGD
from seepage.errors import BadInputError
from seepage.learning import gradient
from seepage.models.model import Model

DELTA = 1e-5


@pytest.mark.parametrize("noise", [0.5, 1.0, 2.0])
def test_one_gaussian_step_is_bounded_closely_from_below(noise: float) -> None:
    draw, n = np.random.default_rng(0), 40_000
    found = error_bound(draw.normal(1 / noise, 1, n), draw.normal(0, 1, n), DELTA, "gaussian")
    closed = gaussian_epsilon(1 / noise, DELTA)
    assert 0.8 * closed <= found.low <= closed
    assert found.high is None or found.high >= closed


@pytest.mark.long
@pytest.mark.parametrize("bound", ["gaussian", "any"])
def test_a_bound_is_above_the_truth_in_few_of_many_repetitions(bound: Reading) -> None:
    closed, above = gaussian_epsilon(0.5, DELTA), 0
    for seed in range(60):
        draw = np.random.default_rng(seed)
        found = error_bound(draw.normal(0.5, 1, 400), draw.normal(0, 1, 400), DELTA, bound)
        above += found.low > closed
    # 2.5% of 60 are 1.5; seven or more have a probability below 1 in 500 there.
    assert above < 7


@pytest.mark.long
def test_the_canaries_of_dp_sgd_stay_below_its_epsilon_and_near_it() -> None:
    defense, closed = DPSGD(clip_norm=0.5, noise_multiplier=1.0), gaussian_epsilon(1.0, DELTA)
    found = message_epsilon(defense.gradient, 0.5, DELTA, bound="gaussian")
    assert 0.8 * closed <= found.low <= closed
    assert found.words.endswith("(n=100,000), if its noise is normal.")
    # Without the assumption less is shown, and nothing from above.
    weaker = message_epsilon(defense.gradient, 0.5, DELTA)
    assert 0.3 * closed <= weaker.low < found.low
    assert (weaker.bound, weaker.high) == ("any", None)
    assert "whatever the mechanism is" in weaker.words


Scores = tuple[NDArray[np.float64], NDArray[np.float64]]


def _randomised_response(draw: np.random.Generator, epsilon: float, n: int) -> Scores:
    truthful = math.exp(epsilon) / (1 + math.exp(epsilon))
    return (draw.random(n) < truthful).astype(float), (draw.random(n) >= truthful).astype(float)


def _discrete(draw: np.random.Generator, epsilon: float, n: int) -> Scores:
    """Whole numbers of which each is exp(-epsilon) times as likely as the one nearer to the truth (geometric noise)."""
    noise = draw.geometric(1 - math.exp(-epsilon), (2, n)) - draw.geometric(1 - math.exp(-epsilon), (2, n))
    return 1.0 + noise[0], noise[1] * 1.0


def _laplace(draw: np.random.Generator, epsilon: float, n: int) -> Scores:
    return 1.0 + draw.laplace(0, 1 / epsilon, n), draw.laplace(0, 1 / epsilon, n)


def _worst(draw: np.random.Generator, epsilon: float, delta: float, present: bool, n: int) -> NDArray[np.float64]:
    """Scores of the mechanism of which every (epsilon, delta) one is made: the truth with delta, else a likely one."""
    truthful = draw.random(n) < 1 / (1 + math.exp(-epsilon))
    given_away = draw.random(n) < delta
    return np.where(given_away, 3.0, 1.0) * np.where(truthful | given_away, 1, -1) * (1 if present else -1)


@pytest.mark.long
@pytest.mark.parametrize("delta", [0.0, 1e-3, 0.05])
def test_the_worst_mechanism_is_hardly_ever_accused_and_bounded_closely(delta: float) -> None:
    lows = []
    for seed in range(100):
        draw = np.random.default_rng(seed)
        present, absent = _worst(draw, 1.0, delta, True, 500), _worst(draw, 1.0, delta, False, 500)
        lows.append(error_bound(present, absent, delta, seed=seed).low)
    # 2.5% of 100 are 2.5; nine or more have a probability below 1 in 1,000 there.
    assert sum(low > 1.0 for low in lows) < 9
    assert np.median(lows) > 0.6


@pytest.mark.parametrize("epsilon", [1.0, 4.0])
def test_half_of_gaussian_noise_is_found_without_an_assumption(epsilon: float) -> None:
    mu = float(root_scalar(lambda mu: gaussian_epsilon(mu, DELTA) - epsilon, bracket=(1e-3, 10)).root)
    found, accused = 0, 0
    for seed in range(10):
        draw, n = np.random.default_rng(seed), 50_000
        absent = draw.normal(0, 1, n)
        found += error_bound(draw.normal(2 * mu, 1, n), absent, DELTA).low > epsilon
        accused += error_bound(draw.normal(mu, 1, n), absent, DELTA).low > epsilon
    assert (found, accused) == (10, 0)


@pytest.mark.long
@pytest.mark.parametrize("mechanism", [_laplace, _randomised_response, _discrete])
@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_a_correct_mechanism_of_any_noise_is_hardly_ever_accused(
    mechanism: Callable[[np.random.Generator, float, int], Scores], epsilon: float
) -> None:
    accused, as_gaussian, broken = 0, 0, 0
    for seed in range(24):
        draw = np.random.default_rng(seed)
        scores = mechanism(draw, epsilon, 1_000)
        accused += error_bound(*scores, 0.0).low > epsilon
        as_gaussian += error_bound(*scores, DELTA, "gaussian").low > epsilon
        # Half of the noise is twice the epsilon.
        broken += error_bound(*mechanism(draw, 2 * epsilon, 5_000), 0.0).low > epsilon
    # 2.5% of 24 are 0.6; five or more have a probability below 1 in 2,000 there.
    assert accused < 5
    assert as_gaussian >= 22
    assert broken >= 21


def no_noise(model: Model, encoded: Tensor, labels: Tensor, seeds: Sequence[int]) -> dict[str, Tensor]:
    """Clips each record, and forgets the noise."""
    return {name: g / encoded.shape[1] for name, g in DPSGD(1.0, 1.0).clipped_sum(model, encoded, labels).items()}


def of_batch(size: float) -> Callable[..., dict[str, Tensor]]:
    """Clips the sum of a batch, or its mean, instead of each record; noise as for records."""

    def defended(model: Model, encoded: Tensor, labels: Tensor, seeds: Sequence[int]) -> dict[str, Tensor]:
        count = encoded.shape[1]
        entries = gradient(model, encoded, labels)["weight"].flatten(1) * size
        clipped = entries * (1.0 / entries.norm(dim=1, keepdim=True).clamp(min=1e-30)).clamp(max=1.0)
        noise = 1.0 if size > 1 else 1.0 / count
        sent = with_noise(clipped, seeds, noise)
        return {"weight": sent[..., None] / (count if size > 1 else 1)}

    return defended


@pytest.mark.parametrize(("faulty", "by_any"), [(no_noise, True), (of_batch(8.0), False), (of_batch(1.0), True)])
def test_planted_faults_are_caught(faulty: Callable[..., dict[str, Tensor]], by_any: bool) -> None:
    found = message_epsilon(faulty, 1.0, DELTA, messages=1_000, bound="gaussian")
    assert found.low > gaussian_epsilon(1.0, DELTA)
    # Without an assumption, what noise hardly hides takes more messages.
    assert (message_epsilon(faulty, 1.0, DELTA, messages=1_000).low > gaussian_epsilon(1.0, DELTA)) == by_any


def opacus_step(noise: float) -> Callable[[NDArray[np.bool_]], NDArray[np.float64]]:
    """One step of Opacus on canaries of a coordinate each; the score of a canary is the change along its own."""

    def train(coins: NDArray[np.bool_]) -> NDArray[np.float64]:
        count = len(coins)
        module = nn.Linear(count, 1, bias=False)
        nn.init.zeros_(module.weight)
        wrapped = GradSampleModule(module, loss_reduction="sum")
        optimizer = DPOptimizer(
            torch.optim.SGD(wrapped.parameters(), lr=1.0),
            noise_multiplier=noise,
            max_grad_norm=1.0,
            expected_batch_size=1,
            loss_reduction="sum",
            generator=torch.Generator().manual_seed(0),
        )
        # Opacus' hooks warn where the input needs no gradient.
        rows = torch.eye(count)[torch.from_numpy(coins)].requires_grad_()
        optimizer.zero_grad()
        (10 - wrapped(rows)).square().sum().backward()
        optimizer.step()
        return module.weight.detach()[0].double().numpy()

    return train


def test_the_hook_bounds_a_step_of_opacus_and_catches_forgotten_noise() -> None:
    # Of noise of 2: what this many canaries show without noise is above it.
    delta, closed = 1e-7, gaussian_epsilon(0.5, 1e-7)
    assert training_epsilon(opacus_step(2.0), 1_500, delta).low < closed
    assert training_epsilon(opacus_step(0.0), 1_500, delta).low > closed


def test_the_bound_of_one_run_is_that_of_the_binomial_where_delta_is_0() -> None:
    coins = np.arange(400) % 2 == 0
    scores = np.where(coins, 1.0, 0.0)
    # All right: the largest number of guesses shows most, at a fourth of 2.5%.
    assert math.isclose(one_run_bound(coins, scores, 0.0).low, _inverted(400, 0.025 / 4), abs_tol=5e-3)
    assert one_run_bound(coins, np.zeros(400), 0.0).low == 0.0
    shuffled = np.random.default_rng(0).permutation(scores)
    assert one_run_bound(coins, shuffled, 0.0).low < 0.5


def _inverted(guesses: int, tail: float) -> float:
    rates = np.linspace(0.5, 0.999999, 200_001)
    refuted = rates[binom.sf(guesses - 1, guesses, rates) <= tail]
    return float(np.log(refuted.max() / (1 - refuted.max())))


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: one_run_bound([True] * 20, [0.0] * 19, DELTA), "one finite score a canary"),
        (lambda: one_run_bound([True] * 20, [float("nan")] * 20, DELTA), "one finite score a canary"),
        (lambda: error_bound([0.0] * 5, [0.0] * 50, DELTA), "20 finite scores"),
        (lambda: error_bound([0.0] * 50, [0.0] * 50, DELTA, "laplace"), "bound"),
        (lambda: error_bound([0.0] * 50, [0.0] * 50, 2.0), "delta lies between 0 and 1"),
        (lambda: training_epsilon(lambda coins: coins[:3], 50, DELTA), "one finite score a canary"),
    ],
)
def test_rubbish_is_refused_in_a_sentence(call: Callable[[], object], said: str) -> None:
    with pytest.raises(BadInputError, match=said):
        call()
