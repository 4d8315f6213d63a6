from __future__ import annotations

import pytest
import torch

from seepage.assessment import match_records
from seepage.attacks.horizontal.exact.spear import Spear
from seepage.attacks.horizontal.exact.unmix import unmix
from seepage.datasets import load
from seepage.datasets.planted import distinct
from seepage.models.mlp import nn1, nn3
from seepage.protocols.fedavg import FedAvg
from seepage.protocols.fedsgd import FedSGD
from seepage.tabular.encoder import Encoder
from seepage.wire.horizontal import Knowledge
from seepage.wire.precision import Precision, cast, cast_noise, last_place

DATA = distinct(rows=40)
ENCODER = Encoder(DATA.schema, DATA.statistics, dtype=torch.float32)
CASTS: tuple[Precision, ...] = ("float16", "bfloat16", "int8")


@pytest.mark.parametrize("precision", CASTS)
@pytest.mark.parametrize("scale", [1.0, 1e-4])
def test_the_noise_of_a_cast_is_what_it_moves_entries_by(precision: Precision, scale: float) -> None:
    entries = scale * torch.randn(100, 100, generator=torch.Generator().manual_seed(0))
    arrived = cast(entries, precision)
    assert cast_noise(arrived, precision) == pytest.approx(float((arrived - entries).std()), rel=0.05)
    assert torch.equal(cast(arrived, precision), arrived) or precision == "int8"


def test_full_precision_moves_nothing() -> None:
    entries = torch.randn(10, generator=torch.Generator().manual_seed(0))
    assert cast(entries, "full") is entries
    assert cast_noise(entries, "full") == 0.0
    assert torch.equal(cast(torch.zeros(3), "int8"), torch.zeros(3))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_the_last_place_is_the_distance_to_the_next_number(dtype: torch.dtype) -> None:
    numbers = torch.cat([torch.randn(200, generator=torch.Generator().manual_seed(1)), torch.tensor([0.0, 1.0, 0.5])])
    numbers = numbers.to(dtype).abs()
    after = (numbers.view(torch.int16) + 1).view(dtype)
    assert torch.equal(last_place(numbers, dtype), after.double() - numbers.double())


@pytest.mark.parametrize("precision", CASTS)
@pytest.mark.parametrize("protocol", [FedSGD, FedAvg])
def test_each_client_casts_its_own_message(precision: Precision, protocol: type[FedSGD] | type[FedAvg]) -> None:
    model = nn1(DATA.schema, seed=1)
    full = protocol(4, clients=3).run(model, DATA.train, ENCODER, [1, 2])
    sent = protocol(4, clients=3, precision=precision).run(model, DATA.train, ENCODER, [1, 2])
    assert sent.view.precision == sent.view.of(slice(1)).precision == precision
    assert torch.equal(full.secret.cells, sent.secret.cells)
    assert protocol(4, precision=precision).sees.endswith(f", cast to {precision}")
    # Not numbers of this format: the server takes the mean of what arrived.
    name = next(iter(sent.view.message))
    message = sent.view.message[name][0]
    assert not torch.equal(message, full.view.message[name][0])
    assert not torch.equal(message, cast(full.view.message[name][0], precision))
    alone = protocol(4).run(model, DATA.train, ENCODER, [1, 2])
    single = protocol(4, precision=precision).run(model, DATA.train, ENCODER, [1, 2])
    for name, message in single.view.message.items():
        for victim in range(2):
            assert torch.equal(message[victim], cast(alone.view.message[name][victim], precision))


@pytest.mark.long
@pytest.mark.parametrize("protocol", ["fedsgd", "fedavg"])
@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
def test_records_are_read_out_of_messages_of_sixteen_bits_and_not_certified(
    precision: Precision, protocol: str
) -> None:
    data = load("german")
    encoder = Encoder(data.schema, data.statistics, dtype=torch.float32)
    of_steps = FedAvg(16, epochs=3, momentum=0.9, precision=precision)
    clients = FedSGD(16, precision=precision) if protocol == "fedsgd" else of_steps
    ran = clients.run(nn3(data.schema, seed=0), data.train, encoder, [0])
    guess = unmix(restarts=1, iterations=1)(ran.view, Knowledge(data.schema, data.statistics, 16), [0])
    assert guess.certified is not None
    assert guess.regime is not None
    assert not guess.certified.any()
    assert guess.regime[0].startswith("16 of 16 records read one by one")
    assert float(match_records(data.schema, data.statistics, ran.secret, guess).right.double().mean()) == 1.0


def test_sparse_columns_of_a_cast_gradient_certify_nothing() -> None:
    """All records are found, but other ones may be cast to the same numbers."""
    ran = FedSGD(2, precision="bfloat16").run(nn3(DATA.schema, seed=0), DATA.train, ENCODER, [0])
    guess = Spear(submatrices=4096)(ran.view, Knowledge(DATA.schema, DATA.statistics, 2), [0])
    assert guess.regime == ("all 2 records found",)
    assert guess.certified is not None
    assert not guess.certified.any()
