from __future__ import annotations

import pytest
import torch
from torch import nn

from seepage.datasets.planted import distinct
from seepage.errors import BadInputError
from seepage.models.mlp import nn1
from seepage.models.model import Model
from seepage.protocols.fedsgd import FedSGD
from seepage.registry import protocols
from seepage.tabular.encoder import Encoder
from tests.oracles.gradients import gradient_of
from tests.roundings import assert_rounded_alike

DATA = distinct(rows=20)
ENCODER = Encoder(DATA.schema, DATA.statistics, dtype=torch.float32)
MODEL = nn1(DATA.schema, seed=1)


def positions(cells: torch.Tensor) -> list[int]:
    """Return which row of the table each record is; every one is told by its first column."""
    column = DATA.train.cells[:, 0].tolist()
    return [column.index(value) for value in cells[:, 0].tolist()]


@pytest.mark.parametrize("replacement", [False, True])
@pytest.mark.parametrize("records", [1, 7, 20])
def test_victims_hold_rows_of_the_table_with_their_labels(records: int, replacement: bool) -> None:
    transcript = FedSGD(records, replacement).run(MODEL, DATA.train, ENCODER, seeds=range(30))
    cells, labels = transcript.secret.cells, transcript.secret.labels
    assert cells.shape == (30, records, 6)
    chosen = [positions(one) for one in cells]
    for v, rows in enumerate(chosen):
        assert torch.equal(cells[v], DATA.train.cells[rows])
        assert torch.equal(labels[v], DATA.train.labels[rows])
    twice = any(len(set(rows)) < records for rows in chosen)
    assert twice == (replacement and records > 1)
    # Each of 20 rows is missed by 30 draws of 7 with a chance below 1e-5.
    if records > 1:
        assert {row for rows in chosen for row in rows} == set(range(20))


def test_the_view_is_the_mean_gradient_of_the_batch() -> None:
    transcript = FedSGD(5).run(MODEL, DATA.train, ENCODER, seeds=[1, 2])
    assert transcript.view.model is MODEL
    assert transcript.view.victims == 2
    for v in range(2):
        expected = gradient_of(MODEL, ENCODER.encode(transcript.secret.cells[v]), transcript.secret.labels[v])
        for own, other in zip(transcript.view.gradient.values(), expected, strict=True):
            torch.testing.assert_close(own[v], other.detach(), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("replacement", [False, True])
def test_a_victim_depends_on_its_own_seed_alone(replacement: bool) -> None:
    protocol = FedSGD(6, replacement)
    whole = protocol.run(MODEL, DATA.train, ENCODER, seeds=[11, 12, 11, 13])
    for v, seed in enumerate([11, 12, 11, 13]):
        alone = protocol.run(MODEL, DATA.train, ENCODER, seeds=[seed])
        assert torch.equal(alone.secret.cells[0], whole.secret.cells[v])
        for name, tensor in alone.view.gradient.items():
            # The same sums over six records, of rows that lie elsewhere in memory: a few roundings a record.
            assert_rounded_alike(tensor[0], whole.view.gradient[name][v], roundings=48, what=name)
    assert torch.equal(whole.secret.cells[0], whole.secret.cells[2])
    assert not torch.equal(whole.secret.cells[0], whole.secret.cells[1])


def test_global_random_state_is_left_alone() -> None:
    state = torch.random.get_rng_state()
    FedSGD(6).run(MODEL, DATA.train, ENCODER, seeds=[11])
    assert torch.equal(torch.random.get_rng_state(), state)


@pytest.mark.long
def test_batches_are_drawn_uniformly() -> None:
    drawn = FedSGD(1).run(MODEL, DATA.train, ENCODER, seeds=range(400)).secret.cells[:, 0, 0]
    counts = torch.bincount(drawn.long(), minlength=20).double()
    # Chi squared of 19 degrees of freedom exceeds 43.8 with a chance of 0.001.
    assert float(((counts - 20) ** 2 / 20).sum()) < 43.8


def test_batches_that_cannot_be_drawn_are_refused() -> None:
    with pytest.raises(BadInputError, match=r"batch size 21 is larger than the client's 20 rows; use .* at most 20"):
        FedSGD(21).run(MODEL, DATA.train, ENCODER, seeds=[0])
    assert FedSGD(21, replacement=True).run(MODEL, DATA.train, ENCODER, seeds=[0]).secret.cells.shape == (1, 21, 6)
    for size in (0, -3):
        with pytest.raises(BadInputError, match=f"at least one record, got batch_size={size}"):
            FedSGD(size)
    with pytest.raises(BadInputError, match="at least one seed"):
        FedSGD(2).run(MODEL, DATA.train, ENCODER, seeds=[])


def test_a_model_of_another_table_is_refused() -> None:
    with pytest.raises(BadInputError, match="model 'mine' does not take rows of 63 encoded columns"):
        FedSGD(2).run(Model(nn.Linear(5, 2), "softmax", "mine"), DATA.train, ENCODER, seeds=[0])


def test_the_registered_protocol_takes_its_arguments_by_name() -> None:
    made = protocols.create("fedsgd", batch_size=3, replacement=True)
    assert isinstance(made, FedSGD)
    assert (made.batch_size, made.replacement) == (3, True)
    with pytest.raises(BadInputError, match="did you mean 'batch_size'"):
        protocols.create("fedsgd", batchsize=3)
