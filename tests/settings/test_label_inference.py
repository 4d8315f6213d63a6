"""Label inference in audits: run beside the attacks on cells, with a verdict and a place in the gate of its own."""

from __future__ import annotations

from typing import Any

import pytest

from seepage.auditing import run_all
from seepage.errors import BadInputError
from seepage.report.report import Report
from seepage.settings.split.audit import SplitAudit
from seepage.settings.split.spec import SplitSpec
from seepage.settings.vertical.audit import VerticalAudit
from seepage.settings.vertical.spec import VerticalSpec
from tests.attacks.vertical.parts import table

DATA = table(rows=900)
BASE: dict[str, Any] = {"dataset": "made", "control": False, "workers": 1}
VERTICAL = {
    **BASE,
    "passive": ["a", "b", "n"],
    "bottom": (16,),
    "features": 4,
    "top": (8,),
    "batch_size": 64,
    "epochs": 4,
    "known_labels": 60,
    "leaked": 30,
    "auxiliary": 0.2,
    "baselines": ["constant"],
    "repetitions": 5,
}


def vertical(**fields: Any) -> Report:
    [report] = run_all([VerticalAudit(VerticalSpec.of(**{**VERTICAL, **fields}), DATA)])
    return report


@pytest.mark.long
def test_a_passive_party_has_a_verdict_of_its_own_in_vertical_learning() -> None:
    report = vertical(attacks=["ridge_sa", "label_direction"], gate=0.45)
    by = {(row.attack, row.metric, row.column): row for row in report.rows}
    read = by["label_direction", "accuracy", "t"]
    assert (read.baseline_name in ("label_columns", "label_mode"), read.n) == (True, 5)
    assert (read.lift or 0) > 0.1
    assert read.knowledge["labels"] == 60
    assert ("label_direction", "accuracy", None) not in by
    # Of the records of both attacks those with known labels do not count.
    assert ("label_columns", "accuracy", "t") in by
    overview = report.overviews[0]
    assert overview["attack"] == "ridge_sa"
    assert overview["label"]["attack"] == "label_direction"
    assert "The label t: a passive party reads" in report.summary()
    assert any("their verdict stands apart" in sentence for sentence in report.audit.threat_model())
    assert report.decision is not None
    assert report.decision.outcome != "passed"
    assert "label t" in report.decision.line


@pytest.mark.long
def test_active_and_unsplit_attacks_are_declared_as_such() -> None:
    attacks = ["label_completion_active", "label_direct", "label_batch"]
    report = vertical(attacks=attacks, unsplit=True, repetitions=2, epochs=2, gradient_batch=8)
    by = {(row.attack, row.metric, row.column): row for row in report.rows}
    assert by["label_direct", "accuracy", "t"].mean == 1
    assert (by["label_batch", "accuracy", "t"].lift or 0) > 0.1
    assert by["label_completion_active", "accuracy", "t"].mean is not None
    assert by["label_completion_active", "accuracy", "t"].knowledge["steering"] == "its own steps"
    told = " ".join(report.audit.threat_model())
    assert "label_completion_active is an active attack: the party scales its own steps up" in told
    with pytest.raises(BadInputError, match="takes logits that are added up"):
        vertical(attacks=["label_direct"])
    with pytest.raises(BadInputError, match="labels: 0"):
        vertical(attacks=["label_heads"], known_labels=0)


@pytest.mark.slow
def test_the_server_of_split_learning_guesses_labels_without_the_client_s_weights() -> None:
    spec = SplitSpec.of(
        **{**BASE, "private_columns": ["alone"], "repetitions": 2, "epochs": 2, "hidden": (16,), "known_labels": 50},
        attacks=["exact", "label_heads", "label_norm"],
        defenses=["none", {"name": "label_flip", "probability": 0.3}],
        attacked_records=80,
    )
    [report] = run_all([SplitAudit(spec, DATA)])
    by = {(row.defense, row.attack, row.metric, row.column): row for row in report.rows}
    read = by["none", "label_heads", "accuracy", "t"]
    assert (read.mean or 0) > 0.95
    assert read.knowledge == {"sees": "what it sent and what came back of every record", "labels": 50}
    assert (by["label_flip", "label_heads", "accuracy", "t"].mean or 1) < 0.9
    assert ("none", "label_heads", "accuracy", None) not in by


def test_a_defense_that_is_our_reading_is_marked_beside_the_tables() -> None:
    spec = VerticalSpec.of(**{**VERTICAL, "defenses": ["none", "max_norm", {"name": "vfldefender", "label": "mine"}]})
    assert VerticalAudit(spec, DATA).about.marks == {"mine": "our reading of its abstract"}
