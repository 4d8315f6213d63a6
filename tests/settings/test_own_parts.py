"""Audits of split and vertical learning with networks of the user's own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cloudpickle import dumps  # noqa: TID251 - as the runner sends an audit to its workers

from seepage.config.document import read_text_document
from seepage.config.tree import DocumentError
from seepage.datasets.planted import telling
from seepage.errors import BadInputError
from seepage.run.workers import make_sendable
from seepage.settings.split.audit import SplitAudit
from seepage.settings.split.spec import SplitSpec
from seepage.settings.vertical.audit import VerticalAudit
from seepage.settings.vertical.spec import VerticalSpec
from tests.attacks.vertical.parts import table
from tests.audits import measured
from tests.rows import number

NETWORKS = """
import torch
from torch import nn


class Parts(nn.Module):
    def __init__(self, server_columns, client_columns, outputs):
        super().__init__()
        self.server = nn.Sequential(nn.Linear(len(server_columns), 6), nn.Tanh())
        self.client = Client(client_columns, outputs)


class Client(nn.Module):
    def __init__(self, widths, outputs):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(width or 1, 3) for width in widths)
        self.first, self.last = nn.Linear(6 + 4 * len(widths), 16), nn.Linear(16, outputs)

    def forward(self, cut, cells):
        found = [table(cells[:, i].long() % table.num_embeddings) for i, table in enumerate(self.tables)]
        return self.last(nn.functional.silu(self.first(torch.cat([cut, cells, *found], 1))))


class Dropping(Parts):
    def __init__(self, server_columns, client_columns, outputs):
        super().__init__(server_columns, client_columns, outputs)
        self.client.last = nn.Sequential(nn.BatchNorm1d(16), nn.Dropout(0.3), self.client.last)


class Noisy(Client):
    def forward(self, cut, cells):
        return super().forward(cut, cells + torch.rand_like(cut[:, :1]))


class Random(Parts):
    def __init__(self, server_columns, client_columns, outputs):
        super().__init__(server_columns, client_columns, outputs)
        self.client = Noisy(client_columns, outputs)


class Deaf(Parts):
    def __init__(self, server_columns, client_columns, outputs):
        super().__init__(server_columns, client_columns, outputs)
        self.client = Ignoring(outputs)


class Ignoring(nn.Module):
    def __init__(self, outputs):
        super().__init__()
        self.last = nn.Linear(6, outputs)

    def forward(self, cut, cells):
        return self.last(cut)


class Half(nn.Module):
    def __init__(self):
        super().__init__()
        self.server = nn.Linear(1, 1)


class Tower(nn.Sequential):
    def __init__(self, inputs):
        super().__init__(nn.Linear(inputs, 4 * inputs), nn.ReLU(), nn.Linear(4 * inputs, 4 * inputs))


class Narrow(nn.Sequential):
    def __init__(self, inputs, features):
        super().__init__(nn.Linear(inputs, 12), nn.GELU(), nn.Linear(12, features))


class Top(nn.Sequential):
    def __init__(self, inputs, outputs):
        super().__init__(nn.LayerNorm(inputs), nn.Linear(inputs, 8), nn.Dropout(0.5), nn.SiLU(), nn.Linear(8, outputs))


class Flat(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))

    def forward(self, rows):
        return rows.sum(1)
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "ours.py"
    path.write_text(NETWORKS)
    return path


def split_spec(model: str, **values: Any) -> SplitSpec:
    few = {"attacked_records": 40, "epochs": 2, "repetitions": 1, "auxiliary": 50, "batch_size": 32}
    return SplitSpec.of(**{"dataset": "made", "model": model, "private_columns": ["cause"], **few, **values})


