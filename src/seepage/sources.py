"""What the figures depend on besides data and settings: the code that makes them."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import torch

_PACKAGE = Path(__file__).parent
# What reports and the command line do with figures changes none of them.
_DETERMINING = (
    *("tabular", "models", "shadow", "datasets", "wire", "protocols", "defenses", "attacks", "baselines"),
    *("assessment", "settings", "learning.py", "seeds.py"),
)


@cache
def own_code() -> dict[str, str]:
    """Return a digest of the source files that determine figures, and PyTorch's version.

    Victims measured by other code are measured again: a version number does not change with every
    correction, figures may.

    Example:
        >>> sorted(own_code())
        ['digest', 'torch']
    """
    digest = hashlib.sha256()
    for name in _DETERMINING:
        place = _PACKAGE / name
        for file in sorted(place.rglob("*.py")) if place.is_dir() else [place]:
            digest.update(file.relative_to(_PACKAGE).as_posix().encode())
            digest.update(file.read_bytes())
    return {"digest": digest.hexdigest()[:16], "torch": torch.__version__}


def foreign_code(factory: Callable[..., Any]) -> str | None:
    """Return a digest of the source file of a part that another package adds, None for seepage's own.

    Example:
        >>> foreign_code(own_code) is None
        True
    """
    file = getattr(sys.modules.get(getattr(factory, "__module__", "")), "__file__", None)
    if file is None or not Path(file).is_file() or _PACKAGE in Path(file).parents:
        return None
    return hashlib.sha256(Path(file).read_bytes()).hexdigest()[:16]
