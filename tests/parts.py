"""Parts that a test registers for as long as it runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from seepage.registry import Entry, Need, Registry
from seepage.settings.horizontal.spec import HorizontalSpec
from seepage.settings.spec import Spec


def register(
    patch: pytest.MonkeyPatch,
    registry: Registry[Any],
    name: str,
    factory: Callable[..., object],
    setting: str | None = None,
    needs: tuple[Need, ...] = (),
) -> None:
    """Register a factory until the patch is undone; one that has the name already gives way."""
    patch.setitem(registry._entries, (setting, name), Entry(registry.kind, name, setting, factory.__module__))
    registry.register(name, setting, needs)(factory)


def horizontal(specs: Sequence[Spec]) -> list[HorizontalSpec]:
    """Return the specs of documents that are all about horizontal learning."""
    found = [spec for spec in specs if isinstance(spec, HorizontalSpec)]
    assert len(found) == len(specs)
    return found
