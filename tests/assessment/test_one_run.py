"""Epsilon of a whole training from one run: randomised response is the closed form, what is learnt by heart leaks."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch

from seepage import epsilon
from seepage.advise.epsilon import TrainingEpsilon
from seepage.assessment.empirical_epsilon import EmpiricalEpsilon, one_run_bound
from seepage.assessment.one_run import TrainingAudit, _mislabelled, audit_training
from seepage.assessment.utility import Recipe
from seepage.datasets import load
from seepage.defenses.accounting import Guarantee
from seepage.defenses.dp_sgd import DPSGD
from seepage.errors import BadInputError
from seepage.models.mlp import nn3
from seepage.tabular.encoder import Encoder
from tests.commands import commands

DATA = load("german")
RECIPE = Recipe(learning_rates=(0.3,), epochs=20)


@pytest.mark.long
@pytest.mark.parametrize("delta", [0.0, 1e-5])
@pytest.mark.parametrize("epsilon", [1.0, 3.0])
def test_randomised_response_over_canaries_is_bounded_closely_from_below(epsilon: float, delta: float) -> None:
    lows = []
    for seed in range(40):
        draw = np.random.default_rng(seed)
        coins = draw.random(1_000) < 0.5
        truthful = draw.random(1_000) < math.exp(epsilon) / (1 + math.exp(epsilon))
        # Each canary answers truthfully whether it is included with the probability that epsilon allows. Ties are
        # broken by noise, which says nothing.
        scores = (coins == truthful) + draw.random(1_000) / 2
        lows.append(one_run_bound(coins, scores, delta).low)
    # 2.5% of 40 is 1; six or more have a probability below 1 in 1,000 there.
    assert (np.array(lows) > epsilon).sum() < 6
    assert np.median(lows) > 0.75 * epsilon


def trained(defense: DPSGD | None, seed: int = 0) -> TrainingAudit:
    encoder = Encoder(DATA.schema, DATA.statistics, dtype=torch.float32)
    return audit_training(DATA, nn3(DATA.schema, seed=0), encoder, 32, 300, defense=defense, recipe=RECIPE, seed=seed)


@pytest.mark.long
def test_a_training_without_a_defense_is_found_to_leak_and_one_with_noise_is_not_accused() -> None:
    leaky = trained(None)
    assert leaky.guarantee is None
    assert leaky.measured.low > 0.5
    assert leaky.auc is not None
    assert leaky.auc > 0.65
    private = trained(DPSGD(clip_norm=1.0, noise_multiplier=1.0))
    assert private.guarantee is not None
    assert private.guarantee.delta == private.measured.delta == 1e-5
    assert private.measured.low <= 0.3 < private.guarantee.epsilon
    assert not private.refuted
    assert private.rows == 500 + private.included


def test_mislabelled_canaries_have_another_label_and_the_others_their_own() -> None:
    chosen = torch.arange(0, 100, 2)
    made = _mislabelled(DATA.train, chosen, torch.Generator().manual_seed(0))
    others = torch.ones(len(DATA.train), dtype=torch.bool)
    others[chosen] = False
    assert bool((made.labels[chosen] != DATA.train.labels[chosen]).all())
    assert torch.equal(made.labels[others], DATA.train.labels[others])
    assert torch.equal(made.cells, DATA.train.cells)


@pytest.mark.long
def test_both_defenses_of_a_command_are_trained_and_a_figure_is_reproducible(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    seepage = commands(capfd, monkeypatch, tmp_path, "epsilon")
    options = ("--dataset", "german", "--batch-size", "32", "--canaries", "60", "--epochs", "1", "--quiet")
    code, out, _ = seepage(
        *options, "--defense", "none", "--defense", "dp_sgd:{clip_norm: 1, noise_multiplier: 2}", "--json"
    )
    assert code == 0
    plain, private = json.loads(out)
    assert "No epsilon is accounted for." in plain["line"]
    assert private["training"]["guarantee"]["epsilon"] > private["training"]["measured"]["low"]
    assert "(n=60), in one training, whatever the mechanism is. Losses" in private["line"]
    [again] = epsilon("german", batch_sizes=32, canaries=60, recipe=Recipe(epochs=1))
    assert again.training.measured.low == plain["training"]["measured"]["low"]
    assert again.training.auc == plain["training"]["auc"]


def test_an_epsilon_that_does_not_hold_is_named() -> None:
    measured = EmpiricalEpsilon(3.0, 2.5, None, 1e-5, 500, "one run")
    guarantee = Guarantee(1.0, 1e-5, 100, 0.01, 2.0)
    training = TrainingAudit(measured, guarantee, 250, 0.9, 0.1, 100, 800, 1.0)
    assert training.refuted
    assert "The accounted 1 does not hold" in TrainingEpsilon(8, "dp_sgd", training).line


@pytest.mark.parametrize("canaries", [5, 790])
def test_too_few_or_too_many_canaries_are_refused(canaries: int) -> None:
    with pytest.raises(BadInputError, match=f"got {canaries}"):
        epsilon("german", batch_sizes=32, canaries=canaries)
