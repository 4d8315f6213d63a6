"""The built site: its pages, its links and what it would fetch."""

from __future__ import annotations

import html
import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
import typer.main
from mkdocs.config import load_config
from playwright.sync_api import sync_playwright

import site_hook
from seepage.cli import program

ROOT = Path(__file__).resolve().parents[2]
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


class Page(HTMLParser):
    """Addresses and anchors of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.fetched: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        self.ids |= {value for name in ("id", "name") if (value := named.get(name))}
        if tag == "a" and named.get("href"):
            self.links.append(str(named["href"]))
        if tag in ("script", "img", "iframe") and named.get("src"):
            self.fetched.append(str(named["src"]))
        if tag == "link" and named.get("rel") in ("stylesheet", "icon", "preload", "preconnect"):
            self.fetched.append(str(named["href"]))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    return {path: Page(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")}


@pytest.mark.slow
def test_every_link_within_the_site_leads_somewhere(pages: dict[Path, Page]) -> None:
    checked = 0
    for path, page in pages.items():
        if path.name == "404.html":
            continue
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            place = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            place = place / "index.html" if place.is_dir() else place
            assert place.is_file(), f"{path.name}: {link}"
            if parts.fragment and place in pages:
                assert unquote(parts.fragment) in pages[place].ids | {"__top"}, f"{path.name}: {link}"
            checked += 1
    assert checked > 1000


@pytest.mark.slow
def test_nothing_is_fetched_from_elsewhere(pages: dict[Path, Page]) -> None:
    addresses = [address for page in pages.values() for address in page.fetched]
    assert addresses
    assert [a for a in addresses if urlsplit(a).scheme not in ("", "data") or urlsplit(a).netloc] == []


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ('<link rel="stylesheet" href="https://fonts.example/css">', ["https://fonts.example/css"]),
        ("<img alt='' src='//cdn.example/a.png'>", ["//cdn.example/a.png"]),
        ("a { background: url('https://cdn.example/b.svg') }", ["https://cdn.example/b.svg"]),
        ('@import "https://cdn.example/c.css";', ["https://cdn.example/c.css"]),
        ('<a href="https://example.org">', []),
        ('<link rel="stylesheet" href="assets/site.css"><img src="data:image/png;base64,AA">', []),
        ('<link rel="canonical" href="https://example.org/">', []),
    ],
)
def test_what_a_page_fetches_is_found(text: str, wanted: list[str]) -> None:
    assert site_hook.fetched(text) == wanted


def test_a_page_that_would_fetch_is_told_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    config = load_config(str(ROOT / "mkdocs.yml"), site_dir=str(tmp_path))
    (tmp_path / "good.html").write_text('<a href="https://example.org">', encoding="utf-8")
    site_hook.on_post_build(config)
    assert caplog.messages == []
    (tmp_path / "bad.html").write_text('<script src="https://cdn.example/x.js">', encoding="utf-8")
    site_hook.on_post_build(config)
    # MkDocs counts warnings in a strict build.
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "bad.html fetches https://cdn.example/x.js" in caplog.text


@pytest.mark.slow
def test_the_reference_has_shapes_and_shows_an_object_once(site: Path, pages: dict[Path, Page]) -> None:
    entries = pages[site / "reference" / "attacks.html"].ids
    assert "seepage.attacks.horizontal.matching.ensemble.decode_by_marginals" in entries
    assert "victim restart record encoded" in (site / "reference" / "attacks.html").read_text(encoding="utf-8")
    # What a package passes on is shown where it is defined.
    whole = (site / "reference" / "assessment.html").read_text(encoding="utf-8")
    shown = re.findall(r'<h\d id="(seepage\.assessment\.[\w.]*)"', whole)
    assert [name for name in shown if name.endswith(".measure")] == ["seepage.assessment.measuring.measure"]


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no chromium here, so the site cannot be looked at")
@pytest.mark.parametrize("width", [1200, 390])
def test_pages_from_a_folder_have_search_and_sections(site: Path, width: int) -> None:
    with sync_playwright() as playwright:
        root = hasattr(os, "geteuid") and os.geteuid() == 0
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"] if root else [])
        page = browser.new_page(viewport={"width": width, "height": 900})
        troubles: list[str] = []
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on("request", lambda sent: troubles.append(sent.url) if not sent.url.startswith("file:") else None)
        page.goto((site / "methods" / "unmix.html").as_uri())
        assert page.locator(".sections a").all_inner_texts()[:3] == ["Overview", "Tutorials", "How to"]
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        if width < 600:
            page.click("header label[for=__search]")
        page.click(".md-search__input")
        page.keyboard.type("certificate")
        page.wait_for_selector(".md-search-result__item")
        assert "Verify a certificate" in page.inner_text(".md-search-result__list")
        assert troubles == []
        browser.close()


@pytest.mark.slow
def test_every_command_and_option_is_on_a_page(site: Path) -> None:
    text = html.unescape((site / "reference" / "command-line.html").read_text(encoding="utf-8"))
    shown = set(re.findall(r"--[a-z][a-z-]+", text))
    for command in typer.main.get_group(program).commands.values():
        assert f"seepage {command.name}" in text
        assert {name for option in command.params for name in option.opts if name.startswith("--")} <= shown
    assert "[bold]" not in text


@pytest.mark.slow
def test_pages_made_from_elsewhere_are_whole(site: Path, pages: dict[Path, Page]) -> None:
    assert "add-an-attack" in pages[site / "writing-an-attack.html"].ids
    assert "add-an-attack" not in pages[site / "contributing.html"].ids
    assert "the-checks" in pages[site / "contributing.html"].ids
    for source, place in site_hook.WHOLE.items():
        heads = [
            line[3:] for line in (ROOT / source).read_text(encoding="utf-8").splitlines() if line.startswith("## ")
        ]
        text = (site / place).with_suffix(".html").read_text(encoding="utf-8")
        assert heads
        assert text.count("<h2 ") == len(heads)
    assert (site / "files" / "tableak_table17.csv").read_bytes() == (
        ROOT / "benchmarks" / "results" / "tableak_table17.csv"
    ).read_bytes()
