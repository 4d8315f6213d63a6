from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from seepage.datasets.planted import distinct
from seepage.defenses.clipping import Clipping
from seepage.defenses.gaussian_noise import GaussianNoise
from seepage.errors import BadInputError
from seepage.learning import LocalTraining, local_update
from seepage.models.mlp import nn1
from seepage.models.model import Model
from seepage.protocols.fedavg import FedAvg
from seepage.protocols.fedsgd import FedSGD
from seepage.seeds import seeded
from seepage.tabular.encoder import Encoder
from tests.roundings import assert_rounded_alike

DATA = distinct(rows=40)
ENCODER = Encoder(DATA.schema, DATA.statistics, dtype=torch.float32)
MODEL = nn1(DATA.schema, seed=1)


def by_hand(model: Model, rows: Tensor, labels: Tensor, epochs: int, batch: int, rate: float) -> dict[str, Tensor]:
    """Return what an ordinary training loop changes, going through the rows in order."""
    module = copy.deepcopy(model.module)
    optimiser = torch.optim.SGD(module.parameters(), lr=rate)
    for _ in range(epochs):
        for start in range(0, len(rows), batch):
            optimiser.zero_grad()
            outputs = module(rows[start : start + batch])
            nn.functional.cross_entropy(outputs, labels[start : start + batch].long()).backward()
            optimiser.step()
    before = model.parameters
    return {name: before[name] - p.detach() for name, p in module.named_parameters()}


@pytest.mark.parametrize(("epochs", "batch"), [(1, 8), (1, 3), (4, 8), (3, 5), (2, 99)])
def test_the_view_is_what_an_ordinary_training_loop_changes(epochs: int, batch: int) -> None:
    protocol = FedAvg(8, epochs=epochs, local_batch_size=batch, learning_rate=0.1, shuffle=False)
    transcript = protocol.run(MODEL, DATA.train, ENCODER, seeds=[1, 2])
    assert transcript.view.training == LocalTraining(epochs, batch, 0.1)
    for v in range(2):
        rows = ENCODER.encode(transcript.secret.cells[v])
        expected = by_hand(MODEL, rows, transcript.secret.labels[v], epochs, batch, 0.1)
        for name, update in transcript.view.update.items():
            torch.testing.assert_close(update[v], expected[name], rtol=1e-4, atol=1e-6)


def test_replaying_the_client_on_its_records_gives_the_view_bit_for_bit() -> None:
    protocol = FedAvg(8, epochs=3, local_batch_size=3, shuffle=False)
    transcript = protocol.run(MODEL, DATA.train, ENCODER, seeds=[5, 6, 7])
    for v in range(3):
        # Copies, laid out in memory as the client's: the bits of a product may depend on that.
        rows = ENCODER.encode(transcript.secret.cells[v]).repeat(1, 3, 1, 1)
        labels = transcript.secret.labels[v].repeat(1, 3, 1)
        again = local_update(MODEL, rows, labels, protocol.training)
        for name, update in transcript.view.update.items():
            assert torch.equal(again[name][0], update[v])


def test_one_step_on_all_records_is_their_gradient_times_the_rate() -> None:
    averaged = FedAvg(8, learning_rate=0.5).run(MODEL, DATA.train, ENCODER, seeds=[3])
    single = FedSGD(8).run(MODEL, DATA.train, ENCODER, seeds=[3])
    assert torch.equal(averaged.secret.cells, single.secret.cells)
    for name, update in averaged.view.update.items():
        torch.testing.assert_close(update, single.view.gradient[name] / 2, rtol=1e-4, atol=1e-7)


@pytest.mark.long
def test_clients_that_shuffle_go_another_way_each_epoch() -> None:
    """Of a model that only learns a mean, with a rate of one half, the last record counts most."""
    module = seeded(lambda: nn.Linear(ENCODER.width, 2), seed=0)
    model = Model(module, "softmax", "linear")
    views = [
        FedAvg(8, epochs=3, local_batch_size=1, learning_rate=0.5, shuffle=shuffle)
        .run(model, DATA.train, ENCODER, seeds=[4, 4])
        .view.update["weight"]
        for shuffle in (True, False)
    ]
    assert not torch.equal(views[0], views[1])
    # All of it follows from the victim's seed.
    assert torch.equal(views[0][0], views[0][1])


