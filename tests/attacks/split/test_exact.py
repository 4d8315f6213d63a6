from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from seepage.attacks.split import Exact, Posterior
from seepage.attacks.split.parts.messages import Messages, rounding
from seepage.attacks.split.parts.nearest import Exhaustive
from seepage.attacks.split.parts.proof import fits_alone
from seepage.attacks.split.parts.responder import responder
from seepage.attacks.split.parts.sharp import vote
from seepage.attacks.split.parts.space import Space
from seepage.datasets.dataset import Dataset
from seepage.defenses.cut_noise import CutNoise
from seepage.errors import BadInputError
from seepage.models.deepfm import Fields, deepfm
from seepage.models.split import SplitModel
from seepage.protocols.split import SplitLearning
from seepage.tabular.schema import Continuous, Discrete, Schema
from seepage.tabular.table import Table
from seepage.wire.secret import CutTranscript
from seepage.wire.split import CutKnowledge
from tests.oracles.split import configurations, distances, loss_gradient

WIDTHS = {"a": 3, "b": 4, "c": 2, "s": 5}


def table(classes: int, rows: int = 300, seed: int = 0, widths: dict[str, int] = WIDTHS) -> Dataset:
    """Return columns that depend on each other, a number, and a label that depends on all of them."""
    generator = np.random.default_rng(seed)
    hidden = generator.normal(size=rows)
    frame = {
        name: np.clip((hidden + generator.normal(size=rows) + 2) / 4 * width, 0, width - 1).astype(int)
        for name, width in widths.items()
    }
    frame["n"] = hidden + generator.normal(size=rows)
    score = hidden + 0.3 * frame["a"] - 0.4 * frame["c"] + generator.normal(size=rows)
    frame["t"] = np.digitize(score, np.quantile(score, np.linspace(0, 1, classes + 1)[1:-1]))
    schema = Schema(
        columns=(
            *(Discrete(name=name, categories=tuple(range(width))) for name, width in widths.items()),
            Continuous(name="n", low=-9, high=9, tolerance=0.3),
        ),
        target=Discrete(name="t", categories=tuple(range(classes))),
    )
    return Dataset("made", Table(schema, pd.DataFrame(frame)), None, (), "generated", "none needed")


def exchange(
    data: Dataset,
    protocol: SplitLearning,
    private: tuple[str, ...] = ("a", "b", "c"),
    records: int = 30,
    **options: Any,
) -> tuple[SplitModel, CutTranscript]:
    model = deepfm(data.schema, private, seed=0, hidden=(16, 8), **options)
    trained = protocol.train(model, data.train, seed=0)
    return trained.model, protocol.observe(trained, data.train.rows(range(records)), seed=1)


PLAIN = SplitLearning(epochs=4, batch_size=32)


# Whether two classes have one logit is no matter of three.
@pytest.mark.long
@pytest.mark.parametrize(
    ("classes", "options"), [(2, {}), (2, {"logit": False}), (2, {"tower": (8,)}), (3, {}), (3, {"tower": (8,)})]
)
def test_private_cells_and_labels_are_read_from_undefended_gradients(classes: int, options: dict[str, Any]) -> None:
    data = table(classes)
    _, seen = exchange(data, PLAIN, **options)
    for closed_form in (True, False):
        guess = Exact(closed_form=closed_form)(seen.view, CutKnowledge(data.schema, data.statistics))
        assert torch.equal(guess.cells, seen.cells)
        assert torch.equal(guess.labels, seen.labels)
        assert guess.likely is not None
        assert bool(guess.likely.all())
        assert guess.residual is not None
        assert guess.runner_up is not None
        assert bool((guess.residual < guess.runner_up).all())


@pytest.mark.long
@pytest.mark.parametrize(
    ("classes", "keep", "noise"),
    [
        (2, 5, None),
        (2, 5, CutNoise(0.3)),
        (2, 5, CutNoise(0.3, rule="own")),
        (3, 2, None),
        pytest.param(3, 2, CutNoise(0.3), marks=pytest.mark.slow),
        pytest.param(3, 2, CutNoise(0.3, rule="own"), marks=pytest.mark.slow),
    ],
)
def test_the_nearest_configurations_are_those_of_going_through_all(
    classes: int, keep: int, noise: CutNoise | None
) -> None:
    data = table(classes)
    model, seen = exchange(data, replace(PLAIN, noise=noise), records=6)
    known = CutKnowledge(data.schema, data.statistics)
    for prune in (True, False):
        guess = Exact(prune=prune, keep=keep)(seen.view, known)
        assert guess.residual is not None
        assert guess.runner_up is not None
        for i in range(6):
            every = distances(model, seen.view.cut[i], seen.view.own_gradient[i])
            first, second = sorted(every.values())[:2]
            assert float(guess.residual[i]) == pytest.approx(first, rel=1e-3, abs=1e-6)
            assert float(guess.runner_up[i]) == pytest.approx(second, rel=1e-3, abs=1e-6)
            found = every[tuple(int(c) for c in guess.cells[i]), int(guess.labels[i])]
            assert found == pytest.approx(first, rel=1e-3, abs=1e-6)


