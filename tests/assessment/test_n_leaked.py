from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from seepage.assessment import rows_worth
from seepage.errors import BadInputError


def test_rows_seen_directly_are_worth_at_least_their_number() -> None:
    # Who sees n rows and names the likelier share is right so often; the bound turns that into at most n rows.
    for low, high in ((0.3, 0.7), (0.5, 0.6), (0.1, 0.9)):
        for n in (1, 3, 8):
            counts = np.arange(n + 1)
            chances = [stats.binom.pmf(counts, n, share) for share in (low, high)]
            accuracy = float(np.maximum(*chances).sum() / 2)
            worth = rows_worth(accuracy, low, high)
            assert worth is not None
            assert 0 < worth <= n + 1e-9


def test_ends_of_the_scale() -> None:
    assert rows_worth(0.4, 0.3, 0.7) == 0.0
    assert rows_worth(1.0, 0.3, 0.7) is None
    assert rows_worth(0.9, 0.0, 1.0) == 0.0
    assert rows_worth(0.9, 0.3, 0.7) == rows_worth(0.9, 0.7, 0.3)
    with pytest.raises(BadInputError, match="two different shares"):
        rows_worth(0.9, 0.3, 0.3)
