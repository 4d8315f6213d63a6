"""Loads a dataset by its name."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import cast

from seepage import registry
from seepage.datasets.dataset import Dataset
from seepage.errors import BadInputError


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
        return cast(Dataset, registry.datasets.create(name, **options))
    except BadInputError:
        raise
    except (TypeError, ValueError) as error:
        if not options:
            raise
        arguments = ", ".join(f"{option}={value!r}" for option, value in options.items())
        raise BadInputError(f"dataset {name!r} cannot be loaded with {arguments}: {error}.") from error
