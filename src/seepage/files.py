"""Writing of files that are either complete or absent."""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
from pathlib import Path

from seepage.errors import BadInputError

PRIVATE = 0o600
# The file in a run folder that holds all that was measured.
STORE = "audit.sqlite"


def make_folder(folder: Path, private: bool = False) -> None:
    """Make ``folder`` and its parents; existing folders are not changed.

    Args:
        folder: folder to make.
        private: whether only its owner may enter it, where it is new.

    Raises:
        BadInputError: the folder cannot be made; the message says why.
    """
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700 if private else 0o777, exist_ok=True)
    except OSError as error:
        raise BadInputError(f"the folder {str(folder)!r} cannot be made ({why(error)} with --out.") from error


def why(error: OSError) -> str:
    """Return the system's reason why a file cannot be written, with advice.

    Example:
        >>> f"it cannot be written ({why(OSError(errno.ENOSPC, 'No space left on device'))}."
        'it cannot be written (No space left on device): free the disk or choose another folder.'
    """
    advice = {errno.ENOSPC: "free the disk or ", errno.EDQUOT: "free some of your quota or "}.get(error.errno or 0, "")
    return f"{error.strerror}): {advice}choose another folder"


def write_whole(path: Path, content: str | bytes, private: bool = False) -> None:
    """Write a file so that a reader sees the old content or the new, never a part of it, also after a power cut.

    Args:
        path: path of the file.
        content: content of the file; text is written as UTF-8.
        private: whether only its owner may read it.

    Raises:
        BadInputError: the file cannot be written.
    """
    make_folder(path.parent, private)
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content.encode() if isinstance(content, str) else content)
            publish(Path(temporary), path, private)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise BadInputError(f"{str(path)!r} cannot be written ({why(error)} with --out.") from error


def publish(temporary: Path, path: Path, private: bool = False, replace: bool = True) -> None:
    """Give a finished file its name, and have it on the disk before this returns.

    Args:
        temporary: path of the file, in the folder that it is to be in.
        path: path that it gets.
        private: whether only its owner may read it.
        replace: whether a file that is there already gives way.

    Raises:
        FileExistsError: a file is there already and is not to be replaced.
        OSError: the file cannot be renamed or written to the disk.
    """
    temporary.chmod(PRIVATE if private else 0o666 & ~_umask())
    _sync(temporary)
    if replace:
        temporary.replace(path)
    else:
        _rename(temporary, path)
    # Not every file system can: the file itself is on the disk.
    with contextlib.suppress(OSError):
        _sync(path.parent)


def _rename(temporary: Path, path: Path) -> None:
    try:
        path.hardlink_to(temporary)
    except FileExistsError:
        raise
    except OSError:
        # A file system without links.
        if path.exists():
            raise FileExistsError(path) from None
        temporary.rename(path)
    else:
        temporary.unlink()


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _umask() -> int:
    # There is no call that reads it without setting it.
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
