"""Tree files: hidden sums are recovered, leaves counted, values listed, and records guessed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from seepage.attacks.trees.files import Hessians, LeafCounts, Thresholds, sums_of
from seepage.attacks.trees.timberstrike import TimberStrike
from seepage.errors import BadInputError
from seepage.wire.trees import TreeFilesView
from tests.attacks.trees.parts import Federation, people, score


def without(view: TreeFilesView, *fields: str) -> TreeFilesView:
    [message] = view.messages
    return TreeFilesView((replace(message, forest=message.forest.stripped(fields)),))


@pytest.mark.parametrize("classes", [1, 2, 3])
def test_hidden_sums_follow_from_weights_and_gains(classes: int) -> None:
    federation = Federation.of(people(300, classes), 100, 6)
    view = federation.files()
    knows = federation.knows()
    true = sums_of(view.messages[0], knows)
    guess = Hessians()(without(view, "sum_hessian"), knows, [0])
    assert guess.hessians is not None
    worst = [
        np.abs(found - sums)[1:].max(initial=0) / sums[0] for found, sums in zip(guess.hessians[0], true, strict=True)
    ]
    assert len(worst) == len(view.messages[0].own)
    # Gains and weights are written in single precision.
    assert max(worst) < 0.01


def test_weights_alone_tell_the_sums_of_the_first_round() -> None:
    federation = Federation.of(people(200), 100, 2)
    view, knows = federation.files(), federation.knows()
    guess = Hessians()(without(view, "sum_hessian", "loss_changes"), knows, [0])
    assert guess.hessians is not None
    first, second = guess.hessians[0]
    np.testing.assert_allclose(first, sums_of(view.messages[0], knows)[0], rtol=1e-3, atol=1e-3)
    assert np.isnan(second).all()


def test_without_weights_nothing_is_recovered() -> None:
    federation = Federation.of(people(200), 100, 3)
    guess = Hessians()(without(federation.files(), "sum_hessian", "base_weights"), federation.knows(), [0])
    assert guess.hessians is not None
    assert all(np.isnan(sums[1:]).all() for sums in guess.hessians[0])


@pytest.mark.parametrize("hidden", [(), ("sum_hessian",)])
def test_rows_and_labels_of_the_first_trees_leaves_are_exact(hidden: tuple[str, ...]) -> None:
    federation = Federation.of(people(300), 100, 2)
    view = federation.files()
    guess = LeafCounts()(without(view, *hidden), federation.knows(), [0])
    tree = view.messages[0].forest.trees[view.messages[0].own[0]]
    reached = tree.members(federation.parts[0])
    counts = [np.bincount(federation.labels[0][reached[leaf]].astype(int), minlength=2) for leaf in tree.leaves]
    assert guess.leaves is not None
    np.testing.assert_array_equal(np.rint(guess.leaves[0][0]), np.stack(counts))


def test_thresholds_are_values_of_the_clients_rows() -> None:
    federation = Federation.of(people(300), 100, 6)
    guess = Thresholds()(federation.files(), federation.knows(), [0])
    assert guess.values is not None
    incomes = guess.values[0]["income"]
    assert len(incomes) > 5
    assert np.isin(incomes, federation.table.cells[:100, 0].numpy()).mean() > 0.95
    # The next client holds few of them.
    assert np.isin(incomes, federation.table.cells[100:200, 0].numpy()).mean() < 0.5


def test_timberstrike_keeps_the_bounds_of_the_first_tree_and_repeats() -> None:
    federation = Federation.of(people(120), 40, 4)
    view, knows = federation.files(), federation.knows()
    guess = TimberStrike(trees=3)(view, knows, [5])
    again = TimberStrike(trees=3)(view, knows, [5])
    assert guess.cells.equal(again.cells)
    assert guess.labels is not None
    assert int(guess.labels.sum()) == int(federation.labels[0].sum())
    accuracy, _, _ = score(federation, guess)
    assert 0.5 < accuracy < 1


@pytest.mark.parametrize("hidden", [(), ("sum_hessian", "base_weights", "loss_changes")])
@pytest.mark.parametrize("classes", [1, 3])
def test_timberstrike_reads_the_first_tree_where_the_paper_has_no_rule(classes: int, hidden: tuple[str, ...]) -> None:
    federation = Federation.of(people(90, classes), 30, 2)
    guess = TimberStrike()(without(federation.files(), *hidden), federation.knows(), [0])
    assert guess.cells.shape == (1, 30, 5)
    assert bool(guess.cells.isfinite().all())


def test_timberstrike_refuses_no_tree() -> None:
    with pytest.raises(BadInputError, match="trees"):
        TimberStrike(trees=0)


@pytest.mark.parametrize("hidden", [(), ("sum_hessian",)])
def test_two_classes_with_a_margin_each_are_read(hidden: tuple[str, ...]) -> None:
    federation = Federation.of(people(120), 40, 3)
    recipe = replace(federation.recipe, objective="multi:softprob", classes=2)
    federation = replace(federation, recipe=recipe)
    view = federation.files()
    assert view.messages[0].forest.outputs == 2
    guess = TimberStrike()(without(view, *hidden), federation.knows(), [0])
    assert guess.cells.shape == (1, 40, len(federation.table.schema.columns))
    assert LeafCounts()(view, federation.knows(), [0]).leaves == ((),)
