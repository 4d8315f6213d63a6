"""Where the files of datasets are looked for."""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs

from seepage.datasets.about import File

FOLDER_VARIABLE = "SEEPAGE_DATA"


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
