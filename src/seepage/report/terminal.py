"""Tables and consoles in the house style."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.table import Table

_PLAIN_WIDTH = 120


def make_table(title: str) -> Table:
    """Return an empty table in the house style."""
    return Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))


def make_console(stderr: bool = False) -> Console:
    """Return a console as wide as the terminal, or wide enough for tables where there is none."""
    console = Console(stderr=stderr, highlight=False)
    return console if console.is_terminal else Console(stderr=stderr, highlight=False, width=_PLAIN_WIDTH)
