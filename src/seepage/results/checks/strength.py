"""Checks of the attacks and their figures: strength, proofs, intervals, and what was not measured."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from seepage.assessment.intervals import UNITS_FOR_VERDICT
from seepage.assessment.row import ResultRow
from seepage.results.checks.facts import (
    NO_CONTROL,
    TOO_SMALL,
    Facts,
    Fault,
    Gap,
    broken,
    check,
    exceeds_by_more_than_chance,
    in_words,
)
from seepage.results.checks.finding import Severity, Where, few, few_of, place, share, where_of
from seepage.results.verdict import SHOWN, UNDECIDED, UNDEFENDED, pick, settings, strongest_row, verdict
from seepage.run.limits import by_units
from seepage.run.runner import Run
from seepage.text import capitalised, how_many, listed, points
from seepage.wire.horizontal import NOT_TRIED


@check("SEEP001", "error", "An attack does worse than a baseline")
def below_baseline(facts: Facts) -> Iterator[Fault]:
    """The lift lies below zero by more than its units vary, so that figures show nothing about the message's leakage.

    A working defense has the same effect, so there it is a warning, as long as the positive control shows that the
    attack works. Where the control leaves the attack out, another attack on the same messages has to be shown to work.
    """
    working = {(row.batch_size, row.defense) for row in facts.scores if facts.works(row.attack)}
    by_severity: dict[Severity, list[ResultRow]] = {}
    for row in facts.scores:
        ends = row.lift_ends()
        if ends is not None and ends[1] < 0:
            untried = facts.control is not None and facts.control_row(row.attack) is None
            shown = facts.works(row.attack) or (untried and (row.batch_size, row.defense) in working)
            excused = row.defense != "none" and shown
            by_severity.setdefault("warning" if excused else "error", []).append(row)
    for severity, rows in by_severity.items():
        where = tuple(Where(row.batch_size, row.defense, row.attack) for row in rows)
        cases = [
            f"{place(concerned, facts.size)}: {points(row.lift)} points of accuracy against {row.baseline_name} "
            f"(n={row.n})"
            for concerned, row in zip(where, rows, strict=True)
        ]
        after = (
            "This attack, or where the positive control leaves it out another one on the same messages, works on the "
            "control, so the defense may be the reason. An attacker could use the baseline instead, so read it as no "
            "less than that."
            if severity == "warning"
            else "An attack that loses to a baseline without the message does not show what the message gives away. "
            "Use a stronger attack, more iterations or restarts, or a smaller batch."
        )
        yield Fault(f"{few(cases)}. {after}", where, severity)


@check("SEEP004", "error", "The positive control did not leak", "repetitions")
def control_failed(facts: Facts) -> Iterator[Fault]:
    """An attack is not shown to close more than half of the gap to certainty where nothing protects the record.

    Of fewer than five repetitions the mean decides, since the interval of so few is wide for any attack.
    """
    failed = [
        row
        for row in facts.control or ()
        if row.column in (None, facts.audit.about.label)
        and row.metric == "accuracy"
        and facts.control_row(row.attack) is row
        and row.status != "left_out"
        and broken(row)
    ]
    if failed:
        cases = [
            f"{row.attack} reads {share(row.mean or 0.0)} of the {'cells' if row.column is None else 'labels'}"
            + " where the best baseline gives "
            + ("no figure" if row.baseline is None else share(row.baseline))
            for row in failed
        ]
        yield Fault(
            f"{facts.audit.about.control} But on {how_many(failed[0].n, facts.audit.spec.unit)} of this control "
            f"{few(cases)}. That does not show that half of the gap to certainty is closed. The attack or its "
            "options are broken, or do not suit the table; that it finds little elsewhere does not make the data safe. "
            "Give the attack more iterations or restarts, or use another one.",
            tuple(Where(attack=row.attack) for row in failed),
        )


@check("SEEP005", "note", "No positive control was run", "repetitions")
def control_missing(facts: Facts) -> Iterator[Fault]:
    """Nothing shows that the attacks work on this table at all."""
    without = [
        name
        for name in dict.fromkeys(row.attack for row in facts.scores)
        if (row := facts.control_row(name)) is None or row.status == "left_out"
    ]
    if without:
        unfit = [name for name in without if facts.control_row(name) is None]
        late = [name for name in without if name not in unfit]
        small = facts.control is None and facts.audit.too_small_for_control
        unsuited = "The table has too few rows for it" if small else "It plants nothing that the attack could read"
        reasons = {"There was no time for it": late, unsuited: unfit}
        reasons = reasons if facts.audit.spec.control else {"It was switched off": without}
        why = ". ".join(f"{reason} ({few(names)})" for reason, names in reasons.items() if names)
        yield Fault(
            f"{why}. Nothing shows that these attacks work on this table at all: where they find "
            "little, the attack may be at fault.",
            tuple(Where(attack=name) for name in without),
            # A gate passes a deployment because little leakage was shown.
            "warning" if facts.audit.spec.gate is not None else None,
        )


@check("SEEP030", "warning", "The audit is incomplete", "repetitions")
def incomplete(facts: Facts) -> Iterator[Fault]:
    """A default attack that applies was not run often enough, or no positive control shows that it works.

    Little leakage then shows nothing, so that no configuration is called ``little read``.
    """
    if facts.gaps:
        where = tuple(dict.fromkeys(Where(gap.batch_size, gap.defense) for gap in facts.gaps))
        what_helps = "Name no attacks, leave the control on, and give more time."
        if all(gap.why == NO_CONTROL for gap in facts.gaps):
            what_helps = "Read the small figures of an attack without one as no evidence."
        elif all(gap.why == TOO_SMALL for gap in facts.gaps):
            what_helps = "Audit a larger table of the same kind; until then read small figures as no evidence."
        yield Fault(
            f"{_by_place(facts.gaps, facts.size)}. Little leakage is shown only by all attacks of the default that "
            "apply, on at "
            f"least {UNITS_FOR_VERDICT} {facts.audit.spec.unit}s each, with their positive controls. "
            f"{what_helps}",
            where,
            # What was read, was read, by whichever attack.
            severity="note" if all(_is_shown(facts, point) for point in where) else None,
        )


def _is_shown(facts: Facts, point: Where) -> bool:
    """Return whether the rows of a configuration show that more is read than guessing gets."""
    score = strongest_row(facts.rows, point.batch_size, point.defense or UNDEFENDED)
    return score is not None and _tier_of(facts.rows, score) in SHOWN


def _by_place(gaps: Sequence[Gap], size: str) -> str:
    """Return what is missing in words; where configurations lack different things, each by its name."""
    by_words: dict[str, list[str]] = {}
    for batch_size, defense in dict.fromkeys((gap.batch_size, gap.defense) for gap in gaps):
        of_place = [gap for gap in gaps if (gap.batch_size, gap.defense) == (batch_size, defense)]
        where = place(Where(batch_size, defense), size)
        by_words.setdefault(in_words(of_place), []).append(
            where if defense != "none" else f"{where} with no defense".strip()
        )
    if len(by_words) == 1:
        return in_words(gaps)
    sentences = (f"{listed(few_of(places))}, {words}" for words, places in by_words.items())
    return ". ".join(map(capitalised, sentences))


@check("SEEP021", "error", "The negative control leaked")
def nothing_leaked(facts: Facts) -> Iterator[Fault]:
    """An attack exceeds every baseline on messages without information on the secret, beyond chance."""
    looked_at = facts.of_nothing
    rows = [row for row in looked_at if exceeds_by_more_than_chance(row, len(looked_at))]
    if rows:
        cases = [f"{row.attack}: {points(row.lift)} points over {row.baseline_name} (n={row.n})" for row in rows]
        # A measurement of the audit itself stands for all attacks of its configuration.
        where = [Where(attack=row.attack) if row.is_attack else Where(row.batch_size, row.defense) for row in rows]
        yield Fault(
            f"On messages that carry nothing of what is scored, {few(cases)}. No attack can read what is not there, so "
            "the audit itself gives the answer away, or the baselines are too weak for this table. Figures of these "
            "attacks cannot be relied on; please report it with the audit's document.",
            tuple(dict.fromkeys(where)),
        )


@check("SEEP015", "error", "A job failed")
def failed(facts: Facts) -> Iterator[Fault]:
    """An attack or a baseline ended with an error on some units."""
    runs = [run for run in facts.runs if run.failures]
    if runs:
        # Without a baseline no attack of its setting has a reference.
        where = [
            Where(run.configuration.batch_size, run.configuration.defense, run.label if run.is_attack else None)
            for run in runs
        ]
        cases = [f"{_missing(run, facts.audit.spec.unit, facts.size)} ({run.failures[0].message})" for run in runs]
        yield Fault(
            f"Not measured because of an error: {few(cases)}. Figures are of the others, which may be easier or "
            "harder than those. The traceback is in the run folder's audit.sqlite, table failures; the same command "
            "tries again.",
            tuple(dict.fromkeys(where)),
        )


@check("SEEP017", "warning", "There was no time for all repetitions")
def left_out(facts: Facts) -> Iterator[Fault]:
    """The time budget did not suffice."""
    runs = [run for run in facts.runs if run.status == "left_out"]
    if runs:
        cases = [_missing(run, facts.audit.spec.unit, facts.size) for run in runs]
        yield Fault(
            f"Left out for lack of time: {few(cases)}. Figures rest on fewer repetitions than were asked for, or are "
            "missing. The same command with the same run folder (--out) and more time measures the rest.",
            tuple(where_of(run) for run in runs),
        )


def _missing(run: Run, unit: str, size: str) -> str:
    missing = run.planned - len(run.units)
    words = place(Where(run.configuration.batch_size, run.configuration.defense), size)
    return f"{run.label}{f' at {words}' if words else ''}, {missing} of {run.planned} {unit}s"


@check("SEEP019", "error", "A certified cell is wrong")
def falsely_certified(facts: Facts) -> Iterator[Fault]:
    """An attack called cells certain that are not the record's."""
    wrong = facts.contradicted
    if wrong:
        cases = [f"{place(where, facts.size)}: {share(rate)}" for where, rate in wrong.items()]
        yield Fault(
            f"Of the cells that an attack called certified, this share is wrong: {few(cases)}. That is a mistake in "
            "seepage; please report it with the audit's document. Nothing counts as certified in this report. "
            "Accuracies are scored against the truth all the same.",
            tuple(wrong),
        )


