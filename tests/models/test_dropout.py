"""Networks that drop values in training: refused, or audited without dropout."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from seepage.datasets.planted import distinct
from seepage.errors import BadInputError
from seepage.learning import gradient
from seepage.models.dropout import dropping, without_dropout
from seepage.models.model import Model, seeded
from seepage.settings.network import make_model

DATA = distinct(rows=12, continuous=2, discrete=2)
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


def test_a_network_with_dropout_is_refused_unless_it_is_switched_off() -> None:
    module = nn.Sequential(nn.Linear(WIDTH, 4), nn.ReLU(), nn.Dropout(0.5), nn.Linear(4, 2))
    with pytest.raises(BadInputError, match=r"holds Dropout at '2', which drops.*dropout='off', --dropout off"):
        make_model(module, DATA.schema, DATA.statistics)
    model, _ = make_model(module, DATA.schema, DATA.statistics, dropout="off")
    assert model.switched_off == ("Dropout at '2'",)
    layer = module[2]
    assert isinstance(layer, nn.Dropout)
    assert layer.p == 0.5
    plain = Model(nn.Sequential(module[0], module[1], module[3]), "softmax", "plain")
    rows, labels = torch.randn(3, WIDTH, generator=torch.Generator().manual_seed(0)), torch.tensor([0.0, 1.0, 1.0])
    found, wanted = gradient(model, rows, labels), gradient(plain, rows, labels)
    assert all(torch.equal(a, b) for a, b in zip(found.values(), wanted.values(), strict=True))


def test_dropout_of_attention_alone_is_refused_by_name() -> None:
    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(WIDTH, 4), nn.Linear(4, 2)
            self.attention = nn.MultiheadAttention(4, 2, dropout=0.2, batch_first=True)

        def forward(self, rows: Tensor) -> Tensor:
            tokens = self.first(rows)[:, None]
            return self.last(self.attention(tokens, tokens, tokens)[0][:, 0])

    with pytest.raises(BadInputError, match="MultiheadAttention at 'attention'"):
        make_model(Attention(), DATA.schema, DATA.statistics)
    assert make_model(Attention(), DATA.schema, DATA.statistics, dropout="off")[0].switched_off


def test_dropout_that_cannot_be_switched_off_is_refused() -> None:
    with pytest.raises(BadInputError, match=r"other outputs for the same rows each time.*self\.dropout"):
        make_model(Coded(), DATA.schema, DATA.statistics, dropout="off")


def test_a_network_without_dropout_is_the_same_under_both_values() -> None:
    module = nn.Sequential(nn.Linear(WIDTH, 4), nn.Dropout(0.0), nn.Linear(4, 2))
    model, _ = make_model(module, DATA.schema, DATA.statistics, dropout="off")
    assert model.switched_off == ()
