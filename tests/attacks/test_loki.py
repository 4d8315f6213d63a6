"""LOKI reads single clients' records out of aggregates."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from seepage.assessment import match_records
from seepage.attacks.horizontal.exact.loki import Loki
from seepage.attacks.horizontal.exact.robbing_the_fed import RobbingTheFed
from seepage.datasets import load
from seepage.datasets.planted import distinct
from seepage.errors import BadInputError
from seepage.models.imprint import imprint
from seepage.models.loki import loki
from seepage.models.mlp import nn1
from seepage.models.model import Model
from seepage.protocols.clients import Clients
from seepage.protocols.fedavg import FedAvg
from seepage.protocols.fedsgd import FedSGD
from seepage.settings.horizontal.spec import HorizontalSpec
from seepage.settings.horizontal.subject import prepare
from seepage.tabular.encoder import Encoder
from seepage.wire.horizontal import Knowledge, View
from seepage.wire.secret import Transcript

DATA = distinct(rows=40)
ENCODER = Encoder(DATA.schema, DATA.statistics)


def double(model: Model) -> Model:
    model.module.double()
    return model


def attacked(model: Model, protocol: Clients, victims: int = 6) -> tuple[Transcript[View], Tensor]:
    ran = protocol.run(double(model), DATA.train, ENCODER, range(victims))
    return ran, Loki()(ran.view, Knowledge(DATA.schema, DATA.statistics, protocol.records), range(victims)).cells


def bins_of(model: Model, records: Tensor, clients: int) -> Tensor:
    """Return which bin each record falls into, -1 where it is below or above all, from the network's first client."""
    block = model.parameters["1.weight"][:, : DATA.schema.width + 1]
    inputs = torch.cat([records, torch.ones_like(records[..., :1])], -1) * model.parameters["0.bias"].max()
    inside = (inputs @ block.T).gt(0) & (inputs @ block.T).lt(1)
    assert int(inside.sum(-1).max()) == 1
    return torch.where(inside.any(-1), inside.int().argmax(-1), -1)


@pytest.mark.parametrize(
    "protocol",
    [
        FedSGD(6, clients=4),
        FedAvg(6, clients=4, epochs=3, local_batch_size=2, learning_rate=1e-3),
        FedAvg(9, clients=1, epochs=2, learning_rate=1e-3),
    ],
    ids=["fedsgd", "fedavg", "one client"],
)
def test_records_alone_in_their_client_s_bin_are_read_exactly(protocol: Clients) -> None:
    clients, size = protocol.clients, protocol.batch_size
    model = double(loki(DATA.schema, seed=2, clients=clients, bins=60))
    ran, found = attacked(model, protocol)
    bins = bins_of(model, ENCODER.encode(ran.secret.cells), clients).unflatten(1, (clients, size))
    true, read = (cells.unflatten(1, (clients, size)) for cells in (ran.secret.cells, found))
    shared = 0
    for victim in range(len(true)):
        for client in range(clients):
            for record, place in zip(true[victim, client], bins[victim, client], strict=True):
                others = int((bins[victim, client] == place).sum()) - 1
                shared += others > 0
                if place >= 0 and others == 0:
                    apart = (read[victim, client] - record).abs().amax(-1)
                    assert float(apart.min()) < 1e-6
    # Some do meet another, or the bins were not what decides.
    assert shared > 0


def test_with_many_bins_all_come_back_with_the_client_they_belong_to() -> None:
    ran, found = attacked(loki(DATA.schema, seed=0, clients=4, bins=4000), FedSGD(5, clients=4), victims=3)
    own = torch.stack([found.unflatten(1, (4, 5)), ran.secret.cells.unflatten(1, (4, 5))])
    # Rows in the order of their first number, of which no two are alike.
    order = own[..., 0].argsort(-1)[..., None].expand_as(own)
    read, true = own.gather(3, order)
    torch.testing.assert_close(read, true, rtol=0, atol=1e-6)


