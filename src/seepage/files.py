"""Reading of files that may come from anyone; writing of files that are either complete or absent."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import re
import stat
import tempfile
from pathlib import Path

import yaml

from seepage.errors import BadInputError

PRIVATE = 0o600
# File in a run folder with all measurements.
STORE = "audit.sqlite"
_MOST_VALUES = 2_000_000
_DEEPEST = 500
_BRACKETS = re.compile(r"[\[\]{}]")
_OPENING = (yaml.FlowSequenceStartToken, yaml.FlowMappingStartToken)
_CLOSING = (yaml.FlowSequenceEndToken, yaml.FlowMappingEndToken)
# Bytes of a text that people write; what programs write may be larger.
MOST_BYTES = 2**24


def check_file(path: Path, what: str) -> None:
    """Refuse what is no file on a disk: folders, and pipes and devices, whose reading need not come to an end.

    Raises:
        OSError: the file does not exist, or its name cannot be used.
    """
    try:
        mode = path.stat().st_mode
    except ValueError:
        raise BadInputError(f"{what} has a NUL character in its name; give the path of a file.") from None
    if not stat.S_ISREG(mode):
        kind = "a folder" if stat.S_ISDIR(mode) else "a pipe, a socket or a device"
        raise BadInputError(
            f"{what} is {kind} where a file on a disk is expected; save the content in one and name it."
        )


def read_bytes(path: Path, what: str, most: int = MOST_BYTES) -> bytes:
    """Return the content of a file on a disk, of ``most`` bytes at most; no more is read.

    Raises:
        BadInputError: it is no such file, or larger.
        OSError: it cannot be read.
    """
    check_file(path, what)
    with path.open("rb") as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise BadInputError(f"{what} has more than {most:,} bytes, more than such a file can need; name another file.")
    return content


def read_text(path: Path, what: str, most: int = MOST_BYTES, encoding: str = "utf-8") -> str:
    """Return the text of a file on a disk, as ``read_bytes`` does; lines end in a line feed."""
    content = read_bytes(path, what, most)
    return io.TextIOWrapper(io.BytesIO(content), encoding).read()


def load_yaml(text: str, what: str = "the text", loader: type[yaml.SafeLoader] = yaml.SafeLoader) -> object:
    """Return the plain values of a YAML text that may come from anyone: two million, aliases included, at most."""
    try:
        _check_depth(text)
        # Without an alias a text holds no more values than characters.
        if "*" in text:
            _check_aliases(text, what)
        return yaml.load(text, loader)  # noqa: S506 - safe loaders only
    except RecursionError:
        raise BadInputError(f"{what} is nested too deeply for anything that is read here; write it flatter.") from None
    # A date that does not exist, and a number of thousands of digits, are no errors of YAML.
    except (yaml.YAMLError, ValueError) as error:
        if isinstance(error, BadInputError):
            raise
        raise BadInputError(f"{what} is not valid YAML: {' '.join(str(error).split())}.") from error


def _check_depth(text: str) -> None:
    """Raise a ``RecursionError`` for brackets in brackets, whose reading takes the square of their number."""
    depth = deepest = 0
    for bracket in _BRACKETS.findall(text):
        depth = max(0, depth + (1 if bracket in "[{" else -1))
        deepest = max(deepest, depth)
    if deepest <= _DEEPEST:
        return
    # Some may stand in quotes, as in names of intervals.
    depth = 0
    for token in yaml.scan(text, Loader=yaml.SafeLoader):
        depth += isinstance(token, _OPENING) - isinstance(token, _CLOSING)
        if depth > _DEEPEST:
            raise RecursionError


def _check_aliases(text: str, what: str) -> None:
    """Refuse aliases of aliases that unfold to more values than memory holds."""
    total = 0
    sizes: dict[str, int] = {}
    begun: list[tuple[str | None, int]] = []
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        if isinstance(event, yaml.CollectionStartEvent):
            begun.append((event.anchor, total))
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = begun.pop()
            sizes |= {} if anchor is None else {anchor: total - before}
        total += sizes.get(event.anchor, 1) if isinstance(event, yaml.AliasEvent) else 1
        if total > _MOST_VALUES:
            raise BadInputError(
                f"{what} unfolds to more than {_MOST_VALUES:,} values, aliases included; write it without them."
            )


def make_folder(folder: Path, private: bool = False) -> None:
    """Create ``folder`` and its parents; existing folders are not changed."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700 if private else 0o777, exist_ok=True)
    except OSError as error:
        raise BadInputError(f"the folder {str(folder)!r} cannot be made ({why(error)} with --out.") from error


def check_out(folder: Path | None) -> None:
    """Refuse a run folder that is a file, lies below one, or cannot be looked for."""
    if folder is None:
        return
    try:
        nearest = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    except OSError as error:
        raise BadInputError(f"the folder {str(folder)!r} cannot be made ({why(error)} with --out.") from error
    if nearest != folder and not nearest.is_dir():
        raise BadInputError(f"--out {str(folder)!r} is below {str(nearest)!r}, which is a file; choose another folder.")
    if not nearest.is_dir():
        raise BadInputError(f"--out {str(folder)!r} is a file; give the name of a folder, which is made if need be.")


def why(error: OSError) -> str:
    """Return the system's reason why a file cannot be written, with advice."""
    advice = {errno.ENOSPC: "free the disk or ", errno.EDQUOT: "free some of your quota or "}.get(error.errno or 0, "")
    return f"{error.strerror}): {advice}choose another folder"


def write_whole(path: Path, content: str | bytes, private: bool = True) -> None:
    """Write a file so that a reader sees the old content or the new, never a part of it, also after a power cut.

    Others may read it only where ``private`` is False: that is for what names no cell or category of a user's table.
    """
    data = content.encode() if isinstance(content, str) else content
    try:
        if _is_device(path):
            return _write_into(path, data)
    except (OSError, ValueError) as error:
        raise _unwritable(path, error) from error
    make_folder(path.parent, private)
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            publish(Path(temporary), path, private)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise _unwritable(path, error) from error


def _unwritable(path: Path, error: OSError | ValueError) -> BadInputError:
    reason = why(error) if isinstance(error, OSError) else f"{error}): choose another name"
    return BadInputError(f"{str(path)!r} cannot be written ({reason} with --out.")


def _is_device(path: Path) -> bool:
    """Return whether a path names a device, a pipe or an open stream, which a file must not take the place of."""
    if path.absolute().parts[1:2] in (("dev",), ("proc",)) and path.exists():
        return not path.is_dir()
    return path.exists() and not path.is_file() and not path.is_dir()


def _write_into(path: Path, data: bytes) -> None:
    # A pipe that nobody reads would wait for ever.
    handle = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
    os.set_blocking(handle, True)
    with os.fdopen(handle, "wb") as file:
        file.write(data)


def publish(temporary: Path, path: Path, private: bool = False, replace: bool = True) -> None:
    """Rename a finished file in its folder, and have it on the disk before this returns."""
    temporary.chmod(PRIVATE if private else 0o666 & ~_umask())
    _sync(temporary)
    if replace:
        temporary.replace(path)
    else:
        _rename(temporary, path)
    # Not every file system syncs folders: the file itself is on the disk.
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
    # No call reads it without setting it.
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
