"""Published tables on the page of results, against the files read another way."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

import site_figures
import site_tables
from seepage.reproduce import study_tables, tables

ROOT = Path(__file__).resolve().parents[2]
HEAD = (
    "run,defense,method,unit,ours,ours_std,n,published,published_std,difference,low,high,agrees,guess,guess_name,lift"
)
LINE = "faithful,none,tableak,percent,0.5,0.1,{n},0.793,0.045,-0.293,-0.3,-0.286,below,0.4,mode,0.1"


def page(*names: str) -> str:
    places = "".join(f"<!-- table: {name} -->\nold\n<!-- end of table -->\n" for name in names)
    return f"# Results\n\n<!-- tables -->\nold\n<!-- end of tables -->\n\n{places}\nend\n"


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / site_tables.FOLDER
    made.mkdir(parents=True)
    return made


def test_the_page_of_results_is_what_the_files_say() -> None:
    text = (ROOT / site_tables.PAGE).read_text(encoding="utf-8")
    assert site_tables.fill(text, ROOT) == text, "run: python tools/site_tables.py"


def test_every_line_of_every_file_is_on_the_page() -> None:
    text = (ROOT / site_tables.PAGE).read_text(encoding="utf-8")
    for path in (ROOT / site_tables.FOLDER).glob("*_table*.csv"):
        table = {**tables(), **study_tables()}[path.stem.replace("_", "/", 1)]
        begin = text.index(f"<!-- table: {path.stem} -->")
        made = [
            cells(one) for one in text[begin : text.index("<!-- end of table -->", begin)].splitlines() if "|" in one
        ]
        with path.open(encoding="utf-8") as file:
            lines = list(csv.DictReader(file))
        assert len(made) == len(lines) + 2
        for row, line in zip(made[2:], lines, strict=True):
            shown = dict(zip(made[0], row, strict=True))
            assert [shown[axis] for axis in ("run", "n", *table.axes)] == [line[a] for a in ("run", "n", *table.axes)]
            by, within = (1, 0.0051) if line.get("unit") == "plain" else (100, 0.051)
            assert (shown["ours"] == "–") == (line["ours"] == "")
            if shown["ours"] != "–":
                assert float(shown["ours"].split(" ")[0].replace("−", "-")) == pytest.approx(
                    by * float(line["ours"]), abs=within
                )
            assert (shown["printed"] == "–") == (line["published"] == "")
            assert shown["within"] == (line["agrees"] or "–")


def test_what_was_measured_is_told_and_what_is_partial_too(folder: Path) -> None:
    head = HEAD.replace("defense,method", "labels,method,batch_size")
    line = LINE.format(n=3).replace("none,tableak", "true,tableak,8")
    (folder / "tableak_table19.csv").write_text(f"{head},rows,commit\n{line},56117,abc\n")
    root = folder.parents[1]
    made = site_tables.fill(page("tableak_table19"), root)
    assert "`seepage reproduce tableak/table19 --victims 3`" in made
    assert "Measured at commit abc." in made
    assert "Partial data: 56,117 of the 96,584 rows of `lawschool`." in made
    assert "| `tableak/table19` |" in made
    assert cells(made.splitlines()[6])[2:] == ["3", "1", "0", "0", "1", "0"]
    assert "old" not in made
    assert made.endswith("\nend\n")
    assert site_tables.fill(made, root) == made


def test_a_table_that_is_run_in_part_says_which(folder: Path) -> None:
    (folder / "tableak_table33.csv").write_text(
        "run,dataset,restarts,unit,ours,ours_std,n,published,published_std,difference,low,high,agrees,guess,guess_name,lift\n"
        "faithful,adult,5,percent,0.7,,1,,,,,,,,,\n"
    )
    made = site_tables.fill(page("tableak_table33"), folder.parents[1])
    assert "`seepage reproduce tableak/table33 --victims 1 --only dataset=adult`" in made
    assert "| faithful | adult | 5 | 1 | 70.0 | – | – | – | – | – |" in made


def test_a_file_without_a_place_and_a_place_without_a_file_are_told(folder: Path) -> None:
    with pytest.raises(site_figures.FigureError, match="no such file"):
        site_tables.fill(page("tableak_table6"), folder.parents[1])
    (folder / "tableak_table6.csv").write_text(f"{HEAD}\n{LINE.format(n=3)}\n")
    with pytest.raises(site_figures.FigureError, match="no place for"):
        site_tables.fill(page(), folder.parents[1])
