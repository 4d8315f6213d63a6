"""What is proved of a bin does not depend on how many readings of it are followed."""

from __future__ import annotations

import numpy as np
import pytest

from seepage.attacks.trees import choices, paths
from seepage.wire.sums import Sent
from tests.attacks.trees.parts import Federation, people


def proved(sent: Sent, column: int) -> dict[int, list[bytes]]:
    here = sent.cuts.of(column)
    read = {
        number: paths.paths_of_bin(sent, number, int(count))
        for number, count in zip(range(here.start, here.stop), np.rint(sent.counts[here]), strict=True)
        if 0 < count <= 12
    }
    return {n: sorted(one.key for one in found) for n, found in read.items() if found and found[0].proved}


def test_a_reading_that_is_given_up_proves_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = Sent(Federation.of(people(160, 3, incomes=24), 40, 4, depth=3, max_bin=16).sums())
    every = proved(sent, 1)
    monkeypatch.setattr(paths, "_SIDE_BY_SIDE", 1)
    few = proved(sent, 1)
    assert few.items() < every.items()


def test_sums_that_all_choices_have_are_given_up_at_once() -> None:
    # Two to the 26 choices add up to nothing: they are not listed.
    assert choices.choices([np.zeros((2, 2))] * 26, np.zeros(2), 0.1) is None
