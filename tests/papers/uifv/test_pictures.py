from __future__ import annotations

import math

import pytest
import torch

from seepage.errors import BadInputError
from seepage.models.vertical import vertical_mlp
from seepage.papers.uifv.layout import measure_images, picture
from seepage.tabular.partition import Partition
from seepage.wire.secret import FeatureTranscript
from seepage.wire.vertical import FeatureGuess, FeatureView
from tests.papers.uifv.parts import images

pytest.importorskip("skimage")
SHAPE = (3, 8, 16)


def seen(cells: torch.Tensor) -> FeatureTranscript:
    data = images(rows=4)
    model = vertical_mlp(Partition(data.schema, ((0,), tuple(range(1, 384)))), [0], (4,), 2, (4,))
    sent = torch.zeros(*cells.shape[:2], 2)
    return FeatureTranscript(FeatureView(model.active, 1, cells[..., :1], (sent, sent)), cells, cells[..., 0])


def test_figures_are_those_of_a_known_error() -> None:
    cells = images(rows=6).all.cells[None].repeat(2, 1, 1).clamp(20, 200)
    said = cells.clone()
    said[0] += 10.0
    measured = {one.metric: one.values for one in measure_images(SHAPE, seen(cells), FeatureGuess(said))}
    assert float(measured["psnr"][0]) == pytest.approx(20 * math.log10(255 / 10), abs=1e-4)
    # Nothing is wrong in the second training: half a step of brightness counts.
    assert float(measured["psnr"][1]) == pytest.approx(20 * math.log10(255 / 0.5), abs=1e-4)
    assert float(measured["ssim"][1]) == pytest.approx(1)
    assert 0.5 < float(measured["ssim"][0]) < 1
    assert measured["accuracy"].tolist() == [1, 1]
    said[0] += 20.0
    assert {o.metric: o.values for o in measure_images(SHAPE, seen(cells), FeatureGuess(said))}["accuracy"][0] == 0


def test_a_failed_attack_has_no_figure() -> None:
    cells = images(rows=6).all.cells[None].repeat(2, 1, 1)
    said = cells.clone()
    said[1] = torch.nan
    guess = FeatureGuess(said, failed=torch.tensor([False, True]))
    measured = {one.metric: one.values for one in measure_images(SHAPE, seen(cells), guess)}
    assert all(math.isnan(float(measured[name][1])) for name in ("psnr", "ssim", "accuracy"))
    assert measured["failed"].tolist() == [0, 1]
    assert picture(SHAPE, said[1]) == ""
    with pytest.raises(BadInputError, match="guess the images of the view"):
        measure_images(SHAPE, seen(cells), FeatureGuess(said[:, :3]))
