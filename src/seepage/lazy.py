"""Lazy imports: PyTorch and pandas take seconds to load, and commands that list names or print help need neither."""

from __future__ import annotations

import ast
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType


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
