"""Draws the pictures of README and documentation: badges, who sends what to whom, the end of an audit, its report.

python tools/pictures.py             # all of them; needs Chromium, and minutes for the audit
python tools/pictures.py --quick     # those that need no audit
"""

from __future__ import annotations

import argparse
import html
import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
import tomllib
from collections.abc import Iterator
from pathlib import Path

from PIL import Image
from playwright.sync_api import ViewportSize, sync_playwright
from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.text import Text

from seepage.auditing import prepare_all
from seepage.config.document import read_text_document
from seepage.settings.setting import About

ASSETS = Path(__file__).resolve().parents[1] / "docs" / "assets"
FLOWS, SCREEN, REPORT = ASSETS / "flows.svg", ASSETS / "screen.svg", ASSETS / "report.png"
PROJECT = Path(__file__).resolve().parents[1] / "pyproject.toml"
COMMAND = ("audit",)
SETTINGS = ("horizontal", "split", "vertical", "pooled", "trees", "statistics")
SIZE: ViewportSize = {"width": 1120, "height": 720}
# Widths of the picture of flows and of its parts, and heights of a line of text and of a setting.
_WIDE, _SENDER, _BOX, _LABEL, _LINE, _ROW = 860, 160, 290, 100, 17, 72


def abouts() -> dict[str, About]:
    """Return the description of a default audit of Adult for each setting."""
    texts = {name: f"setting: {name}\ndataset: adult\n" for name in SETTINGS}
    return {name: prepare_all(read_text_document(text, name, Path()))[0].about for name, text in texts.items()}


def flow_words(about: About) -> tuple[str, str, str, str]:
    """Return who sends, what is sent, who receives it, and what this party may read."""
    return about.sender, about.message, about.attacker, f"may read {about.secret}"


def flows(described: dict[str, About]) -> str:
    """Return the picture of who sends what to whom as SVG."""
    height = _ROW * len(described) + 8
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDE} {height}" role="img" '
        'aria-label="Who sends what to whom in the six settings" font-family="system-ui, sans-serif" font-size="13">',
        "<style>text{fill:#1f2937}.box{fill:#f0fdfa;stroke:#0f766e}.reader{fill:#fef2f2;stroke:#b91c1c}.arrow{stroke:#64748b;"
        "stroke-width:1.5}.tip{fill:#64748b}@media(prefers-color-scheme:dark){text{fill:#e5e7eb}.box{fill:#134e4a}"
        ".reader{fill:#450a0a}}</style>",
    ]
    left, right = _LABEL, _WIDE - _BOX
    for k, (name, about) in enumerate(described.items()):
        sender, message, reader, secret = flow_words(about)
        top = 6 + k * _ROW
        middle, bottom = top + (_ROW - 12) / 2, top + _ROW - 12
        parts.append(_text(0, middle + 5, [name], 'font-weight="600"'))
        for x, kind, lines in ((left, "box", [sender]), (right, "reader", [reader, secret])):
            wide = _SENDER if kind == "box" else _BOX
            wrapped = [part for line in lines for part in textwrap.wrap(line, 42)][:3]
            parts.append(f'<rect class="{kind}" x="{x}" y="{top}" width="{wide - 2}" height="{bottom - top}" rx="6"/>')
            first = middle - _LINE * (len(wrapped) - 1) / 2 + 5
            parts.append(_text(x + 12, first, wrapped))
        start, end = left + _SENDER + 6, right - 8
        parts.append(f'<line class="arrow" x1="{start}" y1="{middle}" x2="{end}" y2="{middle}"/>')
        parts.append(f'<path class="tip" d="M{end} {middle - 4}l8 4-8 4z"/>')
        parts.append(_text((start + end) / 2, middle - 8, [message], 'text-anchor="middle"'))
    return "\n".join([*parts, "</svg>", ""])


def _text(x: float, y: float, lines: list[str], how: str = "") -> str:
    spans = "".join(
        f'<tspan x="{x:g}" y="{y + _LINE * k:g}">{html.escape(line)}</tspan>' for k, line in enumerate(lines)
    )
    return f"<text {how}>{spans}</text>"


