"""Batches behind batch normalisation are read whole where its statistics are granted, and nothing false is proved."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from seepage.attacks.horizontal.exact.normalised import NormalisedHarvester, Seen, mean_row, opening
from seepage.attacks.horizontal.exact.normalised_forms import TracedSeen, seen_of
from seepage.attacks.horizontal.exact.traced import TracedNetwork
from seepage.attacks.horizontal.exact.unmix import unmix
from seepage.attacks.horizontal.matching.starts import Starts
from seepage.attacks.horizontal.matching.tableak import tableak
from seepage.datasets import load
from seepage.datasets.planted import distinct
from seepage.defenses.gaussian_noise import GaussianNoise
from seepage.learning import LocalTraining, batch_statistics, gradient
from seepage.models.batch_norm import BatchNorm, by_batch
from seepage.models.mlp import nn3
from seepage.models.model import Head, Model
from seepage.models.resnet import Residual, resnet_bn
from seepage.papers.tableak.cnn import cnn_bn
from seepage.protocols.fedavg import FedAvg
from seepage.seeds import seeded
from seepage.tabular.encoder import Encoder
from seepage.tabular.schema import Discrete, Schema
from seepage.wire.horizontal import GradientView, Knowledge, RecordsGuess, UpdateView

GERMAN = load("german")
CLIENT = Encoder(GERMAN.schema, GERMAN.statistics, dtype=torch.float32)
PRECISE = Encoder(GERMAN.schema, GERMAN.statistics)


def network(*widths: int, normalised: Sequence[bool], outputs: int = 2, seed: int = 0, head: Head = "softmax") -> Model:
    """Return a network whose hidden layers are normalised where it says so."""

    def build() -> nn.Module:
        layers: list[nn.Module] = []
        inputs = GERMAN.schema.width
        for width, norm in zip(widths, normalised, strict=True):
            layers += [nn.Linear(inputs, width), *([nn.BatchNorm1d(width)] if norm else []), nn.ReLU()]
            inputs = width
        return nn.Sequential(*layers, nn.Linear(inputs, outputs))

    module = by_batch(seeded(build, seed), "mine")
    # As after training: normalisations scale and shift.
    generator = torch.Generator().manual_seed(seed)
    places = {name for name, part in module.named_children() if isinstance(part, BatchNorm)}
    for name, parameter in module.named_parameters():
        if name.split(".")[0] in places:
            parameter.data += 0.3 * (torch.rand(parameter.shape, generator=generator) - 0.5)
    return Model(module, head, "mine")


def received(
    model: Model, cells: Tensor, labels: Tensor, schema: Schema = GERMAN.schema, granted: bool = True
) -> tuple[GradientView, Knowledge]:
    """Return the gradients of batches (victim, record, column), and what is granted beside them."""
    rows = Encoder(schema, GERMAN.statistics, dtype=torch.float32).encode(cells)
    statistics = batch_statistics(model, rows) if granted else None
    known = Knowledge(schema, GERMAN.statistics, cells.shape[1], batch_statistics=statistics)
    return GradientView(model, gradient(model, rows, labels.float())), known


def sorted_rows(cells: Tensor, labels: Tensor) -> Tensor:
    return torch.tensor(sorted(map(tuple, torch.cat([cells, labels[:, None]], 1).tolist())), dtype=torch.float64)


def assert_read(guess: RecordsGuess, cells: Tensor, labels: Tensor) -> None:
    assert guess.proofs is not None
    assert guess.labels is not None
    # Nothing bounds what other rows would have done to the batch's statistics.
    assert not any(proof.cells.any() or proof.given.any() for proof in guess.proofs)
    assert all(proof.doubt for proof in guess.proofs)
    for v in range(len(cells)):
        got, true = sorted_rows(guess.cells[v], guess.labels[v]), sorted_rows(cells[v], labels[v])
        torch.testing.assert_close(got, true, rtol=1e-5, atol=1e-3)


NETWORKS: dict[str, Callable[[], Model]] = {
    "residual": lambda: resnet_bn(GERMAN.schema, seed=0),
    "convolution": lambda: cnn_bn(GERMAN.schema, seed=0),
    "narrow layers": lambda: network(40, 30, normalised=(True, True)),
    "both layers": lambda: network(70, 60, normalised=(True, True)),
    "the first layer": lambda: network(60, 50, normalised=(True, False)),
    "the second layer": lambda: network(60, 50, 40, normalised=(False, True, False)),
    "one output": lambda: network(60, 60, normalised=(True, True), outputs=1, head="sigmoid"),
}


@pytest.mark.parametrize(
    "which", [pytest.param(name, marks=pytest.mark.long) if name == "convolution" else name for name in NETWORKS]
)
def test_batches_are_read_whole(which: str) -> None:
    records = 6 if which == "convolution" else 14
    cells = GERMAN.train.cells[: 2 * records].view(2, records, -1)
    labels = GERMAN.train.labels[: 2 * records].view(2, records)
    view, known = received(NETWORKS[which](), cells, labels)
    done: list[float] = []
    guess = unmix(starts=48, restarts=2, iterations=2)(view, known, [3, 4], done.append)
    assert sum(done) == pytest.approx(1.0)
    assert guess.regime is not None
    assert all("records read, which explains the whole message" in regime for regime in guess.regime)
    assert_read(guess, cells, labels)


def test_batches_are_read_whole_behind_a_frozen_layer() -> None:
    model = network(40, 30, normalised=[True, True])
    model.module.get_submodule("0").requires_grad_(False)
    cells, labels = GERMAN.train.cells[None, :4], GERMAN.train.labels[None, :4]
    view, known = received(model, cells, labels)
    guess = unmix(restarts=1, iterations=3)(view, known, [0])
    assert guess.regime is not None
    assert "records read, which explains the whole message" in guess.regime[0]
    assert_read(guess, cells, labels)


def test_copies_and_several_labels_are_counted() -> None:
    target = Discrete(name="grade", categories=("a", "b", "c", "d"))
    schema = GERMAN.schema.model_copy(update={"target": target})
    cells, labels = GERMAN.train.cells[:12].clone(), torch.arange(12, dtype=torch.float64) % 4
    cells[1] = cells[0]
    view, known = received(network(60, 50, normalised=(True, True), outputs=4), cells[None], labels[None], schema)
    assert_read(unmix(restarts=2, iterations=2)(view, known, [0]), cells[None], labels[None])


def test_numbers_that_are_not_whole_are_fitted() -> None:
    data = distinct(rows=40, continuous=3, discrete=4)
    encoder = Encoder(data.schema, data.statistics, dtype=torch.float32)
    cells, labels = data.train.cells[None, :10], data.train.labels[None, :10]
    rows = encoder.encode(cells)
    model = resnet_bn(data.schema, seed=1)
    view = GradientView(model, gradient(model, rows, labels.float()))
    known = Knowledge(data.schema, data.statistics, 10, batch_statistics=batch_statistics(model, rows))
    guess = unmix(restarts=2, iterations=2)(view, known, [0])
    assert guess.labels is not None
    got, true = sorted_rows(guess.cells[0], guess.labels[0]), sorted_rows(cells[0], labels[0])
    torch.testing.assert_close(got, true, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("wrong", ["nothing", "label", "cell", "number", "all alike"])
def test_a_replay_proves_nothing_that_is_wrong(wrong: str) -> None:
    cells, labels = GERMAN.train.cells[:10].clone(), GERMAN.train.labels[:10].clone()
    model = resnet_bn(GERMAN.schema, seed=0)
    view, known = received(model, cells[None], labels[None])
    assert known.batch_statistics is not None
    seen = Seen(view, 0, 10, known.batch_statistics, PRECISE)
    discrete, continuous = GERMAN.schema.discrete[0], GERMAN.schema.continuous[0]
    if wrong == "label":
        labels[3] = 1 - labels[3]
    elif wrong == "cell":
        cells[3, discrete] = (cells[3, discrete] + 1) % GERMAN.schema.columns[discrete].width
    elif wrong == "number":
        cells[3, continuous] += 1
    elif wrong == "all alike":
        # Which no gradient tells.
        cells[:, continuous] += 1
    left = seen.left(CLIENT.encode(cells[None]).double(), labels)[0]
    assert seen.is_rounding(left) == (wrong == "nothing")
    # In any order of the records.
    back = seen.left(CLIENT.encode(cells.flip(0)[None]).double(), labels.flip(0))[0]
    assert seen.is_rounding(back) == (wrong == "nothing")


def test_the_mean_of_the_rows_tells_which_categories_are_missing() -> None:
    cells, labels = GERMAN.train.cells[:9].clone(), GERMAN.train.labels[:9]
    # A category that all records have.
    one = GERMAN.schema.discrete[1]
    cells[:, one] = 1
    model = network(70, 60, normalised=(True, True))
    rows = PRECISE.encode(cells)
    weight, bias = (p.detach().double() for p in list(model.parameters.values())[:2])
    made = (rows @ weight.T + bias).mean(0) - bias
    basis = torch.linalg.qr((rows - rows.mean(0)).T).Q.T[: int(torch.linalg.matrix_rank(rows - rows.mean(0)))]
    raw = rows.mean(0) * PRECISE.std + PRECISE.mean
    found, free = mean_row(PRECISE, weight, made, basis)
    assert not len(free)
    torch.testing.assert_close(found, raw, rtol=1e-7, atol=1e-7)
    view, known = received(model, cells[None], labels[None])
    assert known.batch_statistics is not None
    seen = Seen(view, 0, 9, known.batch_statistics, PRECISE)
    held = seen.missing(CLIENT.encode(cells[:7]).double())
    present = ((rows[7:] * PRECISE.std + PRECISE.mean).abs() > 1e-6).any(0)
    assert torch.equal(held, present | PRECISE.is_continuous)
    rest = seen.rest(CLIENT.encode(cells[1:]).double())
    torch.testing.assert_close(rest, cells[:1], rtol=1e-5, atol=1e-2)
    assert not len(seen.rest(CLIENT.encode(cells[2:]).double()))


def test_what_was_not_found_is_estimated() -> None:
    cells, labels = GERMAN.train.cells[None, :20], GERMAN.train.labels[None, :20]
    view, known = received(resnet_bn(GERMAN.schema, seed=0), cells, labels)
    guess = unmix(starts=12, rounds=1, restarts=2, iterations=2)(view, known, [0])
    assert guess.regime is not None
    assert " of 20 records read one by one" in guess.regime[0]
    assert guess.certified is not None
    assert not guess.certified.any()
    got, true = guess.cells[0], cells[0]
    read = int((got[:, None] == true[None]).all(-1).any(1).sum())
    assert 0 < read < 20


def test_batches_wider_than_the_layers_are_tableaks() -> None:
    cells, labels = GERMAN.train.cells[None, :40], GERMAN.train.labels[None, :40]
    view, known = received(network(20, 20, normalised=(True, True)), cells, labels)
    ours, theirs = (made(restarts=2, iterations=3)(view, known, [1]) for made in (unmix, tableak))
    assert torch.equal(ours.cells, theirs.cells)
    assert ours.certified is not None
    assert not ours.certified.any()


def test_without_the_statistics_or_with_inexact_gradients_nothing_is_tried() -> None:
    cells, labels = GERMAN.train.cells[None, :8], GERMAN.train.labels[None, :8]
    model = resnet_bn(GERMAN.schema, seed=0)
    short: dict[str, Any] = {"restarts": 2, "iterations": 3}
    view, known = received(model, cells, labels, granted=False)
    ours, theirs = (made(**short)(view, known, [1]) for made in (unmix, tableak))
    assert ours.regime is not None
    assert ours.regime[0].startswith("not tried: batch normalisation by a mean and variance that are not known")
    assert torch.equal(ours.cells, theirs.cells)
    view, known = received(model, cells, labels)
    noisy = Knowledge(
        GERMAN.schema,
        GERMAN.statistics,
        8,
        defense=GaussianNoise(1e-3).describe(),
        batch_statistics=known.batch_statistics,
    )
    inexact = ("not tried: batch normalisation, and gradients that are not exact",)
    assert unmix(**short)(view, noisy, [1]).regime == inexact
    ran = FedAvg(8, epochs=2, local_batch_size=8, learning_rate=0.01).run(model, GERMAN.train, CLIENT, [0])
    assert unmix(**short)(ran.view, Knowledge(GERMAN.schema, GERMAN.statistics, 8), [1]).regime == inexact


def test_networks_that_begin_otherwise() -> None:
    assert opening(nn3(GERMAN.schema, seed=0).module) is None
    block = [nn.Linear(3, 4), BatchNorm(4), nn.ReLU()]
    assert opening(nn.Sequential(*block, nn.Linear(4, 2))) is None
    # What the first layer is not normalised by does not tell the mean of the rows beside it.
    plain = Residual(nn.Sequential(nn.Linear(3, 4), nn.ReLU()))
    after = [nn.Linear(7, 5), BatchNorm(5), nn.ReLU(), nn.Linear(5, 2)]
    assert opening(nn.Sequential(plain, *after)) is None
    beside = Residual(nn.Sequential(nn.Linear(3, 4), BatchNorm(4), nn.ReLU()))
    assert opening(nn.Sequential(beside, *after)) is not None


def test_after_its_time_no_round_begins_and_the_seed_decides() -> None:
    cells, labels = GERMAN.train.cells[None, :20], GERMAN.train.labels[None, :20]
    view, known = received(resnet_bn(GERMAN.schema, seed=0), cells, labels)
    assert known.batch_statistics is not None
    starts = Starts(PRECISE, GERMAN.statistics, 12)
    runs = [
        NormalisedHarvester(CLIENT, starts, rounds, seconds).run(
            Seen(view, 0, 20, known.batch_statistics, PRECISE), 20, 5
        )
        for rounds, seconds in ((9, 1e-9), (1, None), (9, None))
    ]
    assert torch.equal(runs[0].cells, runs[1].cells)
    assert len(runs[2].cells) > len(runs[1].cells)


class Form(nn.Module):
    """Normalisation in networks that are no chains of affine layers and ReLUs."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.first, self.before = nn.Linear(GERMAN.schema.width, 60), nn.BatchNorm1d(60)
        self.up, self.between, self.down = nn.Linear(60, 80), nn.BatchNorm1d(80), nn.Linear(80, 60)
        self.after, self.last = nn.BatchNorm1d(60), nn.Linear(60, 2)
        self.row = nn.BatchNorm1d(GERMAN.schema.width)

    def forward(self, rows: Tensor) -> Tensor:
        if self.kind == "residual":
            hidden = self.first(rows)
            hidden = hidden + self.down(functional.relu(self.up(self.before(hidden))))
            return self.last(functional.relu(self.after(hidden)))
        if self.kind == "row":
            return self.last(functional.relu(self.down(functional.relu(self.up(self.first(self.row(rows)))))))
        if self.kind == "outputs":
            return functional.pad(self.after(self.first(rows))[:, :2], (0, 0))
        hidden = functional.gelu(self.before(self.first(rows)))
        return self.last(functional.gelu(self.after(self.down(functional.gelu(self.between(self.up(hidden)))))))


