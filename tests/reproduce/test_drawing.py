"""Figures of published tables: every line of the data is a mark at its place, and texts are texts."""

from __future__ import annotations

import csv
import re
import xml.etree.ElementTree as ElementTree
from collections import Counter
from pathlib import Path

import pytest
from pydantic import ValidationError

from seepage.report.figures import Curve
from seepage.reproduce.drawing import drawing, panels
from seepage.reproduce.table import PublishedTable, load_table, tables

ROOT = Path(__file__).resolve().parents[2]
DRAWN = [
    name
    for name, table in tables().items()
    if table.drawn is not None and (ROOT / f"benchmarks/results/{name.replace('/', '_')}.csv").is_file()
]


def lines_of(name: str) -> list[dict[str, str]]:
    with (ROOT / f"benchmarks/results/{name.replace('/', '_')}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("name", DRAWN)
def test_every_line_of_a_table_is_a_point_of_its_own_and_printed_ones_stand_beside_it(name: str) -> None:
    table, lines = load_table(name), lines_of(name)
    drawn = table.drawn
    assert drawn is not None
    wanted = [line for line in lines if line["ours"] and (not drawn.runs or line["run"] in drawn.runs)]
    ours, printed = list[float](), list[float]()
    for figure in panels(table, lines):
        for curve in figure.data:
            assert isinstance(curve, Curve)
            values = [value for value in curve.y if value is not None]
            (printed if curve.name.endswith("printed") else ours).extend(values)
            assert len(set(curve.x)) == len(curve.x), "two points at one place"
    scale = {"percent": 100.0, "plain": 1.0}
    assert Counter(round(value, 6) for value in ours) == Counter(
        round(scale[line["unit"]] * float(line["ours"]), 6) for line in wanted
    )
    assert Counter(round(value, 6) for value in printed) == Counter(
        round(scale[line["unit"]] * float(line["published"]), 6) for line in wanted if line["published"]
    )
    text = drawing(table, lines)
    assert text is not None
    tree = ElementTree.fromstring(text)
    assert len(tree.findall("{http://www.w3.org/2000/svg}svg")) == len(panels(table, lines))


def test_curves_of_a_panel_differ_in_colour_or_shape() -> None:
    for name in DRAWN:
        for figure in panels(load_table(name), lines_of(name)):
            curves = [curve for curve in figure.data if isinstance(curve, Curve)]
            looks = [(curve.marks.color, curve.marks.symbol) for curve in curves if curve.marks]
            assert len(looks) == len(set(looks)), name


def test_texts_are_escaped_and_nothing_measured_is_no_figure() -> None:
    table, lines = load_table("tableak/table17"), lines_of("tableak/table17")
    assert drawing(table, []) is None
    assert drawing(load_table("tableak/table6"), lines_of("tableak/table6")) is None
    text = drawing(table, [{**line, "method": "<script>&"} for line in lines if line["method"] == "tableak"])
    assert text is not None
    assert "<script>" not in text
    assert "&lt;script&gt;&amp;" in text
    ElementTree.fromstring(text)
    assert re.search(r'aria-label="tableak/table17: FedSGD on Adult', text)


def test_a_figure_is_drawn_along_axes_of_its_table() -> None:
    table = load_table("tableak/table17")
    with pytest.raises(ValidationError, match="drawn along axes of the table"):
        PublishedTable.model_validate({**table.model_dump(), "drawn": {"across": "rounds"}})
