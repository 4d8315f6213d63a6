"""A document on the terminal: its answer on one screen, or all of it. Texts are texts, and never read as markup."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Column as Head
from rich.table import Table
from rich.text import Text

from seepage.report.document import (
    NUMBER,
    Aside,
    Block,
    Box,
    Command,
    Conclusion,
    Document,
    Folded,
    Grid,
    GridCell,
    Plot,
    Points,
    Rated,
    Remarks,
    Ruler,
    Section,
)
from seepage.settings.command import in_lines
from seepage.text import how_many, listed

SCREEN_WIDTH = 80
"""Characters of a line of text where there is no terminal."""
MOST_LINES = 45
"""Lines of 80 columns that an answer takes at most, with those that say where the report is."""
TABLE_WIDTH = 120
"""The same where tables are shown."""
# Lines that say how many jobs are planned, where the report is, and how to go on.
_REPORT_LINES = 6
# Remarks and rated sentences of an answer.
_MOST_REMARKS, _MOST_RATED = 4, 2
# Rows of a table with ranks for which the words of warnings make room: a default audit has so many defenses.
_ROWS = 5
_ALL = "--verbose prints all"
# Letters of a name, and of a head of figures, that are not broken where there is room; of a row's name, nowhere.
_NAME, _HEAD, _LEAST = 20, 9, 11
_STYLES = {
    **{"tier little": "green", "tier gain": "yellow", "tier mostly": "red", "tier whole": "bold red"},
    **{"tier open": "magenta", "wrong": "red", "error": "bold red", "warning": "yellow", "note": "dim"},
}


def make_console(stderr: bool = False, width: int = TABLE_WIDTH) -> Console:
    """Return a console as wide as the terminal; where there is none, of a width, by default enough for tables."""
    console = Console(stderr=stderr, highlight=False)
    return console if console.is_terminal else Console(stderr=stderr, highlight=False, width=width)


class Paragraph:
    """A paragraph some characters to the right, without spaces at the ends of its lines."""

    def __init__(self, words: str | Text, style: str = "", indent: int = 2) -> None:
        self._text = Text(words, style) if isinstance(words, str) else words
        self._indent = indent

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        for line in self._text.wrap(console, max(1, options.max_width - self._indent)):
            line.rstrip()
            yield Text(" " * self._indent).append_text(line)


class _UnderHeading(Table):
    """A table under a heading that may be wider; rich wraps a title to the width of its table."""

    heading = Text()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType | Segment]:
        yield self.heading
        yield from super().__rich_console__(console, options)


def show(console: Console, document: Document, verbose: bool = False) -> None:
    """Print the answer of a document, of 80 columns in at most ``MOST_LINES`` lines; with ``verbose`` all sections.

    A table with ranks has as many rows as there is room for, and five before the words of warnings, of which then the
    codes remain. What is filed elsewhere is not printed.
    """
    brief = bool(document.answer) and not verbose
    sections = document.answer if brief else document.sections
    ranked = [block.grid for section in sections for block in section.blocks if isinstance(block, Ruler) and block.grid]
    rows = max((len(grid.rows) for grid in ranked), default=1)
    parts: list[RenderableType] = []
    few = min(rows, _ROWS)
    choices = [*((most, False) for most in range(rows, few - 1, -1)), *((most, True) for most in range(few, 0, -1))]
    for most, codes in choices if brief else [(1, False)]:
        parts = _Screen(console, document, brief, most, codes).parts(sections)
        if sum(len(console.render_lines(part, pad=False)) for part in parts) <= MOST_LINES - _REPORT_LINES:
            break
    for part in parts:
        # A command that is longer than a line is the terminal's to break: a line end would end the command.
        console.print(part, soft_wrap=isinstance(part, Text) and bool(part.no_wrap))


def say(*blocks: Block) -> None:
    """Print blocks without a title."""
    show(make_console(), Document("", [Section("", "", blocks)]))


class _Screen:
    """A document in parts that Rich prints.

    Args:
        most: number of rows of a table with ranks in an answer.
        codes: whether warnings of an answer are their codes alone.
    """

    def __init__(self, console: Console, document: Document, brief: bool, most: int, codes: bool) -> None:
        self._console, self._document, self._brief, self._most, self._codes = console, document, brief, most, codes

    def parts(self, sections: Sequence[Section]) -> list[RenderableType]:
        """Return the title, where facts stand beside it, and all sections."""
        title = Section("", self._document.title, aside=self._document.facts)
        named = [title] if self._document.facts else []
        return [part for section in [*named, *sections] for part in self._section(section)]

    def _section(self, section: Section) -> Iterator[RenderableType]:
        match section.blocks:
            case [Remarks(remarks, short=True)] if self._codes and all(item.severity != "error" for item in remarks):
                more = len(remarks) - _MOST_REMARKS
                codes = [item.code for item in remarks[:_MOST_REMARKS]] + ([f"{more} more"] if more > 0 else [])
                words = f": {listed(codes)} ({_ALL})"
                yield Paragraph(Text(section.title, "bold").append(words, "not bold"), indent=0)
                return
        if section.title:
            if section.aside or not self._brief:
                yield Text()
            aside = f" · {section.aside}" if section.aside else ""
            yield Paragraph(Text(section.title, "bold").append(aside, "not bold"), indent=0)
        indent = 2 if section.title or self._document.facts else 0
        for block in section.blocks:
            yield from self._block(block, indent)
        for part in section.sections:
            yield from self._section(part)

    def _block(self, block: Block, indent: int) -> Iterator[RenderableType]:
        match block:
            case str():
                yield Paragraph(block, indent=indent)
            case Aside():
                yield Paragraph(block.words, "dim", indent)
            case Points():
                yield from (Paragraph(f"· {item}") for item in block.items)
            case Grid():
                yield self._table(block)
            case Plot() | Ruler():
                if block.grid is not None:
                    yield self._table(block.grid)
                    if self._is_answer(block.grid):
                        yield Text()
            case Conclusion():
                sentences = list(block.sentences)
                head = sentences.pop(0) if block.tier is None else block.tier.upper()
                yield Text(head, _STYLES[f"tier {block.style}"])
                yield from map(Paragraph, sentences)
                yield Text()
            case Rated():
                shown = block.lines[:_MOST_RATED] if self._brief else block.lines
                titles = [f"{title}: " for _, title in block.links] or [""] * len(shown)
                yield from (
                    Paragraph(f"{tier}: {title}{words}", "dim", indent)
                    for (tier, words), title in zip(shown, titles, strict=False)
                )
                if hidden := len(block.lines) - len(shown):
                    yield Paragraph(f"and {hidden} more that are {block.lines[-1][0]} ({_ALL})", "dim", indent)
            case Remarks():
                yield from self._remarks(block)
            case Command():
                yield from self._command(block)
            case Box() | Folded():
                if isinstance(block, Folded) and block.filed:
                    return
                # A table has its title as a caption.
                if block.title and not isinstance(block.blocks[0], Grid):
                    yield Text(block.title, "bold")
                for inner in block.blocks:
                    yield from self._block(inner, indent)
            case _:
                # Pictures, and texts for programs, are for a page.
                return

    def _remarks(self, block: Remarks) -> Iterator[RenderableType]:
        shown = block.remarks[:_MOST_REMARKS] if block.short else block.remarks
        for remark in shown:
            text = Text(remark.severity, _STYLES.get(remark.severity, ""))
            if block.short:
                about = f": {remark.concerns}" if remark.concerns else ""
                text.append(f" {remark.code} {remark.title}{about}.", "not bold default")
            else:
                text.append(f" {remark.code} ", "not bold default").append(f"{remark.title}. ", "bold default")
                text.append(remark.message, "not bold default")
            yield Paragraph(text)
        if hidden := len(block.remarks) - len(shown):
            yield Paragraph(f"and {hidden} more ({_ALL})", "dim")
        if shown and not block.short:
            yield Text(f"  seepage checks {shown[0].code} says more about a code.", "dim")

    def _command(self, block: Command) -> Iterator[RenderableType]:
        width = self._console.width - 2
        lines = [f"{block.words}: {block.command}"]
        if len(lines[0]) > width:
            # What is pasted is broken where a shell goes on, never by the terminal's width.
            yield Paragraph(f"{block.words}:")
            lines = in_lines(block.command, width)
        yield from (Text(f"  {line}", no_wrap=True, overflow="ignore") for line in lines)

    def _is_answer(self, grid: Grid) -> bool:
        """Return whether a table is the one of an answer, whose rows are chosen by their ranks."""
        return self._brief and grid.ranks is not None

    def _table(self, grid: Grid) -> Table:
        """Return a table with as many columns as there is room for, its figures stacked where there is little."""
        spare = [i for i, column in enumerate(grid.columns) if column.spare]
        # In an answer a row on one line is worth more than a spare column.
        for whole in (True, False) if self._is_answer(grid) else (False,):
            for number in range(len(spare), -1, -1):
                table, width, lacking = self._columns(grid, spare[number:], " ")
                if width + lacking * whole <= self._console.width:
                    return table
        return self._columns(grid, spare, "\n")[0]

    def _columns(self, grid: Grid, left_out: Sequence[int], between: str) -> tuple[Table, int, int]:
        """Return a table without some columns, the width that it needs, and how much more no text needs to be broken.

        What joins the column before it stands in its cells after ``between``.
        """
        # The places of each column's cells: its own, and those that join them.
        places: list[list[int]] = []
        for i, column in enumerate(grid.columns):
            if column.joins and i:
                places[-1].append(i)
            else:
                places.append([i])
        places = [[i for i in group if i not in left_out] for group in places if group[0] not in left_out]
        rows = self._rows(grid)
        cells = [[_text([row[i] for i in group], grid, group, between) for group in places] for row in rows]
        # The room that is left when all texts are broken, and what each of them lacks then.
        heads, width, room, lacking = [], 1, self._console.width - 1, list[tuple[int, int, Head]]()
        for position, group in enumerate(places):
            column = grid.columns[group[0]]
            texts = [line.plain for row in cells for line in row[position].split("\n")]
            if column.align == NUMBER:
                title = _head(column.title, texts)
                least = broken = max(map(cell_len, [*texts, *title.split("\n")]))
                heads.append(Head(Text(title), justify="right", no_wrap=True))
            else:
                words = [word for text in [*texts, column.title] for word in text.split()]
                least = min(_NAME, max(map(cell_len, words), default=1))
                # Where nothing else helps, a name is broken anywhere.
                broken = least if between == " " else 1 if position else min(least, _LEAST)
                heads.append(Head(Text(column.title), overflow="fold", min_width=broken))
                lacking.append((max(map(cell_len, [*texts, column.title])) - broken, broken, heads[-1]))
            width += least + 2
            room -= broken + 2
        if room >= 0:
            # It goes to them in even shares. Rich would take what is missing from the widest column until that has the
            # least it may have, and then cut the table at the right edge.
            lacking.sort(key=lambda entry: entry[0])
            for after, (lack, broken, head) in zip(range(len(lacking), 0, -1), lacking, strict=True):
                share = min(lack, room // after)
                head.width, room = broken + share, room - share
        # An answer has no line to spare between a heading and its table.
        edge = not self._is_answer(grid)
        table = _UnderHeading(*heads, box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=edge)
        table.heading = Text(grid.caption, "bold")
        if not grid.caption:
            table = Table(*heads, box=None, pad_edge=False, header_style="bold")
        for row in cells:
            table.add_row(*row)
        notes = [grid.note] if grid.note else []
        if hidden := len(grid.rows) - len(rows):
            more = f" ({_ALL})" if grid.ranks is not None else ""
            notes.append(f"and {how_many(hidden, grid.rows_are)} more{more}")
        if notes:
            table.caption, table.caption_justify = Text(" ".join(notes), "dim"), "left"
        return table, width, sum(lack for lack, *_ in lacking)

    def _rows(self, grid: Grid) -> Sequence[Sequence[GridCell]]:
        """Return the rows for which there is room: those of the highest ranks, or the first."""
        if grid.ranks is None or not self._is_answer(grid):
            return grid.rows[: grid.most]
        ranked = sorted(range(len(grid.rows)), key=grid.ranks.__getitem__, reverse=True)
        return [grid.rows[i] for i in sorted(ranked[: self._most])]


def _text(cells: Sequence[GridCell], grid: Grid, places: Sequence[int], between: str) -> Text:
    """Return the text of a cell, and of those that join it, if there are any."""
    first, *joined = cells
    text = Text(first.text, _STYLES.get(first.kind or "", ""))
    if first.behind:
        text.append(f" {first.behind}", "dim")
    if first.kind == "wrong":
        text.append(" ✗", "bold red")
    for cell, place in zip(joined, places[1:], strict=True):
        if cell.sort is not None:
            text.append(between + grid.columns[place].joins.format(f"{cell.text} {cell.behind}".strip()))
    return text


def _head(title: str, cells: Sequence[str]) -> str:
    """Return the head of a column of figures in lines, few of them longer than its longest cell."""
    if "\n" in title:
        return title
    longest = max([_HEAD, *map(cell_len, cells), *map(cell_len, title.split())])
    return "\n".join(textwrap.wrap(title, longest))
