"""A folder of captured updates of many clients and rounds: which files there are, and whose they are."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path, PurePath

from seepage.captures.captured import Description, read_description
from seepage.errors import BadInputError, one_line

_ROUND = re.compile(r"round[-_ ]?(\d{1,9})(?!\d)", re.IGNORECASE)
_CLIENT = re.compile(r"client(?:[-_]|(?=\d))([^/]+?)(?=[-_]round|/|$)", re.IGNORECASE)


@dataclass(frozen=True)
class CapturedFile:
    """A captured update in a folder: path within it without the suffix, and why its description cannot be read."""

    path: Path
    name: str
    client: str
    round: int | None
    why: str | None = None


def find_captures(folder: Path, weights: Path | None = None) -> list[CapturedFile]:
    """Return the captured updates in a folder and the folders in it, in order of client and round.

    Every safetensors file counts but ``model.safetensors``, ``model-*.safetensors`` and ``weights``. Client and round
    are those of the description, else those of the path, such as ``round-0001/client-7.safetensors``.
    """
    captures = []
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
        client = clients[-1] if clients else _ROUND.sub("", name.rpartition("/")[2]).strip("-_ ") or name
        captures.append(CapturedFile(path, name, about.client or client, number, why))
    if not captures:
        raise BadInputError(
            f"there is no captured update (*.safetensors) in {str(folder)!r}; capture some with seepage.capture, or "
            "with CaptureReplies at a Flower server."
        )
    return sorted(
        captures,
        key=lambda capture: (_natural(capture.client), capture.round is None, capture.round or 0, capture.name),
    )


def _natural(name: str) -> tuple[tuple[bool, int, str], ...]:
    """Return a key by which numbers in names sort by their size."""
    return tuple((part.isdigit(), int(part) if part.isdigit() else 0, part) for part in re.split(r"(\d+)", name))
