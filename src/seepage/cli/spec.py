"""``seepage spec``: draft and check audit documents."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from seepage.auditing import fitting, with_controls
from seepage.cli.app import app
from seepage.cli.audit import AllowCode
from seepage.cli.exits import print_message, shown_path
from seepage.cli.options import fields_in_options
from seepage.config.document import read_text_document
from seepage.config.starter import starter
from seepage.config.tree import read_text
from seepage.config.wording import as_key
from seepage.errors import BadInputError
from seepage.files import write_whole
from seepage.models.own import check_own
from seepage.report.document import Block, Grid, heads, rows_of
from seepage.report.terminal import say
from seepage.results.gate import needed
from seepage.run.forecast import Forecast, forecast
from seepage.settings.catalogue import settings
from seepage.settings.option import code_of
from seepage.settings.spec import Spec
from seepage.text import clean, lasting

group = typer.Typer(no_args_is_help=True, help="Draft and check audit documents in YAML.", rich_markup_mode="rich")
app.add_typer(group, name="spec")


_OF_TABLES = ("dataset", "data", "target", "separator", "encoding")


@group.command("new")
@fields_in_options(Spec, _OF_TABLES)
def new(
    *,
    given: dict[str, Any],
    setting: Annotated[str, typer.Option(metavar="|".join(settings()), help="Setting of the audit.")] = "horizontal",
    out: Annotated[Path, typer.Option(help="File to write; one that is there already is left alone.")] = Path(
        "audit.yaml"
    ),
) -> None:
    """Write a first audit document, with comments that say what can be changed.

    [bold]Examples[/bold]

        seepage spec new --data people.csv --target outcome --out audit.yaml

        seepage spec new --setting split --dataset adult --out split.yaml
    """
    [dataset] = given.pop("dataset", [None])
    if "target" in given and "data" not in given:
        raise BadInputError("--target names a column of a table of your own; add the file: --data FILE.")
    if out.exists():
        raise BadInputError(f"{str(out)!r} is there already; choose another --out, or take it away first.")
    write_whole(out, starter(setting, dataset, out=out, **given), private="data" in given)
    print(f"Written: {shown_path(out)}. Check it with: seepage spec check {shown_path(out)}")


@group.command("check")
def check(
    document: Annotated[Path, typer.Argument(help="Audit document.")],
    allow_code: AllowCode = False,
    allow_large: Annotated[bool, typer.Option("--allow-large", help="Check what is above the limits, too.")] = False,
) -> None:
    """Say what a document would run, and about how long it would take on this machine.

    Every mistake is named with its line and key (exit status 2). Where there is none, each configuration is tried for a
    moment, which shows that it can be run, and how fast. Nothing is kept. Models of your own are only looked up, with
    --allow-code; a check calls no factory.

    [bold]Example[/bold]

        seepage spec check audit.yaml
    """
    given = {"allow_large": True} if allow_large else {}
    specs = read_text_document(read_text(document), str(document), document.parent, given, allow_code=allow_code)
    code = {reference: None for spec in specs for reference in code_of(spec)}
    for reference in code:
        check_own(reference)
    tried = [spec for spec in specs if not code_of(spec)]
    try:
        audits = fitting(tried)
        all_audits, _ = with_controls(audits)
        for line in (line for audit in audits for line in audit.untried):
            print_message(line)
        expected = forecast(all_audits) if audits else None
    except BadInputError as error:
        raise BadInputError(error.worded(lambda remedy: as_key(remedy, type(specs[0])))) from error
    blocks: list[Block] = []
    if expected is not None:
        blocks += [_forecast_grid(expected), _forecast_words(document, expected, audits[0].spec)]
    if code:
        names = ", ".join(clean(reference, 100) for reference in code)
        blocks.append(
            f"{clean(document, 100)}: {len(specs) - len(tried)} audits of {names}, which a check does not call. How "
            "long they take, only running them tells."
        )
    say(*blocks)


def _forecast_grid(expected: Forecast) -> Grid:
    rows = [
        (
            clean(line.about, 60),
            "" if line.configuration.batch_size is None else str(line.configuration.batch_size),
            clean(line.configuration.defense, 40),
            clean(line.label, 60),
            str(line.units),
            str(line.jobs),
            "?" if line.seconds is None else lasting(line.seconds),
        )
        for line in expected.lines
    ]
    numbers = ("batch size", "units", "jobs", "about")
    named = ("table and model", "batch size", "defense", "attack or baseline", "units", "jobs", "about")
    return Grid("", heads(*named, numbers=numbers), rows_of(rows), most=None)


def _forecast_words(document: Path, expected: Forecast, spec: Spec) -> str:
    attacks, others = sum(line.attacks for line in expected.lines), sum(line.baselines for line in expected.lines)
    workers = f"{expected.workers} jobs at a time" if expected.workers > 1 else "one job at a time"
    memory = "" if expected.memory is None else f", and {expected.memory / 1e9:.1f} GB of memory in each process"
    gate = "" if spec.gate is None else f" {needed(spec, spec.gate)}"
    time = (
        "How long that takes, only running it tells"
        if expected.seconds is None
        else f"Estimated by trying each for a moment: about {lasting(expected.seconds)} with {workers}{memory}"
    )
    return (
        f"{clean(document, 100)}: {attacks} attacks and {others} baselines in their configurations, controls "
        f"included, in {expected.jobs} jobs. {time}.{gate}"
    )
