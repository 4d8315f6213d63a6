"""Split learning in which both sides hold columns and the target is a number."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from seepage import TranscriptWriter, write_weights
from seepage.attacks.split.exact import Exact
from seepage.attacks.split.posterior import Posterior
from seepage.defenses.cut_noise import CutNoise
from seepage.errors import BadInputError
from seepage.models.deepfm import deepfm
from seepage.models.message import MessageForm
from seepage.models.split import for_loss
from seepage.protocols.split import SplitLearning
from seepage.settings.split.audit import SplitAudit
from seepage.settings.split.spec import SplitSpec
from seepage.tabular.schema import Continuous, Discrete, Schema
from seepage.tabular.statistics import Statistics
from seepage.tabular.table import Table
from seepage.wire.split import Auxiliary, CutKnowledge
from tests.audits import measured
from tests.captures.attacked import attacked, reasons, value
from tests.rows import number
from tests.tables import pay_table

DATA = pay_table(300)
ROWS = DATA.train.rows(range(60))
PRIVATE = ["cause", "noise_0"]
TARGET = ROWS.schema.target


def spec_of(**values: Any) -> SplitSpec:
    few = {"attacked_records": 40, "epochs": 3, "repetitions": 1, "auxiliary": 60, "batch_size": 32, "hidden": [8]}
    return SplitSpec.of(**{"dataset": "made", "private_columns": PRIVATE, "known_labels": 30, **few, **values})


def seen_of(noise: CutNoise | None = None) -> tuple[Any, CutKnowledge]:
    protocol = SplitLearning(epochs=4, batch_size=30, noise=noise)
    trained = protocol.train(deepfm(DATA.schema, PRIVATE, 0, hidden=(8,)), DATA.train, 1)
    return protocol.observe(trained, ROWS, 2), CutKnowledge(DATA.schema, DATA.statistics, protocol.known())


def test_cells_and_the_number_follow_from_bare_gradients() -> None:
    seen, known = seen_of()
    assert isinstance(TARGET, Continuous)
    exact = Exact()(seen.view, known)
    assert exact.certified is not None
    assert exact.likely is not None
    right = exact.cells == seen.cells
    # What is certified is right, and what is proven has the right number too.
    assert bool(right[exact.certified].all())
    assert float(exact.certified.double().mean()) > 0.5
    found = (exact.labels - seen.labels).abs()
    assert float(found[exact.likely].max()) < 0.02
    posterior = Posterior()(seen.view, known)
    assert float((posterior.cells == seen.cells).double().mean()) >= float(right.double().mean())
    assert float((posterior.labels - seen.labels).abs().max()) < TARGET.tolerance


@pytest.mark.parametrize("digits", [0, 1, None])
def test_values_that_the_target_can_have_and_other_exchanges_tell_cells_that_no_direction_tells(
    digits: int | None,
) -> None:
    # The column only shifts the prediction, so that one length fits either value, each with a label of its own.
    draw = np.random.default_rng(0)
    labels = draw.uniform(0, 100, 300)
    frame = pd.DataFrame({"side": draw.choice(["left", "right"], 300), "a": draw.normal(0, 1, 300)})
    frame["pay"] = labels if digits is None else labels.round(digits)
    side, a = Discrete(name="side", categories=("left", "right")), Continuous(name="a", low=-5, high=5, tolerance=0.3)
    pay = Continuous(name="pay", low=0, high=100, tolerance=5.0, integer=digits == 0)
    table = Table(Schema(columns=(side, a), target=pay), frame)
    stages = [
        SplitLearning(epochs=epochs, batch_size=30).train(deepfm(table.schema, ["side"], 0, hidden=(8,)), table, 1)
        for epochs in (3, 2)
    ]
    protocol = SplitLearning(epochs=3, batch_size=30)
    seen = protocol.observe_all([(stage, None) for stage in stages], table.rows(range(60)), 2)
    held = Auxiliary(table.cells[60:160], table.labels[60:160])
    known = CutKnowledge(table.schema, Statistics.of(table), protocol.known(), auxiliary=held)
    for attack in (Posterior(), Exact()):
        assert bool((attack(seen.view, known).cells == seen.cells).all())
    alone = Posterior()(seen.view.exchanges[:1], known).cells == seen.cells
    assert bool(alone.all()) == (digits is not None)
    # A schema that wrongly promises whole numbers takes nothing away.
    if digits is None:
        wrong = Schema(columns=(side, a), target=pay.model_copy(update={"integer": True}))
        assert bool((Posterior()(seen.view, replace(known, schema=wrong)).cells == seen.cells).all())


@pytest.mark.slow
@pytest.mark.parametrize("declared", [True, False])
def test_hubers_loss_and_a_loss_scale_are_read(declared: bool) -> None:
    seen, known = seen_of()
    view, delta = seen.view, 0.2
    cut = view.cut.clone().requires_grad_(True)
    outputs = view.model.client(cut, view.model.scaled(ROWS.cells, view.model.private))[:, 0]
    labels = for_loss(TARGET, ROWS.labels).to(outputs)
    [sent] = torch.autograd.grad(torch.nn.functional.huber_loss(outputs, labels, delta=delta), cut, retain_graph=True)
    huber = replace(view, gradient=sent, behind=torch.full((60,), 60.0))
    form = MessageForm("huber", delta=delta) if declared else None
    guess = Exact()(huber, replace(known, form=form))
    assert torch.equal(guess.cells, Exact()(view, known).cells)
    near = (outputs - labels).abs().detach() < delta
    assert 5 < int(near.sum()) < 55
    assert guess.likely is not None
    assert float((guess.labels - seen.labels).abs()[near & guess.likely].max()) < 0.02
    scaled = replace(view, gradient=view.gradient * 512)
    guess = Exact()(scaled, replace(known, form=MessageForm(scale=512) if declared else None))
    assert float((guess.labels - seen.labels).abs()[guess.likely].max()) < 0.02
    assert bool((guess.cells == seen.cells)[guess.certified].all())


def test_returned_gradients_are_those_of_the_squared_error() -> None:
    seen, _ = seen_of()
    view = seen.view
    cut = view.cut.clone().requires_grad_(True)
    outputs = view.model.client(cut, view.model.scaled(ROWS.cells, view.model.private))
    loss = (outputs[:, 0] - for_loss(TARGET, ROWS.labels)).square().sum()
    [wanted] = torch.autograd.grad(loss, cut)
    assert torch.allclose(wanted.double(), view.own_gradient.double(), atol=1e-5)


def test_noise_leaves_less_and_no_certificate() -> None:
    seen, known = seen_of(CutNoise(3.0))
    exact = Exact()(seen.view, known)
    assert exact.proof is not None
    assert not exact.proof.cells.any()
    assert exact.proof.doubt is not None
    assert "cut_noise" in exact.proof.doubt
    assert exact.likely is None
    bare, without = seen_of()
    clear = (Posterior()(bare.view, without).labels - bare.labels).abs().mean()
    blurred = (Posterior()(seen.view, known).labels - seen.labels).abs().mean()
    assert float(blurred) > float(clear) + 0.05


@pytest.mark.long
def test_an_audit_reads_the_number_and_says_how_well_it_is_learnt() -> None:
    by = {(row.attack, row.metric, row.column): row for row in measured(SplitAudit(spec_of(), DATA))}
    assert by["posterior", "accuracy", TARGET.name].mean == 1.0
    assert number(by["posterior", "r2", TARGET.name].mean) > 0.99
    assert number(by["posterior", "accuracy", TARGET.name].lift) > 0.2
    assert number(by["posterior", "accuracy", None].lift) > 0.1
    assert number(by["training", "task_rmse", None].baseline) > 0
    assert ("training", "auc", None) not in by


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"attacks": ["fsha"]}, "'fsha' tells classes apart, but the target 'pay' is a number"),
        ({"attacks": ["pcat"]}, "'pcat' tells classes apart"),
        ({"attacks": ["unsplit"]}, "'unsplit' tells classes apart"),
        ({"attacks": ["label_norm"]}, "'label_norm' tells classes apart"),
        ({"defenses": [{"name": "label_flip", "probability": 0.1}]}, "flips classes, but the target 'pay' is a number"),
        ({"defenses": ["marvell"]}, "hides which of two labels"),
    ],
)
def test_what_is_made_for_classes_is_refused(values: dict[str, Any], said: str) -> None:
    with pytest.raises(BadInputError) as refused:
        SplitAudit(spec_of(**values), DATA)
    assert said in str(refused.value)


@pytest.mark.parametrize("options", [{"search": "meet"}, {"votes": 3}, {"undo_mean": False}])
def test_searches_for_classes_are_refused(options: dict[str, Any]) -> None:
    seen, known = seen_of()
    with pytest.raises(BadInputError, match="are for classes, but the target 'pay' is a number"):
        Exact(**options)(seen.view, known)
    with pytest.raises(BadInputError, match="fitted for classes"):
        Posterior(weights="about")(seen.view, known)


def test_transcripts_may_have_a_number_as_target(tmp_path: Path) -> None:
    seen, _ = seen_of()
    own = ROWS.frame[[n for n in ROWS.schema.names if n not in PRIVATE]].assign(id=range(60))
    about = {"model": "deepfm", "options": {"hidden": [8]}}
    writer = TranscriptWriter(tmp_path / "run", ROWS.schema, PRIVATE, own=own, **about)
    writer.exchange(range(60), seen.view.cut, seen.view.own_gradient / 60)
    write_weights(seen.view.model.client, tmp_path / "run", 0)
    ROWS.frame.assign(id=range(60)).to_csv(tmp_path / "truth.csv", index=False)
    found = attacked(tmp_path / "run", attacks=["posterior", "label_norm"], truth=tmp_path / "truth.csv")
    assert value(found, "posterior", "accuracy", TARGET.name) == 1.0
    assert reasons(found)["label_norm"] == "it tells classes apart, and the target 'pay' is a number"
