from __future__ import annotations

import copy
import json
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from seepage.errors import BadInputError
from seepage.learning import LocalTraining, local_update, mean_loss
from seepage.models.model import Model
from seepage.seeds import seeded
from tests.roundings import assert_rounded_alike

ADAM = LocalTraining(2, 4, 0.001, optimizer="adam", betas=(0.8, 0.99), epsilon=1e-7, schedule="cosine")
SGD = LocalTraining(3, 4, 0.1, momentum=0.9, nesterov=True, weight_decay=0.01, accumulation=2, drop_last=True)


@pytest.mark.parametrize("training", [ADAM, SGD, LocalTraining(1, 1, 1)])
def test_settings_survive_json(training: LocalTraining) -> None:
    assert LocalTraining.of_plain(json.loads(json.dumps(training.to_plain()))) == training


def test_only_counts_and_rate_are_needed() -> None:
    plain = {"epochs": 2, "batch_size": 3, "learning_rate": 0.5}
    assert LocalTraining.of_plain(plain) == LocalTraining(2, 3, 0.5)
    with pytest.raises(BadInputError, match="needs learning_rate"):
        LocalTraining.of_plain({"epochs": 2, "batch_size": 3})
    with pytest.raises(BadInputError, match="did you mean 'momentum'"):
        LocalTraining.of_plain({**plain, "momentun": 0.9})


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"momentum": 1.0}, "momentum=1.0"),
        ({"weight_decay": -0.1}, "weight_decay=-0.1"),
        ({"optimizer": "adam", "betas": (0.9, 1.0)}, r"betas=\(0.9, 1.0\)"),
        ({"optimizer": "adam", "epsilon": float("nan")}, "epsilon=nan"),
        ({"schedule": "step", "rate_factor": 0}, "rate_factor=0"),
        ({"schedule": "step", "rate_every": 0}, "rate_every=0"),
        ({"accumulation": 0}, "accumulation=0"),
        ({"nesterov": True}, "give one, such as momentum=0.9"),
        ({"optimizer": "adamw", "momentum": 0.9}, "momentum is a setting of sgd"),
        ({"betas": (0.8, 0.9)}, "betas is a setting of adam and adamw"),
        ({"rate_factor": 0.5}, "rate_factor is a setting of step and exponential"),
    ],
)
def test_settings_that_cannot_be_used_are_refused(options: dict[str, object], said: str) -> None:
    with pytest.raises(BadInputError, match=said):
        LocalTraining.of_plain({"epochs": 1, "batch_size": 1, "learning_rate": 0.1, **options})


def test_only_plain_sgd_is_plain() -> None:
    assert LocalTraining(3, 4, 0.1, drop_last=True).plain
    others = (ADAM, SGD, LocalTraining(1, 4, 0.1, schedule="step"), LocalTraining(1, 4, 0.1, weight_decay=0.1))
    assert not any(training.plain for training in others)


def test_batches_are_grouped_epoch_by_epoch() -> None:
    uneven = LocalTraining(2, 4, 0.1, accumulation=2)
    assert uneven.groups(9) == [[slice(0, 4), slice(4, 8)], [slice(8, 9)]]
    assert (uneven.steps(9), replace(uneven, drop_last=True).steps(9)) == (4, 2)
    with pytest.raises(BadInputError, match="drop_last=False"):
        SGD.batches(3)


def test_rates_follow_their_schedule() -> None:
    training = LocalTraining(4, 2, 0.8, schedule="step", rate_factor=0.5, rate_every=3)
    assert training.rates(2) == [0.8, 0.8, 0.8, 0.4]
    assert LocalTraining(3, 2, 0.8, schedule="exponential", rate_factor=0.5).rates(2) == [0.8, 0.4, 0.2]
    assert LocalTraining(2, 2, 0.8, schedule="cosine").rates(2) == [0.8, 0.4]
    assert LocalTraining(2, 2, 0.8).rates(4) == [0.8] * 4


def test_directions_of_sgd_enter_the_update_by_their_factors() -> None:
    assert LocalTraining(2, 8, 1.0, momentum=0.5).factors(records=8) == [1.5, 1.0]
    assert LocalTraining(2, 8, 1.0, momentum=0.5, nesterov=True).factors(records=8) == [1.75, 1.5]
    with pytest.raises(BadInputError, match="of SGD alone"):
        ADAM.factors(8)


def test_training_is_described_by_what_differs_from_plain_sgd() -> None:
    nesterov = LocalTraining(1, 8, 0.01, momentum=0.9, nesterov=True)
    assert nesterov.describe() == "SGD at a learning rate of 0.01, momentum 0.9 (Nesterov)"
    words = "Adam at a learning rate of 0.001 (cosine), betas 0.9 and 0.999, epsilon 1e-08"
    assert LocalTraining(1, 8, 0.001, "adam", schedule="cosine").describe() == words


