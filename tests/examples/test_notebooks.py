"""The notebooks run from top to bottom, and are stored without what they print."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from seepage.settings.catalogue import settings
from seepage.settings.option import fields_of
from tests.processes import HANGS

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = {path.stem: path for path in sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))}


def read(name: str) -> Any:
    notebook = nbformat.read(NOTEBOOKS[name], as_version=4)
    nbformat.validate(notebook)
    return notebook


def test_every_setting_has_one() -> None:
    assert NOTEBOOKS.keys() == {name for name, one in settings().items() if one.spec.__module__.startswith("seepage.")}


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_they_are_stored_without_outputs(name: str) -> None:
    for cell in read(name).cells:
        if cell.cell_type == "code":
            assert (cell.outputs, cell.execution_count) == ([], None)
    assert "/" + "work/" not in NOTEBOOKS[name].read_text(encoding="utf-8")


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_options_that_texts_name_exist(name: str) -> None:
    known = {*fields_of(settings()[name].spec), "defenses", "attacks", "dataset", "target"}
    texts = [cell.source for cell in read(name).cells if cell.cell_type == "markdown"]
    spans = [span for text in texts for span in re.findall(r"`([^`]+)`", text)]
    named = {option for span in spans for option in re.findall(r"\b(\w+)=", span)}
    assert named
    assert named - known <= {"below"}
    # Figures change with every version: they belong to outputs.
    assert not [found for text in texts for found in re.findall(r"\d+(?:\.\d+)? ?%", text.replace("95% interval", ""))]


@pytest.mark.slow
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_they_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Nothing of the user's own Jupyter is read or written.
    for variable in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR"):
        monkeypatch.setenv(variable, str(tmp_path / variable.lower()))
    monkeypatch.setenv("JUPYTER_PLATFORM_DIRS", "1")
    notebook = read(name)
    NotebookClient(
        notebook, timeout=int(HANGS), kernel_name="python3", resources={"metadata": {"path": tmp_path}}
    ).execute()
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    shown = {kind for output in outputs for kind in output.get("data", {})}
    assert "text/html" in shown
    assert any("<svg" in output.get("data", {}).get("text/html", "") for output in outputs)
    # What a reader would see as trouble.
    said = [output.text for output in outputs if output.get("name") == "stderr"]
    # Where ipywidgets is not installed, a package that seepage uses says so.
    assert [text for text in said if "IProgress not found" not in text] == []
    assert any("<th>lift</th>" in output.get("data", {}).get("text/html", "") for output in outputs)