@pytest.mark.parametrize("protocol", [FedSGD(4, clients=3), FedAvg(4, clients=3, epochs=2, local_batch_size=2)])
def test_an_aggregate_is_the_mean_of_its_clients(protocol: FedSGD | FedAvg) -> None:
    together = protocol.run(MODEL, DATA.train, ENCODER, seeds=[8, 9])
    assert together.secret.cells.shape[:2] == (2, 12)
    for v, seed in enumerate([8, 9]):
        generator = torch.Generator().manual_seed(seed)
        torch.randperm(len(DATA.train), generator=generator)
        answers = []
        for chosen in range(3):
            part = slice(4 * chosen, 4 * chosen + 4)
            rows = ENCODER.encode(together.secret.cells[v, part])
            answers.append(protocol.answer(MODEL, rows, together.secret.labels[v, part], generator))
        for name, message in together.view.message.items():
            parts = torch.stack([answer[name] for answer in answers])
            # A few roundings for each of the sums over four records, in each of three clients.
            assert_rounded_alike(message[v], parts.mean(0), roundings=48, scale=float(parts.abs().max()), what=name)


def test_aggregated_gradients_are_those_of_one_large_batch() -> None:
    several = FedSGD(4, clients=3).run(MODEL, DATA.train, ENCODER, seeds=[8])
    one = FedSGD(12).run(MODEL, DATA.train, ENCODER, seeds=[8])
    assert torch.equal(several.secret.cells, one.secret.cells)
    for name, message in several.view.gradient.items():
        torch.testing.assert_close(message, one.view.gradient[name], rtol=1e-4, atol=1e-7)


@pytest.mark.long
def test_each_client_defends_its_own_message() -> None:
    clipped = FedSGD(4, clients=5, defense=Clipping(norm=1e-3)).run(MODEL, DATA.train, ENCODER, [1], [2])
    alone = FedSGD(4, clients=5).run(MODEL, DATA.train, ENCODER, [1])
    norm = torch.cat([g.flatten() for g in clipped.view.gradient.values()]).norm()
    # Each client's is 1e-3 long; they do not all point the same way, as they would were the mean clipped.
    assert norm < 0.999e-3
    assert torch.equal(clipped.secret.cells, alone.secret.cells)
    noise = FedSGD(4, clients=4, defense=GaussianNoise(scale=0.5))
    assert noise.known().noise == 0.25
    bare = FedSGD(4, clients=4).run(MODEL, DATA.train, ENCODER, range(20))
    noisy = noise.run(MODEL, DATA.train, ENCODER, range(20), range(20))
    added = torch.cat([(noisy.view.gradient[n] - g).flatten() for n, g in bare.view.gradient.items()])
    assert float(added.std()) == pytest.approx(0.25, rel=0.01)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epochs": 0}, "epochs"),
        ({"local_batch_size": 0}, "local_batch_size"),
        ({"learning_rate": 0}, "learning_rate=0"),
        ({"learning_rate": float("nan")}, "learning_rate=nan"),
        ({"clients": 0}, "clients"),
        ({"momentum": 1}, "momentum=1"),
        ({"optimizer": "adam", "nesterov": True}, "nesterov is a setting of sgd"),
        ({"local_batch_size": 9, "drop_last": True}, "no local batch of 9 is left"),
    ],
)
def test_what_no_client_can_do_is_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(BadInputError, match=message):
        FedAvg(8, **options)  # pyright: ignore[reportArgumentType]


def test_more_records_than_rows_are_refused() -> None:
    with pytest.raises(BadInputError, match="8 of each of 6 clients is larger than the client's 40 rows"):
        FedAvg(8, clients=6).run(MODEL, DATA.train, ENCODER, [1])


def test_clients_train_with_the_options_of_the_protocol() -> None:
    options = {"epochs": 2, "local_batch_size": 3, "learning_rate": 0.01, "optimizer": "adam", "betas": [0.8, 0.9]}
    protocol = FedAvg(8, shuffle=False, **options)  # pyright: ignore[reportArgumentType]
    assert protocol.training == LocalTraining(2, 3, 0.01, "adam", betas=(0.8, 0.9))
    ran = protocol.run(MODEL, DATA.train, ENCODER, seeds=[3])
    rows = ENCODER.encode(ran.secret.cells)[:, None].repeat(1, 2, 1, 1)
    again = local_update(MODEL, rows, ran.secret.labels[:, None].repeat(1, 2, 1), protocol.training)
    for name, update in ran.view.update.items():
        assert torch.equal(update, again[name])
    assert protocol.sees.endswith(
        "3 a step, by Adam at a learning rate of 0.01, betas 0.8 and 0.9, epsilon 1e-08 that the server set"
    )


def test_weight_decay_is_that_of_torch_where_none_is_given() -> None:
    assert FedAvg(8, optimizer="adamw").training.weight_decay == 0.01
    assert FedAvg(8, optimizer="adamw", weight_decay=0).training.weight_decay == 0
    assert FedAvg(8, optimizer="adam").training.weight_decay == 0