@pytest.mark.long
def test_the_enumeration_reads_a_client_part_of_ones_own(file: Path) -> None:
    audit = SplitAudit(split_spec(f"{file}:Parts"), telling(rows=300))
    by = {(row.attack, row.metric, row.column): row.mean for row in measured(audit)}
    assert by["exact", "accuracy", None] == 1.0
    assert by["exact", "certified_cells", None] == 1.0
    assert audit.about.model == f"{file}:Parts"
    assert not audit.about.limits
    other = SplitAudit(split_spec(f"{file}:Parts"), telling(rows=300))
    before = other.identity(other.configurations[0], other.parts[0])
    file.write_text(NETWORKS.replace("16)", "17)").replace("(16", "(17"))
    changed = SplitAudit(split_spec(f"{file}:Parts"), telling(rows=300))
    assert changed.identity(changed.configurations[0], changed.parts[0]) != before


@pytest.mark.long
def test_layers_that_drop_values_run_as_they_predict_and_are_named(file: Path) -> None:
    audit = SplitAudit(split_spec(f"{file}:Dropping"), telling(rows=300))
    by = {(row.attack, row.metric, row.column): row.mean for row in measured(audit)}
    assert by["exact", "accuracy", None] == 1.0
    assert by["exact", "likely", None] == 1.0
    [said] = audit.about.limits
    assert said.startswith("Dropout at 'client.last.1', BatchNorm1d at 'client.last.0' run as they predict")


def test_numbers_of_another_client_part_are_said_not_to_be_solved(file: Path) -> None:
    data = table(rows=300)
    spec = split_spec(f"{file}:Parts", private_columns=["n", "b"], attacks=["exact"])
    [said] = SplitAudit(spec, data).about.limits
    assert said.startswith("The client part (Client) cannot be solved for the private numbers n")
    assert not SplitAudit(split_spec("deepfm", private_columns=["n", "b"], attacks=["exact"]), data).about.limits


@pytest.mark.slow
def test_workers_need_not_find_the_file(file: Path, tmp_path: Path) -> None:
    audit = SplitAudit(split_spec(f"{file}:Parts", attacks=["exact"], epochs=1), telling(rows=300))
    make_sendable([audit])
    (tmp_path / "audit").write_bytes(dumps(audit))
    file.unlink()
    lines = (
        "import pickle, sys",
        "audit = pickle.load(open(sys.argv[1], 'rb'))",
        "[part] = [part for part in audit.parts if part.label == 'exact']",
        "found = audit.expose(audit.configurations[0], range(1)).measure(part)",
        "print([float(m.values[0]) for m in found.measured if (m.metric, m.column) == ('accuracy', None)])",
    )
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(lines), str(tmp_path / "audit")],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[1.0]"


@pytest.mark.parametrize(
    ("model", "values", "said"),
    [
        ("Half", {}, "without the modules 'server' and 'client' in it"),
        ("Deaf", {}, "does not reach the client part"),
        ("Random", {}, "returns other outputs for the same records each time"),
        ("Tower", {}, "needs 'inputs', which seepage does not pass"),
        ("Part", {}, "did you mean 'Parts'"),
        ("Parts", {"hidden": [5]}, "hidden is of deepfm"),
    ],
)
def test_split_networks_that_do_not_fit_are_refused(file: Path, model: str, values: dict[str, Any], said: str) -> None:
    with pytest.raises(BadInputError) as refused:
        SplitAudit(split_spec(f"{file}:{model}", **values), telling(rows=300))
    assert said in str(refused.value)


def vertical_spec(**values: Any) -> VerticalSpec:
    few = {"attacked_records": 40, "epochs": 2, "repetitions": 2, "leaked": 20, "batch_size": 64}
    given = {"dataset": "made", "passive": ["a", "b", "n"], "attacks": ["layer_inversion"], **few}
    return VerticalSpec.of(**{**given, "baselines": ["constant"], **values})


