"""A scanned project: the messages that leave a party, what guards them, and what is not known."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from seepage.errors import BadInputError
from seepage.files import load_yaml
from seepage.scan.hocon import parsed_hocon
from seepage.text import clean

NO_AUDIT = "no audit of seepage answers for it"

# Files that are read at most, and their largest size in bytes: of settings, and of source, which takes longer.
_MOST_FILES, _LARGEST, _LARGEST_SOURCE = 2_000, 2_000_000, 500_000
_READ = {".py", ".json", ".conf", ".yml", ".yaml", ".toml", ".ipynb"}
_OF_ROOT = ("pyproject.toml", "setup.py", "setup.cfg", "requirements.txt")
_SKIPPED = {"node_modules", "site-packages", "__pycache__", "build", "dist", "venv"}


@dataclass(frozen=True)
class LeavingMessage:
    """A message that leaves a party.

    Attributes:
        sender, receiver: the parties.
        content: what the message is.
        guards: what is done to it before the receiver has it, each with its place; empty where none was seen.
        unknown: what the files do not say, or what this program does not know; never a sign of safety.
        audit: the audit that answers for it.
        missing: halves of set-ups whose other half was seen: without it neither guards.
    """

    sender: str
    receiver: str
    content: str
    guards: tuple[str, ...]
    unknown: tuple[str, ...]
    audit: str
    missing: tuple[str, ...] = ()


@dataclass(frozen=True)
class ScannedProject:
    """A project of a framework.

    Attributes:
        framework, name, folder: framework, name and folder of the project.
        messages: messages that leave a party.
        remarks: remarks on all of them.
        unread: what of it was not understood, with the reason.
        known: whether anything of what leaves a party was understood.
    """

    framework: str
    name: str
    folder: Path
    messages: tuple[LeavingMessage, ...]
    remarks: tuple[str, ...]
    unread: tuple[str, ...] = ()
    known: bool = True

    @property
    def understood(self) -> str:
        """How much of it was understood: ``wholly``, ``partly`` or ``nothing``."""
        return "nothing" if not self.known else "partly" if self.unread else "wholly"


def files_below(folder: Path) -> list[Path]:
    """Return the files of a folder: none of environments, hidden folders and behind links, and no pipes."""
    listed: list[Path] = []
    waiting = [folder]
    while waiting:
        inside = waiting.pop()
        try:
            entries = sorted(inside.iterdir())
        except OSError as error:
            raise BadInputError(f"the folder {clean(inside, 200)!r} cannot be read: {error}.") from error
        for entry in entries:
            if entry.name.startswith(".") or entry.is_symlink():
                continue
            if entry.is_dir():
                if entry.name not in _SKIPPED:
                    waiting.append(entry)
            elif entry.is_file() and entry.suffix in _READ:
                listed.append(entry)
        if len(listed) > _MOST_FILES:
            raise BadInputError(
                f"{clean(folder, 200)!r} has more than {_MOST_FILES:,} files of settings and source; "
                "give the folder of one project."
            )
    return listed


def bytes_of(path: Path) -> bytes:
    """Return the content of a file."""
    try:
        largest = _LARGEST_SOURCE if path.suffix == ".py" else _LARGEST
        if path.stat().st_size > largest:
            raise BadInputError(
                f"{clean(path, 200)!r} has more than {largest:,} bytes, more than settings or source have; move it "
                "out of the folder."
            )
        return path.read_bytes()
    except OSError as error:
        raise BadInputError(f"{clean(path, 200)!r} cannot be read: {clean(error, 200)}.") from error


def text_of(path: Path) -> str:
    """Return the text of a file."""
    try:
        return bytes_of(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadInputError(f"{clean(path, 200)!r} is no text in UTF-8: {clean(error, 120)}.") from error


def settings_in(path: Path) -> Mapping[str, object]:
    """Return the settings in a file of JSON, YAML, TOML or HOCON."""
    text = text_of(path)
    try:
        if path.suffix == ".json":
            content = json.loads(text)
        elif path.suffix == ".toml":
            content = tomllib.loads(text)
        elif path.suffix == ".conf":
            content = parsed_hocon(text)
        else:
            content = load_yaml(text, clean(path, 200))
    except (ValueError, RecursionError) as error:
        if isinstance(error, BadInputError):
            raise
        raise BadInputError(
            f"{clean(path, 200)!r} cannot be understood: {clean(error, 200)}; mend it, or move it away."
        ) from error
    if not isinstance(content, dict):
        raise BadInputError(
            f"{clean(path, 200)!r} holds no settings by name, but a {type(content).__name__}; mend it, or move it away."
        )
    return content


def settings_or_note(path: Path, folder: Path, unread: list[str]) -> Mapping[str, object]:
    """Return the settings in a file; nothing, and a note, where it cannot be understood."""
    try:
        return settings_in(path)
    except BadInputError as error:
        unread.append(
            f"{place_of(path, folder)} cannot be understood, so that what it says is unknown: "
            f"{clean(error, 200).rstrip('.')}"
        )
        return {}


def root_of(path: Path, folder: Path) -> Path:
    """Return the folder of the project of a source file: the nearest one above that says how it is installed."""
    for above in path.parents:
        if above == folder or any((above / name).is_file() for name in _OF_ROOT):
            return above
    return folder


def mapping(value: object) -> Mapping[str, object]:
    """Return a value if it is a mapping; an empty one otherwise."""
    return value if isinstance(value, dict) else {}


def sequence(value: object) -> list[object]:
    """Return a value if it is a list; an empty one otherwise."""
    return value if isinstance(value, list) else []


def in_words(arguments: Mapping[str, object]) -> str:
    """Return arguments as in a call."""
    return ", ".join(f"{clean(name, 40)}={clean(value, 60)}" for name, value in arguments.items())


def place_of(path: Path, folder: Path, line: int | None = None) -> str:
    """Return the place of a file and line."""
    return clean(path.relative_to(folder), 120) + ("" if line is None else f":{line}")


def parts(value: object) -> Iterator[Mapping[str, object]]:
    """Yield the mappings in a list of parts."""
    yield from (part for part in sequence(value) if isinstance(part, dict))
