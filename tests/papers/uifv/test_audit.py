"""Vertical learning of images, from the spec to the report."""

from __future__ import annotations

import base64
import io
from pathlib import Path

import pytest
import torch

from seepage.auditing import run_all
from seepage.errors import BadInputError
from seepage.settings.vertical.audit import VerticalAudit
from seepage.settings.vertical.spec import VerticalSpec
from tests.attacks.vertical.parts import table
from tests.papers.uifv.parts import images
from tests.rows import number

pytest.importorskip("skimage")
DATA = images(rows=160)
SPEC = {
    "dataset": "gradients",
    "repetitions": 2,
    "control": False,
    "epochs": 2,
    "batch_size": 32,
    "attacked_records": 12,
    "leaked": 8,
    "auxiliary": 0.4,
    "attacks": [
        {"name": "uifv_qa", "options": {"epochs": 1, "steps": 250, "batch_size": 16}},
        {"name": "uifv_dpa", "options": {"epochs": 1, "steps": 20, "shadow_epochs": 1}},
        {"name": "uifv_iqa", "options": {"epochs": 1, "steps": 60, "rows": 50}},
        {"name": "uifv_sa", "options": {"epochs": 1, "steps": 100}},
    ],
    "baselines": ["constant", {"name": "own_columns", "options": {"epochs": 1}}],
}


@pytest.mark.slow
def test_images_are_attacked_measured_and_shown(tmp_path: Path) -> None:
    spec = VerticalSpec.of(**SPEC)
    [report] = run_all([VerticalAudit(spec, DATA)], tmp_path)
    mean = {(row.attack, row.metric): number(row.mean) for row in report.rows if row.mean is not None}
    # These images are smooth, and the party's answers to others of the kind say how they are inverted.
    assert mean["uifv_qa", "psnr"] > mean["constant", "psnr"] + 2
    assert mean["uifv_qa", "ssim"] > mean["constant", "ssim"]
    assert mean["uifv_qa", "psnr"] > mean["uifv_dpa", "psnr"]
    assert mean["uifv_dpa_self_inversion", "psnr"] > mean["uifv_dpa", "psnr"]
    assert {row.column for row in report.rows} == {None}
    assert {row.n for row in report.rows} == {2}
    shown = {run.label for run in report.runs if run.picture}
    assert shown == {"training", "constant", "own_columns", "uifv_dpa_self_inversion"} | {
        f"uifv_{name}" for name in ("qa", "dpa", "iqa", "sa")
    }
    page = (tmp_path / "report.html").read_text()
    assert page.count('<img src="data:image/png;base64,') == 8
    assert "the right half of each image, 192 brightnesses" in page
    # What is held is shown again.
    [again] = run_all([VerticalAudit(spec, DATA)], tmp_path)
    assert [run.picture for run in again.runs] == [run.picture for run in report.runs]


def test_the_picture_holds_the_originals() -> None:
    image = pytest.importorskip("PIL.Image")
    audit = VerticalAudit(
        VerticalSpec.of(**{**SPEC, "repetitions": 1, "epochs": 1, "attacks": [], "baselines": []}), DATA
    )
    [configuration] = audit.configurations
    found = audit.expose(configuration, range(1)).measure(audit.parts[0])
    [picture] = found.pictures
    assert picture is not None
    with image.open(io.BytesIO(base64.b64decode(picture.partition(",")[2]))) as shown:
        assert shown.size == (10 * 8 + 9 * 2, 8)
        first = torch.tensor([shown.getpixel((x, y)) for y in range(8) for x in range(8)])
    halves = DATA.all.cells.unflatten(1, (3, 8, 16))[..., 8:].permute(0, 2, 3, 1).reshape(160, 64, 3)
    assert bool((halves == first).all((1, 2)).any())


@pytest.mark.parametrize(
    "wrong", [{"parties": 3}, {"share": 0.3}, {"passive": ["p0"]}, {"defenses": [{"name": "bottleneck", "width": 2}]}]
)
def test_images_are_cut_in_one_way(wrong: dict) -> None:
    with pytest.raises(BadInputError, match="cut into a left half"):
        VerticalAudit(VerticalSpec.of(**{**SPEC, **wrong}), DATA)


def test_tables_are_no_images() -> None:
    assert table(50).layout is None
