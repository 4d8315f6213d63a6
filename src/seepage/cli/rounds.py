"""``seepage rounds``: which clients the sums of several rounds isolate."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from seepage.cli.app import app
from seepage.cli.exits import Exit, shown_path
from seepage.participation.isolation import BELOW, MOST_COMPARED, IsolatedGroup, Isolation, isolated
from seepage.participation.reading import read_participation
from seepage.report.document import Block, Document, Grid, Section, heads, rows_of
from seepage.report.terminal import make_console, show
from seepage.text import clean, how_many, listed

# Groups, clients of a group and rounds of a combination that are printed.
_GROUPS, _CLIENTS, _TERMS = 20, 6, 6


@app.command()
def rounds(
    participation: Annotated[
        Path,
        typer.Argument(
            help="CSV file: a line a round and a column of 0 and 1 a client, or lines of round,client.",
            metavar="PARTICIPATION",
        ),
    ],
    below: Annotated[int, typer.Option(help="Number of clients below which a group is small.", min=2)] = BELOW,
    known: Annotated[
        list[str] | None,
        typer.Option(help="Client whose value the curious party knows, such as one that colludes. Repeatable."),
    ] = None,
    most_compared: Annotated[
        int, typer.Option(help="Number of vectors that the search compares at most; more take longer.", min=1)
    ] = MOST_COMPARED,
    as_json: Annotated[bool, typer.Option("--json", metavar="", help="Print JSON instead of tables.")] = False,
) -> None:
    """Show which clients the sums of several rounds of secure aggregation isolate, without any data.

    The same quantity is summed over some clients in each round, such as a statistic that is run again after one site or
    one patient joined. Where a combination of the rounds' sums is free of all but a few clients, the server computes
    their sum, whatever the protocol hides.

    This is exact for sums of the same quantity. Updates of a training change with the model from round to round, and a
    combination of them is an approximation. Nothing isolated is no proof of safety there.

    Exit status: 0 no client or small group is isolated, 1 some are, 2 bad input, 4 none was seen, but not all small
    groups were searched.

    [bold]Examples[/bold]

        seepage rounds participation.csv

        seepage rounds runs.csv --below 10 --known hospital_3
    """
    isolation = isolated(read_participation(participation), below, known or (), most_compared)
    if as_json:
        print(json.dumps(_as_json(isolation), indent=1))
    else:
        show(make_console(), _document(isolation, shown_path(participation)))
    if isolation.groups or isolation.further:
        raise typer.Exit(Exit.GATE_FAILED)
    if not isolation.complete:
        raise typer.Exit(Exit.UNDECIDED)


def _document(isolation: Isolation, name: str) -> Document:
    title = (
        f"{name}: {how_many(isolation.rounds, 'round')}, {how_many(isolation.clients, 'client')}, rank {isolation.rank}"
    )
    lines = [
        (
            _members(group),
            _learnt(group),
            clean(group.since),
            _combination(group),
            f"{group.noise:.3g}",
        )
        for group in isolation.groups[:_GROUPS]
    ]
    names = ("isolated", "what is learnt", "from round", "combination of the sums", "noise")
    grid: list[Block] = [Grid(title, heads(*names, numbers=["noise"]), rows_of(lines), most=None)] if lines else []
    return Document(title, [Section("", "" if lines else title, [*grid, *isolation.sentences(_GROUPS)])])


def _members(group: IsolatedGroup) -> str:
    names, more = [clean(client) for client in group.clients], len(group.clients) - _CLIENTS
    return f"{', '.join(names[:_CLIENTS])} and {more} more" if more > 0 else listed(names)


def _learnt(group: IsolatedGroup) -> str:
    if len(group.clients) == 1:
        return "its value"
    if set(group.weights) == {1}:
        return "their sum"
    shown = ":".join(str(weight) if abs(weight) < 1000 else f"{weight:.2g}" for weight in group.weights[:_CLIENTS])
    return f"a sum weighted {shown}{'…' if len(group.weights) > _CLIENTS else ''}"


def _combination(group: IsolatedGroup) -> str:
    terms = []
    for name, share in group.combination[:_TERMS]:
        size = "" if abs(share) == 1 else f"{abs(share)}·"
        size = size if len(size) < 12 else f"{float(abs(share)):.3g}·"
        terms.append(f"{'−' if share < 0 else '+'} {size}{clean(name, 24)}")
    more = len(group.combination) - _TERMS
    return " ".join(terms).removeprefix("+ ") + (f" and {more} more rounds" if more > 0 else "")


def _as_json(isolation: Isolation) -> dict[str, object]:
    groups = [
        {
            "clients": list(group.clients),
            "weights": list(group.weights),
            "combination": {name: str(share) for name, share in group.combination},
            "since": group.since,
            "noise": group.noise,
        }
        for group in isolation.groups
    ]
    fields = ("rounds", "clients", "rank", "below", "further", "searched", "complete")
    rest = {"inseparable": [list(group) for group in isolation.inseparable], "sentences": isolation.sentences()}
    return {name: getattr(isolation, name) for name in fields} | {"groups": groups} | rest
