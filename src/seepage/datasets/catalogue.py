"""The list of datasets with the origin of each; nothing is loaded."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from seepage import registry
from seepage.datasets.about import DatasetCard, card_of
from seepage.datasets.places import cache_folder, local_folder, path_of

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
