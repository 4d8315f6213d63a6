"""Masks of dropout as variables of matching attacks."""

from __future__ import annotations

from typing import Literal

import pytest
import torch
from torch import nn

from seepage import attacks
from seepage.attacks.horizontal.matching.engine import AutogradEngine, match
from seepage.attacks.horizontal.matching.masks import MaskedEngine
from seepage.attacks.horizontal.matching.matching import Cosine
from seepage.datasets.planted import distinct
from seepage.models.making import make_model
from seepage.protocols.fedsgd import FedSGD
from seepage.seeds import seeded
from seepage.tabular.encoder import Encoder
from seepage.wire.horizontal import Knowledge

DATA = distinct(rows=40, continuous=2, discrete=4)
KNOWN = DATA.schema, DATA.statistics
WIDTH = DATA.schema.width
ENCODER = Encoder(*KNOWN, dtype=torch.float32)
MODEL, _ = make_model(
    seeded(lambda: nn.Sequential(nn.Linear(WIDTH, 30), nn.ReLU(), nn.Dropout(0.5), nn.Linear(30, 2)), 1), *KNOWN
)


def test_the_clients_own_rows_and_masks_match_and_rows_alone_do_not() -> None:
    ran = FedSGD(3).run(MODEL, DATA.train, ENCODER, seeds=[5])
    generator = torch.Generator().manual_seed(5)
    torch.randperm(len(DATA.train), generator=generator)
    rows = ENCODER.encode(ran.secret.cells)[:, None]
    assert MODEL.drops is not None
    masks = MODEL.drops.draw([3], generator)[None, None]
    engine = match(ran.view, Cosine())
    assert isinstance(engine, AutogradEngine)
    assert float(engine.loss(torch.cat([rows, masks], -1), ran.secret.labels)) == pytest.approx(0, abs=1e-6)
    assert float(engine.loss(rows, ran.secret.labels)) > 0.05


@pytest.mark.parametrize("kind", ["variables", "drawn"])
def test_masks_stay_what_masks_can_be_and_learn_only_as_variables(kind: Literal["variables", "drawn"]) -> None:
    ran = FedSGD(3).run(MODEL, DATA.train, ENCODER, seeds=[5])
    drops = MODEL.drops
    assert drops is not None
    engine = MaskedEngine(match(ran.view, Cosine()), drops, kind, [0])
    rows = ENCODER.encode(ran.secret.cells)[:, None].expand(-1, 2, -1, -1)
    losses = [engine(rows, ran.secret.labels)[0] for _ in range(150)]
    if kind == "drawn":
        assert engine.masks is None
        assert not torch.equal(losses[0], losses[1])
        return
    masks = engine.masks
    assert masks is not None
    assert masks.shape == (1, 2, 3, 30)
    assert float(masks.min()) >= 0
    assert float(masks.max()) <= 2
    # With the true rows at hand, the masks explain the gradient.
    assert bool((losses[-1] < 0.1 * losses[0]).all())
    assert torch.allclose(engine.loss(rows, ran.secret.labels), losses[-1], atol=0.01)


@pytest.mark.long
def test_masks_as_variables_read_more_than_ignored_ones() -> None:
    ran = FedSGD(4).run(MODEL, DATA.train, ENCODER, seeds=[0, 1, 2])
    known = Knowledge(*KNOWN, 4)

    def right(masks: str) -> float:
        guess = attacks.create("tableak", restarts=4, iterations=300, masks=masks)(ran.view, known, [0, 1, 2])
        # Every record of the planted table has values of its own.
        alike = (guess.cells[:, :, None] == ran.secret.cells[:, None]).double().mean(-1).amax(1)
        return float(alike.mean())

    assert right("variables") > right("ignored") + 0.05
