"""FSHA's decoder and UnSplit's descent, against planted cells and against guessing."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from seepage.attacks.split import FSHA, UnSplit
from seepage.defenses.cut_noise import CutNoise
from seepage.errors import BadInputError
from seepage.models.deepfm import DeepFMClient
from seepage.wire.split import Auxiliary, CutKnowledge
from tests.attacks.split.test_exact import PLAIN, exchange, table

DATA = table(2, rows=600)
OTHERS = DATA.train.rows(range(100, 600))
KNOWN = CutKnowledge(DATA.schema, DATA.statistics, auxiliary=Auxiliary(OTHERS.cells, OTHERS.labels))


def right(guess, seen) -> list[float]:
    return (guess.cells == seen.cells).double().mean(0).tolist()


@pytest.mark.long
def test_a_decoder_reads_more_than_the_commonest_values_and_noise_takes_it_away() -> None:
    _, seen = exchange(DATA, PLAIN, records=100)
    commonest = [float((column[:, None] == column).double().mean(0).max()) for column in seen.cells.T]
    guess = FSHA(epochs=25)(seen.view, KNOWN, seeds=[0])
    assert float((guess.labels == seen.labels).double().mean()) > 0.97
    assert sum(right(guess, seen)) > sum(commonest) + 0.3
    again = FSHA(epochs=25)(seen.view, KNOWN, seeds=[0])
    assert torch.equal(again.cells, guess.cells)
    loud = replace(PLAIN, noise=CutNoise(20.0))
    _, hidden = exchange(DATA, loud, records=100)
    blind = FSHA(epochs=25)(hidden.view, replace(KNOWN, defense=loud.known()), seeds=[0])
    assert sum(right(blind, hidden)) < sum(right(guess, seen))
    assert guess.chances is not None
    assert all(bool(torch.isclose(one.sum(1), torch.ones(100, dtype=one.dtype)).all()) for one in guess.chances)


@pytest.mark.long
def test_a_descent_with_the_weights_finds_cells_and_one_without_them_hardly_does() -> None:
    _, seen = exchange(DATA, PLAIN, records=60)
    granted = UnSplit(weights="granted", rounds=15)(seen.view, KNOWN, seeds=[0])
    cloned = UnSplit(rounds=3, steps=10)(seen.view, KNOWN, seeds=[0])
    assert sum(right(granted, seen)) > sum(right(cloned, seen)) + 0.3
    assert float((granted.labels == seen.labels).double().mean()) > 0.9
    same = UnSplit(rounds=3, steps=10)(seen.view, KNOWN, seeds=[0])
    assert torch.equal(same.cells, cloned.cells)


def test_mixtures_of_one_value_are_that_value() -> None:
    model, seen = exchange(DATA, PLAIN, records=20)
    client = model.client
    assert isinstance(client, DeepFMClient)
    codes = seen.cells.long()
    shares = [torch.nn.functional.one_hot(codes[:, i], width).float() for i, width in enumerate((3, 4, 2))]
    expected = client(seen.view.cut, model.scaled(DATA.train.rows(range(20)).cells, model.private))
    torch.testing.assert_close(client.relaxed(seen.view.cut, shares), expected)


def test_what_they_cannot_use_is_refused() -> None:
    _, seen = exchange(DATA, PLAIN, records=4)
    with pytest.raises(BadInputError, match="the attacker holds none; grant some"):
        FSHA()(seen.view, CutKnowledge(DATA.schema, DATA.statistics))
    _, numbers = exchange(DATA, PLAIN, private=("a", "n"), records=4)
    with pytest.raises(BadInputError, match="a, n private; use exact"):
        UnSplit()(numbers.view, KNOWN)
