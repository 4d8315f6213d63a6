from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from seepage.attacks.split import Exact, Posterior, direction_scores, norm_scores
from seepage.defenses.cut_noise import CutNoise
from seepage.defenses.label_flip import LabelFlip
from seepage.errors import BadInputError
from seepage.models.deepfm import deepfm
from seepage.protocols.split import SplitLearning
from seepage.wire.secret import CutTranscript
from seepage.wire.split import Auxiliary, CutGuess, CutKnowledge, CutRounds
from tests.attacks.split.test_exact import PLAIN, exchange, table
from tests.oracles.split import configurations, loss_gradient

DATA = table(2, rows=900)


def cells_right(guess: CutGuess, seen: CutTranscript) -> float:
    return float((guess.cells == seen.cells).double().mean())


@pytest.mark.parametrize(
    ("noise", "flip"),
    [(CutNoise(0.4), None), (CutNoise(0.4, rule="own"), None), (CutNoise(0.4), LabelFlip(0.2)), (None, LabelFlip(0.2))],
)
def test_chances_are_those_of_bayes_rule_over_all_configurations(
    noise: CutNoise | None, flip: LabelFlip | None
) -> None:
    protocol = replace(PLAIN, noise=noise, flip=flip)
    model, seen = exchange(DATA, protocol, private=("a", "c"), records=4)
    known = CutKnowledge(DATA.schema, DATA.statistics, protocol.known())
    guess = Posterior()(seen.view, known)
    assert guess.chances is not None
    assert guess.label_chances is not None
    shares = [DATA.statistics.marginals[i].probabilities for i in model.private]
    chance = 0.0 if flip is None else flip.probability
    for i in range(4):
        cut, received = seen.view.cut[i], seen.view.own_gradient[i].double()
        weights: dict[tuple, float] = {}
        for codes, used in configurations(model):
            cells = torch.tensor(codes, dtype=torch.float32)
            gradient = loss_gradient(model, cut, cells, used).double()
            one = float(torch.sigmoid(model.client(cut[None], cells[None])[0, 0]).detach())
            predicted = [1 - one, one]
            if noise is None:
                mean, spread = gradient, 1e-5 * float(received.norm())
            elif noise.rule == "own":
                mean, spread = gradient / 2, noise.noise_multiplier * float(gradient.norm()) / 2
            else:
                assert seen.view.clip is not None
                mean = gradient * min(1.0, seen.view.clip / float(gradient.norm()))
                spread = noise.noise_multiplier * seen.view.clip
            density = -float((received - mean).square().sum()) / (2 * spread**2) - len(received) * math.log(spread)
            prior = math.log(float(shares[0][codes[0]]) * float(shares[1][codes[1]]) * predicted[used])
            for true in range(2):
                honest = (predicted[true] - chance) / (1 - 2 * chance)
                honest = min(max(honest, 1e-12), 1.0)
                kept = 1 - chance if true == used else chance
                other = min(max((predicted[1 - true] - chance) / (1 - 2 * chance), 1e-12), 1.0)
                opposite = 1 - chance if true != used else chance
                share = kept * honest / (kept * honest + opposite * other) if chance else float(true == used)
                if share:
                    weights[codes, used, true] = density + prior + math.log(share)
        top = max(weights.values())
        total = sum(math.exp(w - top) for w in weights.values())
        for k, width in enumerate((3, 2)):
            for value in range(width):
                expected = sum(math.exp(w - top) for c, w in weights.items() if c[0][k] == value) / total
                assert float(guess.chances[k][i, value]) == pytest.approx(expected, abs=2e-2 if noise is None else 2e-3)
        expected = sum(math.exp(w - top) for c, w in weights.items() if c[2] == 1) / total
        assert float(guess.label_chances[i, 1]) == pytest.approx(expected, abs=2e-3)


