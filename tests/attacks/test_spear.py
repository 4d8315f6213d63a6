"""SPEAR reads planted batches whole, says what it did not finish, and certifies nothing false."""

from __future__ import annotations

from itertools import combinations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from seepage.assessment import match_records
from seepage.attacks.horizontal.exact.duals import Directions, merged, refined, sampled
from seepage.attacks.horizontal.exact.spear import Spear, chosen_greedily, independent
from seepage.datasets import load
from seepage.errors import BadInputError
from seepage.learning import gradient
from seepage.models.mlp import linear, mlp, nn2, nn3
from seepage.models.model import Model
from seepage.protocols.fedavg import FedAvg
from seepage.protocols.fedsgd import FedSGD
from seepage.tabular.encoder import Encoder
from seepage.wire.horizontal import GradientView, Knowledge
from tests.roundings import assert_guessed_alike

GERMAN = load("german")
ENCODER = Encoder(GERMAN.schema, GERMAN.statistics, dtype=torch.float32)


def knowledge(records: int) -> Knowledge:
    return Knowledge(GERMAN.schema, GERMAN.statistics, records)


@pytest.mark.parametrize(
    ("records", "model"),
    [(1, nn3(GERMAN.schema, seed=0)), (8, nn2(GERMAN.schema, seed=0)), (11, nn3(GERMAN.schema, seed=0))],
)
def test_a_batch_is_read_whole(records: int, model: Model) -> None:
    ran = FedSGD(records, replacement=False).run(model, GERMAN.train, ENCODER, range(2))
    guess = Spear()(ran.view, knowledge(records), [0, 1])
    assert guess.regime == (f"all {records} records found",) * 2
    assert guess.certified is not None
    assert guess.certified.all()
    for got, true in zip(guess.cells, ran.secret.cells, strict=True):
        rows = [torch.tensor(sorted(table.tolist()), dtype=torch.float64) for table in (got, true)]
        torch.testing.assert_close(*rows, rtol=1e-5, atol=1e-3)


def test_what_follows_the_first_layer_does_not_matter() -> None:
    module = nn.Sequential(
        nn.Linear(GERMAN.schema.width, 80), nn.ReLU(), nn.Linear(80, 30), nn.Tanh(), nn.Linear(30, 2)
    )
    ran = FedSGD(6, replacement=False).run(Model(module, "softmax", "mine"), GERMAN.train, ENCODER, [3])
    assert Spear()(ran.view, knowledge(6), [0]).regime == ("all 6 records found",)


def test_an_update_of_one_local_step_is_read() -> None:
    ran = FedAvg(6).run(nn3(GERMAN.schema, seed=0), GERMAN.train, ENCODER, [3])
    guess = Spear(2**13)(ran.view, knowledge(6), [0])
    assert guess.regime == ("all 6 records found",)
    true = torch.tensor(sorted(ran.secret.cells[0].tolist()), dtype=torch.float64)
    torch.testing.assert_close(torch.tensor(sorted(guess.cells[0].tolist())).double(), true, rtol=1e-3, atol=0.1)


def test_a_batch_with_copies_says_its_rank_and_certifies_nothing() -> None:
    cells = GERMAN.train.cells[:7].clone()
    cells[6] = cells[2]
    labels = torch.tensor([0.0, 1, 0, 1, 0, 1, 0], dtype=torch.float64)
    view = GradientView(
        model := nn3(GERMAN.schema, seed=1), gradient(model, ENCODER.encode(cells[None]), labels[None].float())
    )
    guess = Spear()(view, knowledge(7), [0])
    assert guess.regime == ("6 of 7 rows found; the gradient has rank 6",)
    assert guess.certified is not None
    assert not guess.certified.any()
    # What it has is right, and what is missing the row of most frequent values.
    found = {tuple(round(value, 1) for value in row) for row in guess.cells[0].tolist()}
    true = {tuple(round(value, 1) for value in row) for row in cells.tolist()}
    assert true <= found


