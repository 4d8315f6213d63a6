"""A folder of captured updates of many clients and rounds: which files there are, and whose they are."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePath

from seepage.captures.captured import Description, read_description
from seepage.errors import BadInputError, one_line

_ROUND = re.compile(r"round[-_ ]?(\d{1,9})(?!\d)", re.IGNORECASE)
_CLIENT = re.compile(r"client(?:[-_]|(?=\d))([^/]+?)(?=[-_]round|/|$)", re.IGNORECASE)
# Names of what a file is, or of a number of steps, which are those of no client.
_GENERIC = re.compile(
    r"(?!client[-_ ]?\d)(?:(?:capture|captured|client|data|delta|epoch|file|grad|gradient|message|model|param|"
    r"parameter|payload|reply|replie|result|round|state|step|update|weight)s?[-_ ]?)+\d*",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class CapturedFile:
    """A captured update in a folder: path within it without the suffix, and why its description cannot be read.

    ``notes`` say where the path does not tell for sure whose update it is.
    """

    path: Path
    name: str
    client: str
    round: int | None
    why: str | None = None
    notes: tuple[str, ...] = ()


def find_captures(folder: Path, weights: Path | None = None) -> list[CapturedFile]:
    """Return the captured updates in a folder and the folders in it, in order of client and round.

    Every safetensors file counts but ``model.safetensors``, ``model-*.safetensors`` and ``weights``. Client and round
    are those of the description, else those of the path, such as ``round-0001/client-7.safetensors``: without
    ``client-`` the first folder that is no round and has no generic name, such as ``update``, else the file's name.
    Files that may be of several clients are kept apart by their path.
    """
    captures = list[CapturedFile]()
    # Whether the description or the path names the client as such.
    named = list[bool]()
    for path in sorted(folder.rglob("*.safetensors")):
        # Names of files need not be UTF-8, and reports have to be.
        inside = PurePath(str(path.relative_to(folder)).encode(errors="backslashreplace").decode())
        is_model = inside.stem == "model" or inside.stem.startswith("model-")
        hidden = any(part.startswith(".") for part in inside.parts)
        if is_model or hidden or not path.is_file() or (weights is not None and path.resolve() == weights.resolve()):
            continue
        name, why = inside.with_suffix("").as_posix(), None
        try:
            about = read_description(path)
        # Whatever is wrong with one file is no reason to leave out the others.
        except Exception as error:
            about, why = Description(), one_line(error)
        rounds, clients = _ROUND.findall(name), _CLIENT.findall(name)
        number = int(rounds[-1]) if rounds and about.round is None else about.round
        clients = [client for client in clients if not _GENERIC.fullmatch(client)]
        telling = _telling(name)
        client = clients[-1] if clients else telling[0] if telling else _without_round(inside.stem) or name
        captures.append(CapturedFile(path, name, about.client or client, number, why))
        named.append(bool(about.client or clients))
    if not captures:
        raise BadInputError(
            f"there is no captured update (*.safetensors) in {str(folder)!r}; capture some with seepage.capture, or "
            "with CaptureReplies at a Flower server."
        )
    return sorted(
        _apart(captures, named),
        key=lambda capture: (_natural(capture.client), capture.round is None, capture.round or 0, capture.name),
    )


def _without_round(part: str) -> str:
    return _ROUND.sub("", part).strip("-_ ")


def _telling(name: str) -> tuple[str, ...]:
    """Return the parts of a path that may name a client, without rounds and generic names."""
    parts = [_without_round(part) for part in name.split("/")]
    return tuple(part for part in parts if part and not _GENERIC.fullmatch(part))


def _apart(captures: Sequence[CapturedFile], named: Sequence[bool]) -> list[CapturedFile]:
    """Return the files, with a client for each path where those of a client cannot be of a single one.

    These are files of the same round. Where nothing but a folder names the client, other names differ or no round.
    """
    doubtful = set[str]()
    for client in {capture.client for capture in captures}:
        places = [place for place, capture in enumerate(captures) if capture.client == client]
        rounds = [captures[place].round for place in places]
        known = [number for number in rounds if number is not None]
        guessed = [place for place in places if not named[place]]
        several = len({_telling(captures[place].name) for place in guessed}) > 1
        if len(set(known)) < len(known) or several or (guessed and rounds.count(None) > 1):
            doubtful.add(client)
    taken = {capture.client for capture in captures if capture.client not in doubtful}
    # What each path is short for, with and without a round: a path of several is no name.
    meant, rounds_of = defaultdict[str, set[object]](set), Counter[tuple[str, int | None]]()
    paths = list[str]()
    for capture in captures:
        parts = _telling(capture.name)
        paths.append("-".join(parts) or capture.name)
        if capture.client in doubtful:
            meant[paths[-1]].add((capture.client, parts))
            rounds_of[paths[-1], capture.round] += 1
    twice = {path for (path, number), count in rounds_of.items() if count > 1 or number is None}
    apart = list[CapturedFile]()
    for path, capture in zip(paths, captures, strict=True):
        if capture.client not in doubtful:
            apart.append(capture)
            continue
        shared = path in taken or path in twice or len(meant[path]) > 1
        client = capture.name if shared else path
        client = capture.path.name if client in taken else client
        note = (
            f"kept apart by its path: {capture.client!r} has several files that may be of one round or of several "
            "clients; say which with client= and round= at the capture"
        )
        apart.append(replace(capture, client=client, notes=(note,)))
    return apart


def _natural(name: str) -> tuple[tuple[bool, int, str], ...]:
    """Return a key by which numbers in names sort by their size."""
    return tuple((part.isdigit(), int(part) if part.isdigit() else 0, part) for part in re.split(r"(\d+)", name))
