"""Trees over columns: sums that a loop over rows gives too, xgboost's predictions, and what each party is told."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from seepage.protocols.secureboost import GrownTrees, SecureBoost
from seepage.protocols.trees import Boosting, encoded, forest_of, histograms, objective_of, train_together
from seepage.tabular.statistics import Statistics
from seepage.tabular.table import Table
from tests.attacks.trees.parts import people

# Of income, age, city, married and grade: a number and two categories.
PASSIVE = (0, 2, 4)
COLUMNS = ("income", "city", "grade")


def recipe(table: Table, rounds: int = 3, depth: int = 3) -> Boosting:
    objective, classes = objective_of(table.schema)
    return Boosting(objective, classes, rounds, depth, max_bin=16, base_score=0.5)


def grown(table: Table, learning: SecureBoost | None = None) -> GrownTrees:
    rows = encoded(table.schema, Statistics.of(table), table.cells)
    return (learning or SecureBoost(recipe(table), PASSIVE)).grow(table.schema, rows, table.labels.numpy())


@pytest.mark.parametrize("classes", [1, 2, 3])
def test_the_view_is_what_a_loop_over_the_true_rows_adds_up(classes: int) -> None:
    table = people(90, classes)
    result = grown(table)
    forest, cuts, message = result.forest, result.histograms.cuts, result.decrypted
    rows = encoded(table.schema, Statistics.of(table), table.cells)
    blocks = table.schema.blocks
    margins = [forest.intercept.copy() for _ in rows]
    before = margins
    for t, (tree, sent) in enumerate(zip(forest.trees, message.trees, strict=True)):
        if t % forest.outputs == 0:
            before = [margin.copy() for margin in margins]
        reached = []
        for i, row in enumerate(rows):
            path = [0]
            while tree.left[path[-1]] >= 0:
                left = row[tree.column[path[-1]]] < tree.condition[path[-1]]
                path.append(int((tree.left if left else tree.right)[path[-1]]))
            margins[i][tree.output] += tree.condition[path[-1]]
            reached.append(path)
        gradients = forest.gradients(np.stack(before), table.labels.numpy())[:, tree.output].astype(np.float64)
        np.testing.assert_array_equal(sent.gradients, gradients)
        for place, node in enumerate(result.histograms.nodes[t]):
            inside = [i for i, path in enumerate(reached) if node in path]
            assert sent.members[place].tolist() == inside
            for column, position in enumerate(PASSIVE):
                block, here = blocks[position], message.of(column)
                looped = np.zeros((here.stop - here.start, 2))
                for i in inside:
                    if COLUMNS[column] == "income":
                        ends = cuts.values[cuts.of(block.start)]
                        of_row = min(int((ends <= rows[i, block.start]).sum()), len(ends) - 1)
                    else:
                        of_row = int(table.cells[i, position])
                    looped[of_row] += gradients[i]
                # Bit for bit: the rows are added up in the same order.
                np.testing.assert_array_equal(sent.sums[place, here], looped)


def test_playing_the_training_again_gives_the_same_view_bit_for_bit() -> None:
    table = people(120)
    first, again = grown(table), grown(table)
    rows, labels = encoded(table.schema, Statistics.of(table), table.cells), table.labels.numpy()
    followed = histograms(first.forest, first.histograms.cuts, rows, labels, 3)
    for one, other, sums, replayed in zip(
        first.decrypted.trees, again.decrypted.trees, first.histograms.sums, followed.sums, strict=True
    ):
        np.testing.assert_array_equal(one.sums, other.sums)
        np.testing.assert_array_equal(sums, replayed)
    assert bool((first.nodes == again.nodes).all())


@pytest.mark.parametrize("classes", [1, 2, 3])
def test_trees_of_two_parties_predict_as_xgboost_on_all_columns(classes: int) -> None:
    table = people(150, classes)
    rows, labels = encoded(table.schema, Statistics.of(table), table.cells), table.labels.numpy()
    booster, _ = train_together([rows], [labels], recipe(table))
    theirs = forest_of(booster).margins(rows)
    np.testing.assert_allclose(grown(table).forest.margins(rows), theirs, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("shuffled", [False, True])
def test_splits_send_the_rows_of_their_bins_to_either_side(shuffled: bool) -> None:
    table = people(150)
    learning = SecureBoost(recipe(table), PASSIVE, shuffled=np.random.default_rng(1) if shuffled else None)
    result = grown(table, learning)
    plain = grown(table)
    splits = [split for tree in result.decrypted.trees for split in tree.splits]
    assert len(splits) > 5
    for column, position in enumerate(PASSIVE):
        here = result.decrypted.of(column)
        # Each row's bin by its derivatives alone in it: the root's sums of a tree are over all rows.
        first = result.decrypted.trees[0].sums[0, here]
        unshuffled = plain.decrypted.trees[0].sums[0, here]
        assert sorted(map(tuple, first.tolist())) == sorted(map(tuple, unshuffled.tolist()))
        assert (first.tolist() == unshuffled.tolist()) == (not shuffled)
        for split in (split for split in splits if split.column == column):
            left, right = (set(table.cells[rows, position].tolist()) for rows in (split.left, split.right))
            assert not left & right
            if column and not shuffled:
                assert set(np.flatnonzero(split.bins).tolist()) >= left
                assert not set(np.flatnonzero(split.bins).tolist()) & right


def test_a_passive_party_is_told_of_nodes_above_the_last_level_and_of_its_own_splits() -> None:
    table = people(150)
    result = grown(table)
    tree = result.forest.trees[0]
    rows = encoded(table.schema, Statistics.of(table), table.cells)
    own = {i for position in PASSIVE for i in range(*table.schema.blocks[position].indices(rows.shape[1])[:2])}
    members, depth = tree.members(rows), tree.depth
    expected = set()
    for node in np.flatnonzero(tree.left >= 0):
        for child in (tree.left[node], tree.right[node]):
            if depth[child] < 3 or int(tree.column[node]) in own:
                expected.add(tuple(sorted(members[child].tolist())))
    nodes = result.nodes[:, result.tree_of == 0]
    assert {tuple(np.flatnonzero(inside.numpy()).tolist()) for inside in nodes.T} == expected
    assert 0 < len(expected) < tree.nodes - 1


def test_each_of_several_passive_parties_knows_the_sides_of_its_own_splits_alone() -> None:
    table = people(150)
    parties = (PASSIVE, (0,), PASSIVE[1:])
    views = {own: grown(table, SecureBoost(recipe(table), PASSIVE, observer=own)) for own in parties}
    seen = {own: {tuple(column.tolist()) for column in view.nodes.T} for own, view in views.items()}
    assert seen[(0,)] | seen[PASSIVE[1:]] == seen[PASSIVE]
    assert seen[(0,)] != seen[PASSIVE[1:]]
    # The active party gets the sums of all.
    for one, other in zip(views[(0,)].decrypted.trees, views[PASSIVE].decrypted.trees, strict=True):
        np.testing.assert_array_equal(one.sums, other.sums)


def test_first_trees_of_the_active_party_alone_send_nothing() -> None:
    table = people(150)
    result = grown(table, SecureBoost(recipe(table, 4), PASSIVE, without=2))
    own = {i for position in PASSIVE for i in range(table.schema.width)[table.schema.blocks[position]]}
    split_on = [{int(c) for c in tree.column[tree.left >= 0]} for tree in result.forest.trees]
    assert not (split_on[0] | split_on[1]) & own
    assert (split_on[2] | split_on[3]) & own
    assert len(result.decrypted.trees) == 2
    assert set(result.tree_of.tolist()) == {2, 3}


def test_noise_is_on_the_passive_partys_sums_alone() -> None:
    table = people(150)
    generator = np.random.default_rng(0)
    learning = SecureBoost(recipe(table), PASSIVE, noise=lambda sums: sums + generator.normal(0, 0.5, sums.shape))
    result = grown(table, learning)
    message, cuts = result.histograms, result.histograms.cuts
    rows, labels = encoded(table.schema, Statistics.of(table), table.cells), table.labels.numpy()
    exact = histograms(result.forest, cuts, rows, labels, 3)
    passive = {i for position in PASSIVE for i in range(table.schema.width)[table.schema.blocks[position]]}
    for sums, true in zip(message.sums, exact.sums, strict=True):
        for column in range(cuts.columns):
            off = np.abs(sums[:, cuts.of(column)] - true[:, cuts.of(column)]).max()
            assert (off > 0.1) if column in passive else off == 0
    # Leaves are of the sums that the active party knows itself.
    tree, gradients = result.forest.trees[0], result.decrypted.trees[0].gradients
    for leaf in tree.leaves:
        first, second = gradients[tree.members(rows)[leaf]].sum(0)
        assert tree.condition[leaf] == pytest.approx(-0.3 * first / (second + 1), rel=1e-5, abs=1e-7)


def test_a_category_that_no_row_has_is_an_empty_bin() -> None:
    table = people(150)
    cells, labels = table.take(torch.nonzero(table.cells[:, 2] != 1)[:, 0])
    rows = encoded(table.schema, Statistics.of(table), cells)
    result = SecureBoost(recipe(table), (2,)).grow(table.schema, rows, labels.numpy())
    assert all((tree.sums[:, 1] == 0).all() for tree in result.decrypted.trees)
    assert all(not (tree.sums[0, 0] == 0).all() for tree in result.decrypted.trees)
