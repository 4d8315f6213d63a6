"""Behind one hidden layer records are found by the zeros of their errors."""

from __future__ import annotations

import pytest
import torch

from seepage.attacks.horizontal.exact.duals import guided
from seepage.attacks.horizontal.exact.networks import Network, errors_back
from seepage.attacks.horizontal.exact.unmix import unmix
from seepage.datasets import load
from seepage.models.mlp import nn1, nn2
from seepage.models.model import Model
from seepage.protocols.fedsgd import FedSGD
from seepage.tabular.align import tolerances
from seepage.tabular.encoder import Encoder
from seepage.wire.horizontal import Knowledge

GERMAN, ADULT = load("german"), load("adult")


@pytest.mark.parametrize(
    ("name", "records", "model"),
    [
        ("german", 28, nn2(GERMAN.schema, seed=1)),
        ("adult", 24, nn2(ADULT.schema, seed=0)),
        ("german", 14, nn1(GERMAN.schema, seed=0)),
    ],
)
def test_batches_of_a_third_of_the_width_are_read_whole(name: str, records: int, model: Model) -> None:
    """Adult's records share categories, so that numbers of some are told by the errors of others alone."""
    data = GERMAN if name == "german" else ADULT
    encoder = Encoder(data.schema, data.statistics, dtype=torch.float32)
    ran = FedSGD(records, replacement=False).run(model, data.train, encoder, range(2))
    guess = unmix(restarts=1, iterations=1)(ran.view, Knowledge(data.schema, data.statistics, records), [0, 1])
    assert guess.regime is not None
    proved, whole = f"all {records} records proved", f"all {records} records read, which explains the whole message"
    assert all(regime == proved or regime.startswith(whole) for regime in guess.regime)
    assert guess.labels is not None
    allowed = tolerances(data.schema) + 1e-6
    for cells, labels, true, known in zip(guess.cells, guess.labels, ran.secret.cells, ran.secret.labels, strict=True):
        near = ((cells[:, None] - true[None]).abs() <= allowed).all(-1) & (labels[:, None] == known[None])
        assert near.any(0).all()
        assert near.any(1).all()


@pytest.mark.parametrize(("records", "classes"), [(4, 2), (6, 3), (10, 2), (12, 4)])
def test_records_known_roughly_give_their_errors(records: int, classes: int) -> None:
    """Rows near the true ones lead to directions, nearly all of them records'; of small batches hardly one is missed.

    What is no record's does no harm: its record is not proved.
    """
    each = [directions(seed, records, classes) for seed in range(30)]
    found, right, true = (sum(map(len, sets)) for sets in zip(*((f, f & s, s) for f, s in each), strict=True))
    assert right >= 0.98 * found
    assert right >= (0.9 if records <= 6 else 0.5) * true


def directions(seed: int, records: int, classes: int) -> tuple[set[tuple[bool, ...]], set[tuple[bool, ...]]]:
    """Return the units that are silent for what is found from rough rows, and for each record."""
    generator = torch.Generator().manual_seed(seed)
    weights = torch.randn(60, 20, generator=generator, dtype=torch.float64)
    last = torch.randn(classes, 60, generator=generator, dtype=torch.float64)
    network = Network((weights, last), (torch.zeros(60).double(), torch.zeros(classes).double()))
    rows = torch.randn(records, 20, generator=generator, dtype=torch.float64)
    error = torch.randn(records, classes - 1, generator=generator, dtype=torch.float64) @ errors_back(network)
    made = rows @ weights.T
    error = error * (made > 0)
    shares = torch.nn.functional.normalize(error.T @ rows, dim=1)
    shares = shares @ torch.linalg.svd(shares).Vh[:records].T
    rough = made + 0.05 * torch.randn(made.shape, generator=generator, dtype=torch.float64)
    found = guided(shares, rough, records + 6)
    return {tuple(row) for row in found.silent.tolist()}, {tuple(row) for row in (made <= 0).tolist()}
