"""Datasets by name, and the list of them."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

from seepage import registry
from seepage.datasets.dataset import Dataset


def load(name: str, folder: str | Path | None = None, **options: Any) -> Dataset:
    """Load the dataset ``name``.

    Args:
        name: a registered name; ``catalogue`` lists them.
        folder: where local files are looked for first; without it, the folder that the environment
            variable SEEPAGE_DATA names. Bundled and generated datasets need none and take no notice.
        options: further arguments of that dataset's own loader.

    Raises:
        BadInputError: the name or an option is unknown, or a file is missing, damaged or another one.

    Example:
        >>> len(load("adult", missing="category").all)
        48842
    """
    if folder is not None and "folder" in inspect.signature(registry.datasets[name].factory).parameters:
        options["folder"] = folder
    return registry.datasets.create(name, **options)