def test_a_search_that_stops_early_says_so() -> None:
    ran = FedSGD(24, replacement=False).run(nn3(GERMAN.schema, seed=0), GERMAN.train, ENCODER, [0])
    guess = Spear(submatrices=500)(ran.view, knowledge(24), [0])
    assert guess.regime == ("not finished after 500 submatrices: 0 of 24 directions found",)
    # The most frequent values in every row.
    assert (guess.cells == guess.cells[:, :1]).all()
    ran = FedSGD(16, replacement=False).run(nn2(GERMAN.schema, seed=0), GERMAN.train, ENCODER, [0])
    guess = Spear(submatrices=4096)(ran.view, knowledge(16), [0])
    assert guess.regime is not None
    assert guess.regime[0].startswith("not certain after 4096 submatrices")
    assert guess.certified is not None
    assert not guess.certified.any()


def test_same_seed_same_guess_whoever_else_is_attacked() -> None:
    ran = FedSGD(9).run(nn3(GERMAN.schema, seed=0), GERMAN.train, ENCODER, [0, 1])
    both = Spear(2**14)(ran.view, knowledge(9), [5, 6])
    alone = Spear(2**14)(ran.view.of(slice(1, 2)), knowledge(9), [6])
    assert_guessed_alike(both.cells[1], alone.cells[0])


def test_no_relu_behind_the_first_layer_is_refused() -> None:
    module = nn.Sequential(nn.Linear(GERMAN.schema.width, 9), nn.Tanh(), nn.Linear(9, 2))
    for model in (linear(GERMAN.schema, seed=0), Model(module, "softmax", "smooth")):
        ran = FedSGD(2).run(model, GERMAN.train, ENCODER, [0])
        with pytest.raises(BadInputError, match=r"nn\.ReLU behind the first affine layer"):
            Spear()(ran.view, knowledge(2), [0])
    with pytest.raises(BadInputError, match="submatrices"):
        Spear(submatrices=0)


@pytest.mark.long
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), records=st.integers(1, 9), width=st.sampled_from([30, 60]), copies=st.integers(0, 3))
def test_nothing_false_is_certified(seed: int, records: int, width: int, copies: int) -> None:
    chosen = torch.randint(len(GERMAN.train), (records,), generator=torch.Generator().manual_seed(seed))
    chosen[: min(copies, records)] = chosen[-1]
    cells, labels = GERMAN.train.cells[chosen], GERMAN.train.labels[chosen]
    model = mlp(GERMAN.schema, (width, 20), seed=seed)
    view = GradientView(model, gradient(model, ENCODER.encode(cells[None]), labels[None].float()))
    guess = Spear(2**13)(view, knowledge(records), [seed])
    assert guess.certified is not None
    left = cells.tolist()
    for row in guess.cells[0, guess.certified[0].all(-1)].tolist():
        near = [other for other in left if all(abs(a - b) < 0.5 for a, b in zip(row, other, strict=True))]
        assert near, f"{row} is none of the records"
        left.remove(near[0])


def planted(seed: int, units: int, rank: int) -> torch.Tensor:
    """Return errors, (unit, record), every second one 0."""
    generator = torch.Generator().manual_seed(seed)
    errors = torch.randn(units, rank, generator=generator, dtype=torch.float64)
    return errors * (torch.rand(units, rank, generator=generator) < 0.5)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), rank=st.integers(2, 4))
def test_directions_are_what_trying_all_submatrices_finds(seed: int, rank: int) -> None:
    """Every record's zeros are found, and whatever else all submatrices together show."""
    units = 12
    errors = planted(seed, units, rank)
    mixed = errors @ torch.linalg.qr(planted(seed + 1, rank, rank) + 3 * torch.eye(rank)).Q
    shares = torch.nn.functional.normalize(mixed, dim=1)
    least = rank + 1
    true: set[tuple[bool, ...]] = set()
    for chosen in combinations(range(units), rank - 1):
        part = shares[list(chosen)]
        if int(torch.linalg.matrix_rank(part)) < rank - 1:
            continue
        null = torch.linalg.svd(part, full_matrices=True).Vh[-1]
        silent = (shares @ null).abs() < 1e-9
        if int(silent.sum()) >= least and float(torch.linalg.svdvals(shares[silent])[rank - 2]) > 1e-2:
            true.add(tuple(silent.tolist()))
    reacting = shares[shares.norm(dim=1) > 0]
    found = refined(shares, sampled(reacting, 4000, torch.Generator().manual_seed(seed)), least)
    assert true <= {tuple(row) for row in found.silent.tolist()}
    assert float((found.vectors @ shares.T).abs()[found.silent].max() if len(found.vectors) else 0.0) < 1e-4
    counts = found.silent.sum(1).tolist()
    assert counts == sorted(counts, reverse=True)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), rank=st.integers(2, 5))
