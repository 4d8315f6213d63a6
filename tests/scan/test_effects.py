"""Guards that change nothing by their arguments are listed as such, and never credited."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from seepage.scan import scan
from seepage.scan.effects import setting_without_effect, without_effect
from tests.scan.projects import app, written

IDLE = "without effect by its arguments"


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("LocalDpMod", {"clipping_norm": 1.0, "sensitivity": 1.0, "epsilon": float("inf"), "delta": 1e-5}),
        ("LocalDpMod", {"clipping_norm": 1.0, "sensitivity": 1.0, "epsilon": 51}),
        ("LocalDpMod", {"clipping_norm": 1e6, "sensitivity": 1e6, "epsilon": 1.0, "delta": 1e-5}),
        ("LocalDpMod", {"clipping_norm": 1.0, "sensitivity": 1e-9, "epsilon": 1.0, "delta": 1e-5}),
        ("PercentilePrivacy", {"percentile": 0, "gamma": 1e6}),
        ("PercentilePrivacy", {"percentile": "0", "gamma": "1e9"}),
        ("SVTPrivacy", {"fraction": 1.0, "epsilon": 1e9}),
        ("SVTPrivacy", {"noise_var": 0.0}),
        ("SVTPrivacy", {"gamma": 1e6}),
        ("ExcludeVars", {"exclude_vars": "nothing_like_this"}),
        ("ExcludeVars", {"exclude_vars": ["xyzzy"]}),
        ("ExcludeVars", {"exclude_vars": "^$"}),
        ("HEModelEncryptor", {"encrypt_layers": []}),
        ("StatisticsPrivacyFilter", {"result_cleanser_ids": []}),
        ("DifferentialPrivacyServerSideFixedClipping", {"noise_multiplier": 0, "clipping_norm": 1.0}),
        ("DifferentialPrivacyServerSideFixedClipping", {"noise_multiplier": 1.0, "clipping_norm": 1e12}),
    ],
)
def test_arguments_that_leave_no_effect_are_known(name: str, arguments: dict[str, object]) -> None:
    assert without_effect(name, arguments)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("LocalDpMod", {"clipping_norm": 1.0, "sensitivity": 1.0, "epsilon": 10.0, "delta": 1e-5}),
        ("LocalDpMod", {"clipping_norm": 10.0, "sensitivity": 1.0, "epsilon": 50, "delta": 1e-5}),
        ("PercentilePrivacy", {}),
        ("PercentilePrivacy", {"percentile": 0, "gamma": 0.01}),
        ("PercentilePrivacy", {"percentile": 90, "gamma": 1e9}),
        ("SVTPrivacy", {}),
        ("SVTPrivacy", {"fraction": 1.0, "epsilon": 0.1}),
        ("ExcludeVars", {"exclude_vars": ["bn"]}),
        ("ExcludeVars", {"exclude_vars": ["model.decoder.3.weight"]}),
        ("ExcludeVars", {"exclude_vars": "conv|running_.*"}),
        ("ExcludeVars", {"exclude_vars": ".*"}),
        ("HEModelEncryptor", {}),
        ("DifferentialPrivacyServerSideFixedClipping", {"noise_multiplier": 0.1, "clipping_norm": 10}),
    ],
)
def test_usual_arguments_have_an_effect(name: str, arguments: dict[str, object]) -> None:
    assert not without_effect(name, arguments)


def test_minima_that_stop_nothing_are_known() -> None:
    for value in (0, "0", 1, "false", None):
        assert setting_without_effect("SUMMARY_MINIMUM_ROWS", value)
    assert setting_without_effect("NOISE_SCALE", "0.0")
    for name, value in (("SUMMARY_MINIMUM_ROWS", 5), ("X_THRESHOLD", "3"), ("NOISE", 1.0), ("ALLOWED_COLUMNS", "a,b")):
        assert not setting_without_effect(name, value)


def test_mods_and_wrappers_without_effect_are_not_credited(tmp_path: Path) -> None:
    head = "import math\nfrom flwr.clientapp import ClientApp\nfrom flwr.clientapp.mod import LocalDpMod\n"
    for i, epsilon in enumerate(('float("inf")', "math.inf", "1e9")):
        client = f"{head}EPS = {epsilon}\napp = ClientApp(mods=[LocalDpMod(1.0, 1.0, EPS, 1e-5)])\n"
        update = app(tmp_path / f"mod{i}", client).messages[0]
        assert update.guards == ()
        assert "--defense" not in update.audit
        assert any(of.startswith(f"{IDLE}: LocalDpMod(") for of in update.unknown)
    client = "from flwr.clientapp import ClientApp\nfrom flwr.clientapp.mod import fixedclipping_mod\n"
    client += "app = ClientApp(mods=[fixedclipping_mod])\n"
    wrapped = "from flwr.serverapp.strategy import FedAvg, DifferentialPrivacyClientSideFixedClipping as Wrapped\n"
    for noise, clip, guards in (("0.0", "1e12", [0, 0]), ("0.0", "1.0", [1, 0]), ("0.7", "1.0", [1, 1])):
        server = f"{wrapped}s = run(Wrapped(FedAvg(), {noise}, {clip}, 5))\n"
        project = app(tmp_path / f"wrapped{noise}{clip}", client, server)
        update, joint = project.messages[0], project.messages[-1]
        assert [len(update.guards), len(joint.guards)] == guards
        assert (IDLE in " ".join(joint.unknown)) is (guards[1] == 0)


def test_filters_without_effect_are_not_credited_in_settings_and_in_python(tmp_path: Path) -> None:
    filters = [
        {"path": "nvflare.app_common.filters.svt_privacy.SVTPrivacy", "args": {"fraction": 1.0, "epsilon": 1e9}},
        {"path": "nvflare.app_common.filters.exclude_vars.ExcludeVars", "args": {"exclude_vars": "nothing_alike"}},
    ]
    client = {
        "executors": [{"tasks": ["train"], "executor": {"path": "nvflare.x.Executor"}}],
        "task_result_filters": [{"tasks": ["train"], "filters": filters}],
    }
    [project] = scan(written(tmp_path / "a", {"config_fed_client.json": json.dumps(client)}))
    update = project.messages[0]
    assert (update.guards, sum(of.startswith(IDLE) for of in update.unknown)) == ((), 2)
    job = "from nvflare.app_common.filters import SVTPrivacy\nfrom nvflare.recipe import FedAvgRecipe\n"
    job += 'r = FedAvgRecipe(name="r")\nr.add_client_output_filter(SVTPrivacy(1.0, 1e9), tasks=["train"])\n'
    [project] = scan(written(tmp_path / "b", {"job.py": job}))
    update = project.messages[0]
    assert (update.guards, sum(of.startswith(IDLE) for of in update.unknown)) == ((), 1)


def test_settings_of_a_node_that_stop_nothing_are_not_credited(tmp_path: Path) -> None:
    node = "api_key: x\ndatabases: []\nalgorithm_env: {SUMMARY_MINIMUM_ROWS: 0, OTHER_MINIMUM_ROWS: 5}\n"
    [project] = scan(written(tmp_path / "node", {"node.yaml": node}))
    assert [of.partition("=")[0] for of in project.messages[0].guards] == ["OTHER_MINIMUM_ROWS"]
    assert f"{IDLE}: SUMMARY_MINIMUM_ROWS=0" in " ".join(project.messages[0].unknown)
    source = (
        "from vantage6.algorithm.tools.decorators import data\nfrom vantage6.algorithm.tools.util import get_env_var\n"
    )
    source += "@data(1)\ndef part(df):\n  least = get_env_var('SUMMARY_MINIMUM_ROWS', DEFAULT)\n  return least\n"
    for default, guards in (("'0'", 0), ("10", 1)):
        [project] = scan(written(tmp_path / f"of{guards}", {"a.py": source.replace("DEFAULT", default)}))
        assert len(project.messages[0].guards) == guards
        assert (IDLE in " ".join(project.messages[0].unknown)) is (guards == 0)


def test_a_minimum_that_is_only_printed_is_not_credited(tmp_path: Path) -> None:
    source = (
        "from vantage6.algorithm.tools.decorators import data\nfrom vantage6.algorithm.tools.util import get_env_var\n"
    )
    source += "@data(1)\ndef part(df):\n  least = int(get_env_var('SUMMARY_MINIMUM_ROWS', '10'))\n"
    source += "  if len(df) < least:\n    ACT\n  return len(df)\n"
    for act, guards in (("print('too few', least)", 0), ("raise ValueError", 1), ("return None", 1), ("stop(df)", 1)):
        [project] = scan(written(tmp_path / act[:5], {"a.py": source.replace("ACT", act)}))
        assert len(project.messages[0].guards) == guards
        assert ("only printed" in " ".join(project.messages[0].unknown)) is (guards == 0)
