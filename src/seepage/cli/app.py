"""The program that commands are added to, and what they share."""

from __future__ import annotations

import ast
import inspect
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, TypeVar, cast

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command_from_info, get_command_name, get_group_from_info

from seepage import __version__
from seepage.cli.exits import Exit, first_interrupt, print_message, shown_path, standard_streams, status_of
from seepage.config.tree import DocumentError
from seepage.devices import keep_freed_memory
from seepage.errors import BadInputError, nearest
from seepage.files import STORE, make_folder, why
from seepage.settings.catalogue import Setting, settings
from seepage.text import clean

# Typer has its classes of commands, contexts and errors from Click or, later, from a copy of its own.
_UsageError = cast(type[Exception], typer.BadParameter.__mro__[1])

T = TypeVar("T")
# Characters of a path that cannot be used which a message shows.
_LONGEST = 300
_AUDITS = "seepage.cli.audit"
# The commands beside one for each setting, and their modules, in the order of --help.
COMMANDS = {
    "recommend": "seepage.cli.recommend",
    "membership": "seepage.cli.membership",
    "epsilon": "seepage.cli.epsilon",
    "correlate": "seepage.cli.correlate",
    "rounds": "seepage.cli.rounds",
    "scan": "seepage.cli.scan",
    "spec": "seepage.cli.spec",
    "schema": "seepage.cli.schema",
    "new": "seepage.cli.new",
    "capture": "seepage.cli.capture",
    "attack": "seepage.cli.attack",
    "verify": "seepage.cli.verify",
    "datasets": "seepage.cli.lists",
    "attacks": "seepage.cli.lists",
    "defenses": "seepage.cli.lists",
    "checks": "seepage.cli.lists",
    "models": "seepage.cli.lists",
    "compare": "seepage.cli.compare",
    "reproduce": "seepage.cli.reproduce",
}


# Settings whose commands are there.
_added: list[Setting] = []


def settings_by_command() -> dict[str, Setting]:
    """Return the settings by the names of their commands."""
    return {plugin.command or name: plugin for name, plugin in settings().items()}


# What overrides methods of Click has their types, which differ between versions of Typer.


class Forwarded(TyperCommand):
    """A command in whose place another one may stand."""

    def other(self, arguments: list[str]) -> TyperCommand | None:
        """Return the command that takes some arguments; None for this one."""
        raise NotImplementedError

    def make_context(self, info_name, args, parent=None, **extra):
        """Return the context of the command that takes the arguments."""
        other = self.other(args)
        make = super().make_context if other is None else other.make_context
        return make(info_name, args, parent, **extra)


class _Later(Forwarded):
    """A command whose module is imported when it is used."""

    def __init__(self, name: str) -> None:
        super().__init__(name, rich_markup_mode="rich")

    def other(self, arguments: list[str]) -> TyperCommand | None:
        """Return the command itself."""
        return load(self.name or "")


class _Program(TyperGroup):
    """The program; a command is imported when it is used."""

    def __init__(self, **attributes) -> None:
        super().__init__(**attributes)
        self.commands = {name: _Later(name) for name in (*settings_by_command(), *COMMANDS)}

    def format_help(self, ctx, formatter) -> None:
        """Write the help of the program; that of each command is read from the source of its module."""
        self._read_help()
        super().format_help(ctx, formatter)

    def shell_complete(self, ctx, incomplete):
        """Return what a shell can complete a name to."""
        self._read_help()
        return super().shell_complete(ctx, incomplete)

    def _read_help(self) -> None:
        audits = settings_by_command()
        for name, command in self.commands.items():
            if name in audits:
                command.help = f"Audit {audits[name].summary}."
            else:
                command.help = _help_in_source(COMMANDS[name], name)

    def make_context(self, info_name, args, parent=None, **extra):
        """Return the context of the program."""
        with _worded():
            return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx):
        """Run the command; a mistyped option is refused with the nearest ones."""
        with _worded():
            return super().invoke(ctx)


@contextmanager
def _worded() -> Iterator[None]:
    """Suggest the nearest options for a refused command line, and remove control characters from the message."""
    try:
        yield
    except _UsageError as error:
        refusal: Any = error
        name = getattr(refusal, "option_name", None)
        if name and (near := nearest(name, getattr(refusal, "possibilities", None) or ())):
            refusal.message, refusal.possibilities = f"No such option: {name}; {near}", None
        refusal.message = clean(refusal.message, 4000)
        raise


def load(name: str) -> Any:
    """Import a command's module and return the command."""
    audited = settings_by_command().get(name)
    module = import_module(_AUDITS if audited is not None else COMMANDS[name])
    if audited is not None and audited not in _added:
        module.add(audited)
        _added.append(audited)
    for info in app.registered_commands:
        if (info.name or get_command_name(getattr(info.callback, "__name__", ""))) == name:
            info.help = flowing(inspect.getdoc(info.callback) or "")
            return get_command_from_info(info, pretty_exceptions_short=False, rich_markup_mode="rich")
    for group in app.registered_groups:
        if group.name == name and group.typer_instance is not None:
            for info in group.typer_instance.registered_commands:
                info.help = flowing(inspect.getdoc(info.callback) or "")
            return get_group_from_info(
                group, suggest_commands=True, pretty_exceptions_short=False, rich_markup_mode="rich"
            )
    raise RuntimeError(f"no module registers the command {name!r}.")


