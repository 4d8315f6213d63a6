"""Results name the code that measured them, and pages the kernel behind figures on proofs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import results_kernel
import site_tables
from seepage.kernel import KERNEL_VERSION
from seepage.reproduce.table import load_table, tables

ROOT = Path(__file__).resolve().parents[2]


def planted(folder: Path, lines: str, section: str = "It proves all: [by size](results/proofs.csv).") -> Path:
    """Return a root with one file of results and one page, whose kernels are 0 and 1."""
    page, file = folder / results_kernel.PAGE, folder / results_kernel.FOLDER / "proofs.csv"
    for place in (page, file):
        place.parent.mkdir(parents=True)
    file.write_text(lines, encoding="utf-8")
    versions = "## Kernels\n\n| version | what |\n| --- | --- |\n| kernel 0 | some |\n| kernel 1 | more |\n"
    page.write_text(f"# Results\n\n{versions}\n## Measured\n\n{section}\n", encoding="utf-8")
    return folder


def test_all_results_name_their_code_and_all_pages_the_kernel_behind_proofs() -> None:
    assert results_kernel.faults(ROOT) == []
    assert len(results_kernel.versions(ROOT)) > 15


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("size,commit\n8,\n", "line 2: the column 'commit' names no commit"),
        ("size\n8\n", "line 2: the column 'commit' names no commit"),
        ("size,commit\n8,0a1b2c3\n9,yesterday\n", "line 3: the column 'commit' names no commit"),
        ("size,certified,commit\n8,1.0,0a1b2c3\n", r"figures on proofs \(certified\) and no column 'kernel'"),
        ("size,certified,commit,kernel\n8,1.0,0a1b2c3,1\n9,1.0,0a1b2c3,\n", "line 3: kernel '' is no version"),
        ("size,certified,commit,kernel\n8,1.0,0a1b2c3,2\n", "line 2: kernel '2' is no version from 0 to 1"),
        ("size,proved,commit,kernel\n8,1.0,0a1b2c3,0\n", r"'Measured': proofs of proofs.csv are by an earlier kernel"),
        ("size,proved,commit,kernel\n8,1.0,0a1b2c3,1\n9,1.0,0a1b2c3,0\n", r"write \[kernel 0\]\(\.\.\.\) beside them"),
    ],
)
def test_lines_and_pages_without_their_version_are_named(tmp_path: Path, lines: str, said: str) -> None:
    [found] = results_kernel.faults(planted(tmp_path, lines), today=1)
    assert re.search(said, found)


def test_figures_of_an_earlier_kernel_that_are_called_so_pass(tmp_path: Path) -> None:
    section = "It proves all, by [kernel 0](#kernels): [by size](results/proofs.csv)."
    assert results_kernel.faults(planted(tmp_path, "proved,commit,kernel\n1,0a1b2c3,0\n", section), today=1) == []


def test_a_kernel_that_changes_asks_for_each_quoted_figure_again(tmp_path: Path) -> None:
    root = planted(tmp_path, "proved,commit,kernel\n1,0a1b2c3,1\n")
    assert results_kernel.faults(root, today=1) == []
    unlisted, quoted = results_kernel.faults(root, today=2)
    assert "no line of kernel 2" in unlisted
    assert "write [kernel 1](...)" in quoted


def test_sections_without_proofs_may_link_any_file(tmp_path: Path) -> None:
    section = "All cells are read: [by size](results/proofs.csv)."
    assert results_kernel.faults(planted(tmp_path, "proved,commit,kernel\n1,0a1b2c3,0\n", section), today=1) == []


def test_tables_of_the_site_say_which_kernel_proved() -> None:
    lines = [{"size": "8", "proved": "1.0", "commit": "0a1b2c3", "kernel": kernel} for kernel in ("1", "0")]
    shown = site_tables.data(lines)
    assert f"Proofs are by kernel 0 and 1; today's is kernel {KERNEL_VERSION}." in shown
    assert "| kernel |" not in shown


def count(published: object) -> int:
    """Return the number of figures in a table's print."""
    if isinstance(published, dict):
        return sum(map(count, published.values()))
    return published is not None


def test_the_page_says_how_many_printed_cells_have_no_line() -> None:
    lines = {table.name: found for table, found in site_tables.measured(ROOT).values()}
    printed = {name: count(load_table(name).published) for name in tables() if name.startswith("tableak/")}
    without = {name: printed[name] - sum(bool(line["published"]) for line in lines.get(name, ())) for name in printed}
    text = " ".join((ROOT / "benchmarks" / "RESULTS.md").read_text(encoding="utf-8").split())
    later = sum(without[f"tableak/table{number}"] for number in range(17, 21))
    assert f"Of TabLeak's {sum(without.values())} cells that were not run {later} are in tables 17 to 20" in text
