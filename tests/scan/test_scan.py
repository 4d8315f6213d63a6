"""``seepage scan`` on small projects in the forms that Flower, NVFlare and vantage6 document."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from seepage.errors import BadInputError
from seepage.scan import LeavingMessage, ScannedProject, scan
from tests.commands import Run, commands
from tests.scan.projects import written

PYPROJECT = """
[project]
name = "flower-app"
dependencies = ["flwr[simulation]>=1.20.0"]
[tool.flwr.app]
publisher = "somebody"
[tool.flwr.app.components]
serverapp = "app.server_app:app"
clientapp = "app.client_app:app"
[tool.flwr.app.config]
num-server-rounds = 3
local-epochs = 2
"""
SERVER_APP = """
raise SystemExit("run")
from flwr.app import Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg, DifferentialPrivacyServerSideFixedClipping as Wrapped

app = ServerApp()

@app.main()
def main(grid: Grid, context: Context) -> None:
    strategy = Wrapped(FedAvg(fraction_train=0.5), noise_multiplier=0.7, clipping_norm=1.0, num_sampled_clients=5)
    strategy.start(grid=grid, num_rounds=context.run_config["num-server-rounds"])
"""
CLIENT_APP = """
raise SystemExit("run")
from flwr.clientapp import ClientApp
from flwr.clientapp.mod import LocalDpMod, message_size_mod
import mine

local = LocalDpMod(clipping_norm=1.0, sensitivity=1.0, epsilon=10.0, delta=mine.DELTA)
app = ClientApp(mods=[local, message_size_mod, mine.rounding])

@app.train()
def train(message, context):
    return message

@app.query()
def query(message, context):
    return message
