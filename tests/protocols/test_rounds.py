from __future__ import annotations

from typing import Any

import pytest
import torch

from seepage.datasets.planted import distinct
from seepage.defenses.gaussian_noise import GaussianNoise
from seepage.errors import BadInputError
from seepage.learning import gradient, local_update
from seepage.models.mlp import nn1
from seepage.protocols.clients import Clients
from seepage.protocols.fedavg import FedAvg
from seepage.protocols.fedsgd import FedSGD
from seepage.tabular.encoder import Encoder
from seepage.wire.horizontal import AnyView, RoundsView

DATA = distinct(rows=40)
ENCODER = Encoder(DATA.schema, DATA.statistics, dtype=torch.float32)
MODELS = [nn1(DATA.schema, seed=seed) for seed in range(4)]
KINDS: list[type[Clients[Any]]] = [FedSGD, FedAvg]


def same(one: AnyView, other: AnyView) -> bool:
    """Return whether two views are the same, bit for bit."""
    rounds = [view.rounds if isinstance(view, RoundsView) else (view,) for view in (one, other)]
    return len(rounds[0]) == len(rounds[1]) and all(
        torch.equal(a.message[name], b.message[name])
        for a, b in zip(*rounds, strict=True)
        for name in a.model.parameters
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("clients", [1, 3])
@pytest.mark.parametrize("noise", [None, GaussianNoise(0.1)])
def test_one_round_is_the_first_of_many(kind: type[Clients[Any]], clients: int, noise: GaussianNoise | None) -> None:
    protocol = kind(5, defense=noise, clients=clients)
    many = protocol.run_rounds(MODELS, DATA.train, ENCODER, [3, 4], [5, 6])
    fewer = protocol.run_rounds(MODELS[:2], DATA.train, ENCODER, [3, 4], [5, 6])
    one = protocol.run(MODELS[0], DATA.train, ENCODER, [3, 4], [5, 6])
    assert same(one.view, RoundsView(many.view.rounds[:1], 5))
    assert same(fewer.view, RoundsView(many.view.rounds[:2], 5))
    assert many.secret.used is None
    assert torch.equal(one.secret.cells, many.secret.cells)
    assert torch.equal(one.secret.labels, many.secret.labels)
    assert (many.view.batch_size, many.view.victims, len(many.view.rounds)) == (5 * clients, 2, 4)
    assert [view.model for view in many.view.rounds] == MODELS


@pytest.mark.parametrize("clients", [1, 2])
def test_true_records_replay_every_round_bit_for_bit(clients: int) -> None:
    ran = FedSGD(3, clients=clients, holds=10).run_rounds(MODELS, DATA.train, ENCODER, [8, 9])
    secret, used = ran.secret, ran.secret.used
    assert used is not None
    assert secret.cells.shape[:2] == (2, 10 * clients)
    assert used.shape == (2, 4, 3 * clients)
    for i, view in enumerate(ran.view.rounds):
        for v in range(2):
            sent = [
                gradient(MODELS[i], ENCODER.encode(secret.cells[v, batch]), secret.labels[v, batch])
                for batch in used[v, i].split(3)
            ]
            for name, tensor in view.message.items():
                assert torch.equal(tensor[v], torch.stack([one[name] for one in sent]).mean(0))
            # Each client draws from its own records, none twice.
            for client, batch in enumerate(used[v, i].split(3)):
                assert set((batch // 10).tolist()) == {client}
                assert len(set(batch.tolist())) == 3
    # Drawn anew: four rounds of the same batch have a chance below 1e-5.
    assert len({tuple(sorted(batch.tolist())) for batch in used[0]}) > 1


def test_local_training_replays_in_every_round() -> None:
    protocol = FedAvg(6, epochs=2, local_batch_size=4, learning_rate=0.1, shuffle=False)
    ran = protocol.run_rounds(MODELS, DATA.train, ENCODER, [1])
    rows = ENCODER.encode(ran.secret.cells)[:, None].repeat(1, 2, 1, 1)
    for model, view in zip(MODELS, ran.view.rounds, strict=True):
        again = local_update(model, rows, ran.secret.labels[:, None].expand(-1, 2, -1), protocol.training)
        assert all(torch.equal(again[name], tensor) for name, tensor in view.message.items())


@pytest.mark.parametrize("clients", [1, 2])
def test_noise_is_drawn_anew_in_every_round(clients: int) -> None:
    models = [MODELS[0]] * 3
    defended = FedSGD(4, defense=GaussianNoise(0.5), clients=clients).run_rounds(models, DATA.train, ENCODER, [1], [2])
    bare = FedSGD(4, clients=clients).run_rounds(models, DATA.train, ENCODER, [1])
    noises = []
    for with_noise, without in zip(defended.view.rounds, bare.view.rounds, strict=True):
        parts = [with_noise.message[name] - without.message[name] for name in with_noise.message]
        noises.append(torch.cat([part.flatten() for part in parts]))
    assert same(RoundsView(bare.view.rounds[:1], 4), RoundsView(bare.view.rounds[2:], 4))
    correlations = torch.corrcoef(torch.stack(noises)) - torch.eye(3)
    # Independent noises of n entries have correlations of 1 / sqrt(n).
    assert float(correlations.abs().max()) < 5 / len(noises[0]) ** 0.5
    assert float(noises[0].std()) == pytest.approx(0.5 / clients**0.5, rel=0.1)


def test_what_cannot_be_held_is_refused() -> None:
    with pytest.raises(BadInputError, match="got holds=3; give at least 8"):
        FedSGD(8, holds=3)
    with pytest.raises(BadInputError, match=r"holds 60 is larger than the client's 40 rows; use a holds of at most 40"):
        FedSGD(8, holds=60).run_rounds(MODELS, DATA.train, ENCODER, [0])
    with pytest.raises(BadInputError, match="run it round by round"):
        FedSGD(8, holds=20).run(MODELS[0], DATA.train, ENCODER, [0])
    with pytest.raises(BadInputError, match="needs the model of each, got none"):
        FedSGD(8).run_rounds([], DATA.train, ENCODER, [0])
