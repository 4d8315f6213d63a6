"""Search for the files of a dataset: in a local folder, in the cache, or at their official home."""

from __future__ import annotations

import gzip
import hashlib
import io
import struct
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import pandas as pd
import pooch

from seepage.datasets.about import FOLDER_VARIABLE, DatasetCard, File, cache_folder, local_folder, path_of
from seepage.errors import BadInputError


@dataclass(frozen=True)
class Obtained:
    """The unpacked contents of a dataset's files, and where each was; a ``copy`` is derived or partial."""

    contents: dict[str, bytes]
    where: str
    copy: bool

    def parse(self, name: str, reader: Callable[[io.BytesIO], pd.DataFrame]) -> pd.DataFrame:
        """Read one of the files with ``reader``."""
        try:
            return reader(io.BytesIO(self.contents[name]))
        # Parser errors of pandas and of the Excel and Stata readers have only these bases in common.
        except (ValueError, LookupError, OSError, AssertionError, struct.error) as error:
            raise BadInputError(
                f"{name} from {self.where} cannot be read as a table ({error}); "
                "check that it is the right file, complete and unedited."
            ) from error


def obtain(card: DatasetCard, folder: str | Path | None = None) -> Obtained:
    """Return the contents of the dataset's files.

    They are searched for in ``folder`` if given, and nowhere else; otherwise in the folder that SEEPAGE_DATA names,
    then in the cache, and at last at the official address, into the cache. In a folder, original files have priority
    over a copy. Files may be gzipped or inside their archive.
    """
    local = local_folder(folder)
    if local is not None:
        if not local.is_dir():
            given = "the folder given" if folder is not None else f"{FOLDER_VARIABLE}"
            raise BadInputError(f"{given} should be a folder with data files, but {str(local)!r} is none.")
        for files, copy in ((card.files, False), *(((file,), True) for file in card.copies)):
            if all(path_of(file, local) for file in files):
                return Obtained({file.name: _content(file, local) for file in files}, str(local), copy)
    addresses = {file.inside[0] if file.inside else file.name: file.url for file in card.files}
    if folder is not None or None in addresses.values():
        wanted = " and ".join(_names(file) for file in card.files)
        copies = "".join(f", or the copy {_names(file)}" for file in card.copies)
        looked = f"not found in {str(local)!r}" if local is not None else "no folder was given"
        fetch = "leave out the folder to have it downloaded, or get it" if None not in addresses.values() else "get it"
        raise BadInputError(
            f"dataset {card.name!r} needs {wanted}{copies}: {looked}. To go on, {fetch} from {card.home} and put it "
            f"into the folder you name as an argument or in the environment variable {FOLDER_VARIABLE}."
        )
    cache = cache_folder()
    for archive, url in addresses.items():
        if not (cache / archive).exists():
            _download(str(url), archive, cache, card)
    try:
        return Obtained({file.name: _content(file, cache) for file in card.files}, str(cache), copy=False)
    except BadInputError:
        # A damaged download would otherwise be found again by the next call.
        for archive in addresses:
            (cache / archive).unlink(missing_ok=True)
        raise


def _content(file: File, folder: Path) -> bytes:
    path = path_of(file, folder)
    if path is None:
        raise BadInputError(f"the archive in {str(folder)!r} should hold {file.name}; download it afresh.")
    try:
        data = path.read_bytes()
        if path.name == f"{file.name}.gz":
            data = gzip.decompress(data)
        elif path.name in file.inside:
            for member in (*file.inside[file.inside.index(path.name) + 1 :], file.name):
                data = _member(data, member, path)
    except (EOFError, zlib.error, zipfile.BadZipFile, gzip.BadGzipFile) as error:
        raise BadInputError(
            f"{str(path)!r} is damaged or cut short ({error or type(error).__name__}); get it again."
        ) from error
    digest = hashlib.sha256(data).hexdigest()
    if file.sha256 is not None and digest != file.sha256:
        raise BadInputError(
            f"{file.name} from {str(path)!r} is not the published file: its SHA-256 is {digest}, expected "
            f"{file.sha256}. Get it again; a table that was changed on purpose is read with from_frame."
        )
    return data


def _member(data: bytes, name: str, path: Path) -> bytes:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        for member in archive.namelist():
            if PurePosixPath(member).name == name:
                return archive.read(member)
        raise BadInputError(
            f"{str(path)!r} should hold {name}, but has {', '.join(archive.namelist()) or 'nothing'}; "
            "check that it is the right archive."
        )


def _download(url: str, name: str, cache: Path, card: DatasetCard) -> None:
    shelf = pooch.create(path=cache, base_url="", registry={name: None}, urls={name: url})
    try:
        # The stubs of pooch name the arguments of a downloader otherwise than its own downloaders do.
        shelf.fetch(name, downloader=pooch.HTTPDownloader(progressbar=True))  # pyright: ignore[reportArgumentType]
    # Errors of requests are OSErrors; an invalid address raises ValueError.
    except (OSError, ValueError) as error:
        raise BadInputError(
            f"dataset {card.name!r} could not be downloaded from {url} ({error}). Try again later, or get it from "
            f"{card.home} by hand and put {name} into the folder that {FOLDER_VARIABLE} names."
        ) from error


def _names(file: File) -> str:
    return file.name + "".join(f" (or {archive})" for archive in file.inside)