@pytest.mark.parametrize("kind", ["residual", "row", "smooth"])
def test_batches_are_read_whole_in_any_form(kind: str) -> None:
    model = Model(seeded(lambda: Form(kind), 2), "softmax", "mine")
    cells, labels = GERMAN.train.cells[None, :9], GERMAN.train.labels[None, :9]
    view, known = received(model, cells, labels)
    guess = unmix(starts=256, restarts=2, iterations=2)(view, known, [3])
    assert guess.regime is not None
    assert "records read, which explains the whole message" in guess.regime[0]
    assert_read(guess, cells, labels)


def test_a_layer_whose_errors_add_up_to_zero_spans_differences() -> None:
    model = Model(seeded(lambda: Form("smooth"), 2), "softmax", "mine")
    view, known = received(model, GERMAN.train.cells[None, :10], GERMAN.train.labels[None, :10])
    assert known.batch_statistics is not None
    seen = seen_of(view, 0, 10, known.batch_statistics, PRECISE, GERMAN.statistics)
    assert isinstance(seen, TracedSeen)
    network = seen.network
    assert isinstance(network, TracedNetwork)
    assert [layer.centred for layer in network.layers] == ["before", "between", "after"]
    # The last one has 20 inputs more than units, which leaves as many directions of their mean open.
    assert [span.rank for span in seen.spans] == [10, 10, 30]
    rows = PRECISE.encode(GERMAN.train.cells[:10])
    for span, entering in zip(seen.spans, network.run(rows).entering, strict=True):
        own = torch.cat([entering, torch.ones(10, 1)], 1)
        assert float((own @ span.off_rows.T).norm()) < 1e-4 * float(own.norm())


