"""The product without the papers, and the papers as the plug-in that they are."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from seepage import registry

ROOT = Path(__file__).resolve().parents[2]
HEADINGS = {"tableak": "TabLeak", "exact": "EXACT", "uifv": "UIFV", "property": "dataset properties"}
KINDS = ("attacks", "defenses", "models", "datasets", "populations")
# What audits run by default and what presets name is there without the papers.
ALONE = """
import sys
from pathlib import Path
from seepage import registry
found = registry.entry_points
registry.entry_points = lambda group: found(group=group) if group == "seepage.built_in" else ()
from seepage.config.document import presets, read_preset, read_text_document
from seepage.settings.catalogue import settings
from seepage.settings.horizontal.spec import make_spec
for name in presets():
    read_text_document(read_preset(name), name, Path())
specs = [settings()[name].spec(**fields) for name, fields in {
    "split": {"private_columns": ("sex",)}, "vertical": {}, "pooled": {}, "trees": {}}.items()]
for spec in [make_spec(), *specs, settings()["pooled"].spec(protocol="update")]:
    for kind in ("attacks", "baselines", "defenses"):
        known = getattr(registry, kind).of(spec.setting)
        assert all(known[part.name].factory for part in getattr(spec, kind)), (spec.setting, kind)
    assert registry.datasets[spec.dataset].factory
assert "lawschool" not in registry.datasets
print(*(name for name in sys.modules if name.startswith("seepage.papers")))
"""


def test_the_package_does_without_the_papers() -> None:
    done = subprocess.run([sys.executable, "-c", ALONE], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.split()) == (0, []), done.stderr


def test_they_come_in_by_entry_points_as_any_plug_in_does() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    declared = {group: set(points.values()) for group, points in project["entry-points"].items()}
    # What the package itself has is no plug-in.
    del declared["seepage.built_in"]
    assert declared == {f"seepage.{kind}": {"seepage.papers"} for kind in KINDS}
    installed = {
        group: {point.value for point in entry_points(group=group) if point.dist and point.dist.name == "seepage"}
        for group in declared
    }
    assert installed == declared, "the installed package is older than pyproject.toml; install it again"
    package = ROOT / "src" / "seepage"
    for path in package.rglob("*.py"):
        assert "papers" in path.relative_to(package).parts or "seepage.papers" not in path.read_text(encoding="utf-8")


def test_a_name_of_a_paper_is_taken_before_it_is_loaded() -> None:
    program = "from seepage import registry; registry.attacks.register('sqr', 'horizontal')(lambda: 0)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "attack 'sqr' is registered twice" in done.stderr


@pytest.mark.parametrize("kind", KINDS)
def test_parts_of_papers_are_under_their_paper(kind: str) -> None:
    entries = getattr(registry, kind).entries()
    of_papers = [entry for entry in entries if (entry.module or "").startswith("seepage.papers.")]
    assert of_papers
    for entry in of_papers:
        folder = entry.module.split(".")[2]
        assert HEADINGS[folder] in entry.heading, entry.name
    assert {entry.heading for entry in entries if entry not in of_papers} <= {None}
