"""Guards count by their full names alone: what only looks like one of a framework is unknown."""

from __future__ import annotations

from pathlib import Path

import pytest

from seepage.scan import scan
from seepage.scan.hocon import parsed_hocon
from tests.commands import Run, commands
from tests.scan.projects import app, written

FRAMEWORK = "from flwr.clientapp import ClientApp\nfrom flwr.clientapp.mod import LocalDpMod\n"
GUARD = "LocalDpMod(1.0, 1.0, 2.0, 1e-5)"


@pytest.mark.parametrize(
    "client",
    [
        f"app = ClientApp(mods=[{GUARD}])",
        f"mods = []\nmods.append({GUARD})\napp = ClientApp(mods=mods)",
        f"def chosen():\n  return [{GUARD}]\napp = ClientApp(mods=chosen() + [])",
        f"class Mine(LocalDpMod):\n  pass\napp = ClientApp(mods=[{GUARD.replace('LocalDpMod', 'Mine')}])",
        f"import flwr as fl\napp = fl.clientapp.ClientApp(mods=[fl.clientapp.mod.{GUARD}])",
        f"app = ClientApp()\n@app.train(mods=[{GUARD}])\ndef train(m, c):\n  return m",
        "from .more import MODS\napp = ClientApp(mods=MODS)",
    ],
)
def test_a_guard_of_the_framework_counts_however_it_is_named(tmp_path: Path, client: str) -> None:
    more = f"from flwr.client.mod import LocalDpMod\nMODS = [{GUARD}]\n"
    project = app(tmp_path, f"{FRAMEWORK}{client}\n", more=more)
    [guard] = project.messages[0].guards
    assert guard.startswith("LocalDpMod(clipping_norm=1.0, sensitivity=1.0, epsilon=2.0, delta=1e-05)")
    # sqrt(2 ln(1.25 / 1e-5)) / 2
    assert "standard deviation 2.42" in guard
    assert project.understood == "wholly"


@pytest.mark.parametrize(
    ("client", "words"),
    [
        (f"class LocalDpMod:\n  pass\napp = ClientApp(mods=[{GUARD}])", "LocalDpMod"),
        (
            "class M(LocalDpMod):\n  def __call__(self, *a): pass\napp = ClientApp(mods=[M(1, 1, 1, 1)])",
            "what the mod",
        ),
        (f"from privacy import LocalDpMod\napp = ClientApp(mods=[{GUARD}])", "what the mod"),
        (f"from privacy import *\napp = ClientApp(mods=[{GUARD}])", "which mods"),
        (f"LocalDpMod.__call__ = print\napp = ClientApp(mods=[{GUARD}])", "what the mod"),
        (f"m = {GUARD}\nm.epsilon = 1e9\napp = ClientApp(mods=[m])", "what the mod"),
        (f"import os\nm = [{GUARD}] if os.environ else []\napp = ClientApp(mods=m)", "only under a condition"),
        (f"m = []\nif input():\n  m.append({GUARD})\napp = ClientApp(mods=m)", "only under a condition"),
        (f"m = []\nUSE = False\nif USE:\n  m.append({GUARD})\napp = ClientApp(mods=m)", ""),
        (f"m = {GUARD}  # ClientApp(mods=[m])\napp = ClientApp()", ""),
        (f"other = ClientApp(mods=[{GUARD}])\napp = ClientApp()", ""),
        (f"text = 'ClientApp(mods=[{GUARD}])'\napp = ClientApp(mods=[])", ""),
        (f"m = [{GUARD}]\nm.clear()\napp = ClientApp(mods=m)", "not followed"),
    ],
)
def test_what_only_looks_like_a_guard_does_not_count(tmp_path: Path, client: str, words: str) -> None:
    update = app(tmp_path, f"{FRAMEWORK}{client}\n", privacy="class LocalDpMod:\n  pass\n").messages[0]
    assert update.guards == ()
    assert "--defense" not in update.audit
    assert words in " ".join(update.unknown)


