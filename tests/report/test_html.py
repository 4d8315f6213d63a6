"""The page as text: what is in it, what is not, and what cannot get out of where it stands."""

from __future__ import annotations

import html
import re
import stat
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seepage.auditing import audit, run_all
from seepage.report.figures import Axis, Curve, Figure, Marks, Stroke, label
from seepage.report.report import Report
from seepage.report.sections import render
from seepage.report.svg import NARROW, WIDE, draw
from seepage.results.checks.finding import Finding
from seepage.tabular.infer import infer_schema
from tests.report.parts import CoinAudit, planted, without_evidence

TINY: dict[str, Any] = {"batch_sizes": [1, 3], "attacks": "tableak", "victims": 2, "restarts": 2, "iterations": 5}


DOUBT = Finding("SEEP001", "error", "Below <guessing>", "The attack lost to a coin \x1b & more.")


class Reader(HTMLParser):
    """Collects texts by section, scripts left out."""

    def __init__(self) -> None:
        super().__init__()
        self.sections: dict[str, str] = {}
        self.inside = ""
        self.skipped = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.skipped = tag in ("script", "style")
        if tag == "section":
            self.inside = dict(attrs)["id"] or ""

    def handle_endtag(self, tag: str) -> None:
        self.skipped = False

    def handle_data(self, data: str) -> None:
        if not self.skipped:
            self.sections[self.inside] = self.sections.get(self.inside, "") + data


def read(page: str) -> dict[str, str]:
    reader = Reader()
    reader.feed(page)
    return {name: " ".join(text.split()) for name, text in reader.sections.items()}


@pytest.fixture(scope="module")
def german() -> Report:
    return audit("german", control=False, **TINY)


class Unfolded(HTMLParser):
    """Counts what a page shows before anything is opened."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: dict[str, int] = {}
        self._closed = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if not self._closed:
            self.counts[tag] = self.counts.get(tag, 0) + 1
        if tag == "details" and "open" not in dict(attrs):
            self._closed += 1

    def handle_endtag(self, tag: str) -> None:
        self._closed -= tag == "details"


def test_plots_of_few_units_definitions_and_attacks_that_do_not_apply_are_folded(german: Report) -> None:
    page = render([german], {})
    shown = Unfolded()
    shown.feed(page)
    # Two victims: no plot at once, and no table but the verdict's and the example record's.
    assert page.count("<figure>") >= 4
    assert shown.counts.get("figure", 0) == 0
    assert shown.counts["table"] <= 2
    assert shown.counts["tr"] <= 12
    many = Unfolded()
    many.feed(render([replace(german, rows=[replace(row, n=row.n and 20) for row in german.rows])], {}))
    assert many.counts["figure"] >= 2
    assert many.counts["tr"] <= 12


def test_a_page_says_what_was_found_and_why_parts_are_missing(german: Report) -> None:
    blind = [
        run if run.evidence is None else replace(run, evidence=replace(run.evidence, uncertainty=None, true=None))
        for run in german.runs
    ]
    found = read(render([replace(german, runs=blind, findings=None)], {"commit": "abc"}))
    order = [
        "verdict",
        "threat-model",
        "checks",
        "leakage",
        "columns",
        "questions",
        "groups",
        "advice",
        "all",
        "missing",
    ]
    assert [name for name in found if name][: len(order)] == order
    assert "the server reads" in found["verdict"]
    # The verdict's words are explained beside it, each once.
    for words in ("Whole records read: ", "Mostly read: ", "Gain shown: ", "Little read: ", "Not decided: "):
        assert found["verdict"].count(words) == 1
    assert "restores them from what it sees" in found["threat-model"]
    assert "matched and pooled. Vero et al., TabLeak (ICML 2023)" in found["threat-model"]
    assert "were not run" in found["checks"]
    assert "It was switched off" in found["checks"]
    assert "says how certain it is" in found["missing"]
    assert "no configuration with a defense" in found["missing"]
    assert "No reconstructed records" in found["missing"]
    assert "abc" in found["provenance"]
    # Without anything on single cells there is nothing to say of them.
    bare = read(render([without_evidence(german)], {}))
    assert not {"reliability", "exposed", "examples", "groups"} & {*bare}
    assert "the server reads" in bare["verdict"]


def test_what_exists_is_shown(german: Report) -> None:
    found = read(render([replace(planted(german), findings=[DOUBT])], {}))
    assert "Below <guessing>" in found["checks"]
    assert "a coin \\x1b & more" in found["checks"]
    assert "Its low figure shows nothing" in found["checks"]
    assert "Taking cells from the most certain down" in found["reliability"]
    assert "of 60 cells right" in read(render([german], {}))["examples"]
    assert "rarest" in found["groups"] or "Quarter" in found["groups"]
    assert "Certainty" in found["exposed"]


def test_a_control_that_leaks_and_one_that_does_not(german: Report) -> None:
    alone = [row for row in german.rows if row.batch_size == 1]
    strong = [replace(row, n=10, mean=0.95, std=0.07, baseline=0.5, lift=0.45) for row in alone]
    weak = [replace(row, n=10, mean=0.95, std=0.35, baseline=0.5, lift=0.45) for row in alone]
    assert "So the attack works here." in read(render([replace(german, control=strong)], {}))["checks"]
    assert "the data are not shown to be safe" in read(render([replace(german, control=weak)], {}))["checks"]
    few = [replace(row, n=2) for row in weak]
    assert "Too few repetitions show that" in read(render([replace(german, control=few)], {}))["checks"]


def own_frame() -> pd.DataFrame:
    draw = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "town": draw.choice(["Quellenstadt", "Brunnenhof", "Moorgrund"], 60),
            "wage": draw.integers(12345, 99999, 60) + 0.137,
            "ill": draw.choice(["no", "yes"], 60),
        }
    )


def test_records_of_ones_own_are_in_no_page(tmp_path: Path) -> None:
    frame = own_frame()
    schema = infer_schema(frame, "ill", sensitive=("wage",))
    folder = tmp_path / "run"
    report = audit(frame, schema=schema, out=folder, control=False, **TINY)
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert stat.S_IMODE((folder / "report.html").stat().st_mode) == 0o600
    for text in (page, render([planted(report)], {})):
        for cell in [*frame["town"].unique(), *(f"{wage:.10g}" for wage in frame["wage"])]:
            assert str(cell) not in text
        assert "Records of a table of your own are not shown" in text
    kept = render([audit(frame, schema=schema, control=False, keep_records=True, **TINY)], {})
    assert "Quellenstadt" in kept or "Brunnenhof" in kept or "Moorgrund" in kept


def test_a_point_that_is_not_finite_is_not_drawn() -> None:
    inf = float("inf")
    series = Curve(
        "", [1, 2, inf], [3.0, float("nan"), 4.0], marks=Marks("--series-1", 8), y_errors=[(1, inf), None, None]
    )
    drawn = draw(Figure("f", "A figure", "One point.", [series], Axis(""), Axis("y")), WIDE)
    assert "inf" not in drawn
    assert "nan" not in drawn
    assert drawn.count("<circle") == 1


@pytest.mark.slow
def test_a_page_on_many_columns_and_configurations_fits_a_mail() -> None:
    wide = CoinAudit(sizes=range(2, 8), columns=tuple(f"number_{i}" for i in range(300)))
    [report] = run_all([wide])
    page = render([report], {})
    assert len(page) < 1_500_000
    # Of each column there are figures of two parts in 12 configurations.
    assert f"The {500 // 24} of 300 columns of which most is read" in page


def test_a_run_folder_gets_a_page_that_fetches_nothing(tmp_path: Path) -> None:
    audit("german", out=tmp_path, control=False, **TINY)
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    # All of it, figures included, fits where a mail does.
    assert len(page) < 1_500_000
    assert page.count("<script>") == 1
    assert "http-equiv" in page
    outside = re.sub(r"<script>.*?</script>", "", page, flags=re.DOTALL).replace("http://www.w3.org/2000/svg", "")
    assert not re.search(r"""(src|href)\s*=\s*["']?(https?:|//)""", outside)
    assert "unsafe-eval" not in page
    assert "script-src 'sha256-" in page


