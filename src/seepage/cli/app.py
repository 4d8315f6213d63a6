"""The program that commands are added to, and what they share."""

from __future__ import annotations

import inspect
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.models import CommandInfo

from seepage import __version__
from seepage.cli.exits import Exit
from seepage.cli.text import told
from seepage.config.mistakes import DocumentError
from seepage.config.wording import as_option
from seepage.errors import BadInputError, OldSpellingWarning
from seepage.run.memory import keep_freed_memory
from seepage.run.store import FILE as STORE

app = typer.Typer(
    name="seepage",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    help=(
        "Measures what collaborative learning on tables gives away.\n\n"
        "Start with [bold]seepage audit[/bold]: it attacks gradients of real census records and says how much of them "
        "can be read. Then audit a table of your own: [bold]seepage audit --data FILE --target COLUMN[/bold]."
    ),
    epilog="Exit status: 0 done, 1 the gate failed (--fail-above), 2 bad input, 3 some jobs failed.",
)


def main() -> None:
    """Run the program; a mistake in the input is one paragraph on stderr and exit status 2, see ``Exit``."""
    keep_freed_memory()
    for command in _commands(app):
        command.help = flowing(inspect.getdoc(command.callback) or "")
    with warnings.catch_warnings():
        warnings.simplefilter("always", OldSpellingWarning)
        others = warnings.showwarning
        warnings.showwarning = lambda message, category, *rest: (
            told(str(message)) if category is OldSpellingWarning else others(message, category, *rest)
        )
        try:
            app(prog_name="seepage")
        except DocumentError as error:
            for line in error.lines:
                told(line)
            sys.exit(Exit.BAD_INPUT)
        except BadInputError as error:
            told(error.worded(as_option))
            sys.exit(Exit.BAD_INPUT)


def _commands(program: typer.Typer) -> Iterator[CommandInfo]:
    yield from program.registered_commands
    for group in program.registered_groups:
        if group.typer_instance is not None:
            yield from _commands(group.typer_instance)


def flowing(text: str) -> str:
    r"""Return a help text whose paragraphs are one line each, for the terminal to break; indented lines stay.

    Example:
        >>> flowing("One\nparagraph.\n\n    seepage audit\n")
        'One paragraph.\n\n    seepage audit\n'
    """
    parts = text.split("\n\n")
    return "\n\n".join(part if part.startswith("    ") else part.replace("\n", " ") for part in parts)


def guide(text: str) -> str:
    r"""Return a text in which what stands between backticks is bold on a terminal.

    Example:
        >>> guide("`seepage datasets` lists them.")
        '[bold]seepage datasets[/bold] lists them.'
    """
    pieces = text.split("`")
    return "".join(f"[bold]{piece}[/bold]" if i % 2 else piece for i, piece in enumerate(pieces))


def _version(wanted: bool) -> bool:
    if wanted:
        print(f"seepage {__version__ or '(not installed)'}")
        raise typer.Exit
    return wanted


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


def interruptible(work: Callable[[], Any], folder: Path) -> Any:
    """Return ``work()``; when interrupted, say what is kept in the run folder and how to go on."""
    try:
        return work()
    except KeyboardInterrupt:
        if (folder / STORE).exists():
            kept = f"The victims measured so far are kept; run the same command with --out {str(folder)!r} to go on."
        else:
            kept = "Nothing was measured yet."
        print(f"seepage: interrupted. {kept}", file=sys.stderr)
        raise typer.Exit(Exit.INTERRUPTED) from None
