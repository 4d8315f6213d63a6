"""Recurrent layers by their formula, against PyTorch's own."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.func import vmap
from torch.nn.utils.rnn import pack_sequence

from seepage.learning import gradient
from seepage.models.model import Model
from seepage.models.recurrent import by_formula
from seepage.seeds import seeded

CELLS: dict[str, Callable[[], nn.Module]] = {
    "gru": lambda: nn.GRUCell(3, 4),
    "lstm": lambda: nn.LSTMCell(3, 4),
    "tanh": lambda: nn.RNNCell(3, 4, bias=False),
    "relu": lambda: nn.RNNCell(3, 4, nonlinearity="relu"),
}
LAYERS: dict[str, Callable[[], nn.Module]] = {
    "gru": lambda: nn.GRU(3, 4, 2, batch_first=True),
    "gru both ways": lambda: nn.GRU(3, 4, 2, bidirectional=True),
    "lstm": lambda: nn.LSTM(3, 4, batch_first=True, bias=False),
    "lstm both ways": lambda: nn.LSTM(3, 4, 2, batch_first=True, bidirectional=True),
    "tanh": lambda: nn.RNN(3, 4),
    "relu": lambda: nn.RNN(3, 4, nonlinearity="relu"),
}


def alike(found: object, wanted: object) -> bool:
    if isinstance(found, Tensor) and isinstance(wanted, Tensor):
        return found.shape == wanted.shape and torch.allclose(found, wanted, atol=1e-6)
    assert isinstance(found, tuple)
    assert isinstance(wanted, tuple)
    return len(found) == len(wanted) and all(alike(a, b) for a, b in zip(found, wanted, strict=True))


@pytest.mark.parametrize("name", CELLS)
def test_a_cell_by_its_formula_is_pytorchs(name: str) -> None:
    cell = seeded(CELLS[name], 0)
    rows, state = torch.randn(2, 5, 3, generator=torch.Generator().manual_seed(0)), torch.full((5, 4), 0.3)
    given = (state, state / 2) if name == "lstm" else state
    own = by_formula(cell)
    assert alike(own(rows[0]), cell(rows[0]))
    assert alike(own(rows[0], given), cell(rows[0], given))
    assert alike(own(rows[0, 0]), cell(rows[0, 0]))
    assert alike(vmap(lambda one: own(one, given))(rows), vmap(own, (0, None))(rows, given))


@pytest.mark.parametrize("name", LAYERS)
def test_layers_by_their_formula_are_pytorchs(name: str) -> None:
    layers = seeded(LAYERS[name], 0)
    rows = torch.randn(5, 6, 3, generator=torch.Generator().manual_seed(0))
    own = by_formula(layers)
    outputs, state = layers(rows)
    assert alike(own(rows), (outputs, state))
    assert alike(own(rows, state), layers(rows, state))
    # One sequence alone, and sequences of different lengths, go the usual way.
    assert alike(own(rows[0]), layers(rows[0]))
    packed = pack_sequence([rows[0], rows[1, :4]])
    assert alike(own(packed)[0].data, layers(packed)[0].data)


def test_what_is_no_layer_of_pytorchs_stays() -> None:
    class Mine(nn.GRUCell):
        def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
            return 2 * super().forward(input, hx)

    for module in (Mine(2, 3), nn.LSTM(2, 3, proj_size=1), nn.GRU(2, 3, 2, dropout=0.5), nn.Linear(2, 3)):
        assert by_formula(module) is module
    once = by_formula(nn.Sequential(nn.GRUCell(2, 3)))
    assert by_formula(once) is once


def test_several_batches_through_a_cell_are_each_as_alone() -> None:
    class Columns(nn.Module):
        """Takes one column after the other, from a state that does not depend on the batch."""

        def __init__(self) -> None:
            super().__init__()
            self.cell, self.out = nn.GRUCell(1, 4), nn.Linear(4, 2)

        def forward(self, rows: Tensor) -> Tensor:
            state = torch.zeros(len(rows), 4)
            for column in rows.split(1, 1):
                state = self.cell(column, state)
            return self.out(state)

    model = Model(seeded(Columns, 0), "softmax", "mine")
    rows, labels = torch.randn(2, 3, 2, 5, generator=torch.Generator().manual_seed(0)), torch.ones(2, 3, 2)
    every = gradient(model, rows, labels)
    alone = gradient(model, rows[1, 2], labels[1, 2])
    assert all(torch.allclose(part[1, 2], alone[name], atol=1e-6) for name, part in every.items())
