"""Parts that a test registers for as long as it runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from seepage.registry import Entry, Registry


def register(
    patch: pytest.MonkeyPatch,
    registry: Registry[Any],
    name: str,
    factory: Callable[..., object],
    setting: str | None = None,
) -> None:
    """Register a factory until the patch is undone; one that has the name already gives way."""
    patch.setitem(registry._entries, (setting, name), Entry(registry.kind, name, setting, factory.__module__))
    registry.register(name, setting)(factory)
