"""``seepage scan``: the messages that leave a party, by the settings and source of a project."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from seepage.cli.app import app
from seepage.cli.exits import Exit, print_message
from seepage.report.document import Block, Box, Document, Points, Section
from seepage.report.terminal import make_console, show
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
        show(make_console(), Document("Messages that leave a party", list(map(_project_section, projects))))
    if all(project.understood == "nothing" for project in projects):
        print_message(
            "nothing of what leaves a party was understood. Looked for: strategies and ClientApp of Flower, executors "
            "and tasks, recipes and FedJob of NVFlare, functions of vantage6 with a type or step_type."
        )
        raise typer.Exit(Exit.UNDECIDED)


def _project_section(project: ScannedProject) -> Section:
    blocks: list[Block] = []
    for i, message in enumerate(project.messages, 1):
        lines = [f"guarded by: {'; '.join(message.guards) or 'nothing that was seen'}"]
        lines += [f"missing: {'; '.join(message.missing)}"] if message.missing else []
        lines += [f"unknown: {'; '.join(message.unknown)}"] if message.unknown else []
        lines.append(f"audit: {message.audit}")
        blocks.append(Box(f"{i}. {message.sender} → {message.receiver}: {message.content}", lines))
    remarks = [*project.remarks, *(f"Not understood: {reason}." for reason in project.unread)]
    remarks.append("Settings and source were read, and nothing was run. What is not listed is not thereby safe.")
    title = f"{project.framework} {project.name}: {clean(project.folder, 200)}"
    return Section(project.framework, title, [*blocks, Points(remarks)])