def badges() -> dict[str, tuple[str, str]]:
    """Return the two halves of each badge, from the package's metadata."""
    project = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]
    python = project["requires-python"].removeprefix(">=")
    return {
        "python": ("python", f"{python} or newer"),
        "licence": ("licence", project["license"]),
        "tests": ("tests", "make test"),
    }


def badge(left: str, right: str) -> str:
    """Return a badge as SVG."""
    widths = [7 * len(part) + 14 for part in (left, right)]
    places = zip((0, widths[0]), widths, ("#475569", "#0f766e"), (left, right), strict=True)
    parts = [
        f'<rect x="{x}" width="{width}" height="20" fill="{fill}"/>'
        f'<text x="{x + width / 2:g}" y="14" text-anchor="middle" fill="#fff">{html.escape(text)}</text>'
        for x, width, fill, text in places
    ]
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{sum(widths)}" height="20" role="img" '
    return "\n".join(
        [
            f'{head}aria-label="{html.escape(f"{left}: {right}")}" font-family="monospace" font-size="11">',
            *parts,
            "</svg>",
            "",
        ]
    )


def words_of(svg: str) -> list[str]:
    """Return the texts of a picture."""
    inner = re.findall(r"<(?:text|tspan)[^>]*>([^<]+)</", svg)
    return [html.unescape(text).replace("\N{NO-BREAK SPACE}", " ").strip() for text in inner]


def audited(folder: Path) -> str:
    """Return what the command prints at its end, once its figures are in the folder."""
    command = [sys.executable, "-m", "seepage", *COMMAND, "--out", folder.name]
    subprocess.run(command, cwd=folder.parent, check=True, capture_output=True)
    coloured = os.environ | {"FORCE_COLOR": "1", "COLUMNS": "80"}
    return subprocess.run(
        command,
        cwd=folder.parent,
        check=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=coloured,
    ).stdout


def screen(printed: str) -> str:
    """Return what a command printed as a picture of a terminal, without fonts from elsewhere."""
    console = Console(record=True, width=80, file=io.StringIO(), force_terminal=True)
    console.print(Text("$ seepage " + " ".join(COMMAND), "bold"))
    console.print(Text.from_ansi(printed.strip("\n")), soft_wrap=True)
    code = re.sub(r"@font-face \{\{.*?\}\}|<!--.*?-->", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
    return console.export_svg(
        title="seepage", code_format=code.replace("Fira Code", "ui-monospace"), unique_id="screen"
    )


def page(report: Path) -> bytes:
    """Return the first screen of a report as PNG with a palette, which is a third of the size."""
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        shown = browser.new_page(viewport=SIZE, device_scale_factor=1.5, color_scheme="light")
        shown.goto(report.resolve().as_uri())
        shown.wait_for_load_state("networkidle")
        shot = shown.screenshot()
        browser.close()
    written = io.BytesIO()
    Image.open(io.BytesIO(shot)).convert("RGB").quantize(128).save(written, "PNG", optimize=True)
    return written.getvalue()


def drawn(folder: Path) -> Iterator[Path]:
    """Draw the pictures that need an audit, and yield their files."""
    SCREEN.write_text(screen(audited(folder)), encoding="utf-8")
    yield SCREEN
    REPORT.write_bytes(page(folder / "report.html"))
    yield REPORT


def main() -> None:
    """Draw the pictures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="draw those that need no audit")
    parser.add_argument("--folder", type=Path, help="folder of the run, from which a stopped one goes on")
    given = parser.parse_args()
    for name, halves in badges().items():
        (ASSETS / f"{name}.svg").write_text(badge(*halves), encoding="utf-8")
    FLOWS.write_text(flows(abouts()), encoding="utf-8")
    print(FLOWS)
    if not given.quick:
        with tempfile.TemporaryDirectory() as place:
            for file in drawn(given.folder or Path(place) / "people"):
                print(file)


if __name__ == "__main__":
    main()