@pytest.mark.parametrize("observed", [False, True])
def test_chunks_change_nothing(observed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    protocol = replace(PLAIN, noise=CutNoise(0.4), flip=LabelFlip(0.2))
    _, seen = exchange(DATA, protocol, private=("a", "c"), records=20)
    known = CutKnowledge(DATA.schema, DATA.statistics, protocol.known())
    whole = Posterior(observed=observed)(seen.view, known)
    # One combination of one record at a time, so that the likeliest comes before and after others.
    monkeypatch.setattr("seepage.attacks.split.parts.chances._AT_ONCE", 1)
    parts = Posterior(observed=observed)(seen.view, known)
    torch.testing.assert_close(whole.chances, parts.chances, rtol=1e-6, atol=1e-9)
    torch.testing.assert_close(whole.label_chances, parts.label_chances, rtol=1e-6, atol=1e-9)
    assert bool((whole.cells == parts.cells).all())


def test_without_a_defense_it_reads_what_exact_reads() -> None:
    _, seen = exchange(DATA, PLAIN)
    known = CutKnowledge(DATA.schema, DATA.statistics)
    assert torch.equal(Posterior()(seen.view, known).cells, Exact()(seen.view, known).cells)


def test_under_noise_it_beats_the_nearest_gradient_and_what_was_believed_before() -> None:
    protocol = replace(PLAIN, noise=CutNoise(0.03))
    _, seen = exchange(DATA, protocol, records=400)
    rest = DATA.train.rows(range(400, 900))
    known = CutKnowledge(DATA.schema, DATA.statistics, protocol.known(), Auxiliary(rest.cells, rest.labels))
    nearest = cells_right(Exact()(seen.view, known), seen)
    before = cells_right(Posterior(observed=False)(seen.view, known), seen)
    after = cells_right(Posterior()(seen.view, known), seen)
    assert after > nearest + 0.05
    assert after > before + 0.05


def test_auxiliary_rows_make_a_better_prior_than_marginals() -> None:
    _, seen = exchange(DATA, PLAIN, records=400)
    rest = DATA.train.rows(range(400, 900))
    plain = CutKnowledge(DATA.schema, DATA.statistics)
    helped = replace(plain, auxiliary=Auxiliary(rest.cells, rest.labels))
    figures = [cells_right(Posterior(observed=False)(seen.view, known), seen) for known in (plain, helped)]
    assert figures[1] > figures[0] + 0.03


@pytest.mark.parametrize("multiplier", [0.05, 0.3, 1.0])
def test_chances_are_calibrated(multiplier: float) -> None:
    protocol = replace(PLAIN, noise=CutNoise(multiplier))
    _, seen = exchange(DATA, protocol, records=900)
    guess = Posterior()(seen.view, CutKnowledge(DATA.schema, DATA.statistics, protocol.known()))
    assert guess.chances is not None
    for k, chances in enumerate(guess.chances):
        sure, chosen = chances.max(1)
        right = (chosen.double() == seen.cells[:, k]).double()
        # Five standard errors of a mean over 900 records.
        assert abs(float(sure.mean() - right.mean())) < 5 * 0.5 / 30
        torch.testing.assert_close(chances.sum(1), torch.ones(900, dtype=torch.float64))


def test_several_rounds_tell_more_than_one() -> None:
    protocol = replace(PLAIN, noise=CutNoise(0.3))
    model, seen = exchange(DATA, protocol, records=300)
    trained = protocol.train(model, DATA.train, seed=0)
    views = [protocol.observe(trained, DATA.train.rows(range(300)), seed=s).view for s in range(8)]
    known = CutKnowledge(DATA.schema, DATA.statistics, protocol.known())
    one, all_of_them = (cells_right(Posterior()(some, known), seen) for some in (views[:1], views))
    assert all_of_them > one + 0.02
    with pytest.raises(BadInputError, match="views of the same records are needed"):
        Posterior()([views[0], views[1].of(slice(0, 3))], known)


def test_flipped_labels_are_undone_where_the_network_is_surer() -> None:
    protocol = replace(PLAIN, flip=LabelFlip(0.3), epochs=8)
    _, seen = exchange(DATA, protocol, records=900)
    known = CutKnowledge(DATA.schema, DATA.statistics, protocol.known())
    plain = float((Exact()(seen.view, known).labels == seen.labels).double().mean())
    adaptive = float((Posterior()(seen.view, known).labels == seen.labels).double().mean())
    # The nearest gradient tells the flipped label.
    assert abs(plain - 0.7) < 5 * math.sqrt(0.21 / 900)
    assert adaptive > plain + 0.02


def test_norms_and_directions_tell_labels() -> None:
    _, seen = exchange(DATA, PLAIN, records=300)
    labels = seen.labels.bool()
    known = int(labels.nonzero()[0])
    scores = direction_scores(seen.view, known)
    assert float((scores[labels] > 0).double().mean()) > 0.95
    assert float((scores[~labels] < 0).double().mean()) > 0.95
    norms = norm_scores(seen.view)
    torch.testing.assert_close(norms, seen.view.own_gradient.norm(dim=1).double())
    with pytest.raises(BadInputError, match="record 300 was asked for"):
        direction_scores(seen.view, 300)


def test_a_bound_that_is_not_known_is_refused() -> None:
    protocol = SplitLearning(epochs=1, noise=CutNoise(0.1))
    _, seen = exchange(DATA, protocol)
    known = CutKnowledge(DATA.schema, DATA.statistics, protocol.known())
    with pytest.raises(BadInputError, match="to what bound"):
        Posterior()(replace(seen.view, clip=None), known)


def test_several_exchanges_of_a_record_tell_more_than_one() -> None:
    protocol = replace(PLAIN, noise=CutNoise(1.0), flip=LabelFlip(0.2))
    model = deepfm(DATA.schema, ("a", "c"), seed=0, hidden=(16, 8))
    trained = protocol.train(model, DATA.train, seed=0)
    rows = DATA.train.rows(range(300))
    stages = [(stage, None) for stage in reversed(trained.stages[1:])]
    once, often = (protocol.observe_all(exchanges, rows, 1) for exchanges in (stages[:1], stages))
    alone = protocol.observe(trained, rows, 1)
    assert torch.equal(alone.view.gradient, once.view.gradient)
    assert torch.equal(alone.view.gradient, often.view.gradient)
    known = CutKnowledge(DATA.schema, DATA.statistics, protocol.known())
    chances = [Posterior()(view, known).chances for view in (often.view, list(often.view.exchanges))]
    torch.testing.assert_close(chances[0], chances[1])
    first, second = (cells_right(Posterior()(one.view, known), one) for one in (once, often))
    assert second > first
    assert often.view.of(slice(2, 5)).earlier[0].records == 3


def test_rounds_of_some_of_the_records_tell_what_rounds_of_all_do() -> None:
    protocol = replace(PLAIN, noise=CutNoise(1.0))
    trained = protocol.train(deepfm(DATA.schema, ("a", "c"), seed=0, hidden=(16, 8)), DATA.train, seed=0)
    rows = DATA.train.rows(range(40))
    view = protocol.observe_all([(stage, None) for stage in reversed(trained.stages[1:])], rows, 1).view
    known = CutKnowledge(DATA.schema, DATA.statistics, protocol.known())
    order = torch.Generator().manual_seed(0)
    parts = [(one, at) for one in view.exchanges for at in torch.randperm(40, generator=order).chunk(3)]
    rounds = CutRounds(tuple(one.of(at) for one, at in parts), tuple(at for _, at in parts))
    assert (rounds.records, sum(int(newest.sum()) for newest in rounds.newest)) == (40, 40)
    torch.testing.assert_close(rounds.features, view.features)
    for attack in (Posterior(), Posterior(observed=False)):
        torch.testing.assert_close(attack.of_rounds(rounds, known).chances, attack(view, known).chances)
    torch.testing.assert_close(
        Posterior(observed=False, most=1).of_rounds(rounds, known).label_chances,
        Posterior(observed=False, most=1)(view, known).label_chances,
    )


def test_no_exchange_is_refused() -> None:
    with pytest.raises(BadInputError, match="at least one exchange"):
        PLAIN.observe_all([], DATA.train.rows(range(3)), 1)
