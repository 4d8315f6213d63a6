"""Split learning with a client that holds all columns: vanilla, and U-shaped."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest
import torch

from seepage.assessment import Measurement
from seepage.datasets.dataset import Dataset
from seepage.datasets.planted import telling
from seepage.errors import BadInputError
from seepage.models.vertical import encoder_of
from seepage.protocols.whole_client import WholeClientLearning, WholeClientModel
from seepage.settings.catalogue import setting
from seepage.settings.setting import Given
from seepage.settings.split_spec import SplitSpec
from seepage.settings.subject import Subjects
from seepage.settings.threat_model import deployment_of, grid_of_attacks
from seepage.settings.whole_client import WholeClientAudit
from seepage.tabular.schema import Continuous, Schema
from seepage.tabular.table import Table
from tests.audits import measured
from tests.rows import number

QUICK = {"name": "layer_inversion", "rows": 512, "epochs": 1, "steps": 200}
DATA = telling(rows=400)


def spec_of(**values: Any) -> SplitSpec:
    few = {"epochs": 4, "batch_size": 32, "repetitions": 2, "leaked": 30, "test_share": 0.3, "hidden": [], "cut": 11}
    return SplitSpec.of(**{"dataset": "made", "topology": "vanilla", "known_labels": 20, **few, **values})


def figures(spec: SplitSpec, data: Dataset = DATA) -> dict[tuple, Any]:
    return {(row.defense, row.attack, row.metric, row.column): row for row in measured(WholeClientAudit(spec, data))}


def test_linear_first_layers_give_every_column_away() -> None:
    spec = spec_of(defenses=["none", {"name": "feature_noise", "scale": 3.0, "label": "noisy"}], attacks=[QUICK])
    by = figures(spec)
    assert by["none", "layer_inversion", "accuracy", None].mean == 1.0
    assert by["none", "layer_inversion", "replayed", None].mean == 1.0
    assert number(by["noisy", "layer_inversion", "accuracy", None].mean) < 0.8
    assert number(by["none", "training", "auc", None].mean) > 0.6
    # The server has the labels, so that they are no secret.
    assert ("none", "layer_inversion", "accuracy", DATA.schema.target.name) not in by


def test_the_server_of_a_u_reads_labels_off_the_gradients_of_the_second_cut() -> None:
    spec = spec_of(topology="u_shaped", attacks=[{**QUICK}, "ridge_sa", "label_direction"])
    by = figures(spec)
    target = DATA.schema.target.name
    assert number(by["none", "label_direction", "accuracy", target].mean) > 0.9
    assert number(by["none", "label_direction", "accuracy", target].lift) > 0.2
    assert by["none", "layer_inversion", "accuracy", None].mean == 1.0
    assert number(by["none", "ridge_sa", "accuracy", None].mean) > 0.95


def test_what_is_lost_is_named_and_learnt_all_the_same() -> None:
    audit = WholeClientAudit(spec_of(hidden=[16], cut=6, attacks=[QUICK]), DATA)
    assert "because of layer 3 (Linear, 16 to 6 numbers)" in audit.about.limits[0]
    by = {(row.attack, row.metric, row.column): row for row in measured(audit)}
    assert by["layer_inversion", "replayed", None].mean == 0.0
    assert number(by["layer_inversion", "accuracy", None].lift) > 0.1


def test_returned_gradients_are_those_of_each_records_own_loss() -> None:
    rows = DATA.train.rows(range(40))
    model = WholeClientModel.of(rows.schema, 0, (8,), 4, (), u_shaped=True)
    trained = WholeClientLearning(epochs=1, batch_size=40).train(model, rows, seed=0)
    assert trained.returned is not None
    assert model.last is not None
    with torch.no_grad():
        middle = model.server(model.client(encoder_of(rows.schema).encode(rows.cells)[None])[0])
    wanted = middle.clone().requires_grad_(True)
    model.losses(model.last(wanted), rows.labels).sum().backward()
    assert wanted.grad is not None
    assert torch.allclose(trained.returned.gradient[0], wanted.grad, atol=1e-6)
    assert torch.allclose(trained.returned.features[0], middle, atol=1e-6)


def numbers() -> Dataset:
    """Return a table whose target is a number that follows its columns."""
    frame = DATA.train.frame
    schema = DATA.schema
    pay = Continuous(name="pay", low=0, high=10, tolerance=1.0)
    made = frame.drop(columns=schema.target.name).assign(
        pay=3 * frame["cause"].astype(float) + 2 * frame["noise_0"].astype(float)
    )
    rows = Table(Schema(columns=schema.columns, target=pay), pd.DataFrame(made))
    return Dataset("made", rows, None, (), "made up", "none")


def test_targets_may_be_numbers() -> None:
    spec = spec_of(topology="u_shaped", attacks=["ridge_sa", "label_heads"], epochs=15, learning_rate=0.03)
    by = figures(spec, numbers())
    assert number(by["none", "training", "task_accuracy", None].mean) > 0.7
    assert number(by["none", "label_heads", "accuracy", "pay"].lift) > 0.2


def test_controls_pass() -> None:
    audit = WholeClientAudit(spec_of(attacks=["layer_inversion"]), telling(rows=1200))
    positive, negative = audit.control(), audit.negative()
    assert positive is not None
    assert negative is not None
    for control, low, high in ((positive, 0.99, 1.0), (negative, 0.4, 0.6)):
        seen = control.expose(control.configurations[0], range(1))
        [part] = [part for part in control.parts if part.label == "layer_inversion"]
        kept = [one for one in seen.measure(part).measured if isinstance(one, Measurement)]
        found = {(m.metric, m.column): float(m.values[0]) for m in kept}
        assert low <= found["accuracy", None] <= high


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"private_columns": ["cause"]}, "private_columns is not of the topology 'vanilla'"),
        ({"protocol": "federated_split"}, "protocol is not of the topology"),
        ({"topology": "columns", "cut": 5}, "cut is not of the topology 'columns'"),
        ({"topology": "ring"}, "topology"),
        ({"attacks": ["exact"]}, "'exact' takes CutView"),
        ({"attacks": ["label_heads"]}, "'label_heads' takes ReturnedView"),
        ({"baselines": ["knn"]}, "the baseline 'knn' is not made for the topology 'vanilla'"),
        ({"defenses": [{"name": "cut_noise", "noise_multiplier": 1.0}]}, "an object of FeatureNoise"),
        ({"leaked": 120}, "120 records are to leak, but 120 are attacked"),
    ],
)
def test_what_a_topology_has_no_place_for_is_refused(values: dict[str, Any], said: str) -> None:
    with pytest.raises(BadInputError) as refused:
        WholeClientAudit(spec_of(**values), DATA)
    assert said in str(refused.value)


def test_a_spec_chooses_the_audit_and_the_grid_of_attacks() -> None:
    spec = spec_of()
    audit = setting("split").prepare(spec, Given(dataset=DATA), Subjects())
    assert isinstance(audit, WholeClientAudit)
    applies = {one.attack for one in grid_of_attacks(deployment_of(spec)) if one.applies}
    assert {"layer_inversion", "ridge_sa", "ginver"} <= applies
    assert "label_heads" not in applies
    columns = SplitSpec.of(dataset="made", private_columns=["cause"])
    grid = {one.attack: one.reason for one in grid_of_attacks(deployment_of(columns))}
    assert "ActivationView" in str(grid["layer_inversion"])
