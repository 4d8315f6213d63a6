"""The page that translates Flower's settings names what both programs have."""

from __future__ import annotations

import inspect
import re
from importlib import import_module
from pathlib import Path

import pytest
import yaml

from seepage.config.document import make_specs
from seepage.protocols.fedavg import FedAvg
from seepage.registry import defenses
from seepage.settings.horizontal.spec import Training

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "flower-settings.md").read_text(encoding="utf-8")
ROWS = [line.split("|")[1:3] for line in PAGE.splitlines() if line.startswith("| ") and "in the document" not in line]


def test_every_key_of_the_dictionary_exists() -> None:
    keys = {key for _, ours in ROWS for key in re.findall(r"protocol\.(\w+)", ours)} - {"name"}
    assert len(keys) >= 6
    assert keys | {"learning_rate", "momentum", "rate_factor"} <= inspect.signature(FedAvg).parameters.keys()
    assert {key for _, ours in ROWS for key in re.findall(r"training\.(\w+)", ours)} <= Training.model_fields.keys()
    named = [yaml.safe_load(found) for _, ours in ROWS for found in re.findall(r"`(defenses: .*?)`", ours)]
    assert len(named) >= 3
    assert {entry["defenses"]["name"] for entry in named} <= {
        entry.name for entry in defenses.of("horizontal").entries()
    }
    for entry in named:
        assert make_specs({"dataset": "german", "protocol": {"name": "fedsgd", "batch_size": 4}, **entry})


def test_the_documents_of_the_page_are_read() -> None:
    blocks = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    assert blocks
    for block in blocks:
        [spec] = make_specs({"dataset": "german", **yaml.safe_load(block)})
        assert [part.title for part in spec.defenses] == ["none", "local_dp"]


@pytest.mark.parametrize(
    ("module", "names"),
    [
        ("flwr.clientapp.mod", ["LocalDpMod", "fixedclipping_mod"]),
        ("flwr.client.mod", ["secaggplus_mod"]),
        (
            "flwr.serverapp.strategy",
            [
                *("DifferentialPrivacyServerSideFixedClipping", "DifferentialPrivacyClientSideFixedClipping"),
                *("FedAvg", "FedProx", "FedAdam"),
            ],
        ),
    ],
)
def test_what_the_page_names_of_flower_exists(module: str, names: list[str]) -> None:
    there = import_module(module)
    for name in names:
        assert hasattr(there, name), name
        assert name in PAGE


def test_the_deviation_of_local_noise_is_flower_s() -> None:
    source = inspect.getsource(import_module("flwr.clientapp.mod.localdp_mod"))
    assert "self.sensitivity * np.sqrt(2 * np.log(1.25 / self.delta)) / self.epsilon" in source
    assert "return sensitivity * sqrt(2 * log(1.25 / delta)) / epsilon" in PAGE
