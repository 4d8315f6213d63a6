"""Packages that are imported late, since they take seconds to load; their versions; and those of extras."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import ModuleType

from seepage.errors import BadInputError


class _Package(ModuleType):
    """A package whose names are imported on first use, each by its module and name; a module has no name."""

    _origins: dict[str, tuple[str, str | None]]

    def __getattr__(self, name: str) -> object:
        if name not in self.__dict__.get("_origins", {}):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        module, inner = self._origins[name]
        value = import_module(module) if inner is None else getattr(import_module(module), inner)
        self.__dict__[name] = value
        return value

    def __setattr__(self, name: str, value: object) -> None:
        # Importing a submodule sets it here; a public function of the same name takes precedence.
        submodule = isinstance(value, ModuleType) and value.__name__ == f"{self.__name__}.{name}"
        if submodule and self._origins.get(name, (None, None))[1] is not None:
            return
        super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self._origins})


def lazy_package(name: str) -> None:
    """Import the public names of a package on first use: those in its block ``if TYPE_CHECKING:``.

    Type checkers and readers see ordinary imports, and there is no second list of them.
    """
    package = sys.modules[name]
    assert package.__file__ is not None
    origins: dict[str, tuple[str, str | None]] = {}
    for node in ast.parse(Path(package.__file__).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            for imported in (inner for inner in node.body if isinstance(inner, ast.ImportFrom)):
                for alias in imported.names:
                    # ``from package import name`` within the package is one of its modules.
                    inside, module = imported.module == name, imported.module or ""
                    origin = (f"{module}.{alias.name}", None) if inside else (module, alias.name)
                    origins[alias.asname or alias.name] = origin
    package.__dict__["_origins"] = origins
    package.__class__ = _Package


class LazyModule:
    """A module that is imported on first use of an attribute.

    Give type checkers the real one: ``if TYPE_CHECKING: import torch``, ``else: torch = LazyModule("torch")``.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> object:
        return getattr(import_module(self._name), attribute)


class MissingExtraError(BadInputError, ImportError):
    """A package of an extra is missing, or its version cannot be used."""


@contextmanager
def extra(name: str, program: str, *packages: str) -> Iterator[None]:
    """Turn failing imports of another program's packages, its own first, into advice on what to install."""
    try:
        yield
    except ImportError as error:
        if (error.name or "").partition(".")[0] not in packages:
            raise
        what = "is not installed"
        if not isinstance(error, ModuleNotFoundError):
            what = f"{installed(packages[0])} cannot be used ({' '.join(str(error).split())})"
        raise MissingExtraError(f"{program} {what}; pip install 'seepage[{name}]'.") from error


def installed(name: str) -> str | None:
    """Return the version of an installed distribution; None where it runs without being installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None