def test_a_folder_with_the_name_of_the_framework_takes_its_names(tmp_path: Path) -> None:
    client = f"{FRAMEWORK}app = ClientApp(mods=[{GUARD}])\n"
    project = app(tmp_path, client, flwr__clientapp__mod="class LocalDpMod: pass\n")
    assert not any(message.guards for message in project.messages)
    assert "flwr is a name of this folder's own files" in " ".join(project.unread)


def test_half_set_ups_name_the_missing_half(tmp_path: Path) -> None:
    server = "from flwr.server.strategy import FedAvg, DifferentialPrivacyClientSideAdaptiveClipping as Wrapped\n"
    server += "s = run(Wrapped(FedAvg(), 1.0))\n"
    client = "from flwr.client import ClientApp\nfrom flwr.client.mod import secaggplus_mod, adaptiveclipping_mod\n"
    half = app(tmp_path / "a", f"{client}app = ClientApp(mods=[secaggplus_mod])\n", server)
    missing = " ".join(half.messages[0].missing)
    assert "SecAggPlusWorkflow is not seen to run at the server" in missing
    assert "adaptiveclipping_mod is missing at clients" in missing
    assert not any(message.guards for message in half.messages)
    whole = app(tmp_path / "b", f"{client}app = ClientApp(mods=[adaptiveclipping_mod])\n", server).messages[0]
    assert (whole.missing, len(whole.guards)) == ((), 1)


RECIPE = """
from nvflare.app_common.filters import PercentilePrivacy, SVTPrivacy
from nvflare.app_opt.pt.recipes.fedavg import FedAvgRecipe
recipe = FedAvgRecipe(name="r", min_clients=4, train_script="client.py")
recipe.add_client_output_filter(PercentilePrivacy(20, gamma=0.5), tasks=["train"])
if input():
    recipe.add_client_output_filter(SVTPrivacy(epsilon=0.1))
"""
FED_JOB = """
from nvflare import FedJob, FilterType
from nvflare.app_common.filters.svt_privacy import SVTPrivacy
from nvflare.job_config.script_runner import ScriptRunner
job = FedJob(name="j")
for site in ("a", "b"):
    job.to(ScriptRunner(script="t.py"), site, tasks=["train"])
    job.to(SVTPrivacy(epsilon=0.2), site, tasks=["train"], filter_type=FilterType.TASK_RESULT)
"""


def test_jobs_in_python_are_read_by_their_syntax(tmp_path: Path) -> None:
    [recipe] = scan(written(tmp_path / "a", {"job.py": RECIPE}))
    update, joint = recipe.messages
    assert (joint.sender, joint.receiver, "joint model (FedAvgRecipe at job.py:4)" in joint.content) == (
        "server",
        "client",
        True,
    )
    assert "the largest 80% of entries, cut at gamma 0.5; no noise, no differential privacy" in update.guards[0]
    assert len(update.guards) == 1
    assert "SVTPrivacy(epsilon=0.1) at job.py:7 only for some sites or under a condition" in " ".join(update.unknown)
    assert update.audit.startswith("seepage audit --protocol fedavg")
    [job] = scan(written(tmp_path / "b", {"job.py": FED_JOB}))
    assert [guard.partition(" at ")[0] for guard in job.messages[0].guards] == ["SVTPrivacy(epsilon=0.2)"]
    one_site = FED_JOB.replace('site, tasks=["train"], filter_type', "'a', tasks=[\"train\"], filter_type").replace(
        "    job.to(SVT", "job.to(SVT"
    )
    [job] = scan(written(tmp_path / "c", {"job.py": one_site}))
    assert job.messages[0].guards == ()
    fake = RECIPE.replace("nvflare.app_common.filters", "mine")
    [job] = scan(written(tmp_path / "d", {"job.py": fake, "mine.py": "class SVTPrivacy: pass\n"}))
    assert job.messages[0].guards == ()
    assert job.understood == "partly"


