from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from seepage.assessment import match_records
from seepage.attacks.horizontal.exact.adaptive import first_gradient, labels_of_step, smoothed
from seepage.attacks.horizontal.exact.chains import affine_layers
from seepage.attacks.horizontal.exact.unmix import unmix
from seepage.attacks.horizontal.exact.updates import Backpropagated
from seepage.attacks.horizontal.matching.adam_step import AdamStep
from seepage.attacks.horizontal.matching.matching import Cosine, Matching, MeanSquared
from seepage.attacks.horizontal.matching.profiles import reconstruction
from seepage.datasets import load
from seepage.datasets.dataset import Dataset
from seepage.learning import LocalTraining, gradient, local_update
from seepage.models.mlp import nn3
from seepage.models.model import Head, Model
from seepage.models.resnet import resnet_bn
from seepage.protocols.fedavg import FedAvg
from seepage.seeds import seeded
from seepage.tabular.encoder import Encoder
from seepage.wire.horizontal import Knowledge, RecordsGuess, UpdateView
from seepage.wire.secret import Transcript
from tests.attacks.test_engine import network
from tests.attacks.test_updates import DATA, flat

GERMAN = load("german")
CLIENT = Encoder(GERMAN.schema, GERMAN.statistics, dtype=torch.float32)


def accuracy(data: Dataset, ran: Transcript[UpdateView], guess: RecordsGuess) -> float:
    return float(match_records(data.schema, data.statistics, ran.secret, guess).right.double().mean())


def steps(training: LocalTraining, dtype: torch.dtype) -> tuple[UpdateView, dict[str, Tensor]]:
    """Return the updates of two clients of eight records, and the very gradients of their first steps."""
    model = Model(seeded(lambda: nn3(GERMAN.schema, seed=0).module.to(dtype), seed=0), "softmax", "mine")
    rows = CLIENT.encode(GERMAN.train.cells[:16]).to(dtype).unflatten(0, (2, 8))
    labels = GERMAN.train.labels[:16].to(dtype).unflatten(0, (2, 8))
    epochs = training.epochs
    every = rows[:, None].expand(-1, epochs, -1, -1), labels[:, None].expand(-1, epochs, -1)
    taken: list[dict[str, Tensor]] = []

    def recorded(*given: Any) -> dict[str, Tensor]:
        taken.append(gradient(*given))
        return taken[-1]

    update = local_update(model, *every, training, recorded)
    return UpdateView(model, update, training), taken[0]


@pytest.mark.parametrize(
    "training",
    [
        LocalTraining(1, 8, 0.01, "adam", weight_decay=0.1),
        LocalTraining(1, 8, 0.01, "adamw", weight_decay=0.1),
        LocalTraining(1, 8, 0.001, "adam", betas=(0.5, 0.9), epsilon=1e-4),
    ],
)
def test_in_double_precision_a_first_step_says_the_gradient(training: LocalTraining) -> None:
    view, true = steps(training, torch.float64)
    found = first_gradient(view, 8)
    largest = max(float(g.abs().max()) for g in true.values())
    torch.testing.assert_close(flat(found.gradient), flat(true), rtol=1e-4, atol=1e-6 * largest)


@pytest.mark.parametrize("rate", [0.01, 0.001])
@pytest.mark.parametrize("optimizer", ["adam", "adamw"])
def test_the_error_of_a_first_step_is_what_its_formula_says(rate: float, optimizer: str) -> None:
    decay = 0.01 if optimizer == "adamw" else 0.0
    settings = {"epochs": 1, "batch_size": 8, "learning_rate": rate, "optimizer": optimizer, "weight_decay": decay}
    view, true = steps(LocalTraining.of_plain(settings), torch.float32)
    found = first_gradient(view, 8)
    estimate, error, gradients = flat(found.gradient), flat(found.noise), flat(true)
    alive = gradients != 0
    assert torch.equal(estimate.sign()[alive], gradients.sign()[alive])
    # Sizes that are told to a tenth are off by about their standard error, and others not below the bound.
    told = alive & (error < 0.1 * estimate.abs())
    off = ((estimate - gradients) / error)[told]
    assert 0.5 < float(off.square().mean().sqrt()) < 1.5
    assert float(told.double().mean()) > (0.5 if rate == 0.01 else 0.15)
    lost = alive & (error > 0.5 * estimate.abs())
    assert float((gradients.abs() > 0.2 * estimate.abs())[lost].double().mean()) > 0.99


def test_a_smoother_step_is_the_one_that_a_larger_epsilon_gives() -> None:
    training = LocalTraining(1, 8, 0.01, "adam", weight_decay=0.1)
    view, _ = steps(training, torch.float64)
    precise, known = Encoder(GERMAN.schema, GERMAN.statistics), Knowledge(GERMAN.schema, GERMAN.statistics, 8)
    smooth = smoothed(view, known, precise)
    expected, _ = steps(replace(training, epsilon=smooth.training.epsilon), torch.float64)
    assert smooth.training.epsilon > 1e3
    torch.testing.assert_close(flat(smooth.update), flat(expected.update), rtol=1e-4, atol=1e-14)
    # Where the message tells no size at all, signs are matched to a step that bends where gradients usually are.
    coarse = smoothed(replace(view, precision="bfloat16"), known, precise)
    assert 1e-4 < coarse.training.epsilon < 1e-2


