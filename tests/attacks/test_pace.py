"""Progress from within long searches: shares add up to the whole, whatever a search finds."""

from __future__ import annotations

import pytest
import torch

from seepage.attacks.horizontal.exact import pace
from seepage.attacks.horizontal.exact.unmix import unmix
from seepage.datasets.planted import distinct
from seepage.models.mlp import nn3
from seepage.protocols.fedsgd import FedSGD
from seepage.tabular.encoder import Encoder
from seepage.wire.horizontal import Knowledge


def reported(starts: int) -> tuple[list[float], torch.Tensor]:
    """Return the shares that an attack on three victims reports, and its guess."""
    data = distinct(rows=60)
    encoder = Encoder(data.schema, data.statistics, dtype=torch.float32)
    ran = FedSGD(8).run(nn3(data.schema, seed=0), data.train, encoder, seeds=[1, 2, 3])
    shares: list[float] = []
    attack = unmix(starts=starts, rounds=2, restarts=1, iterations=2)
    return shares, attack(ran.view, Knowledge(data.schema, data.statistics, 8), [0, 1, 2], shares.append).cells


@pytest.mark.long
@pytest.mark.parametrize("starts", [32, 1])
def test_a_long_search_reports_from_within_a_victim_and_finds_the_same(
    monkeypatch: pytest.MonkeyPatch, starts: int
) -> None:
    shares, cells = reported(starts)
    monkeypatch.setattr(pace, "_LONG", 0.0)
    within, same = reported(starts)
    assert torch.equal(cells, same)
    assert len(within) > len(shares)
    assert sum(within) == pytest.approx(1.0)
    assert sum(shares) == pytest.approx(1.0)
    assert min(within) > 0


def test_what_is_reported_of_a_search_that_does_not_find_all_is_not_reported_again() -> None:
    shares: list[float] = []
    progress = pace.Pace(shares.append, victims=2, rounds=1)
    progress.begin()
    progress.searched(0.5)
    progress.end()
    progress.begin()
    progress.rest(0.25)
    progress.rest(0.25)
    assert shares == [0.5, 0.25, 0.25]
