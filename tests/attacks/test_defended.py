from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from seepage.assessment import measure
from seepage.attacks.horizontal.exact.defended import (
    counts_by_effects,
    counts_by_sign,
    lost_to_clipping,
    undo_clipping,
    weigh_counts,
)
from seepage.attacks.horizontal.matching.labels import restore_labels
from seepage.datasets import load
from seepage.datasets.dataset import Dataset
from seepage.datasets.planted import distinct
from seepage.defenses import Defense
from seepage.defenses.clipping import Clipping
from seepage.defenses.defense import flat
from seepage.defenses.dp_sgd import DPSGD
from seepage.defenses.gaussian_noise import GaussianNoise
from seepage.defenses.none import Undefended
from seepage.defenses.sign import Sign
from seepage.defenses.top_k import TopK
from seepage.errors import BadInputError
from seepage.models.mlp import mlp, nn1
from seepage.models.model import Head, Model
from seepage.protocols.fedsgd import FedSGD
from seepage.registry import attacks
from seepage.tabular.encoder import Encoder
from seepage.wire.horizontal import GradientView, Knowledge, KnownDefense
from seepage.wire.secret import Transcript
from tests.oracles.gradients import gradient_of
from tests.roundings import assert_guessed_alike, assert_rounded_alike

DATA = distinct(rows=24)
ENCODER = Encoder(DATA.schema, DATA.statistics, dtype=torch.float32)
MODEL = nn1(DATA.schema, seed=1)
VICTIMS = 60
DEFENSES = [GaussianNoise(0.1), Clipping(0.05), TopK(0.05), Sign(), Sign(scaled=False)]


def run(records: int, defense: Defense, victims: int = VICTIMS, model: Model = MODEL) -> tuple[Transcript, Knowledge]:
    transcript = FedSGD(records, defense=defense).run(model, DATA.train, ENCODER, range(victims), range(victims))
    return transcript, Knowledge(DATA.schema, DATA.statistics, records, defense=defense.describe())


def off(view: GradientView, knowledge: Knowledge, truth: Tensor) -> float:
    """Return the mean absolute error of the restored count of the second class."""
    return float((restore_labels(view, knowledge, ENCODER).sum(1) - truth.sum(1)).abs().mean())


@given(st.integers(1, 40), st.floats(0.01, 0.99), st.floats(0.01, 0.99))
def test_counts_by_sign_are_those_of_a_binomial_cut_off(records: int, share: float, mean: float) -> None:
    chance = [math.comb(records, k) * share**k * (1 - share) ** (records - k) for k in range(records + 1)]
    turn = records * float(torch.tensor(mean, dtype=torch.float64))
    below = [k for k in range(records + 1) if k < turn]
    above = [k for k in range(records + 1) if k > turn]
    expected = [sum(chance[k] * k for k in side) / sum(chance[k] for k in side) for side in (below, above)]
    means, shares = torch.tensor([mean], dtype=torch.float64), torch.tensor([share], dtype=torch.float64)
    found = counts_by_sign(torch.tensor([[1.0], [-1.0], [0.0]]), means, records, shares)
    torch.testing.assert_close(found[:, 0], torch.tensor([*expected, turn], dtype=torch.float64), rtol=1e-6, atol=1e-6)


def test_a_sign_that_the_marginal_rules_out_is_believed() -> None:
    none = torch.tensor([0.0], dtype=torch.float64)
    assert counts_by_sign(torch.tensor([[-1.0]]), torch.tensor([0.25], dtype=torch.float64), 8, none).item() == 2


@given(st.floats(0, 9), st.floats(0.01, 0.99), st.floats(1e-4, 10))
def test_noisy_counts_are_weighed_by_precision(count: float, share: float, noise: float) -> None:
    # The mode of the product of two normal densities, searched for on a grid.
    known = Knowledge(DATA.schema, DATA.statistics, 9, defense=KnownDefense("mine", noise=noise))
    read, public = torch.tensor([[count]], dtype=torch.float64), torch.tensor([share], dtype=torch.float64)
    found = float(weigh_counts(read, known, public))
    grid = torch.linspace(-1, 10, 110_001, dtype=torch.float64)
    density = -((grid - 9 * share) ** 2) / (9 * share * (1 - share)) - (grid - count) ** 2 / (9 * noise) ** 2
    assert abs(found - float(grid[density.argmax()])) < 2e-4


def test_without_noise_counts_are_left_alone() -> None:
    counts = torch.rand(3, 2)
    assert weigh_counts(counts, Knowledge(DATA.schema, DATA.statistics, 9), torch.tensor([0.5, 0.5])) is counts


