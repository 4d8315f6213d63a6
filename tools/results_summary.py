"""Judges the figures in ``benchmarks/results`` anew, and writes the counts of ``benchmarks/RESULTS.md`` from them.

    python tools/results_summary.py          rewrite the files of published tables and the page
    python tools/results_summary.py --check  fail if anything would change

What was measured stays as it is in the files; what follows from it and from the print is made anew. The page has a
place for each paper, ``<!-- counts: tableak -->`` to ``<!-- end of counts -->``, and one for the cells that are shown
to read less than printed, ``<!-- counts: below -->``. Places in pages of the
documentation, which the site fills in, have other names: see ``site_tables``.
"""

from __future__ import annotations

import argparse
import csv
import io
import re
import sys
from collections.abc import Sequence
from pathlib import Path

import site_figures
import site_tables
from seepage.files import write_whole

ROOT = Path(__file__).resolve().parent.parent
PAGE = "benchmarks/RESULTS.md"
_PLACE = re.compile(r"(<!-- counts: (\w+) -->\n).*?(<!-- end of counts -->)", re.S)


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
                f"{PAGE} has no place for {paper!r}; add '<!-- counts: {paper} -->' and '<!-- end of counts -->'."
            )

    def one(found: re.Match[str]) -> str:
        link = "results/{}.csv".format
        made = site_tables.below(files, link) if found[2] == "below" else site_tables.summary(found[2], files, link)
        return f"{found[1]}\n{made}\n\n{found[3]}"

    return _PLACE.sub(one, markdown)


def judged(root: Path) -> dict[Path, str]:
    """Return the files of published tables with every line judged anew, as CSV text."""
    made = {}
    for name, (_, lines) in site_tables.measured(root).items():
        text = io.StringIO()
        writer = csv.DictWriter(text, list(lines[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines)
        made[root / site_tables.FOLDER / f"{name}.csv"] = text.getvalue()
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Rewrite or check the files and the page; return the exit status.

    Args:
        arguments: command line; that of the process if None.
    """
    parser = argparse.ArgumentParser(description="Judge the measured tables and write the results page anew.")
    parser.add_argument("--check", action="store_true", help="write nothing, and fail if anything would change")
    path = ROOT / PAGE
    made = {**judged(ROOT), path: fill(path.read_text(encoding="utf-8"), ROOT)}
    stale = {path: text for path, text in made.items() if path.read_text(encoding="utf-8") != text}
    if not parser.parse_args(arguments).check:
        for path, text in stale.items():
            write_whole(path, text)
    elif stale:
        names = ", ".join(path.name for path in stale)
        print(f"Not what was measured and printed: {names}; run: python tools/results_summary.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