"""


def flower(folder: Path, **changes: str) -> ScannedProject:
    files = {"pyproject.toml": PYPROJECT, "app/server_app.py": SERVER_APP, "app/client_app.py": CLIENT_APP}
    [project] = scan(written(folder, {**files, **{f"app/{name}.py": text for name, text in changes.items()}}))
    return project


def only(project: ScannedProject, words: str) -> LeavingMessage:
    [message] = [message for message in project.messages if words in message.content]
    return message


def test_a_flower_app_is_read_and_not_run(tmp_path: Path) -> None:
    """The update has the guards of the client alone; noise at the server is said to be none against the server."""
    before = set(sys.modules)
    project = flower(tmp_path)
    update = only(project, "weights after local training")
    assert (update.sender, update.receiver) == ("client", "server")
    [guard] = update.guards
    assert guard.startswith("LocalDpMod(clipping_norm=1.0, sensitivity=1.0, epsilon=10.0, delta=(set when it runs))")
    assert update.audit.startswith("seepage audit --protocol fedavg --defense gaussian_noise")
    assert any("rounding" in question for question in update.unknown)
    assert any("ServerSideFixedClipping" in of and "no guard against the server" in of for of in project.remarks)
    assert "num-server-rounds=3" in " ".join(project.remarks)
    assert only(project, "answer to a query").guards == ()
    assert "no audit" in only(project, "metrics").audit
    assert not any(name.startswith(("app.", "flwr")) for name in set(sys.modules) - before)


def test_mods_that_are_put_together_and_own_strategies_are_unknown(tmp_path: Path) -> None:
    client = "from flwr.clientapp import ClientApp\napp = ClientApp(mods=choose())\n"
    server = "from flwr.server.strategy import FedAvg\nclass Mine(FedAvg):\n    pass\n"
    update = only(flower(tmp_path, client_app=client, server_app=server), "weights")
    assert update.guards == ()
    said = " ".join(update.unknown)
    assert "put together when it runs" in said
    assert "strategy Mine (app/server_app.py:2) changes of FedAvg" in said


def test_secure_aggregation_needs_both_sides(tmp_path: Path) -> None:
    client = "from flwr.client.mod import secaggplus_mod\nfrom flwr.client import ClientApp\n"
    client += "app = ClientApp(client_fn, mods=[secaggplus_mod])\n"
    server = "from flwr.server.strategy import FedAvg\ns = FedAvg()\n"
    alone = only(flower(tmp_path / "a", client_app=client, server_app=server), "weights")
    assert "no workflow of secure aggregation" in " ".join(alone.unknown)
    both = f"{server}from flwr.server.workflow import SecAggPlusWorkflow\n"
    both += "w = SecAggPlusWorkflow(num_shares=3, reconstruction_threshold=2)\nrun(fit_workflow=w)\n"
    paired = only(flower(tmp_path / "b", client_app=client, server_app=both), "weights")
    assert "no workflow" not in " ".join(paired.unknown)
    assert "--defense aggregation" in paired.audit


def test_without_a_strategy_nothing_is_taken_for_granted(tmp_path: Path) -> None:
    project = flower(tmp_path, server_app="x = 1\n", client_app="def (\n")
    [update] = [of for of in project.messages if "every round" in of.content and of.sender == "client"]
    assert update.audit.startswith("unknown")
    assert "no strategy of Flower is seen" in " ".join(update.unknown)
    assert "no Python that can be read" in " ".join(project.unread)


def test_trees_have_their_own_audit(tmp_path: Path) -> None:
    server = "from flwr.serverapp.strategy import FedXgbBagging\ns = FedXgbBagging()\n"
    assert only(flower(tmp_path, server_app=server), "trees of each round").audit == "seepage trees"


def job(filters: list[dict], **executor: object) -> dict[str, str | dict]:
    client = {
        "format_version": 2,
        "executors": [
            {"tasks": ["train", "validate"], "executor": {"path": "nvflare.app_opt.pt.in_process.Executor", **executor}}
        ],
        "task_result_filters": [{"tasks": ["train"], "filters": filters}],
        "task_data_filters": [],
        "components": [],
    }
    server = {
        "format_version": 2,
        "task_result_filters": [{"tasks": ["train"], "filters": [{"path": "nvflare.x.SVTPrivacy", "args": {}}]}],
        "workflows": [{"id": "sag", "path": "nvflare.app_common.workflows.scatter_and_gather.ScatterAndGather"}],
        "components": [],
    }
    return {
        "meta.json": {"name": "sag", "min_clients": 2, "deploy_map": {"app": ["@ALL"]}},
        "app/config/config_fed_client.json": client,
        "app/config/config_fed_server.json": server,
    }


def test_filters_of_an_nvflare_job_guard_their_task_alone(tmp_path: Path) -> None:
    """Filters at the server act after it has the result; those of unknown classes are unknown."""
    filters: list[dict] = [
        {"path": "nvflare.app_common.filters.svt_privacy.SVTPrivacy", "args": {"epsilon": 0.1, "fraction": 0.1}},
        {"path": "nvflare.app_common.filters.exclude_vars.ExcludeVars", "args": {"exclude_vars": ["bn"]}},
        {"path": "own.Rounding"},
    ]
    [project] = scan(written(tmp_path, job(filters)))
    train, validate = only(project, "task train"), only(project, "task validate")
    assert [guard.partition("(")[0] for guard in train.guards] == ["SVTPrivacy", "ExcludeVars"]
    assert "epsilon=0.1" in train.guards[0]
    assert "what the filter Rounding" in " ".join(train.unknown)
    assert "privacy.json" in " ".join(train.unknown)
    assert (validate.guards, "no audit" in validate.audit) == ((), True)
    assert "seepage audit --protocol fedavg" in train.audit


def test_encryption_and_a_sites_own_filters_are_read(tmp_path: Path) -> None:
    encrypted = {"path": "nvflare.app_opt.he.model_encryptor.HEModelEncryptor", "args": {"encrypt_layers": ["fc"]}}
    scope = {"name": "public", "task_result_filters": [{"name": "PercentilePrivacy", "args": {"percentile": 90}}]}
    files = {**job([encrypted]), "site-1/local/privacy.json": {"scopes": [scope], "default_scope": "public"}}
    [project] = scan(written(tmp_path, files))
    train = only(project, "task train")
    assert [guard.partition("(")[0] for guard in train.guards] == ["PercentilePrivacy"]
    assert "no aggregator of nvflare.app_opt.he is seen at the server" in train.missing[0]
    assert "aggregation" not in train.audit
    server = files["app/config/config_fed_server.json"]
    server["components"] = [
        {"id": "a", "path": "nvflare.app_opt.he.intime_accumulate.HEInTimeAccumulateWeightedAggregator"}
    ]
    [project] = scan(written(tmp_path / "whole", files))
    train = only(project, "task train")
    assert [guard.partition("(")[0] for guard in train.guards] == ["HEModelEncryptor", "PercentilePrivacy"]
    assert "aggregation:{clients: 2}" in train.audit
    assert "sent in the clear" in " ".join(train.unknown)


def test_a_filter_of_one_site_or_scope_or_without_effect_is_no_guard(tmp_path: Path) -> None:
    filters = [{"name": "PercentilePrivacy", "args": {"percentile": 90}}]
    guarded = {"name": "public", "task_result_filters": filters}
    bare = {"name": "research"}
    one_site = {"scopes": [guarded], "default_scope": "public"}
    cases = {
        "default": ({"scopes": [guarded, bare], "default_scope": "public"}, one_site, 1),
        "scope": ({"scopes": [guarded, bare]}, one_site, 0),
        "site": ({"scopes": [bare], "default_scope": "research"}, one_site, 0),
    }
    for name, (first, second, expected) in cases.items():
        files = {**job([]), "a/local/privacy.json": first, "b/local/privacy.json": second}
        train = only(scan(written(tmp_path / name, files))[0], "task train")
        assert len(train.guards) == expected
        assert expected or "is not in all" in " ".join(train.unknown)
    for args in ({"percentile": 120}, {"gamma": 0}):
        path = "nvflare.app_common.filters.percentile_privacy.PercentilePrivacy"
        [project] = scan(
            written(tmp_path / f"idle-{len(args)}-{next(iter(args))}", job([{"path": path, "args": args}]))
        )
        train = only(project, "task train")
        assert (train.guards, "without effect by its arguments" in " ".join(train.unknown)) == ((), True)


def test_jobs_in_other_forms_are_read(tmp_path: Path) -> None:
    """HOCON has comments, and values without quotes; another file that it includes is not read, which is said."""
    executors = 'executors = [ { tasks = ["train"], executor { path = "x.Y" } } ] # usual\n'
    filters = "task_result_filters = [{tasks = [train], filters = [{path = nvflare.app_common.filters.SVTPrivacy}]}]\n"
    files = {"meta.conf": "name = sag", "app/config/config_fed_client.conf": executors + filters}
    [project] = scan(written(tmp_path / "a", files))
    assert only(project, "task train").guards[0].startswith("SVTPrivacy()")
    files["app/config/config_fed_client.conf"] = 'include "other.conf"\n' + executors
    [project] = scan(written(tmp_path / "b", files))
    assert project.understood == "nothing"
    assert "includes another file" in " ".join(project.unread)


ALGORITHM = {
    "algorithm_store.json": {
        "name": "Contingency table",
        "image": "harbor2.vantage6.ai/algorithms/crosstab",
        "functions": [
            {"name": "central_crosstab", "type": "central", "arguments": []},
            {
                "name": "partial_crosstab",
                "type": "federated",
                "arguments": [{"name": "group_cols", "type": "column_list"}],
            },
        ],
    },
    "crosstab/partial.py": "from vantage6.algorithm.tools.util import get_env_var\n"
    "from .globals import DEFAULT\n"
    "def partial_crosstab(df, group_cols):\n"
    "  threshold = int(get_env_var('CROSSTAB_PRIVACY_THRESHOLD', DEFAULT))\n"
    "  allowed = get_env_var('CROSSTAB_ALLOWED_COLUMNS')\n"
    "  rows = get_env_var('CROSSTAB_MIN_ROWS_PER_CATEGORY', default=DEFAULT, as_type='int')\n"
    "  home = os.environ.get('HOME')\n  return check(threshold, allowed, rows, home)\n",
    "crosstab/globals.py": "DEFAULT = 5\n",
}
NODE = """
api_key: 7f2b-secret
databases: [{label: default, uri: /data/people.csv, type: csv}]
encryption: {enabled: false}
algorithm_env: {CROSSTAB_PRIVACY_THRESHOLD: 1, PGPASSWORD: secret}
policies:
  allowed_algorithms: ['^harbor2.vantage6.ai/algorithms/crosstab$']