def test_normalised_outputs_say_why_they_are_not_read() -> None:
    model = Model(seeded(lambda: Form("outputs"), 2), "softmax", "mine")
    cells, labels = GERMAN.train.cells[None, :10], GERMAN.train.labels[None, :10]
    view, known = received(model, cells, labels)
    known = dataclasses.replace(known, labels=labels)
    guess = unmix(starts=48, restarts=2, iterations=2)(view, known, [3])
    assert guess.regime is not None
    [regime] = guess.regime
    assert regime.startswith("not tried: ")
    assert "the gradient of 'first' has 2 dimensions" in regime


def one_step(
    model: Model, records: int, noise: float = 0.0, epochs: int = 1, optimizer: str = "sgd"
) -> tuple[UpdateView, Knowledge]:
    """Return a client's change in float32, as it is taken from weights before and after, and the batch's moments."""
    rows, labels = CLIENT.encode(GERMAN.train.cells[:records]), GERMAN.train.labels[:records]
    after = {name: part.detach().clone() for name, part in model.parameters.items()}
    for _ in range(epochs):
        step = gradient(model, rows[None], labels[None].float(), {name: part[None] for name, part in after.items()})
        after = {name: part - 0.1 * step[name][0] for name, part in after.items()}
    generator = torch.Generator().manual_seed(0)
    change = {
        name: (part - after[name] + noise * torch.randn(part.shape, generator=generator))[None].detach()
        for name, part in model.parameters.items()
    }
    training = LocalTraining(epochs, records, 0.1, optimizer=optimizer)  # pyright: ignore[reportArgumentType]
    granted = batch_statistics(model, rows[None])
    return UpdateView(model, change, training), Knowledge(
        GERMAN.schema, GERMAN.statistics, records, batch_statistics=granted
    )


