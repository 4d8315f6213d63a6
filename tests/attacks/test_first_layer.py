"""Attacks that take the first layer's gradient apart read planted batches exactly."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from seepage.assessment import match_records
from seepage.attacks.horizontal.exact.cocktail_party import CocktailParty
from seepage.attacks.horizontal.exact.first_layer import choose_records, quotients
from seepage.attacks.horizontal.exact.robbing_the_fed import RobbingTheFed
from seepage.attacks.horizontal.exact.single_activation import SingleActivation
from seepage.datasets import load
from seepage.datasets.planted import distinct
from seepage.errors import BadInputError
from seepage.models.imprint import imprint
from seepage.models.mlp import mlp, nn3
from seepage.models.model import Model
from seepage.protocols.fedavg import FedAvg
from seepage.protocols.fedsgd import FedSGD
from seepage.registry import attacks
from seepage.seeds import seeded
from seepage.tabular.encoder import Encoder
from seepage.wire.horizontal import Knowledge, RecordsGuess, View
from seepage.wire.secret import Transcript

DATA = distinct(rows=40)
ENCODER = Encoder(DATA.schema, DATA.statistics)
LINEAR = ("single_activation", "robbing_the_fed", "cocktail_party")


def planted(records: int, model: Model, victims: int = 4) -> tuple[Transcript[View], Knowledge]:
    model.module.double()
    ran = FedSGD(records).run(model, DATA.train, ENCODER, range(victims))
    return ran, Knowledge(DATA.schema, DATA.statistics, records)


def whole(transcript: Transcript[View], guess: RecordsGuess) -> float:
    """Return the share of records all of whose cells are read."""
    right = match_records(DATA.schema, DATA.statistics, transcript.secret, guess).right
    return float(right.all(-1).double().mean())


@pytest.mark.parametrize("head", ["softmax", "sigmoid"])
def test_one_record_is_read_exactly(head: str) -> None:
    ran, knowledge = planted(1, mlp(DATA.schema, (20,), seed=0, head=head))  # pyright: ignore[reportArgumentType]
    for attack in (attacks.create("single_activation"), attacks.create("cocktail_party", iterations=500)):
        guess = attack(ran.view, knowledge, range(4))
        torch.testing.assert_close(guess.cells, ran.secret.cells, rtol=1e-6, atol=1e-6)


def test_neurons_that_one_record_alone_activates_give_it_away() -> None:
    """A first layer with a neuron a record, which no other record activates."""
    true = ENCODER.encode(DATA.train.cells)
    layer = nn.Linear(DATA.schema.width, 40, dtype=torch.float64)
    with torch.no_grad():
        # Half way between a record's product with itself and its largest with another.
        products = true @ true.T
        own, others = products.diagonal(), (products - 1e9 * torch.eye(40)).amax(1)
        layer.weight.copy_(true)
        layer.bias.copy_(-(own + others) / 2)
    model = Model(nn.Sequential(layer, nn.ReLU(), seeded(lambda: nn.Linear(40, 2), 0)).double(), "softmax", "telling")
    ran, knowledge = planted(12, model)
    assert whole(ran, SingleActivation()(ran.view, knowledge, range(4))) == 1.0


def test_bins_with_one_record_give_it_away() -> None:
    ran, knowledge = planted(8, imprint(DATA.schema, seed=1, bins=400), victims=20)
    share = whole(ran, RobbingTheFed()(ran.view, knowledge, range(20)))
    # The binomial chance that no other record falls into the same bin, less three standard deviations of 160 records;
    # the measure is not quite normal.
    expected = (1 - 1 / 400) ** 7
    assert share > expected - 3 * math.sqrt(expected * (1 - expected) / 160) - 0.02


def test_two_bins_hold_means_and_means_are_no_records() -> None:
    ran, knowledge = planted(8, imprint(DATA.schema, seed=1, bins=2))
    assert whole(ran, RobbingTheFed()(ran.view, knowledge, range(4))) < 0.2


@pytest.mark.long
@pytest.mark.parametrize("records", [5, pytest.param(8, marks=pytest.mark.slow)])
def test_independent_components_are_the_records(records: int) -> None:
    """Categories are sparse sources; of rows that are a little correlated numbers come out less exact."""
    ran, knowledge = planted(records, mlp(DATA.schema, (60,), seed=0))

    def categories(iterations: int) -> float:
        guess = CocktailParty(iterations=iterations, step=1e-2)(ran.view, knowledge, range(4))
        right = match_records(DATA.schema, DATA.statistics, ran.secret, guess).right
        return float(right[..., list(DATA.schema.discrete)].double().mean())

    assert categories(1500) == 1.0
    # Whitening alone does not do it.
    assert categories(1) < 0.9


def test_more_records_than_the_layer_can_hold_are_filled_up() -> None:
    ran, knowledge = planted(12, mlp(DATA.schema, (5,), seed=0))
    guess = CocktailParty(iterations=5)(ran.view, knowledge, range(4))
    assert guess.cells.shape == (4, 12, 6)
    mode = torch.tensor([m.median for m in DATA.statistics.marginals], dtype=torch.float64)
    assert int((guess.cells == mode).all(-1).sum(1).min()) >= 7


def test_updates_of_local_steps_are_read_from_the_middle_of_the_way() -> None:
    model = mlp(DATA.schema, (20,), seed=0)
    model.module.double()
    ran = FedAvg(1, epochs=3, learning_rate=1e-3).run(model, DATA.train, ENCODER, range(4))
    guess = SingleActivation()(ran.view, Knowledge(DATA.schema, DATA.statistics, 1), range(4))
    assert whole(ran, guess) == 1.0


def test_candidates_are_different_and_the_most_valid_ones() -> None:
    knowledge = Knowledge(DATA.schema, DATA.statistics, 3)
    true = ENCODER.encode(DATA.train.cells[:3])
    mixed = (true[:1] + true[1:2]) / 2
    nothing = torch.full_like(mixed, torch.inf)
    rows = torch.cat([nothing, mixed, true[:1], true[:1] + 1e-6, true[1:2], true[2:]])
    found = choose_records(ENCODER, knowledge, rows[None])[0]
    torch.testing.assert_close(found.sort(0).values, DATA.train.cells[:3].sort(0).values)
    # Nothing but the most frequent values where there is no candidate.
    empty = choose_records(ENCODER, knowledge, nothing[None])
    assert (empty == empty[:, :1]).all()


def test_a_neuron_that_hardly_reacts_is_no_candidate() -> None:
    found = quotients(torch.ones(1, 2, 3), torch.tensor([[1.0, 1e-9]]))
    assert found[0].isfinite().all(-1).tolist() == [True, False]


@pytest.mark.parametrize("name", LINEAR)
def test_a_model_without_such_a_layer_is_refused(name: str) -> None:
    module = nn.Sequential(nn.Linear(DATA.schema.width, 4, bias=False), nn.ReLU(), nn.Linear(4, 2))
    ran, knowledge = planted(2, Model(module, "softmax", "mine"))
    with pytest.raises(BadInputError, match=r"does not begin with an nn.Linear"):
        attacks.create(name)(ran.view, knowledge, range(4))


def test_a_network_that_nobody_crafted_is_refused() -> None:
    ran, knowledge = planted(2, mlp(DATA.schema, (4,), seed=0))
    with pytest.raises(BadInputError, match="audit model 'imprint'"):
        RobbingTheFed()(ran.view, knowledge, range(4))


@pytest.mark.parametrize("options", [{"step": 0}, {"apart": -1.0}, {"iterations": 0}])
def test_numbers_that_make_no_search_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(BadInputError, match=next(iter(options))):
        CocktailParty(**options)  # pyright: ignore[reportArgumentType]


def test_the_crafted_network_is_said_to_be_one() -> None:
    adult = load("adult")
    made = imprint(adult.schema)
    assert "crafted" in made.crafted
    assert nn3(adult.schema).crafted == ""
    encoder = Encoder(adult.schema, adult.statistics, dtype=torch.float32)
    ran = FedSGD(8).run(made, adult.train, encoder, range(8))
    guess = RobbingTheFed()(ran.view, Knowledge(adult.schema, adult.statistics, 8), range(8))
    right = match_records(adult.schema, adult.statistics, ran.secret, guess).right
    assert float(right.double().mean()) > 0.9


def test_too_few_bins_are_refused() -> None:
    with pytest.raises(BadInputError, match="bins=1"):
        imprint(DATA.schema, bins=1)