@given(st.text())
def test_a_figure_shows_any_text_as_text(value: str) -> None:
    named = label(value)
    color = "--series-1"
    series = Curve(named, [1.0, 2.0], [1.0, None], Stroke(color, 2), Marks(color, 8), [named] * 2)
    for width in (WIDE, NARROW):
        drawn = draw(Figure("f", "A figure", "One point.", [series], Axis("", ticks=[(1, named)]), Axis("y")), width)
        tree = ElementTree.fromstring(str(drawn))
        kinds = {element.tag.rpartition("}")[2] for element in tree.iter()}
        assert kinds <= {"svg", "g", "path", "line", "circle", "polygon", "text", "title"}
        attributes = {name for element in tree.iter() for name in element.attrib}
        assert not [name for name in attributes if name.startswith("on") or name.endswith("href")]
        [words] = [element.text or "" for element in tree.iter() if element.tag.endswith("title")] or [""]
        assert words == named


@given(st.text())
def test_labels_are_drawn_without_anything_that_is_read_as_markup(value: str) -> None:
    axis = Axis("", ticks=[(1, label(value, 10))])
    drawn = draw(Figure("f", "A figure", "Nothing.", [], axis, Axis("")))
    [made] = re.findall(r'class="xtick">([^<]*)</text>', drawn)
    assert ">" not in made
    assert re.fullmatch(r"([^&]|&amp;|&lt;|&gt;|&#34;|&#39;)*", made)
    assert html.unescape(made) == label(value, 10)
    assert label(value).strip("\u2068\u2069").isprintable()


def test_pages_of_wide_tables_stay_small(german: Report) -> None:
    many = [replace(row, column=f"c{i}") for i in range(40) for row in german.rows]
    page = render([replace(german, rows=[*many, *german.rows])], {})
    assert "results.csv beside this file has all of them" in page
    assert len(page) < 3_000_000
