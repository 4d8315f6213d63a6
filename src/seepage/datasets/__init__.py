"""Datasets by name: bundled, from a local folder, downloaded from their official home, or generated.

A new dataset is one file and one line here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from seepage import registry
from seepage.lazy import lazy_package

if TYPE_CHECKING:
    from seepage.datasets.catalogue import Listing, catalogue
    from seepage.datasets.dataset import Dataset
    from seepage.datasets.loading import load
    from seepage.datasets.own import from_frame, own_table, read_table

# Registered name and module, which is imported when the dataset is first loaded.
registry.datasets.declare(
    {
        "adult": "seepage.datasets.adult",
        "adult_education": "seepage.datasets.adult_education",
        "bank_additional": "seepage.datasets.bank_additional",
        "bank_full": "seepage.datasets.bank_full",
        "cifar10": "seepage.datasets.cifar10",
        "credit": "seepage.datasets.credit",
        "crime": "seepage.datasets.crime",
        "german": "seepage.datasets.german",
        "health_heritage": "seepage.datasets.health_heritage",
        "health_years": "seepage.datasets.health_years",
        "lawschool": "seepage.datasets.lawschool",
        "synthetic": "seepage.datasets.synthetic",
        "synthetic_highdim": "seepage.datasets.synthetic_highdim",
        "taobao": "seepage.datasets.taobao",
        "taobao_synthetic": "seepage.datasets.taobao_synthetic",
    }
)
# Rows of other kinds, for pooled learning.
registry.populations.declare(
    {
        "cora": "seepage.datasets.graphs",
        "amazon_products": "seepage.datasets.graphs",
        "clothing_reviews": "seepage.datasets.reviews",
        "yelp_health": "seepage.datasets.reviews",
    }
)

lazy_package(__name__)

__all__ = ["Dataset", "Listing", "catalogue", "from_frame", "load", "own_table", "read_table"]
