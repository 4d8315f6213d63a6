from __future__ import annotations

import itertools
import math
import statistics

import pandas as pd
import pytest
import torch
from torch import Tensor

from seepage.attacks.horizontal.matching.ensemble import Pooling, align, decode_by_marginals, pool, uncertainty
from seepage.datasets.planted import distinct
from seepage.tabular.encoder import Encoder
from seepage.tabular.schema import Continuous, Discrete, Schema
from seepage.tabular.statistics import Statistics
from seepage.tabular.table import Table
from tests.oracles.assessment import right

DATA = distinct(rows=12, continuous=2, discrete=2)
ENCODER = Encoder(DATA.schema, DATA.statistics)
BLOCKS = DATA.schema.blocks


def permuted(victims: int, restarts: int, records: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Return true rows (victim, record, encoded) and copies of them, each in an order of its own."""
    generator = torch.Generator().manual_seed(seed)
    true = torch.stack(
        [ENCODER.encode(DATA.train.cells[torch.randperm(12, generator=generator)[:records]]) for _ in range(victims)]
    )
    orders = [[torch.randperm(records, generator=generator) for _ in range(restarts)] for _ in range(victims)]
    return true, torch.stack([torch.stack([true[v][order] for order in orders[v]]) for v in range(victims)])


def test_permuted_copies_are_put_into_the_order_of_the_one_with_least_loss() -> None:
    _, copies = permuted(victims=4, restarts=6, records=8)
    losses = torch.rand(4, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    aligned = align(ENCODER, copies, losses)
    for v in range(4):
        reference = copies[v, int(losses[v].argmin())]
        for r in range(6):
            assert torch.equal(aligned[v, r], reference)


def test_copies_with_a_wrong_column_are_still_put_into_order() -> None:
    true, copies = permuted(victims=3, restarts=5, records=8)
    block = BLOCKS[2]
    # One column of every copy is somebody else's; three others tell the rows.
    copies[..., block] = copies[..., block].roll(1, dims=2)
    losses = torch.arange(5, dtype=torch.float64).expand(3, 5)
    aligned = align(ENCODER, copies, losses)
    rest = torch.ones(ENCODER.width, dtype=torch.bool)
    rest[block] = False
    for r in range(5):
        assert torch.equal(aligned[:, r][..., rest], aligned[:, 0][..., rest])
    assert torch.equal(aligned[:, 0], copies[:, 0])
    assert true.shape == aligned[:, 0].shape


def test_candidates_are_matched_with_the_fewest_wrong_cells() -> None:
    generator = torch.Generator().manual_seed(7)
    candidates = torch.randn(2, 3, 4, ENCODER.width, generator=generator, dtype=torch.float64)
    losses = torch.tensor([[2.0, 1.0, 3.0], [0.5, 1.0, 0.7]], dtype=torch.float64)
    aligned = align(ENCODER, candidates, losses)
    cells, kept = ENCODER.decode(candidates), ENCODER.decode(aligned)
    for v, reference in ((0, 1), (1, 0)):
        for r in range(3):
            wrong = [
                sum(
                    right(DATA.schema, cells[v, r, g].tolist(), cells[v, reference, t].tolist()).count(False)
                    for t, g in enumerate(order)
                )
                for order in itertools.permutations(range(4))
            ]
            own = sum(
                right(DATA.schema, kept[v, r, t].tolist(), cells[v, reference, t].tolist()).count(False)
                for t in range(4)
            )
            assert own == min(wrong)
            # Nothing is lost on the way.
            rows = {tuple(row) for row in candidates[v, r].tolist()}
            assert {tuple(row) for row in aligned[v, r].tolist()} == rows


POOLS = {"median": statistics.median, "lower_median": statistics.median_low, "mean": statistics.fmean}


@pytest.mark.parametrize("pooling", ["median", "lower_median", "mean"])
@pytest.mark.parametrize("restarts", [1, 2, 3, 8])
def test_pooling_is_coordinate_by_coordinate(pooling: Pooling, restarts: int) -> None:
    generator = torch.Generator().manual_seed(restarts)
    aligned = torch.randn(2, restarts, 3, ENCODER.width, generator=generator, dtype=torch.float64)
    pooled = pool(ENCODER, aligned, pooling)
    assert pooled.shape == (2, 3, ENCODER.width)
    for v, b, e in itertools.product(range(2), range(3), range(ENCODER.width)):
        expected = POOLS[pooling](aligned[v, :, b, e].tolist())
        assert float(pooled[v, b, e]) == pytest.approx(expected, rel=1e-14, abs=1e-15)


def test_the_two_medians_differ_on_an_even_number() -> None:
    aligned = torch.tensor([1.0, 4.0, 2.0, 9.0]).view(1, 4, 1, 1).expand(1, 4, 1, ENCODER.width)
    assert pool(ENCODER, aligned, "median").unique().tolist() == [3]
    assert pool(ENCODER, aligned, "lower_median").unique().tolist() == [2]
    assert pool(ENCODER, aligned, "mean").unique().tolist() == [4]


def shares(*rows: list[float]) -> Tensor:
    """Return candidates whose third column, of twelve categories, has these shares, the rest being alike."""
    raw = torch.zeros(1, len(rows), 1, ENCODER.width, dtype=torch.float64)
    raw[..., BLOCKS[3].start] = 1
    for r, row in enumerate(rows):
        raw[0, r, 0, BLOCKS[2]] = torch.tensor(row + [0.0] * (12 - len(row)), dtype=torch.float64)
    return ENCODER.standardise(raw)


def test_entropy_of_categories() -> None:
    uniform, certain = [1 / 12] * 12, [1.0]
    for candidates, softmax, counts in (
        (shares(certain, certain), 0, 0),
        (shares(uniform, uniform), 1, 0),
        # Two candidates sure of different categories: one bit.
        (shares([1.0, 0.0], [0.0, 1.0]), math.log(2) / math.log(12), math.log(2) / math.log(12)),
        # Three out of four agree, without being sure.
        (
            shares([0.6, 0.4], [0.6, 0.4], [0.6, 0.4], [0.4, 0.6]),
            -(0.55 * math.log(0.55) + 0.45 * math.log(0.45)) / math.log(12),
            -(0.75 * math.log(0.75) + 0.25 * math.log(0.25)) / math.log(12),
        ),
    ):
        assert float(uncertainty(ENCODER, candidates, "softmax")[0, 0, 2]) == pytest.approx(softmax, abs=1e-12)
        assert float(uncertainty(ENCODER, candidates, "counts")[0, 0, 2]) == pytest.approx(counts, abs=1e-12)


def test_entropy_of_numbers_is_that_of_a_normal_distribution() -> None:
    generator = torch.Generator().manual_seed(4)
    aligned = torch.randn(2, 7, 3, ENCODER.width, generator=generator, dtype=torch.float64)
    aligned[0, :, 0, 0] = 0.25
    for entropy in ("softmax", "counts"):
        doubt = uncertainty(ENCODER, aligned, entropy)
        assert doubt.shape == (2, 3, 4)
        assert float(doubt[0, 0, 0]) == -math.inf
        for v, b, c in itertools.product(range(2), range(3), range(2)):
            if (v, b, c) != (0, 0, 0):
                deviation = statistics.stdev(aligned[v, :, b, c].tolist())
                expected = 0.5 + 0.5 * math.log(2 * math.pi * deviation**2)
                assert float(doubt[v, b, c]) == pytest.approx(expected, rel=1e-12)


def test_entropy_of_categories_stays_within_its_range() -> None:
    # Without a relaxation entries are no probabilities; counts do not mind, and sums of shares must not break.
    generator = torch.Generator().manual_seed(5)
    aligned = 3 * torch.randn(2, 6, 3, ENCODER.width, generator=generator, dtype=torch.float64)
    discrete = [i for i, column in enumerate(DATA.schema.columns) if isinstance(column, Discrete)]
    for entropy in ("softmax", "counts"):
        doubt = uncertainty(ENCODER, aligned, entropy)[..., discrete]
        assert ((doubt >= 0) & (doubt <= 1 + 1e-12)).all()


# Nine in ten are 0, the others spread thin, and two far out make the histogram's bins wider than the tolerance.
HEAVY = [0.0] * 900 + [float(40 * i) for i in range(1, 99)] + [-50000.0, 50000.0]
PAY = Continuous(name="pay", low=-50000, high=50000, tolerance=200, integer=True)
TAIL = Table(
    Schema(columns=(PAY, Discrete(name="sex", categories=("f", "m"))), target=Discrete(name="y", categories=(0, 1))),
    pd.DataFrame({"pay": HEAVY, "sex": ["f", "m"] * 500, "y": [0, 0, 1, 1] * 250}),
)


def decoded(*candidates: list[float]) -> tuple[list[float], list[float]]:
    """Decode candidates for the column pay of several records: with the marginals' say, and without."""
    statistics = Statistics.of(TAIL)
    encoder = Encoder(TAIL.schema, statistics)
    cells = torch.tensor(candidates, dtype=torch.float64)
    rows = encoder.encode(torch.stack([cells, torch.ones_like(cells)], dim=-1))[None]
    pooled = pool(encoder, rows)
    found = decode_by_marginals(encoder, statistics, rows, pooled)
    assert torch.equal(found[..., 1], torch.ones(1, cells.shape[1], dtype=torch.float64))
    return found[0, :, 0].tolist(), encoder.decode(pooled)[0, :, 0].tolist()


def test_marginals_do_not_overrule_candidates_that_agree() -> None:
    # Bins are 1000 wide: most of these values are further from any bin's edge than the tolerance.
    values = [float(value) for value in range(-3000, 3001, 50)]
    own, nearest = decoded(values, values, values)
    assert own == nearest == values


def test_marginals_settle_what_candidates_leave_open() -> None:
    # Candidates on both sides of the value that nine in ten records have, around a median beyond its tolerance.
    own, nearest = decoded([-400.0], [-350.0], [250.0], [300.0], [500.0])
    assert nearest == [250]
    assert own == [0]
