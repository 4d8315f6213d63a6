from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import Ridge
from sklearn.model_selection import LeaveOneOut, cross_val_predict

from seepage.attacks.vertical import (
    AdversarialShadowAttack,
    DataPassiveAttack,
    Ginver,
    RidgeStealth,
    StealthAttack,
    StudentAttack,
)
from seepage.baselines.vertical import Constant
from seepage.errors import BadInputError
from seepage.models import kernel_regression
from seepage.registry import attacks
from tests.attacks.vertical.parts import accuracy, setting, sureness

HERE = setting()
SEEDS = [0, 1]
GUESSING = accuracy(Constant()(HERE.seen.view, HERE.known).cells, HERE.seen)


def test_ridge_regression_is_scikit_learn_s(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(0)
    known, asked = generator.normal(size=(30, 6)), generator.normal(size=(9, 6))
    values = known @ generator.normal(size=(6, 2)) + generator.normal(size=(30, 2)) + 5
    mean, std = known.mean(0), known.std(0)
    for penalty in (0.01, 1.0):
        monkeypatch.setattr(kernel_regression, "_PENALTIES", (penalty,))
        monkeypatch.setattr(kernel_regression, "_WIDTHS", (float("inf"),))
        kernel = ((known - mean) / std) @ ((known - mean) / std).T
        fitted = Ridge(alpha=penalty * float(np.mean(np.diag(kernel)))).fit((known - mean) / std, values)
        found = kernel_regression.fitted(*(torch.tensor(one)[None] for one in (known, values, asked)))
        np.testing.assert_allclose(found.values[0].numpy(), fitted.predict((asked - mean) / std), rtol=1e-6)


@pytest.mark.long
def test_kernel_and_penalty_are_those_of_leaving_one_out() -> None:
    generator = np.random.default_rng(1)
    known, asked = generator.uniform(-2, 2, size=(40, 1)), generator.uniform(-2, 2, size=(50, 1))
    values, wanted = np.sin(2 * known), np.sin(2 * asked)
    found = kernel_regression.fitted(*(torch.tensor(one)[None] for one in (known, values, asked))).values[0].numpy()
    # No line fits a sine: the radial kernel must have won.
    assert float(np.mean((found - wanted) ** 2)) < 0.01
    scaled = (known - known.mean()) / known.std()
    apart = np.abs(scaled - scaled.T)
    errors = []
    for width in (1.0, 2.0, 4.0):
        gamma = 1 / (2 * (width * float(torch.tensor(apart).flatten().median())) ** 2)
        for penalty in kernel_regression._PENALTIES:
            model = KernelRidge(alpha=penalty, kernel="rbf", gamma=gamma)  # pyright: ignore[reportArgumentType]
            said = cross_val_predict(model, scaled, values - values.mean(), cv=LeaveOneOut())
            model.fit(scaled, values - values.mean())
            errors.append((np.mean((said - values + values.mean()) ** 2), model))
    best = min(errors, key=lambda pair: pair[0])[1]
    expected = best.predict((asked - known.mean()) / known.std()) + values.mean()
    np.testing.assert_allclose(found, expected, atol=0.02)


def test_few_leaked_records_suffice_for_a_regression() -> None:
    known = HERE.granted().only(["leaked"])
    guess = RidgeStealth()(HERE.seen.view, known, SEEDS)
    network = StealthAttack(epochs=10, steps=250)(HERE.seen.view, known, SEEDS)
    assert accuracy(guess.cells, HERE.seen) > GUESSING + 0.3
    assert accuracy(guess.cells, HERE.seen) > accuracy(network.cells, HERE.seen) - 0.05


def test_what_was_left_out_is_what_a_fit_without_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(3)
    known, values = (torch.randn(1, 9, width, generator=generator).double() for width in (4, 2))
    monkeypatch.setattr(kernel_regression, "_PENALTIES", (0.1,))
    monkeypatch.setattr(kernel_regression, "_WIDTHS", (float("inf"),))
    found = kernel_regression.fitted(known, values, known)
    # By hand: the same penalty and the same scaling, without one record.
    scaled = ((known - known.mean(1, keepdim=True)) / known.std(1, keepdim=True, correction=0))[0]
    penalty = 0.1 * float((scaled @ scaled.T).diagonal().mean())
    for i in range(9):
        rest = [k for k in range(9) if k != i]
        fit = Ridge(alpha=penalty).fit(scaled[rest].numpy(), values[0, rest].numpy())
        np.testing.assert_allclose(found.left_out[0, i].numpy(), fit.predict(scaled[[i]].numpy())[0], rtol=1e-6)


def test_a_regression_says_how_sure_it_is() -> None:
    known = HERE.granted().only(["leaked"])
    guess = RidgeStealth()(HERE.seen.view, known, SEEDS)
    assert guess.radii is not None
    for sure, right in sureness(guess, HERE.seen):
        assert abs(sure - right) < 0.15
    inside = (guess.cells[..., 2] - HERE.seen.cells[..., 2]).abs() <= guess.radii[:, 2, None]
    # Nine in ten, as far as 64 records left out in turn can tell.
    assert 0.75 < float(inside.double().mean()) <= 1


@pytest.mark.long
def test_the_student_needs_no_shadow_and_beats_its_teacher_s_information() -> None:
    attack = StudentAttack(epochs=20, student_epochs=20)
    known = HERE.granted().only(["auxiliary"])
    guess = attack(HERE.seen.view, known, SEEDS)
    shadow = attacks.create("uifv_dpa", epochs=10, steps=250, shadow_epochs=10, hidden=(32,))
    honest = shadow(HERE.seen.view, known, SEEDS)
    assert accuracy(guess.cells, HERE.seen) > accuracy(honest.cells, HERE.seen) + 0.05
    assert accuracy(guess.cells, HERE.seen) > GUESSING
    with pytest.raises(BadInputError, match="records whose labels"):
        attack(replace(HERE.seen.view, earlier=None), known, SEEDS)


@pytest.mark.long
@pytest.mark.parametrize("valid", [False, True])
def test_a_known_bottom_model_is_inverted(valid: bool) -> None:
    known = HERE.granted().only(["bottom"])
    assert accuracy(Ginver(valid=valid, steps=400)(HERE.seen.view, known, SEEDS).cells, HERE.seen) > GUESSING + 0.2


@pytest.mark.parametrize("name", ["ridge_sa", "student_dpa", "ginver"])
def test_what_an_attack_needs_is_asked_for(name: str) -> None:
    with pytest.raises(BadInputError, match="needs"):
        attacks.create(name)(HERE.seen.view, HERE.known.only([]), SEEDS)
    if name == "ginver":
        for wrong in ({"steps": 0}, {"learning_rate": 0.0}):
            with pytest.raises(BadInputError):
                attacks.create(name, **wrong)


@pytest.mark.slow
def test_an_adversary_makes_a_shadow_s_features_look_like_the_target_s() -> None:
    known = HERE.granted()
    options: dict[str, Any] = {"shadow_epochs": 60, "steps": 200, "epochs": 10, "hidden": (32,)}

    def apart(attack: DataPassiveAttack) -> tuple[float, float]:
        fitted = attack.fit_shadow(HERE.seen.view, known, [0, 1])
        rows = known.auxiliary
        assert rows is not None
        made = fitted.shadow(fitted.inverse.encoder.encode(rows.cells))
        received = HERE.seen.view.received
        guess = fitted.guess(HERE.seen.view)
        return float((made.mean(1) - received.mean(1)).norm()), accuracy(guess.cells, HERE.seen)

    far, alone = apart(DataPassiveAttack(**options))
    near, right = apart(AdversarialShadowAttack(**options))
    assert near < far / 2
    assert right > alone + 0.1
    with pytest.raises(BadInputError, match="a number from 0 up, got weight=-1"):
        AdversarialShadowAttack(weight=-1)
