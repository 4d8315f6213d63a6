"""What was found in a transcript, in words: certified cells, what was not tried, and what alignment tells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from seepage.assessment import ResultRow
from seepage.assessment.alignment import Alignment, Rate
from seepage.settings.findings import FindingsSection, FindingsTable
from seepage.text import clean, percent, span

# What an attack says of its own answers.
OWN_ANSWERS = {
    "certified_cells": "private cells certified",
    "still_possible": "share of values that still replay the message",
    "replayed": "records whose message an answer replays",
    "ties": "records with several answers that fit alike",
}
_SOME = 4
_RATES = 20  # values and means that a table on alignment shows at most


def certified_words(answers: Mapping[str, Mapping[str, float | None]], rows: Sequence[ResultRow]) -> list[str]:
    """Return a sentence on the attack that certifies most cells; none where no cell is certified."""
    shares = {label: figures.get("certified_cells") or 0.0 for label, figures in answers.items()}
    best = max(shares, key=shares.__getitem__, default=None)
    if best is None or not shares[best]:
        return []
    return [
        f"{best} certifies {percent(shares[best])} of the private cells: no other values replay their "
        "messages, given the declared network, weights, loss and defense."
        f"{_below_baseline([row for row in rows if row.attack == best])}"
    ]


def _below_baseline(rows: Sequence[ResultRow]) -> str:
    """Return, as a sentence, that an attack reads less of the cells than a baseline; empty where it does not."""
    for row in rows:
        if (row.metric, row.column) == ("accuracy", None) and row.lift is not None and row.lift < 0:
            return (
                f" Of all private cells it reads {percent(row.mean)}, less than the baseline {row.baseline_name} "
                f"with {percent(row.baseline)}."
            )
    return ""


def left_words(setting: str, left_out: Sequence[str], reasons: Mapping[str, str]) -> list[str]:
    """Return sentences on the attacks that were not asked for, and on those that could not be tried."""
    sentences = []
    if left_out:
        sentences.append(
            f"Not run: {', '.join(left_out)}. No audit of {setting} learning runs them by default; --attack NAME does."
        )
    if reasons:
        which = ", ".join(reasons) if len(reasons) <= _SOME else f"{len(reasons)} attacks"
        sentences.append(f"Not tried: {which}. What was not tried is not known to be safe; reasons below.")
    return sentences


def own_answers(answers: Mapping[str, float | None]) -> str:
    """Return what an attack says of its own answers, by its figures."""
    figures = {metric: answers.get(metric) for metric in OWN_ANSWERS}
    return "; ".join(f"{percent(value)} {OWN_ANSWERS[name]}" for name, value in figures.items() if value is not None)


def reasons_section(not_tried: Mapping[str, str]) -> FindingsSection:
    """Return why attacks could not be tried, those with the same reason together."""
    by_reason: dict[str, list[str]] = {}
    for name, reason in not_tried.items():
        by_reason.setdefault(reason, []).append(name)
    points = [
        f"{clean(', '.join(names), 400)}: {clean(reason if len(names) == 1 else _of_several(reason), 400)}."
        for reason, names in by_reason.items()
    ]
    return FindingsSection("Not tried", points=tuple(points), name="not-tried")


def _of_several(reason: str) -> str:
    """Return the reason why one attack could not be tried, of several."""
    for singular, plural in (("it needs", "they need"), ("it takes", "they take"), ("it tells", "they tell")):
        reason = reason.replace(singular, plural)
    return reason.replace("it is active", "they are active").replace("that it changes", "that they change")


def alignment_section(aligned: Alignment) -> FindingsSection:
    """Return what the attacker learnt of its own records before any training."""
    title = "What alignment gives away"
    words = [
        f"The attacker learns that {aligned.shared:,} of its {aligned.records:,} records are with the attacked "
        "party, too; the attacked party learns the same of its own."
    ]
    if aligned.predicted is None:
        words.append(
            "What this tells is measured where own.csv has records that the other party lacks, ten of them at least."
        )
        return FindingsSection(title, tuple(words), name="alignment")
    words.append(
        f"Its own columns predict {percent(aligned.predicted.mean)} of these memberships "
        f"({span(aligned.predicted.low, aligned.predicted.high)}), the more frequent one {percent(aligned.usual)}; "
        "alignment tells all."
    )
    strongest = sorted(aligned.rates, key=_clearest, reverse=True)[:_RATES]
    shares = tuple(_rate(rate) for rate in strongest if rate.value is not None)
    means = tuple(_rate(rate) for rate in strongest if rate.value is None)
    note = f"The {len(strongest)} of {len(aligned.rates)} values and means that differ most clearly."
    listed = [
        FindingsTable(
            "What membership tells of a value",
            (
                ("Column", "column", "text"),
                ("Value", "value", "text"),
                ("With the other party", "shared", "share"),
                ("Only here", "others", "share"),
                ("Difference (points)", "mean", "gain"),
                ("95% interval", "", "share_interval"),
            ),
            shares,
        ),
        FindingsTable(
            "What membership tells of a number: means",
            (
                ("Column", "column", "text"),
                ("With the other party", "shared", "number"),
                ("Only here", "others", "number"),
                ("Difference", "mean", "number"),
                ("95% interval", "", "interval"),
            ),
            means,
        ),
    ]
    return FindingsSection(title, tuple(words), (note,), tuple(table for table in listed if table.records), "alignment")


def _clearest(rate: Rate) -> float:
    """Return how far a difference is from zero, in halves of its interval."""
    low, high, mean = rate.difference.low, rate.difference.high, rate.difference.mean
    if low is None or high is None or mean is None:
        return 0.0
    return abs(mean) / max((high - low) / 2, 1e-12)


def _rate(rate: Rate) -> dict[str, object]:
    difference = rate.difference
    return {
        **{"column": clean(rate.column, 32), "value": None if rate.value is None else clean(rate.value, 32)},
        **{"shared": rate.shared.mean, "others": rate.others.mean, "mean": difference.mean},
        **{"low": difference.low, "high": difference.high},
    }
