"""Datasets by name: bundled, from a local folder, downloaded from their official home, or generated."""

from seepage.datasets import adult as _adult  # noqa: F401  (importing registers)
from seepage.datasets import german as _german  # noqa: F401
from seepage.datasets.catalogue import load
from seepage.datasets.dataset import Dataset

__all__ = ["Dataset", "load"]
