"""Networks whose runs change their buffers, as functions of their rows."""

from __future__ import annotations

import pickle  # noqa: TID251 - of a network that this test makes
from collections.abc import Callable

import pytest
import torch
from loky.backend.reduction import dumps
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import spectral_norm as by_hook
from torch.nn.utils.parametrizations import spectral_norm, weight_norm

from seepage.datasets.planted import distinct
from seepage.defenses.dp_sgd import DPSGD
from seepage.learning import gradient
from seepage.models.making import make_model
from seepage.models.model import Model
from seepage.models.wrapping import as_logits, from_same_buffers, returns_chances
from seepage.seeds import seeded
from seepage.tabular.schema import Discrete

DATA = distinct(rows=4, continuous=1, discrete=2)


class Codes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        sizes = [column.width for column in DATA.schema.columns if isinstance(column, Discrete)]
        self.tables = nn.ModuleList(nn.Embedding(size, 2) for size in sizes)
        self.out = spectral_norm(nn.Linear(2 * len(sizes) + 1, 2))

    def forward(self, codes: Tensor, numbers: Tensor) -> Tensor:
        return self.out(torch.cat([*(table(codes[:, i]) for i, table in enumerate(self.tables)), numbers], 1))


@pytest.mark.parametrize(
    "build",
    [
        lambda: nn.Sequential(spectral_norm(nn.Linear(9, 5)), nn.Tanh(), nn.Linear(5, 2)),
        lambda: nn.Sequential(by_hook(nn.Linear(9, 5)), nn.Tanh(), nn.Linear(5, 2)),
        Codes,
    ],
)
def test_spectral_normalisation_is_that_of_a_clients_first_step(build: Callable[[], nn.Module]) -> None:
    client = seeded(build, 0)
    model, _ = make_model(client, DATA.schema, DATA.statistics)
    rows = torch.zeros(4, DATA.schema.width)
    labels = torch.tensor([0.0, 1.0, 1.0, 0.0])
    sent = gradient(model, rows, labels)
    assert all(torch.equal(part, sent[name]) for name, part in gradient(model, rows, labels).items())
    if not isinstance(client, Codes):
        functional.cross_entropy(client(rows), labels.long()).backward()
        own = {name: part.grad for name, part in client.named_parameters()}
        assert all(torch.allclose(sent[name], part, atol=1e-7) for name, part in own.items() if part is not None)
    # Clients at parameters of their own.
    places = {name: part.expand(2, *part.shape) for name, part in model.parameters.items()}
    each = gradient(model, rows.expand(2, -1, -1), labels.expand(2, -1), places)
    assert all(torch.allclose(part[1], sent[name], atol=1e-6) for name, part in each.items())


@pytest.mark.parametrize(
    ("build", "outputs"),
    [
        (lambda: nn.Sequential(nn.Linear(9, 5), nn.Dropout(0.5), nn.Linear(5, 2)), 2),
        (lambda: nn.Sequential(weight_norm(nn.Linear(9, 5)), nn.GRUCell(5, 2)), 2),
        (lambda: nn.Sequential(spectral_norm(nn.Linear(9, 5)), nn.Linear(5, 1), nn.Flatten(0)), 1),
        (Codes, 2),
    ],
)
def test_networks_that_are_run_in_another_way_reach_worker_processes(
    build: Callable[[], nn.Module], outputs: int
) -> None:
    model, _ = make_model(seeded(build, 0), DATA.schema, DATA.statistics)
    # As the pools of worker processes do it.
    found = pickle.loads(bytes(dumps(model)))  # noqa: S301 - as above
    rows = torch.randn(3, 9, generator=torch.Generator().manual_seed(0))
    assert torch.equal(found.outputs(rows), model.outputs(rows))
    assert found.outputs(rows).shape == (3, outputs)
    assert list(found.parameters) == list(model.parameters)


class Counting(nn.Module):
    """A network that divides by the number of its runs."""

    steps: Tensor

    def __init__(self, rate: float = 0.0) -> None:
        super().__init__()
        self.hidden, self.drop, self.out = nn.Linear(DATA.schema.width, 5), nn.Dropout(rate), nn.Linear(5, 2)
        self.register_buffer("steps", torch.zeros(()))

    def forward(self, rows: Tensor) -> Tensor:
        self.steps += 1
        return self.out(self.drop(self.hidden(rows).tanh())) / self.steps


class CountingCodes(Codes):
    steps: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("steps", torch.zeros(()))

    def forward(self, codes: Tensor, numbers: Tensor) -> Tensor:
        self.steps += 1
        return super().forward(codes, numbers) / self.steps


class HookedCodes(Codes):
    def __init__(self) -> None:
        super().__init__()
        self.out = by_hook(nn.Linear(self.out.in_features, 2))