def test_an_attacker_who_knows_the_bound_compares_clipped_gradients() -> None:
    data = table(2)
    model, seen = exchange(data, replace(PLAIN, noise=CutNoise(0.05)), records=6)
    known = CutKnowledge(data.schema, data.statistics, replace(PLAIN, noise=CutNoise(0.05)).known())
    guess = Exact(aware=True)(seen.view, known)
    for i in range(6):
        every = distances(model, seen.view.cut[i], seen.view.own_gradient[i], seen.view.clip)
        found = every[tuple(int(c) for c in guess.cells[i]), int(guess.labels[i])]
        assert found == pytest.approx(min(every.values()), rel=1e-3, abs=1e-6)


@pytest.mark.long
def test_without_what_came_back_the_smallest_gradient_is_the_answer() -> None:
    data = table(2)
    model, seen = exchange(data, PLAIN, records=6)
    guess = Exact(scale=0)(seen.view, CutKnowledge(data.schema, data.statistics))
    for i in range(6):
        every = distances(model, seen.view.cut[i], torch.zeros_like(seen.view.cut[i]))
        found = every[tuple(int(c) for c in guess.cells[i]), int(guess.labels[i])]
        assert found == pytest.approx(min(every.values()), rel=1e-3)
    assert guess.likely is None


@pytest.mark.long
@pytest.mark.parametrize("votes", [1, 5, 10])
def test_the_majority_of_the_nearest_wins_and_the_nearest_among_equals(votes: int) -> None:
    data = table(2)
    model, seen = exchange(data, PLAIN, records=6)
    guess = Exact(votes=votes)(seen.view, CutKnowledge(data.schema, data.statistics))
    for i in range(6):
        every = distances(model, seen.view.cut[i], seen.view.own_gradient[i])
        near = sorted(every, key=lambda one: every[one])[:votes]
        for k in range(3):
            counts = Counter(codes[k] for codes, _ in near)
            expected = next(codes[k] for codes, _ in near if counts[codes[k]] == max(counts.values()))
            assert int(guess.cells[i, k]) == expected


def test_votes_are_counted() -> None:
    assert vote(torch.tensor([[3, 1, 2, 2, 1], [0, 0, 1, 1, 1]])).tolist() == [1, 1]


@pytest.mark.long
def test_the_mean_over_a_batch_must_be_undone() -> None:
    data = table(2)
    _, seen = exchange(data, PLAIN, records=30)
    known = CutKnowledge(data.schema, data.statistics)
    wrong = Exact(undo_mean=False)(seen.view, known)
    assert float((wrong.cells == seen.cells).double().mean()) < 0.9
    alone = replace(seen.view, gradient=seen.view.own_gradient, behind=torch.ones(30))
    assert torch.equal(Exact(undo_mean=False)(alone, known).cells, seen.cells)


@pytest.mark.long
def test_configurations_that_fit_as_well_are_counted() -> None:
    data = table(2)
    model, seen = exchange(data, PLAIN, records=6)
    with torch.no_grad():
        fields = model.client.own
        assert isinstance(fields, Fields)
        for tables in (fields.embeddings, fields.first_order):
            weight = next(tables[0].parameters())
            weight[1] = weight[2]
    cells = seen.cells.float()
    cells[:, 0] = 1
    received = [loss_gradient(model, seen.view.cut[i], cells[i], int(seen.labels[i])) for i in range(6)]
    view = replace(seen.view, model=model, gradient=torch.stack(received), behind=torch.ones(6))
    guess = Exact(keep=6)(view, CutKnowledge(data.schema, data.statistics))
    assert guess.ties is not None
    assert guess.ties.tolist() == [2] * 6


