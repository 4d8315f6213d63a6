"""What an audit found, in sentences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from seepage.assessment.row import ResultRow
from seepage.results.checks import Alarm
from seepage.results.tiers import settings
from seepage.results.verdict import UNDEFENDED, pick, strongest, verdict
from seepage.settings.setting import Audit
from seepage.text import clean, listed, percent

_COLUMNS = 3


@runtime_checkable
class Summarised(Protocol):
    """What a summary reads of a report."""

    @property
    def audit(self) -> Audit:
        """The audit."""
        ...

    @property
    def rows(self) -> Sequence[ResultRow]:
        """Its figures."""
        ...

    @property
    def findings(self) -> Sequence[Alarm]:
        """What the audit's own checks found."""
        ...


def summary(report: Summarised) -> str:
    """Return a paragraph for each batch size and defense, and one on how to read them."""
    audit, rows = report.audit, report.rows
    paragraphs = [_of_setting(audit, rows, size, defense, report.findings) for size, defense in settings(rows)]
    paragraphs = [paragraph for paragraph in paragraphs if paragraph]
    if paragraphs:
        paragraphs.append(_READING)
    return "\n\n".join(paragraphs)


def _of_setting(
    audit: Audit, rows: Sequence[ResultRow], size: int | None, defense: str, alarms: Sequence[Alarm]
) -> str:
    attack = strongest(rows, size, defense)
    if attack is None:
        return ""
    own = pick(rows, batch_size=size, defense=defense, attack=attack)
    [score] = pick(own, metric="accuracy", column=None)
    exact = pick(own, metric="exact_match", column=None)
    proved = pick(own, metric="certified", column=None)
    found = verdict(score, exact[0] if exact else None, alarms, proved[0] if proved else None)
    of = f"{score.n} {audit.spec.unit}{'s' if score.n != 1 else ''}"
    if score.low is None:
        between = ""
    elif score.low == score.high:
        between = ", the same for each"
    else:
        between = f", 95% interval {percent(score.low)} to {percent(score.high)}"
    text = f"{_place(audit, size, defense)} reads {percent(score.mean)} of {audit.about.secret} "
    text += f"({clean(attack)}, {of}{between})"
    if score.lift is not None:
        gain = score.lift
        against = f"the best guess ({score.baseline_name}, {percent(score.baseline)})"
        more = "more" if gain >= 0 else "fewer"
        text += f", {abs(100 * gain):.1f} points {more} than {against}"
    if exact and exact[0].mean is not None:
        text += f"; {percent(exact[0].mean)} of the records come back whole"
    if proved and proved[0].mean:
        text += f", and {percent(proved[0].mean)} are certified, under the conditions that check SEEP020 names"
    text += f". Leakage: {found.tier}."
    if found.tier == "inconclusive":
        text += f" {_why_inconclusive(score, found.because, audit.spec.unit)}"
    unclear = score.lift_low is not None and score.lift_low <= 0
    if unclear and score.lift_high is not None and score.lift_high >= 0:
        text += (
            " The interval of that difference includes zero: over all of it, these figures do not tell the attack from "
            "guessing, which does not show that nothing leaks."
        )
    elif unclear:
        text += " Guessing does better than this attack, which does not show that nothing leaks."
    return " ".join([text, *_of_columns(audit, own, alarms, unclear)])


def _why_inconclusive(score: ResultRow, because: Alarm | None, unit: str) -> str:
    if because is not None:
        return f"{because.title} ({because.code})."
    if score.baseline is None:
        return "No baseline was run, so there is nothing to compare with: add one."
    if score.baseline >= 1:
        return "Guessing is right already."
    if score.n == 1:
        return f"One {unit} allows no interval: audit more."
    return f"All {score.n} {unit}s are alike, which allows no interval: audit more."


def _of_columns(audit: Audit, own: Sequence[ResultRow], alarms: Sequence[Alarm], unclear: bool) -> list[str]:
    columns = [row for row in pick(own, metric="accuracy") if row.column is not None and row.lift is not None]
    ranked = sorted(columns, key=lambda row: row.lift or 0.0, reverse=True)
    sentences = []
    if exposed := [_column(row) for row in ranked if _is_clear(row)][:_COLUMNS]:
        # Of many columns some exceed guessing by chance alone, which shows where all of them together do not.
        some = f"{len(columns)} columns were looked at, of which a few may do so by chance"
        sentences.append(
            f"Single columns whose interval lies above guessing all the same: {listed(exposed)}; {some}."
            if unclear
            else f"Clearly above guessing, most of all: {listed(exposed)}."
        )
    marked = set(audit.about.sensitive)
    tiers: dict[str, list[str]] = {}
    for row in ranked:
        if row.column in marked:
            known = "guessing is always right" if (row.baseline or 0.0) >= 1 else verdict(row, alarms=alarms).tier
            tiers.setdefault(known, []).append(clean(row.column))
    if tiers:
        order = ("total", "high", "moderate", "low", "none", "inconclusive", "guessing is always right")
        told = "; ".join(f"{tier}: {', '.join(tiers[tier])}" for tier in order if tier in tiers)
        sentences.append(f"Sensitive columns by leakage: {told}.")
    return sentences


def _is_clear(row: ResultRow) -> bool:
    # Where all victims are alike the interval is a point, which claims too much.
    return row.lift_low is not None and row.lift_high is not None and 0 < row.lift_low < row.lift_high


def _column(row: ResultRow) -> str:
    return f"{clean(row.column)} ({percent(row.mean, 0)}, guess {percent(row.baseline, 0)})"


def _place(audit: Audit, size: int | None, defense: str) -> str:
    """Return the begin of a sentence: the configuration and who attacks."""
    attacker = audit.about.attacker
    under = "" if defense == UNDEFENDED else f" under {clean(defense, 60)}"
    if size is None:
        return attacker if defense == UNDEFENDED else f"Under {clean(defense, 60)} {_lower(attacker)}"
    return f"At batch size {size}{under} {_lower(attacker)}"


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]


_READING = (
    "Leakage is the share of the gap between the best baseline and certainty that the attack may close, by the "
    "upper end of the 95% interval: none below 5%, low below 20%, moderate below 50%, high below 90%, else total "
    "(also where half of all records come back whole or any is certified). These are the attacks that were run; a "
    "better one may exist."
)
