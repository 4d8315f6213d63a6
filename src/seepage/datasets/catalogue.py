"""The list of datasets with the origin of each, for which nothing is loaded; and a dataset by its name."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast

from seepage import registry
from seepage.datasets.about import DatasetCard, cache_folder, card_of, local_folder, path_of
from seepage.errors import BadInputError

if TYPE_CHECKING:
    from seepage.datasets.dataset import Dataset

_KINDS = (registry.datasets, registry.populations)
Availability = Literal["bundled", "generated", "found", "copy found", "cached", "download", "manual", "unknown"]


@dataclass(frozen=True)
class Listing:
    """The information on a dataset that needs no loading; ``pooled`` are texts and graphs, for pooled learning alone.

    Sizes are those of the complete, cleaned original, None where another distribution's loader does not say. Files are
    ``found`` in the folder, or a derived or partial copy is, ``cached`` by an earlier download, to ``download`` when
    loaded, or to be put into the folder by hand (``manual``).
    """

    name: str
    summary: str
    rows: int | None
    columns: int | None
    width: int | None
    availability: Availability
    where: str
    source: str | None
    licence: str | None
    notes: tuple[str, ...]
    pooled: bool = False
    heading: str | None = None


def catalogue(folder: str | Path | None = None) -> tuple[Listing, ...]:
    """List all datasets, then the texts and graphs of pooled learning; nothing is loaded or downloaded.

    Local files are searched for in the folder, without one in that which SEEPAGE_DATA names.
    """
    listings = []
    entries = [(entry, kind is registry.populations) for kind in _KINDS for entry in kind.entries()]
    for entry, pooled in entries:
        card = card_of(entry.name)
        if card is None:
            known = (None, None, None, "unknown", "", None, None, ())
        else:
            size, terms = (card.rows, card.columns, card.width), (card.source, card.licence, card.notes)
            known = (*size, *_availability(card, folder), *terms)
        listings.append(Listing(entry.name, entry.summary, *known, pooled, entry.heading))
    return tuple(listings)


def _availability(card: DatasetCard, folder: str | Path | None) -> tuple[Availability, str]:
    if card.bundled:
        return "bundled", "seepage"
    if not card.files:
        return "generated", "seepage"
    local = local_folder(folder)
    if local is not None:
        paths = [path_of(file, local) for file in card.files]
        if None not in paths:
            return "found", str(paths[0])
        for copy in card.copies:
            path = path_of(copy, local)
            if path is not None:
                return "copy found", str(path)
    if any(file.url is None for file in card.files):
        return "manual", card.home
    paths = [path_of(file, cache_folder()) for file in card.files]
    if None not in paths:
        return "cached", str(paths[0])
    return "download", str(card.files[0].url)


def load(name: str, folder: str | Path | None = None, **options: object) -> Dataset:
    """Load the dataset with this registered name, see ``catalogue``; options are its own loader's.

    Without a folder, files are searched for in the folder that the environment variable SEEPAGE_DATA names, then in the
    cache, then at the official address. Bundled and generated datasets ignore it.

    Raises:
        BadInputError: the name or an option is unknown, an option is of a wrong type, or a file is missing, damaged or
            another one.
    """
    if folder is not None and "folder" in inspect.signature(registry.datasets[name].factory).parameters:
        options["folder"] = folder
    try:
        return cast("Dataset", registry.datasets.create(name, **options))
    except BadInputError:
        raise
    except (TypeError, ValueError) as error:
        if not options:
            raise
        arguments = ", ".join(f"{option}={value!r}" for option, value in options.items())
        raise BadInputError(f"dataset {name!r} cannot be loaded with {arguments}: {error}.") from error
