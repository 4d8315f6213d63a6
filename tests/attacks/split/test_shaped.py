"""The posterior against defenses whose noise follows from the gradients of a batch."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from seepage.attacks.split import Exact, Posterior
from seepage.defenses.cut_noise import CutNoise
from seepage.defenses.marvell import Marvell
from seepage.defenses.returned import BatchDefense, MaxNorm
from seepage.errors import BadInputError
from seepage.protocols.split import SplitLearning
from seepage.settings.split.audit import SplitAudit
from seepage.settings.split.spec import SplitSpec
from seepage.wire.secret import CutTranscript
from seepage.wire.split import CutGuess, CutKnowledge
from tests.attacks.split.test_exact import PLAIN, exchange, table

DATA = table(2, rows=900)


def attacked(defense: BatchDefense) -> tuple[SplitLearning, CutTranscript, CutKnowledge]:
    protocol = replace(PLAIN, returned=defense, batch_size=150)
    _, seen = exchange(DATA, protocol, private=("a", "c"), records=150)
    return protocol, seen, CutKnowledge(DATA.schema, DATA.statistics, protocol.known())


def right(guess: CutGuess, seen: CutTranscript) -> tuple[float, float]:
    cells = (guess.cells == seen.cells).double().mean()
    return float(cells), float((guess.labels == seen.labels).double().mean())


def test_noise_along_gradients_hides_no_private_cell_from_who_knows_it() -> None:
    _, seen, known = attacked(MaxNorm())
    prior, _ = right(Posterior(observed=False)(seen.view, known), seen)
    unaware, _ = right(Exact()(seen.view, known), seen)
    cells, labels = right(Posterior()(seen.view, known), seen)
    assert cells > 0.95
    assert cells > max(prior, unaware) + 0.2
    assert labels > 0.8


def test_noise_along_the_difference_of_means_is_looked_past() -> None:
    _, seen, known = attacked(Marvell(0.1))
    _, prior = right(Posterior(observed=False)(seen.view, known), seen)
    _, unaware = right(Exact()(seen.view, known), seen)
    _, labels = right(Posterior()(seen.view, known), seen)
    assert labels > max(prior, unaware) + 0.1


def test_each_client_s_batch_has_noise_of_its_own() -> None:
    protocol = replace(PLAIN, returned=MaxNorm(), rows_each=10, clients=4)
    _, seen = exchange(DATA, protocol, private=("a", "c"), records=30)
    plain = replace(protocol, returned=None)
    _, bare = exchange(DATA, plain, private=("a", "c"), records=30)
    assert seen.view.cut.shape == bare.view.cut.shape
    # The longest gradient of a client's batch is sent as it is.
    trained = protocol.train(bare.view.model, DATA.train, seed=3)
    rows = DATA.train.rows(range(30))
    sent, own = (one.observe(trained, rows, seed=5).view.own_gradient for one in (protocol, plain))
    for start in (0, 10, 20):
        some = slice(start, start + 10)
        longest = int(own[some].norm(dim=1).argmax()) + start
        torch.testing.assert_close(sent[longest], own[longest], rtol=1e-5, atol=1e-7)
        assert float((sent[some] - own[some]).norm()) > 0.01 * float(own[some].norm())


def test_what_reads_gradients_as_they_are_says_so() -> None:
    _, seen, known = attacked(MaxNorm())
    with pytest.raises(BadInputError, match="clients add the noise of max_norm"):
        Posterior(weights="about")(seen.view, known)
    with pytest.raises(BadInputError, match="clients add the noise of max_norm"):
        Exact(search="meet")(seen.view, known)
    with pytest.raises(BadInputError, match="gradients that go back have one defense"):
        SplitLearning(noise=CutNoise(1.0), returned=MaxNorm())
    with pytest.raises(BadInputError, match="under 'max_norm' clients change theirs"):
        SplitAudit(
            SplitSpec.of(private_columns=["a"], attacks=["posterior:{weights: about}"], defenses="max_norm"), DATA
        )
    with pytest.raises(BadInputError, match="both act on the gradients that go back"):
        SplitAudit(SplitSpec.of(private_columns=["a"], defenses=["max_norm+cut_noise:{noise_multiplier: 1}"]), DATA)
    with pytest.raises(
        BadInputError, match="'marvell' hides which of two labels a record has, but the target 't' has 3"
    ):
        SplitAudit(SplitSpec.of(private_columns=["a"], defenses=["marvell"]), table(3))
