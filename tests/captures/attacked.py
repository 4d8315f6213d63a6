"""Transcripts attacked by what files of their folders hold, and what was found in them."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from seepage.attacking.sources import CaptureResult, attack_capture
from seepage.settings.captured import RECONSTRUCTION


def attacked(folder: Path, model: str | None = None, attacks: object = (), **given: object) -> CaptureResult:
    """Attack a transcript without a control; options that are None are not given."""
    options = {"model": model, "attacks": attacks, "control": False, **given}
    return attack_capture(folder, **{name: value for name, value in options.items() if value is not None})


def ran(result: CaptureResult) -> list[str]:
    """The labels of the attacks that ran."""
    assert result.attacked is not None
    return [run.label for run in result.attacked.runs if run.is_attack]


def value(result: CaptureResult, attack: str, metric: str, column: str | None, key: str = "mean") -> float:
    """A figure of an attack."""
    assert result.attacked is not None
    row = result.attacked.row(metric, column, attack)
    assert row is not None
    number = getattr(row, key)
    assert isinstance(number, float)
    return number


def answers(result: CaptureResult, attack: str) -> pd.DataFrame:
    """An attack's answers in the columns that it guesses."""
    frame = result.findings.files[RECONSTRUCTION]
    own = frame[frame["attack"] == attack].dropna(axis=1, how="all")
    return own.infer_objects().reset_index(drop=True)


def reasons(result: CaptureResult) -> dict[str, str]:
    """The reason for each attack that could not be tried."""
    listed = result.findings.figures["not_tried"]
    assert isinstance(listed, list)
    return {each["attack"]: each["reason"] for each in listed}


def granted(result: CaptureResult) -> dict[str, object]:
    """What the attacker was granted or assumed."""
    knowledge = result.findings.figures["knowledge"]
    assert isinstance(knowledge, dict)
    return knowledge


def words(result: CaptureResult) -> tuple[str, ...]:
    """The sentences on what was found."""
    return result.findings.sections[0].words


def notes(result: CaptureResult) -> list[str]:
    """What is remarked on the transcript."""
    listed = result.findings.figures["notes"]
    assert isinstance(listed, list)
    return listed
