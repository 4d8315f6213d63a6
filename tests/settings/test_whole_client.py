"""Split learning with a client that holds all columns: vanilla, and U-shaped."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from seepage.assessment import Measurement
from seepage.datasets.dataset import Dataset
from seepage.datasets.planted import telling
from seepage.defenses.feature_noise import FeatureNoise
from seepage.errors import BadInputError
from seepage.models.vertical import encoder_of
from seepage.protocols.whole_client import WholeClientLearning, WholeClientModel
from seepage.settings.catalogue import deployment_of, setting
from seepage.settings.setting import Given
from seepage.settings.split.spec import SplitSpec
from seepage.settings.split.whole_client import WholeClientAudit
from seepage.settings.threat_model import grid_of_attacks
from seepage.settings.units import Tables
from tests.audits import measured
from tests.rows import number
from tests.tables import pay_table

QUICK = {"name": "layer_inversion", "rows": 512, "epochs": 1, "steps": 200}
DATA = telling(rows=400)


def spec_of(**values: Any) -> SplitSpec:
    few = {"epochs": 4, "batch_size": 32, "repetitions": 2, "leaked": 30, "test_share": 0.3, "hidden": [], "cut": 11}
    return SplitSpec.of(**{"dataset": "made", "topology": "vanilla", "known_labels": 20, **few, **values})


def figures(spec: SplitSpec, data: Dataset = DATA) -> dict[tuple, Any]:
    return {(row.defense, row.attack, row.metric, row.column): row for row in measured(WholeClientAudit(spec, data))}


@pytest.mark.long
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


@pytest.mark.long
def test_what_is_lost_is_named_and_learnt_all_the_same() -> None:
    audit = WholeClientAudit(spec_of(hidden=[16], cut=6, attacks=[QUICK]), DATA)
    assert "because of layer 3 (Linear, 16 to 6 numbers)" in audit.about.limits[0]
    by = {(row.attack, row.metric, row.column): row for row in measured(audit)}
    assert by["layer_inversion", "replayed", None].mean == 0.0
    assert number(by["layer_inversion", "accuracy", None].lift) > 0.1


def test_returned_gradients_are_those_of_each_records_own_loss() -> None:
    rows = DATA.train.rows(range(40))
    model = WholeClientModel.of(rows.schema, 0, (8,), 4, (), "u_shaped")
    trained = WholeClientLearning(epochs=1, batch_size=40).train(model, rows, seed=0)
    assert trained.returned is not None
    assert model.rest is not None
    with torch.no_grad():
        middle = model.middle(model.client(encoder_of(rows.schema).encode(rows.cells)[None])[0])
    wanted = middle.clone().requires_grad_(True)
    (len(rows) * model.loss_of(model.rest(wanted), rows.labels)[1]).backward()
    assert wanted.grad is not None
    assert torch.allclose(trained.returned.gradient[0], wanted.grad, atol=1e-6)
    assert torch.allclose(trained.returned.features[0], middle, atol=1e-6)


@pytest.mark.slow
def test_targets_may_be_numbers() -> None:
    spec = spec_of(topology="u_shaped", attacks=["ridge_sa", "label_heads"], epochs=15, learning_rate=0.03)
    by = figures(spec, pay_table())
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
        ({"attacks": ["exact"]}, "'exact' takes activations and the gradients that come back"),
        ({"attacks": ["label_heads"]}, "'label_heads' takes what a party sent"),
        ({"hop": [8]}, "hop is not of the topology 'vanilla', in which no party is between client and server"),
        ({"attacker": "hop"}, "attacker is not of the topology 'vanilla'"),
        ({"topology": "multi_hop", "hop": []}, "hop"),
        (
            {"topology": "multi_hop", "attacks": ["posterior"]},
            "'posterior' takes activations and the",
        ),
        ({"topology": "multi_hop", "attacks": ["label_heads"]}, "'label_heads' takes what a party sent"),
        ({"baselines": ["knn"]}, "the baseline 'knn' is for activations and the gradients"),
        (
            {"defenses": [{"name": "cut_noise", "noise_multiplier": 1.0}]},
            "has no place in this audit, which takes feature_noise, and",
        ),
        ({"leaked": 120}, "120 records are to leak, but 120 are attacked"),
    ],
)
def test_what_a_topology_has_no_place_for_is_refused(values: dict[str, Any], said: str) -> None:
    with pytest.raises(BadInputError) as refused:
        WholeClientAudit(spec_of(**values), DATA)
    assert said in str(refused.value)


def test_a_spec_chooses_the_audit_and_the_grid_of_attacks() -> None:
    spec = spec_of()
    audit = setting("split").prepare(spec, Given(dataset=DATA), Tables())
    assert isinstance(audit, WholeClientAudit)
    applies = {one.attack for one in grid_of_attacks(deployment_of(spec)) if one.applies}
    assert {"layer_inversion", "ridge_sa", "ginver"} <= applies
    assert "label_heads" not in applies
    columns = SplitSpec.of(dataset="made", private_columns=["cause"])
    grid = {one.attack: one.reason for one in grid_of_attacks(deployment_of(columns))}
    assert "takes activations" in str(grid["layer_inversion"])


@pytest.mark.long
def test_the_server_behind_a_hop_undoes_both_parts_and_the_hop_reads_labels_too() -> None:
    # A ReLU of the hop leaves about half of 40 activations, from which 11 inputs follow.
    hops = {"topology": "multi_hop", "cut": 40, "hop": [40], "repetitions": 1}
    by = figures(spec_of(**hops, attacks=[QUICK, "ridge_sa"]))
    assert by["none", "layer_inversion", "accuracy", None].mean == 1.0
    assert by["none", "layer_inversion", "replayed", None].mean == 1.0
    assert number(by["none", "ridge_sa", "accuracy", None].mean) > 0.9
    assert ("none", "label_heads", "accuracy", DATA.schema.target.name) not in by
    by = figures(spec_of(**hops, attacker="hop", attacks=[QUICK, "label_heads"]))
    assert by["none", "layer_inversion", "accuracy", None].mean == 1.0
    assert number(by["none", "label_heads", "accuracy", DATA.schema.target.name].mean) > 0.9


def test_a_hop_that_narrows_is_named() -> None:
    audit = WholeClientAudit(spec_of(topology="multi_hop", cut=40, hop=[4], attacks=[QUICK]), DATA)
    assert "layers and those of the hop cannot be inverted exactly, because of layer 3" in audit.about.limits[0]
    assert audit.about.attacker == "The server"
    assert WholeClientAudit(spec_of(topology="multi_hop", attacker="hop"), DATA).about.attacker == "The hop"


def test_noise_behind_a_hop_is_known_by_what_the_hop_makes_of_it() -> None:
    rows = DATA.train.rows(range(60))
    model = WholeClientModel.of(rows.schema, 0, (), 12, (), "multi_hop", hop=(12,))
    learning = WholeClientLearning(epochs=1, noise=FeatureNoise(2.0))
    trained = learning.train(model, rows, seed=0)
    clear = replace(learning, noise=None).observe(trained, rows, 0, behind_hop=True).received[0]
    seen = [learning.observe(trained, rows, k, behind_hop=True).received[0] - clear for k in range(20)]
    wanted = (torch.stack(seen).std((0, 1)) / clear.std(0)).square().mean().sqrt()
    assert learning.noise_behind_hop(trained, 3) == pytest.approx(float(wanted), rel=0.15)
    assert replace(learning, noise=None).noise_behind_hop(trained, 3) == 0


PARTS = """
from torch import nn


