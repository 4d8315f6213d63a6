"""Where the real files lie: SEEPAGE_DATA, or shared/data beside the checkout."""

from __future__ import annotations

import os
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
def real() -> Path:
    folder = Path(REAL)
    if not folder.is_dir():
        pytest.skip("no folder of real data: set SEEPAGE_DATA to one")
    return folder
