"""Rows that the server of horizontal learning holds: none of a client's, granted to baselines, named in results."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from seepage.datasets import load
from seepage.errors import BadInputError
from seepage.settings.horizontal.audit import HorizontalAudit
from seepage.settings.horizontal.spec import make_spec
from seepage.settings.horizontal.subject import prepare
from seepage.settings.setting import PlannedPart

GERMAN = load("german")


def _audit(dataset: Any = None, **fields: Any) -> HorizontalAudit:
    spec = make_spec(**{"dataset": "german", "batch_sizes": 8, "victims": 4, "attacks": "single_activation", **fields})
    return HorizontalAudit(spec, prepare(spec, dataset))


def _rows(cells: torch.Tensor) -> set[tuple[float, ...]]:
    return {tuple(row) for row in cells.tolist()}


def _baseline(audit: HorizontalAudit, name: str) -> PlannedPart:
    return next(part for part in audit.parts if part.label == name)


def test_public_rows_are_held_out_and_no_clients() -> None:
    audit = _audit(auxiliary=50)
    public = audit.subject.public
    assert public is not None
    assert len(public) == 50
    assert GERMAN.test is not None
    assert _rows(public) <= _rows(GERMAN.test.cells)
    assert torch.equal(audit.subject.dataset.train.cells, GERMAN.train.cells)


def test_a_table_without_held_out_rows_holds_out_as_many_and_keeps_its_statistics() -> None:
    alone = replace(GERMAN, test=None)
    audit = _audit(alone, auxiliary=50)
    public, rest = audit.subject.public, audit.subject.dataset.train
    assert public is not None
    assert (len(public), len(rest)) == (50, len(alone.train) - 50)
    assert _rows(public) | _rows(rest.cells) == _rows(alone.train.cells)
    for before, after in zip(alone.statistics.marginals, audit.subject.dataset.statistics.marginals, strict=True):
        assert torch.equal(before.values, after.values)
        torch.testing.assert_close(before.probabilities, after.probabilities)


@pytest.mark.parametrize(("table", "most"), [(GERMAN, "200 held out"), (replace(GERMAN, test=None), "400 that can be")])
def test_more_rows_than_there_are_are_refused(table: Any, most: str) -> None:
    with pytest.raises(BadInputError, match=most):
        _audit(table, auxiliary=401)


def test_a_baseline_that_needs_rows_is_refused_without_them() -> None:
    with pytest.raises(BadInputError, match="'chow_liu' needs auxiliary rows, but none are granted"):
        _audit(baselines="chow_liu")


def test_results_name_the_rows_and_baselines_guess_by_them() -> None:
    guesses = {}
    for number in (0, 100):
        audit = _audit(auxiliary=number)
        [configuration] = audit.configurations
        part = _baseline(audit, "stereotypes")
        assert audit.granted(configuration, part).get("auxiliary") == (f"{number} public rows" if number else None)
        assert ("auxiliary (100 public rows)" in " ".join(audit.threat_model())) == bool(number)
        exposure = audit.expose(configuration, range(4))
        guesses[number] = audit.instance(part)(exposure.transcript.view, exposure.plainly, range(4)).cells
        identity = audit.identity(configuration, part)
        guesses[f"identity {number}"] = identity["auxiliary"]
    assert not torch.equal(guesses[0], guesses[100])
    assert guesses["identity 0"] != guesses["identity 100"]


def test_the_control_holds_no_row_out_and_needs_none() -> None:
    control = _audit(auxiliary=50).control()
    assert control.subject.public is None
    assert [part.label for part in control.parts if part.kind == "baseline"] == ["stereotypes", "mode", "random"]
