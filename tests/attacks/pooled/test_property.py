from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats
from scipy.special import rel_entr

from seepage.attacks.pooled import (
    KL,
    Dominant,
    Joint,
    Meta,
    Ratio,
    WhiteBox,
    binary_shadows,
    halved_shadows,
    spread_shadows,
    train_shadows,
)
from seepage.attacks.pooled.kl import divergence
from seepage.attacks.pooled.parts.features import Reduced, ratios, standardised
from seepage.attacks.pooled.ratio import invert
from seepage.defenses.answers import RoundedAnswers
from seepage.errors import BadInputError
from seepage.protocols.pooled import PooledLearning
from seepage.shadow.pooling import joint_models
from seepage.shadow.stacked import Stacked
from seepage.wire.pooled import HalvedShadows, PredictionView, SpreadShadows
from tests.attacks.pooled.parts import Case, case

TELLING = case()
SHADOWS = binary_shadows(TELLING.known, 20, seed=5)
KNOWN = replace(TELLING.known, shadows={"even": SHADOWS, "halved": halved_shadows(TELLING.known, 40, seed=5)})
_CARRIES = TELLING.known.auxiliary.carries
ONE_CARRIES = TELLING.known.auxiliary.rows(torch.cat([_CARRIES.nonzero()[:1, 0], (~_CARRIES).nonzero()[:, 0]]))
FEW = spread_shadows(TELLING.known, 12, seed=0)
STRONG = case(effect=0.8, targets=40, own=False)
STRONG_SHADOWS = binary_shadows(STRONG.known, 40, seed=5)
STRONG_HALVED = halved_shadows(STRONG.known, 40, seed=5)


def right(case_: Case, chosen: torch.Tensor) -> float:
    shares = torch.tensor(case_.known.shares, dtype=torch.float64)
    return float((shares[chosen] == case_.truth).double().mean())


@pytest.mark.parametrize("attack", [Meta(), Meta("raw", "lr"), Meta("raw", "mlp"), Meta("log", "lr"), KL()])
def test_a_telling_attribute_is_read_from_answers(attack) -> None:
    guess = attack(TELLING.seen.answers.again(), KNOWN, [0])
    torch.testing.assert_close(guess.chances.sum(1), torch.ones(20, dtype=torch.float64))
    assert right(TELLING, guess.chosen) >= 0.9


@pytest.mark.parametrize("own", [True, False])
def test_an_attribute_that_moves_nothing_is_not_read(own: bool) -> None:
    nothing = case(effect=0.0, own=own, targets=60)
    shadows = {"even": binary_shadows(nothing.known, 40, seed=5), "halved": halved_shadows(nothing.known, 40, seed=5)}
    for attack in (Meta(), Meta("raw", "lr"), KL()):
        guess = attack(nothing.seen.answers.again(), replace(nothing.known, shadows=shadows), [0])
        hits = round(60 * right(nothing, guess.chosen))
        # Not beyond what guessing gives in all but one of ten thousand draws.
        assert stats.binomtest(hits, 60).pvalue > 1e-4


@pytest.mark.long
def test_shuffled_shares_leave_guessing() -> None:
    # Over several shuffles, as one may fall near the true order.
    hits = [
        right(TELLING, Meta("raw", "lr", shuffled=True)(TELLING.seen.answers.again(), KNOWN, [s]).chosen)
        for s in range(12)
    ]
    assert 0.3 < float(np.mean(hits)) < 0.7


def test_weights_tell_as_answers_do() -> None:
    for attack, least in (
        (WhiteBox(), 0.9),
        (WhiteBox("lr"), 0.75),
        (WhiteBox("mlp"), 0.7),
    ):
        shadows = {"even": STRONG_SHADOWS, "halved": STRONG_HALVED}
        guess = attack(STRONG.seen.models, replace(STRONG.known, shadows=shadows), [0])
        assert right(STRONG, guess.chosen) >= least, attack


def test_what_hardly_any_shadow_model_shows_does_not_outweigh_the_rest() -> None:
    # A weight that is 0 in all shadow models but one, as of a category that one auxiliary row has, and 50 in targets.
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(60, 5, generator=generator, dtype=torch.float64)
    features[:, 4] = 0.0
    features[7, 4] = 0.1
    targets = torch.full((3, 5), 50.0, dtype=torch.float64)
    ours, theirs = standardised(features, targets)
    assert float(ours.abs().max()) <= 3.0
    torch.testing.assert_close(theirs, torch.full((3, 5), 3.0, dtype=torch.float64))
    near = (features[:, :4] - features[:, :4].mean(0)) / features[:, :4].std(0)
    torch.testing.assert_close(ours[:, :4], near.clamp(-3, 3))


