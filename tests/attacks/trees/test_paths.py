"""What is proved of a bin does not depend on how many readings of it are followed."""

from __future__ import annotations

import numpy as np

from seepage.solve import choices


def test_sums_that_all_choices_have_are_given_up_at_once() -> None:
    # Two to the 26 choices add up to nothing: they are not listed.
    assert choices.choices([np.zeros((2, 2))] * 26, np.zeros(2), 0.1) is None
