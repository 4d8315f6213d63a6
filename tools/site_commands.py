"""The command line's own help as a page."""

from __future__ import annotations

import re

import typer
from typer.cli import get_docs_for_click
from typer.main import get_command

from seepage.cli import program

# What Rich shows bold on a terminal.
_BOLD = re.compile(r"\[bold\](.*?)\[/bold\]")


def commands() -> str:
    """Return the help of every command as Markdown."""
    command = get_command(program)
    text = get_docs_for_click(
        obj=command, ctx=typer.Context(command, info_name="seepage"), name="seepage", title="Command line"
    )
    return _BOLD.sub(r"**\1**", text)
