"""Whole records are read from sums of derivatives, and what is certified is true."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from seepage.attacks.trees.anchor import Anchor, by_fineness
from seepage.attacks.trees.likely import likely_paths
from seepage.attacks.trees.paths import paths_of_bin
from seepage.baselines.trees import OwnMarginals
from seepage.protocols.trees import histograms
from seepage.wire.horizontal import NOT_TRIED, RecordsGuess
from seepage.wire.sums import Sent
from seepage.wire.trees import TreesGuess
from tests.attacks.trees.parts import Federation, people, score, view_of


def read(federation: Federation, clients: int = 1, seed: int = 0) -> tuple[float, int, int]:
    message = federation.sums(range(clients))
    guess = Anchor()(view_of(message), federation.knows(clients), [seed])
    return score(federation, guess, clients=clients)


@pytest.mark.parametrize("classes", [2, 3])
def test_records_of_a_classification_are_read_and_certified(classes: int) -> None:
    federation = Federation.of(people(120, classes), 40, 18 // classes)
    accuracy, certified, wrong = read(federation)
    assert accuracy > 0.97
    assert certified > 0.7 * 40 * 5
    assert wrong == 0


def test_records_of_a_regression_are_read_where_the_first_tree_tells_them_apart() -> None:
    accuracy, _, wrong = read(Federation.of(people(120, 1), 40, 10))
    assert accuracy > 0.95
    assert wrong == 0


def test_bins_that_hold_several_records_are_taken_apart() -> None:
    # 240 rows in 32 bins: about three of a client's in each.
    federation = Federation.of(people(240), 80, 15, max_bin=32)
    message = federation.sums()
    counts = np.rint(Sent(message).counts[message.cuts.of(0)])
    assert (counts > 1).sum() > 20
    guess = Anchor()(view_of(message), federation.knows(), [0])
    accuracy, _, wrong = score(federation, guess)
    assert accuracy > 0.95
    assert wrong == 0


def test_a_number_that_many_records_share_makes_no_other_certain() -> None:
    # A third of the rows share a number. There are fewer bins than allowed, and yet others hold several numbers each.
    federation = Federation.of(people(160, idle=30), 40, 12, max_bin=12)
    message = federation.sums()
    assert message.cuts.of(0).stop < 12
    guess = Anchor()(view_of(message), federation.knows(), [0])
    _, certified, wrong = score(federation, guess)
    assert certified > 0
    assert wrong == 0


def test_a_column_with_many_records_in_each_bin_is_finer_than_one_with_nearly_all_in_one() -> None:
    sent = Sent(Federation.of(people(3_000, idle=95), 1_500, 1).sums())
    # About 24 records of each age; all but 75 records have the same income.
    assert by_fineness(sent)[0] == 1


def test_sums_of_several_clients_hide_who_but_not_what() -> None:
    accuracy, _, wrong = read(Federation.of(people(90), 30, 10), clients=2)
    assert accuracy > 0.97
    assert wrong == 0


@pytest.mark.parametrize("seed", range(6))
def test_no_certified_cell_is_wrong(seed: int) -> None:
    # Few trees, few bins and few rounds: much is left open, and nothing of that may be certified.
    rng = np.random.default_rng(seed)
    rounds, bins = int(rng.integers(2, 6)), int(rng.choice([8, 16, 256]))
    count = int(rng.choice([20, 50]))
    table = people(4 * count, int(rng.choice([2, 3])), seed, incomes=int(rng.choice([20, 300, 10_000])))
    federation = Federation.of(table, count, rounds, max_bin=bins, min_child_weight=float(rng.choice([0, 1, 4])))
    _, _, wrong = read(federation, seed=seed)
    assert wrong == 0


def test_records_that_nothing_tells_apart_are_not_certified() -> None:
    # One round of stumps: all records of a leaf with the same label are alike.
    federation = Federation.of(people(80), 40, 1, depth=1)
    accuracy, certified, wrong = read(federation)
    assert accuracy < 0.95
    assert certified < 40
    assert wrong == 0


def test_a_message_of_another_client_tells_nothing_of_this_one() -> None:
    federation = Federation.of(people(160), 40, 10)
    guess = Anchor()(view_of(federation.sums((1,))), federation.knows(), [0])
    other, _, _ = score(federation, guess, client=1)
    this, _, _ = score(federation, guess, client=0)
    assert other > 0.97
    assert this < 0.8


def test_own_marginals_have_the_counts_of_every_column_and_no_links() -> None:
    federation = Federation.of(people(180), 60, 2)
    view = view_of(federation.sums())
    guess = OwnMarginals()(view, federation.knows(), [3])
    assert isinstance(guess, RecordsGuess)
    true = federation.table.cells[:60]
    for column in federation.table.schema.discrete:
        assert sorted(guess.cells[0, :, column].tolist()) == sorted(true[:, column].tolist())
    unlinked, _, _ = score(federation, TreesGuess(guess.cells))
    assert unlinked < 0.85


def test_noise_on_sums_hides_little_while_it_is_small() -> None:
    federation = Federation.of(people(120), 40, 15)
    message = federation.sums()
    rng = np.random.default_rng(0)

    def read_with(deviation: float) -> float:
        noisy = replace(message, sums=tuple(s + rng.normal(0, deviation, s.shape) for s in message.sums))
        guess = Anchor()(view_of(noisy), federation.knows(noise=deviation), [0])
        accuracy, certified, _ = score(federation, guess)
        assert certified == 0
        return accuracy

    assert read_with(0.01) > 0.98
    # The records of a bin taken together, with nothing else, give 0.82.
    assert read_with(0.1) > 0.85
    assert read_with(3.0) < 0.75


def test_noise_below_what_a_record_moves_is_no_evidence_that_little_leaks() -> None:
    federation = Federation.of(people(120), 40, 15)
    message, rng = federation.sums(), np.random.default_rng(0)
    moved = []
    for record in range(40):
        # Another record in its place, in the same trees.
        rows, labels = federation.parts[0].copy(), federation.labels[0].copy()
        rows[record], labels[record] = federation.parts[1][record], federation.labels[1][record]
        other = histograms(message.forest, message.cuts, rows, labels, federation.recipe.depth)
        moved.append(sum(float(np.square(a - b).sum()) for a, b in zip(message.sums, other.sums, strict=True)))
    distance = float(np.sqrt(np.mean(moved)))
    for deviation, tried in ((distance / 2, False), (distance * 2, True)):
        noisy = replace(message, sums=tuple(s + rng.normal(0, deviation, s.shape) for s in message.sums))
        how = Anchor()(view_of(noisy), federation.knows(noise=deviation), [0]).regime
        assert how is not None
        assert how[0].startswith(NOT_TRIED) != tried
    numbers = Federation.of(people(120, 1), 40, 15)
    sums = numbers.sums()
    noisy = replace(sums, sums=tuple(s + rng.normal(0, 1e3, s.shape) for s in sums.sums))
    how = Anchor()(view_of(noisy), numbers.knows(noise=1e3), [0]).regime
    assert how is not None
    assert how[0].startswith(NOT_TRIED)


def test_likeliest_paths_are_those_that_exact_sums_allow() -> None:
    sent = Sent(Federation.of(people(120), 40, 9, max_bin=32).sums())
    column = by_fineness(sent)[0]
    counts = np.rint(sent.counts[sent.cuts.of(column)]).astype(int)
    exact = {
        number: paths_of_bin(sent, number, int(count))
        for number, count in enumerate(counts, sent.cuts.of(column).start)
        if 0 < count <= 6
    }
    likely = likely_paths(sent, column, 40, 1e-7)
    assert likely is not None
    told = {number: paths for number, paths in exact.items() if paths is not None and paths[0].alone}
    assert sum(map(len, told.values())) > 15
    for number, paths in told.items():
        assert Counter(p.key for p in paths) == Counter(p.key for p in likely[0] if p.bin == number)


def test_nothing_is_listed_where_noise_hides_how_many_records_a_bin_has_or_of_more_classes() -> None:
    assert likely_paths(Sent(Federation.of(people(120), 40, 2).sums()), 0, 40, 3.0) is None
    assert likely_paths(Sent(Federation.of(people(120, 3), 40, 2).sums()), 0, 40, 0.01) is None


def test_garbled_sums_give_a_guess_and_no_certificate() -> None:
    federation = Federation.of(people(80), 40, 4)
    message = federation.sums()
    for sums in (
        tuple(np.zeros_like(s) for s in message.sums),
        tuple(-s for s in message.sums),
        tuple(s * 1.5 for s in message.sums),
        tuple(s[:, ::-1].copy() for s in message.sums),
    ):
        guess = Anchor()(view_of(replace(message, sums=sums)), federation.knows(), [0])
        assert guess.cells.shape == (1, 40, 5)
        assert score(federation, guess)[1] == 0
