from __future__ import annotations

from typing import Literal

import pytest
import torch

from seepage.baselines.vertical import Constant, UniformRows
from seepage.errors import BadInputError
from seepage.papers.uifv.attacks.white_box import Generator, GradientInversion
from seepage.registry import attacks
from tests.attacks.vertical.parts import accuracy, setting

HERE = setting()
SEEDS = [0, 1]
GUESSING = accuracy(Constant()(HERE.seen.view, HERE.known).cells, HERE.seen)


@pytest.mark.parametrize("valid", [False, True])
def test_a_known_bottom_model_is_inverted(valid: bool) -> None:
    known = HERE.granted().only(["bottom"])
    matched = GradientInversion(match="features", valid=valid, steps=150, learning_rate=0.05)
    assert accuracy(matched(HERE.seen.view, known, SEEDS).cells, HERE.seen) > GUESSING + 0.3


def test_a_prediction_says_less_than_features() -> None:
    known = HERE.granted().only(["bottom"])
    matches: tuple[Literal["features", "prediction"], ...] = ("features", "prediction")
    said = []
    for match in matches:
        attack = GradientInversion(match=match, valid=True, steps=150, learning_rate=0.05)
        said.append(accuracy(attack(HERE.seen.view, known, SEEDS).cells, HERE.seen))
    assert said[1] < said[0] - 0.2


def test_the_generator_makes_the_model_predict_what_it_did() -> None:
    known = HERE.granted().only(["bottom"])
    attack = Generator(steps=400, hidden=(50,), learning_rate=0.01, valid=True)
    guess = attack(HERE.seen.view, known, SEEDS)
    assert guess.failed is not None
    assert not bool(guess.failed.any())
    assert guess.cells.shape == HERE.seen.cells.shape
    view = HERE.seen.view
    wanted = view.model.top(torch.cat(list(view.features), dim=-1)).detach()
    bottom = HERE.trained.model.bottoms[1]
    encoder = HERE.trained.model.encoders[1]

    def apart(cells: torch.Tensor) -> float:
        sent = bottom(encoder.encode(cells)).detach()
        again = view.model.top(torch.cat([view.features[0], sent], dim=-1)).detach()
        return float((again.sigmoid() - wanted.sigmoid()).square().mean())

    assert apart(guess.cells) < apart(UniformRows()(view, known, SEEDS).cells)


@pytest.mark.parametrize("name", ["gia", "grn"])
def test_what_an_attack_needs_is_asked_for(name: str) -> None:
    with pytest.raises(BadInputError, match="needs"):
        attacks.create(name)(HERE.seen.view, HERE.known.only([]), SEEDS)
    for wrong in ({"steps": 0}, {"learning_rate": 0.0}):
        with pytest.raises(BadInputError):
            attacks.create(name, **wrong)
