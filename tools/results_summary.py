"""Writes the counts of ``benchmarks/RESULTS.md`` anew from the CSV files in ``benchmarks/results``.

    python tools/results_summary.py          rewrite the page
    python tools/results_summary.py --check  fail if it would change

The page has a place for each paper, ``<!-- summary: tableak -->`` to ``<!-- end of summary -->``.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path

import site_figures
import site_tables

ROOT = Path(__file__).resolve().parent.parent
PAGE = "benchmarks/RESULTS.md"
_PLACE = re.compile(r"(<!-- summary: (\w+) -->\n).*?(<!-- end of summary -->)", re.S)


def fill(markdown: str, root: Path) -> str:
    """Return the page with the counts in its places made anew.

    Args:
        markdown: text of the page.
        root: root of the repository.

    Raises:
        FigureError: a measured paper has no place, or a place names no measured paper.
    """
    files = site_tables.measured(root)
    places = [place[1] for place in _PLACE.findall(markdown)]
    for paper in site_tables.PAPERS:
        if paper not in places and any(table.name.startswith(f"{paper}/") for table, _ in files.values()):
            raise site_figures.FigureError(
                f"{PAGE} has no place for {paper!r}; add '<!-- summary: {paper} -->' and '<!-- end of summary -->'."
            )

    def one(found: re.Match[str]) -> str:
        made = site_tables.summary(found[2], files, lambda name: f"results/{name}.csv")
        return f"{found[1]}\n{made}\n\n{found[3]}"

    return _PLACE.sub(one, markdown)


def main(arguments: Sequence[str] | None = None) -> int:
    """Rewrite or check the page; return the exit status.

    Args:
        arguments: command line; that of the process if None.
    """
    parser = argparse.ArgumentParser(description="Write the counts of the results page anew.")
    parser.add_argument("--check", action="store_true", help="write nothing, and fail if the page would change")
    path = ROOT / PAGE
    text = path.read_text(encoding="utf-8")
    made = fill(text, ROOT)
    if not parser.parse_args(arguments).check:
        path.write_text(made, encoding="utf-8")
    elif made != text:
        print(f"{PAGE} is not what the CSV files say; run: python tools/results_summary.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
