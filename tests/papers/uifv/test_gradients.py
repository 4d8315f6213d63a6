from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from seepage.attacks.vertical import EqualitySolving
from seepage.errors import BadInputError
from seepage.models.inverse import cells_of
from seepage.models.vertical import Stack, encoder_of, vertical_mlp
from seepage.papers.uifv.attacks.gradients import GradientMatching, NeuronQuotients, _gradients, _received
from seepage.protocols.vertical import Rows, VerticalLearning
from seepage.registry import attacks
from seepage.tabular.partition import by_names
from tests.attacks.vertical.parts import Setting, accuracy, setting, table
from tests.oracles.vertical import layers

HERE = setting()
SEEDS = [0, 1]


def granted(records: int, batch_size: int) -> tuple:
    seen = HERE.seen.of(slice(0, records))
    gradients = HERE.protocol.gradients(HERE.trained, seen, batch_size, seed=0)
    return seen, replace(HERE.granted(), gradients=gradients).only(["bottom", "gradients"])


def test_granted_gradients_are_those_of_one_network() -> None:
    seen, known = granted(records=12, batch_size=4)
    model, gradients = HERE.trained.model, known.gradients
    assert gradients is not None
    assert (gradients.batches, gradients.batch_size) == (3, 4)
    bottom, top = model.bottoms[1], model.top
    assert isinstance(bottom, Stack)
    assert isinstance(top, Stack)
    for training in range(2):
        mine, joint = layers(bottom, training), layers(top, training)
        for batch in range(3):
            rows = slice(4 * batch, 4 * batch + 4)
            sent = mine(model.encoders[1].encode(seen.cells[training, rows]))
            logits = joint(torch.cat([seen.view.features[0][training, rows], sent], dim=-1))[:, 0]
            loss = nn.functional.binary_cross_entropy_with_logits(logits, seen.labels[training, rows].float())
            weights = [layer.weight for layer in mine if isinstance(layer, nn.Linear)]
            for i, found in enumerate(torch.autograd.grad(loss, weights)):
                granted_ = gradients.parameters[f"weights.{i}"][training, batch]
                torch.testing.assert_close(granted_, found.T, rtol=1e-4, atol=1e-7)


def test_true_rows_cause_the_granted_gradients() -> None:
    seen, known = granted(records=12, batch_size=4)
    held = _received(seen.view, known, "this")
    rows = held.encoder.encode(seen.cells).unflatten(1, (3, 4)).flatten(0, 1)
    for made, wanted in zip(_gradients(held, rows), [*held.by_weights, *held.by_biases], strict=True):
        torch.testing.assert_close(made, wanted, rtol=1e-4, atol=1e-7)


def test_a_unit_that_one_record_activates_holds_it() -> None:
    seen, known = granted(records=6, batch_size=1)
    guess = NeuronQuotients()(seen.view, known, SEEDS)
    # A record that nothing came back for leaves no gradient.
    moved = known.gradients.returned.abs().amax(-1) > 1e-6
    assert bool(moved.any())
    assert torch.allclose(guess.cells[moved], seen.cells[moved], atol=1e-2)


def test_matching_moves_towards_the_records() -> None:
    seen, known = granted(records=8, batch_size=2)
    few, many = (
        accuracy(GradientMatching(valid=True, steps=steps)(seen.view, known, SEEDS).cells, seen) for steps in (1, 400)
    )
    assert many > few + 0.2


@pytest.mark.parametrize("name", ["bottom_dlg", "bottom_cpa", "bottom_sqr", "bottom_loki"])
def test_every_one_guesses_the_records_it_was_granted_gradients_of(name: str) -> None:
    seen, known = granted(records=16, batch_size=8)
    options = {"bottom_dlg": {"steps": 20}, "bottom_cpa": {"iterations": 20}}.get(name, {})
    attack = attacks.create(name, **options)
    guess = attack(seen.view, known, SEEDS)
    assert guess.cells.shape == seen.cells.shape
    assert torch.equal(guess.cells, attack(seen.view, known, SEEDS).cells)
    assert guess.failed is not None
    assert not bool(guess.failed.any())
    with pytest.raises(BadInputError, match="16 records that gradients were granted of"):
        attack(HERE.seen.view, known, SEEDS)
    with pytest.raises(BadInputError, match="do not cross the wire"):
        attack(seen.view, known.only(["bottom"]), SEEDS)


def test_more_records_than_columns_are_as_many_components_as_columns() -> None:
    seen, known = granted(records=64, batch_size=32)
    guess = attacks.create("bottom_cpa", iterations=5)(seen.view, known, SEEDS)
    assert guess.cells.shape == seen.cells.shape


def test_a_batch_has_no_more_records_than_there_are() -> None:
    with pytest.raises(BadInputError, match="more than the 4 that are attacked"):
        HERE.protocol.gradients(HERE.trained, HERE.seen.of(slice(0, 4)), 5, seed=0)


def linear(features: int, trainings: int = 2) -> Setting:
    """Return a federation whose networks are linear."""
    data = table()
    rows = Rows(data.all.cells.repeat(trainings, 1, 1), data.all.labels.repeat(trainings, 1))
    protocol = VerticalLearning(epochs=3)
    split = by_names(data.schema, [(), ["a", "b", "n"]])
    trained = protocol.train(vertical_mlp(split, SEEDS, (), features, ()), rows.of(slice(0, 500)), SEEDS)
    seen = protocol.observe(trained, rows.of(slice(500, 700)), 1, seed=0)
    known = protocol.knowledge(trained, 1, data.statistics)
    return Setting(data, protocol, trained, seen, rows, replace(known, bottom=trained.model.bottoms[1]))


def test_as_many_equations_as_columns_are_solved_exactly() -> None:
    enough, few = linear(features=8), linear(features=2)
    solve = EqualitySolving(match="features")
    guess = solve(enough.seen.view, enough.known)
    torch.testing.assert_close(guess.cells, enough.seen.cells, atol=1e-3, rtol=0)
    assert accuracy(solve(few.seen.view, few.known).cells, few.seen) < 0.99
    # Two equations of sums make four of two features.
    valid = EqualitySolving(match="features", valid=True)(few.seen.view, few.known)
    assert accuracy(valid.cells, few.seen) > accuracy(solve(few.seen.view, few.known).cells, few.seen)


def test_a_prediction_is_one_equation_that_the_answer_meets() -> None:
    here = linear(features=4)
    guess = EqualitySolving()(here.seen.view, here.known)
    view, encoder = here.seen.view, encoder_of(here.known.schema)
    bottom = here.trained.model.bottoms[1]
    top = view.model.top
    assert isinstance(bottom, Stack)
    assert isinstance(top, Stack)
    # The answer of least norm lies along the equation, which is one number here; solved by hand.
    weight = bottom.weights[0].detach().double() @ top.weights[0].detach().double()[:, 4:]
    wanted = view.model.top(torch.cat(list(view.features), dim=-1)).detach().double()
    shift = bottom.biases[0].detach().expand(-1, view.records, -1)
    rest = view.model.top(torch.cat([view.features[0], shift], dim=-1)).detach().double()
    least = (wanted - rest) @ weight.mT / weight.square().sum((1, 2), keepdim=True)
    torch.testing.assert_close(guess.cells, cells_of(encoder, least), atol=1e-5, rtol=1e-4)


def test_equality_solving_refuses_hidden_layers() -> None:
    with pytest.raises(BadInputError, match="without hidden layers"):
        EqualitySolving()(HERE.seen.view, HERE.granted())
