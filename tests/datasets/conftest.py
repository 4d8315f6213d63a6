"""Where the real files lie: SEEPAGE_DATA, or shared/data beside the checkout."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def nothing_from_outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give every test an empty cache and no standing data folder; return the cache's root."""
    monkeypatch.delenv("SEEPAGE_DATA", raising=False)
    for variable in ("XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.setenv(variable, str(tmp_path / "cache"))
    return tmp_path / "cache"


REAL = os.environ.get("SEEPAGE_DATA") or str(Path(__file__).parents[3] / "shared" / "data")


@pytest.fixture
def real() -> Callable[[str], Path]:
    """Return what gives the folder of real files if it has the one named, and skips the test otherwise."""

    def folder_with(name: str) -> Path:
        if not (Path(REAL) / name).is_file():
            pytest.skip(f"no {name} at hand: set SEEPAGE_DATA to a folder that has it")
        return Path(REAL)

    return folder_with