@check("SEEP020", "note", "Which records are certified", "proofs")
def regimes(facts: Facts) -> Iterator[Fault]:
    """An attack with proofs reports for each setting its proofs and their conditions, or why it only estimated."""
    cases, where = [], []
    conditions: Counter[str] = Counter()
    for run in facts.runs:
        if run.evidence is None or run.evidence.regime is None:
            continue
        point = where_of(run)
        count = len(run.evidence.regime)
        ways = Counter(run.evidence.regime).most_common()
        cases.append(
            f"{place(point, facts.size)}: "
            + "; ".join(f"{regime} ({times} of {count} {facts.audit.spec.unit}s)" for regime, times in ways[:3])
        )
        where.append(point)
        conditions.update(text for text in run.evidence.conditions or () if text)
    if cases:
        shown_conditions = few([text for text, _ in conditions.most_common()])
        given = f" What is certified is so on these conditions: {shown_conditions}" if conditions else ""
        yield Fault(
            f"{few(cases)}. What is proved is no estimate: it is in the message, and another attacker reads the same."
            f"{given} What is estimated is what this attacker could not prove.",
            tuple(where),
        )


@check("SEEP024", "warning", "The exact attack was not tried", "proofs")
def fell_back(facts: Facts) -> Iterator[Fault]:
    """An attack with proofs only estimated, for a reason that is not in the message."""
    reasons: dict[Where, str] = {}
    for run in facts.runs:
        ways = () if run.evidence is None else run.evidence.regime or ()
        untried = [regime.removeprefix(NOT_TRIED) for regime in ways if regime.startswith(NOT_TRIED)]
        if untried:
            point = where_of(run)
            count = f"{len(untried)} of {len(run.units)} {facts.audit.spec.unit}s"
            reasons[point] = f"{place(point, facts.size)}: {untried[0]} ({count})"
    if reasons:
        yield Fault(
            f"{few(list(reasons.values()))}. The attack only estimated instead, which reads less. Its figures are a "
            "lower bound of what the message gives away: an attacker with another method may read every record.",
            tuple(reasons),
        )


