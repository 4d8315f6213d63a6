"""Checks that results name the code that measured them, and that figures on proofs of an earlier kernel are called so.

    python tools/results_kernel.py

What the kernel certifies changes with ``KERNEL_VERSION`` of ``seepage.kernel``. Every line of ``benchmarks/results``
names its commit, and lines with figures on proofs the version of the kernel. A section of a page that speaks of proofs
and links such a file names each version before today's in its lines: ``by [kernel 0](benchmarks.md#kernels)``. That
page lists the versions; 0 is all before they were counted. The tables that the site fills in say it by themselves.
"""

from __future__ import annotations

import csv
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from seepage.kernel import KERNEL_VERSION

ROOT = Path(__file__).resolve().parent.parent
FOLDER = "benchmarks/results"
PAGE = "docs/results/benchmarks.md"
# Columns with figures on proofs; files whose columns have other names have a column `kernel` all the same.
PROOFS = ("certified", "proved", "proven_now")
_PAGES = ("README.md", "benchmarks/RESULTS.md", "docs/**/*.md")
_SPEAKS = re.compile(r"\b(prov|proof|certif)", re.I)
_ADDRESS = re.compile(r"\]\([^)]*\)")
_LINK = re.compile(r"(?:results|files)/(\w+)\.csv\)")
_MARK = re.compile(r"\[kernel (\d+)\]\(", re.I)
_LISTED = re.compile(r"^\| kernel (\d+) \|", re.M)
_HEADING = re.compile(r"^(?=#{1,6} )", re.M)


def versions(root: Path) -> dict[str, set[int]]:
    """Return the versions of the kernel in the lines of each file with figures on proofs."""
    found = {}
    for path in sorted((root / FOLDER).glob("*.csv")):
        lines = _lines(path)
        if lines and "kernel" in lines[0]:
            found[path.stem] = {int(line["kernel"]) for line in lines if (line["kernel"] or "").isdecimal()}
    return found


def faults(root: Path, today: int = KERNEL_VERSION) -> list[str]:
    """Return what is missing in files and pages below a root, a sentence each; nothing where all is well."""
    return [*_of_files(root, today), *_of_pages(root, today)]


def _of_files(root: Path, today: int) -> Iterator[str]:
    for path in sorted((root / FOLDER).glob("*.csv")):
        lines = _lines(path)
        if not lines:
            continue
        if unsigned := [
            i for i, line in enumerate(lines, 2) if not re.fullmatch(r"[0-9a-f]{7,40}\+?", line.get("commit") or "")
        ]:
            yield f"{path.name}, line {unsigned[0]}: the column 'commit' names no commit."
        if "kernel" not in lines[0]:
            if found := [name for name in PROOFS if name in lines[0]]:
                yield f"{path.name} has figures on proofs ({found[0]}) and no column 'kernel'; add it."
            continue
        for i, line in enumerate(lines, 2):
            if not (line["kernel"] or "").isdecimal() or int(line["kernel"]) > today:
                yield f"{path.name}, line {i}: kernel {line['kernel']!r} is no version from 0 to {today}."
                break


def _of_pages(root: Path, today: int) -> Iterator[str]:
    measured = versions(root)
    listed = {int(version) for version in _LISTED.findall((root / PAGE).read_text(encoding="utf-8"))}
    if absent := sorted(
        {today, *(version for found in measured.values() for version in found if version < today)} - listed
    ):
        yield f"{PAGE}, section 'Kernels': there is no line of kernel {absent[0]}; add what it certifies."
    for path in sorted({path for pattern in _PAGES for path in root.glob(pattern)}):
        for section in _HEADING.split(path.read_text(encoding="utf-8")):
            if not _SPEAKS.search(_ADDRESS.sub("", section)):
                continue
            marked = {int(version) for version in _MARK.findall(section)}
            for name in dict.fromkeys(_LINK.findall(section)):
                if left := sorted(v for v in measured.get(name, ()) if v < today and v not in marked):
                    heading = section.partition("\n")[0].strip("# ")
                    said = " and ".join(f"[kernel {version}](...)" for version in left)
                    yield (
                        f"{path.relative_to(root)}, section {heading!r}: proofs of {name}.csv are by an earlier "
                        f"kernel; measure them again, or write {said} beside them."
                    )


def _lines(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


if __name__ == "__main__":
    missing = faults(ROOT)
    print("\n".join(missing))
    sys.exit(bool(missing))
