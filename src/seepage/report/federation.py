"""What the captured updates of a federation give away: tables of the terminal and a page."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from seepage.captures.federation import OUTCOMES, ClientFinding, FederationFindings, Outcome, Score, UpdateFinding
from seepage.report import grids
from seepage.report.frames import Record
from seepage.report.html import page
from seepage.report.terminal import make_table
from seepage.text import clean, percent, points

PAGE = "report.html"
_MISSING = "–"
# Tier with whose colour a page marks an outcome.
_TIERS = {"proved": "total", "estimated": "moderate", "not tried": "open", "failed": "open"}
_STYLES = {"proved": "bold red", "estimated": "yellow", "nothing": "", "not tried": "magenta", "failed": "magenta"}


def in_words(findings: FederationFindings) -> list[str]:
    """Return what was found as sentences.

    Example:
        >>> from seepage.captures.federation import UpdateFinding
        >>> one = UpdateFinding("round-1/client-7", "7", 1, 8, "proved", "all 8 records proved", proved_records=8)
        >>> in_words(FederationFindings((one,), (), "unmix"))[0]
        '1 update of 1 client, attacked by unmix: 1 proved, 0 estimated, 0 nothing, 0 not tried, 0 failed.'
    """
    updates, clients = len(findings.updates), len({update.client for update in findings.updates})
    counts = ", ".join(f"{count} {outcome}" for outcome, count in findings.counts.items())
    words = [
        f"{updates} update{'s' * (updates != 1)} of {clients} client{'s' * (clients != 1)}, attacked by "
        f"{clean(findings.attack)}: {counts}."
    ]
    if findings.counts["estimated"]:
        words.append(
            "Estimates are records that the attacker is sure of without a proof; attempts can agree and be wrong."
        )
    if findings.counts["nothing"]:
        words.append("Nothing found does not show that an update is safe: a better attack may exist.")
    if findings.counts["not tried"] or findings.counts["failed"]:
        words.append("An update that was not tried, or failed, is not known to be safe.")
    return words


def show_federation(console: Console, findings: FederationFindings) -> None:
    """Print the findings as tables.

    Args:
        console: console to print on.
        findings: findings of a federation.
    """
    scored = any(one.score for one in (*findings.updates, *findings.clients))
    table = _table(
        "What each update gives away", ["client", "round", "outcome", "records", "proved", "estimated"], scored
    )
    for update in findings.updates:
        cells = [
            Text(clean(update.client, 24)),
            Text(_MISSING if update.round is None else str(update.round)),
            Text(update.outcome, _STYLES[update.outcome]),
            *_numbers(update),
        ]
        table.add_row(*cells, *(_score(update.score) if scored else []), Text(clean(_reason(update), 600)))
    console.print(table)
    if findings.clients:
        heads = ["client", "rounds", "records", "proved", "estimated"]
        table = _table("What all rounds of a client give away together", heads, scored)
        for client in findings.clients:
            cells = [Text(clean(client.client, 24)), Text(str(client.rounds)), *_numbers(client)]
            table.add_row(*cells, *(_score(client.score) if scored else []), Text(clean(client.why, 600)))
        console.print(table)
    for sentence in in_words(findings):
        console.print(Text(sentence))


def render_federation(findings: FederationFindings) -> str:
    """Return the findings as one self-contained page; it holds no record.

    Args:
        findings: findings of a federation.
    """
    together = [
        _record(client) | {"rounds": client.rounds, "round": None, "folder": None} for client in findings.clients
    ]
    updates = [
        _record(update)
        | {"round": update.round, "outcome": update.outcome}
        | {"folder": None if update.records is None else update.file}
        for update in findings.updates
    ]
    shares = [
        grids.share("Cells read", "accuracy"),
        grids.share("Best baseline", "baseline"),
        grids.gain("Lift", "lift"),
    ]
    numbers = [
        grids.count("Records", "records"),
        grids.count("Proved", "proved"),
        grids.count("Estimated", "estimated"),
    ]
    client, number = grids.text("Client", "client"), grids.count("Round", "round")
    return page(
        "federation.html",
        "Captured updates",
        words=in_words(findings),
        updates=grids.filled(
            "What each update gives away",
            [client, number, grids.Column("Outcome", _outcome, grids.TEXT), *numbers, *shares],
            updates,
        ),
        together=grids.filled(
            "What all rounds of a client give away together",
            [client, grids.count("Rounds", "rounds"), *numbers, *shares],
            together,
            "Records are the most that the client was taken to hold.",
        ),
        reasons=grids.filled(
            "What the attack says of each update",
            [
                client,
                number,
                grids.count("Proved cells", "cells"),
                grids.Column("Why", grids.text("Why", "why", 600).cell, "text wide"),
                grids.text("Results in", "folder", 200),
            ],
            [*updates, *together],
            "Lines without a round are of all rounds of a client together." if together else None,
        ),
    )


def _record(one: UpdateFinding | ClientFinding) -> dict[str, Any]:
    tried = one.records is not None
    return {
        "client": one.client,
        "records": one.records,
        "proved": one.proved_records if tried else None,
        "cells": one.proved_cells if tried else None,
        "estimated": one.estimated_records if tried else None,
        "accuracy": None if one.score is None else one.score.accuracy,
        "baseline": None if one.score is None else one.score.baseline,
        "lift": None if one.score is None else one.score.lift,
        "why": _reason(one) if isinstance(one, UpdateFinding) else one.why,
    }


def _outcome(record: Record) -> grids.GridCell:
    outcome: Outcome = record["outcome"]
    # Nothing found is not shown to be safe, so that it has no colour.
    kind = f"tier {_TIERS[outcome]}" if outcome in _TIERS else None
    return grids.GridCell(outcome, float(OUTCOMES.index(outcome)), kind)


def _reason(update: UpdateFinding) -> str:
    return "; ".join(part for part in (update.why, *update.notes) if part)


def _table(title: str, heads: list[str], scored: bool) -> Table:
    table = make_table(title)
    for head in [*heads, *(["cells read", "lift in points"] if scored else [])]:
        words = head in ("client", "outcome")
        table.add_column(head, justify="left" if words else "right", no_wrap=words)
    table.add_column("why", overflow="fold")
    return table


def _numbers(one: UpdateFinding | ClientFinding) -> list[Text]:
    if one.records is None:
        return [Text(_MISSING)] * 3
    return [Text(str(number)) for number in (one.records, one.proved_records, one.estimated_records)]


def _score(score: Score | None) -> list[Text]:
    return [Text(_MISSING)] * 2 if score is None else [Text(percent(score.accuracy)), Text(points(score.lift))]