"""


def test_guards_of_a_vantage6_algorithm_have_the_values_of_the_node(tmp_path: Path) -> None:
    """Defaults are those of the source unless the node sets others; keys and paths of data are not shown."""
    [project] = scan(written(tmp_path / "a", ALGORITHM))
    partial = only(project, "partial_crosstab")
    assert "CROSSTAB_PRIVACY_THRESHOLD (default 5) read at crosstab/partial.py:4" in partial.guards
    assert "CROSSTAB_ALLOWED_COLUMNS (no default is seen" in " ".join(partial.guards)
    assert "CROSSTAB_MIN_ROWS_PER_CATEGORY (default 5)" in " ".join(partial.guards)
    assert "seepage statistics" in partial.audit
    assert "HOME" not in " ".join(partial.guards)
    assert "which columns a user asks for (group_cols)" in partial.unknown
    assert only(project, "central_crosstab").receiver == "user"
    assert "which algorithms and users it allows is unknown" in " ".join(project.remarks)
    [project] = scan(written(tmp_path / "b", {**ALGORITHM, "node.yaml": NODE}))
    said = " ".join([*only(project, "partial_crosstab").guards, *project.remarks])
    assert "CROSSTAB_PRIVACY_THRESHOLD (set to 1 at the node)" in said
    assert "allowed_users: not limited" in said
    assert "results are not encrypted" in said
    assert "Every algorithm may run" not in said
    assert "secret" not in said
    assert "people.csv" not in said


def test_a_node_alone_is_read(tmp_path: Path) -> None:
    [project] = scan(written(tmp_path, {"node.yaml": NODE.replace("allowed_algorithms", "allowed_nothing")}))
    assert "Every algorithm may run on this node." in project.remarks[0]
    assert project.messages[0].unknown == ("which algorithms run, and what they return",)


def test_what_is_no_project_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="holds no project that is known here"):
        scan(written(tmp_path, {"pyproject.toml": "[project]\nname = 'x'\n"}))
    with pytest.raises(BadInputError, match="the folder of a project is expected"):
        scan(tmp_path / "pyproject.toml")


def test_a_broken_file_is_said_and_hides_no_other_project(tmp_path: Path) -> None:
    whole = {"c/pyproject.toml": PYPROJECT, "c/people/client_app.py": "", "c/people/server_app.py": ""}
    broken = {
        "a/pyproject.toml": "[tool.flwr",
        "b/config_fed_client.json": "[" * 100_000,
        "d/algorithm_store.json": "{",
        "e/meta.json": "3",
    }
    by_name = {of.folder.name: of for of in scan(written(tmp_path, {**broken, **whole}))}
    assert by_name["c"].framework == "Flower app"
    assert "pyproject.toml cannot be understood" in by_name["a"].unread[0]
    assert "algorithm_store.json cannot be understood" in " ".join(by_name["d"].unread)
    assert [by_name[name].understood for name in "ad"] == ["nothing", "nothing"]
    [job_alone] = scan(tmp_path / "b")
    assert ("cannot be understood" in job_alone.unread[0], job_alone.understood) == (True, "nothing")


OLDER = {
    "server.py": "import flwr as fl\nfl.server.start_server(strategy=fl.server.strategy.FedAvg())\n",
    "client.py": "import flwr as fl\nclass C(fl.client.NumPyClient):\n  def fit(self, p, c): return p, 1, {}\n"
    "if __name__ == '__main__':\n  fl.client.start_client(server_address='x', client=C().to_client())\n",
}


def test_older_flower_apps_are_known_by_their_source(tmp_path: Path) -> None:
    [project] = scan(written(tmp_path / "old", OLDER))
    assert (project.framework, project.understood) == ("Flower app", "wholly")
    assert project.messages[0].guards == ()
    assert "Clients start by start_client at client.py:5, which takes no mods." in project.remarks
    guarded = "from flwr.client import ClientApp\nfrom flwr.client.mod import LocalDpMod\n"
    guarded += "app = ClientApp(mods=[LocalDpMod(1.0, 1.0, 2.0, 1e-5)])\n"
    [project] = scan(written(tmp_path / "app", {**OLDER, "client.py": guarded}))
    assert len(project.messages[0].guards) == 1
    # Each folder that is installed by itself is a project.
    two = {**{f"a/{n}": t for n, t in OLDER.items()}, **{f"b/{n}": t for n, t in OLDER.items()}}
    two |= {"a/requirements.txt": "flwr", "b/requirements.txt": "flwr"}
    assert [of.folder.name for of in scan(written(tmp_path / "two", two))] == ["a", "b"]
    [project] = scan(written(tmp_path / "half", {"server.py": OLDER["server.py"]}))
    assert "no ClientApp and no start of a client is seen" in project.unread
    with pytest.raises(BadInputError, match="holds no project"):
        scan(written(tmp_path / "none", {"a.py": "import flwr\nprint(flwr.__version__)\n"}))


def test_mods_of_one_of_several_trainings_and_noise_of_none_are_no_guard(tmp_path: Path) -> None:
    head = "from flwr.clientapp import ClientApp\nfrom flwr.clientapp.mod import LocalDpMod\n"
    one = "app = ClientApp()\n@app.train(mods=[LocalDpMod(1.0, 1.0, 2.0, 1e-5)])\ndef train(m, c): return m\n"
    other = "@app.train('other')\ndef other(m, c): return m\n"
    for name, client, guards, words in (
        ("one", one, 1, ""),
        ("two", one + other, 0, "only under a condition"),
        ("zero", one.replace("1.0, 1.0", "1.0, 0.0"), 0, "adds no noise"),
        ("open", one.replace("1.0, 1.0", "1.0, size"), 1, "how much noise it adds is set when it runs"),
    ):
        update = scan(written(tmp_path / name, {"client.py": head + client, "server.py": OLDER["server.py"]}))[
            0
        ].messages[0]
        assert len(update.guards) == guards
        assert words in " ".join(update.unknown)


def test_a_vantage6_algorithm_without_a_store_is_known_by_its_decorators(tmp_path: Path) -> None:
    four = "from vantage6.algorithm.tools.decorators import algorithm_client, data\n"
    four += "@data(1)\ndef partial(df, group_cols): return 1\n@algorithm_client\ndef central(client): return 1\n"
    four += "@data(1)\n@algorithm_client\ndef both(client, df): return 1\ndef helper(x): return x\n"
    five = "from vantage6.algorithm.decorator.action import federated, preprocessing\n"
    five += "from vantage6.algorithm.decorator.data import dataframe\n"
    five += (
        "@preprocessing\n@dataframe(1)\ndef clean(df): return df\n@federated\n@dataframe(1)\ndef part(df): return 1\n"
    )
    [project] = scan(written(tmp_path / "4", {"code/a.py": four}))
    assert project.understood == "partly"
    assert [only(project, f"of {name}(").sender for name in ("partial", "central", "both")] == [
        "node",
        "central part",
        "node",
    ]
    assert "group_cols" in " ".join(only(project, "partial").unknown)
    [project] = scan(written(tmp_path / "5", {"code/a.py": five}))
    assert "clean(df) is preprocessing: its data frame stays at the node" in " ".join(project.remarks)
    assert only(project, "of part(").sender == "node"
    with pytest.raises(BadInputError, match="decorators"):
        scan(written(tmp_path / "own", {"a.py": "# vantage6\nfrom mine import data\n@data(1)\ndef f(df): return 1\n"}))


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.py")
    os.mkfifo(tmp_path / "config_fed_server.json")
    (tmp_path / "pyproject.toml").write_text(PYPROJECT)
    [project] = scan(tmp_path)
    assert project.framework == "Flower app"


def test_projects_without_a_list_of_what_they_do_are_unknown(tmp_path: Path) -> None:
    executors = {"executors": [{"tasks": "train", "executor": "own"}]}
    for name, content in (("config_fed_client.json", executors), ("algorithm_store.json", {"functions": 3})):
        (tmp_path / name).write_text(json.dumps(content))
    job, algorithm = scan(tmp_path)
    assert job.understood == "nothing"
    assert [message.unknown for message in job.messages] == [("no executor with a list of tasks is named",)]
    assert any("lists no functions: what leaves the node is unknown" in remark for remark in algorithm.remarks)


def test_hostile_settings_neither_steer_nor_crash(tmp_path: Path, capfd, monkeypatch) -> None:
    seepage: Run = commands(capfd, monkeypatch, tmp_path, "scan")
    files = job([{"path": 7, "args": "x"}, "text"], args=[1])  # type: ignore[list-item]
    client = files["app/config/config_fed_client.json"]
    assert isinstance(client, dict)
    client["executors"] += ["x", {"tasks": "train"}, {"tasks": ["a\x1b[31m"], "executor": 3}]
    written(tmp_path / "job", files)
    code, out, _ = seepage("job")
    assert (code, "\x1b" in out) == (0, False)
    assert "What is not listed is not thereby safe." in out
    code, out, _ = seepage("job", "--json")
    assert [of["framework"] for of in json.loads(out)] == ["NVFlare job"]


def test_mods_of_an_app_do_not_guard_clients_that_start_without_it(tmp_path: Path) -> None:
    client = "import flwr as fl\nfrom flwr.client.mod import LocalDpMod\nclass C(fl.client.NumPyClient): pass\n"
    client += "app = fl.client.ClientApp(mods=[LocalDpMod(1.0, 1.0, 2.0, 1e-5)])\n"
    start = "if __name__ == '__main__':\n  fl.client.start_numpy_client(server_address='x', client=C())\n"
    settings = {"app/pyproject.toml": PYPROJECT.replace("app.client_app", "client").replace("app.server_app", "server")}
    for name, files in (("old", {}), ("app", settings)):
        for text, guards in ((client, 1), (client + start, 0)):
            whole = {"app/client.py": text, "app/server.py": OLDER["server.py"], **files}
            [project] = scan(written(tmp_path / f"{name}{guards}", whole))
            update = project.messages[0]
            assert len(update.guards) == guards
            assert ("client.py:6, which have no mods" in " ".join(update.unknown)) is (guards == 0)
