"""SQR reads records off wide random layers, the better the wider, and each of its steps is exact where it has to be."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from seepage.assessment import match_records
from seepage.datasets.planted import distinct
from seepage.errors import BadInputError
from seepage.models.mlp import mlp, wide
from seepage.models.model import Head, Model
from seepage.papers.uifv.attacks.sqr import Orders, Sqr, decomposed, fitted, hermite
from seepage.papers.uifv.gaussian import gaussian
from seepage.protocols.clients import Clients
from seepage.protocols.fedavg import FedAvg
from seepage.protocols.fedsgd import FedSGD
from seepage.settings.horizontal.audit import HorizontalAudit, control_of
from seepage.settings.horizontal.spec import make_spec
from seepage.settings.horizontal.subject import prepare
from seepage.tabular.encoder import Encoder
from seepage.tabular.schema import Continuous
from seepage.tabular.statistics import Statistics
from seepage.wire.horizontal import Knowledge
from tests.attacks.test_rgap import COLOURS, FRACTIONS, THREE, TWO, rows_of
from tests.roundings import assert_guessed_alike

DATA = distinct(rows=40)


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def powers(x: Tensor, weights: Tensor) -> Orders:
    """Return weighted sums of the powers of vectors (victim, record, component)."""
    return Orders(
        torch.einsum("vr,vra->va", weights, x),
        torch.einsum("vr,vra,vrb->vab", weights, x, x),
        torch.einsum("vr,vra,vrb,vrc->vabc", weights, x, x, x),
    )


def test_orders_of_a_cubic_are_its_mean_derivatives() -> None:
    """Of (a z)^3 + (b z)^2 + c z they are 3|a|^2 a + c, 2 b b' and 6 a a a, in three variables."""
    z, (a, b, c) = random(1, 400, 3), random(3, 3, seed=1)
    found = fitted(z, (z @ a) ** 3 + (z @ b) ** 2 + z @ c)
    torch.testing.assert_close(found.first[0], 3 * a @ a * a + c)
    torch.testing.assert_close(found.second[0], 2 * torch.outer(b, b))
    torch.testing.assert_close(found.third[0], 6 * torch.einsum("a,b,c->abc", a, a, a))


@pytest.mark.parametrize("records", [1, 2, 5])
def test_vectors_are_found_in_sums_of_their_powers(records: int) -> None:
    """Neither orthogonal nor of one sign."""
    x = nn.functional.normalize(random(3, records, records, seed=2), dim=-1)
    orders = powers(x, random(3, records, seed=3))
    found = decomposed(orders, random(3, 4, records, seed=4))
    alike = (x @ found).abs()
    torch.testing.assert_close(alike.amax(1), torch.ones(3, records, dtype=torch.float64))
    torch.testing.assert_close(alike.amax(2), torch.ones(3, records, dtype=torch.float64))


