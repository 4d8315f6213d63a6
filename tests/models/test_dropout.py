"""Networks that drop values in training: by masks that they are told, or without dropout."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor, nn

from seepage.datasets.planted import distinct
from seepage.errors import BadInputError
from seepage.learning import gradient
from seepage.models.dropout import dropping, without_dropout
from seepage.models.making import make_model
from seepage.models.model import Model
from seepage.protocols.fedavg import FedAvg
from seepage.protocols.fedsgd import FedSGD
from seepage.seeds import seeded
from seepage.tabular.encoder import Encoder
from tests.roundings import assert_rounded_alike

DATA = distinct(rows=12, continuous=2, discrete=2)
KNOWN = DATA.schema, DATA.statistics
WIDTH = DATA.schema.width


class Attending(nn.Module):
    """Drops values in layers, in attention, in a recurrent layer and by a function."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.first = nn.Linear(WIDTH, 8)
        layer = nn.TransformerEncoderLayer(4, 2, 8, dropout=rate, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.recurrent = nn.GRU(4, 4, num_layers=2, dropout=rate, batch_first=True)
        self.last = nn.Linear(8, 2)
        self.hidden_dropout = rate

    def forward(self, rows: Tensor) -> Tensor:
        tokens = self.encoder(self.first(rows).unflatten(1, (2, 4)))
        found = self.recurrent(tokens)[0].flatten(1)
        return self.last(nn.functional.dropout(found, self.hidden_dropout, self.training))


class Coded(nn.Module):
    """Takes codes, and drops values by a function at a rate that is written into it."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(2, 2)

    def forward(self, codes: Tensor, numbers: Tensor) -> Tensor:
        return self.last(nn.functional.dropout(numbers, 0.5))


def test_every_place_with_a_rate_is_switched_off_and_parameters_stay() -> None:
    module, plain = (seeded(lambda rate=rate: Attending(rate), seed=1) for rate in (0.3, 0.0))
    found, places = without_dropout(module)
    assert places[0] == "Attending at its root"
    assert {place.split(" ")[0] for place in places} == {"Attending", "Dropout", "MultiheadAttention", "GRU"}
    assert dropping(found) == []
    rows = torch.randn(5, WIDTH, generator=torch.Generator().manual_seed(0))
    assert torch.equal(found(rows), plain(rows))
    assert module.hidden_dropout == 0.3
    assert len(dropping(module)) > 1


class Written(nn.Module):
    """The layers of ``Shared``, with masks in place of dropout."""

    def __init__(self, layers: Sequence[nn.Linear], masks: Sequence[Tensor]) -> None:
        super().__init__()
        self.layers, self.masks = nn.ModuleList(layers), masks

    def forward(self, rows: Tensor) -> Tensor:
        first, second, last = self.layers
        return last(torch.tanh(second(first(rows).relu() * self.masks[0])) * self.masks[1])


class Shared(nn.Module):
    """One layer of dropout that is called twice, as users write it."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.last = nn.Linear(WIDTH, 6), nn.Linear(6, 5), nn.Linear(5, 2)
        self.drop = nn.Dropout(0.4)

    def forward(self, rows: Tensor) -> Tensor:
        return self.last(self.drop(torch.tanh(self.second(self.drop(self.first(rows).relu())))))


def test_a_client_drops_values_by_masks_that_it_draws() -> None:
    module = seeded(Shared, seed=1)
    model, _ = make_model(module, DATA.schema, DATA.statistics)
    assert model.drops is not None
    assert [(place.size, place.rate) for place in model.drops.places] == [(6, 0.4), (5, 0.4)]
    encoder = Encoder(DATA.schema, DATA.statistics, dtype=torch.float32)
    ran = FedSGD(4).run(model, DATA.train, encoder, seeds=[3])
    # The client draws its records first, then its masks.
    generator = torch.Generator().manual_seed(3)
    torch.randperm(len(DATA.train), generator=generator)
    masks = model.drops.draw([4], generator)
    assert set(masks.unique().tolist()) <= {0.0, float(torch.tensor(1 / 0.6))}
    written = Model(
        Written([module.first, module.second, module.last], masks.split([6, 5], 1)), "softmax", "written by hand"
    )
    wanted = gradient(written, encoder.encode(ran.secret.cells[0]), ran.secret.labels[0])
    sent = [part[0] for part in ran.view.gradient.values()]
    for found, true in zip(sent, wanted.values(), strict=True):
        # A few roundings in each of three layers and for each of four records.
        assert_rounded_alike(found, true, roundings=48)
    one, other = (FedSGD(4).run(model, DATA.train, encoder, [seed]).view.gradient["last.bias"] for seed in (1, 2))
    assert not torch.equal(one, other)


def test_every_local_epoch_has_masks_of_its_own() -> None:
    model, _ = make_model(nn.Sequential(nn.Linear(WIDTH, 40), nn.Dropout(0.5), nn.Linear(40, 2)), *KNOWN)
    encoder = Encoder(*KNOWN, dtype=torch.float32)
    ran = FedAvg(1, epochs=2, learning_rate=1e-3).run(model, DATA.train, encoder, seeds=[0])
    # A unit that is dropped in one step alone moves half as much.
    moved = (ran.view.update["0.weight"][0].norm(dim=1) > 0).float().mean()
    assert 0.6 < float(moved) < 0.9


def test_masks_behind_rows_reach_attention_and_functions() -> None:
    class Attention(nn.Module):
        def __init__(self, rate: float) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(WIDTH, 12), nn.Linear(12, 2)
            layer = nn.TransformerEncoderLayer(4, 2, 8, dropout=rate, batch_first=True)
            self.encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
            self.attention = nn.MultiheadAttention(4, 2, dropout=rate, batch_first=True)

        def forward(self, rows: Tensor) -> Tensor:
            tokens = self.encoder(self.first(rows).unflatten(1, (3, 4)))
            mixed, weights = self.attention(tokens, tokens, tokens)
            kept = nn.functional.dropout(mixed, 0.25, self.training) * weights.mean()
            return self.last(kept.flatten(1))

    module = seeded(lambda: Attention(0.2), seed=1)
    model, _ = make_model(module, *KNOWN)
    rows = torch.randn(5, WIDTH, generator=torch.Generator().manual_seed(0))
    drops = model.drops
    assert drops is not None
    # Heads times tokens times tokens, three places of the encoder's layer, the second attention, and the function.
    assert [place.size for place in drops.places] == [18, 12, 24, 12, 18, 12]
    assert [place.rate for place in drops.places] == [0.2] * 5 + [0.25]
    plain = model.outputs(rows)
    assert torch.equal(plain, without_dropout(module)[0].train()(rows).detach()) or torch.allclose(
        plain, seeded(lambda: Attention(0.0), seed=1).eval()(rows), atol=1e-6
    )
    ones = torch.cat([rows, torch.ones(5, drops.size)], 1)
    assert torch.allclose(model.outputs(ones), plain, atol=1e-6)
    for at, size in enumerate([0, 18, 30, 54, 66, 84]):
        other = ones.clone()
        other[:, WIDTH + size] = 0
        assert not torch.allclose(model.outputs(other), plain, atol=1e-6), at


def test_a_network_is_audited_without_dropout_where_that_is_asked() -> None:
    module = nn.Sequential(nn.Linear(WIDTH, 4), nn.ReLU(), nn.Dropout(0.5), nn.Linear(4, 2))
    model, _ = make_model(module, DATA.schema, DATA.statistics, dropout="off")
    assert model.switched_off == ("Dropout at '2'",)
    assert model.drops is None
    layer = module[2]
    assert isinstance(layer, nn.Dropout)
    assert layer.p == 0.5
    plain = Model(nn.Sequential(module[0], module[1], module[3]), "softmax", "plain")
    rows, labels = torch.randn(3, WIDTH, generator=torch.Generator().manual_seed(0)), torch.tensor([0.0, 1.0, 1.0])
    found, wanted = gradient(model, rows, labels), gradient(plain, rows, labels)
    assert all(torch.equal(a, b) for a, b in zip(found.values(), wanted.values(), strict=True))


def test_dropout_that_cannot_be_told_a_mask_is_refused_by_name() -> None:
    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.GRU(1, 4, num_layers=2, dropout=0.2, batch_first=True)
            self.last = nn.Linear(4, 2)

        def forward(self, rows: Tensor) -> Tensor:
            return self.last(self.inner(rows[..., None])[0][:, -1])

    with pytest.raises(BadInputError, match=r"other outputs for the same rows.*GRU at 'inner'.*--dropout off"):
        make_model(Recurrent(), *KNOWN)

    class Turned(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.last = nn.Linear(WIDTH, 2)

        def forward(self, rows: Tensor) -> Tensor:
            return self.last(nn.functional.dropout(rows.T, 0.5).T)

    if WIDTH % 7:
        with pytest.raises(BadInputError, match=r"drops values of a tensor of shape.*put the records on the first"):
            make_model(Turned(), *KNOWN)


def test_a_network_that_takes_codes_drops_values_too() -> None:
    model, _ = make_model(Coded(), *KNOWN)
    assert model.drops is not None
    assert model.drops.size == 2
    # Its rate stands in the forward method: there is nothing to switch off.
    with pytest.raises(BadInputError, match="other outputs for the same rows each time"):
        make_model(Coded(), *KNOWN, dropout="off")


def test_a_network_without_dropout_is_the_same_under_both_values() -> None:
    module = nn.Sequential(nn.Linear(WIDTH, 4), nn.Dropout(0.0), nn.Linear(4, 2))
    model, _ = make_model(module, DATA.schema, DATA.statistics, dropout="off")
    assert model.switched_off == ()
