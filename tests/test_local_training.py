from __future__ import annotations

import json
from dataclasses import replace

import pytest

from seepage.errors import BadInputError
from seepage.learning import LocalTraining

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
