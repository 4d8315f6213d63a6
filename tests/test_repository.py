"""What holds for the repository as a whole."""

from __future__ import annotations

import ast
import importlib
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

from seepage import registry

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "seepage"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

# Bracketed letters keep the patterns from finding themselves.
FOREIGN = re.compile(
    r"(?<![\w.])/(?:[w]ork|[r]oot|[h]ome|[U]sers|[t]mp/bash)/"
    r"|py[p]i\.org|py[t]honhosted|down[l]oad\.pytorch|[a]naconda\.(?:org|com)|[n]pmjs|[c]rates\.io|[h]uggingface\.co"
)


def committed_files() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("not a git checkout, so what is committed is not known")
    return [path for name in listed.stdout.split("\0") if name and (path := ROOT / name).is_file()]


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts).removesuffix(".__init__")


def modules() -> list[str]:
    return sorted(name_of(path) for path in SOURCE.rglob("*.py") if path.stem != "__main__")


def text_of(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return None


def foreign(text: str) -> list[str]:
    return [found.group() for found in FOREIGN.finditer(text)]


def test_the_search_for_foreign_names_finds_them() -> None:
    assert foreign("see /" + "work/main and /" + "home/me/data") == ["/" + "work/", "/" + "home/"]
    assert foreign("https://py" + "pi.org/simple") == ["py" + "pi.org"]
    assert not foreign("src/home/x.py, the framework/main.py and https://archive.ics.uci.edu/dataset/2")


def test_no_committed_file_names_a_machine_path_or_a_package_registry() -> None:
    found = {
        str(path.relative_to(ROOT)): names for path in committed_files() if (names := foreign(text_of(path) or ""))
    }
    assert found == {}


def test_committed_files_are_small() -> None:
    sizes = {str(path.relative_to(ROOT)): path.stat().st_size for path in committed_files()}
    assert {name: size for name, size in sizes.items() if size > 2_000_000} == {}


@pytest.mark.parametrize("name", modules())
def test_every_exported_name_exists(name: str) -> None:
    module = importlib.import_module(name)
    exported = getattr(module, "__all__", [])
    assert [export for export in exported if not hasattr(module, export)] == []
    assert len(set(exported)) == len(exported)


KINDS = ("datasets", "populations", "models", "protocols", "attacks", "baselines", "metrics", "defenses")


@pytest.mark.parametrize("kind", KINDS)
def test_every_registered_part_says_what_it_is(kind: str) -> None:
    entries = getattr(registry, kind).entries()
    assert entries
    for entry in entries:
        assert re.fullmatch(r"[a-z][a-z0-9_]*", entry.name)
        # A dataclass without a docstring gets its signature as one.
        assert entry.summary
        assert not entry.summary.startswith(f"{entry.factory.__name__}(")
        # Who published an attack, or that nobody did, stands in lists and reports.
        assert kind != "attacks" or entry.source is not None, entry.name
        assert entry.source is None or not re.search(r"Deviations|``|\*", entry.source), entry.name
        assert kind != "defenses" or entry.name == "none" or entry.factory.words, entry.name


def test_every_part_that_a_module_registers_is_declared_by_its_package() -> None:
    """A part whose line was forgotten would exist and yet be unknown by name."""
    packages = ["datasets", "models", "protocols", "attacks", "baselines", "assessment", "defenses", "papers"]
    registers = {
        name_of(path)
        for package in packages
        for path in (SOURCE / package).rglob("*.py")
        if re.search(r"^@(?:[\w.]+\.register|dataset)\(", path.read_text(encoding="utf-8"), re.MULTILINE)
    }
    declared = {entry.module for kind in KINDS for entry in getattr(registry, kind).entries()}
    assert len(registers) > len(packages)
    assert registers == declared - {None}


@pytest.mark.parametrize("package", ["attacks", "baselines", "papers/*/attacks"])
def test_attacks_and_baselines_do_not_fetch_data_through_the_registry(package: str) -> None:
    """The import contract sees modules, not names: the registry would be a way around it."""
    paths = [path for folder in SOURCE.glob(package) for path in folder.rglob("*.py")]
    assert paths
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module == "seepage.registry":
                known = {
                    "Attack",
                    "Need",
                    "Registry",
                    "Traits",
                    "attacks",
                    "baselines",
                    "reporting",
                    "takes",
                    "views_taken",
                }
                assert {alias.name for alias in node.names} <= known, path
            if isinstance(node, ast.ImportFrom) and node.module == "seepage":
                assert "registry" not in {alias.name for alias in node.names}, path
            if isinstance(node, ast.Import):
                assert "seepage.registry" not in {alias.name for alias in node.names}, path


def test_versions_agree() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    newest = re.search(r"^## (\d+\.\d+\.\d+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert newest
    assert citation["version"] == PROJECT["version"] == newest.group(1)
    assert citation["license"] == PROJECT["license"]


def pins(*names: str) -> dict[str, str]:
    lines = [line for name in names for line in (ROOT / name).read_text(encoding="utf-8").splitlines() if "==" in line]
    return dict(line.split("==") for line in lines)


@pytest.mark.parametrize("extra", ["constraints-newest.txt", "constraints-flower.txt"])
def test_every_direct_dependency_is_pinned_within_its_bound(extra: str) -> None:
    shared, own = pins("constraints.txt"), pins(extra)
    assert not shared.keys() & own.keys()
    flower = extra == "constraints-flower.txt"
    needed = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["dev"]]
    asked = dict(re.split(r">=|,", requirement)[:2] for requirement in needed)
    federation = {"flwr", "nvflare"}
    assert set(asked) - federation <= {*shared, *own}
    assert own.keys() == {"rich", "typer"} | ({*federation, "click"} if flower else set())
    assert {**shared, **own}.keys() - {"click"} <= set(asked)
    for name, version in {**shared, **own}.items():
        if name in asked:
            numbers = [[int(part) for part in one.split(".")] for one in (asked[name], version)]
            assert numbers[0] <= numbers[1], name


def test_documents_name_only_targets_that_the_makefile_has() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    documents = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    named = {
        (document.name, target)
        for document in documents
        for target in re.findall(r"(?:^ {4}|`)make ([a-z-]+)", document.read_text(encoding="utf-8"), re.MULTILINE)
    }
    assert ("README.md", "audit") in named
    assert {(name, target) for name, target in named if target not in targets} == set()


def test_links_between_documents_lead_somewhere() -> None:
    for document in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]:
        for link in re.findall(r"\]\(([^)#]+)", document.read_text(encoding="utf-8")):
            assert "://" in link or (document.parent / link).exists(), f"{document.name}: {link}"