@pytest.mark.long
def test_towers_of_ones_own_are_inverted_where_they_lose_nothing(file: Path) -> None:
    # Three parties, of which the second passive one is attacked.
    passive = [["b"], ["a", "n"]]
    spec = vertical_spec(bottom_model=f"{file}:Tower", top_model=f"{file}:Top", passive=passive, victim=2)
    audit = VerticalAudit(spec, table(rows=300))
    by = {(row.attack, row.metric, row.column): row for row in measured(audit)}
    assert number(by["layer_inversion", "accuracy", None].mean) > 0.95
    assert number(by["layer_inversion", "replayed", None].mean) > 0.9
    assert "can be inverted layer by layer" in audit.about.limits[0]
    assert audit.about.limits[1].startswith("Dropout at 'top.2' run as they predict")


def test_an_active_party_with_labels_alone_has_no_tower(file: Path) -> None:
    names = table(rows=300).schema.names
    towers: dict[str, Any] = {"bottom_model": f"{file}:Tower", "top_model": f"{file}:Top"}
    audit = VerticalAudit(vertical_spec(passive=[names[:3], names[3:]], **towers), table(rows=300))
    model = audit.network([0], audit.defenses["none"])
    widths = [features.shape[-1] for features in model.features(model.encoded(audit.data.train.cells[None]))]
    assert widths[0] == 0 < min(widths[1:])
    accuracies = [row.mean for row in measured(audit) if (row.metric, row.column) == ("accuracy", None)]
    assert None not in accuracies


def test_controls_have_networks_that_lose_nothing_whatever_the_own_ones_do(file: Path) -> None:
    audit = VerticalAudit(vertical_spec(bottom_model=f"{file}:Narrow", attacks=["ridge_sa"]), table(rows=400))
    control = audit.control()
    assert control is not None
    assert audit.about.model == f"{file}:Narrow"
    assert control.about.model == "vertical_mlp"


@pytest.mark.long
def test_a_layer_that_loses_something_is_named_in_the_headline_and_a_network_learns_instead(file: Path) -> None:
    attack = {"name": "layer_inversion", "rows": 512, "epochs": 1, "steps": 200}
    spec = vertical_spec(bottom_model=f"{file}:Narrow", features=6, attacks=[attack])
    audit = VerticalAudit(spec, table(rows=300))
    assert "because of layer 2 (GELU): two inputs have the same output" in audit.about.limits[0]
    by = {(row.attack, row.metric, row.column): row for row in measured(audit)}
    assert by["layer_inversion", "replayed", None].mean == 0.0
    assert number(by["layer_inversion", "accuracy", None].lift) > 0.1


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"bottom_model": "Flat"}, "returns shape (2,) for 2 records"),
        ({"top_model": "Flat"}, "where (2, 1) is needed"),
        ({"bottom_model": "Half"}, "does not take rows of"),
        ({"bottom_model": "Tower", "attacks": ["esa"]}, "'esa' is made for the fully connected networks"),
        ({"bottom_model": "Tower", "attacks": ["label_batch"]}, "'label_batch' is made for the fully connected"),
        ({"bottom_model": "Tower", "bottom": [7]}, "bottom is of vertical_mlp"),
        ({"bottom_model": "Tower", "defenses": [{"name": "bottleneck", "width": 1}]}, "asks for 1 features"),
    ],
)
def test_towers_that_do_not_fit_are_refused(file: Path, values: dict[str, Any], said: str) -> None:
    named = {key: f"{file}:{value}" if key.endswith("_model") else value for key, value in values.items()}
    with pytest.raises(BadInputError) as refused:
        VerticalAudit(vertical_spec(**named), table(rows=300))
    assert said in str(refused.value)


@pytest.mark.parametrize("setting", ["split", "vertical"])
def test_a_document_needs_consent_for_a_network(file: Path, setting: str) -> None:
    key = {"split": "model", "vertical": "bottom_model"}[setting]
    text = f"setting: {setting}\ndataset: adult\n{key}: ours.py:Parts\n"
    with pytest.raises(DocumentError, match="--allow-code"):
        read_text_document(text, "audit.yaml", file.parent)
    [spec] = read_text_document(text, "audit.yaml", file.parent, allow_code=True)
    assert getattr(spec, key) == f"{file}:Parts"