def _help_in_source(module: str, name: str) -> str:
    """Return the help of a command, or of a group of commands, in a module that is not imported."""
    source = find_spec(module)
    assert source is not None
    assert source.origin is not None
    for node in ast.parse(Path(source.origin).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef):
            for decorator in node.decorator_list:
                if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "app.command":
                    label = ast.literal_eval(decorator.args[0]) if decorator.args else get_command_name(node.name)
                    if label == name:
                        return flowing(ast.get_docstring(node) or "")
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            given = {keyword.arg: keyword.value for keyword in node.value.keywords}
            if ast.unparse(node.value.func) == "typer.Typer" and "help" in given:
                return str(ast.literal_eval(given["help"]))
    # A command that is not written as a function says its help when it is made.
    return load(name).help or ""


# What modules add their commands to. ``load`` makes one when it is used; the program would make all of them at every
# start.
app = typer.Typer()
program = typer.Typer(
    name="seepage",
    cls=_Program,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    help=(
        "Measures what collaborative learning on tables gives away.\n\n"
        "Start with [bold]seepage audit[/bold]: it attacks gradients of real census records and says how much of them "
        "can be read. Then audit a table of your own: [bold]seepage audit --data FILE --target COLUMN[/bold]."
    ),
    epilog="Exit status: 0 done, 1 the gate failed (--fail-above), 2 bad input, 3 some jobs failed, 4 the gate is "
    "undecided, 70 a crash, 71 a certificate that the truth contradicts, 74 a full device, 130 interrupted.",
)


def main() -> None:
    """Run the program; what ends it early is one paragraph on stderr and an exit status, see ``Exit``."""
    with standard_streams():
        keep_freed_memory()
        try:
            with first_interrupt():
                _run_and_flush()
        except DocumentError as error:
            for line in error.lines:
                print_message(line)
            sys.exit(Exit.BAD_INPUT)
        except BadInputError as error:
            print_message(error.worded(lambda remedy: import_module("seepage.config.wording").as_option(remedy)))
            sys.exit(status_of(error))
        except Exception as error:
            if os.environ.get("SEEPAGE_TRACEBACK"):
                raise
            status = status_of(error)
            if status is Exit.CLOSED_PIPE:
                sys.exit(status)
            if status is Exit.BAD_INPUT and isinstance(error, OSError):
                place = shown_path(os.fsdecode(error.filename))
                shown = place if len(place) <= _LONGEST else f"{place[:_LONGEST]}…"
                print_message(f"{shown!r} cannot be used ({error.strerror}); give another path.")
                sys.exit(status)
            advice = (
                "make room and run the same command again; what was stored before is intact."
                if status is Exit.DEVICE_FULL
                else "this is a mistake in seepage: please report it with what SEEPAGE_TRACEBACK=1 prints."
            )
            print_message(f"{type(error).__name__}: {clean(error, 400)}; {advice}")
            sys.exit(status)


def _run_and_flush() -> None:
    """Run the program and write out what it printed."""
    try:
        program(prog_name="seepage")
    except SystemExit as ended:
        try:
            # Typer ends with 1 where nobody reads its output.
            if status_of(ended.__context__) is Exit.CLOSED_PIPE:
                raise BrokenPipeError
            sys.stdout.flush()
        except OSError:
            # What is still buffered would fail again when the interpreter ends.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise
        raise


def flowing(text: str) -> str:
    """Return a help text whose paragraphs are one line each, for the terminal to break; indented lines stay."""
    parts = text.split("\n\n")
    return "\n\n".join(part if part.startswith("    ") else part.replace("\n", " ") for part in parts)


def guide(text: str) -> str:
    """Return a text in which what stands between backticks is bold on a terminal."""
    pieces = text.split("`")
    return "".join(f"[bold]{piece}[/bold]" if i % 2 else piece for i, piece in enumerate(pieces))


def _version(wanted: bool) -> bool:
    if wanted:
        print(f"seepage {__version__ or '(not installed)'}")
        raise typer.Exit
    return wanted


@program.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


def option(help_: str, panel: str, metavar: str | None = None, *flags: str) -> Any:
    """Return an option of a panel of the help; a switch has an empty ``metavar``."""
    return typer.Option(*flags, metavar=metavar, rich_help_panel=panel, help=help_)


def new_folder(name: str, private: bool, quiet: bool = False) -> Path:
    """Make a run folder of this moment below ``runs``, and say where; two commands never get the same one."""
    moment = f"{name}-{datetime.now():%Y%m%d-%H%M%S}"
    folder, number = Path("runs") / moment, 1
    make_folder(folder.parent)
    while True:
        try:
            folder.mkdir(mode=0o700 if private else 0o777)
        except FileExistsError:
            number += 1
            folder = folder.with_name(f"{moment}-{number}")
        except OSError as error:
            raise BadInputError(f"the run folder {str(folder)!r} cannot be made ({why(error)} with --out.") from error
        else:
            if not quiet:
                # Said first: of a process that is killed nothing is read later.
                print_message(f"results go to {folder}; a run that is stopped goes on with --out {folder}.")
            return folder


def interruptible(work: Callable[[], T], folder: Path) -> T:
    """Return ``work()``; when interrupted, say what is kept in the run folder and how to go on."""
    try:
        return work()
    except KeyboardInterrupt:
        if (folder / STORE).exists():
            state = f"The victims measured so far are kept; run the same command with --out {str(folder)!r} to go on."
        else:
            state = "Nothing was measured yet."
        print(f"seepage: interrupted. {state}", file=sys.stderr)
        raise typer.Exit(Exit.INTERRUPTED) from None