def trained_by_torch(model: Model, rows: Tensor, labels: Tensor, training: LocalTraining) -> dict[str, Tensor]:
    """Return the change of the real module's parameters by ``torch.optim`` on rows (epoch, record, encoded)."""
    module = copy.deepcopy(model.module)
    if training.optimizer == "sgd":
        optimiser: torch.optim.Optimizer = torch.optim.SGD(
            module.parameters(),
            lr=training.learning_rate,
            momentum=training.momentum,
            nesterov=training.nesterov,
            weight_decay=training.weight_decay,
        )
    else:
        kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[training.optimizer]
        optimiser = kind(
            module.parameters(),
            lr=training.learning_rate,
            betas=training.betas,
            eps=training.epsilon,
            weight_decay=training.weight_decay,
        )
    steps = training.steps(rows.shape[1])
    schedule = {
        "constant": lambda: torch.optim.lr_scheduler.ConstantLR(optimiser, factor=1.0),
        "step": lambda: torch.optim.lr_scheduler.StepLR(optimiser, training.rate_every, training.rate_factor),
        "exponential": lambda: torch.optim.lr_scheduler.ExponentialLR(optimiser, training.rate_factor),
        "cosine": lambda: torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps),
    }[training.schedule]()
    for one, told in zip(rows, labels, strict=True):
        parts = list(zip(one.split(training.batch_size), told.split(training.batch_size), strict=True))
        if training.drop_last and len(parts[-1][0]) < training.batch_size:
            parts.pop()
        for i, (x, y) in enumerate(parts):
            (mean_loss(model.head, module(x), y) / training.accumulation).backward()
            if (i + 1) % training.accumulation == 0 or i + 1 == len(parts):
                optimiser.step()
                schedule.step()
                optimiser.zero_grad()
    now = dict(module.named_parameters())
    return {name: p.detach() - now[name].detach() for name, p in model.parameters.items()}


def clients(dtype: torch.dtype, epochs: int, records: int = 10) -> tuple[Model, Tensor, Tensor]:
    def make() -> nn.Module:
        return nn.Sequential(nn.Linear(6, 9), nn.ReLU(), nn.Linear(9, 7), nn.ReLU(), nn.Linear(7, 3))

    generator = torch.Generator().manual_seed(3)
    rows = torch.randn(2, epochs, records, 6, generator=generator, dtype=dtype)
    labels = torch.randint(3, (2, epochs, records), generator=generator).to(dtype)
    return Model(seeded(make, seed=1).to(dtype), "softmax", "mine"), rows, labels


TRAININGS = {
    "momentum": LocalTraining(1, 10, 0.1, momentum=0.9),
    "decay": LocalTraining(1, 10, 0.1, weight_decay=0.01),
    "nesterov": LocalTraining(4, 10, 0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
    "adam": LocalTraining(1, 10, 0.01, "adam"),
    "adam of several steps": LocalTraining(4, 10, 0.01, "adam", betas=(0.8, 0.95), epsilon=1e-4),
    "adam with decay": LocalTraining(2, 4, 0.01, "adam", weight_decay=0.1),
    "adamw": LocalTraining(3, 4, 0.01, "adamw", weight_decay=0.1, drop_last=True),
    "step": LocalTraining(3, 4, 0.1, schedule="step", rate_factor=0.5, rate_every=2),
    "exponential": LocalTraining(3, 4, 0.1, momentum=0.5, schedule="exponential", rate_factor=0.7),
    "cosine": LocalTraining(3, 4, 0.01, "adam", schedule="cosine"),
    "accumulated": LocalTraining(2, 3, 0.1, momentum=0.9, accumulation=3),
    "accumulated and dropped": LocalTraining(2, 3, 0.1, accumulation=2, drop_last=True),
    "plain": LocalTraining(3, 4, 0.1),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", TRAININGS)
def test_clients_end_where_the_optimisers_of_torch_do(name: str, dtype: torch.dtype) -> None:
    training = TRAININGS[name]
    model, rows, labels = clients(dtype, training.epochs)
    found = local_update(model, rows, labels, training)
    # In each step, either side rounds the parameter once, and its gradient as a sum of up to ten terms a layer.
    # Parameters are below 1, and a step is at most a tenth of a gradient: eight roundings of a number of 1.
    roundings = 8 * training.steps(rows.shape[2])
    for client in range(2):
        for key, tensor in trained_by_torch(model, rows[client], labels[client], training).items():
            assert_rounded_alike(found[key][client], tensor, roundings, scale=1.0, what=key)


@pytest.mark.parametrize("name", TRAININGS)
def test_updates_can_be_derived_by_their_rows(name: str) -> None:
    # Adam's epsilon hides the derivative of large entries from finite differences; a large one does not.
    training = TRAININGS[name]
    if training.optimizer != "sgd":
        training = replace(training, epsilon=0.1)
    model, rows, labels = clients(torch.float64, training.epochs)
    generator = torch.Generator().manual_seed(0)
    weights = {n: torch.randn(p.shape, generator=generator).double() for n, p in model.parameters.items()}

    def moved(at: Tensor) -> Tensor:
        update = local_update(model, at, labels, training)
        return torch.stack([(update[n] * w).sum() for n, w in weights.items()]).sum()

    along = torch.randn(rows.shape, generator=generator).double()
    at = rows.clone().requires_grad_()
    (derivative,) = torch.autograd.grad(moved(at), at)
    difference = (moved(rows + 1e-6 * along) - moved(rows - 1e-6 * along)) / 2e-6
    torch.testing.assert_close((derivative * along).sum(), difference, rtol=1e-5, atol=1e-9)
    if training.drop_last:
        left_out = rows.shape[2] % training.batch_size
        assert not derivative[:, :, -left_out:].any()


def test_units_that_no_record_activates_leave_derivatives_finite() -> None:
    model, rows, labels = clients(torch.float64, 2)
    with torch.no_grad():
        list(model.parameters.values())[1][:4] = -100.0
    at = rows.requires_grad_()
    update = local_update(model, at, labels, LocalTraining(2, 4, 0.01, "adam"))
    (derivative,) = torch.autograd.grad(torch.stack([u.square().sum() for u in update.values()]).sum(), at)
    assert bool(derivative.isfinite().all())
    assert not update["0.weight"][:, :4].any()


def test_epochs_of_another_training_are_refused() -> None:
    model, rows, labels = clients(torch.float64, 2)
    with pytest.raises(BadInputError, match="has 3 epochs, got the records of 2"):
        local_update(model, rows, labels, LocalTraining(3, 4, 0.1))
