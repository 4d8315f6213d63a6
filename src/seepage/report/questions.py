"""The three questions of the Article 29 Working Party, answered by what the strongest attack reads."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from seepage.assessment import Estimate, Measurement
from seepage.assessment.row import CONTROL, INFERRED, LINKED, POSSIBLE, SINGLED_OUT, ResultRow
from seepage.report import grids
from seepage.report.document import Code, Folded, Points, Section, empty
from seepage.report.frames import Record, Setting, setting_of
from seepage.report.grids import setting_columns, spare, where
from seepage.report.result import AuditResult
from seepage.results.verdict import closed_gap, pick, strongest
from seepage.text import clean, listed, percent, printable_json

OPINION = "Article 29 Working Party, Opinion 05/2014 on Anonymisation Techniques (WP216), 10 April 2014"
METHOD = "attack, control and risk as in Anonymeter (Giomi et al. 2023, arXiv 2211.10459)"
_NAMES = {SINGLED_OUT: "Singling out", LINKED: "Linkability", INFERRED: "Inference"}
_LIMITS = (
    "These are the attacks that were run, and a better one may exist: a rate of zero is no proof of anonymity.",
    "An attacker with knowledge beyond the stated one may succeed more often.",
    "Whether a rate is acceptable, and whether persons are identifiable, is a judgement of law, not of this report.",
)
_MOST_NAMED, _LONGEST = 12, 200


def questions(result: AuditResult) -> list[Record]:
    """Return the answers of each configuration to the three questions, as plain values for files.

    Each figure has attack, best baseline, control and risk, (attack - control) / (1 - control). The interval of a risk
    is that of the difference over units, over one less the mean control; None where there is no figure.
    """
    audit, answered = result.audit, []
    for setting in map(setting_of, result.attacked):
        attack = strongest(result.rows, *setting)
        answers = [] if attack is None else _answers(result, setting, attack)
        if not answers:
            continue
        answered.append(
            {
                "opinion": OPINION,
                "method": METHOD,
                **{name: getattr(audit.about, name) for name in ("dataset", "protocol", "model")},
                **{"setting": audit.setting, "variant": audit.spec.variant},
                **{"batch_size": setting[0], "defense": setting[1], "attacker": audit.about.attacker},
                **{"attack": attack, "unit": audit.spec.unit, "quasi_identifiers": quasi_identifiers(result)},
                "quasi_identifiers_given": bool(_named(result)),
                "sensitive": [answer["column"] for answer in answers if answer["column"] is not None],
                "answers": answers,
                "does_not_prove": list(_LIMITS),
            }
        )
    return answered


def quasi_identifiers(result: AuditResult) -> list[str]:
    """Return the guessed columns by which rows are linked to a public table."""
    about, named = result.audit.about, _named(result)
    guessed = [name for name in about.columns if name != about.target]
    return [name for name in guessed if (name in named if named else name not in about.sensitive)]


def questions_section(result: AuditResult) -> Section:
    """Return the answers to the three questions; a sentence where no attack guesses rows."""
    title = "Three questions of anonymisation"
    filed = questions(result)
    if not filed:
        return empty("questions", title, _why_none(result))
    worst = result.worst
    assert worst is not None
    shown_entry = next((entry for entry in filed if setting_of(entry) == setting_of(worst)), filed[0])
    lines = [{**answer, **_flat_figures(answer), **_shared(entry)} for entry in filed for answer in entry["answers"]]
    columns = [
        grids.text("Question", "name"),
        grids.text("Column", "column"),
        *setting_columns(result),
        grids.text("Attack", "attack", marks=result.audit.about.marks),
        grids.share("Attack succeeds", "mean"),
        grids.share("Control", "control_mean"),
        grids.share("Risk", "risk_mean"),
        grids.interval("its 95% interval", "risk_low", "risk_high"),
        spare(grids.share("Best baseline", "baseline")),
        spare(grids.interval("95% interval of the attack")),
        spare(grids.share("If guesses were right", "possible_mean")),
        spare(grids.count(result.units, "n")),
    ]
    words = [
        "A regulator asks three things of data that is called anonymous: whether somebody can be singled out, linked "
        f"to other records, or have a value inferred ({OPINION}). Here they are asked of guessed rows.",
        f"By {where(result, {**_shared(shown_entry)})}:",
    ]
    table = grids.filled("Answers to the three questions, by the attack that reads most", columns, lines)
    text = printable_json(_shortened(filed[0] if len(filed) == 1 else filed), allow_nan=False)
    control = (
        "The control is how often the same guesses succeed against records that were not attacked by them; the risk is "
        f"(attack − control) / (1 − control). Intervals are over {result.audit.spec.unit}s."
    )
    points = [*_sentences(result, shown_entry), control, *_LIMITS]
    filed_too = Folded("The same as JSON, to file (in results.json under three_questions)", [Code(text)], filed=True)
    return Section("questions", title, [*words, Points(points), table, filed_too])


def _shortened(value: Any) -> Any:
    """Return plain values with long texts cut, as a page shows names of columns; files have them whole."""
    if isinstance(value, str):
        return clean(value, _LONGEST)
    if isinstance(value, list):
        return [_shortened(each) for each in value]
    return {name: _shortened(each) for name, each in value.items()} if isinstance(value, dict) else value


def _named(result: AuditResult) -> tuple[str, ...]:
    return getattr(result.audit.spec, "quasi_identifiers", ())


def _shared(entry: Record) -> Record:
    return {name: entry[name] for name in ("batch_size", "defense", "attack")}


def _answers(result: AuditResult, setting: Setting, attack: str) -> list[Record]:
    rows = pick(result.rows, batch_size=setting[0], defense=setting[1], attack=attack)
    runs = [run for run in result.runs if run.label == attack]
    figures = {
        (figure.metric, figure.column): figure
        for run in runs
        if (run.configuration.batch_size, run.configuration.defense) == setting
        for figure in run.measured
    }
    answers = []
    for question in _NAMES:
        for row in pick(rows, metric=question):
            if row.mean is None:
                continue
            control = figures.get((question + CONTROL, row.column))
            possible = next((r.mean for r in rows if r.metric == question + POSSIBLE), None)
            answers.append(_answer(question, row, figures.get((question, row.column)), control, possible))
    return answers


def _answer(
    question: str, row: ResultRow, measured: Measurement | None, control: Measurement | None, possible: float | None
) -> Record:
    rate = None if control is None else control.estimate()
    gain = None if measured is None or control is None else measured.less(control).estimate()
    return {
        "question": question,
        "name": _NAMES[question],
        "column": row.column,
        "attack_rate": {"mean": row.mean, "low": row.low, "high": row.high},
        "best_baseline": {"name": row.baseline_name, "mean": row.baseline, "lift": row.lift},
        "control": None if rate is None else {"mean": rate.mean, "low": rate.low, "high": rate.high},
        "risk": None if rate is None or gain is None else risk_of(row, rate.mean, gain),
        "if_guesses_were_right": possible,
        "units": row.n,
    }


def risk_of(row: ResultRow, control: float | None, gain: Estimate) -> Record | None:
    """Return (attack - control) / (1 - control), with its interval; None where all controls succeed.

    It is the closed gap, with the control in the place of the best baseline.
    """
    beside = replace(row, baseline=control, lift=gain.mean, lift_low=gain.low, lift_high=gain.high)
    mean = closed_gap(beside)
    if mean is None:
        return None
    return {"mean": mean, "low": closed_gap(beside, "lift_low"), "high": closed_gap(beside, "lift_high")}


def _flat_figures(answer: Record) -> Record:
    """Return the figures of an answer by names of their own, as tables take them."""
    flat = {**answer["attack_rate"], "baseline": answer["best_baseline"]["mean"], "n": answer["units"]}
    for name in ("control", "risk"):
        ends = answer[name] or dict.fromkeys(("mean", "low", "high"))
        flat |= {f"{name}_{end}": value for end, value in ends.items()}
    return {**flat, "possible_mean": answer["if_guesses_were_right"]}


def _sentences(result: AuditResult, entry: Record) -> list[str]:
    """Return what was measured on each question in one configuration, a sentence each."""
    by = quasi_identifiers(result)
    names, more = [clean(name) for name in by[:_MOST_NAMED]], len(by) - _MOST_NAMED
    names += [f"{more} more"] if more > 0 else []
    share_of = {
        SINGLED_OUT: "of predicates made of guessed values are true for the attacked record and for no other row",
        LINKED: f"of guesses have the record's own row as the only nearest one by {listed(names)}",
    }
    single = [answer for answer in entry["answers"] if answer["question"] in share_of]
    sentences = [f"{answer['name']}: {_rates(answer, share_of[answer['question']])}" for answer in single]
    inferred = [answer for answer in entry["answers"] if answer["question"] == INFERRED]
    if inferred:
        most = max(inferred, key=_shown_risk)
        of = f"of guesses of {clean(most['column'])} are right"
        among = (
            f"; the table has all {len(inferred)} sensitive columns, and this one has the highest risk by its lower end"
        )
        sentences.append(f"Inference: {_rates(most, of, among if len(inferred) > 1 else '')}")
    missing = {LINKED, INFERRED} - {answer["question"] for answer in entry["answers"]}
    if LINKED in missing:
        sentences.append("Linkability: no quasi-identifier is among the guessed columns, so there is no figure.")
    elif not _named(result):
        sentences.append(
            "No quasi-identifier was named, so all guessed columns that are not sensitive are taken to be public "
            "(--quasi-identifier)."
        )
    if INFERRED in missing:
        sentences.append("Inference: no guessed column is marked as sensitive (--sensitive), so there is no figure.")
    return sentences


def _shown_risk(answer: Record) -> tuple[float, float]:
    """Return the lower end of a risk and the risk, to compare answers by."""
    risk = answer["risk"] or {}
    mean = -math.inf if risk.get("mean") is None else risk["mean"]
    return mean if risk.get("low") is None else risk["low"], mean


def _rates(answer: Record, share_of: str, more: str = "") -> str:
    """Return how often an attack succeeds, how often against controls, and the risk, in words."""
    rate, control, risk = (answer[name] for name in ("attack_rate", "control", "risk"))
    text = f"{percent(rate['mean'])} {share_of}"
    if control is not None:
        text += f"; against control records it is {percent(control['mean'])}"
        text += "" if risk is None else f", a risk of {percent(risk['mean'])}{_interval_words(risk)}"
    return f"{text}{more}."


def _interval_words(risk: Record) -> str:
    if risk["low"] is None or risk["high"] is None or risk["low"] == risk["high"]:
        return ""
    return f" (95% interval {percent(risk['low'])} to {percent(risk['high'])})"


def _why_none(result: AuditResult) -> str:
    """Return why the questions have no answer."""
    if not result.audit.repeatable:
        return "A capture holds no other rows of the table, among which a guess could single somebody out."
    if result.audit.about.trials is not None:
        return "No attack of this audit guesses a row: it tells shares of a group apart, so none of the three is asked."
    return "No attack of this audit guesses rows of a table, so none of the three questions has an answer."
