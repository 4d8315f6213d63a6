"""Audits of split learning whose clients take another loss than the mean of the usual ones."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from seepage.errors import BadInputError
from seepage.models.message import MessageForm
from seepage.protocols.whole_client import WholeClientModel
from seepage.run.store import Store
from seepage.settings.loss import BatchLoss
from seepage.settings.loss_form import form_of
from seepage.settings.part import Part
from seepage.settings.split.audit import SplitAudit
from seepage.settings.split.spec import SplitSpec
from seepage.settings.split.whole_client import WholeClientAudit
from tests.attacks.split.test_exact import table
from tests.audits import measured

DATA = table(2, rows=300)
MANY = table(3, rows=300)
SMALL: dict[str, Any] = {
    "dataset": "made",
    "private_columns": ("a", "c"),
    "hidden": (16, 8),
    "batch_size": 32,
    "epochs": 2,
    "auxiliary": 100,
    "repetitions": 1,
    "baselines": (),
}


@pytest.mark.long
@pytest.mark.parametrize(
    "loss",
    [
        {"reduction": "sum", "weights": [1, 9], "scale": 4},
        *(
            pytest.param(loss, marks=pytest.mark.slow)
            for loss in ("sum", {"scale": 0.01, "smoothing": 0.1}, {"loss": "focal", "gamma": 2.0})
        ),
    ],
)
def test_attacks_that_know_the_loss_read_what_they_read_without_one(loss: object) -> None:
    audit = SplitAudit(SplitSpec.of(**SMALL, loss=loss), DATA)
    rows = {(r.attack, r.metric, r.column): r.mean for r in measured(audit, Store(None))}
    assert rows["exact", "accuracy", None] == 1.0
    assert rows["posterior", "accuracy", None] == 1.0
    assert rows.get(("exact", "certified_wrong", None), 0.0) in (None, 0.0)
    assert any("a loss of another form" in line for line in audit.about.threat_model)


@pytest.mark.long
def test_the_sum_of_class_weights_that_a_mean_is_divided_by_is_fitted() -> None:
    """Of several classes each batch has a factor of its own, by labels that the server does not have."""
    audit = SplitAudit(SplitSpec.of(**SMALL, loss={"weights": [1, 4, 2]}), MANY)
    rows = {(r.attack, r.metric, r.column): r.mean for r in measured(audit, Store(None))}
    assert rows["exact", "accuracy", None] == 1.0
    assert rows["posterior", "accuracy", None] == 1.0


@pytest.mark.slow
def test_records_of_a_class_without_weight_send_nothing_and_end_no_attack() -> None:
    audit = SplitAudit(SplitSpec.of(**SMALL, loss={"weights": [0, 1]}), DATA)
    rows = {(r.attack, r.metric, r.column): r.mean for r in measured(audit, Store(None))}
    accuracy, prior = rows["posterior", "accuracy", None], rows["prior", "accuracy", None]
    assert accuracy is not None
    assert prior is not None
    assert prior < accuracy < 1.0
    # That nothing came back tells the label.
    assert rows["posterior", "accuracy", DATA.schema.target.name] == 1.0


def test_losses_that_do_not_fit_are_refused_before_anything_runs() -> None:
    noisy = (Part(name="cut_noise", options={"noise_multiplier": 1.0}),)
    for data, values, words in (
        (DATA, {"loss": {"weights": [1, 2, 3]}}, "3 weights"),
        (DATA, {"loss": {"weights": [0, 0]}}, "leave no gradient"),
        (MANY, {"loss": {"weights": [1, 2, 3]}, "defenses": noisy}, "a factor of its own"),
        (DATA, {"loss": "sum", "defenses": (Part(name="marvell"),)}, "take the mean of their losses"),
    ):
        with pytest.raises(BadInputError, match=words):
            SplitAudit(SplitSpec.of(**{**SMALL, **values}), data)
    with pytest.raises(BadInputError, match="the target is a number"):
        form_of(BatchLoss(smoothing=0.1), "regression", 1)
    assert form_of(BatchLoss(loss="huber", delta=0.5), "regression", 1).loss == "huber"


@pytest.mark.slow
@pytest.mark.parametrize("topology", [pytest.param("vanilla", marks=pytest.mark.slow), "u_shaped"])
def test_whole_clients_train_on_the_loss_that_is_given(topology: str) -> None:
    small = {name: SMALL[name] for name in ("dataset", "hidden", "batch_size", "epochs", "repetitions")}
    spec = SplitSpec.of(**small, topology=topology, loss={"reduction": "sum", "weights": [1, 5]}, leaked=8)
    audit = WholeClientAudit(spec, DATA)
    model = audit.network(0)
    assert isinstance(model, WholeClientModel)
    outputs, labels = torch.tensor([[0.3], [-2.0], [1.0]]), torch.tensor([0.0, 1.0, 1.0])
    each = torch.nn.functional.binary_cross_entropy_with_logits(outputs[:, 0], labels, reduction="none")
    loss, usual = model.loss_of(outputs, labels)
    torch.testing.assert_close(loss, (each * torch.tensor([1.0, 5.0, 5.0])).sum())
    torch.testing.assert_close(usual, each.mean())
    rows = {(r.attack, r.metric, r.column): r.mean for r in measured(audit, Store(None))}
    inverted = rows["layer_inversion", "accuracy", None]
    assert inverted is not None
    assert inverted > 0.5


def test_what_is_undone_of_a_batch() -> None:
    behind = torch.tensor([4.0, 4.0])
    assert MessageForm(scale=2.0).own_factor(behind).tolist() == [2.0, 2.0]
    assert MessageForm(scale=2.0, reduction="sum").own_factor(behind).tolist() == [0.5, 0.5]
