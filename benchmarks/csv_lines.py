"""CSV files that a benchmark is continued from: what is in them already is not measured again."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from seepage.kernel import KERNEL_VERSION
from seepage.run.provenance import commit


def read_lines(path: Path) -> list[dict[str, str]]:
    """Return the lines of a file; none where there is no such file."""
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def signed(line: Mapping[str, object], fields: Sequence[str] = ("commit",)) -> dict[str, object]:
    """Return a line with the commit of this version of the code and, where ``fields`` have it, of its kernel."""
    made_by: dict[str, object] = {"commit": str((commit() or {}).get("hash", ""))[:9], "kernel": KERNEL_VERSION}
    return {**line, **{name: value for name, value in made_by.items() if name in fields}}


def add_lines(path: Path, fields: Sequence[str], lines: Iterable[Mapping[str, object]]) -> None:
    """Add lines to a file, which is made if need be.

    Args:
        path: the file.
        fields: its columns, among them ``commit``, and ``kernel`` where a line has figures on proofs.
        lines: cells by column, without the commit of this version of the code and the version of its kernel.
    """
    is_new = not path.exists()
    with path.open("a", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, fields, lineterminator="\n")
        if is_new:
            writer.writeheader()
        writer.writerows(signed(line, fields) for line in lines)
