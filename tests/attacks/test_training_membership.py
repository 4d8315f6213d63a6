"""Membership in a whole training: scores against slow ones, planted members, overfit models and fresh ones."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import norm

from seepage.assessment.columns import auc
from seepage.attacks.membership import lira_scores, loss_scores, own_class_logits, rmia_scores
from seepage.datasets import load
from seepage.errors import BadInputError
from seepage.protocols.trees import Boosting, margins_by_round, train_together
from seepage.settings.training_membership import (
    MembershipFigure,
    MembershipTest,
    measure_training_membership,
    member_gap,
)
from seepage.shadow.federated import Federation
from seepage.shadow.stacked import Dense
from tests.tables import pay_table

GERMAN = load("german")


def drawn(models: int, records: int, seed: int, apart: float = 0.0) -> tuple[torch.Tensor, torch.Tensor]:
    """Return logits of one round and who is a member, in pairs of complements; members' logits are ``apart`` higher."""
    generator = torch.Generator().manual_seed(seed)
    half = torch.rand(models // 2, records, generator=generator).argsort(1) < records // 2
    members = torch.stack([half, ~half], 1).flatten(0, 1)
    logits = torch.randn(models, records, 1, generator=generator, dtype=torch.float64)
    return logits + apart * members[..., None].double(), members


def pairs_of(models: int) -> torch.Tensor:
    pairs = torch.arange(models) // 2
    return pairs[:, None] == pairs


def test_the_logit_of_the_own_class_is_that_of_its_chance() -> None:
    logits = torch.randn(3, 5, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    labels = torch.tensor([0.0, 1.0, 2.0, 3.0, 1.0])
    chances = logits.softmax(2)[:, torch.arange(5), labels.long()]
    assert torch.allclose(own_class_logits(logits, labels), (chances / (1 - chances)).log())
    # Where p rounds to 1, the logit does not.
    assert own_class_logits(torch.tensor([[[100.0, 0.0]]]), torch.tensor([0.0])).tolist() == [[100.0]]
    assert loss_scores(torch.tensor([[[0.0]]])).item() == pytest.approx(-math.log(2))


def test_lira_is_the_ratio_that_a_loop_over_records_computes() -> None:
    logits, members = drawn(models=8, records=6, seed=1, apart=1.0)
    values = logits[..., 0].numpy()
    scores = lira_scores(logits, logits, members, pairs_of(8))
    for target in range(8):
        others = [m for m in range(8) if m // 2 != target // 2]
        means, squares = [], []
        for r in range(6):
            own = {side: [values[m, r] for m in others if bool(members[m, r]) == side] for side in (True, False)}
            means.append({side: np.mean(given) for side, given in own.items()})
            squares.append(sum(float(((np.array(given) - np.mean(given)) ** 2).sum()) for given in own.values()))
        usual = math.exp(np.mean([math.log(square / 4) for square in squares]))
        for r in range(6):
            spread = math.sqrt((2 * usual + squares[r]) / (2 + 4))
            densities = {side: norm.logpdf(values[target, r], mean, spread) for side, mean in means[r].items()}
            assert float(scores[target, r]) == pytest.approx(densities[True] - densities[False])


def test_rmia_is_the_share_that_a_loop_over_pairs_counts() -> None:
    logits, members = drawn(models=6, records=4, seed=2, apart=1.0)
    population = drawn(models=6, records=7, seed=3)[0]
    p, z = logits[..., 0].sigmoid().numpy(), population[..., 0].sigmoid().numpy()
    for gamma in (1.0, 2.0):
        scores = rmia_scores(logits, logits, members, (population, population), pairs_of(6), gamma)
        for target in range(6):
            others = [m for m in range(6) if m // 2 != target // 2]
            for r in range(4):
                inside = np.mean([p[m, r] for m in others if members[m, r]])
                outside = np.mean([p[m, r] for m in others if not members[m, r]])
                ratio = p[target, r] / ((inside + outside) / 2)
                ratios = [z[target, k] / np.mean([z[m, k] for m in others]) for k in range(7)]
                assert float(scores[target, r]) == pytest.approx(np.mean([ratio / other >= gamma for other in ratios]))


def test_planted_members_are_told_apart_as_well_as_the_best_test_can() -> None:
    # Two normal distributions one unit apart: the best area is that of their difference.
    logits, members = drawn(models=128, records=200, seed=4, apart=1.0)
    found = auc(lira_scores(logits, logits, members, pairs_of(128)).flatten(), members.flatten())
    assert found == pytest.approx(norm.cdf(1 / math.sqrt(2)), abs=0.02)
    # Each round by itself tells as much: two independent ones tell as a distance of root two.
    both = torch.cat([logits, drawn(models=128, records=200, seed=5)[0] + members[..., None]], 2)
    found = auc(lira_scores(both, both, members, pairs_of(128)).flatten(), members.flatten())
    assert found == pytest.approx(norm.cdf(1.0), abs=0.02)


def test_logits_that_know_nothing_of_members_are_chance() -> None:
    logits, members = drawn(models=16, records=1_000, seed=6)
    population = drawn(models=16, records=300, seed=7)[0]
    for scores in (
        lira_scores(logits, logits, members, pairs_of(16)),
        rmia_scores(logits, logits, members, (population, population), pairs_of(16)),
    ):
        # 8,000 on each side: a standard deviation of 0.0046.
        assert auc(scores.flatten(), members.flatten()) == pytest.approx(0.5, abs=0.02)


def estimates(figures: list[MembershipFigure], metric: str) -> dict[tuple[str, str, str], tuple[float, float, float]]:
    return {
        (f.attack, f.sees, f.target): (f.estimate.mean or 0.0, f.estimate.low or 0.0, f.estimate.high or 0.0)
        for f in figures
        if f.metric == metric
    }


@pytest.fixture(scope="module")
def overfit() -> list[MembershipFigure]:
    test = MembershipTest(rows=150, shadows=8, repetitions=4, rounds=3)
    return measure_training_membership(GERMAN, Dense(2, (100,), epochs=20, batch_size=32), test)


def test_members_of_an_overfit_model_are_found_and_of_a_fresh_one_not(overfit: list[MembershipFigure]) -> None:
    areas = estimates(overfit, "membership_auc")
    for attack in ("lira", "rmia"):
        for sees in ("final", "rounds"):
            mean = areas[attack, sees, "deployed"][0]
            assert mean > 0.6
            assert mean > areas["loss", "final", "deployed"][0]
            assert areas[attack, sees, "control"][0] == pytest.approx(0.5, abs=0.06)
    assert areas["random", "nothing", "deployed"][0] == pytest.approx(0.5, abs=0.04)
    members, others = member_gap(overfit)
    assert members is not None
    assert others is not None
    assert members > 0.95 > 0.8 > others
    rates = estimates(overfit, "membership_tpr_1")
    assert rates["lira", "final", "deployed"][0] > 0.04 > 0.025 > rates["random", "nothing", "deployed"][0]


def test_noise_on_each_records_gradient_hides_members(overfit: list[MembershipFigure]) -> None:
    test = MembershipTest(rows=150, shadows=8, repetitions=4, rounds=1)
    noisy = measure_training_membership(GERMAN, Dense(2, (100,), epochs=5, batch_size=32, clip=1.0, noise=2.0), test)
    quiet, loud = (estimates(figures, "membership_auc")["lira", "final", "deployed"] for figures in (overfit, noisy))
    assert loud[0] < 0.56 < 0.6 < quiet[0]


def test_rounds_are_those_of_one_training() -> None:
    generator = torch.Generator().manual_seed(8)
    inputs, labels = torch.randn(40, 5, generator=generator), torch.randint(2, (40,), generator=generator)
    chosen, recipe = torch.arange(40).view(2, 20), Dense(2, (6,), epochs=4, batch_size=8)
    first, last = recipe.rounds(inputs, labels, chosen, [1, 2], 2)
    assert torch.equal(last.flat(), recipe.train(inputs, labels, chosen, [1, 2]).flat())
    shorter = Dense(2, (6,), epochs=2, batch_size=8).train(inputs, labels, chosen, [1, 2])
    assert torch.equal(first.flat(), shorter.flat())
    assert len(recipe.rounds(inputs, labels, chosen, [1, 2], 9)) == 4


def test_a_sites_updates_tell_more_of_its_records_than_the_trained_model() -> None:
    recipe = Federation(Dense(2, (64,), 1, 16, 0.3), sites=4, rounds=15)
    test = MembershipTest(rows=60, shadows=12, repetitions=2)
    found = {
        (f.attack, f.sees, f.target): f.estimate.mean or 0.0
        for f in measure_training_membership(GERMAN, recipe, test)
        if f.metric == "membership_auc"
    }
    assert found["lira", "updates", "deployed"] > found["lira", "final", "deployed"] + 0.02
    assert found["lira", "final", "deployed"] > 0.6
    # A site of which a record is asked tells nothing of records that no model was trained on.
    for sees in ("final", "rounds", "updates"):
        assert abs(found["lira", sees, "control"] - 0.5) < 0.08


def test_members_of_boosted_trees_are_found() -> None:
    test = MembershipTest(rows=100, shadows=8, repetitions=2, rounds=2)
    areas = estimates(measure_training_membership(GERMAN, Boosting("binary:logistic", 2, 20), test), "membership_auc")
    for attack in ("lira", "rmia"):
        assert areas[attack, "final", "deployed"][0] > max(0.6, areas["loss", "final", "deployed"][0])
        assert abs(areas[attack, "final", "control"][0] - 0.5) < 0.08


def test_what_trees_say_of_rows_after_each_round_are_the_margins_of_a_shorter_training() -> None:
    rows = np.random.default_rng(3).normal(size=(60, 4)).astype(np.float32)
    chosen = np.arange(60).reshape(2, 30)
    for recipe in (Boosting("binary:logistic", 2, 6), Boosting("multi:softprob", 3, 6)):
        classes = recipe.classes
        labels = np.arange(60) % classes
        first, last = margins_by_round(rows, labels, chosen, recipe, [2, 6])
        assert last.shape == (2, 60, classes)
        [shorter] = margins_by_round(rows, labels, chosen, replace(recipe, rounds=2), [2])
        assert torch.equal(first, shorter)
        booster, _ = train_together([rows[:30]], [labels[:30]], recipe)
        chances = booster.inplace_predict(rows)
        shown = last[0].softmax(1)
        assert np.allclose(shown[:, 1] if classes == 2 else shown, chances, atol=1e-6)


def test_what_cannot_be_tested_is_refused() -> None:
    recipe = Dense(2)
    with pytest.raises(BadInputError, match="an even number from 6 up"):
        MembershipTest(shadows=7)
    with pytest.raises(BadInputError, match="the table has 1,000; give at most 300 rows"):
        measure_training_membership(GERMAN, recipe, MembershipTest(rows=500))
    with pytest.raises(BadInputError, match="the target 'pay' is a number"):
        measure_training_membership(pay_table(), recipe)
