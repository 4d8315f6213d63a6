"""Card of a dataset: its size, its terms and the origin of its files, known before it is loaded, and their places."""

from __future__ import annotations

import ast
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import platformdirs

from seepage import registry

FOLDER_VARIABLE = "SEEPAGE_DATA"
F = TypeVar("F", bound=Callable[..., object])


@dataclass(frozen=True)
class File:
    """One file that a dataset is read from, by its name in a folder (or gzipped, or in the archives ``inside``).

    The address is that of the file or of an archive with it, None where a licence must be accepted by hand first; the
    digest is that of the unpacked file as published. Archives are named outermost first.
    """

    name: str
    url: str | None = None
    inside: tuple[str, ...] = ()
    sha256: str | None = None


@dataclass(frozen=True)
class DatasetCard:
    """A dataset's card; rows are those of the complete original, cleaned; notes what readers of results must know.

    The width is None where it depends on which rows are used. Bundled and generated data have no files; copies are
    derived or partial ones, read where the original is missing.
    """

    name: str
    rows: int
    columns: int
    width: int | None
    target: str
    source: str
    licence: str
    home: str = ""
    files: tuple[File, ...] = ()
    copies: tuple[File, ...] = ()
    bundled: bool = False
    notes: tuple[str, ...] = ()


_cards: dict[str, DatasetCard] = {}


def dataset(card: DatasetCard) -> Callable[[F], F]:
    """Register the decorated loader and its card, from whose literal values the list of datasets is read unimported."""

    def add(loader: F) -> F:
        registry.datasets.register(card.name)(loader)
        _cards[card.name] = card
        return loader

    return add


def card_of(name: str) -> DatasetCard | None:
    """Return a dataset's card, without importing the dataset's module; None where it has none."""
    kind = next((kind for kind in (registry.datasets, registry.populations) if name in kind), None)
    if name not in _cards and kind is not None:
        module = kind[name].module
        if module is not None:
            values = _constants(registry.source_of(module), module.partition(".")[0])
            cards = [_value(node, values) for node in values.values() if _class_name(node) == "DatasetCard"]
            _cards.update({card.name: card for card in cards if isinstance(card, DatasetCard) and card.name == name})
    return _cards.get(name)


def _constants(tree: ast.Module, package: str) -> dict[str, ast.expr]:
    """Return the expressions of a module's constants, with those that it imports from its own package."""
    imported = {
        alias.asname or alias.name: registry.constants(registry.source_of(node.module)).get(alias.name)
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(f"{package}.")
        for alias in node.names
        if node.module and alias.name.isupper()
    }
    return {**{name: value for name, value in imported.items() if value is not None}, **registry.constants(tree)}


def _class_name(node: ast.expr) -> str | None:
    return node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else None


def _value(node: ast.expr, values: Mapping[str, ast.expr]) -> Any:
    """Return the value of an expression of a card: literals, tuples, constants of the module, files."""
    if isinstance(node, ast.Tuple):
        return tuple(_value(item, values) for item in node.elts)
    factory = {"DatasetCard": DatasetCard, "File": File}.get(_class_name(node) or "")
    if factory is not None and isinstance(node, ast.Call):
        named = {keyword.arg: _value(keyword.value, values) for keyword in node.keywords if keyword.arg}
        return factory(*(_value(item, values) for item in node.args), **named)
    if isinstance(node, ast.Name) and node.id in values:
        return _value(values[node.id], values)
    return ast.literal_eval(node)


def local_folder(folder: str | Path | None = None) -> Path | None:
    """Return the folder to search: the argument, or the one SEEPAGE_DATA names, or None."""
    named = folder if folder is not None else os.environ.get(FOLDER_VARIABLE)
    return Path(named).expanduser() if named else None


def cache_folder() -> Path:
    """Return the platform's cache folder for downloads."""
    return Path(platformdirs.user_cache_dir("seepage")) / "datasets"


def path_of(file: File, folder: Path) -> Path | None:
    """Return the path in ``folder`` that holds ``file``: itself, gzipped, or one of its archives."""
    for name in (file.name, f"{file.name}.gz", *reversed(file.inside)):
        if (folder / name).is_file():
            return folder / name
    return None
