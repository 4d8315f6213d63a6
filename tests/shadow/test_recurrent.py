"""Stacked recurrent networks against PyTorch's own, one at a time."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

from seepage.errors import BadInputError
from seepage.shadow.recurrent import Recurrent, StackedRecurrent


def texts(count: int = 40, positions: int = 6, words: int = 12) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    drawn = torch.randint(1, words, (count, positions), generator=generator)
    length = torch.randint(1, positions + 1, (count, 1), generator=generator)
    return torch.where(torch.arange(positions) < length, drawn, 0)


def vectors(words: int = 12, width: int = 5) -> Tensor:
    return torch.randn(words, width, generator=torch.Generator().manual_seed(1))


def one_by_one(models: StackedRecurrent, number: int, words: Tensor) -> Tensor:
    """Return a model's logits by ``nn.LSTM`` on packed texts."""
    units = models.onward.shape[2]
    lstm = nn.LSTM(models.vectors.shape[1], units, batch_first=True, bidirectional=True)
    for direction, suffix in enumerate(("", "_reverse")):
        values = {
            "weight_ih": models.inward[number, direction].T,
            "weight_hh": models.onward[number, direction].T,
            "bias_ih": models.inward_bias[number, direction],
            "bias_hh": torch.zeros(4 * units),
        }
        for name, value in values.items():
            getattr(lstm, f"{name}_l0{suffix}").data = value.detach().clone()
    length = (words > 0).sum(1)
    packed = pack_padded_sequence(models.vectors[words], length, batch_first=True, enforce_sorted=False)
    _, (last, _) = lstm(packed)
    dense = (torch.cat([last[0], last[1]], dim=1) @ models.dense[number] + models.dense_bias[number]).relu()
    return dense @ models.out[number] + models.out_bias[number]


def test_all_models_read_texts_as_pytorchs_own_layer_does() -> None:
    models, _ = Recurrent(3, vectors(), units=4, dense=7).initial([3, 4, 5])
    words = texts()
    found = models.logits(words.expand(3, *words.shape))
    for number in range(3):
        torch.testing.assert_close(found[number], one_by_one(models, number, words), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(models.answers(words), torch.softmax(found, dim=2), rtol=1e-4, atol=1e-5)


def test_a_model_is_the_same_whichever_are_trained_beside_it() -> None:
    words = texts(60)
    labels = (words == 3).any(1).long()
    chosen = torch.stack([torch.arange(40), torch.arange(20, 60)])
    recipe = Recurrent(2, vectors(), units=4, dense=4, epochs=2, batch_size=16)
    both = recipe.train(words, labels, chosen, [1, 2])
    alone = recipe.train(words, labels, chosen[1:], [2])
    torch.testing.assert_close(both.flat()[1], alone.flat()[0], rtol=1e-3, atol=1e-5)
    assert not torch.equal(both.flat()[0], both.flat()[1])


@pytest.mark.long
def test_a_word_that_decides_is_learnt() -> None:
    words = texts(300)
    labels = (words == 3).any(1).long()
    recipe = Recurrent(2, vectors(), units=8, dense=8, epochs=25, batch_size=32, learning_rate=0.02)
    models = recipe.train(words[:200], labels[:200], torch.arange(200)[None], [0])
    assert (models.answers(words[200:]).argmax(2)[0] == labels[200:]).double().mean() > 0.9


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"dropout": 1.0}, "dropout"),
        ({"units": 0}, "units"),
        ({"classes": 1}, "two classes"),
        ({"learning_rate": 0}, "above"),
    ],
)
def test_recipes_that_cannot_be_followed_are_refused(settings: dict[str, float], said: str) -> None:
    with pytest.raises(BadInputError, match=said):
        Recurrent(**{"classes": 2, "vectors": vectors(), **settings})  # pyright: ignore[reportArgumentType]


def test_words_without_a_vector_are_refused() -> None:
    with pytest.raises(BadInputError, match="numbers from 0 to 11"):
        Recurrent(2, vectors(), epochs=1).train(texts() + 1, torch.zeros(40).long(), torch.arange(40)[None], [0])
