"""A document in a notebook: a compact view, and its figures."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from markupsafe import Markup

from seepage.files import write_whole
from seepage.report.document import Block, Conclusion, Document, Folded, Grid, Remark, Remarks
from seepage.report.figures import Figure
from seepage.report.page import environment, source
from seepage.report.svg import WIDE, draw


def compact(document: Document) -> str:
    """Return verdict and tables of the first section, and all remarks, as HTML with a style of its own."""
    blocks: list[Block] = [block for block in document.sections[0].blocks if isinstance(block, Conclusion | Grid)]
    for section in document.sections:
        if remarks := [remark for block in section.blocks for remark in _remarks(block)]:
            blocks += [f"{section.title}:", Remarks(remarks)]
    title = f"{document.title} · {document.facts}"
    return environment().get_template("notebook.html").render(title=title, blocks=blocks)


def _remarks(block: Block) -> Sequence[Remark]:
    """Return the remarks of a block, those of details too."""
    if isinstance(block, Folded):
        return [remark for inner in block.blocks for remark in _remarks(inner)]
    return block.remarks if isinstance(block, Remarks) else ()


@dataclass(frozen=True)
class Picture:
    """A figure of a report, which notebooks show; its description is for those who do not see it."""

    title: str
    description: str
    svg: str

    def __repr__(self) -> str:
        return f"Picture({self.title!r})"

    def _repr_html_(self) -> str:
        words = Markup('<figure style="margin:0;max-width:{}px"><figcaption>{}</figcaption>').format(WIDE, self.title)
        return f"{words}{self.svg}</figure>"

    def save(self, path: str | Path) -> Path:
        """Write the figure as an SVG file; return its path."""
        write_whole(Path(path), f"{self.svg}\n")
        return Path(path)


def drawn(figure: Figure) -> Picture:
    """Return a figure of the page in its light colours, as a picture of its own."""
    colours = _palette()
    style = f"font:12.5px system-ui,sans-serif;fill:{colours['--text']};background:{colours['--page']}"
    svg = re.sub(r"var\((--[\w-]+)\)", lambda match: colours[match[1]], draw(figure))
    return Picture(figure.title, figure.description, svg.replace("<svg ", f'<svg style="{style}" ', 1))


@cache
def _palette() -> dict[str, str]:
    """Return the colours of the page's style by the names of their variables."""
    root = source("style.css").partition("}")[0]
    return dict(re.findall(r"(--[\w-]+):\s*(#[0-9a-f]+);", root))
