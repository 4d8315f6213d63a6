"""Datasets by name: bundled, from a local folder, downloaded, or generated; a new one is one file and a line here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from seepage import registry
from seepage.packages import lazy_package

if TYPE_CHECKING:
    from seepage.datasets.catalogue import Listing, catalogue, load
    from seepage.datasets.dataset import Dataset, from_frame, own_table, read_table

# Registered name and module, which is imported when the dataset is first loaded.
registry.datasets.declare(
    {
        "adult": "seepage.datasets.adult",
        "adult_education": "seepage.datasets.adult_education",
        "german": "seepage.datasets.german",
        "synthetic": "seepage.datasets.synthetic",
    }
)

lazy_package(__name__)

__all__ = ["Dataset", "Listing", "catalogue", "from_frame", "load", "own_table", "read_table"]
