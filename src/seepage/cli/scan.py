"""``seepage scan``: the messages that leave a party, by the settings and source of a project."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.padding import Padding
from rich.text import Text

from seepage.cli.app import app
from seepage.cli.exits import Exit, print_message
from seepage.report.terminal import make_console
from seepage.scan.project import ScannedProject
from seepage.scan.scanning import NothingUnderstoodError
from seepage.scan.scanning import scan as scanned
from seepage.text import clean


@app.command()
def scan(
    folder: Annotated[Path, typer.Argument(help="Folder of the project.", metavar="FOLDER")],
    as_json: Annotated[bool, typer.Option("--json", metavar="", help="Print JSON instead of text.")] = False,
) -> None:
    """List the messages that leave a party by the settings of a project, what guards them and which audit answers.

    Reads Flower apps (pyproject.toml and source, older ones by source alone), NVFlare jobs (configurations, recipes and
    FedJob) and vantage6 algorithms and nodes (algorithm_store.json, source, node configuration). Nothing is run, and no
    data is needed.

    NVFlare's recipes and FedJob are read from Python source, by its syntax. A project of which nothing is understood
    ends with status 4.

    What is not seen is called unknown, never safe. Source is read, so that what a condition decides when it runs is not
    known. An audit measures; this list only says what to measure.

    [bold]Example[/bold]

        seepage scan my-flower-app
    """
    try:
        projects = scanned(folder)
    except NothingUnderstoodError as error:
        print_message(str(error))
        raise typer.Exit(Exit.UNDECIDED) from None
    if as_json:
        listed = [{**asdict(of), "folder": str(of.folder), "understood": of.understood} for of in projects]
        print(json.dumps(listed, indent=1))
    else:
        for project in projects:
            _show(project)
    if all(project.understood == "nothing" for project in projects):
        print_message(
            "nothing of what leaves a party was understood. Looked for: strategies and ClientApp of Flower, executors "
            "and tasks, recipes and FedJob of NVFlare, functions of vantage6 with a type or step_type."
        )
        raise typer.Exit(Exit.UNDECIDED)


def _show(project: ScannedProject) -> None:
    console = make_console()
    console.print(Text(f"{project.framework} {project.name}: {clean(project.folder, 200)}", style="bold"))
    for i, message in enumerate(project.messages, 1):
        console.print(Text(f"{i}. {message.sender} → {message.receiver}: {message.content}"))
        guards = "; ".join(message.guards) or "nothing that was seen"
        lines = [f"guarded by: {guards}", f"audit: {message.audit}"]
        if message.unknown:
            lines.insert(1, f"unknown: {'; '.join(message.unknown)}")
        if message.missing:
            lines.insert(1, f"missing: {'; '.join(message.missing)}")
        for line in lines:
            console.print(Padding(Text(line), (0, 0, 0, 3)))
    for remark in project.remarks:
        console.print(Text(f"- {remark}"))
    for reason in project.unread:
        console.print(Text(f"- Not understood: {reason}."))
    console.print(Text("- Settings and source were read, and nothing was run. What is not listed is not thereby safe."))