def test_jobs_in_python_send_the_joint_model_where_their_server_does(tmp_path: Path) -> None:
    """A filter of the server's tasks is unknown, and jobs without a workflow or model send none."""
    flow = "from nvflare.app_common.workflows.fedavg import FedAvg\n"
    filtered = 'recipe.add_server_output_filter(SVTPrivacy(), tasks=["train"])\n'
    for name, text, sent in (
        ("flow", f"{flow}{FED_JOB}job.to_server(FedAvg(num_clients=2, num_rounds=1))\n", 1),
        ("target", f'{flow}{FED_JOB}control = FedAvg()\njob.to(control, "server")\n', 1),
        ("inherited", f"{flow}class Mine(FedAvg):\n  def run(self): pass\n{FED_JOB}job.to_server(Mine())\n", 1),
        ("none", FED_JOB, 0),
        ("recipe", RECIPE + filtered, 1),
        ("statistics", RECIPE.replace("FedAvgRecipe", "FedStatsRecipe"), 0),
    ):
        [job] = scan(written(tmp_path / name, {"job.py": text}))
        joint = [message for message in job.messages if message.sender == "server"]
        assert [message.guards for message in joint] == [()] * sent
        assert all("seepage membership" in message.audit for message in joint)
        assert ("the server's filter SVTPrivacy" in " ".join(q for m in joint for q in m.unknown)) is (name == "recipe")


def test_nothing_understood_ends_with_status_4(tmp_path: Path, capfd, monkeypatch) -> None:
    seepage: Run = commands(capfd, monkeypatch, tmp_path, "scan")
    written(tmp_path / "empty", {"notes.ipynb": "{}", "bad.py": "(" * 5000, "latin.py": "x = 1"})
    (tmp_path / "empty" / "latin.py").write_bytes(b"# \xe9\n")
    code, _, errors = seepage("empty")
    assert (code, "Looked for" in errors, "Notebooks are not read: 1" in errors) == (4, True, True)
    written(tmp_path / "job", {"config_fed_client.conf": "executors = ["})
    code, out, errors = seepage("job")
    assert (code, "cannot be understood" in out, "Looked for" in errors) == (4, True, True)


def test_hocon_of_jobs_is_what_the_specification_says() -> None:
    text = 'a.b = 1, a { c : "x\\n" }\n// note\n'
    text += "l = [1, two words\n 3.5 # end\n] \nl += ${a.b}\nt = run ${a.b}.sh\ne = ${HOME}\n"
    expected = {"a": {"b": 1, "c": "x\n"}, "l": [1, "two words", 3.5, 1], "t": "run 1.sh", "e": "${HOME}"}
    assert parsed_hocon(text) == expected
    for wrong in ("a = [", "a", "a = {b = 1", "[1]", "a = " + "[" * 5000, 'include "x"'):
        with pytest.raises(ValueError, match=r"expected|nested|includes"):
            parsed_hocon(wrong)


MORE = f"from flwr.clientapp.mod import LocalDpMod\nMODS = [{GUARD}]\n"


