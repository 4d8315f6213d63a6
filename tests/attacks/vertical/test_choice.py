from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from seepage.attacks.vertical import InformedQueryAttack, RidgeStealth
from seepage.baselines.vertical import Constant
from seepage.models.vertical import vertical_mlp
from seepage.protocols.vertical import Rows, VerticalLearning, leak
from seepage.tabular.partition import by_names
from seepage.tabular.schema import Continuous, Discrete, Schema
from seepage.tabular.statistics import Statistics
from seepage.tabular.table import Table
from seepage.wire.secret import FeatureTranscript
from seepage.wire.vertical import FeatureGuess, FeatureKnowledge

RECORDS, HELD = 600, 60


def skewed(noise: float) -> tuple[FeatureTranscript, FeatureKnowledge]:
    """Return what a party sends of a number with few very large values, a category and another number."""
    draw = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "income": np.exp(draw.normal(8, 1, 1000)),
            "kind": draw.choice(3, 1000, p=[0.7, 0.2, 0.1]),
            "even": draw.uniform(size=1000),
            "mine": draw.normal(size=1000),
            "t": draw.integers(0, 2, 1000),
        }
    )
    numbers = {name: (float(frame[name].min()), float(frame[name].max())) for name in ("income", "even", "mine")}
    income, even, mine = (Continuous(name=n, low=a, high=b, tolerance=(b - a) / 20) for n, (a, b) in numbers.items())
    kind, target = Discrete(name="kind", categories=(0, 1, 2)), Discrete(name="t", categories=(0, 1))
    table = Table(Schema(columns=(income, kind, even, mine), target=target), frame)
    rows = Rows(table.cells[None], table.labels[None])
    protocol = VerticalLearning(epochs=1)
    split = by_names(table.schema, [(), ["income", "kind", "even"]])
    trained = protocol.train(vertical_mlp(split, [0], bottom=(16,), features=8, top=(8,)), rows.of(slice(0, 200)), [0])
    seen, held = leak(protocol.observe(trained, rows.of(slice(0, RECORDS + HELD)), 1, seed=0), HELD)
    known = replace(
        protocol.knowledge(trained, 1, Statistics.of(table)),
        leaked=held,
        auxiliary=protocol.auxiliary(trained, rows.of(slice(700, 1000)), 1, seed=0),
        queries=protocol.queries(trained, 1, 300, seed=0),
    )
    # Features that say nothing: what the party sends has nothing to do with its cells.
    draws = torch.Generator().manual_seed(1)

    def blurred(features: torch.Tensor) -> torch.Tensor:
        return features + noise * torch.randn(features.shape, generator=draws)

    assert known.leaked is not None
    assert known.queries is not None
    answer, view = known.queries._answer, seen.view
    known.queries._answer = lambda asked: blurred(answer(asked))
    known = replace(known, leaked=replace(known.leaked, features=blurred(known.leaked.features)))
    features = (view.features[0], blurred(view.features[1]))
    return replace(seen, view=replace(view, features=features)), known


def read(guess: FeatureGuess, seen: FeatureTranscript, known: FeatureKnowledge) -> torch.Tensor:
    allowed = [0.0 if isinstance(c, Discrete) else 0.1 * (c.high - c.low) for c in known.schema.columns]
    return ((guess.cells - seen.cells).abs() <= torch.tensor(allowed).double()).double().mean((0, 1))


ATTACKS = [RidgeStealth(), InformedQueryAttack(epochs=4, steps=200)]


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda one: type(one).__name__)
@pytest.mark.parametrize("noise", [0.0, 100.0])
def test_informed_attacks_read_no_column_worse_than_a_constant(
    attack: RidgeStealth | InformedQueryAttack, noise: float
) -> None:
    seen, known = skewed(noise)
    guess = attack(seen.view, known, [0])
    found, constant = (read(one, seen, known) for one in (guess, Constant()(seen.view, known)))
    # Three standard errors of a difference between shares of 600 records that agree on most.
    assert float((found - constant).min()) > -0.05, (found, constant)
    assert guess.radii is not None
    inside = (guess.cells - seen.cells).abs() <= guess.radii[:, None]
    assert float(inside[..., [0, 2]].double().mean()) > 0.8
    assert guess.chances is not None
    assert guess.chances[1] is not None
    assert bool((guess.chances[1].argmax(-1) == guess.cells[..., 1]).all())


def test_what_is_read_better_than_a_constant_stays_as_it_is() -> None:
    seen, known = skewed(0.0)
    found, constant = (read(one(seen.view, known, [0]), seen, known) for one in (RidgeStealth(), Constant()))
    assert float(found[1] - constant[1]) > 0.1
    assert float(found[2] - constant[2]) > 0.2
