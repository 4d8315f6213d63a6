"""Which records stand above the client's rounding, where the answer is known."""

from __future__ import annotations

import torch

from seepage.assessment.certified import CertifiedShare
from seepage.assessment.matched import match_records
from seepage.assessment.measurement import Measurement
from seepage.assessment.visible import visible
from seepage.datasets.german import german
from seepage.kernel import nothing
from seepage.learning import LocalTraining, gradient, local_update
from seepage.models.mlp import nn3
from seepage.models.model import Model
from seepage.models.resnet import resnet_bn
from seepage.tabular.encoder import Encoder
from seepage.wire.horizontal import GradientView, RecordsGuess, UpdateView
from seepage.wire.secret import RecordsSecret

DATA = german()
CLIENT = Encoder(DATA.schema, DATA.statistics, dtype=torch.float32)
CELLS, LABELS = DATA.train.cells[None, :6], torch.tensor([[0.0, 1.0, 0.0, 0.0, 1.0, 1.0]], dtype=torch.float64)
SECRET = RecordsSecret(CELLS, LABELS)
ROWS = CLIENT.encode(CELLS)


def sure(gap: float) -> Model:
    """Return a network that is sure of the first class by a gap between its outputs."""
    model = nn3(DATA.schema, seed=0)
    *_, weight, bias = model.module.parameters()
    with torch.no_grad():
        weight.mul_(1e-3)
        bias.copy_(torch.tensor([gap, 0.0]))
    return model


def test_records_of_which_the_network_is_sure_are_not_in_the_message() -> None:
    for gap, expected in ((0.0, [True] * 6), (20.0, [label == 1 for label in LABELS[0].tolist()])):
        model = sure(gap)
        view = GradientView(model, gradient(model, ROWS, LABELS.float()))
        found = visible(view, SECRET, CLIENT)
        assert found is not None
        assert found.tolist() == [expected]


def test_a_small_step_is_lost_in_the_parameters_rounding() -> None:
    model = sure(0.0)
    for rate, expected in ((0.1, True), (1e-13, False)):
        training = LocalTraining(1, 6, rate)
        view = UpdateView(model, local_update(model, ROWS[:, None], LABELS.float()[:, None], training), training)
        found = visible(view, SECRET, CLIENT)
        assert found is not None
        assert bool(found.any()) == expected


def test_nothing_is_said_where_no_part_is_a_single_records() -> None:
    normal = resnet_bn(DATA.schema, seed=0)
    assert visible(GradientView(normal, gradient(normal, ROWS, LABELS.float())), SECRET, CLIENT) is None
    model, training = sure(0.0), LocalTraining(1, 6, 0.01, "adam")
    sent = local_update(model, ROWS[:, None], LABELS.float()[:, None], training)
    assert visible(UpdateView(model, sent, training), SECRET, CLIENT) is None


def test_the_share_stands_beside_what_is_certified() -> None:
    guess = RecordsGuess(CELLS, proofs=(nothing(len(CELLS[0]), CELLS.shape[2]),))
    matched = match_records(DATA.schema, DATA.statistics, SECRET, guess)
    assert "visible" not in [one.metric for one in CertifiedShare()(matched)]
    object.__setattr__(matched, "visible", torch.tensor([[True, False, True, False, False, False]]))
    found = {one.metric: one.values for one in CertifiedShare()(matched) if isinstance(one, Measurement)}
    assert found["visible"].tolist() == [2 / 6]
