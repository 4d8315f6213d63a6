"""What a transcript of split or vertical training gives away, on the terminal."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from seepage.captures.transcript_runs import TranscriptFindings, TriedAttack
from seepage.report.terminal import make_table
from seepage.text import clean, percent, points

# What an attack says of its own answers.
_SHOWN = {
    "certified_cells": "private cells certified",
    "still_possible": "share of values that still replay the message",
    "replayed": "records whose message an answer replays",
    "ties": "records with several answers that fit alike",
}


def show_transcript(console: Console, findings: TranscriptFindings) -> None:
    """Print the findings: the headline, what each attack read, and what could not be tried.

    Args:
        console: console to print on.
        findings: findings of a transcript.
    """
    console.print()
    for i, sentence in enumerate(findings.headline()):
        console.print(Text(clean(sentence, 2000), "bold" if not i else ""))
    for note in findings.notes:
        console.print(Text(f"  · {clean(note, 400)}"))
    if findings.tried:
        table = make_table("What each attack says of its own answers")
        table.add_column("attack", no_wrap=True)
        table.add_column("guesses")
        table.add_column("records", justify="right")
        table.add_column("of its answers")
        for one in findings.tried:
            table.add_row(Text(clean(one.attack)), Text(one.sought), f"{one.records:,}", Text(_shown(one)))
        console.print(table)
    if any(one.scores for one in findings.tried):
        lacks = " and holds no marginals" if findings.assumed else ""
        if 0 < len(findings.assumed) <= len(findings.private):
            lacks += f" of {clean(', '.join(findings.assumed), 200)}"
        table = make_table(
            f"Beside the truth of {findings.scored:,} records: share read, and the best baseline, which sees no message"
            + lacks
        )
        for name in ("attack", "cells"):
            table.add_column(name, no_wrap=True)
        for name in ("read", "best baseline", "lift in points"):
            table.add_column(name, justify="right")
        for one in findings.tried:
            for row in one.scores or []:
                if row["metric"] not in ("accuracy", "exact_match"):
                    continue
                whole = "all private" if row["metric"] == "accuracy" else "whole records"
                name = whole if row["column"] is None else clean(row["column"], 32)
                value, base, lift = (_number(row[key]) for key in ("value", "baseline", "lift"))
                beside = "–" if base is None else f"{percent(base)} {row['baseline_name']}"
                table.add_row(Text(clean(one.attack)), Text(name), percent(value), Text(beside), points(lift))
        console.print(table)
    if findings.not_tried:
        console.print(Text("Not tried", "bold"))
        for name, reason in findings.not_tried.items():
            console.print(Text(f"  · {clean(name)}: {clean(reason, 400)}."))


def _number(value: object) -> float | None:
    return value if isinstance(value, float) else None


def _shown(one: TriedAttack) -> str:
    said = [
        f"{percent(one.shown[metric, None])} {words}" for metric, words in _SHOWN.items() if (metric, None) in one.shown
    ]
    return "; ".join(said) or "–"
