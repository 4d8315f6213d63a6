"""Versions of installed distributions."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version


def installed(name: str) -> str | None:
    """Return the version of an installed distribution; None where it runs without being installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None
