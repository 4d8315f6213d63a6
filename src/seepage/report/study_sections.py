"""The parts of a study's report, in the order in which they are read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from seepage.assessment.row import ResultRow
from seepage.report import figures, frames, grids
from seepage.report.frames import Record
from seepage.report.sections import Ruler, Section, every_figure
from seepage.results.checks import Alarm, explanation
from seepage.results.tiers import BOUNDS, strongest_row
from seepage.results.verdict import UNDEFENDED, pick, verdict
from seepage.settings.study import Study
from seepage.text import clean, listed, percent, points


class Picture(NamedTuple):
    """What was measured, and a picture of what it found.

    Attributes:
        defense: label.
        called: name in results.
        address: of an image, which holds itself.
    """

    defense: str
    called: str
    address: str


_LEARNT = {"auc": "AUC", "task_accuracy": "Task accuracy"}


def headline(study: Study, one: Record | None) -> dict[str, Any]:
    """Return the verdict on the defense under which most leaks, in words and as a record (None without attacks)."""
    if one is None or one["mean"] is None:
        return {"record": None, "tier": "inconclusive", "words": "No attack has a result, so nothing can be concluded."}
    words = f"{study.attacker} reads {percent(one['mean'], 0)} of {study.headline}, {_under(one['defense'])}"
    if one["baseline"] is not None:
        words += f"; without {study.seen} it would have guessed {percent(one['baseline'], 0)}"
    return {"record": one, "tier": one["tier"], "words": words + "."}


def sections(
    study: Study, rows: Sequence[ResultRow], alarms: Sequence[Alarm], prefix: str, pictures: Sequence[Picture] = ()
) -> list[Section]:
    """Return all parts of one study.

    Args:
        study: what was done.
        rows: its results.
        alarms: its doubts.
        prefix: of anchors, unique on the page.
        pictures: of what was found.
    """
    overviews = frames.overview(rows, alarms)
    found = [
        _verdict(study, rows, overviews),
        _threat_model(study),
        _doubts(alarms),
        _attacks(study, rows, alarms),
        _columns(study, rows, overviews),
        _pictures(study, rows, pictures),
        _utility(study, rows, overviews),
        every_figure(rows, [grids.text("Defense", "defense")], "s/record"),
    ]
    return [
        Section(
            f"{prefix}{one.name}",
            one.title,
            one.words,
            one.points,
            [(figures.renamed(figure, f"{prefix}{figure.name}"), grid) for figure, grid in one.figures],
            one.grids,
            one.kind,
            one.extra,
        )
        for one in found
        if one is not None
    ]


def _under(defense: str) -> str:
    return "with no defense" if defense == UNDEFENDED else f"under {clean(defense, 60)}"


def _verdict(study: Study, rows: Sequence[ResultRow], overviews: Sequence[Record]) -> Section:
    table = grids.filled(
        f"The strongest attack under each defense, beside the best guess; {study.headline}",
        [
            grids.text("Defense", "defense"),
            grids.tier("Leakage"),
            grids.text("Strongest attack", "attack"),
            grids.share("Read", "mean"),
            grids.interval("95% interval"),
            grids.share("Best guess", "baseline"),
            grids.text("which", "baseline_name"),
            grids.gain("Lift (points)", "lift"),
            grids.share("Gap closed", "closed"),
            grids.at_most("at most", "upper"),
            grids.count(f"{study.unit}s".capitalize(), "n"),
        ],
        overviews,
    )
    ruler = [
        Ruler(_under(one["defense"]), one["closed"], one["upper"], one["tier"])
        for one in overviews
        if one["attack"] is not None
    ]
    return Section(
        "verdict",
        "What the attacker learns",
        grids=[table],
        kind="verdict",
        extra={
            "headline": headline(study, frames.worst(overviews)),
            "ruler": ruler,
            "bounds": BOUNDS,
            "summary": _summary(study, rows, overviews),
        },
    )


def _summary(study: Study, rows: Sequence[ResultRow], overviews: Sequence[Record]) -> list[str]:
    words = []
    one = frames.worst(overviews)
    if one is not None and one["attack"] is not None:
        told = [
            f"{clean(record['column'])} {percent(record['mean'])} (guess {percent(record['baseline'])})"
            for record in _by_column(study, rows, one["defense"])
            if record["baseline"] is not None
        ]
        if told:
            words.append(f"By column, {_under(one['defense'])}, {clean(one['attack'])} reads: {listed(told[:12])}.")
    least = [one for one in overviews if one["upper"] is not None and one["defense"] != UNDEFENDED]
    if least:
        best = min(least, key=lambda one: one["upper"])
        words.append(
            f"Least leaks {_under(best['defense'])}: at most {percent(min(max(best['upper'], 0.0), 1.0))} of the gap "
            "between guessing and certainty is closed, by the attacks that were run."
        )
    return words


def _threat_model(study: Study) -> Section:
    words = [
        "Every figure below holds under these assumptions. A low figure means that these attacks found little, "
        "not that nothing can be found."
    ]
    facts = [clean(fact, 400) for fact in study.facts] + [clean(note, 200) for note in study.notes]
    if study.sensitive:
        facts.append(f"Columns marked as sensitive (★): {listed([clean(name) for name in study.sensitive[:20]])}.")
    return Section("threat-model", "Threat model and what the attacker is granted", words, facts)


def _doubts(alarms: Sequence[Alarm]) -> Section:
    title = "What this audit doubts about itself"
    if not alarms:
        return Section("doubts", title, ["None of the checks found anything."], kind="empty")
    explained = {alarm.code: explanation(alarm.code) for alarm in alarms if explanation(alarm.code)}
    return Section("doubts", title, kind="alarms", extra={"alarms": alarms, "explained": explained})


def _attacks(study: Study, rows: Sequence[ResultRow], alarms: Sequence[Alarm]) -> Section:
    title = "Leakage by attack and defense"
    records = frames.scores(rows, alarms)
    if not any(one["is_attack"] for one in records):
        return Section("attacks", title, ["No attack has a result."], kind="empty")
    caption = f"Attacks and guesses under each defense, with 95% intervals; {study.headline}"
    table = grids.filled(
        caption,
        [
            grids.text("Defense", "defense"),
            grids.text("Attack or guess", "attack"),
            grids.share("Read", "mean"),
            grids.interval("95% interval"),
            grids.gain("Lift (points)", "lift"),
            grids.interval("Interval of lift", "lift_low", "lift_high"),
            grids.text("over", "baseline_name"),
            grids.tier("Leakage"),
            grids.count(f"{study.unit}s".capitalize(), "n"),
        ],
        records,
    )
    words = [
        f"What lies above the open marks was given away by {study.seen}; what lies below could be guessed "
        "without it. Each attack's answers are compared with the best guess on the very same records."
    ]
    # What is measured about the set-up itself, such as a shadow's inversion of itself, is neither attack nor guess.
    about = {part.called for part in study.parts if part.kind == "about"}
    shown = [one for one in records if one["attack"] not in about]
    return Section("attacks", title, words, figures=[(figures.by_defense("by-defense", shown, caption, "Read"), table)])


def _by_column(study: Study, rows: Sequence[ResultRow], defense: str) -> list[Record]:
    """Return what the strongest attack under a defense reads of each column: sensitive ones first, then by lift."""
    best = strongest_row(rows, study.batch_size, defense)
    if best is None:
        return []
    made = []
    for position, row in enumerate(pick(rows, metric="accuracy", attack=best.attack, defense=defense)):
        if row.column is None or row.mean is None:
            continue
        found = verdict(row)
        made.append(
            {
                **{name: getattr(row, name) for name in ("defense", "attack", "column", "mean", "low", "high", "n")},
                **{name: getattr(row, name) for name in ("baseline", "baseline_name", "lift", "lift_low", "lift_high")},
                "closed": found.closed,
                "upper": found.upper,
                "tier": found.tier,
                "sensitive": row.column in study.sensitive,
                "position": position,
            }
        )
    return sorted(made, key=lambda one: (not one["sensitive"], -(one["lift"] or 0.0), one["position"]))


def _columns(study: Study, rows: Sequence[ResultRow], overviews: Sequence[Record]) -> Section | None:
    shown = []
    words = []
    for i, one in enumerate(overviews):
        records = _by_column(study, rows, one["defense"])
        if not records:
            continue
        caption = f"Columns as {clean(one['attack'])} reads them {_under(one['defense'])}"
        table = grids.filled(
            caption,
            [
                grids.text("Column", "column", mark="sensitive"),
                grids.tier("Leakage"),
                grids.share("Read", "mean"),
                grids.interval("95% interval"),
                grids.share("Best guess", "baseline"),
                grids.text("which", "baseline_name"),
                grids.gain("Lift (points)", "lift"),
                grids.interval("Interval of lift", "lift_low", "lift_high"),
                grids.share("Gap closed", "closed"),
                grids.count(f"{study.unit}s".capitalize(), "n"),
            ],
            records,
        )
        shown.append((figures.by_column(f"columns-{i}", records, caption), table))
        marked = [one for one in records if one["sensitive"]]
        if marked and not words:
            told = [f"{clean(one['column'])} {points(one['lift'])} ({one['tier']})" for one in marked[:8]]
            words.append(f"Lift of the sensitive columns (★) {_under(one['defense'])}, in points: {listed(told)}.")
    return Section("columns", "Columns", words, figures=shown) if shown else None


def _pictures(study: Study, rows: Sequence[ResultRow], pictures: Sequence[Picture]) -> Section | None:
    """Return originals and what attacks and guesses make of them, one below the other."""
    if not pictures:
        return None
    measured = {(row.defense, row.attack, row.metric): row.mean for row in rows if row.column is None}
    kinds = {part.called: part.kind for part in study.parts}
    shown = []
    for one in pictures:
        psnr, ssim = (measured.get((one.defense, one.called, name)) for name in ("psnr", "ssim"))
        name = "the originals" if psnr is None else clean(one.called, 60)
        said = "" if psnr is None or ssim is None else f": {psnr:.1f} dB, similarity {ssim:.2f}"
        kind = {"guess": " (guess)", "about": "" if psnr is None else " (no attack)"}.get(kinds[one.called], "")
        shown.append({"address": one.address, "words": f"{name}{kind}, {_under(one.defense)}{said}"})
    words = ["The first attacked images of the first training, and below them what was made of each."]
    return Section("pictures", "Images and what is read of them", words, kind="pictures", extra={"pictures": shown})


def _utility(study: Study, rows: Sequence[ResultRow], overviews: Sequence[Record]) -> Section | None:
    records = []
    for one in overviews:
        about = [row for row in rows if row.defense == one["defense"] and not row.is_attack]
        learnt = [
            row for name in study.utility for row in pick(about, metric=name, column=None) if row.mean is not None
        ]
        if not learnt:
            continue
        told = {row.metric: row.mean for row in about if row.column is None and "epsilon" in row.metric}
        records.append(
            {
                **one,
                **{name: told.get(name) for name in ("epsilon", "label_epsilon")},
                "task_metric": learnt[0].metric,
                "task": learnt[0].mean,
                "task_low": learnt[0].low,
                "task_high": learnt[0].high,
                "task_n": learnt[0].n,
            }
        )
    if not records:
        return None
    learnt = _LEARNT.get(records[0]["task_metric"], clean(records[0]["task_metric"]).replace("_", " "))
    caption = f"Share of the gap closed against {learnt}"
    table = grids.filled(
        caption,
        [
            grids.text("Defense", "defense"),
            grids.tier("Leakage"),
            grids.text("Strongest attack", "attack"),
            grids.share("Read", "mean"),
            grids.share("Gap closed", "closed"),
            grids.at_most("at most", "upper"),
            grids.share(learnt, "task"),
            grids.interval("its interval", "task_low", "task_high"),
            grids.count(f"{study.unit}s".capitalize(), "task_n"),
            grids.number("Epsilon of a record", "epsilon"),
            grids.number("Epsilon of a label", "label_epsilon"),
        ],
        records,
    )
    words = ["Down and to the right is better: less leaks, and the task is learnt as well."]
    if any(one["closed"] is not None for one in records):
        shown = [(figures.leakage_against("frontier", records, caption, f"{learnt} of the trained network (%)"), table)]
        return Section("defenses", "Defenses: what they leave and what they cost", words, figures=shown)
    return Section("defenses", "Defenses: what they leave and what they cost", words, grids=[table])
