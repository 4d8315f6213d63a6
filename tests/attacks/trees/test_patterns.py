"""Records are read from sums where each bin holds many of them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from seepage.attacks.trees.anchor import Anchor
from seepage.attacks.trees.patterns import read_patterns
from seepage.baselines.trees import OwnMarginals
from seepage.wire.sums import Sent, values_of
from seepage.wire.trees import TreesGuess
from tests.attacks.trees.parts import Federation, categories, people, score, view_of


@pytest.mark.parametrize("classes", [1, 2, 3])
def test_tables_of_categories_are_read_whole(classes: int) -> None:
    federation = Federation.of(categories(240, classes), 80, 12)
    view, known = view_of(federation.sums()), federation.knows()
    guess = Anchor()(view, known, [0])
    assert score(federation, guess)[0] == 1.0
    unlinked = OwnMarginals()(view, known, [0])
    assert score(federation, TreesGuess(unlinked.cells))[0] < 0.9
    assert guess.regime == ("paths of 80 of 80 records were read",)
    if classes > 1:
        # Labels come with the records that they belong to.
        pairs = [
            Counter(map(bytes, np.column_stack(both)))
            for both in (
                (federation.table.cells[:80].numpy(), federation.labels[0]),
                (guess.cells[0].numpy(), guess.labels[0].numpy() if guess.labels is not None else np.zeros(80)),
            )
        ]
        assert pairs[0] == pairs[1]


def test_few_bins_of_numbers_hide_the_numbers_and_no_category() -> None:
    federation = Federation.of(people(300), 100, 15, max_bin=4)
    guess = Anchor()(view_of(federation.sums()), federation.knows(), [0])
    true, found = (
        Counter(map(bytes, cells[:, 2:].numpy())) for cells in (federation.table.cells[:100], guess.cells[0])
    )
    assert true == found


def test_sums_that_no_records_have_are_left_to_others() -> None:
    federation = Federation.of(categories(160, 2), 80, 6)
    message, known = federation.sums(), federation.knows()
    schema = federation.table.schema
    read = read_patterns(Sent(message), values_of(Sent(message), known), schema, 80, 0)
    assert read is not None
    garbled = replace(
        message, sums=tuple(sums + 0.05 * (np.arange(sums.size).reshape(sums.shape) % 7) for sums in message.sums)
    )
    assert read_patterns(Sent(garbled), values_of(Sent(garbled), known), schema, 80, 0) is None
