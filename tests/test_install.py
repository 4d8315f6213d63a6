"""What is installed works on its own: the wheel without the checkout, every named Python, and no extra by accident."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.processes import HANGS
from tests.smoke import COMMANDS, SETTINGS, smoke

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
# Modules of the packages of each extra; what only tests import has none.
MODULES = {
    "xgboost-cpu": "xgboost",
    "pillow": "PIL",
    "scikit-image": "skimage",
    "rtdl-num-embeddings": "rtdl_num_embeddings",
    "rtdl-revisiting-models": "rtdl_revisiting_models",
    "tabm": "tabm",
    "flwr": "flwr",
    "nvflare": "nvflare",
    "dask": "dask",
    "distributed": "distributed",
    "torch-geometric": "torch_geometric",
}
EXTRAS = {
    name: [MODULES[re.split(r"[<>=]", requirement)[0]] for requirement in requirements]
    for name, requirements in PROJECT["optional-dependencies"].items()
    if name != "dev"
}


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the wheel is installed; without a network, nothing can be built."""
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    built = _run(*pip, "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, ROOT)
    if built.returncode and re.search("No module named pip|No matching distribution|Connection", built.stderr):
        pytest.skip("no network, or no pip, to build with")
    assert built.returncode == 0, built.stderr
    [wheel] = folder.glob("*.whl")
    done = _run(*pip, "install", "--quiet", "--no-deps", "--target", folder / "site", wheel)
    assert done.returncode == 0, done.stderr
    return folder / "site"


def _run(*command: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=HANGS, check=False)


@pytest.mark.slow
def test_the_wheel_runs_every_setting_without_a_file_of_the_checkout(installed: Path, tmp_path: Path) -> None:
    opened, statuses, package, printed = smoke(sys.executable, installed, tmp_path, ROOT, ROOT / ".venv")
    assert package == installed / "seepage", printed
    assert statuses == {command[0]: 0 for command in COMMANDS}, printed
    assert opened == []
    for name in SETTINGS:
        assert json.loads((tmp_path / name / "results.json").read_text(encoding="utf-8"))["rows"]
        assert "<html" in (tmp_path / name / "report.html").read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_wheel_holds_every_file_of_the_package_that_is_committed(installed: Path) -> None:
    listed = _run("git", "-C", ROOT, "ls-files", "src/seepage")
    if listed.returncode:
        pytest.skip("not a git checkout, so what is committed is not known")
    names = [Path(line).relative_to("src") for line in listed.stdout.splitlines() if (ROOT / line).exists()]
    assert len(names) > 300
    assert [name for name in names if not (installed / name).is_file()] == []
    # Some of its texts are pages of the documentation.
    assert (installed / "seepage" / "results" / "checks" / "checks.md").is_file()


@pytest.mark.parametrize("minor", [12, 13])
def test_newer_interpreters_run_every_setting(minor: int, tmp_path: Path) -> None:
    """Run where ``make install PYTHON=python3.12 VENV=.venv-3.12`` was, for example."""
    python = ROOT / f".venv-3.{minor}" / "bin" / "python"
    if not python.exists():
        pytest.skip(f"no environment .venv-3.{minor}")
    _, statuses, package, printed = smoke(python, ROOT / "src", tmp_path)
    assert package == ROOT / "src" / "seepage"
    assert statuses == {command[0]: 0 for command in COMMANDS}, printed


def test_extras_and_the_tools_that_test_them_agree() -> None:
    dev = {re.split(r"[<>=]", one)[0] for one in PROJECT["optional-dependencies"]["dev"]}
    # A test of graphs is skipped without it, and it is large.
    assert set(MODULES) - dev == {"torch-geometric"}
    assert all(EXTRAS.values())
    required = {re.split(r"[<>=]", one)[0] for one in PROJECT["dependencies"]}
    assert required.isdisjoint(MODULES)


@pytest.mark.parametrize("arguments", [["--help"], ["audit", "--help"], ["trees", "--help"], ["attacks"], ["models"]])
def test_no_extra_is_imported_before_it_is_used(arguments: list[str]) -> None:
    modules = sorted({module for several in EXTRAS.values() for module in several})
    program = f"""
import sys
# As where none of them is installed.
sys.modules.update(dict.fromkeys({modules!r}))
from seepage.cli import main
main()
"""
    done = _run(sys.executable, "-c", program, *arguments)
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_an_audit_needs_no_extra_and_one_that_does_names_it(tmp_path: Path) -> None:
    modules = sorted({module for several in EXTRAS.values() for module in several})
    program = f"""
import sys
sys.modules.update(dict.fromkeys({modules!r}))
import seepage
from seepage import BadInputError
for name in seepage.__all__:
    getattr(seepage, name)
options = dict(attacks="dlg", batch_sizes=1, victims=1, iterations=1, control=False, workers=1)
assert seepage.audit("german", **options).rows
for name in ("tabm", "rtdl_resnet", "ft_transformer"):
    try:
        seepage.audit("german", model=name, **options)
    except BadInputError as error:
        print(error)
from importlib import import_module
for module in ("flower", "nvflare", "dask"):
    try:
        import_module("seepage.integrations." + module)
    except BadInputError as error:
        print(error)
from seepage.cli import main
sys.argv = ["seepage", "trees", "--dataset", "german", "--rows", "50", "--no-control", "--workers", "1"]
try:
    main()
except SystemExit as stopped:
    print("status", stopped.code)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path, timeout=HANGS, check=False
    )
    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()
    for line, extra in zip(said, [*["architectures"] * 3, "flower", "nvflare", "dask"], strict=False):
        assert f"seepage[{extra}]" in line
    assert said[-1] == "status 2"
    assert "xgboost is not installed; pip install 'seepage[trees]'" in done.stderr