@pytest.mark.parametrize("which", [pytest.param("both layers", marks=pytest.mark.long), "the first layer", "residual"])
def test_one_plain_step_is_read_whole_as_its_gradient_is(which: str) -> None:
    """The change of float32 weights, whose rounding no gradient has."""
    view, known = one_step(NETWORKS[which](), 8)
    guess = unmix(starts=48, restarts=1, iterations=1)(view, known, [3])
    assert guess.regime is not None
    assert guess.regime[0].startswith("all 8 records read, which explains the whole message")
    assert_read(guess, GERMAN.train.cells[None, :8], GERMAN.train.labels[None, :8])


def test_nothing_is_read_in_noise_and_that_is_no_evidence() -> None:
    view, known = one_step(NETWORKS["both layers"](), 8, noise=0.1)
    guess = unmix(starts=48, restarts=1, iterations=1)(view, known, [3])
    assert guess.searches is not None
    [search] = guess.searches
    assert search.read == 0
    assert "are more than 8 records leave" in str(search.doubt(8, GERMAN.schema.width))


@pytest.mark.parametrize("options", [{"epochs": 2}, {"optimizer": "adam"}])
def test_several_steps_and_signs_are_not_tried(options: dict[str, Any]) -> None:
    view, known = one_step(NETWORKS["both layers"](), 8, **options)
    guess = unmix(restarts=1, iterations=1)(view, known, [3])
    assert guess.regime == ("not tried: batch normalisation, and gradients that are not exact",)


def test_directions_below_the_rounding_of_weights_are_no_evidence() -> None:
    """Of a network with large weights hardly any direction of a small step is left."""
    model = network(70, 60, normalised=(True, True))
    with torch.no_grad():
        for name in ("0.weight", "3.weight"):
            model.parameters[name].mul_(3e4)
    view, known = one_step(model, 8)
    guess = unmix(starts=16, restarts=1, iterations=1)(view, known, [3])
    assert guess.searches is not None
    [search] = guess.searches
    assert (search.read, "hides directions" in str(search.doubt(8, GERMAN.schema.width))) == (0, True)