@pytest.mark.parametrize(
    "build",
    [
        Counting,
        lambda: Counting(0.5),
        CountingCodes,
        HookedCodes,
        lambda: nn.Sequential(by_hook(nn.Linear(DATA.schema.width, 5)), nn.Tanh(), nn.Dropout(0.1), nn.Linear(5, 2)),
    ],
)
def test_buffers_stay_as_they_were_sent(build: Callable[[], nn.Module]) -> None:
    client = seeded(build, 0)
    before = {name: held.clone() for name, held in client.named_buffers()}
    Model(client, "softmax", "mine").masked(DATA.schema.width)
    model, _ = make_model(client, DATA.schema, DATA.statistics)
    for module in (client, model.module):
        own = dict(module.named_buffers())
        assert all(torch.equal(own[name], held) for name, held in before.items())


def test_a_network_whose_buffers_stay_is_left_alone() -> None:
    module = nn.Sequential(nn.Linear(3, 2))
    module.register_buffer("scale", torch.ones(3))
    assert from_same_buffers(module, 3) is module


ENDS: dict[str, Callable[[Tensor], Tensor]] = {
    "column": lambda z: z[:, :1].sigmoid(),
    "numbers": lambda z: z[:, 0].sigmoid(),
    "picked": lambda z: z.sigmoid()[:, [1]].clone(),
    "other class": lambda z: 1 - z[:, :1].sigmoid(),
    "second of two": lambda z: z.softmax(1)[:, 1],
}


class Chances(nn.Module):
    """A network that returns a chance a record, with or without dropout."""

    def __init__(self, width: int, end: str = "column", rate: float = 0.0) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(width, 6), nn.ReLU(), nn.Dropout(rate), nn.Linear(6, 2))
        self.end = end

    def forward(self, rows: Tensor) -> Tensor:
        return ENDS[self.end](self.net(rows))


@pytest.mark.parametrize("end", ENDS)
def test_a_network_of_chances_is_trained_as_with_bce_loss(end: str) -> None:
    schema, statistics = DATA.schema, DATA.statistics
    network = seeded(lambda: Chances(schema.width, end), seed=1)
    model, _ = make_model(network, schema, statistics)
    assert model.head == "sigmoid"
    rows, labels = torch.randn(5, schema.width), torch.tensor([0.0, 1.0, 1.0, 0.0, 1.0])
    loss = nn.BCELoss()(network(rows).flatten(), labels)
    loss.backward()
    sent = gradient(model, rows[None], labels[None])
    for name, parameter in network.named_parameters():
        torch.testing.assert_close(sent[name][0], parameter.grad, rtol=1e-4, atol=1e-7)


def test_so_is_one_that_drops_values() -> None:
    schema, statistics = DATA.schema, DATA.statistics
    model, _ = make_model(Chances(schema.width, rate=0.2), schema, statistics)
    assert (model.head, returns_chances(model.module)) == ("sigmoid", True)
    assert model.drops is not None


@pytest.mark.parametrize("logit", [-30.0, -17.0, -3.0, 20.0])
def test_confident_chances_have_the_gradient_of_bce_loss(logit: float) -> None:
    for label in (0.0, 1.0):
        at = torch.tensor([[logit]], requires_grad=True)
        nn.BCELoss()(at.sigmoid(), torch.tensor([[label]])).backward()
        ours = at.detach().requires_grad_()
        functional.binary_cross_entropy_with_logits(as_logits(nn.Sigmoid())(ours), torch.tensor([[label]])).backward()
        # PyTorch has a floor of 1e-12 under a chance and its complement.
        if logit > -25 or label == 0:
            torch.testing.assert_close(ours.grad, at.grad)


def test_defended_clients_clip_the_same_gradients() -> None:
    schema, statistics = DATA.schema, DATA.statistics
    width = schema.width
    network = seeded(lambda: nn.Sequential(nn.Linear(width, 6), nn.ReLU(), nn.Linear(6, 1), nn.Sigmoid()), seed=2)
    model, _ = make_model(network, schema, statistics)
    rows, labels = torch.randn(1, 5, width), torch.tensor([[0.0, 1.0, 1.0, 0.0, 1.0]])
    clipped = DPSGD(clip_norm=1e6, noise_multiplier=1.0).clipped_sum(model, rows, labels)
    for name, sent in gradient(model, rows, labels).items():
        torch.testing.assert_close(clipped[name] / 5, sent, rtol=1e-4, atol=1e-7)


def test_logits_and_class_chances_stay_as_they_are() -> None:
    schema, statistics = DATA.schema, DATA.statistics
    logit = nn.Sequential(nn.Linear(schema.width, 1))
    both = nn.Sequential(nn.Linear(schema.width, 2), nn.Softmax(1))
    assert not any(returns_chances(make_model(one, schema, statistics)[0].module) for one in (logit, both))
