from __future__ import annotations

import pytest
import torch

from seepage.errors import BadInputError
from seepage.shadow import stacked
from seepage.shadow.stacked import Dense
from tests.oracles.pooled import one_after_another


def rows(seed: int = 0, count: int = 60, width: int = 5, classes: int = 3) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(count, width, generator=generator)
    return inputs, (inputs[:, 0] + 0.3 * torch.randn(count, generator=generator)).argsort().argsort() * classes // count


def lines(models: int = 4, trained: int = 23, count: int = 60) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.stack([torch.randperm(count, generator=generator)[:trained] for _ in range(models)])


RECIPES = [
    Dense(3, epochs=4, batch_size=8),
    Dense(3, (6,), epochs=3, batch_size=7),
    Dense(3, (6, 4), epochs=3, batch_size=None, weight_decay=0.1),
    Dense(3, epochs=2, batch_size=8, clip=0.3),
    Dense(3, (6,), epochs=2, batch_size=8, clip=0.5),
]


@pytest.mark.parametrize("recipe", RECIPES)
def test_models_trained_at_once_are_those_trained_one_after_another(recipe: Dense) -> None:
    inputs, labels = rows()
    seeds = [3, 1, 4, 1]
    models = recipe.train(inputs, labels, lines(), seeds)
    singles = one_after_another(recipe, inputs, labels, lines(), seeds)
    expected = torch.stack([torch.softmax(single(inputs), dim=1) for single in singles]).detach()
    torch.testing.assert_close(models.answers(inputs), expected, rtol=1e-4, atol=1e-5)
    weights = torch.stack([torch.cat([p.detach().flatten() for p in single.parameters()]) for single in singles])
    torch.testing.assert_close(models.flat(), weights, rtol=1e-3, atol=1e-4)


def test_a_model_is_the_same_whichever_are_trained_beside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    inputs, labels = rows()
    recipe = RECIPES[1]
    whole = recipe.train(inputs, labels, lines(), [0, 1, 2, 3])
    alone = recipe.train(inputs, labels, lines()[2:3], [2])
    torch.testing.assert_close(whole.of(slice(2, 3)).flat(), alone.flat(), rtol=1e-4, atol=1e-6)
    monkeypatch.setattr(stacked, "CHUNK_BYTES", 1)
    torch.testing.assert_close(recipe.train(inputs, labels, lines(), [0, 1, 2, 3]).flat(), whole.flat())


def test_noise_has_the_size_it_is_given() -> None:
    inputs, labels = rows()
    # One step of Adam from zero moments moves each weight by the learning rate; the gradient itself shows in the sign,
    # so that the share of signs which noise turns over is what the normal distribution says.
    many = torch.zeros(4000, 10, dtype=torch.long)
    plain = Dense(3, epochs=1, batch_size=None, clip=1e-9, noise=0.0, weight_decay=0)
    first, _ = plain.initial(5, range(4000))
    noisy = Dense(3, epochs=1, batch_size=None, clip=1e-2, noise=1.0, weight_decay=0)
    moved = (noisy.train(inputs, labels, many, range(4000)).flat() - first.flat()).sign()
    steady = (plain.train(inputs, labels, many, range(4000)).flat() - first.flat()).sign()
    assert float((steady.mean(0).abs() > 0.5).double().mean()) > 0.5
    # The clipped mean gradient has norm 1e-2 over 18 numbers, the noise a deviation of 1e-3 on each.
    assert 0.6 < float((moved == steady).double().mean()) < 1.0


def test_seeds_tell_models_apart() -> None:
    inputs, labels = rows()
    same = lines()[:1].expand(2, -1)
    models = RECIPES[0].train(inputs, labels, same, [0, 1])
    assert not torch.equal(models.flat()[0], models.flat()[1])


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda: Dense(1), "at least two classes"),
        (lambda: Dense(2, epochs=0), "epochs=0"),
        (lambda: Dense(2, noise=1.0), "clip"),
        (lambda: Dense(2, learning_rate=0), "learning_rate=0"),
        (lambda: Dense(2, weight_decay=-1), "weight_decay=-1"),
        (lambda: Dense(2).train(*rows(), lines(), [0, 1, 2, 3]), "0 to 1, got 0 to 2"),
        (lambda: Dense(3).train(*rows(), lines(), [0]), "as many seeds, got 1"),
        (lambda: Dense(3).train(*rows(), lines() + 50, [0, 1, 2, 3]), "rows 0 to 59"),
        (lambda: Dense(3).train(rows()[0][:5], rows()[1], lines(), [0, 1, 2, 3]), "5 rows came with 60 labels"),
        (lambda: Dense(3).train(rows()[0] * torch.nan, rows()[1], lines(), [0, 1, 2, 3]), "not finite"),
    ],
)
def test_what_cannot_be_trained_is_refused(made, said: str) -> None:
    with pytest.raises(BadInputError, match=said):
        made()
