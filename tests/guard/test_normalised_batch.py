"""Layers whose gradient spans only differences from a batch's mean, and rows less that mean in the span test."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from seepage import datasets, guard
from seepage.datasets.synthetic import synthetic
from seepage.guard.finding import GuardFinding
from seepage.guard.normalised_batch import NormalisedBatch
from seepage.guard.own_rows import OwnRows, compare_with_span
from seepage.learning import LocalTraining
from seepage.models.model import Model
from seepage.seeds import seeded
from seepage.tabular.encoder import Encoder
from seepage.tabular.statistics import Statistics

DATA = datasets.load("german")
ENCODER = Encoder(DATA.schema, Statistics.of(DATA.train), dtype=torch.float32)
ROWS, LABELS = ENCODER.encode(DATA.train.cells), DATA.train.labels.long()
WIDTH, RATE = 40, 0.1


class HandMade(nn.Module):
    """Normalisation by the batch that is no layer of PyTorch."""

    def forward(self, values: Tensor) -> Tensor:
        return (values - values.mean(0)) / (values.var(0, unbiased=False) + 1e-5).sqrt()


def behind(layer: Callable[[], nn.Module], inputs: int = DATA.schema.width, bias: bool = True) -> nn.Module:
    """Return a network with a layer between its first affine layer and the ReLU."""

    def build() -> nn.Module:
        first = nn.Linear(inputs, WIDTH, bias=bias)
        return nn.Sequential(first, layer(), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 2))

    return seeded(build, 0)


def batch_norm() -> nn.Module:
    return nn.BatchNorm1d(WIDTH)


def untracked() -> nn.Module:
    return nn.BatchNorm1d(WIDTH, track_running_stats=False)


NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "batch norm": lambda: behind(batch_norm),
    "no bias": lambda: behind(batch_norm, bias=False),
    "no statistics": lambda: behind(untracked),
    "by hand": lambda: behind(HandMade),
}
TRAININGS: dict[str, dict[str, Any]] = {"sgd": {"lr": RATE}, "5 epochs": {"lr": RATE, "epochs": 5}}


def trained(
    module: nn.Module, rows: Tensor, labels: Tensor, epochs: int = 1, adam: bool = False, **settings: Any
) -> dict[str, Tensor]:
    """Return the state after training on one batch."""
    after = copy.deepcopy(module)
    kind = torch.optim.Adam if adam else torch.optim.SGD
    optimizer = kind([p for p in after.parameters() if p.requires_grad], **settings)
    for _ in range(epochs):
        optimizer.zero_grad()
        nn.functional.cross_entropy(after(rows), labels).backward()
        optimizer.step()
    return {name: tensor.detach().clone() for name, tensor in after.state_dict().items()}


def found(
    module: nn.Module, after: dict[str, Tensor], records: int, rows: bool = True, seconds: float = 0.5
) -> GuardFinding:
    """Return what a guard finds in an update of the first records."""
    recipe = guard.MessageRecipe(protocol="fedavg", training=LocalTraining(1, records, RATE), batch_size=records)
    guarding = guard.UpdateGuard(
        module, DATA.schema, recipe, reference=DATA.train, decoys=ROWS[records:], seconds=seconds
    )
    return guarding(module.state_dict(), after, rows=ROWS[:records] if rows else None).finding


@pytest.mark.parametrize("records", [8, 32])
@pytest.mark.parametrize("training", TRAININGS)
@pytest.mark.parametrize("which", NETWORKS)
def test_rows_less_the_mean_lie_in_the_span_of_a_layer_that_is_normalised(
    which: str, training: str, records: int
) -> None:
    module = NETWORKS[which]()
    after = trained(module, ROWS[:records], LABELS[:records], **TRAININGS[training])
    # So short a time that the attack reads nothing.
    answer = found(module, after, records, seconds=0.1)
    assert answer.decision in ("in the span", "read")
    assert not answer.sent
    if training == "sgd":
        assert answer.rows_in_span is not None
        assert answer.rows_in_span.matched_rows == records


@pytest.mark.parametrize("width", [5, 9])
def test_few_columns_tell_by_the_layers_behind_them(width: int) -> None:
    data = synthetic(discrete=0, continuous=width, rows=1500, seed=width)
    rows = Encoder(data.schema, data.statistics, dtype=torch.float32).encode(data.train.cells)
    module = behind(batch_norm, data.schema.width)
    change = trained(module, rows[:16], data.train.labels[:16].long(), lr=RATE)
    running = {name: part for name, part in change.items() if "running" in name or "num" in name}
    moved = {name: part - change[name] for name, part in module.state_dict().items() if name not in running}
    own = OwnRows(rows[:16].double(), rows[16:].double())
    tested = compare_with_span(Model(module, "softmax", "few"), moved, own, 16, running=running)
    assert tested.matches is not None
    assert tested.matches.matched_rows == 16


@pytest.mark.parametrize("which", NETWORKS)
@pytest.mark.parametrize("kept", [0.0, 1.0])
def test_noise_hides_them_and_is_no_pass(which: str, kept: float) -> None:
    """The statistics are exact: a mean that is of the own rows too must not tell by itself."""
    for seed in range(2):
        module = NETWORKS[which]()
        after, generator = trained(module, ROWS[:8], LABELS[:8], lr=RATE), torch.Generator().manual_seed(seed)
        names = [name for name, _ in module.named_parameters()]
        before = module.state_dict()
        size = float(torch.cat([(after[n] - before[n]).flatten() for n in names]).norm())
        for name in names:
            moved = kept * (after[name] - before[name])
            after[name] = before[name] + moved + size * torch.randn(moved.shape, generator=generator)
        assert found(module, after, 8, seconds=0.1).decision == "not tried"


@pytest.mark.long
def test_records_are_read_without_any_row() -> None:
    module = NETWORKS["batch norm"]()
    answer = found(module, trained(module, ROWS[:8], LABELS[:8], lr=RATE), 8, rows=False, seconds=20)
    assert answer.decision == "read"
    assert answer.why.startswith("all 8 records read")


@pytest.mark.parametrize("rows", [True, False])
@pytest.mark.parametrize("training", ["adam", "large"])
def test_what_no_attack_tries_is_no_pass_whatever_rows_say(rows: bool, training: str) -> None:
    """Few of the rows stand out; that alone is no evidence that nothing can be read."""
    module = NETWORKS["batch norm"]()
    records = 8 if training == "adam" else 400
    settings = {"lr": 1e-3, "adam": True} if training == "adam" else {"lr": RATE, "epochs": 5}
    after = trained(module, ROWS[:records], LABELS[:records], **settings)
    answer = found(module, after, records, rows, seconds=0.2)
    assert answer.decision != "pass"
    if training == "large":
        assert answer.decision == "not tried"


@pytest.mark.parametrize(
    ("layer", "centred"),
    [
        (batch_norm, True),
        (untracked, True),
        (HandMade, True),
        (lambda: nn.LayerNorm(WIDTH), False),
        (lambda: nn.GroupNorm(4, WIDTH), False),
        (lambda: nn.Dropout(0.5), False),
        (nn.Identity, False),
    ],
)
def test_layers_whose_errors_add_up_to_zero_are_found(layer: Callable[[], nn.Module], centred: bool) -> None:
    model = Model(behind(layer), "softmax", "mine")
    batch = NormalisedBatch.of(model, ROWS[:8].double(), ROWS[8:].double(), 8, {})
    assert batch.centred == ({"0"} if centred else set())


def test_the_mean_of_the_rows_follows_from_running_statistics_after_several_steps() -> None:
    """As many units as columns, or more, determine it."""
    module = seeded(lambda: nn.Sequential(nn.Linear(DATA.schema.width, 80), nn.BatchNorm1d(80), nn.Linear(80, 2)), 1)
    model = Model(copy.deepcopy(module), "softmax", "mine")
    module.requires_grad_(False)
    for _ in range(3):
        module(ROWS[:20])
    running = {name: part for name, part in module.state_dict().items() if name.startswith("1.")}
    batch = NormalisedBatch.of(model, ROWS[100:107].double(), ROWS[200:].double(), 20, running)
    weights = model.parameters["0.weight"].double()
    inputs = [ROWS[200:300].double(), ROWS[300:].double(), ROWS[100:107].double()]
    [mean] = batch.means("0", weights, inputs)
    # One-hot blocks leave weights no less determined; rounding of the statistics is what is left.
    torch.testing.assert_close(mean, ROWS[:20].double().mean(0), rtol=0, atol=5e-3)


def test_a_normalisation_that_the_client_froze_is_one_of_each_row() -> None:
    """Its statistics did not move; the rows themselves lie in the span."""
    module = NETWORKS["batch norm"]()
    client = copy.deepcopy(module)
    client.get_submodule("1").eval()
    after = trained(client, ROWS[:8], LABELS[:8], lr=RATE)
    answer = found(module, after, 8, seconds=0.1)
    assert answer.decision == "in the span"
    assert answer.rows_in_span is not None
    assert answer.rows_in_span.matched_rows == 8
