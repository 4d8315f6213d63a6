"""Tables and consoles in the house style."""

from __future__ import annotations

from collections.abc import Iterable

from rich import box
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

_PLAIN_WIDTH = 120
_PADDING = (0, 1, 0, 0)


def make_table(title: str, heads: Iterable[Column | str], rows: Iterable[Iterable[Text | str]] = ()) -> Table:
    """Return a table in the house style."""
    table = Table(*heads, title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, padding=_PADDING)
    return _filled(table, rows)


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


def make_console(stderr: bool = False) -> Console:
    """Return a console as wide as the terminal, or wide enough for tables where there is none."""
    console = Console(stderr=stderr, highlight=False)
    return console if console.is_terminal else Console(stderr=stderr, highlight=False, width=_PLAIN_WIDTH)