def test_continuous_private_columns_are_refined_within_their_bins() -> None:
    data = table(2)
    _, seen = exchange(data, PLAIN, private=("a", "n"), records=30)
    known = CutKnowledge(data.schema, data.statistics)
    guess = Exact(bins=16)(seen.view, known)
    wrong = (guess.cells[:, 1] - seen.cells[:, 1]).abs()
    assert float((wrong < 0.01).double().mean()) > 0.9
    assert float((guess.cells[:, 0] == seen.cells[:, 0]).double().mean()) > 0.9


@pytest.mark.slow
def test_a_descent_finds_planted_optima_and_says_what_it_proves() -> None:
    widths = dict.fromkeys("abcdefgh", 4) | {"s": 5}
    data = table(2, widths=widths)
    _, seen = exchange(data, PLAIN, private=tuple("abcdefgh"), records=10)
    known = CutKnowledge(data.schema, data.statistics)
    guess = Exact(search="descent")(seen.view, known, seeds=[0])
    right = (guess.cells == seen.cells).all(1) & (guess.labels == seen.labels)
    assert guess.likely is not None
    assert int(right.sum()) >= 9
    assert int(guess.likely.sum()) >= 9
    assert bool((right | ~guess.likely).all())
    one, two = (Exact(search="descent", starts=4)(seen.view, known, seeds=[0]) for _ in range(2))
    assert torch.equal(one.cells, two.cells)


@pytest.mark.parametrize(("records", "starts", "sweeps"), [(4, 2, 4), (20, 8, 16)])
@pytest.mark.slow
def test_nothing_is_proven_falsely_where_many_configurations_meet_a_cut_of_two_numbers(
    records: int, starts: int, sweeps: int
) -> None:
    names = tuple("abcdef")
    data = table(2, rows=400, widths=dict.fromkeys(names, 8))
    _, seen = exchange(data, PLAIN, private=names, records=records)
    known = CutKnowledge(data.schema, data.statistics)
    mistaken = 0
    for attack in (Exact(), Exact(search="descent", starts=starts, sweeps=sweeps)):
        guess = attack(seen.view, known, seeds=[0])
        right = (guess.cells == seen.cells).all(1) & (guess.labels == seen.labels)
        assert guess.likely is not None
        assert guess.residual is not None
        assert not bool((guess.likely & ~right).any())
        mistaken += int(((guess.residual <= rounding(seen.view.own_gradient)) & ~right).sum())
    # Wrong ones do fit as well as rounding lets the truth.
    assert mistaken > 0


def test_spaces_above_the_budget_are_refused_by_name_and_size() -> None:
    data = table(2)
    _, seen = exchange(data, PLAIN)
    known = CutKnowledge(data.schema, data.statistics)
    for attack in (Exact(most=47), Posterior(most=47)):
        with pytest.raises(BadInputError, match=r"a \(3\) x b \(4\) x c \(2\) and 2 labels make 48 configurations"):
            attack(seen.view, known)
    assert Exact(most=48)(seen.view, known).likely is not None


def test_a_view_without_gradients_is_refused() -> None:
    data = table(2)
    _, seen = exchange(data, PLAIN)
    nothing = replace(seen.view, gradient=torch.zeros_like(seen.view.gradient))
    for attack in (Exact(), Posterior()):
        with pytest.raises(BadInputError, match="nothing came back over the cut"):
            attack(nothing, CutKnowledge(data.schema, data.statistics))


def test_the_order_of_records_and_the_memory_do_not_matter() -> None:
    data = table(3)
    model, seen = exchange(data, replace(PLAIN, noise=CutNoise(0.3)), records=20)
    space = Space.of(model, CutKnowledge(data.schema, data.statistics))
    respond = responder(model)
    order = torch.randperm(20, generator=torch.Generator().manual_seed(0))
    cut, gradient = seen.view.cut, seen.view.own_gradient
    messages = Messages(model, respond, cut, gradient, space)
    whole = Exhaustive().nearest(messages, keep=3)
    small = Exhaustive(at_once=200).nearest(messages.of(order), keep=3)
    torch.testing.assert_close(small.distances, whole.distances[order], rtol=1e-5, atol=1e-7)
    assert len(configurations(model)) == space.configurations


def test_what_replays_nothing_is_not_proven_however_near_it_is_beside_others() -> None:
    gradient = torch.ones(4, 3)
    within = float(rounding(gradient)[0])
    distances = torch.tensor([[0.0, 1.0], [0.0, within], [0.1, 1.0], [within, 30 * within]])
    assert fits_alone(distances, gradient).tolist() == [True, False, False, True]
    assert fits_alone(distances[:, :1], gradient).tolist() == [True, True, False, True]