@pytest.mark.parametrize(
    ("options", "right"), [({"learning_rate": 0.01}, 8), ({"learning_rate": 0.001, "epochs": 3}, 6)]
)
def test_labels_are_counted_in_what_signs_and_small_entries_say(options: dict[str, float], right: int) -> None:
    protocol = FedAvg(8, optimizer="adam", **options)  # pyright: ignore[reportArgumentType]
    ran = protocol.run(nn3(GERMAN.schema, seed=0), GERMAN.train, CLIENT, range(10))
    labels = labels_of_step(ran.view, Knowledge(GERMAN.schema, GERMAN.statistics, 8), CLIENT)
    assert bool((labels.diff(dim=1) >= 0).all())
    assert int((labels.sum(1) == ran.secret.labels.sum(1)).sum()) >= right


@pytest.mark.parametrize("head", ["softmax", "sigmoid", "regression"])
@pytest.mark.parametrize("optimizer", ["adam", "adamw"])
@pytest.mark.parametrize("matching", [Cosine(), MeanSquared()])
def test_the_closed_form_of_a_step_is_backpropagation(head: Head, optimizer: str, matching: Matching) -> None:
    generator = torch.Generator().manual_seed(5)
    model = Model(network(5, (12, 8), 3 if head == "softmax" else 1, generator), head, "random")
    rows = torch.randn(2, 3, 1, 7, 5, generator=generator, dtype=torch.float64)
    labels = torch.randint(3 if head == "softmax" else 2, (2, 7), generator=generator).double()
    training = LocalTraining.of_plain(
        {"epochs": 1, "batch_size": 6, "learning_rate": 0.1, "optimizer": optimizer, "weight_decay": 0.1}
        | {"epsilon": 1e-2, "drop_last": True}
    )
    view = UpdateView(model, local_update(model, rows[:, 0] + 0.3, labels[:, None], training), training)
    layers = affine_layers(model.module)
    assert layers is not None
    assert AdamStep.fits(view, 7)
    fast, slow = AdamStep(view, matching, layers), Backpropagated(view, matching)
    torch.testing.assert_close(fast(rows, labels), slow(rows, labels), rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(fast.loss(rows, labels), slow.loss(rows, labels))


@pytest.mark.long
@pytest.mark.parametrize("optimizer", ["adam", "adamw"])
def test_records_are_matched_through_a_step_of_adam(optimizer: str) -> None:
    encoder = Encoder(DATA.schema, DATA.statistics, dtype=torch.float32)
    protocol = FedAvg(4, optimizer="adam" if optimizer == "adam" else "adamw", learning_rate=0.001)
    ran = protocol.run(nn3(DATA.schema, seed=0), DATA.train, encoder, [0, 1])
    guess = reconstruction("default", restarts=4, iterations=400)(
        ran.view, Knowledge(DATA.schema, DATA.statistics, 4), [0, 1]
    )
    # A rounding on the way may tip the descent of one of eight records.
    assert accuracy(DATA, ran, guess) > 0.85


def test_steps_of_adam_are_searched_record_by_record_where_sizes_are_left() -> None:
    """A client's epsilon of 1e-5 leaves them; of what fits nothing is certified."""
    model, known = nn3(GERMAN.schema, seed=0), Knowledge(GERMAN.schema, GERMAN.statistics, 16)
    attack = unmix(restarts=1, iterations=1)
    ran = FedAvg(16, optimizer="adam", epsilon=1e-5).run(model, GERMAN.train, CLIENT, [0])
    guess = attack(ran.view, known, [0])
    assert guess.certified is not None
    assert guess.regime is not None
    assert guess.regime[0].startswith("16 of 16 records read one by one")
    assert not guess.certified.any()
    assert accuracy(GERMAN, ran, guess) == 1.0
    ran = FedAvg(16, optimizer="adam", learning_rate=0.001).run(model, GERMAN.train, CLIENT, [0])
    guess = attack(ran.view, known, [0])
    assert guess.regime is not None
    assert guess.regime[0].startswith("not tried: a first step of Adam keeps signs, and sizes only far below")


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"epochs": 2}, "not tried: AdamW mixes the gradients of several local steps"),
        ({"clients": 2}, "not tried: AdamW's steps of several clients are added up"),
    ],
)
def test_what_of_adam_is_not_tried_is_said(options: dict[str, int], why: str) -> None:
    encoder = Encoder(DATA.schema, DATA.statistics, dtype=torch.float32)
    ran = FedAvg(2, optimizer="adamw", learning_rate=0.001, **options).run(  # pyright: ignore[reportArgumentType]
        nn3(DATA.schema, seed=0), DATA.train, encoder, [0]
    )
    known = Knowledge(DATA.schema, DATA.statistics, ran.secret.cells.shape[1])
    guess = unmix(restarts=1, iterations=2)(ran.view, known, [0])
    assert guess.regime == (why,)
    assert guess.cells.shape == ran.secret.cells.shape


@pytest.mark.long
def test_rounds_of_adam_are_matched_together() -> None:
    encoder, data = Encoder(DATA.schema, DATA.statistics, dtype=torch.float32), DATA
    models = [nn3(data.schema, seed=seed) for seed in (0, 1)]
    ran = FedAvg(2, optimizer="adam").run_rounds(models, data.train, encoder, [0])
    known = Knowledge(data.schema, data.statistics, 2)
    guess = reconstruction("default", restarts=2, iterations=200)(ran.view, known, [0])
    assert guess.cells.shape == ran.secret.cells.shape


def test_labels_behind_batch_normalisation_are_counted_by_signs() -> None:
    """A batch of one has no statistics, and so no gradient of its own."""
    encoder = Encoder(DATA.schema, DATA.statistics, dtype=torch.float32)
    ran = FedAvg(4, optimizer="adam").run(resnet_bn(DATA.schema, seed=0), DATA.train, encoder, [0])
    guess = reconstruction("default", restarts=1, iterations=2)(
        ran.view, Knowledge(DATA.schema, DATA.statistics, 4), [0]
    )
    assert guess.labels is not None
    assert guess.labels.shape == (1, 4)
