"""A document as one self-contained page: style, script and figures (SVG) are part of the file, and nothing is fetched.

Templates escape every text and isolate it from its surroundings' writing direction; a content security policy allows
this page's own scripts alone, by their digests.
"""

from __future__ import annotations

import base64
import hashlib
import itertools
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from seepage.report.document import Block, Document, GridCell
from seepage.report.figures import Figure
from seepage.report.svg import NARROW, WIDE, draw
from seepage.results.verdict import style_of


def page(document: Document) -> str:
    """Return a document as a page."""
    script, style = (source(name) for name in ("page.js", "style.css"))
    # A browser takes the digest of what stands between the tags, to the letter.
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    template = environment().get_template("page.html")
    return template.render(document=document, style=style, script=script, digest=f"sha256-{digest}")


@cache
def environment() -> Environment:
    """Return the templates, which escape whatever they are given."""
    templates = Environment(
        loader=PackageLoader("seepage.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters = {"sort_value": _sort_value, "drawing": _drawing, "style_of": style_of, "by_kind": _by_kind}
    templates.filters.update(filters)
    return templates


def _by_kind(blocks: Sequence[Block]) -> Iterator[tuple[str, list[Block]]]:
    """Return blocks that follow each other and are of one kind, with the name of its macro."""
    for kind, group in itertools.groupby(blocks, lambda block: type(block).__name__.lower()):
        yield kind, list(group)


def _drawing(figure: Figure) -> Markup:
    """Return a figure for a column of text and for a phone; the page's style shows the one that fits."""
    return draw(figure, WIDE) + draw(figure, NARROW)


def _sort_value(cell: GridCell) -> str:
    if cell.sort is None:
        return ""
    return cell.sort if isinstance(cell.sort, str) else f"{cell.sort:.12g}"


@cache
def source(name: str) -> str:
    """Return the text of a file beside the templates."""
    return (Path(__file__).parent / "templates" / name).read_text(encoding="utf-8").strip()
