"""The place on a client's way that is learnt with the records."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from seepage.assessment import match_records
from seepage.attacks.horizontal.exact.updates import midway
from seepage.attacks.horizontal.matching.matching import Cosine, MeanSquared, products
from seepage.attacks.horizontal.matching.profiles import reconstruction
from seepage.attacks.horizontal.matching.surrogate import Surrogate
from seepage.datasets.planted import distinct
from seepage.learning import LocalTraining, gradient
from seepage.models.mlp import wide
from seepage.models.model import Model
from seepage.protocols.fedavg import FedAvg
from seepage.tabular.encoder import Encoder
from seepage.wire.horizontal import GradientView, Knowledge, KnownDefense, UpdateView
from tests.attacks.test_engine import network
from tests.oracles.gradients import distance_of
from tests.roundings import assert_guessed_alike

DATA = distinct(rows=40)
MOVED = 0.4


def planted(share: float) -> tuple[GradientView, Tensor, Tensor]:
    """Return a gradient that was taken at this share of the way that it itself makes up."""
    generator = torch.Generator().manual_seed(7)
    model = Model(network(5, (12, 8), 3, generator), "softmax", "random")
    rows = torch.randn(1, 4, 5, generator=generator, dtype=torch.float64)
    labels = torch.randint(3, (1, 4), generator=generator).double()
    found = gradient(model, rows, labels)
    # The way is made to begin so far before the place where the gradient was taken.
    with torch.no_grad():
        for name, parameter in model.module.named_parameters():
            parameter += share * MOVED * found[name][0]
    return GradientView(model, found), rows, labels


@pytest.mark.long
@pytest.mark.parametrize(("matching", "share"), [(Cosine(), 0.3), (MeanSquared(), 0.8)], ids=["cosine", "mean_squared"])
def test_the_share_at_which_a_gradient_was_taken_is_learnt(matching: Cosine | MeanSquared, share: float) -> None:
    view, rows, labels = planted(share)
    engine = Surrogate(view, matching, MOVED)
    for _ in range(450):
        engine(rows[:, None].expand(-1, 2, -1, -1), labels)
    torch.testing.assert_close(engine.share, torch.full((1, 2), share, dtype=torch.float64), rtol=0, atol=0.05)
    assert float(engine.loss(rows[:, None].expand(-1, 2, -1, -1), labels).max()) < 5e-3


@pytest.mark.parametrize("kind", ["cosine", "mean_squared"])
def test_loss_and_derivative_are_those_at_the_share_of_each_restart(kind: str) -> None:
    matching = {"cosine": Cosine(), "mean_squared": MeanSquared()}[kind]
    view, rows, labels = planted(0.3)
    # A second victim, whose gradient is any.
    view = GradientView(view.model, {n: torch.cat([g, g.flip(1)]) for n, g in view.gradient.items()})
    labels = torch.cat([labels, labels.flip(1)])
    engine = Surrogate(view, matching, MOVED)
    generator = torch.Generator().manual_seed(1)
    for _ in range(3):
        engine(torch.randn(2, 2, 4, 5, generator=generator, dtype=torch.float64), labels)
    shares = engine.share.clone()
    assert shares.unique().numel() > 1
    rows = torch.randn(2, 2, 4, 5, generator=generator, dtype=torch.float64)
    assert torch.equal(engine.loss(rows, labels), engine.loss(rows, labels))
    loss, derivative = engine(rows, labels)
    begin = view.model.parameters
    for v in range(2):
        for r in range(2):
            one = rows[v, r].clone().requires_grad_()
            place = {n: (begin[n] - MOVED * shares[v, r] * g[v]).requires_grad_() for n, g in view.gradient.items()}
            outputs = torch.func.functional_call(view.model.module, place, (one,))
            made = torch.autograd.grad(
                nn.functional.cross_entropy(outputs, labels[v].long()), list(place.values()), create_graph=True
            )
            expected = distance_of(kind, made, [g[v] for g in view.gradient.values()])
            torch.testing.assert_close(loss[v, r], expected.detach(), rtol=1e-9, atol=1e-12)
            (by_rows,) = torch.autograd.grad(expected, one)
            torch.testing.assert_close(derivative[v, r], by_rows, rtol=1e-8, atol=1e-11)


@pytest.mark.long
def test_shares_begin_at_a_half_move_by_a_thousandth_and_stay_on_the_way() -> None:
    view, rows, labels = planted(-1.0)
    engine = Surrogate(view, Cosine(), MOVED)
    engine(rows[:, None], labels)
    assert engine.share.item() == pytest.approx(0.499)
    for _ in range(520):
        engine(rows[:, None], labels)
        assert engine.share.item() >= 0
    assert engine.share.item() == 0


def test_places_are_shares_of_the_whole_way() -> None:
    model = Model(network(5, (6,), 2, torch.Generator().manual_seed(0)), "softmax", "random")
    generator = torch.Generator().manual_seed(1)
    update = {n: torch.randn(2, *p.shape, generator=generator, dtype=p.dtype) for n, p in model.parameters.items()}
    view = UpdateView(model, update, LocalTraining(3, 2, 0.2))
    read, _ = midway(view, 6, KnownDefense())
    place = Surrogate(read, Cosine(), 0.2 * 9).gradients_at(torch.tensor([0.0, 1.0], dtype=torch.float64)).parameters
    assert place is not None
    for name, begin in model.parameters.items():
        torch.testing.assert_close(place[name], torch.stack([begin, begin - update[name][1]]))


@pytest.mark.long
@pytest.mark.parametrize(
    "made",
    [
        FedAvg(2, epochs=3, local_batch_size=1, learning_rate=1e-3),
        FedAvg(1, epochs=3, clients=2, learning_rate=1e-3),
        pytest.param(FedAvg(2, learning_rate=1e-3), marks=pytest.mark.slow),
    ],
    ids=["one", "two", "a step"],
)
def test_planted_records_are_read_out_of_an_update(made: FedAvg) -> None:
    encoder = Encoder(DATA.schema, DATA.statistics, dtype=torch.float32)
    transcript = made.run(wide(DATA.schema, seed=3), DATA.train, encoder, seeds=range(3))
    knowledge = Knowledge(DATA.schema, DATA.statistics, made.records)
    guess = reconstruction(iterations=250, restarts=3, local="sme")(transcript.view, knowledge, range(3))
    right = match_records(DATA.schema, DATA.statistics, transcript.secret, guess).right
    assert float(right.double().mean()) > 0.9


def test_a_restart_does_not_depend_on_the_ones_it_is_run_with() -> None:
    encoder = Encoder(DATA.schema, DATA.statistics)
    model = wide(DATA.schema, seed=3)
    model.module.double()
    transcript = FedAvg(2, epochs=3, learning_rate=0.1).run(model, DATA.train, encoder, seeds=[0, 1])
    knowledge = Knowledge(DATA.schema, DATA.statistics, 2)
    attacks = (reconstruction(iterations=15, restarts=3, local="sme", rows_at_once=rows) for rows in (2, 1000))
    one, other = (attack(transcript.view, knowledge, [4, 5]) for attack in attacks)
    assert one.loss is not None
    torch.testing.assert_close(one.loss, other.loss)
    assert_guessed_alike(one.cells, other.cells)


def test_signs_are_taken_where_the_client_began() -> None:
    encoder = Encoder(DATA.schema, DATA.statistics, dtype=torch.float32)
    transcript = FedAvg(1, epochs=2).run(wide(DATA.schema, seed=3), DATA.train, encoder, seeds=[0])
    signs = UpdateView(
        transcript.view.model, {n: u.sign() for n, u in transcript.view.update.items()}, transcript.view.training
    )
    known = Knowledge(DATA.schema, DATA.statistics, 1, defense=KnownDefense("sign", signs=True))
    learnt, fixed = (
        reconstruction(iterations=5, restarts=2, local=local)(signs, known, [0]) for local in ("sme", "midway")
    )
    assert torch.equal(learnt.cells, fixed.cells)


def test_products_are_those_of_each_tensor() -> None:
    generator = torch.Generator().manual_seed(0)
    dummy = {"w": torch.randn(2, 3, 4, 5, generator=generator), "b": torch.randn(2, 3, 4, generator=generator)}
    received = {name: d[:, 0] + 1 for name, d in dummy.items()}
    dots, squares = products(dummy, received)
    for place, (name, d) in enumerate(dummy.items()):
        for v in range(2):
            for r in range(3):
                torch.testing.assert_close(dots[v, r, place], (d[v, r] * received[name][v]).sum())
                torch.testing.assert_close(squares[v, r, place], (d[v, r] ** 2).sum())
