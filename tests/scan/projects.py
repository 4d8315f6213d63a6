"""Small projects of Flower, as files in a folder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from seepage.scan import ScannedProject, scan

SETTINGS = '[project]\nname = "app"\n[tool.flwr.app.components]\nserverapp = "server:app"\nclientapp = "client:app"\n'
SERVER = "from flwr.serverapp.strategy import FedAvg\ns = FedAvg()\n"


def written(folder: Path, files: Mapping[str, str | dict[str, Any]]) -> Path:
    """Write files, those of plain values as JSON, and return their folder."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content))
    return folder


def app(folder: Path, client: str, server: str = "", **more: str) -> ScannedProject:
    """Return what a scan finds of a Flower app; ``more`` are modules, ``__`` stands for a folder."""
    others = {f"{name.replace('__', '/')}.py": text for name, text in more.items()}
    files = {"pyproject.toml": SETTINGS, "client.py": client, "server.py": server or SERVER, **others}
    [project] = scan(written(folder, files))
    return project
