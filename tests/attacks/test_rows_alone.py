"""Rows in the span of the first layer are read where errors cannot be told, and nothing of them is proved."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from seepage import attacks, datasets
from seepage.datasets.planted import distinct
from seepage.learning import LocalTraining, local_update
from seepage.models.mlp import mlp
from seepage.models.model import Model
from seepage.seeds import seeded
from seepage.tabular.encoder import Encoder
from seepage.wire.horizontal import GradientView, Knowledge, RecordsGuess, UpdateView

DATA = distinct(rows=40, continuous=3, discrete=3)
ENCODER = Encoder(DATA.schema, DATA.statistics, dtype=torch.float32)
WIDTH = DATA.schema.width


def chain(activation: type[nn.Module] = nn.ReLU) -> nn.Module:
    return seeded(lambda: nn.Sequential(nn.Linear(WIDTH, 40), activation(), nn.Linear(40, 2)), 0)


def residual() -> nn.Module:
    class Residual(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.inner, self.last = nn.Linear(WIDTH, 40), nn.Linear(40, 40), nn.Linear(40, 2)

        def forward(self, rows: Tensor) -> Tensor:
            hidden = self.first(rows)
            return self.last(hidden + torch.tanh(self.inner(hidden)))

    return seeded(Residual, 0)


def read(view: GradientView | UpdateView, records: int) -> RecordsGuess:
    known = Knowledge(DATA.schema, DATA.statistics, records)
    return attacks.create("unmix", restarts=1, iterations=20)(view, known, [0])


def whole(guess: RecordsGuess, cells: Tensor) -> int:
    """Return how many true records are among the guessed ones, numbers within a hundredth of their deviation."""
    mine, true = (ENCODER.encode(part.to(ENCODER.mean)).double() for part in (guess.cells[0], cells))
    return int((torch.cdist(true, mine, p=torch.inf).amin(1) < 0.01).sum())


@pytest.mark.parametrize("network", [chain, lambda: chain(nn.Tanh), residual], ids=["relu", "tanh", "residual"])
@pytest.mark.parametrize(("records", "steps", "rate"), [(4, 1, 0.1), (5, 3, 0.3)])
def test_updates_of_local_training_are_read(
    network: Callable[[], nn.Module], records: int, steps: int, rate: float
) -> None:
    model, cells, labels = Model(network(), "softmax", "one"), DATA.train.cells[:records], DATA.train.labels[:records]
    training = LocalTraining(steps, records, learning_rate=rate)
    rows = ENCODER.encode(cells).expand(1, steps, -1, -1)
    update = local_update(model, rows, labels.to(rows).expand(1, steps, -1), training)
    guess = read(UpdateView(model, update, training), records)
    assert whole(guess, cells) == records
    assert guess.certified is None or not bool(guess.certified.any())
    assert guess.regime is not None
    assert guess.searches is not None
    assert guess.searches[0].read == records


def test_a_loss_with_another_part_is_read() -> None:
    model, cells, labels = Model(chain(), "softmax", "one"), DATA.train.cells[:4], DATA.train.labels[:4]
    rows = ENCODER.encode(cells)
    names = dict(model.module.named_parameters())
    hidden = model.module[:2](rows)  # pyright: ignore[reportIndexIssue]
    loss = functional.cross_entropy(model.module(rows), labels.long()) + functional.mse_loss(hidden, rows[:, :40])
    sent = dict(zip(names, torch.autograd.grad(loss, [*names.values()]), strict=True))
    guess = read(GradientView(model, {name: part[None].detach() for name, part in sent.items()}), 4)
    assert whole(guess, cells) == 4
    assert guess.certified is None or not bool(guess.certified.any())
    assert guess.regime is not None
    assert "that take the rows" in guess.regime[0]


def test_what_no_rows_span_is_not_called_read() -> None:
    # The gradient of a layer that never saw rows of the table.
    model, generator = Model(chain(), "softmax", "one"), torch.Generator().manual_seed(0)
    rows = torch.randn(4, WIDTH, generator=generator)
    loss = functional.cross_entropy(model.module(rows), torch.tensor([0, 1, 1, 0]))
    names = dict(model.module.named_parameters())
    sent = dict(zip(names, torch.autograd.grad(loss, [*names.values()]), strict=True))
    training = LocalTraining(2, 4, learning_rate=0.1)
    guess = read(UpdateView(model, {name: part[None] for name, part in sent.items()}, training), 4)
    assert guess.searches is None or guess.searches[0].read < 4
    assert guess.certified is None or not bool(guess.certified.any())


def test_no_more_rows_are_called_read_than_a_layer_has_directions() -> None:
    # Few records of a trained network have an error that is seen, so that all others are read into what these span.
    adult, records = datasets.load("adult"), 400
    rows = Encoder(adult.schema, adult.statistics, dtype=torch.float32).encode(adult.train.cells[:13_200])
    labels = adult.train.labels[:13_200].long()
    network = mlp(adult.schema, [128, 128], seed=1)
    optimiser = torch.optim.Adam(network.module.parameters(), lr=1e-3)
    for part in torch.arange(records, len(rows)).split(64):
        optimiser.zero_grad()
        functional.cross_entropy(network.module(rows[part]), labels[part]).backward()
        optimiser.step()
    training = LocalTraining(1, records, 0.1)
    shapes = (1, 1, records)
    update = local_update(network, rows[:records].view(*shapes, -1), labels[:records].to(rows).view(shapes), training)
    known = Knowledge(adult.schema, adult.statistics, records)
    attack = attacks.create("unmix", seconds=4.0, restarts=1, iterations=1)
    guess = attack(UpdateView(network, update, training), known, [0])
    assert guess.searches is not None
    assert guess.searches[0].read <= guess.searches[0].ranks[0] < 120
