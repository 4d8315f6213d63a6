"""Tables and consoles in the house style, and on them what the columns of a table were taken for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Column, Table
from rich.text import Text

from seepage.results.checks.finding import few_of
from seepage.tabular.policy import GUESSED
from seepage.text import as_sentence, clean, how_many, listed

if TYPE_CHECKING:
    from seepage.errors import Remedy
    from seepage.tabular.infer import Inferred, InferredColumn

SCREEN_WIDTH = 80
"""Characters of a line of text where there is no terminal."""
_PLAIN_WIDTH = 120
_PADDING = (0, 1, 0, 0)


def make_table(title: str, heads: Iterable[Column | str], rows: Iterable[Iterable[Text | str]] = ()) -> Table:
    """Return a table in the house style."""
    table = _UnderHeading(*heads, box=box.SIMPLE_HEAD, padding=_PADDING)
    table.heading, table.caption_justify = Text(title, "bold"), "left"
    return _filled(table, rows)


class _UnderHeading(Table):
    """A table under a heading that may be wider; rich wraps a title to the width of its table."""

    heading = Text()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType | Segment]:
        yield self.heading
        yield from super().__rich_console__(console, options)


class Paragraph:
    """A paragraph some characters to the right, without spaces at the ends of its lines."""

    def __init__(self, words: str | Text, style: str = "", indent: int = 2) -> None:
        self._text = Text(words, style) if isinstance(words, str) else words
        self._indent = indent

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        for line in self._text.wrap(console, max(1, options.max_width - self._indent)):
            line.rstrip()
            yield Text(" " * self._indent).append_text(line)


def make_list(heads: Iterable[Column | str], rows: Iterable[Iterable[Text | str]]) -> Table:
    """Return a table without a title and without lines."""
    return _filled(Table(*heads, box=None, pad_edge=False, header_style="bold"), rows)


def _filled(table: Table, rows: Iterable[Iterable[Text | str]]) -> Table:
    for row in rows:
        table.add_row(*row)
    return table


def figures(*titles: str, no_wrap: bool = False) -> list[Column]:
    """Return heads of columns of figures."""
    return [Column(title, justify="right", no_wrap=no_wrap) for title in titles]


def make_console(stderr: bool = False, width: int = _PLAIN_WIDTH) -> Console:
    """Return a console as wide as the terminal; where there is none, of a width, by default enough for tables."""
    console = Console(stderr=stderr, highlight=False)
    return console if console.is_terminal else Console(stderr=stderr, highlight=False, width=width)


_COLUMNS = 40
# Rank of columns that nobody needs to look at.
_OTHERS = 4
# Sensitive columns that are named where no column is in doubt.
_NAMED = 6
# Largest number of characters of a note.
_WIDE = 400


def show_inferred(
    console: Console,
    inferred: Inferred,
    all_columns: bool = False,
    advice: str = "Write it down with seepage schema, correct it and give it with --schema.",
    wording: Callable[[Remedy], str] = str,
) -> None:
    """Print a line a column: what it was taken for and why; of others than those to look at, if not all, the number.

    To look at are the target, sensitive columns, those left out, and those whose kind was guessed or decided near a
    threshold; where no column is of the last two kinds, a paragraph says it all. ``wording`` words the choice that
    would change a guess.
    """
    target = inferred.schema.target.name
    sensitive = {column.name for column in inferred.schema.columns if column.sensitive}

    def rank(column: InferredColumn) -> int:
        doubtful = bool(column.near) or column.is_guess
        marks = (column.name == target, column.name in sensitive, column.taken == "left out", doubtful, True)
        return marks.index(True)

    ranked = sorted(inferred.columns, key=rank)
    first = sum(rank(column) < _OTHERS for column in ranked)
    title = (
        f"Columns as inferred from {inferred.rows:,} rows: {_counts(ranked)}; "
        f"{how_many(inferred.schema.width, 'encoded column')}"
    )
    clear = not any(column.taken == "left out" or column.near or column.is_guess for column in ranked)
    if clear and not all_columns:
        named = [f"target {clean(target, 32)}"]
        if sensitive:
            names = [clean(name, 32) for name in sorted(sensitive)]
            named.append(f"sensitive: {listed(few_of(names, _NAMED))}")
        notes = [as_sentence(clean(note, _WIDE)) for note in inferred.notes]
        console.print(Paragraph(" ".join([f"{title}; {'; '.join(named)}.", *notes, advice]), indent=0))
        return
    # All that was guessed is shown, however much it is.
    shown = ranked[: max(first, _COLUMNS) if all_columns else first]
    rows = []
    for column in shown:
        marks = " (target)" if column.name == target else " (sensitive)" if column.name in sensitive else ""
        style = "yellow" if column.taken == "left out" or column.near or column.is_guess else ""
        line = clean(column.line(wording), _WIDE)
        rows.append((Text(clean(column.name, 32) + marks), Text(column.taken, style), Text(line)))
    console.print(make_table(title, ("column", "taken as", "because"), rows))
    if rest := ranked[len(shown) :]:
        console.print(Text(f"  ... and {how_many(len(rest), 'more column')}: {_counts(rest)}."))
    all_named = all(column.taken != "left out" for column in rest)
    for note in inferred.notes:
        # Which columns are left out, and what was guessed, the table says.
        if not (all_named and note.startswith("columns left out")) and not note.startswith(GUESSED):
            console.print(Text(f"  {clean(note, _WIDE)}"))
    console.print(Text(f"  {advice}\n", "dim"))


def guesses(inferred: Inferred, wording: Callable[[Remedy], str] = str) -> list[str]:
    """Return a line for each column of which something was guessed, or whose kind was decided near a threshold."""
    columns = [column for column in inferred.columns if column.is_guess or column.near]
    return [clean(f"column {column.name!r}: {column.taken}, {column.line(wording)}", _WIDE) for column in columns]


def _counts(columns: Sequence[InferredColumn]) -> str:
    counts = {kind: sum(column.taken == kind for column in columns) for kind in ("discrete", "continuous", "left out")}
    return ", ".join(f"{count} {kind}" for kind, count in counts.items() if count)