def test_labels_under_noise_are_nearer_than_what_is_read_and_than_the_marginal() -> None:
    transcript, knowledge = run(12, GaussianNoise(0.2), victims=400)
    truth = transcript.secret.labels
    raw = off(transcript.view, replace(knowledge, defense=KnownDefense()), truth)
    known = off(transcript.view, knowledge, truth)
    marginal = float((truth.sum(1) - 6).abs().mean())
    assert known < 0.9 * raw
    assert known < 0.9 * marginal


@pytest.mark.parametrize("defense", [Sign(), Sign(scaled=False)], ids=repr)
def test_labels_are_restored_from_signs_better_than_from_the_marginal(defense: Sign) -> None:
    transcript, knowledge = run(12, defense, victims=400)
    truth = transcript.secret.labels
    known = off(transcript.view, knowledge, truth)
    assert known < 0.9 * float((truth.sum(1) - 6).abs().mean())
    assert known <= off(transcript.view, replace(knowledge, defense=KnownDefense()), truth)


@pytest.mark.parametrize("bound", [0.5, 0.01])
def test_labels_under_clipping_are_nearer_once_its_length_is_restored(bound: float) -> None:
    transcript, knowledge = run(8, Clipping(bound), victims=200)
    clipped = flat(transcript.view.gradient).norm(dim=1) > 0.999 * bound
    assert float(clipped.double().mean()) > 0.2
    restored = undo_clipping(transcript.view, knowledge, ENCODER)
    truth = transcript.secret.labels
    assert off(restored, knowledge, truth) < off(transcript.view, knowledge, truth)
    assert off(restored, knowledge, truth) < float((truth.sum(1) - 4).abs().mean())
    for v in range(200):
        before = torch.cat([g[v].flatten() for g in transcript.view.gradient.values()]).double()
        after = torch.cat([g[v].flatten() for g in restored.gradient.values()]).double()
        assert float(torch.cosine_similarity(before, after, dim=0)) > 1 - 1e-6
        assert clipped[v] or torch.equal(before, after)
    # A victim's gradient does not depend on the others.
    alone = GradientView(MODEL, {name: g[3:4] for name, g in transcript.view.gradient.items()})
    length = sum(g[0].numel() for g in alone.gradient.values())
    for name, g in undo_clipping(alone, knowledge, ENCODER).gradient.items():
        # A length is a sum, which another shape may add up in another order: its error grows as the root of the terms.
        assert_rounded_alike(g[0], restored.gradient[name][3], roundings=4 * math.sqrt(length), what=name)


def test_a_gradient_is_not_lengthened_where_nothing_was_clipped() -> None:
    bare, knowledge = run(8, Undefended())
    assert undo_clipping(bare.view, knowledge, ENCODER) is bare.view
    wide, knowledge = run(8, Clipping(1e6))
    for name, g in undo_clipping(wide.view, knowledge, ENCODER).gradient.items():
        assert torch.equal(g, bare.view.gradient[name])


def test_labels_read_off_weights_need_magnitudes() -> None:
    transcript, knowledge = run(4, Sign())
    with pytest.raises(
        BadInputError, match=r"'geng' needs the magnitudes .* the defense 'sign' keeps only the signs; grant"
    ):
        restore_labels(transcript.view, knowledge, ENCODER, "geng")
    faithful = attacks.create("tableak", profile="faithful", iterations=2, restarts=2)
    with pytest.raises(BadInputError, match="grant the true labels"):
        faithful(transcript.view, knowledge, range(VICTIMS))


@pytest.mark.parametrize("defense", DEFENSES, ids=repr)
@pytest.mark.parametrize("name", ["tableak", "inverting_gradients", "dlg"])
def test_every_attack_answers_with_valid_rows_whatever_the_defense(name: str, defense: Defense) -> None:
    transcript, knowledge = run(4, defense, victims=2)
    guess = attacks.create(name, iterations=10)(transcript.view, knowledge, [0, 1])
    assert guess.cells.shape == (2, 4, 6)
    assert guess.labels is not None
    assert guess.labels.shape == (2, 4)
    assert torch.equal(ENCODER.decode(ENCODER.encode(guess.cells)), guess.cells)
    scores = measure(DATA.schema, DATA.statistics, transcript.secret, guess)
    accuracy = next(score for score in scores if score.metric == "accuracy" and score.column is None)
    assert 0 <= float(accuracy.estimate().mean or 0) <= 1
    alone = FedSGD(4, defense=defense).run(MODEL, DATA.train, ENCODER, [1], [1])
    assert_guessed_alike(attacks.create(name, iterations=10)(alone.view, knowledge, [1]).cells[0], guess.cells[1])


