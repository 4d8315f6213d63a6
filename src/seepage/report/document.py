"""A report as data: sections of words, tables and figures, built once; page, terminal and notebook each render it.

No block knows a renderer, and no renderer knows what an audit is. Texts are plain: whoever renders them escapes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from seepage.report.figures import Figure

NUMBER = "number"
TEXT = "text"
MISSING = "–"
MOST_ROWS = 20
"""Rows of a table that are shown where there is little room."""


@dataclass(frozen=True)
class GridCell:
    """One cell; a missing value (``sort`` is None) sorts last either way, and ``kind`` is a word for its style."""

    text: str
    sort: float | str | None
    kind: str | None = None
    behind: str = ""


@dataclass(frozen=True)
class Column:
    """One column; ``number`` columns stand to the right.

    Where there is little room, one with ``joins`` (such as ``n={}``) stands in the cells of the column before it, and
    a ``spare`` one is left out.
    """

    title: str
    cell: Callable[[dict[str, Any]], GridCell]
    align: str = NUMBER
    joins: str = ""
    spare: bool = False


@dataclass(frozen=True)
class Grid:
    """A table; the first column names the row.

    Where there is little room ``most`` rows are shown (None: all); by ``ranks`` those of the highest, as many as there
    is room for, and ``rows_are`` names what is left out. A table without a caption is a plain list.
    """

    caption: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[GridCell]]
    note: str | None = None
    most: int | None = MOST_ROWS
    ranks: Sequence[float] | None = None
    rows_are: str = "row"


@dataclass(frozen=True)
class Aside:
    """A paragraph of less weight."""

    words: str


@dataclass(frozen=True)
class Points:
    """A list of sentences."""

    items: Sequence[str]


@dataclass(frozen=True)
class Plot:
    """A figure and the numbers that it draws; a ``folded`` one is shown when asked for."""

    figure: Figure
    grid: Grid
    folded: bool = False


@dataclass(frozen=True)
class RulerLine:
    """One line of the scale of verdicts: the closed gap and the ends of its 95% interval."""

    label: str
    closed: float | None
    lower: float | None
    upper: float | None
    tier: str


@dataclass(frozen=True)
class Ruler:
    """The scale of verdicts, with upper bounds and names of its zones; ``grid`` says the same, None where words do."""

    lines: Sequence[RulerLine]
    bounds: Sequence[tuple[float, str]]
    grid: Grid | None = None


@dataclass(frozen=True)
class Flow:
    """Who sends what to whom, and what is read of it: a line of a picture."""

    sender: str
    secret: str
    message: str
    attacker: str
    reads: str


@dataclass(frozen=True)
class Flows:
    """A picture of what is sent and read."""

    lines: Sequence[Flow]


@dataclass(frozen=True)
class Image:
    """A picture as a data URI, and what it shows in words."""

    address: str
    words: str


@dataclass(frozen=True)
class Conclusion:
    """An answer: a tier (None: words alone say it), a word for its style, and sentences, the first the headline."""

    tier: str | None
    style: str
    sentences: Sequence[str]


@dataclass(frozen=True)
class Rated:
    """Sentences, each with a tier before it, and where it leads to the name of a section and its title."""

    lines: Sequence[tuple[str, str]]
    links: Sequence[tuple[str, str]] = ()


@dataclass(frozen=True)
class Remark:
    """Something to know about figures: a severity, a code, what it is, what it concerns, and what is known of it."""

    severity: str
    code: str
    title: str
    message: str
    concerns: str = ""
    explained: Sequence[str] = ()


@dataclass(frozen=True)
class Remarks:
    """Remarks; ``short`` ones are their titles alone, the first of them."""

    remarks: Sequence[Remark]
    short: bool = False


@dataclass(frozen=True)
class Command:
    """A command to paste into a shell, and the words before it."""

    words: str
    command: str


@dataclass(frozen=True)
class Code:
    """A text for a program."""

    text: str


@dataclass(frozen=True)
class Box:
    """Blocks that belong together, under a title of their own if any."""

    title: str
    blocks: Sequence[Block]


@dataclass(frozen=True)
class Folded:
    """Details that are shown when asked for; where they are ``filed``, files beside the document hold the same."""

    title: str
    blocks: Sequence[Block]
    filed: bool = False


Block: TypeAlias = (
    str
    | Aside
    | Points
    | Grid
    | Plot
    | Ruler
    | Flows
    | Image
    | Conclusion
    | Rated
    | Remarks
    | Command
    | Code
    | Box
    | Folded
)


@dataclass(frozen=True)
class Section:
    """One part of a document; ``aside`` stands beside the title, and ``kind`` is a word for its layout.

    A ``folded`` one shows its title until it is opened. ``sections`` are parts of it.
    """

    name: str
    title: str
    blocks: Sequence[Block] = ()
    kind: str = "plain"
    folded: bool = False
    aside: str = ""
    sections: Sequence[Section] = ()


@dataclass(frozen=True)
class Document:
    """Sections under a title.

    Attributes:
        title: what the document is about.
        sections: all that it says.
        answer: the same in as much as one screen holds; all sections if empty.
        facts: what stands beside the title where there is little room.
        lead: a first sentence.
        notice: advice on how to treat the document.
        closing: a last sentence.
    """

    title: str
    sections: Sequence[Section]
    answer: Sequence[Section] = ()
    facts: str = ""
    lead: str = ""
    notice: str = ""
    closing: str = "A low figure does not show that a deployment is safe, only that these attacks found little."


def heads(*titles: str, numbers: Sequence[str] = ()) -> list[Column]:
    """Return the columns of a table whose cells are not made of records; those of ``numbers`` stand to the right."""
    align = {title: NUMBER if title in numbers else TEXT for title in titles}
    return [Column(title, lambda _: GridCell(MISSING, None, "missing"), align[title]) for title in titles]


def rows_of(lines: Iterable[Iterable[str | GridCell]]) -> list[list[GridCell]]:
    """Return rows of texts as cells."""
    return [[cell if isinstance(cell, GridCell) else GridCell(cell, cell) for cell in line] for line in lines]


def empty(name: str, title: str, why: str) -> Section:
    """Return a section that only says why there is nothing to show."""
    return Section(name, title, [why], kind="empty")


def figures_of(document: Document) -> dict[str, Figure]:
    """Return the figures of a document by their names."""
    return {
        block.figure.name: block.figure
        for section in document.sections
        for block in section.blocks
        if isinstance(block, Plot)
    }


def folded_grid(grid: Grid, filed: bool = False) -> Folded:
    """Return a table behind its caption."""
    return Folded(f"{grid.caption} ({len(grid.rows)} rows)", [grid], filed)
