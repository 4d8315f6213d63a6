"""The report in a real browser: it draws, sorts, prints, follows dark mode and shows hostile data as text."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from seepage.auditing import audit, run_all
from seepage.report.comparing import comparison_document
from seepage.report.page import page as render_page
from seepage.report.report import Report
from seepage.report.sections import write_html
from seepage.results.compare import compare_runs, load_run
from tests.report.parts import HEBREW, IMAGE, LONG, SCRIPT, CoinAudit, hostile_audit, planted

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
AXE = Path(__file__).parent / "axe" / "axe.min.js"
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium here, so the report cannot be looked at")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        root = hasattr(os, "geteuid") and os.geteuid() == 0
        launched = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"] if root else [])
        yield launched
        launched.close()


@pytest.fixture(scope="module")
def hostile() -> Report:
    return hostile_audit(keep_records=True)


@pytest.fixture(scope="module")
def plain() -> Report:
    chosen: dict[str, Any] = {"batch_sizes": [1, 4, 16], "attacks": "tableak", "restarts": 2, "iterations": 30}
    return planted(audit("german", victims=3, control=False, **chosen))


@pytest.fixture(scope="module")
def hostile_page(browser: Browser, hostile: Report, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    path = tmp_path_factory.mktemp("hostile") / "report.html"
    write_html(path, [hostile], {SCRIPT: IMAGE, "list": [{"name": LONG}]})
    page, troubles = opened(browser, path)
    yield page
    # Whatever the tests did with it, it asked for nothing and complained about nothing.
    assert troubles == []
    page.close()


@pytest.fixture(scope="module")
def page(browser: Browser, plain: Report, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    path = tmp_path_factory.mktemp("plain") / "report.html"
    write_html(path, [plain], {"time": "now"})
    made, troubles = opened(browser, path)
    yield made
    assert troubles == []
    made.close()


def opened(browser: Browser, path: Path) -> tuple[Page, list[str]]:
    """Open a page and its folded parts; the list gets messages on the console, errors and requests for more than it."""
    troubles: list[str] = []
    made = browser.new_page(viewport={"width": 1200, "height": 900})
    made.on("console", lambda message: troubles.append(f"{message.type}: {message.text}"))
    made.on("pageerror", lambda error: troubles.append(f"error: {error}"))
    made.on("request", lambda request: troubles.append(request.url) if request.url != path.as_uri() else None)
    made.on("dialog", lambda dialog: troubles.append(f"dialog: {dialog.message}"))
    made.goto(path.as_uri())
    made.evaluate("document.querySelectorAll('details:is(.part, .plot-behind)').forEach(one => { one.open = true; })")
    return made, troubles


@pytest.mark.parametrize("which", [pytest.param("page", marks=pytest.mark.slow), "hostile_page"])
def test_every_figure_is_drawn_and_named_and_has_its_data(which: str, request: pytest.FixtureRequest) -> None:
    shown: Page = request.getfixturevalue(which)
    plots = shown.locator(".plot").all()
    assert len(plots) >= 6
    for plot in plots:
        assert plot.locator("svg:visible .trace, svg:visible .hm").count() > 0, plot.get_attribute("id")
        assert plot.locator("svg:visible").count() == 1
        assert plot.get_attribute("role") == "img"
        assert len(plot.get_attribute("aria-label") or "") > 20
    figures = shown.locator("figure").all()
    assert len(figures) == len(plots)
    for figure in figures:
        assert figure.locator("details table tbody tr").count() > 0
        assert (figure.locator("figcaption").text_content() or "").strip()


def column(shown: Page, table: str, head: str) -> list[str]:
    return shown.evaluate(
        """([table, head]) => {
            const heads = Array.from(document.querySelectorAll(table + ' thead th'));
            const at = heads.findIndex((one) => one.textContent.trim() === head);
            const rows = Array.from(document.querySelectorAll(table + ' tbody tr'));
            return rows.map((row) => row.cells[at].textContent.trim());
        }""",
        [table, head],
    )


def test_tables_sort_by_click_and_by_keyboard_with_what_is_missing_last(page: Page) -> None:
    table = "#all table"
    page.locator("#all summary").click()
    head = page.locator(f"{table} thead th", has_text=re.compile("^Lift$"))
    assert head.get_attribute("aria-sort") == "none"
    before = column(page, table, "Lift")
    assert "–" in before[:5]

    def numbers() -> list[float]:
        texts = column(page, table, "Lift")
        known = [text for text in texts if text != "–"]
        assert texts == known + ["–"] * (len(texts) - len(known))
        return [float(text) for text in known]

    head.locator("button").click()
    assert head.get_attribute("aria-sort") == "ascending"
    assert numbers() == sorted(numbers())
    head.locator("button").focus()
    page.keyboard.press("Enter")
    assert head.get_attribute("aria-sort") == "descending"
    assert numbers() == sorted(numbers(), reverse=True)
    page.keyboard.press("Space")
    assert head.get_attribute("aria-sort") == "ascending"
    assert sorted(column(page, table, "Lift")) == sorted(before)
    assert "Sorted by Lift, ascending" in (page.locator("#status").text_content() or "")
    name = page.locator(f"{table} thead th", has_text="Metric")
    name.locator("button").click()
    assert head.get_attribute("aria-sort") == "none"
    assert column(page, table, "Metric") == sorted(column(page, table, "Metric"))


def test_the_keyboard_skips_to_the_content_and_reaches_every_control(
    browser: Browser, plain: Report, tmp_path: Path
) -> None:
    write_html(tmp_path / "report.html", [plain], {})
    page, troubles = opened(browser, tmp_path / "report.html")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    page.wait_for_function("location.hash === '#main'")
    unreachable = page.evaluate(
        "Array.from(document.querySelectorAll('a[href], button, summary')).filter(one => one.tabIndex < 0).length"
    )
    assert unreachable == 0
    assert troubles == []
    page.close()


@pytest.mark.parametrize("which", ["page", "hostile_page"])
def test_headings_landmarks_tables_and_names_are_in_order(which: str, request: pytest.FixtureRequest) -> None:
    shown: Page = request.getfixturevalue(which)
    levels = shown.evaluate("Array.from(document.querySelectorAll('h1,h2,h3,h4,h5,h6'), h => Number(h.tagName[1]))")
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    for landmark in ("header", "nav", "main", "footer"):
        assert shown.locator(landmark).count() == 1
    assert shown.locator("html").get_attribute("lang") == "en"
    names = shown.evaluate("Array.from(document.querySelectorAll('[id]'), one => one.id)")
    assert len(names) == len(set(names))
    dangling = shown.evaluate(
        "Array.from(document.querySelectorAll('a[href^=\"#\"]')).filter(a => !document.querySelector(a.hash)).length"
    )
    assert dangling == 0
    for table in shown.locator("table").all():
        assert (table.locator("caption").text_content() or "").strip()
        assert table.locator("thead th:not([scope=col])").count() == 0
        assert table.locator("tbody th:not([scope=row])").count() == 0


def test_pages_follow_dark_mode_and_print(page: Page) -> None:
    def colours() -> list[str]:
        return page.evaluate(
            """[getComputedStyle(document.body).backgroundColor,
                getComputedStyle(document.querySelector('.plot svg .xtick')).fill,
                getComputedStyle(document.querySelector('.plot svg path')).stroke]"""
        )

    page.emulate_media(color_scheme="light")
    light = colours()
    page.emulate_media(color_scheme="dark")
    dark = colours()
    assert light[0] == "rgb(255, 255, 255)"
    assert all(before != after for before, after in zip(light, dark, strict=True))
    page.emulate_media(color_scheme="dark", media="print")
    assert colours()[0] == "rgb(255, 255, 255)"
    assert not page.locator("nav").is_visible()
    assert page.locator(".verdict").first.is_visible()
    assert page.locator(".part-findings").is_visible()
    printed = page.pdf()
    assert len(printed) > 10_000
    # Two pages to archive.
    assert len(re.findall(rb"/Type\s*/Page\b", printed)) <= 2
    page.emulate_media(color_scheme="light", media="screen")


def test_hostile_names_and_cells_are_text_and_run_nothing(hostile_page: Page) -> None:
    text = hostile_page.locator("body").inner_text()
    whole = hostile_page.locator("body").text_content() or ""
    assert hostile_page.evaluate("window.__hacked") is None
    for wanted in (SCRIPT, IMAGE, HEBREW, "abc\\u202egnp.exe\\u2066", "{{7*7}}", "first\\nsecond\\r\\x00\\x1b[31mred"):
        assert wanted in whole, wanted
    assert SCRIPT in text
    for control in "\u202e\u2066\x00\x1b":
        assert control not in whole
    assert LONG[:500] not in whole
    found = hostile_page.evaluate(
        """({elements: Array.from(document.querySelectorAll('main *'), one => one.tagName.toLowerCase()),
             links: Array.from(document.querySelectorAll('a'), one => one.getAttribute('href') || ''),
             handlers: Array.from(document.querySelectorAll('main *')).filter(
                 one => Array.from(one.attributes).some(a => a.name.startsWith('on'))).length})"""
    )
    assert not {"script", "img", "iframe", "object", "embed", "i", "b"} & set(found["elements"])
    assert found["handlers"] == 0
    assert all(link == "" or link.startswith("#") for link in found["links"])


def test_plots_show_markup_as_text(hostile_page: Page) -> None:
    texts = hostile_page.evaluate("Array.from(document.querySelectorAll('.plot svg text'), one => one.textContent)")
    assert any("<img src=x" in text for text in texts)
    assert any("</script><script>" in text for text in texts)
    assert any('<a href="java' in text for text in texts)
    assert any(HEBREW in text for text in texts)
    assert hostile_page.locator(".plot svg a, .plot svg foreignObject").count() == 0
    assert hostile_page.locator(".plot svg image").count() == 0
    # What the pointer shows of a mark.
    words = hostile_page.evaluate("Array.from(document.querySelectorAll('.plot svg title'), one => one.textContent)")
    assert any("<img src=x" in text for text in words)
    assert hostile_page.locator(".plot svg title *").count() == 0
    assert hostile_page.evaluate("window.__hacked") is None


def test_the_page_refuses_scripts_that_are_not_its_own(browser: Browser, plain: Report, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    write_html(path, [plain], {})
    broken = path.read_text(encoding="utf-8").replace("</main>", "<script>window.__hacked = 1</script></main>")
    path.write_text(broken, encoding="utf-8")
    shown, troubles = opened(browser, path)
    assert shown.evaluate("window.__hacked") is None
    assert any("Content Security Policy" in trouble for trouble in troubles)
    shown.close()


def test_without_scripts_words_and_tables_are_there(browser: Browser, plain: Report, tmp_path: Path) -> None:
    write_html(tmp_path / "report.html", [plain], {})
    context = browser.new_context(java_script_enabled=False)
    shown = context.new_page()
    shown.goto((tmp_path / "report.html").as_uri())
    assert shown.locator(".headline").is_visible()
    # Few units: the plots are behind their titles, which open without a script.
    assert shown.locator(".plot svg:visible").count() == 0
    shown.locator("details.plot-behind > summary").first.click()
    assert shown.locator(".plot svg:visible").first.is_visible()
    shown.locator("figure summary").first.click()
    assert shown.locator("figure table").first.is_visible()
    context.close()


def test_several_audits_share_a_page(browser: Browser, plain: Report, hostile: Report, tmp_path: Path) -> None:
    write_html(tmp_path / "report.html", [plain, hostile], {})
    shown, troubles = opened(browser, tmp_path / "report.html")
    assert troubles == []
    names = shown.evaluate("Array.from(document.querySelectorAll('[id]'), one => one.id)")
    assert len(names) == len(set(names))
    assert shown.locator("h2.audit-title").count() == 2
    assert shown.evaluate("Array.from(document.querySelectorAll('h1,h2,h3'), h => h.tagName)")[:3] == ["H1", "H2", "H2"]
    drawn = shown.evaluate(
        "Array.from(document.querySelectorAll('.plot')).filter(one => one.querySelector('svg')).length"
    )
    assert drawn == shown.locator(".plot").count()
    shown.close()


@pytest.mark.slow
@pytest.mark.parametrize("width", [pytest.param(390, marks=pytest.mark.slow), 1200])
def test_axe_finds_nothing(browser: Browser, plain: Report, tmp_path: Path, width: int) -> None:
    write_html(tmp_path / "report.html", [plain], {"time": "now"})
    # The page's own policy lets no other script in.
    context = browser.new_context(bypass_csp=True, viewport={"width": width, "height": 900})
    shown = context.new_page()
    shown.goto((tmp_path / "report.html").as_uri())
    shown.add_script_tag(path=AXE)
    found = shown.evaluate("axe.run()")
    assert len(found["passes"]) > 20
    assert [(one["id"], one["nodes"][0]["html"]) for one in found["violations"]] == []
    context.close()


@pytest.mark.parametrize("width", [390, 1200])
def test_labels_of_figures_lie_within_them_and_cover_none_other(
    browser: Browser, plain: Report, tmp_path: Path, width: int
) -> None:
    write_html(tmp_path / "report.html", [plain], {})
    shown = browser.new_page(viewport={"width": width, "height": 900})
    shown.goto((tmp_path / "report.html").as_uri())
    wrong = shown.evaluate(
        """Array.from(document.querySelectorAll('.plot svg')).filter(svg => svg.clientWidth).flatMap(svg => {
            const frame = svg.getBoundingClientRect();
            const texts = Array.from(svg.querySelectorAll('text'));
            const cut = texts.filter(text => {
                const box = text.getBoundingClientRect();
                return box.left < frame.left - 1 || box.right > frame.right + 1
                    || box.top < frame.top - 1 || box.bottom > frame.bottom + 1;
            });
            // Slanted boxes are wider than their texts.
            const flat = texts.filter(text => !text.hasAttribute('transform'))
                .map(text => [text.textContent, text.getBoundingClientRect()]);
            const covered = flat.flatMap(([one, a], i) => flat.slice(i + 1)
                .filter(([, b]) => a.left < b.right - 2 && b.left < a.right - 2)
                .filter(([, b]) => a.top < b.bottom - 4 && b.top < a.bottom - 4)
                .map(([other]) => `${one} and ${other}`));
            return [...cut.map(text => text.textContent), ...covered];
        })"""
    )
    assert wrong == []
    # The name of a verdict is not cut either, and the first table needs no scrolling beside its contents.
    little = shown.locator(".zone.little > span").first
    assert little.evaluate("one => getComputedStyle(one.parentNode).overflow") == "visible"
    assert little.evaluate("one => one.getBoundingClientRect().left") >= 0
    if width == 1200:
        first = shown.locator(".scroll").first
        assert first.evaluate("one => one.scrollWidth <= one.clientWidth")
    shown.close()


@pytest.mark.parametrize("width", [360, 1200])
def test_nothing_spills_over_the_side(browser: Browser, hostile: Report, tmp_path: Path, width: int) -> None:
    write_html(tmp_path / "report.html", [hostile], {})
    shown = browser.new_page(viewport={"width": width, "height": 800})
    shown.goto((tmp_path / "report.html").as_uri())
    assert shown.evaluate("document.documentElement.scrollWidth") <= width
    shown.close()


@pytest.mark.slow
def test_a_comparison_is_drawn_too(browser: Browser, tmp_path: Path) -> None:
    chosen: dict[str, Any] = {"batch_sizes": [1, 2], "attacks": "dlg", "victims": 3, "control": False}
    for name, steps in (("first", 3), ("second", 30)):
        audit("german", out=tmp_path / name, iterations=steps, **chosen)
    path = tmp_path / "compare.html"
    found = compare_runs(load_run(tmp_path / "first"), load_run(tmp_path / "second"))
    path.write_text(render_page(comparison_document(found)), encoding="utf-8")
    shown, troubles = opened(browser, path)
    assert troubles == []
    assert shown.locator(".plot").count() == 2
    for plot in shown.locator(".plot").all():
        assert plot.locator("svg:visible .trace").count() == 2
    assert "audits 1.spec.iterations" in shown.locator("#differing").inner_text()
    shown.close()


@pytest.mark.parametrize("sizes", [(None,), (2, 8)])
def test_any_setting_is_drawn(browser: Browser, tmp_path: Path, sizes: tuple[int | None, ...]) -> None:
    [report] = run_all([CoinAudit(sizes=sizes, sensitive=("a",))])
    write_html(tmp_path / "report.html", [report], {})
    page, troubles = opened(browser, tmp_path / "report.html")
    assert troubles == []
    plots = page.locator(".plot").all()
    assert [plot.get_attribute("id") for plot in plots] == [f"figure-{name}" for name in report.figures]
    for plot in plots:
        assert plot.locator("svg .trace, svg .hm").count() > 0, plot.get_attribute("id")
    page.close()


def test_the_first_screen_of_a_phone_shows_the_verdict_and_what_to_do(
    browser: Browser, plain: Report, tmp_path: Path
) -> None:
    write_html(tmp_path / "report.html", [plain], {"time": "now"})
    shown, troubles = opened(browser, tmp_path / "report.html")
    shown.set_viewport_size({"width": 390, "height": 844})
    # The verdict itself, and the heading of what to do.
    for part in (".verdict .headline", ".action h3"):
        box = shown.locator(part).first.bounding_box()
        assert box is not None
        assert box["y"] + box["height"] <= 844, part
    # Of a table that is wider than the screen, the caption is not cut.
    for caption in shown.locator("section > .scroll caption > bdi").all():
        box = caption.bounding_box()
        assert box is not None
        assert box["x"] + box["width"] <= 390, caption.text_content()
    assert troubles == []
    shown.close()


@pytest.mark.parametrize("which", ["plain", "hostile"])
def test_a_page_is_at_most_6000_pixels_high_and_shows_what_is_cut(
    browser: Browser, which: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    write_html(tmp_path / "report.html", [request.getfixturevalue(which)], {})
    shown = browser.new_page(viewport={"width": 1200, "height": 900})
    shown.goto((tmp_path / "report.html").as_uri())
    assert shown.evaluate("document.documentElement.scrollHeight") <= 6000
    assert shown.evaluate("document.documentElement.scrollWidth") <= 1200
    # Whatever is wider than its place is scrolled, and has a shadow where it is cut.
    cut = """[...document.querySelectorAll("main *")].filter((one) => {
        const style = getComputedStyle(one);
        return one.clientWidth && one.scrollWidth > one.clientWidth + 1 && style.overflowX !== "visible"
            && !one.matches(".unseen, .zone") && !style.backgroundImage.includes("gradient");
    }).map((one) => one.outerHTML.slice(0, 99))"""
    assert shown.evaluate(cut) == []
    # A link to a folded part opens it.
    part = shown.locator("#questions > details.part")
    assert part.get_attribute("open") is None
    shown.locator('nav a[href="#questions"]').click()
    assert part.get_attribute("open") is not None
    shown.close()
