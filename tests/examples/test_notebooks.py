"""The notebooks run from top to bottom, and are stored with what they print."""

from __future__ import annotations

import re
from typing import Any

import pytest

import notebooks
from seepage.settings.catalogue import settings
from seepage.settings.option import fields_of

NOTEBOOKS = notebooks.paths()


def shown(notebook: Any) -> set[str]:
    """Return the kinds of outputs."""
    return {kind for output in notebooks.outputs_of(notebook) for kind in output.get("data", {})}


def test_every_setting_has_one() -> None:
    assert NOTEBOOKS.keys() == {name for name, one in settings().items() if one.spec.__module__.startswith("seepage.")}


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_they_are_stored_with_what_they_print(name: str) -> None:
    notebook = notebooks.read(name)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == [*range(1, len(code) + 1)]
    assert "text/html" in shown(notebook)
    text = NOTEBOOKS[name].read_text(encoding="utf-8")
    assert not re.search(r"/(?:work|tmp|home|root)/", text)
    assert len(text) < 200_000
    assert not [output for output in notebooks.outputs_of(notebook) if output.output_type == "error"]


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_options_that_texts_name_exist(name: str) -> None:
    known = {*fields_of(settings()[name].spec), "defenses", "attacks", "dataset", "target"}
    texts = [cell.source for cell in notebooks.read(name).cells if cell.cell_type == "markdown"]
    spans = [span for text in texts for span in re.findall(r"`([^`]+)`", text)]
    named = {option for span in spans for option in re.findall(r"\b(\w+)=", span)}
    assert named
    assert named - known <= {"below"}
    # Figures change with every version: they belong to outputs.
    assert not [found for text in texts for found in re.findall(r"\d+(?:\.\d+)? ?%", text.replace("95% interval", ""))]


@pytest.mark.slow
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_they_run_and_print_what_is_stored(name: str) -> None:
    notebook = notebooks.executed(name)
    outputs = notebooks.outputs_of(notebook)
    assert "text/html" in shown(notebook)
    assert any("<svg" in output.get("data", {}).get("text/html", "") for output in outputs)
    # What a reader would see as trouble.
    assert [output.text for output in outputs if output.get("name") == "stderr"] == []
    assert any("<th>lift</th>" in output.get("data", {}).get("text/html", "") for output in outputs)
    # Figures may be others where a processor rounds otherwise; what is said about them is not.
    stored, today = notebooks.words_of(notebooks.read(name)), notebooks.words_of(notebook)
    assert len(stored ^ today) <= 0.1 * len(stored), stored ^ today
