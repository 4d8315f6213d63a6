"""Digests of the code that determines figures, beside data and settings."""

from __future__ import annotations

import functools
import hashlib
import inspect
import sys
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from types import CodeType
from typing import TYPE_CHECKING

from seepage.digests import Json, attributes_of, digest_of, plain
from seepage.lazy import LazyModule

if TYPE_CHECKING:
    import torch
else:
    torch = LazyModule("torch")

_PACKAGE = Path(__file__).parent
# Reports and the command line change no figure.
_DETERMINING = (
    *("tabular", "models", "shadow", "datasets", "wire", "protocols", "defenses", "attacks", "baselines"),
    *("assessment", "settings", "papers", "learning.py", "seeds.py"),
)


@cache
def own_code() -> dict[str, str]:
    """Return a digest of the source files that determine figures, and PyTorch's version.

    Victims measured by other code are measured again: a version number does not change with every correction, but
    figures may.
    """
    digest = hashlib.sha256()
    for name in _DETERMINING:
        place = _PACKAGE / name
        for file in sorted(place.rglob("*.py")) if place.is_dir() else [place]:
            digest.update(file.relative_to(_PACKAGE).as_posix().encode())
            digest.update(file.read_bytes())
    return {"digest": digest.hexdigest()[:16], "torch": torch.__version__}


def foreign_code(factory: Callable[..., object]) -> str | None:
    """Return a digest of the source file of a part that another package adds, None for seepage's own."""
    file = getattr(sys.modules.get(getattr(factory, "__module__", "")), "__file__", None)
    if file is None or not Path(file).is_file() or _PACKAGE in Path(file).parents:
        return None
    return hashlib.sha256(Path(file).read_bytes()).hexdigest()[:16]


class NoDigestError(Exception):
    """An object whose computation has no digest; ``what`` is the reason, as the end of a sentence."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what


def fingerprint(passed: object) -> str:
    """Return a digest of all that a caller's object computes with: source files of its classes, and its values."""
    return digest_of({"object": _values(passed, ())})


def _values(value: object, inside: tuple[int, ...]) -> Json:
    if id(value) in inside:
        raise NoDigestError(f"{type(value).__name__} holds itself")
    inside = (*inside, id(value))
    if value is None or isinstance(value, bool | int | float | str | bytes):
        return value.hex() if isinstance(value, bytes) else value
    if isinstance(value, Mapping):
        return [[_values(key, inside), _values(item, inside)] for key, item in value.items()]
    if isinstance(value, list | tuple):
        return [_values(item, inside) for item in value]
    if isinstance(value, set | frozenset):
        return sorted((_values(item, inside) for item in value), key=repr)
    if isinstance(value, type):
        return _source(value)
    if isinstance(value, functools.partial):
        return ["partial", *(_values(item, inside) for item in (value.func, value.args, value.keywords))]
    if inspect.ismethod(value):
        return [value.__name__, _values(value.__self__, inside)]
    if inspect.isbuiltin(value):
        return f"{value.__module__}.{value.__qualname__}"
    if inspect.isfunction(value):
        cells = [cell.cell_contents for cell in value.__closure__ or ()]
        # Functions of one file differ by their code, whatever they are called.
        contents = [_code(value.__code__), cells, value.__defaults__, value.__kwdefaults__]
        return [_source(value), *(_values(item, inside) for item in contents)]
    if isinstance(value, torch.dtype | torch.device | Path):
        return str(value)
    if isinstance(value, torch.Tensor):
        return plain(value.detach().cpu())
    if type(value).__module__.partition(".")[0] == "numpy":
        return plain(value)
    slots = [name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ()) if hasattr(value, name)]
    # Attributes outside of slots follow, without what was computed from others.
    slots = [name for name in slots if name != "__dict__"]
    if not hasattr(value, "__dict__") and not slots:
        raise NoDigestError(f"{type(value).__name__} has no values that could be compared")
    attributes = {**{name: getattr(value, name) for name in slots}, **attributes_of(value)}
    kinds = [_source(kind) for kind in type(value).__mro__ if kind.__module__ != "builtins"]
    return [*kinds, {name: _values(item, inside) for name, item in sorted(attributes.items())}]


def _code(code: CodeType) -> list[object]:
    constants = [_code(constant) if isinstance(constant, CodeType) else constant for constant in code.co_consts]
    return [code.co_code, list(code.co_names), constants]


def _source(defined: type | Callable[..., object]) -> Json:
    """Return name and file of a class or function; its file is read again at each call, as it may have changed."""
    name = f"{defined.__module__}.{defined.__qualname__}"
    file = getattr(sys.modules.get(defined.__module__), "__file__", None)
    if file is None or not Path(file).is_file():
        raise NoDigestError(f"{defined.__qualname__} is defined in no file")
    return [name, hashlib.sha256(Path(file).read_bytes()).hexdigest()[:16]]
