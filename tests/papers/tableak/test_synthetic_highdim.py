from __future__ import annotations

from seepage.datasets import load


def test_synthetic_highdim_meets_the_published_width():
    for seed in range(3):
        data = load("synthetic_highdim", rows=40, seed=seed)
        widths = [data.schema.columns[i].width for i in data.schema.discrete]
        assert (len(widths), len(data.schema.continuous)) == (125, 125)
        assert sum(widths) == 1106
        assert (min(widths), max(widths)) >= (2, 3)
        assert max(widths) <= 16
        assert data.schema.width == 1231