def test_what_the_server_receives_is_the_mean_of_what_its_versions_make() -> None:
    model = double(loki(DATA.schema, seed=1, clients=3, bins=30))
    ran = FedSGD(4, clients=3).run(model, DATA.train, ENCODER, [5])
    summed = {name: torch.zeros_like(p) for name, p in model.parameters.items()}
    for client in range(3):
        one = loki(DATA.schema, seed=1, clients=3, bins=30).module.double()
        with torch.no_grad():
            for name in model.each:
                one.get_parameter(name).copy_(model.each[name][client])
        rows, labels = (held[0, 4 * client : 4 * client + 4] for held in (ran.secret.cells, ran.secret.labels))
        nn.functional.cross_entropy(one(ENCODER.encode(rows)), labels.long()).backward()
        for name, parameter in one.named_parameters():
            assert parameter.grad is not None
            summed[name] += parameter.grad / 3
    for name, expected in summed.items():
        torch.testing.assert_close(ran.view.gradient[name][0], expected)


def test_an_aggregate_of_one_network_for_all_keeps_nobody_apart() -> None:
    """Of as many bins, those that all clients share hold fewer records alone."""
    sgd = FedSGD(6, clients=4)
    ran, found = attacked(loki(DATA.schema, seed=2, clients=4, bins=60), sgd)
    same = sgd.run(double(imprint(DATA.schema, seed=2, bins=60)), DATA.train, ENCODER, range(6))
    knowledge = Knowledge(DATA.schema, DATA.statistics, sgd.records)
    robbed = RobbingTheFed()(same.view, knowledge, range(6)).cells

    def whole(cells: Tensor) -> float:
        equal = (cells[:, :, None] - ran.secret.cells[:, None]).abs().amax(-1) < 1e-6
        return float(equal.any(1).double().mean())

    assert torch.equal(same.secret.cells, ran.secret.cells)
    assert whole(found) > whole(robbed) + 0.1


def test_adult_is_read_in_single_precision_after_local_training() -> None:
    """The scale is what lets small weights tell what a record added to them."""
    adult = load("adult")
    encoder = Encoder(adult.schema, adult.statistics, dtype=torch.float32)
    protocol = FedAvg(8, clients=4, epochs=5, local_batch_size=2)

    def right(scale: float) -> float:
        ran = protocol.run(loki(adult.schema, clients=4, bins=256, scale=scale), adult.train, encoder, range(2))
        guess = Loki()(ran.view, Knowledge(adult.schema, adult.statistics, 32), range(2))
        return float(match_records(adult.schema, adult.statistics, ran.secret, guess).right.double().mean())

    assert right(50.0) > 0.95 > right(1.0)


def test_the_server_is_called_malicious_and_its_versions_make_another_network() -> None:
    model = loki(DATA.schema, clients=2, bins=5)
    assert "LOKI" in model.crafted
    spec = HorizontalSpec(dataset="german", model="loki", model_options={"clients": 2}, protocol_options={"clients": 2})
    subject = prepare(spec)
    digest = subject.model_digest
    moved = {name: versions.flip(0) for name, versions in subject.model.each.items()}
    other = prepare(spec, model=Model(subject.model.module, "softmax", "loki", subject.model.crafted, moved))
    assert other.model_digest != digest


def test_another_number_of_clients_than_the_server_made_networks_for_is_refused() -> None:
    with pytest.raises(BadInputError, match="made for 4, but the messages of 2"):
        FedSGD(2, clients=2).run(double(loki(DATA.schema, clients=4, bins=5)), DATA.train, ENCODER, [0])


@pytest.mark.parametrize("made", [nn1, imprint])
def test_networks_that_nobody_crafted_for_it_are_refused(made: Callable[..., Model]) -> None:
    ran = FedSGD(2, clients=2).run(double(made(DATA.schema)), DATA.train, ENCODER, [0])
    with pytest.raises(BadInputError, match="audit model 'loki'"):
        Loki()(ran.view, Knowledge(DATA.schema, DATA.statistics, 4), [0])


@pytest.mark.parametrize("options", [{"clients": 0}, {"bins": 0}, {"scale": 0.0}, {"scale": float("inf")}])
def test_numbers_that_make_no_bins_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(BadInputError, match=next(iter(options))):
        loki(DATA.schema, **options)  # pyright: ignore[reportArgumentType]
