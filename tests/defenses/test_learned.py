"""Defenses that change what bottom models learn: the terms themselves, and that training follows them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from seepage.defenses.label_flip import LabelFlip
from seepage.defenses.mid import Mid
from seepage.defenses.nopeek import NoPeek, distance_correlation
from seepage.errors import BadInputError
from seepage.protocols.vertical import VerticalLearning
from tests.attacks.vertical.parts import setting

HERE = setting()
SHORT = VerticalLearning(epochs=6, batch_size=100, learning_rate=0.01)


def test_distance_correlation_is_that_of_its_definition() -> None:
    rng = np.random.default_rng(0)
    first = rng.normal(size=(20, 3))
    second = np.concatenate([first[:, :1] ** 2, rng.normal(size=(20, 1))], axis=1)

    def centred(values: np.ndarray) -> np.ndarray:
        apart = np.array([[np.linalg.norm(a - b) for b in values] for a in values])
        return apart - apart.mean(0) - apart.mean(1)[:, None] + apart.mean()

    one, other = centred(first), centred(second)
    expected = np.sqrt((one * other).mean() / np.sqrt((one * one).mean() * (other * other).mean()))
    found = distance_correlation(torch.tensor(first)[None], torch.tensor(second)[None])
    assert float(found[0]) == pytest.approx(expected, rel=1e-6)
    assert float(distance_correlation(torch.ones(1, 5, 2), torch.rand(1, 5, 2))) < 1e-2


def test_features_of_nopeek_resemble_their_rows_less() -> None:
    start, rows = HERE.trained.model, HERE.trained.rows
    usual = SHORT.train(start, rows, [0, 1])
    unlike = replace(SHORT, unlike=NoPeek(5.0)).train(start, rows, [0, 1])
    encoded = rows.cells
    alike = [
        distance_correlation(one.model.encoded(encoded)[1], one.model.features(one.model.encoded(encoded))[1])
        for one in (usual, unlike)
    ]
    assert bool((alike[1] < alike[0] - 0.1).all())
    assert float(unlike.losses[:, -1].max()) < 0.66
    assert replace(SHORT, unlike=NoPeek(5.0)).known().describe() == {"nopeek": {"weight": 5.0}}


def test_mid_learns_how_much_noise_the_task_bears() -> None:
    start, rows = HERE.trained.model, HERE.trained.rows
    light, heavy = (replace(SHORT, features=Mid(weight)).train(start, rows, [0, 1]) for weight in (1e-3, 0.3))
    nats = []
    assert not any(one.requires_grad for one in heavy.spread)
    for one, weight in ((light, 1e-3), (heavy, 0.3)):
        features = one.model.features(one.model.encoded(rows.cells))[1].detach()
        nats.append(float(Mid(weight).information(features, one.spread[1])) / weight)
    assert nats[1] < nats[0] / 2
    # What is sent has the learned noise, in training, at inference and to queries; the active party's own has none.
    protocol = replace(SHORT, features=Mid(0.3))
    first, second = (protocol.send(heavy, rows, torch.Generator().manual_seed(seed)) for seed in (0, 1))
    assert torch.equal(first[0], second[0])
    apart = (first[1] - second[1]).std(1, keepdim=True) / heavy.spread[1]
    torch.testing.assert_close(apart, torch.full_like(apart, 2**0.5), atol=0.2, rtol=0)
    mean = protocol.send(heavy, rows, torch.Generator().manual_seed(0), exposures=50)[1]
    exact = heavy.model.features(heavy.model.encoded(rows.cells))[1].detach()
    assert float(((mean - exact) / heavy.spread[1]).std()) == pytest.approx(1 / 50**0.5, rel=0.1)


def test_the_divergence_is_that_of_normal_distributions() -> None:
    mean, deviation = torch.tensor([[[0.5, -1.0]]]), torch.tensor([[[0.7, 1.5]]])
    normal = torch.distributions.Normal
    expected = torch.distributions.kl_divergence(normal(mean, deviation), normal(0.0, 1.0)).sum()
    assert float(Mid(2.0).information(mean, deviation)) == pytest.approx(2 * float(expected))


def test_weights_are_positive_numbers() -> None:
    for made in (Mid, NoPeek):
        with pytest.raises(BadInputError, match="weight is a number above 0, got weight=-1"):
            made(-1)


def test_flipped_labels_are_trained_with_and_scored_against_the_true_ones() -> None:
    start, rows = HERE.trained.model, HERE.trained.rows
    flipping = replace(SHORT, flip=LabelFlip(0.2))
    trained = flipping.train(start, rows, [0, 1])
    assert torch.equal(trained.rows.labels, rows.labels)
    apart = (trained.taught != rows.labels).double().mean()
    assert float(apart) == pytest.approx(0.2, abs=0.05)
    view = flipping.passive(trained, 1, exchanges=3)
    # The first exchange is before any training, so that the sign along the mean difference is the label trained with.
    came = view.earlier[-1].gradient
    for label, better in ((trained.taught, True), (rows.labels, False)):
        sides = [came[0][label[0] == code].mean(0) for code in (0, 1)]
        read = (came[0] @ (sides[1] - sides[0]) > 0) == (label[0] == 1)
        assert (float(read.double().mean()) > 0.95) == better
    assert flipping.known().describe() == {"label_flip": {"probability": 0.2}}
