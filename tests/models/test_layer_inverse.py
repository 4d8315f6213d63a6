"""Networks undone layer by layer: exactly where nothing is lost, and refused by name where something is."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional

from seepage.datasets.planted import telling
from seepage.models.layer_inverse import inverted, layers_of, obstacle
from seepage.models.vertical import Copies, Stack, encoder_of
from seepage.seeds import seeded

ROWS = telling(rows=40).train
ENCODER = encoder_of(ROWS.schema)
ENCODED = ENCODER.encode(ROWS.cells)
WIDTH = ENCODER.width


class Written(nn.Module):
    """A network whose forward calls functions."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(WIDTH, 60), nn.Linear(60, 64)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return self.last(functional.relu(self.first(rows)))


class Skipping(Written):
    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        hidden = self.first(rows)
        return self.last(hidden + hidden.sin())


class Branching(Written):
    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return self.last(self.first(rows)) if float(rows.sum()) > 0 else self.last(self.first(-rows))


def network(*between: nn.Module) -> nn.Sequential:
    return seeded(lambda: nn.Sequential(nn.Linear(WIDTH, 40), *between, nn.Linear(40, 41)).eval(), 0)


@pytest.mark.parametrize(
    "between",
    [
        [],
        [nn.LeakyReLU(0.1)],
        [nn.PReLU()],
        [nn.Tanh()],
        [nn.Sigmoid(), nn.Identity()],
        [nn.ELU()],
        [nn.SELU()],
        [nn.Softplus(beta=2)],
        [nn.BatchNorm1d(40), nn.Dropout(0.5)],
        [nn.ReLU()],
        [nn.Linear(40, 40), nn.Tanh(), nn.Flatten()],
    ],
)
def test_inputs_follow_from_outputs_where_nothing_is_lost(between: list[nn.Module]) -> None:
    made = network(*between)
    layers = layers_of(made)
    assert obstacle(layers, ENCODER) is None
    with torch.no_grad():
        found, solved = inverted(layers, made(ENCODED), ENCODER)
    assert bool(solved.all())
    assert torch.allclose(found.float(), ENCODED, atol=2e-2)


def test_functions_and_several_trainings_are_understood() -> None:
    written = seeded(Written, 0)
    both = Copies([seeded(Written, 1), written])
    stack = Stack((WIDTH, 60, 64), [0, 1])
    for module in (both, stack):
        with torch.no_grad():
            sent = module(ENCODED.expand(2, -1, -1))
        found, solved = inverted(layers_of(module, 1), sent[1], ENCODER)
        assert bool(solved.all())
        assert torch.allclose(found.float(), ENCODED, atol=1e-2)
    assert layers_of(written)[1].name == "layer 2 (relu)"


def test_a_relu_with_too_few_positive_units_is_not_solved() -> None:
    made = seeded(lambda: nn.Sequential(nn.Linear(WIDTH, 7), nn.ReLU(), nn.Linear(7, 7)), 0)
    layers = layers_of(made)
    assert obstacle(layers, ENCODER) is None
    with torch.no_grad():
        _, solved = inverted(layers, made(ENCODED), ENCODER)
    assert not bool(solved.any())


@pytest.mark.parametrize(
    ("module", "said"),
    [
        (network(nn.GELU()), "layer 2 (GELU): two inputs have the same output"),
        (network(nn.LayerNorm(40)), "layer 2 (LayerNorm): it forgets mean and scale"),
        (network(nn.Hardtanh()), "layer 2 (Hardtanh): seepage knows no inverse of it"),
        (
            network(nn.Tanh(), nn.Linear(40, 5), nn.Linear(5, 40)),
            "layer 3 (Linear, 40 to 5 numbers)",
        ),
        (nn.Linear(WIDTH, 4), f"layer 1 (Linear, {WIDTH} to 4 numbers): it returns fewer independent numbers"),
        (Skipping(), "layer 3 (add): it takes something else than the layer before it returns"),
        (Branching(), "the whole network (Branching): its layers cannot be listed"),
        (Stack((WIDTH, 30, 10), [0]), "layer 3 (Linear, 30 to 10 numbers)"),
    ],
)
def test_the_layer_that_loses_something_is_named(module: nn.Module, said: str) -> None:
    assert (obstacle(layers_of(module), ENCODER) or "").startswith(said)
