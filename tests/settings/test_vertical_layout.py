"""Rows that are no table, with a layout of the caller's own, in vertical learning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import pytest
import torch
from torch import Tensor, nn

from seepage.assessment.measurement import Measurement
from seepage.auditing import run_all
from seepage.errors import BadInputError
from seepage.models.vertical import Stack, VerticalModel, vertical_mlp
from seepage.settings.setting import Scale
from seepage.settings.vertical.audit import VerticalAudit
from seepage.settings.vertical.spec import VerticalSpec
from seepage.tabular.partition import Partition, by_names
from seepage.tabular.schema import Schema
from seepage.wire.secret import FeatureTranscript
from seepage.wire.vertical import FeatureGuess
from tests.attacks.vertical.parts import table
from tests.rows import number

DATA = table(400)
WIDTH, FEATURES = 8, 6


@dataclass(frozen=True)
class _Half:
    layers: int = 1

    def bottom(self, seeds: Sequence[int]) -> nn.Module:
        return Stack((WIDTH, FEATURES), seeds)

    def inverse(self, layers: int, seeds: Sequence[int]) -> nn.Module:
        return Stack((FEATURES, *[16] * (layers - 1), WIDTH), seeds)

    def queries(self, rows: int, seeds: Sequence[int]) -> Tensor:
        return torch.stack([torch.rand(rows, WIDTH, generator=torch.Generator().manual_seed(seed)) for seed in seeds])


@dataclass(frozen=True)
class _Series:
    scales: ClassVar[Mapping[str, Scale]] = {"error": Scale(False)}
    captions: ClassVar[Mapping[str, str]] = {"error": "off by {:.2f}"}
    words: ClassVar[Mapping[str, str]] = {
        "split": "series, cut in the middle",
        "secret": "all values of the second half",
        "sought": "the second half of each series",
        "networks": "Networks of one layer",
        "figures": "error is the mean distance.",
    }

    def partition(self, schema: Schema) -> Partition:
        return by_names(schema, [(), ["a", "b", "n"]])

    def network(self, partition: Partition, seeds: Sequence[int]) -> VerticalModel:
        return replace(vertical_mlp(partition, seeds, bottom=(), features=FEATURES, top=(8,)), layout=_Half())

    def measure(self, seen: FeatureTranscript, guess: FeatureGuess) -> list[Measurement]:
        error = (seen.cells - guess.cells).abs().mean((1, 2))
        return [Measurement("error", None, error, False, (0.0, float("inf")))]

    def picture(self, cells: Tensor) -> str | None:
        return "data:image/svg+xml,%3Csvg/%3E"


SPEC = {
    "dataset": "made",
    "repetitions": 2,
    "control": False,
    "epochs": 2,
    "attacked_records": 12,
    "leaked": 8,
    "auxiliary": 0.4,
    "attacks": [
        {"name": "uifv_qa", "options": {"epochs": 1, "steps": 600}},
        {"name": "uifv_dpa", "options": {"epochs": 1, "steps": 600, "shadow_epochs": 1}},
        {"name": "uifv_iqa", "options": {"epochs": 1, "steps": 600, "rows": 50}},
    ],
    "baselines": ["constant"],
}


@pytest.mark.long
def test_rows_with_a_layout_are_attacked_with_its_networks_and_measured_by_it(tmp_path: Path) -> None:
    [report] = run_all([VerticalAudit(VerticalSpec.of(**SPEC), replace(DATA, layout=_Series()))], tmp_path)
    errors = {row.attack: number(row.mean) for row in report.rows if row.metric == "error" and row.mean is not None}
    assert set(errors) == {"constant", "uifv_qa", "uifv_dpa", "uifv_iqa", "uifv_dpa_self_inversion"}
    assert errors["uifv_qa"] < min(errors["constant"], errors["uifv_iqa"])
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "the second half of each series" in page
    assert "off by " in page


@pytest.mark.parametrize("wrong", [{"parties": 3}, {"share": 0.3}, {"passive": ["a"]}])
def test_its_split_is_the_only_one(wrong: dict) -> None:
    with pytest.raises(BadInputError, match="series, cut in the middle"):
        VerticalAudit(VerticalSpec.of(**{**SPEC, **wrong}), replace(DATA, layout=_Series()))


def test_a_layout_that_lacks_what_vertical_learning_needs_is_refused() -> None:
    with pytest.raises(BadInputError, match="are no table but of type _Half"):
        VerticalAudit(VerticalSpec.of(**SPEC), replace(DATA, layout=_Half()))