def test_five_shares_are_told_apart_in_order() -> None:
    five = case(effect=0.8, shares=(0.1, 0.3, 0.5, 0.7, 0.9), targets=25, own=False, rows=400)
    shadows = {"even": binary_shadows(five.known, 50, seed=5), "halved": halved_shadows(five.known, 50, seed=5)}
    guess = Meta()(five.seen.answers.again(), replace(five.known, shadows=shadows), [0])
    assert guess.chances.shape == (25, 5)
    shares = torch.tensor(five.known.shares, dtype=torch.float64)
    assert float((shares[guess.chosen] - five.truth).abs().mean()) < 0.15
    votes = KL()(five.seen.answers.again(), replace(five.known, shadows=shadows), [0])
    assert float((shares[votes.chosen] - five.truth).abs().mean()) < 0.25


def test_ratios_of_a_linear_model_are_linear_in_its_weights() -> None:
    models, queries = STRONG_SHADOWS.models, STRONG.known.queries
    assert isinstance(models, Stacked)
    inputs = torch.cat([queries, torch.ones(len(queries), 1)], dim=1).double()
    weights = torch.cat([models.weights[0], models.biases[0][..., None]], dim=2).double()
    logits = inputs @ (weights - weights.mean(1, keepdim=True)).mT
    torch.testing.assert_close(ratios(models.answers(queries)), logits.flatten(1), atol=1e-4, rtol=0)


def test_fewer_shadow_models_are_the_first_ones() -> None:
    many, count = STRONG_HALVED, slice(0, 20)
    first = HalvedShadows(many.models.of(count), many.shares[count], many.answers[count], many.halves[count])
    few = Meta()(STRONG.seen.answers.again(), replace(STRONG.known, shadows={"halved": first}), [0])
    of_many = Meta(shadows=20)(STRONG.seen.answers.again(), replace(STRONG.known, shadows={"halved": many}), [0])
    torch.testing.assert_close(few.chances, of_many.chances)


def test_halves_share_no_rows_and_have_all_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    known, drawn = TELLING.known, []

    def listening(learner, pool, own, chosen, generator):
        drawn.append(chosen[:, 0])
        return joint_models(learner, pool, own, chosen, generator)

    monkeypatch.setattr("seepage.attacks.pooled.parts.shadows.joint_models", listening)
    shadows = halved_shadows(known, 12, seed=3)
    assert shadows.halves.tolist() == [0, 0, 1, 1] * 3
    assert shadows.shares[:, 0].tolist() == [0.3, 0.7] * 6
    (rows,) = drawn
    assert not set(rows[shadows.halves == 0].flatten().tolist()) & set(rows[shadows.halves == 1].flatten().tolist())
    carried = known.auxiliary.carries[rows].double().mean(1)
    torch.testing.assert_close(carried, shadows.shares[:, 0])


def test_attacks_ask_no_more_than_their_queries_and_are_limited() -> None:
    view = TELLING.seen.answers.again(limit=60)
    Meta()(view, KNOWN, [0])
    assert view.asked == 40
    assert torch.equal(view.recorded[0][0], TELLING.known.queries)
    with pytest.raises(BadInputError, match="20 of 60 are left"):
        KL()(view, KNOWN, [0])


def test_divergence_is_scipys() -> None:
    generator = torch.Generator().manual_seed(0)
    p, q = (torch.rand(n, 6, 3, generator=generator).softmax(2).double() for n in (4, 5))
    expected = np.array([[rel_entr(a, b).sum(1).mean() for b in q.numpy()] for a in p.numpy()])
    np.testing.assert_allclose(divergence(p, q).numpy(), expected, rtol=1e-10)


def test_reduced_features_keep_all_products_of_shadow_models() -> None:
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(7, 30, generator=generator).double()
    features[:, 3] = 2.0
    kept = Reduced.of(features)(features)
    assert kept.shape[1] == 6
    other = [i for i in range(30) if i != 3]
    standard = ((features - features.mean(0)) / features.std(0))[:, other]
    torch.testing.assert_close(kept @ kept.T, standard @ standard.T)


# Rows of a model, rows of each kind in a half, and numbers that a model says.
DRAWN, KIND, NUMBERS = 100, 150, 60


def effects(rows: int, rng: np.random.Generator) -> np.ndarray:
    return rng.normal(scale=0.8, size=(rows, NUMBERS))


def said(share: float, pools: tuple[np.ndarray, np.ndarray], rng: np.random.Generator) -> np.ndarray:
    """What a model says: the share in the first number, and what its rows, of pools of both kinds, do to all."""
    counts = round(share * DRAWN), DRAWN - round(share * DRAWN)
    drawn = [pool[rng.permutation(len(pool))[:count]] for pool, count in zip(pools, counts, strict=True)]
    return share * np.eye(NUMBERS)[0] + np.concatenate(drawn).mean(0)


