"""Clients that drop values by masks that nobody sends: what is read all the same, and what is not claimed."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from seepage import attacks
from seepage.attacks.horizontal.exact.dropped import obstacle
from seepage.attacks.horizontal.exact.traced import traced
from seepage.datasets.planted import distinct
from seepage.models.making import make_model
from seepage.protocols.fedavg import FedAvg
from seepage.protocols.fedsgd import FedSGD
from seepage.seeds import seeded
from seepage.tabular.align import match, right_cells
from seepage.tabular.encoder import Encoder
from seepage.wire.horizontal import NOT_TRIED, Knowledge, RecordsGuess

DATA = distinct(rows=60, continuous=3, discrete=5)
WIDTH = DATA.schema.width
KNOWN = DATA.schema, DATA.statistics
ENCODER = Encoder(*KNOWN, dtype=torch.float32)


class Dropping(nn.Module):
    """Two hidden layers, with dropout behind each of them."""

    def __init__(self, rate: float, activation: nn.Module, before: float = 0.0) -> None:
        super().__init__()
        self.first, self.second, self.last = nn.Linear(WIDTH, 60), nn.Linear(60, 40), nn.Linear(40, 2)
        self.before, self.drop, self.activation = nn.Dropout(before), nn.Dropout(rate), activation

    def forward(self, rows: Tensor) -> Tensor:
        hidden = self.drop(self.activation(self.first(self.before(rows))))
        return self.last(self.drop(self.activation(self.second(hidden))))


def matched(guess: Tensor, true: Tensor) -> Tensor:
    """Return the places of the guessed records that stand for the true ones."""
    return match(torch.cdist(ENCODER.encode(guess).double(), ENCODER.encode(true).double()))


def share(guess: RecordsGuess, true: Tensor) -> float:
    """Return the share of cells that are right, records matched."""
    pairs = zip(guess.cells, true, strict=True)
    rights = [right_cells(DATA.schema, cells[matched(cells, own)], own).double().mean() for cells, own in pairs]
    return float(torch.stack(rights).mean())


@pytest.mark.parametrize("activation", [nn.ReLU(), nn.GELU()], ids=["relu", "gelu"])
def test_records_are_read_in_the_first_layers_span_and_none_is_proved(activation: nn.Module) -> None:
    model, _ = make_model(seeded(lambda: Dropping(0.3, activation), 1), *KNOWN)
    ran = FedSGD(6).run(model, DATA.train, ENCODER, seeds=[0, 1])
    guess = attacks.create("unmix", restarts=2, iterations=20)(ran.view, Knowledge(*KNOWN, 6), [0, 1])
    assert share(guess, ran.secret.cells) == 1.0
    # Those of another batch do not lie in the span.
    assert share(guess, ran.secret.cells.flip(0)) < 0.9
    assert guess.certified is not None
    assert not guess.certified.any()
    assert guess.proofs is not None
    assert all(proof.doubt for proof in guess.proofs)
    assert guess.regime == ("6 of 6 records read one by one (rank of the layers' gradients: 6), none proved",) * 2
    assert guess.labels is not None
    order = matched(guess.cells[0], ran.secret.cells[0])
    # Errors without dropout are alike enough to tell the labels.
    assert float((guess.labels[0][order] == ran.secret.labels[0]).double().mean()) >= 5 / 6


def test_what_is_dropped_before_the_first_layer_is_not_tried() -> None:
    model, _ = make_model(seeded(lambda: Dropping(0.3, nn.ReLU(), before=0.2), 1), *KNOWN)
    network = traced(model, *KNOWN)
    assert network is not None
    assert obstacle(network, model) == "the network drops values at random before its first layer"
    ran = FedSGD(4).run(model, DATA.train, ENCODER, seeds=[0])
    guess = attacks.create("unmix", restarts=2, iterations=20)(ran.view, Knowledge(*KNOWN, 4), [0])
    assert guess.regime == (NOT_TRIED + "the network drops values at random before its first layer",)
    assert guess.certified is not None
    assert not guess.certified.any()


def test_updates_of_clients_that_drop_values_go_to_matching() -> None:
    model, _ = make_model(seeded(lambda: Dropping(0.3, nn.ReLU()), 1), *KNOWN)
    ran = FedAvg(4, epochs=2).run(model, DATA.train, ENCODER, seeds=[0])
    guess = attacks.create("unmix", restarts=2, iterations=20)(ran.view, Knowledge(*KNOWN, 4), [0])
    assert guess.regime is not None
    assert guess.regime[0].startswith(
        NOT_TRIED + "the network drops values at random, and the message is no exact gradient"
    )