def test_hermite_coefficients_are_those_of_closed_forms() -> None:
    sizes = torch.tensor([0.5, 1.0, 3.0], dtype=torch.float64)
    # E[exp(tz); z < 0], the mean of the derivatives of exp(tz) - 1 below 0; the third has a kink's share.
    tail = torch.exp(sizes.square() / 2) * torch.special.ndtr(-sizes)
    second = sizes.square() * tail
    third = sizes**3 * tail - sizes.square() / math.sqrt(2 * math.pi)
    found = hermite(nn.ELU(), sizes)
    torch.testing.assert_close(found[:, 0], sizes * (0.5 + tail), rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(found[:, 1] * math.sqrt(2), second, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(found[:, 2] * math.sqrt(6), third, rtol=1e-3, atol=1e-3)
    assert float(hermite(nn.Tanh(), sizes)[:, 1].abs().max()) < 1e-9
    assert float(hermite(nn.GELU(), sizes)[:, 2].abs().max()) < 1e-9


def off(width: int, records: int, head: Head = "softmax", protocol: Clients | None = None, seed: int = 3) -> Tensor:
    """Return how far each number of six records of fractions is read from its own, matched, for eight victims."""
    target = (
        THREE if head == "softmax" else TWO if head == "sigmoid" else Continuous(name="y", low=-9, high=9, tolerance=1)
    )
    rows = rows_of((*FRACTIONS, *COLOURS), target, seed)
    statistics = Statistics.of(rows)
    model = gaussian(rows.schema, seed=1, head=head, width=width)
    model.module.double()
    used = protocol or FedSGD(records)
    ran = used.run(model, rows, Encoder(rows.schema, statistics), range(8))
    guess = Sqr()(ran.view, Knowledge(rows.schema, statistics, records), range(8))
    matched = match_records(rows.schema, statistics, ran.secret, guess)
    apart = (matched.guess - matched.true).abs()
    return apart[..., :-1]


def test_records_are_read_the_better_the_wider_the_layer() -> None:
    narrow, usual, broad = (float(off(width, 2).median()) for width in (200, 4_000, 100_000))
    assert narrow > 3 * usual
    assert usual > 2 * broad
    assert broad < 0.05


@pytest.mark.parametrize("head", ["softmax", "sigmoid", "regression"])
def test_one_record_is_read_whatever_the_head(head: Head) -> None:
    assert float(off(40_000, 1, head).median()) < 0.05


def test_updates_of_local_steps_are_read_from_the_middle_of_the_way() -> None:
    assert float(off(40_000, 1, protocol=FedAvg(1, epochs=3, learning_rate=1e-4)).median()) < 0.05


def test_more_records_than_units_can_tell_apart_leave_a_guess() -> None:
    model = gaussian(DATA.schema, width=300)
    ran = FedSGD(30).run(model, DATA.train, Encoder(DATA.schema, DATA.statistics, dtype=torch.float32), range(5))
    knowledge = Knowledge(DATA.schema, DATA.statistics, 30)
    done: list[float] = []
    guess = Sqr()(ran.view, knowledge, range(5), done.append)
    assert guess.cells.shape == ran.secret.cells.shape
    assert guess.cells.isfinite().all()
    assert sum(done) == pytest.approx(1)
    # A victim's guess is its own, whoever it is attacked with.
    alone = Sqr()(ran.view.of(slice(4, 5)), knowledge, [4])
    assert_guessed_alike(alone.cells[0], guess.cells[4])


@pytest.mark.parametrize(
    ("layers", "why"),
    [
        ([nn.Linear(123, 500), nn.ELU(), nn.Linear(500, 2)], "has biases"),
        ([nn.Linear(123, 500, bias=False), nn.ReLU(), nn.Linear(500, 2)], "has ReLU units"),
        ([nn.Linear(123, 100, bias=False), nn.ELU(), nn.Linear(100, 2)], "has 100 units for 123"),
        ([nn.Linear(123, 500, bias=False), nn.PReLU(), nn.Linear(500, 2)], "is of another kind"),
        (
            [nn.Linear(123, 500, bias=False), nn.ELU(), nn.Linear(500, 9), nn.ELU(), nn.Linear(9, 2)],
            "is of another kind",
        ),
    ],
)
def test_other_networks_are_refused(layers: list[nn.Module], why: str) -> None:
    model = Model(nn.Sequential(*layers).double(), "softmax", "mine")
    ran = FedSGD(1).run(model, DATA.train, Encoder(DATA.schema, DATA.statistics), [0])
    with pytest.raises(BadInputError, match=f"{why}.*audit model 'gaussian'"):
        Sqr()(ran.view, Knowledge(DATA.schema, DATA.statistics, 1), [0])


@pytest.mark.parametrize(
    ("frozen", "bias", "why"),
    [
        ("0.weight", False, "send none of 0.weight, .*frozen"),
        ("2.weight", False, "send none of 2.weight, .*frozen"),
        ("0.bias", True, "has biases in its first layer"),
    ],
)
def test_frozen_layers_are_refused_by_name(frozen: str, bias: bool, why: str) -> None:
    module = nn.Sequential(nn.Linear(DATA.schema.width, 500, bias=bias), nn.ELU(), nn.Linear(500, 2)).double()
    module.get_parameter(frozen).requires_grad_(False)
    ran = FedSGD(1).run(Model(module, "softmax", "mine"), DATA.train, Encoder(DATA.schema, DATA.statistics), [0])
    with pytest.raises(BadInputError, match=f"sqr .*{why}"):
        Sqr()(ran.view, Knowledge(DATA.schema, DATA.statistics, 1), [0])


def test_networks_by_name_that_are_others_are_refused() -> None:
    for made in (wide(DATA.schema), mlp(DATA.schema, (), seed=0)):
        ran = FedSGD(1).run(made, DATA.train, Encoder(DATA.schema, DATA.statistics, dtype=torch.float32), [0])
        with pytest.raises(BadInputError, match="audit model 'gaussian'"):
            Sqr()(ran.view, Knowledge(DATA.schema, DATA.statistics, 1), [0])


def test_numbers_below_one_are_refused() -> None:
    with pytest.raises(BadInputError, match="components=0"):
        Sqr(components=0)
    with pytest.raises(BadInputError, match="width=0"):
        gaussian(DATA.schema, width=0)


def test_the_positive_control_keeps_the_network() -> None:
    spec = make_spec(dataset="german", model="gaussian", model_options={"width": 200}, attacks="sqr")
    subject = prepare(spec)
    assert control_of(HorizontalAudit(spec, subject)).subject.model.name == "gaussian"
    assert (
        control_of(
            HorizontalAudit(make_spec(**{**spec.model_dump(), "attacks": "tableak"}), subject)
        ).subject.model.name
        == "wide"
    )
