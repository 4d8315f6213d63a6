"""Rows of large tables: as many as were asked for, or as many as there is time for; the headline says how many."""

from __future__ import annotations

import pytest

from seepage.datasets.planted import telling
from seepage.settings.split.audit import SplitAudit
from seepage.settings.split.spec import SplitSpec
from seepage.settings.units import rows_in_time
from seepage.settings.vertical.audit import VerticalAudit
from seepage.settings.vertical.spec import VerticalSpec

TABLE = telling(rows=2000)


@pytest.mark.parametrize(
    ("most", "seconds", "rows"),
    [(None, None, 2000), (700, None, 700), (700, 1.0, 700), (None, 60.0, 900), (None, 1.0, 500), (None, 1e6, 2000)],
)
def test_rows_are_as_many_as_asked_for_or_as_there_is_time_for(
    most: int | None, seconds: float | None, rows: int
) -> None:
    drawn = rows_in_time(TABLE, most, seconds, 15.0, 0)
    assert len(drawn.all) == rows
    assert any("drawn at random" in note for note in drawn.notes) == (rows < 2000)
    again, other = (rows_in_time(TABLE, most, seconds, 15.0, seed) for seed in (0, 1))
    assert (again.all.cells == drawn.all.cells).all()
    assert (rows < 2000) == bool((other.all.cells != drawn.all.cells).any())


@pytest.mark.parametrize(("spec", "audit"), [(VerticalSpec, VerticalAudit), (SplitSpec, SplitAudit)])
def test_the_headline_says_of_how_many_rows_it_is(spec: type, audit: type) -> None:
    whole = audit(spec(), TABLE)
    assert not any("of the table's" in limit for limit in whole.about.limits)
    some = audit(spec(time_budget=5.0), TABLE)
    assert len(some.data.all) < 2000
    assert f"These are figures of {len(some.data.all):,} of the table's 2,000 rows." in some.about.limits
    assert some.rows != whole.rows
    # What is named holds, whatever the time.
    assert len(audit(spec(time_budget=5.0, most_rows=1000), TABLE).data.all) == 1000
