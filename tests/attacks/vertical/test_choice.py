from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from seepage.attacks.vertical import InformedQueryAttack, InformedStealth, QueryAttack, RidgeStealth
from seepage.attacks.vertical.parts.pairs import JudgedGuess, Pairs, best_of, boosted_trees, nearest
from seepage.baselines.vertical import Constant
from seepage.models.vertical import encoder_of, vertical_mlp
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


QUICK: dict[str, Any] = {"epochs": 4, "steps": 200}
ATTACKS = [RidgeStealth(), InformedQueryAttack(**QUICK), InformedStealth(**QUICK)]


@pytest.mark.long
@pytest.mark.parametrize("attack", ATTACKS, ids=lambda one: type(one).__name__)
@pytest.mark.parametrize("noise", [0.0, 100.0])
def test_informed_attacks_read_no_column_worse_than_a_constant(
    attack: RidgeStealth | InformedQueryAttack | InformedStealth, noise: float
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


def hidden() -> tuple[FeatureTranscript, FeatureKnowledge]:
    """Return what tells of the cells a thousandth as large as features that have nothing to do with them."""
    seen, known = skewed(0.0)
    draw = torch.Generator().manual_seed(2)
    mixing = torch.randn(8, 8, generator=draw)

    def behind(features: torch.Tensor, much: torch.Tensor) -> torch.Tensor:
        return torch.cat([1e-3 * features + much @ mixing, much], dim=-1)

    assert known.queries is not None
    assert known.leaked is not None
    answer = known.queries._answer
    known.queries._answer = lambda asked: behind(answer(asked), torch.randn(1, asked.shape[1], 8, generator=draw))
    leaked = known.leaked
    much = torch.randn(1, leaked.records, 8, generator=draw)
    known = replace(known, leaked=replace(leaked, features=behind(leaked.features, much)))
    view = seen.view
    mine = behind(view.received, torch.randn(1, view.records, 8, generator=draw))
    return replace(seen, view=replace(view, features=(view.features[0], mine))), known


@pytest.mark.slow
def test_what_a_defense_only_makes_small_is_read_all_the_same() -> None:
    seen, known = hidden()
    _, fresh = hidden()
    published = read(QueryAttack(**QUICK)(seen.view, fresh, [0]), seen, known)
    guess = InformedQueryAttack(**QUICK)(seen.view, known, [0])
    assert float(read(guess, seen, known).mean()) > float(published.mean()) + 0.1
    assert guess.choice is not None
    assert all(name in guess.choice[0] for name in known.schema.names)


def pairs(number: int = 40) -> tuple[Pairs, FeatureKnowledge]:
    """Return pairs of the cells of some records and two features of them."""
    seen, known = skewed(0.0)
    cells, draw = seen.cells[:, :number], torch.Generator().manual_seed(3)
    features, received = torch.randn(1, number, 2, generator=draw), torch.randn(1, 5, 2, generator=draw)
    return Pairs(encoder_of(known.schema), cells, features, received, None, held_out=10), known


def test_the_nearest_pair_is_that_of_all_distances() -> None:
    some, _ = pairs()
    found = nearest(some, whitened=False)
    mean, spread = some.features.double().mean(1), some.features.double().std(1, correction=0)
    known, received = ((rows.double() - mean) / spread for rows in (some.features, some.received))
    for record, row in enumerate(received[0]):
        distances = [float((row - other).norm()) for other in known[0]]
        torch.testing.assert_close(
            found.guess.cells[0, record], some.cells[0, int(np.argmin(distances))], atol=1e-3, rtol=1e-5
        )
    for pair, row in enumerate(known[0]):
        # A pair is not its own neighbour.
        distances = [float((row - other).norm()) if k != pair else np.inf for k, other in enumerate(known[0])]
        kind = some.cells[0, int(np.argmin(distances)), 1] == some.cells[0, pair, 1]
        assert bool(found.right[0, pair, 1]) == bool(kind)


def test_boosted_trees_read_what_few_inputs_decide_in_columns_that_a_forest_answers() -> None:
    some, _ = pairs(300)
    # Of 31 inputs one, which is the attacker's own, decides the category.
    kind, noise = some.cells[..., 1:2], torch.randn(2, 1, 300, 30, generator=torch.Generator().manual_seed(4))
    own = torch.cat([kind, noise[0]], -1), torch.cat([kind[:, :5], noise[1, :, :5]], -1)
    answered = [["random forest" if name == "kind" else "kernel" for name in some.encoder.schema.names]]
    found = boosted_trees(replace(some, own=own), [0], answered)
    assert found is not None
    assert bool((found.guess.cells[..., 1] == some.cells[:, :5, 1]).all())
    assert found.right.all(1).tolist() == [[False, True, False]]
    assert not bool(found.right[..., [0, 2]].any())
    assert boosted_trees(some, [0], [["kernel"] * 3]) is None


def test_each_column_is_answered_by_the_way_with_most_pairs_right_and_nothing_follows_once_all_are() -> None:
    some, known = pairs()
    shares = {"first": (1.0, 0.7, 0.0), "second": (1.0, 0.4, 1.0), "third": (0.5, 1.0, 0.5), "last": (1.0, 1.0, 1.0)}
    numbers = {name: float(k) for k, name in enumerate(shares)}
    tried = []

    def way(name: str) -> JudgedGuess:
        tried.append(name)
        right = torch.stack([torch.arange(10) < round(10 * share) for share in shares[name]], dim=-1)[None]
        cells = torch.full((1, 5, 3), numbers[name], dtype=torch.float64)
        return JudgedGuess(FeatureGuess(cells, failed=torch.zeros(1, dtype=torch.bool)), right)

    guess = best_of(some, [(name, lambda _, name=name: way(name)) for name in shares], known)
    assert tried == ["first", "second", "third"]
    assert guess.cells[0, 0, 1:].tolist() == [2.0, 1.0]
    assert guess.choice is not None
    assert guess.choice == ("first: income; third: kind; second: even",)