def flat(*layers):
    return nn.Sequential(*layers)


class Three(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.client = flat(nn.Linear(inputs, inputs, bias=False), nn.BatchNorm1d(inputs), nn.ELU())
        self.server = flat(nn.Dropout(0.5), nn.LayerNorm(inputs), nn.Linear(inputs, outputs))


class Last(Three):
    def __init__(self, inputs, outputs):
        super().__init__(inputs, outputs)
        self.server, self.last = flat(nn.Linear(inputs, 6), nn.ReLU()), nn.Linear(6, outputs)


class Hopping(Three):
    def __init__(self, inputs, outputs):
        super().__init__(inputs, outputs)
        self.hop = flat(nn.Linear(inputs, inputs + 1), nn.BatchNorm1d(inputs + 1), nn.Tanh())
        self.server = nn.Linear(inputs + 1, outputs)


class Residual(nn.Module):
    def __init__(self, inputs):
        super().__init__()
        self.inner = nn.Linear(inputs, inputs)

    def forward(self, rows):
        return rows + self.inner(rows).relu()


class Around(Three):
    def __init__(self, inputs, outputs):
        super().__init__(inputs, outputs)
        self.client = flat(Residual(inputs), nn.Linear(inputs, 5))
        self.server = nn.Linear(5, outputs)


class Wrong(Three):
    def __init__(self, inputs, outputs):
        super().__init__(inputs, outputs)
        self.server = nn.Linear(inputs, outputs + 3)


class Cutting(Three):
    def __init__(self, inputs, outputs):
        super().__init__(inputs, outputs)
        self.server = Detached(inputs, outputs)


class Detached(nn.Linear):
    def forward(self, rows):
        return super().forward(rows.detach())
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "ours.py"
    path.write_text(PARTS)
    return path


def own(file: Path, factory: str, **values: Any) -> SplitSpec:
    few = {"epochs": 3, "batch_size": 32, "repetitions": 1, "leaked": 30, "test_share": 0.3, "attacks": [QUICK]}
    return SplitSpec.of(**{"dataset": "made", "model": f"{file}:{factory}", **few, **values})


@pytest.mark.parametrize(
    ("topology", "factory"), [("vanilla", "Three"), ("u_shaped", "Last"), ("multi_hop", "Hopping")]
)
def test_networks_of_ones_own_are_undone_layer_by_layer(file: Path, topology: str, factory: str) -> None:
    audit = WholeClientAudit(own(file, factory, topology=topology), DATA)
    assert "can be inverted layer by layer" in audit.about.limits[0]
    by = {(row.attack, row.metric, row.column): row for row in measured(audit)}
    assert by["layer_inversion", "accuracy", None].mean == 1.0
    assert audit.about.model == f"{file}:{factory}"
    before = audit.identity(audit.configurations[0], audit.parts[0])
    file.write_text(PARTS + "\n# Changed.\n")
    again = WholeClientAudit(own(file, factory, topology=topology), DATA)
    assert again.identity(again.configurations[0], again.parts[0]) != before
    control = audit.control()
    # What shows that an attack works is a network that loses nothing, whatever the own one does.
    assert control is not None
    assert control.about.model == "mlp"


def test_a_network_with_a_way_around_is_learnt(file: Path) -> None:
    audit = WholeClientAudit(own(file, "Around", topology="vanilla"), DATA)
    assert "it takes something else than the layer before it returns" in audit.about.limits[0]
    by = {(row.attack, row.metric, row.column): row for row in measured(audit)}
    assert by["layer_inversion", "replayed", None].mean == 0.0
    assert number(by["layer_inversion", "accuracy", None].mean) > 0.4


@pytest.mark.parametrize(
    ("factory", "values", "said"),
    [
        ("Three", {"topology": "u_shaped"}, "is without 'last'; return an nn.Module with 'client', 'se"),
        ("Three", {"topology": "multi_hop"}, "is without 'hop'"),
        ("Wrong", {"topology": "vanilla"}, "returns 4 numbers a record where 1 are needed"),
        ("Cutting", {"topology": "vanilla"}, "no gradient crosses the cut"),
        ("Residual", {"topology": "vanilla"}, "is without 'client', 'server'"),
        ("Three", {"topology": "vanilla", "hidden": [4]}, "hidden is of the fully connected network, but the model"),
    ],
)
def test_networks_that_do_not_fit_a_topology_are_refused(
    file: Path, factory: str, values: dict[str, Any], said: str
) -> None:
    with pytest.raises(BadInputError) as refused:
        WholeClientAudit(own(file, factory, **values), DATA)
    assert said in str(refused.value)
