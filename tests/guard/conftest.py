from __future__ import annotations

import itertools
from importlib import import_module
from types import SimpleNamespace

import pytest


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock on which two milliseconds pass at each look: no answer of a guard depends on the speed of the machine."""
    looks = itertools.count()
    for name in ("seepage.guard.update_guard", "seepage.attacks.horizontal.matching.starts"):
        monkeypatch.setattr(import_module(name), "time", SimpleNamespace(monotonic=lambda: 0.002 * next(looks)))
