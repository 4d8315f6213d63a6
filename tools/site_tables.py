"""Published tables beside ours as Markdown, from the files of ``seepage reproduce``; run to rewrite the results.

    seepage reproduce tableak/table6 --victims 10 --out run
    cp run/comparison.csv benchmarks/results/tableak_table6.csv
    python tools/site_tables.py

``benchmarks/RESULTS.md`` has a place for each file, which begins with ``<!-- table: tableak_table6 -->`` and ends with
``<!-- end of table -->``, and one for all of them, ``<!-- tables -->`` to ``<!-- end of tables -->``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import site_figures
from seepage.datasets.about import card_of
from seepage.reproduce import PublishedTable, StudyTable, study_tables, tables

ROOT = Path(__file__).resolve().parent.parent
PAGE = "benchmarks/RESULTS.md"
FOLDER = "benchmarks/results"
Table = PublishedTable | StudyTable
_ONE = re.compile(r"(<!-- table: (\w+) -->\n).*?(<!-- end of table -->)", re.S)
_ALL = re.compile(r"(<!-- tables -->\n).*?(<!-- end of tables -->)", re.S)
_NONE = "–"


def measured(root: Path) -> dict[str, tuple[Table, list[site_figures.Line]]]:
    """Return each published table that there is a file of, by the file's name, with its lines."""
    found = {}
    for table in (*tables().values(), *study_tables().values()):
        path = root / FOLDER / f"{table.name.replace('/', '_')}.csv"
        if path.is_file():
            found[path.stem] = (table, site_figures.read(path))
    return found


def fill(markdown: str, root: Path) -> str:
    """Return the text with what stands in the places of tables made anew.

    Raises:
        FigureError: there is no file for a place, or no place for a file.
    """
    files = measured(root)
    places = [place[1] for place in _ONE.findall(markdown)]
    for name in files:
        if name not in places:
            raise site_figures.FigureError(
                f"{PAGE} has no place for {name}.csv; add '<!-- table: {name} -->' and '<!-- end of table -->'."
            )

    def one(found: re.Match[str]) -> str:
        if found[2] not in files:
            raise site_figures.FigureError(f"{PAGE} has a place for {found[2]!r}, but there is no such file.")
        return f"{found[1]}\n{section(found[2], *files[found[2]])}\n\n{found[3]}"

    markdown = _ONE.sub(one, markdown)
    return _ALL.sub(lambda found: f"{found[1]}\n{overview(files)}\n\n{found[2]}", markdown)


def section(name: str, table: Table, lines: Sequence[site_figures.Line]) -> str:
    """Return what was measured of one table, line by line."""
    head = ["run", *table.axes, "n", "ours", "printed", "difference [95%]", "within", "best guess", "lift"]
    rows = []
    for line in lines:
        plain = line.get("unit") == "plain"
        guess = _NONE if plain or not line["guess"] else f"{_number(line['guess'], plain)} {line['guess_name']}"
        rows.append(
            [
                line["run"],
                *(line[axis] for axis in table.axes),
                line["n"],
                _spread(line, "ours", plain),
                _spread(line, "published", plain),
                _between(line, plain),
                line["agrees"] or _NONE,
                guess,
                _number(line["lift"], plain, signed=True),
            ]
        )
    text = "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows))
    return f"{_about(name, table, lines)}\n\n{text}"


def overview(files: dict[str, tuple[Table, list[site_figures.Line]]]) -> str:
    """Return one line a table: how much of it was measured, and how much of that agrees with the print."""
    rows = []
    for table, lines in files.values():
        first = [line for line in lines if line["run"] == table.first and line["agrees"]]
        counts = sorted({int(line["n"]) for line in lines})
        agree = sum(line["agrees"] == "yes" for line in first)
        above = sum(line["agrees"] == "above" for line in first)
        rows.append(
            [
                f"`{table.name}`",
                table.title,
                " to ".join(map(str, dict.fromkeys((counts[0], counts[-1])))),
                str(len(first)),
                str(agree),
                str(above),
                str(sum(line["agrees"] == "below" for line in first)),
                str(sum(line["agrees"] == "undetermined" for line in first)),
            ]
        )
    head = ["table", "what", "n", "cells of `faithful` in print", "within", "above", "below", "too few to tell"]
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows))


def _about(name: str, table: Table, lines: Sequence[site_figures.Line]) -> str:
    said = [f"{table.title}; printed in {table.source}.", f"As data: [{name}.csv](results/{name}.csv)."]
    victims = max((int(line["n"]) for line in lines if line.get("seconds_per_victim", "?")), default=0)
    command = f"seepage reproduce {table.name}" + (f" --victims {victims}" if victims else "")
    for axis in table.axes:
        values = list(dict.fromkeys(line[axis] for line in lines))
        if axis == "dataset" and len(values) < len({spec.dataset for _, spec in table.specs()}):
            command += "".join(f" --only {axis}={value}" for value in values)
    said.insert(1, f"`{command}`.")
    commits = [commit for commit in dict.fromkeys(line.get("commit", "") for line in lines) if commit]
    if commits:
        said.append(f"Measured at commit {', '.join(commits)}.")
    for dataset, rows in dict.fromkeys((_dataset(table, line), line.get("rows", "")) for line in lines):
        card = card_of(dataset)
        if rows and card is not None and int(rows) < card.rows:
            said.append(f"Partial data: {int(rows):,} of the {card.rows:,} rows of `{dataset}`.")
    said += [f"{note[0].upper()}{note[1:]}." for note in table.notes]
    return " ".join(said)


def _dataset(table: Table, line: site_figures.Line) -> str:
    return line.get("dataset") or str(table.audit.get("dataset", ""))


def _number(text: str, plain: bool, signed: bool = False) -> str:
    if not plain:
        return site_figures.points(text, signed)
    return f"{float(text):{'+' if signed else ''}.2f}".replace("-", "−") if text else _NONE


def _spread(line: site_figures.Line, name: str, plain: bool) -> str:
    if not line[name]:
        return _NONE
    std = line[f"{name}_std"]
    return _number(line[name], plain) + (f" ± {_number(std, plain)}" if std else "")


def _between(line: site_figures.Line, plain: bool) -> str:
    if not line["difference"]:
        return _NONE
    found = _number(line["difference"], plain, signed=True)
    if not line["low"]:
        return found
    return f"{found} [{_number(line['low'], plain, signed=True)}, {_number(line['high'], plain, signed=True)}]"


def main() -> None:
    """Rewrite the page."""
    path = ROOT / PAGE
    path.write_text(fill(path.read_text(encoding="utf-8"), ROOT), encoding="utf-8")


if __name__ == "__main__":
    main()