_FEW_VICTIMS = 5


@check("SEEP006", "warning", "Too few units for some verdicts")
def undecided(facts: Facts) -> Iterator[Fault]:
    """The interval of a lift holds both no gain and a considerable one."""
    cases, where = [], []
    marked = facts.audit.about.sensitive
    for size, defense in settings(facts.rows):
        overall = open_gap(facts.rows, size, defense)
        columns = [
            c for c in marked if (row := strongest_row(facts.rows, size, defense, c)) is not None and _doubt(row)
        ]
        parts = [overall] if overall else []
        if columns:
            parts.append(f"{len(columns)} of {how_many(len(marked), 'sensitive column')}")
        if parts:
            point = Where(size, defense)
            cases.append(f"{place(point, facts.size) or 'no defense'}: {' and '.join(parts)}")
            where.append(point)
    if cases:
        yield Fault(
            f"With these {facts.audit.spec.unit}s neither a gain over guessing nor its absence is shown "
            f"({few(cases)}). Audit more of them; four times as many halve an interval.",
            tuple(where),
        )


def open_gap(rows: Sequence[ResultRow], batch_size: int | None, defense: str) -> str | None:
    """Return the interval of the closed gap where it decides nothing; None where it does, or for another reason."""
    score = strongest_row(rows, batch_size, defense)
    if score is None:
        return None
    return _doubt(score) if _tier_of(rows, score) == UNDECIDED else None


