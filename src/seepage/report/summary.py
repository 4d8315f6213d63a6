"""What an audit found, in sentences."""

from __future__ import annotations

from collections.abc import Sequence

from seepage.results.checks import Alarm
from seepage.results.rows import Row
from seepage.results.text import clean, listed, percent
from seepage.results.tiers import settings
from seepage.results.verdict import UNDEFENDED, pick, strongest, verdict
from seepage.settings.spec import AuditSpec
from seepage.settings.subject import Subject

_COLUMNS = 3


def summary(spec: AuditSpec, subject: Subject, rows: Sequence[Row], alarms: Sequence[Alarm] = ()) -> str:
    """Return a paragraph for each batch size and defense, and one on how to read them."""
    paragraphs = [_of_setting(subject, rows, size, defense, alarms) for size, defense in settings(rows)]
    paragraphs = [paragraph for paragraph in paragraphs if paragraph]
    if paragraphs:
        paragraphs.append(_reading(spec))
    return "\n\n".join(paragraphs)


def _of_setting(subject: Subject, rows: Sequence[Row], size: int, defense: str, alarms: Sequence[Alarm]) -> str:
    attack = strongest(rows, size, defense)
    if attack is None:
        return ""
    own = pick(rows, batch_size=size, defense=defense, attack=attack)
    [score] = pick(own, metric="accuracy", column=None)
    exact = pick(own, metric="exact_match", column=None)
    proved = pick(own, metric="certified", column=None)
    found = verdict(score, exact[0] if exact else None, alarms, proved[0] if proved else None)
    of = f"{score['n']} victim{'s' if score['n'] != 1 else ''}"
    if score["low"] is None:
        between = ""
    elif score["low"] == score["high"]:
        between = ", the same for each"
    else:
        between = f", 95% interval {percent(score['low'])} to {percent(score['high'])}"
    under = "" if defense == UNDEFENDED else f" under {clean(defense, 60)}"
    text = f"At batch size {size}{under} the server reads {percent(score['mean'])} of all cells "
    text += f"({clean(attack)}, {of}{between})"
    if score["lift"] is not None:
        gain = score["lift"]
        against = f"the best guess ({score['baseline_name']}, {percent(score['baseline'])})"
        more = "more" if gain >= 0 else "fewer"
        text += f", {abs(100 * gain):.1f} points {more} than {against}"
    if exact and exact[0]["mean"] is not None:
        text += f"; {percent(exact[0]['mean'])} of the records come back whole"
    if proved and proved[0]["mean"]:
        text += f", and {percent(proved[0]['mean'])} are certified, under the conditions that check SEEP020 names"
    text += f". Leakage: {found.tier}."
    if found.tier == "inconclusive":
        text += f" {_why_inconclusive(score, found.because)}"
    unclear = score["lift_low"] is not None and score["lift_low"] <= 0
    if unclear and score["lift_high"] >= 0:
        text += (
            " The interval of that difference includes zero: over all cells, these victims do not tell the attack from "
            "guessing, which does not show that nothing leaks."
        )
    elif unclear:
        text += " Guessing does better than this attack, which does not show that nothing leaks."
    return " ".join([text, *_of_columns(subject, own, alarms, unclear)])


def _why_inconclusive(score: Row, because: Alarm | None) -> str:
    if because is not None:
        return f"{because.title} ({because.code})."
    if score["baseline"] is None:
        return "No baseline was run, so there is nothing to compare with: add one."
    if score["baseline"] >= 1:
        return "Guessing is right already."
    if score["n"] == 1:
        return "One victim allows no interval: audit more."
    return f"All {score['n']} victims are alike, which allows no interval: audit more."


def _of_columns(subject: Subject, own: Sequence[Row], alarms: Sequence[Alarm], unclear: bool) -> list[str]:
    columns = [row for row in pick(own, metric="accuracy") if row["column"] is not None and row["lift"] is not None]
    ranked = sorted(columns, key=lambda row: row["lift"], reverse=True)
    sentences = []
    if exposed := [_column(row) for row in ranked if _is_clear(row)][:_COLUMNS]:
        # Of many columns some exceed guessing by chance alone, which shows where all of them together do not.
        some = f"{len(columns)} columns were looked at, of which a few may do so by chance"
        sentences.append(
            f"Single columns whose interval lies above guessing all the same: {listed(exposed)}; {some}."
            if unclear
            else f"Clearly above guessing, most of all: {listed(exposed)}."
        )
    marked = {column.name for column in subject.dataset.schema.columns if column.sensitive}
    tiers: dict[str, list[str]] = {}
    for row in ranked:
        if row["column"] in marked:
            known = "guessing is always right" if row["baseline"] >= 1 else verdict(row, alarms=alarms).tier
            tiers.setdefault(known, []).append(clean(row["column"]))
    if tiers:
        order = ("total", "high", "moderate", "low", "none", "inconclusive", "guessing is always right")
        told = "; ".join(f"{tier}: {', '.join(tiers[tier])}" for tier in order if tier in tiers)
        sentences.append(f"Sensitive columns by leakage: {told}.")
    return sentences


def _is_clear(row: Row) -> bool:
    # Where all victims are alike the interval is a point, which claims too much.
    return row["lift_low"] is not None and 0 < row["lift_low"] < row["lift_high"]


def _column(row: Row) -> str:
    return f"{clean(row['column'])} ({percent(row['mean'], 0)}, guess {percent(row['baseline'], 0)})"


def _reading(spec: AuditSpec) -> str:
    granted = "was told the true labels" if spec.labels == "true" else "restored the labels from the gradient"
    if spec.batch_statistics == "granted":
        granted += ", and was told the statistics of batches where the model normalises them"
    return (
        "Leakage is the share of the gap between guessing and certainty that the attack may close, by the upper end of "
        "the 95% interval: none below 5%, low below 20%, moderate below 50%, high below 90%, else total (also where "
        f"half of all records come back whole or any is proved). The attacker {granted}. These are the attacks that "
        "were run; a better one may exist."
    )
