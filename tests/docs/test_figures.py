"""Tables of method cards, against the result files read another way."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import site_figures

ROOT = Path(__file__).resolve().parents[2]
CARDS = sorted((ROOT / "docs" / "methods").glob("*.md"))


def cells(table: str) -> list[list[str]]:
    """Return the cells of every table's lines."""
    rows = [line for line in table.splitlines() if line.startswith("|") and not line.startswith("| ---")]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def numbers(text: str) -> list[float]:
    return [float(found.replace("−", "-")) for found in re.findall(r"[+−]?\d+(?:\.\d+)?", text)]


def lines(path: str, method: str, run: str) -> list[dict[str, Any]]:
    """Return the lines of a result file with true labels."""
    # "true" is a word here, which pandas would read as a truth value.
    frame = pd.read_csv(ROOT / path, converters={"labels": str})
    kept = frame[(frame["method"] == method) & (frame["labels"] == "true") & (frame["run"] == run)]
    return [dict(zip(kept.columns, row, strict=True)) for row in kept.itertuples(index=False)]


def percent(line: dict[str, Any], *names: str) -> Any:
    return pytest.approx([100 * line[name] for name in names], abs=0.051)


@pytest.mark.parametrize("method", ["tableak", "tableak_no_pooling", "tableak_no_softmax", "dlg", "random"])
def test_every_line_of_the_result_files_is_in_the_method_s_tables(method: str) -> None:
    made = [row for row in cells(site_figures.figures(ROOT, method)) if row[0].isdigit()]
    expected = [line for path in site_figures.PUBLISHED.values() for line in lines(path, method, "faithful")]
    assert len(made) == len(expected) > 0
    for row, line in zip(made, expected, strict=True):
        assert int(row[0]) == line["batch_size"]
        assert numbers(row[1]) == percent(line, "published", "published_std")
        assert numbers(row[2]) == percent(line, "ours", "ours_std")
        assert int(row[3]) == line["n"]
        assert numbers(row[4]) == percent(line, "difference", "low", "high")
        assert row[5] == line["agreement"]


def test_the_default_profile_stands_beside_where_it_was_run() -> None:
    [head, *rows] = [row for row in cells(site_figures.figures(ROOT, "tableak")) if row[0] in ("batch size", "32")][:2]
    # The stronger profile is not held against the print.
    assert head[6:] == ["`default`", "n", "best baseline"]
    [line] = [
        one for one in lines(site_figures.PUBLISHED["tableak/table17"], "tableak", "default") if one["batch_size"] == 32
    ]
    assert numbers(rows[0][6]) == percent(line, "ours", "ours_std")
    assert numbers(rows[0][8]) == percent(line, "guess")


def test_what_is_missing_is_a_dash_and_not_a_zero(tmp_path: Path) -> None:
    folder = tmp_path / "benchmarks" / "results"
    folder.mkdir(parents=True)
    head = "run,labels,batch_size,method,ours,ours_std,n,published,published_std,difference,low,high,agreement,guess"
    for path in site_figures.PUBLISHED.values():
        (tmp_path / path).write_text(f"{head}\nfaithful,true,8,dlg,0.5,0.1,3,,,,,,,\n")
    [_, row] = cells(site_figures.figures(tmp_path, "dlg"))[:2]
    assert row == ["8", "–", "50.0\N{NO-BREAK SPACE}±\N{NO-BREAK SPACE}10.0", "3", "–", "–"]


@pytest.mark.parametrize(
    "asked",
    ["figures: nothing", "figures: dlg labels=guessed", "figures: dlg color=red", "figures", "configuration: x"],
)
def test_a_page_that_asks_for_what_is_not_there_is_told(asked: str) -> None:
    with pytest.raises((site_figures.FigureError, ValueError)):
        site_figures.fill(f"<!-- {asked} -->\n", ROOT)


def test_the_configuration_is_what_the_attack_is_made_of() -> None:
    table = {row[0]: row[1:] for row in cells(site_figures.configuration("tableak"))}
    assert table["argument"] == ["`default`", "`faithful`"]
    assert table["`logits`"] == ["`raw`", "`standardised`"]
    assert table["`restarts`"] == ["30", "30"]
    assert table["`signed`"] == ["yes", "yes"]
    assert cells(site_figures.configuration("dlg"))[1] == ["`matching`", "`MeanSquared`", "`MeanSquared`"]


@pytest.mark.parametrize("card", CARDS, ids=lambda path: path.stem)
def test_cards_ask_for_their_figures_and_type_none(card: Path) -> None:
    text = card.read_text(encoding="utf-8")
    assert "<!-- " in text
    filled = site_figures.fill(text, ROOT)
    assert "<!-- " not in filled
    assert len(cells(filled)) > len(cells(text))
    # A rate typed by hand would not follow the result files; the level of intervals is none.
    assert re.findall(r"\d+\s?%", text.replace("95% interval", "")) == []