@pytest.mark.parametrize("defense", DEFENSES[1:], ids=repr)
def test_a_gradient_of_zeros_stays_one_and_is_refused(defense: Defense) -> None:
    sent = defense({name: torch.zeros(1, *p.shape) for name, p in MODEL.parameters.items()}, [0])
    knowledge = Knowledge(DATA.schema, DATA.statistics, 4, defense=defense.describe())
    with pytest.raises(BadInputError, match="zero everywhere"):
        attacks.create("tableak", iterations=2, restarts=2)(GradientView(MODEL, sent), knowledge, [0])


def accuracy_under(data: Dataset, defense: Defense, labels: bool = True) -> float:
    encoder = Encoder(data.schema, data.statistics, dtype=torch.float32)
    model = mlp(data.schema, [100], seed=3)
    transcript = FedSGD(2, defense=defense).run(model, data.train, encoder, range(6), range(6))
    granted = transcript.secret.labels if labels else None
    knowledge = Knowledge(data.schema, data.statistics, 2, granted, defense.describe())
    guess = attacks.create("tableak", iterations=250, restarts=4)(transcript.view, knowledge, range(6))
    scores = measure(data.schema, data.statistics, transcript.secret, guess)
    found = next(score for score in scores if score.metric == "accuracy" and score.column is None).estimate().mean
    assert found is not None
    return found


@pytest.mark.long
def test_noise_hides_what_clipping_and_its_absence_do_not() -> None:
    data = distinct(rows=8, continuous=1, discrete=3)
    bare, clipped = accuracy_under(data, Undefended()), accuracy_under(data, Clipping(0.01), labels=False)
    noisy = [accuracy_under(data, GaussianNoise(scale)) for scale in (1e-3, 1e-1, 10.0)]
    assert bare > 0.9
    assert clipped > 0.9
    assert noisy[0] > 0.9
    assert noisy[0] > noisy[1] > noisy[2]
    # Four columns of eight categories or as many numbers: a guess is seldom right.
    assert noisy[2] < 0.45


@pytest.mark.parametrize("head", ["softmax", "sigmoid"])
def test_labels_are_counted_through_clipping_of_each_record(head: Head) -> None:
    data = load("german")
    encoder = Encoder(data.schema, data.statistics, dtype=torch.float32)
    # Sure of one class, so that the other's records have by far the longer gradients.
    model = nn1(data.schema, seed=1, head=head)
    with torch.no_grad():
        list(model.module.parameters())[-1][-1] += 2.0
    seeds = range(40)

    def wrong(bound: float, known: bool) -> float:
        protocol = FedSGD(16, defense=DPSGD(bound, 1e-9))
        ran = protocol.run(model, data.train, encoder, seeds, seeds)
        told = protocol.known()
        assert told.record_norm == bound
        told = told if known else replace(told, record_norm=None)
        restored = restore_labels(ran.view, Knowledge(data.schema, data.statistics, 16, defense=told), encoder)
        return float((restored.sum(1) - ran.secret.labels.sum(1)).abs().mean())

    assert wrong(0.3, known=False) > 3
    assert wrong(0.3, known=True) < 1
    # A bound that no gradient reaches changes nothing.
    assert wrong(1e6, known=True) == wrong(1e6, known=False)


def test_what_clipping_takes_is_the_difference_record_by_record() -> None:
    rows = ENCODER.encode(DATA.train.cells)
    bias = list(MODEL.parameters)[-1]
    lost = lost_to_clipping(MODEL, bias, rows, 0.2, MODEL.parameters)
    for label in (0, 1):
        expected = torch.zeros(2)
        for row in rows:
            whole = gradient_of(MODEL, row[None], torch.tensor([float(label)]))
            length = float(torch.cat([g.detach().flatten() for g in whole]).norm())
            expected += whole[-1].detach() * (1 - min(1.0, 0.2 / length)) / len(rows)
        torch.testing.assert_close(lost[label].float(), expected, rtol=1e-4, atol=1e-6)


@given(st.lists(st.integers(0, 9), min_size=3, max_size=3).filter(any), st.integers(0, 999))
def test_counts_that_made_a_gradient_are_found_in_it(counts: list[int], seed: int) -> None:
    effects = torch.randn(1, 3, 4, generator=torch.Generator().manual_seed(seed)).double()
    held = torch.tensor(counts).double()
    found, growth = counts_by_effects((held / held.sum() @ effects[0])[None], effects, int(held.sum()))
    torch.testing.assert_close(found[0], held, rtol=1e-6, atol=1e-6)
    # What noise does to a count is what its derivative says.
    moved = torch.zeros(1, 4).double()
    slopes = [
        (counts_by_effects(moved + step, effects, 1)[0] - counts_by_effects(moved, effects, 1)[0])[0]
        for step in torch.eye(4).double()
    ]
    torch.testing.assert_close(growth[0], torch.stack(slopes).norm(dim=0))
