"""Runs the notebooks and stores what they print: `make notebooks`, about four minutes on one core.

python tools/notebooks.py            # all of them
python tools/notebooks.py split      # one
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).resolve().parents[1] / "examples" / "notebooks"
# Seconds after which a cell hangs.
_LIMIT = 1_800


def paths() -> dict[str, Path]:
    """Return the notebooks by setting."""
    return {path.stem: path for path in sorted(FOLDER.glob("*.ipynb"))}


def read(name: str) -> Any:
    """Return a stored notebook."""
    notebook = nbformat.read(paths()[name], as_version=4)
    nbformat.validate(notebook)
    return notebook


def executed(name: str) -> Any:
    """Return a notebook with what its cells print, without times of execution."""
    notebook = read(name)
    with tempfile.TemporaryDirectory() as folder:
        # Nothing of the user's own Jupyter is read or written.
        own = {key: str(Path(folder) / key.lower()) for key in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "IPYTHONDIR")}
        # Where ipywidgets is not installed, a package that seepage uses says so.
        own |= {"PYTHONWARNINGS": "ignore:IProgress not found"}
        own |= {"JUPYTER_RUNTIME_DIR": str(Path(folder) / "runtime"), "JUPYTER_PLATFORM_DIRS": "1"}
        before = dict(os.environ)
        os.environ.update(own)
        try:
            place = {"metadata": {"path": folder}}
            NotebookClient(notebook, timeout=_LIMIT, kernel_name="python3", resources=place).execute()
        finally:
            os.environ.clear()
            os.environ.update(before)
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
    notebook.metadata.pop("language_info", None)
    return notebook


def outputs_of(notebook: Any) -> list[Any]:
    """Return the outputs of all cells."""
    return [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]


def words_of(notebook: Any) -> set[str]:
    """Return the words of all outputs: what does not depend on how a processor rounds."""
    found = set[str]()
    for output in outputs_of(notebook):
        data = output.get("data", {})
        text = output.get("text", "") + re.sub(r"<style.*?</style>|<[^>]+>", " ", data.get("text/html", ""), flags=re.S)
        found |= set(
            re.findall(r"[A-Za-z][a-z_]{3,}", text + ("" if "text/html" in data else data.get("text/plain", "")))
        )
    return found


def main() -> None:
    """Run notebooks and store them with their outputs."""
    for name in sys.argv[1:] or paths():
        notebook = executed(name)
        nbformat.write(notebook, paths()[name])
        print(f"{name}: {len(outputs_of(notebook))} outputs, {paths()[name].stat().st_size / 1024:.0f} kB", flush=True)


if __name__ == "__main__":
    main()
