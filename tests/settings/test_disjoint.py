"""Batches of a small table: disjoint, so that intervals are over all that the table has."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from seepage import audit
from seepage.assessment.row import ResultRow
from seepage.datasets import read_table
from seepage.settings.horizontal.audit import HorizontalAudit
from seepage.settings.horizontal.spec import make_spec
from seepage.settings.horizontal.subject import prepare

ROWS = 60
TINY: dict[str, Any] = {"attacks": ["unmix"], "defenses": ["none"], "control": False, "model": "nn1"}


def table() -> pd.DataFrame:
    draw = np.random.default_rng(0)
    columns = {"place": np.arange(ROWS) % 30, "age": draw.integers(20, 60, ROWS)}
    return pd.DataFrame({**columns, "job": draw.choice(list("abcd"), ROWS), "ill": draw.choice(["no", "yes"], ROWS)})


def made(**fields: Any) -> HorizontalAudit:
    dataset = read_table(table().assign(row=np.linspace(0, 1, ROWS)), target="ill")
    spec = make_spec(**{**TINY, "batch_sizes": (4,), "victims": 10, **fields})
    return HorizontalAudit(spec, prepare(spec, dataset=dataset))


def drawn(subject: HorizontalAudit, *groups: range) -> list[list[float]]:
    [configuration] = subject.configurations
    exposures = [subject.expose(configuration, group) for group in groups]
    row = subject.subject.dataset.schema.names.index("row")
    return [sorted(cells[:, row].tolist()) for exposure in exposures for cells in exposure.transcript.secret.cells]


def test_no_row_is_in_two_batches_however_they_are_grouped() -> None:
    subject = made()
    [configuration] = subject.configurations
    batches = subject.batches(configuration)
    assert batches == len(subject.subject.dataset.train) // 4
    together = drawn(subject, range(10))
    assert len({row for batch in together for row in batch}) == 40
    assert drawn(subject, range(3), range(3, 10)) == together
    assert drawn(made(victims=2), range(2)) == together[:2]
    assert any(f"the table is split into {batches} batches of 4 records" in line for line in subject.threat_model())


@pytest.mark.parametrize(
    "fields",
    [
        {"victims": 40},
        {"replacement": True},
        {"gate": {"above": 0.5}},
        {"variant": "positive control"},
        {"training": {"rounds": 1, "clients": 2, "attacked_rounds": 2}},
    ],
)
def test_victims_are_independent_where_batches_do_not_suffice_or_evidence_asks_for_it(fields: dict[str, Any]) -> None:
    subject = made(**fields)
    [configuration] = subject.configurations
    assert subject.batches(configuration) is None
    assert not any("split into" in line for line in subject.threat_model())


def test_victims_of_a_large_table_are_independent() -> None:
    spec = make_spec(**TINY, victims=5)
    subject = HorizontalAudit(spec, prepare(spec))
    assert {subject.batches(configuration) for configuration in subject.configurations} == {None}


def row_of(victims: int) -> ResultRow:
    quick = {**TINY, "attacks": [{"name": "inverting_gradients", "iterations": 30, "restarts": 1}]}
    report = audit(table(), target="ill", batch_sizes=[4], victims=victims, **quick)
    [row] = [row for row in report.rows if (row.kind, row.metric, row.column) == ("attack", "accuracy", None)]
    return row


def test_figures_of_all_batches_are_known_and_have_no_width() -> None:
    some, every = row_of(6), row_of(len(made().subject.dataset.train) // 4)
    assert some.lift_low is not None
    assert some.lift_high is not None
    assert some.lift_high - some.lift_low > 0.1
    # What is left is how well the baseline is known.
    assert every.lift_low is not None
    assert every.lift_high is not None
    assert every.lift_high - every.lift_low < 0.08
    assert (every.low, every.high) == pytest.approx((every.mean, every.mean), abs=1e-4)