def _tier_of(rows: Sequence[ResultRow], score: ResultRow) -> str:
    """Return the verdict by the figures of an attack alone, whatever findings say."""
    figures = pick(rows, batch_size=score.batch_size, defense=score.defense, attack=score.attack, column=None)
    by_metric = {row.metric: row for row in figures}
    return verdict(score, by_metric.get("exact_match"), (), by_metric.get("certified")).tier


def _doubt(row: ResultRow) -> str | None:
    rated = verdict(row)
    if rated.tier != UNDECIDED or rated.low is None or rated.high is None:
        return None
    return f"{share(max(0.0, rated.low))} to {share(rated.high)} of what guessing misses is read"


@check("SEEP007", "warning", "Few repetitions")
def few_victims(facts: Facts) -> Iterator[Fault]:
    """A figure rests on fewer than five victims, trainings or attack seeds."""
    rows = [row for row in facts.scores if row.n < _FEW_VICTIMS]
    if rows:
        fewest = min(row.n for row in rows)
        unit = facts.audit.spec.unit
        captured = not facts.audit.repeatable
        if captured and fewest == 1:
            words = (
                f"Figures are of one {unit} alone, which allows no interval. What was read of it was read; what others "
                "give away may be more or less."
            )
        else:
            spec = facts.audit.spec
            without = f" One {unit} allows no interval." if fewest == 1 else ""
            wide = f"{without} The intervals assume nothing about how {unit}s differ, so few {unit}s give wide ones."
            if not by_units(spec):
                wide = f" The intervals are over their {spec.member}s, so another {unit} may read more or less."
            words = (
                f"Figures rest on as few as {how_many(fewest, unit)}.{wide} "
                f"{'Capture' if captured else 'Audit'} at least {_FEW_VICTIMS}, better 20."
            )
        yield Fault(words, tuple(Where(row.batch_size, row.defense, row.attack) for row in rows))


@check("SEEP016", "warning", "Nothing to compare with")
def no_baseline(facts: Facts) -> Iterator[Fault]:
    """No baseline was run."""
    rows = [row for row in facts.scores if row.baseline is None]
    if rows:
        yield Fault(
            "No baseline was run, so leakage cannot be separated from what is known without the message. "
            "Leave the baselines on; they cost next to nothing.",
            tuple(dict.fromkeys(Where(row.batch_size, row.defense) for row in rows)),
        )
