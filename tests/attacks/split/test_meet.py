"""Meeting in the middle, against planted cells and against going through everything."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from seepage.attacks.split import Exact
from seepage.attacks.split.parts.messages import logits_and_derivatives
from seepage.defenses.cut_noise import CutNoise
from seepage.errors import BadInputError
from seepage.models.deepfm import deepfm
from seepage.protocols.split import SplitLearning
from seepage.wire.secret import CutTranscript
from seepage.wire.split import CutKnowledge
from tests.attacks.split.test_exact import PLAIN, exchange, table

PRIVATE = tuple("abcdefgh")
WIDE = dict.fromkeys(PRIVATE, 9) | {"s": 5, "u": 4}


def wide_exchange(records: int) -> tuple[CutKnowledge, CutTranscript]:
    data = table(2, rows=600, widths=WIDE)
    model = deepfm(data.schema, PRIVATE, seed=0, hidden=(64, 32))
    trained = SplitLearning(epochs=4, batch_size=32).train(model, data.train, seed=0)
    seen = SplitLearning().observe(trained, data.train.rows(range(records)), seed=1)
    return CutKnowledge(data.schema, data.statistics), seen


@pytest.mark.long
def test_planted_cells_of_many_millions_of_configurations_are_found_and_proven() -> None:
    known, seen = wide_exchange(10)
    with pytest.raises(BadInputError, match="86,093,442 configurations"):
        Exact()(seen.view, known)
    guess = Exact(search="meet")(seen.view, known, seeds=[0])
    right = (guess.cells == seen.cells).all(1) & (guess.labels == seen.labels)
    assert guess.likely is not None
    assert int((right & guess.likely).sum()) >= 9
    assert bool((right | ~guess.likely).all())
    assert guess.residual is not None
    assert guess.runner_up is not None
    assert bool((guess.residual < guess.runner_up).all())
    again = Exact(search="meet")(seen.view, known, seeds=[0])
    assert torch.equal(again.cells, guess.cells)


@pytest.mark.long
def test_it_says_what_going_through_everything_says() -> None:
    data = table(2)
    _, seen = exchange(data, PLAIN, records=20)
    known = CutKnowledge(data.schema, data.statistics)
    met, gone = (Exact(search=search)(seen.view, known, seeds=[0]) for search in ("meet", "exhaustive"))
    assert torch.equal(met.cells, gone.cells)
    assert torch.equal(met.labels, gone.labels)
    assert met.residual is not None
    assert gone.residual is not None
    torch.testing.assert_close(met.residual, gone.residual, rtol=0, atol=1e-6)


def test_nothing_is_proven_where_nothing_fits() -> None:
    known, seen = wide_exchange(2)
    noise = torch.randn(seen.view.gradient.shape, generator=torch.Generator().manual_seed(0))
    wrong = replace(seen.view, gradient=seen.view.gradient * (1 + 0.2 * noise))
    guess = Exact(search="meet", rounds=3)(wrong, known)
    assert guess.likely is not None
    assert not bool(guess.likely.any())


def test_the_logit_and_its_derivatives_are_those_of_the_network() -> None:
    data = table(2)
    model, seen = exchange(data, PLAIN, records=20)
    cut = seen.view.cut.clone().requires_grad_(True)
    logits = model.client(cut, model.scaled(data.train.rows(range(20)).cells, model.private))[:, 0]
    [derivatives] = torch.autograd.grad(logits.sum(), cut)
    additive = model.client.additive
    assert isinstance(additive, int)
    found = logits_and_derivatives(seen.view.own_gradient, additive)
    torch.testing.assert_close(found[0], logits.detach(), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(found[1], derivatives, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("private", "options", "noise", "said"),
    [
        (("a", "b"), {"logit": False}, None, "one logit, and embeddings of the server's"),
        (("a", "b"), {"tower": (8,)}, None, "one logit, and embeddings of the server's"),
        (("a", "b", "c", "s"), {}, None, "one logit, and embeddings of the server's"),
        (("a", "b"), {}, CutNoise(0.1), "noise multiplier 0.1"),
    ],
)
def test_what_it_cannot_read_is_refused(private: tuple[str, ...], options: dict, noise: CutNoise, said: str) -> None:
    data = table(2)
    protocol = replace(PLAIN, noise=noise)
    _, seen = exchange(data, protocol, private=private, records=4, **options)
    with pytest.raises(BadInputError, match=said):
        Exact(search="meet")(seen.view, CutKnowledge(data.schema, data.statistics, protocol.known()))


def test_who_knows_of_a_defense_that_changes_nothing_reads_as_without() -> None:
    data = table(2)
    _, seen = exchange(data, PLAIN, private=("a", "b"), records=2)
    known = CutKnowledge(data.schema, data.statistics)
    aware, unaware = (Exact(search="meet", aware=aware)(seen.view, known) for aware in (True, False))
    assert torch.equal(aware.cells, unaware.cells)
    assert torch.equal(aware.cells, seen.cells)


def test_several_classes_are_refused() -> None:
    data = table(3)
    _, seen = exchange(data, PLAIN, records=4)
    with pytest.raises(BadInputError, match="one logit"):
        Exact(search="meet")(seen.view, CutKnowledge(data.schema, data.statistics))