@pytest.mark.long
def test_intervals_cover_shares_of_rows_that_no_shadow_model_saw() -> None:
    """Rules learnt from models of few rows know these rows; only models of others tell how far they are off."""
    shares, covered, errors = np.linspace(0.1, 0.9, 60), [], []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        told, seen = [], []
        for half in (0, 1):
            pools = effects(KIND, rng), effects(KIND, rng)
            told += list(np.repeat(shares[half::2], 2))
            seen += [model for share in shares[half::2] for model in [said(share, pools, rng)] * 2]
        asked = rng.uniform(0.1, 0.9, 50)
        seen += [said(share, (effects(DRAWN, rng), effects(DRAWN, rng)), rng) for share in asked]
        numbers = torch.from_numpy(np.array(seen) + 0.02 * rng.normal(size=(len(seen), NUMBERS)))
        guess = invert(spread(np.array(told)), numbers[: len(told)], numbers[len(told) :], (0.3, 0.7), 0.95)
        assert guess.low is not None
        assert guess.high is not None
        assert guess.share is not None
        covered.append(((guess.low.numpy() - 0.005 <= asked) & (asked <= guess.high.numpy() + 0.005)).mean())
        errors.append(np.abs(guess.share.numpy() - asked).mean())
    assert 0.93 <= np.mean(covered) <= 0.97
    assert np.mean(errors) < 0.12


