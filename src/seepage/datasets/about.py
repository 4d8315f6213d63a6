"""Card of a dataset: its size, its terms and the origin of its files, known before it is loaded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from seepage import registry

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class File:
    """One file that a dataset is read from.

    Attributes:
        name: name of the file, under which it is searched for in a folder (also gzipped, and inside the archives of
            ``inside``).
        url: the official address of the file or of an archive that holds it; None where a licence
            must be accepted by hand first.
        inside: names of zip archives that may hold the file, outermost first.
        sha256: digest of the unpacked file as published; None where it is not known.
    """

    name: str
    url: str | None = None
    inside: tuple[str, ...] = ()
    sha256: str | None = None


@dataclass(frozen=True)
class About:
    """A dataset's card.

    Attributes:
        name: registered name.
        rows: number of rows after cleaning, of the complete original.
        columns: number of columns without the target.
        width: number of encoded columns; None where it depends on which rows are used.
        target: the target column.
        source: reference to the origin.
        licence: terms of use, as far as published.
        home: page where a person finds the files.
        files: files of the original; empty for bundled and generated data.
        copies: names of derived or partial copies that are read where the original is missing.
        bundled: whether the package contains the data.
        notes: facts that a reader of results must know in any case.
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


cards: dict[str, About] = {}


def dataset(card: About) -> Callable[[F], F]:
    """Register the decorated loader under the card's name, and the card with it."""

    def add(loader: F) -> F:
        registry.datasets.register(card.name)(loader)
        cards[card.name] = card
        return loader

    return add
