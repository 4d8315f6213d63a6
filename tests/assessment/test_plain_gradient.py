"""Backpropagation that is written out against that of PyTorch, one training at a time."""

from __future__ import annotations

import copy
import itertools

import pytest
import torch
from torch import Tensor, nn

from seepage.assessment.plain_gradient import _affine_layers, training_gradient
from seepage.learning import gradient
from seepage.models.model import Head, Model
from seepage.seeds import seeded
from tests.oracles.gradients import gradient_of

TRAININGS = 3


def own_parameters(module: nn.Module) -> dict[str, Tensor]:
    """Return parameters by name, other ones for each training."""
    made = torch.Generator().manual_seed(1)
    return {
        name: torch.randn(TRAININGS, *p.shape, generator=made, dtype=torch.float64)
        for name, p in module.named_parameters()
    }


@pytest.mark.parametrize(("head", "outputs"), [("softmax", 3), ("sigmoid", 1), ("regression", 1)])
@pytest.mark.parametrize("hidden", [(), (5,), (5, 4)])
@pytest.mark.parametrize("records", [1, 7])
def test_each_training_has_its_own_gradient(head: Head, outputs: int, hidden: tuple[int, ...], records: int) -> None:
    widths = (6, *hidden, outputs)
    layers: list[nn.Module] = [nn.Linear(6, widths[1])]
    for before, after in itertools.pairwise(widths[1:]):
        layers += [nn.ReLU(), nn.Linear(before, after)]
    module = seeded(lambda: nn.Sequential(*layers).double(), 0)
    theta = own_parameters(module)
    made = torch.Generator().manual_seed(2)
    rows = torch.randn(TRAININGS, records, 6, generator=made, dtype=torch.float64)
    labels = torch.randint(0, max(outputs, 2), (TRAININGS, records), generator=made).double()
    assert _affine_layers(module) is not None
    found = training_gradient(Model(module, head=head, name="chain"), rows, labels, theta)
    assert list(found) == list(theta)
    for i in range(TRAININGS):
        alone = copy.deepcopy(module)
        alone.load_state_dict({name: tensor[i] for name, tensor in theta.items()})
        expected = gradient_of(Model(alone, head=head, name="alone"), rows[i], labels[i])
        for tensor, each in zip(found.values(), expected, strict=True):
            torch.testing.assert_close(tensor[i], each, rtol=1e-11, atol=1e-14)


def doubled(_module: nn.Module, _given: object, output: Tensor) -> Tensor:
    return output * 2


def hooked() -> nn.Module:
    module = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    module[0].register_forward_hook(doubled)
    return module


OTHERS = {
    "another activation": lambda: nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2)),
    "no bias": lambda: nn.Sequential(nn.Linear(4, 3, bias=False), nn.ReLU(), nn.Linear(3, 2)),
    "a hook": hooked,
    "a layer in two places": lambda: (lambda layer: nn.Sequential(layer, nn.ReLU(), layer))(nn.Linear(4, 4)),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_networks_have_the_gradient_that_their_code_has(name: str) -> None:
    module = seeded(lambda: OTHERS[name]().double(), 0)
    theta = own_parameters(module)
    rows = torch.randn(TRAININGS, 5, 4, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    labels = torch.tensor([0.0, 1.0, 1.0, 0.0, 1.0]).expand(TRAININGS, -1).double()
    model = Model(module, head="softmax", name="other")
    expected = gradient(model, rows, labels, theta)
    found = training_gradient(model, rows, labels, theta)
    assert all(torch.equal(found[key], expected[key]) for key in expected)
