"""``seepage recommend``: the cheapest change that keeps leakage below a limit, in any setting."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer
from typer.core import TyperCommand
from typer.main import get_command_from_info

from seepage.cli.app import Forwarded, app, flowing, interruptible, new_folder, option
from seepage.cli.audit import AllowCode, AsJson, Document, Quiet, setting_in
from seepage.cli.exits import Exit, print_message, shown_path
from seepage.cli.options import fields_in_options
from seepage.config.document import HORIZONTAL, SETTING, read_text_document, setting_of
from seepage.config.tree import read_text
from seepage.config.wording import as_key, as_option
from seepage.digests import Json
from seepage.errors import BadInputError
from seepage.settings.catalogue import setting as find_setting
from seepage.settings.catalogue import settings
from seepage.settings.option import OUTPUT, fields_of
from seepage.tabular.policy import GUESSED

_FLAG = "--setting"
_EXITS = {"found": Exit.DONE, "none": Exit.GATE_FAILED, "undecided": Exit.UNDECIDED}

SettingName = Annotated[
    str, typer.Option(_FLAG, metavar="|".join(settings()), help="Setting of the deployment; its options then apply.")
]
Out = Annotated[
    Path | None,
    option("Run folder. One that holds the same search is continued. Default: a new one in runs/.", OUTPUT, "FOLDER"),
]


class _WithSetting(Forwarded):
    """The command with the options of the setting that is named, by an option or in a document."""

    def other(self, arguments: list[str]) -> TyperCommand | None:
        """Return the command with the options of another setting."""
        setting = _named_setting(arguments)
        return None if setting == HORIZONTAL else _command_of_setting(setting)


def _named_setting(arguments: list[str]) -> str:
    """Return the setting that arguments name."""
    for i, argument in enumerate(arguments):
        name, equals, value = argument.partition("=")
        if name == _FLAG and (equals or i + 1 < len(arguments)):
            return find_setting(value if equals else arguments[i + 1]).name
    return setting_in(arguments)


# The command as it is written, without the options of any setting.
_written: list[Callable[..., None]] = []


def _taking(setting: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that adds the options of a setting."""
    spec = find_setting(setting).spec
    return fields_in_options(spec, [name for name in fields_of(spec) if name != "gate"])


def _with_horizontal_options(command: Callable[..., None]) -> Callable[..., None]:
    _written.append(command)
    return _taking(HORIZONTAL)(command)


def _command_of_setting(setting: str) -> TyperCommand:
    """Return the command with the options of a setting."""
    [written] = _written
    command = _taking(setting)(written)
    command.__doc__ = flowing(inspect.getdoc(written) or "")
    alone = typer.Typer()
    alone.command("recommend")(command)
    [info] = alone.registered_commands
    info.help = command.__doc__
    command_of_setting = get_command_from_info(info, pretty_exceptions_short=False, rich_markup_mode="rich")
    assert isinstance(command_of_setting, TyperCommand)
    return command_of_setting


@app.command("recommend", cls=_WithSetting)
@_with_horizontal_options
def recommend(
    document: Document = None,
    *,
    setting: SettingName = HORIZONTAL,
    given: dict[str, Json],
    out: Out = None,
    allow_code: AllowCode = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Search for the cheapest change of a deployment that keeps leakage below a limit.

    What is given is fixed, such as a batch size; defenses and whatever else the setting can change are searched. Each
    candidate is attacked by attacks that know it, and the recommended one is confirmed on fresh repetitions by the
    gate's bound. Exit status: 0 found, 1 no configuration meets it, 4 undecided.

    [bold]Examples[/bold]

        seepage recommend --dataset german --batch-size 8 --below 0.2

        seepage recommend --setting split --private-column sex --below 0.2 --time-budget 30m --out advice
    """
    named = setting if document is None else setting_of(read_text(document), str(document))
    if document is not None and setting not in (HORIZONTAL, named):
        raise BadInputError(f"{str(document)!r} is about {named} learning, not {setting} learning; leave out {_FLAG}.")
    text = f"{SETTING}: {named}\n" if document is None else read_text(document)
    folder = Path() if document is None else document.parent
    specs = read_text_document(text, "" if document is None else str(document), folder, given, allow_code=allow_code)
    if len(specs) > 1:
        raise BadInputError(f"a search starts from one deployment, got {len(specs)}; give one value of each option.")
    [spec] = specs
    if spec.recommend is None:
        raise BadInputError("a recommendation needs a limit of the lift; give --below 0.2, for example.")
    name = spec.dataset if spec.data is None else spec.data.stem
    place = out or new_folder(f"recommend-{name}", spec.data is not None, quiet)
    wording = as_option if document is None or "data" in given else as_key
    # Only what can be searched is worth the time that this takes to load.
    search, page = (import_module(f"seepage.advise.{module}") for module in ("recommend", "page"))
    document_text = None if document is None else text

    def say(line: str) -> None:
        # What was guessed of the table decides what counts as read, so that it is said in any case.
        if not quiet or line.startswith(GUESSED):
            print_message(line)

    try:
        recommendation = interruptible(lambda: search.recommended(spec, place, say=say, document=document_text), place)
    except BadInputError as error:
        if out is None and not any(place.iterdir()):
            place.rmdir()
        raise BadInputError(error.worded(lambda remedy: wording(remedy, type(spec)))) from error
    page.write_recommendation(place, recommendation)
    if as_json:
        print(page.as_json(recommendation))
    elif not quiet:
        terminal = import_module("seepage.report.terminal")
        terminal.show(terminal.make_console(), page.recommendation_document(recommendation))
        print(f"Page: {shown_path(place / page.PAGE)}")
    print_message(recommendation.line)
    status = _EXITS[recommendation.outcome]
    if status is not Exit.DONE:
        raise typer.Exit(status)