def test_what_is_quick_is_there_and_named_for_contributors() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    lists = re.findall(r"^QUICK\w* := ((?:.*\\\n)*.*)$", makefile, re.MULTILINE)
    named = " ".join(lists).replace("\\\n", " ").split()
    assert len(lists) == 2
    assert len(named) >= 5
    assert [name for name in named if not (ROOT / name).exists()] == []
    assert "make quick" in (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def test_metadata_names_the_versions_of_python_that_are_run() -> None:
    named = [one.rsplit(" ", 1)[1] for one in PROJECT["classifiers"] if re.search(r":: Python :: 3\.\d+$", one)]
    assert PROJECT["requires-python"] == f">={named[0]}"
    # The suite runs on the first. A version is added once an audit of every setting has run on it (test_install.py).
    assert named == ["3.11", "3.12", "3.13"]


@pytest.mark.parametrize("minor", [12, 13])
def test_newer_interpreters_that_are_installed_compile_every_module(minor: int, tmp_path: Path) -> None:
    name = f"python3.{minor}"
    found = [one for one in (shutil.which(name), *_of_pyenv(minor)) if one is not None and _answers(one)]
    if not found:
        pytest.skip(f"no {name} on this machine")
    command = [found[0], "-W", "error", "-X", f"pycache_prefix={tmp_path}", "-m", "compileall", "-q", str(SOURCE)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, ""), done.stdout


def _of_pyenv(minor: int) -> list[str]:
    return [str(path) for path in sorted(Path.home().glob(f".pyenv/versions/3.{minor}.*/bin/python"))]


def _answers(interpreter: str) -> bool:
    # What a version manager puts on the path may only say that it is not switched on.
    return subprocess.run([interpreter, "-c", ""], capture_output=True, check=False).returncode == 0
