"""Decrypted sums of trees over columns give bins away: planted rows, a slow projection, noise and shuffled bins."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from seepage.attacks.trees.bin_links import linked
from seepage.attacks.trees.bin_sums import BinSums, _as_shares
from seepage.errors import BadInputError
from seepage.protocols.secureboost import GrownTrees, SecureBoost
from seepage.protocols.trees import Boosting, encoded
from seepage.tabular.schema import Schema
from seepage.tabular.statistics import Statistics
from seepage.tabular.table import Table
from seepage.wire.secureboost import ColumnSumsView
from seepage.wire.vertical import FeatureKnowledge, KnownFeatures
from tests.attacks.trees.parts import people

PASSIVE = (0, 2, 4)


def grown(table: Table, rounds: int = 10, **options: Any) -> GrownTrees:
    recipe = Boosting("binary:logistic", 2, rounds, 4, max_bin=16, base_score=0.5)
    rows = encoded(table.schema, Statistics.of(table), table.cells)
    return SecureBoost(recipe, PASSIVE, **options).grow(table.schema, rows, table.labels.numpy())


def knows(table: Table, **names: Any) -> FeatureKnowledge:
    schema = Schema(columns=tuple(table.schema.columns[i] for i in PASSIVE), target=table.schema.target)
    marginals = Statistics.of(table).marginals
    return FeatureKnowledge(schema, tuple(marginals[i] for i in PASSIVE), KnownFeatures(names))


def view(*trainings: GrownTrees) -> ColumnSumsView:
    return ColumnSumsView(
        tuple(g.decrypted for g in trainings), torch.zeros(len(trainings), len(trainings[0].nodes), 1)
    )


def right(table: Table, training: GrownTrees, **names: Any) -> list[float]:
    guess = BinSums()(view(training), knows(table, **names), [0]).cells[0]
    true = table.cells[:, list(PASSIVE)]
    near = torch.tensor([1000.0, 0.0, 0.0])
    return ((guess - true).abs() <= near).double().mean(0).tolist()


def test_planted_rows_are_read_from_their_sums() -> None:
    # Trees of other processors split elsewhere, and leave up to five records of one table open.
    tables = [people(150, seed=seed) for seed in range(12)]
    shares = torch.tensor([right(table, grown(table, 25)) for table in tables])
    assert shares.mean(0).min() > 0.98


def test_more_rows_than_equations_are_read_in_part() -> None:
    table = people(900)
    scores = right(table, grown(table, 5))
    frequent = [float(torch.bincount(table.cells[:, i].long()).max() / 900) for i in PASSIVE[1:]]
    assert all(base + 0.1 < score < 1 for score, base in zip(scores[1:], frequent, strict=True))


def test_a_training_is_read_alike_beside_another_one() -> None:
    tables = people(80), people(80, seed=1)
    trainings = [grown(table, 4) for table in tables]
    knowledge = knows(tables[0])
    together = BinSums()(view(*trainings), knowledge, [0, 0]).cells
    for training, cells in zip(trainings, together, strict=True):
        assert torch.equal(BinSums()(view(training), knowledge, [5]).cells[0], cells)


def test_under_noise_rows_stay_on_their_side_of_splits() -> None:
    table, generator = people(150), np.random.default_rng(0)
    noisy = grown(table, noise=lambda sums: sums + generator.normal(0, 50.0, sums.shape))
    guess = BinSums()(view(noisy), knows(table, histogram_noise={"deviation": 50.0}), [0]).cells[0]
    splits = [split for tree in noisy.decrypted.trees for split in tree.splits if split.column > 0]
    assert len(splits) > 10
    for split in splits:
        left, right = (guess[rows, split.column].long().numpy() for rows in (split.left, split.right))
        assert split.bins[left].all()
        assert not split.bins[right].any()


def test_the_order_of_shuffled_bins_follows_from_splits_and_frequencies() -> None:
    table = people(150)
    training = grown(table, 25, shuffled=np.random.default_rng(3))
    # Trees split between most bins of income, and the frequencies of cities and grades are public.
    assert min(right(table, training, shuffled_bins={})) > 0.95
    # Taken as they are numbered, the same bins are other values.
    assert max(right(table, training)) < 0.6


def test_bins_that_are_numbered_anew_in_renumbered_are_linked() -> None:
    """The same trees with one number for each bin: sums of nodes are the same in another order, and so are links."""
    table = people(400)
    once, anew = (grown(table, 25, shuffled=np.random.default_rng(3), anew=anew) for anew in (False, True))
    assert min(right(table, anew, shuffled_bins={"renumbered": True})) > 0.95
    # Taken as one numbering, they fit no rows.
    assert max(right(table, anew, shuffled_bins={})) < 0.6
    # Up to one numbering of the bins, the links are those of the same trees: an equation of each node and bin.
    links = linked(anew.decrypted, lambda message: BinSums()._shares(message, 400, 0.0))
    for column in range(len(PASSIVE)):
        here = links.of(column)
        last, true = (message.trees[-1].sums[0, here] for message in (links, once.decrypted))
        order = np.abs(true[:, None] - last).sum(-1).argmin(1)
        for one, other in zip(links.trees, once.decrypted.trees, strict=True):
            np.testing.assert_allclose(one.sums[:, here][:, order], other.sums[:, here], atol=1e-6)


def test_trees_of_the_active_party_alone_leave_the_marginals() -> None:
    table = people(80)
    guess = BinSums()(view(grown(table, 2, without=2)), knows(table), [0]).cells[0]
    assert all(len(set(column.tolist())) == 1 for column in guess.T)


def test_shares_are_the_nearest_ones() -> None:
    draw = np.random.default_rng(0)
    point, allowed = draw.normal(0, 1, (6, 4)), draw.random((6, 4)) < 0.7
    allowed[:, 0] = True
    shares = _as_shares(point, allowed)
    for row, mask, nearest in zip(point, allowed, shares, strict=True):
        # The shares are what exceeds a level, at which they add up to 1: found by halving.
        low, high = row.min() - 2, row.max()
        for _ in range(100):
            level = (low + high) / 2
            low, high = (level, high) if np.maximum(row[mask] - level, 0).sum() > 1 else (low, level)
        slow = np.where(mask, np.maximum(row - low, 0), 0)
        np.testing.assert_allclose(nearest, slow, atol=1e-9)


def test_steps_are_counted() -> None:
    with pytest.raises(BadInputError, match="steps"):
        BinSums(steps=0)