def spread(told: np.ndarray) -> SpreadShadows:
    """Shadow models with these shares in pairs, each from one of two halves, in name alone."""
    return SpreadShadows(
        TELLING.seen.models.models,
        torch.from_numpy(told)[:, None],
        torch.zeros(len(told), 1, 1),
        torch.arange(2).repeat_interleave(len(told) // 2),
        float(KIND),
        float(KIND),
        DRAWN,
    )


def test_where_answers_tell_nothing_the_estimate_errs_no_more_than_a_constant_one() -> None:
    """The likeliest share alone would jump between the ends of the range."""
    shares = np.linspace(0.1, 0.9, 60)
    told = np.repeat(np.concatenate([shares[0::2], shares[1::2]]), 2)
    errors, constant, widths = [], [], []
    for seed in range(30):
        rng = np.random.default_rng(seed)
        asked = rng.uniform(0.1, 0.9, 50)
        numbers = torch.from_numpy(rng.normal(size=(len(told) + 50, 20)))
        guess = invert(spread(told), numbers[: len(told)], numbers[len(told) :], (0.3, 0.7), 0.95)
        assert guess.share is not None
        assert guess.low is not None
        assert guess.high is not None
        assert bool((guess.low <= guess.share).all() & (guess.share <= guess.high).all())
        errors.append(np.abs(guess.share.numpy() - asked).mean())
        constant.append(np.abs(0.5 - asked).mean())
        widths.append(float((guess.high - guess.low).mean()))
    assert np.mean(errors) < np.mean(constant) + 0.01
    assert np.mean(widths) > 0.7


def test_the_share_is_estimated_with_an_interval_that_covers_it() -> None:
    truth = torch.linspace(0.1, 0.9, 80, dtype=torch.float64)
    even = case(effect=0.6, truth=truth, own=False)
    shadows = spread_shadows(even.known, 160, seed=3)
    guess = Ratio()(even.seen.answers.again(), replace(even.known, shadows={"spread": shadows}), [0])
    assert guess.share is not None
    assert guess.low is not None
    assert guess.high is not None
    covered = float(((guess.low <= truth) & (truth <= guess.high)).double().mean())
    assert 0.86 <= covered <= 1.0
    assert float((guess.share - truth).abs().mean()) < 0.15
    narrow = Ratio(level=0.5)(even.seen.answers.again(), replace(even.known, shadows={"spread": shadows}), [0])
    assert narrow.high is not None
    assert narrow.low is not None
    assert float((narrow.high - narrow.low).mean()) < float((guess.high - guess.low).mean())


def test_rows_of_a_kind_that_are_of_one_group_are_in_both_halves() -> None:
    one = replace(ONE_CARRIES, groups=torch.arange(len(ONE_CARRIES)) // 4)
    shadows = halved_shadows(replace(TELLING.known, auxiliary=one), 4, seed=0)
    assert len(shadows) == 4


def test_an_update_tells_the_new_rows_share() -> None:
    base = case(effect=0.8, shares=(0.3, 0.5, 0.7), targets=3, own=False, rows=300)
    shares = torch.tensor([[0.3, 0.3], [0.3, 0.7], [0.7, 0.3], [0.7, 0.7]] * 5, dtype=torch.float64)
    view, told = base.learning.update(base.held, None, shares, seed=9)
    fine = Dominant("log", "lr")
    before = binary_shadows(base.known, 30, seed=1)
    after = binary_shadows(replace(base.known, rows=600), 30, seed=2)
    guess = fine(view, replace(base.known, shadows={"even": before, "even_after": after}), [0])
    assert float(((guess.chosen == 1) == (told[:, 1] > 0.5)).double().mean()) >= 0.8
    two = replace(base.known, shares=(0.3, 0.7))
    lines = torch.tensor([[a, b] for a in (0.3, 0.7) for b in (0.3, 0.7)] * 8, dtype=torch.float64)
    first, second = train_shadows(two, lines[:, :1], 3), train_shadows(two, lines, 4)
    view = type(view)(view.before.again(), view.after.again())
    joint = Joint()(view, replace(two, shadows={"pairs": first, "pairs_after": second}), [0])
    assert float(((joint.chosen == 1) == (told[:, 1] > 0.5)).double().mean()) >= 0.8
    with pytest.raises(BadInputError, match="same shadow models"):
        Joint()(view, replace(two, shadows={"pairs": first, "pairs_after": first}), [0])


def test_the_attacker_sees_its_shadow_models_as_the_defense_lets_it_see_the_target() -> None:
    coarse = RoundedAnswers(digits=1)
    learning = PooledLearning(TELLING.learning.learner, 200, answers=coarse)
    seen = learning.train(TELLING.held, TELLING.known.own, TELLING.truth, seed=2)
    answers = seen.answers.ask(TELLING.known.queries)
    torch.testing.assert_close(answers, torch.round(answers, decimals=1))
    known = replace(TELLING.known, answers=coarse)
    shadows = halved_shadows(known, 20, seed=5)
    torch.testing.assert_close(shadows.answers, torch.round(shadows.answers, decimals=1))
    assert right(TELLING, Meta()(seen.answers.again(), replace(known, shadows={"halved": shadows}), [0]).chosen) > 0.7


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        (torch.zeros(20, 40, 3), r"\(20, 40, 3\) where \(20, 40, 2\)"),
        (torch.full((20, 40, 2), torch.nan), "numbers that are not probabilities"),
        (torch.full((20, 40, 2), -1.0), "numbers that are not probabilities"),
    ],
)
def test_answers_that_are_not_as_expected_are_refused(answers: torch.Tensor, said: str) -> None:
    with pytest.raises(BadInputError, match=said):
        Meta()(PredictionView(lambda queries: answers, 20, 2), KNOWN, [0])


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda: replace(TELLING.known, shares=(0.5,)), "at least two shares"),
        (lambda: replace(TELLING.known, shares=(0.7, 0.3)), "increasing order"),
        (lambda: replace(TELLING.known, within=(0.9, 0.1)), "two numbers in .0, 1., the smaller first"),
        (lambda: replace(TELLING.known, queries=torch.zeros(4, 9)), "same columns"),
        (
            lambda: replace(TELLING.known, auxiliary=TELLING.held.rows(TELLING.held.carries.nonzero()[:, 0])),
            "one value",
        ),
        (lambda: binary_shadows(TELLING.known, 3, 0), "multiple of 2 from 4"),
        (lambda: binary_shadows(replace(TELLING.known, rows=2000), 4, 0), "need 1400 rows"),
        (lambda: Meta()(TELLING.seen.answers, replace(KNOWN, shares=(0.2, 0.8)), [0]), "another"),
        (lambda: Ratio(level=1.0), "level=1.0"),
        (lambda: Ratio()(TELLING.seen.answers, replace(KNOWN, shadows={"spread": FEW})), "20"),
        (lambda: spread_shadows(TELLING.known, 10, 0), "multiple of 4"),
        (lambda: Meta()(TELLING.seen.answers, TELLING.known), "of the kind 'halved' are needed, got none"),
        (lambda: Meta()(TELLING.seen.answers, replace(KNOWN, shadows={"halved": SHADOWS})), "HalvedShadows"),
        (lambda: halved_shadows(replace(TELLING.known, auxiliary=ONE_CARRIES), 4, 0), "carry the attribute, but"),
        (lambda: Ratio()(TELLING.seen.answers, replace(KNOWN, shadows={"spread": SHADOWS})), "SpreadShadows"),
    ],
)
def test_what_cannot_be_attacked_is_refused(made, said: str) -> None:
    with pytest.raises(BadInputError, match=said):
        made()