def test_the_right_directions_are_chosen_among_wrong_ones(seed: int, rank: int) -> None:
    """The records' directions among random ones that claim more zeros; the result is the planted rows."""
    generator = torch.Generator().manual_seed(seed)
    network = torch.randn(40, 8, generator=generator, dtype=torch.float64)
    rows = torch.cat([torch.randn(rank, 7, generator=generator, dtype=torch.float64), torch.ones(rank, 1).double()], 1)
    inactive = rows @ network.T <= 0
    basis = torch.linalg.qr(rows.T).Q.T
    duals = torch.linalg.inv(rows @ basis.T).T
    wrong = torch.randn(6, rank, generator=generator, dtype=torch.float64)
    claimed = torch.rand(6, 40, generator=generator) < 0.9
    vectors = torch.nn.functional.normalize(torch.cat([duals, wrong]), dim=1)
    pool = merged(Directions(vectors, torch.cat([inactive, claimed])), 50)
    found = chosen_greedily(pool, independent(pool.vectors), basis, network)
    # Descent may end early; where it says that all matches, it holds the rows.
    if found.match == 1:
        order = found.rows[:, 0].argsort(), rows[:, 0].argsort()
        torch.testing.assert_close(found.rows[order[0]], rows[order[1]], rtol=1e-6, atol=1e-6)
    right = merged(Directions(vectors[:rank], inactive), 50)
    assert chosen_greedily(right, independent(right.vectors), basis, network).match == 1


def test_exchanging_finds_the_planted_directions() -> None:
    """One wrong direction at the start, the right one in the pool."""
    generator = torch.Generator().manual_seed(0)
    network = torch.randn(60, 9, generator=generator, dtype=torch.float64)
    rows = torch.cat([torch.randn(5, 8, generator=generator, dtype=torch.float64), torch.ones(5, 1).double()], 1)
    basis = torch.linalg.qr(rows.T).Q.T
    duals = torch.nn.functional.normalize(torch.linalg.inv(rows @ basis.T).T, dim=1)
    wrong = torch.nn.functional.normalize(torch.ones(1, 5, dtype=torch.float64), dim=1)
    pool = Directions(
        torch.cat([duals[:4], wrong, duals[4:]]),
        torch.cat([(rows @ network.T <= 0)[:4], torch.ones(1, 60).bool(), (rows @ network.T <= 0)[4:]]),
    )
    found = chosen_greedily(pool, [0, 1, 2, 3, 4], basis, network)
    assert found.match == 1
    torch.testing.assert_close(found.rows, rows, rtol=1e-8, atol=1e-8)


def test_a_batch_with_a_record_that_leaves_no_trace_gets_no_certificate() -> None:
    first = nn.Linear(GERMAN.schema.width, 16)
    module = nn.Sequential(first, nn.ReLU(), nn.Linear(16, 2))
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(0.2 * torch.randn(parameter.shape, generator=generator))
        first.bias.sub_(2)
    ran = FedSGD(3).run(Model(module, "softmax", "lowered"), GERMAN.train, ENCODER, range(20))
    active = (first(ENCODER.encode(ran.secret.cells).float()) > 0).any(-1)
    silent = ~active.all(1)
    assert 0 < int(silent.sum()) < 20
    guess = Spear(2**12)(ran.view, knowledge(3), [0] * 20)
    assert guess.certified is not None
    assert not guess.certified[silent].any()
    assert guess.certified[~silent].any()
    assert guess.regime is not None
    assert all("the gradient has rank" in guess.regime[i] for i in silent.nonzero().flatten().tolist())
    matched = match_records(GERMAN.schema, GERMAN.statistics, ran.secret, guess)
    assert matched.certified is not None
    assert bool(matched.right[matched.certified].all())