@pytest.mark.parametrize(
    "client",
    [
        # What a ``try`` did not come to, or an error left.
        f"try:\n  app = ClientApp(mods=[{GUARD}])\nexcept OSError:\n  app = ClientApp()",
        f"m = []\ntry:\n  import privacy\n  m.append({GUARD})\nexcept ImportError:\n  pass\napp = ClientApp(mods=m)",
        f"try:\n  import privacy\nexcept ImportError:\n  app = ClientApp()\nelse:\n  app = ClientApp(mods=[{GUARD}])",
        f"m = []\nwith suppress(OSError):\n  m.append({GUARD})\napp = ClientApp(mods=m)",
        # Functions that may return something else, or later.
        f"def chosen():\n  if input(): return\n  return [{GUARD}]\napp = ClientApp(mods=chosen())",
        f"def chosen():\n  yield 1\n  return [{GUARD}]\napp = ClientApp(mods=list(chosen()))",
        f"async def chosen():\n  return [{GUARD}]\napp = ClientApp(mods=chosen())",
        # Names that are bound anew, in places that are easily overlooked.
        f"with open('x') as LocalDpMod: pass\napp = ClientApp(mods=[{GUARD}])",
        f"match x:\n  case {{**LocalDpMod}}: pass\napp = ClientApp(mods=[{GUARD}])",
        f"LocalDpMod = print; app = ClientApp(mods=[{GUARD}])",
        f"app = ClientApp(mods=[{GUARD}])\napp = ClientApp()",
        f"app = ClientApp(mods=[{GUARD}])\ndef f():\n  global app\n  app = ClientApp()\nf()",
        f"def f():\n  d = {GUARD}\n  def g():\n    nonlocal d\n    d = 0\n  g()\n  return ClientApp(mods=[d])\napp=f()",
        f"globals()['LocalDpMod'] = print\napp = ClientApp(mods=[{GUARD}])",
        f"exec('LocalDpMod = print')\napp = ClientApp(mods=[{GUARD}])",
        # Objects and modules whose content is changed.
        f"m = {GUARD}\nm.__dict__['epsilon'] = 1e9\napp = ClientApp(mods=[m])",
        f"m = {GUARD}\nvars(m).update(epsilon=1e9)\napp = ClientApp(mods=[m])",
        f"m = {GUARD}\nobject.__setattr__(m, 'epsilon', 1e9)\napp = ClientApp(mods=[m])",
        f"type.__setattr__(LocalDpMod, '__call__', print)\napp = ClientApp(mods=[{GUARD}])",
        f"import flwr.clientapp.mod as all\nvars(all)['LocalDpMod'] = 1\napp = ClientApp(mods=[all.{GUARD}])",
        f"app = ClientApp(mods=[{GUARD}])\napp._mods.clear()",
        # Lists that are changed by another name, by a function or by another file.
        f"a = b = [{GUARD}]\nb.clear()\napp = ClientApp(mods=a)",
        f"a = [{GUARD}]\nb = a\nb.clear()\napp = ClientApp(mods=a)",
        f"m = [{GUARD}]\ndef strip(given): given.clear()\nstrip(m)\napp = ClientApp(mods=m)",
        "import more\nmore.MODS.clear()\napp = ClientApp(mods=more.MODS)",
        "import more\nmore.MODS = []\napp = ClientApp(mods=more.MODS)",
        "from more import MODS\nimport strips\napp = ClientApp(mods=MODS)",
        f"TYPE_CHECKING = True\napp = ClientApp(mods=[{GUARD}] if not TYPE_CHECKING else [])",
    ],
)
def test_what_may_take_a_guard_away_takes_its_credit(tmp_path: Path, client: str) -> None:
    strips = "import more\nmore.MODS.clear()\n"
    more = {"privacy": "x = 1\n", "more": MORE, **({"strips": strips} if "strips" in client else {})}
    update = app(tmp_path, f"{FRAMEWORK}{client}\n", **more).messages[0]
    assert update.guards == ()
    assert "--defense" not in update.audit


def test_a_guard_under_an_import_that_may_fail_in_two_versions_counts(tmp_path: Path) -> None:
    client = "from flwr.clientapp import ClientApp\ntry:\n  from flwr.clientapp.mod import LocalDpMod\n"
    client += f"except ImportError:\n  from flwr.client.mod import LocalDpMod\napp = ClientApp(mods=[{GUARD}])\n"
    assert len(app(tmp_path, client).messages[0].guards) == 1


def test_a_job_that_a_condition_chooses_has_what_is_added_to_the_chosen(tmp_path: Path) -> None:
    chosen = FED_JOB.replace(
        'job = FedJob(name="j")', 'if input():\n  job = FedJob(name="j")\nelse:\n  job = FedJob(name="k")'
    )
    jobs = scan(written(tmp_path, {"job.py": chosen}))
    assert [(job.name, len(job.messages[0].guards), job.understood) for job in jobs] == [
        ("j", 1, "partly"),
        ("k", 1, "partly"),
    ]


@pytest.mark.parametrize(
    "client",
    [
        "x = 1\n" + "if x: pass\n" + "elif x: pass\n" * 20_000,
        "x = " + "+".join(["1"] * 20_000),
        "m = []\n" + "m = m + [None]\n" * 3_000 + "app = ClientApp(mods=m)",
        "a.b(c)\n" * 100_000,
    ],
)
def test_long_and_deep_source_is_left_with_its_reason(tmp_path: Path, client: str) -> None:
    project = app(tmp_path, f"{FRAMEWORK}{client}\n")
    assert project.understood == "partly"
    assert not project.messages[0].guards
