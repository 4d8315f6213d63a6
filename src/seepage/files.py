"""Writing of files that are either complete or absent."""

from __future__ import annotations

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
    """Write a file so that a reader sees the old content or the new, never a part of it.

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
            os.chmod(temporary, PRIVATE if private else 0o666 & ~_umask())
            os.replace(temporary, path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise BadInputError(f"{str(path)!r} cannot be written ({why(error)} with --out.") from error


def _umask() -> int:
    # There is no call that reads it without setting it.
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
