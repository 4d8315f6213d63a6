"""The invented setting, plugged in for the tests that use it and for no others of the same process."""

from __future__ import annotations

from typing import Any

import pytest

from seepage import registry
from seepage.settings import catalogue
from tests.settings import fifth

NAME = fifth.CoinSpec.setting


def _parts() -> list[tuple[dict[Any, Any], Any]]:
    """Return where the plug-in registered something, and under which name."""
    kinds = (registry.attacks, registry.baselines, registry.defenses)
    found: list[tuple[dict[Any, Any], Any]] = [(kind._entries, key) for kind in kinds for key in kind._entries]
    found = [(entries, key) for entries, key in found if key[0] == NAME]
    return [*found, (catalogue._SETTINGS, NAME)]


# Other tests of the same process know nothing of this setting.
_PARTS = [(entries, key, entries.pop(key)) for entries, key in _parts() if key in entries]


@pytest.fixture
def plugged_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """The setting, known while a test runs."""
    for entries, key, value in _PARTS:
        monkeypatch.setitem(entries, key, value)
