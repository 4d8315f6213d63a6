"""Presets: audit documents that are part of the package."""

from __future__ import annotations

from importlib import resources

from seepage.errors import unknown_name

_SUFFIX = ".yaml"
_FOLDER = resources.files("seepage.config") / "presets"


def presets() -> dict[str, str]:
    """Return the presets' names with a line each that says what they are."""
    names = sorted(file.name.removesuffix(_SUFFIX) for file in _FOLDER.iterdir() if file.name.endswith(_SUFFIX))
    return {name: _text(name).split("\n", 1)[0].removeprefix("#").strip() for name in names}


def read_preset(name: str) -> str:
    """Return the document of a preset."""
    files = presets()
    if name not in files:
        raise unknown_name("preset", name, files)
    return _text(name)


def _text(name: str) -> str:
    return (_FOLDER / f"{name}{_SUFFIX}").read_text("utf-8")
