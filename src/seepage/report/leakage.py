"""Parts of a report on what leaks: by configuration, by column, beside the cost of defenses, and what to change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from seepage.assessment.task import is_error
from seepage.report import figures, frames, grids
from seepage.report.advice import LEAST_TRAININGS, advice, sentences
from seepage.report.document import Grid, Image, Plot, Points, Section, empty
from seepage.report.frames import Record, setting_of
from seepage.report.grids import (
    MOST_COLUMNS,
    attack_column,
    canary_columns,
    closed_columns,
    cut_columns,
    joining,
    score_columns,
    setting_columns,
    spare,
    task_columns,
    where,
)
from seepage.report.result import AuditResult
from seepage.results.verdict import UNDEFENDED
from seepage.text import clean, listed, lowered, points

_NO_DEFENSE = (
    "The audit has no configuration with a defense. Add one with --defense (in a document, the key defenses); "
    "seepage defenses lists them."
)


def leakage_section(result: AuditResult) -> Section:
    """Return what every attack and baseline reads, by batch size where those differ, else by defense."""
    title = f"Leakage by {result.audit.about.size}" if result.sized else "Leakage by attack and defense"
    records = frames.scores(result.rows, result.all_findings)
    if not any(record["is_attack"] for record in records):
        return empty("leakage", title, "No attack has a result.")
    message = clean(result.audit.about.message, 200)
    words = [
        f"What an attack reads above the best baseline was given away by {message}; what a baseline reads, anybody "
        "can guess without it. Both are scored on the same cells."
    ]
    trials = result.audit.about.trials
    read = f"Read of {clean(result.audit.about.secret, 200)}"
    if trials is not None:
        read = f"Trials in which the attacker {clean(trials.does, 120)}"
    caption = f"{read}, beside baselines, with 95% intervals"
    drawn = _by_size(result, records, caption) if result.sized else [_by_defense(result, "defenses", records, caption)]
    if result.sized:
        words.insert(0, "The more records stand behind one message, the harder they are to tell apart.")
    words += _matching_alone(result, records)
    return Section("leakage", title, [*words, *drawn])


def _matching_alone(result: AuditResult, records: Sequence[Record]) -> list[str]:
    """Return what drawn rows gain by being matched, for each number of records; nothing where records are not matched.

    Where they are, the typical rows stand among the baselines.
    """
    data = result.audit.dataset
    if data is None or not any(record["attack"] == "stereotypes" for record in records):
        return []
    drawn = [
        record
        for record in records
        if record["attack"] == "random" and record["mean"] is not None and (record["batch_size"] or 0) > 1
    ]
    expected = data.statistics.agreement(data.schema)
    gains = {record["batch_size"]: points(record["mean"] - expected) for record in reversed(drawn)}
    several = [f"{gains[size]} points at {size:,} records" for size in sorted(gains)]
    return [f"Guesses are matched to records. That alone is worth {listed(several)} to random rows."] if several else []


def labels_section(result: AuditResult) -> Section | None:
    """Return what every attack and baseline reads of the label; None where it is no secret of the audit."""
    about = result.audit.about
    if about.label is None:
        return None
    title = "Labels"
    records = frames.scores(result.rows, result.all_findings, about.label)
    if not any(record["is_attack"] for record in records):
        return empty("labels", title, f"No attack guesses the label {clean(about.label)}.")
    words = [
        f"{about.label_attacker or about.attacker} guesses the label {clean(about.label)}. Its verdict "
        + ("stands apart, since another party attacks it." if about.label_attacker else "counts as that on the cells.")
    ]
    caption = f"Read of the label {clean(about.label)}, beside baselines, with 95% intervals"
    return Section("labels", title, [*words, _by_defense(result, "labels", records, caption)])


def _scores_grid(result: AuditResult, caption: str, records: Sequence[Record]) -> Grid:
    columns = [*setting_columns(result), attack_column(result), *score_columns(result, baseline=False)]
    return grids.filled(caption, columns, records)


def _by_defense(result: AuditResult, name: str, records: Sequence[Record], caption: str) -> Plot:
    # A measurement of the deployment itself is neither attack nor baseline.
    drawn = [record for record in records if record["kind"] != "about"]
    return Plot(figures.by_defense(name, drawn, caption), _scores_grid(result, caption, records))


def _by_size(result: AuditResult, records: Sequence[Record], caption: str) -> list[Plot]:
    drawn = []
    for i, defense in enumerate(dict.fromkeys(record["defense"] for record in records if record["is_attack"]), start=1):
        attacked = [record for record in records if record["defense"] == defense and record["is_attack"]]
        sizes = {record["batch_size"] for record in attacked}
        # A baseline is the same under every defense, so that it may have been measured under another one.
        baselines: dict[tuple[int, str], Record] = {}
        for record in sorted(records, key=lambda record: record["defense"] != defense):
            if record["kind"] == "baseline" and record["batch_size"] in sizes:
                baselines.setdefault((record["batch_size"], record["attack"]), record)
        both = [*attacked, *({**record, "defense": defense} for record in baselines.values())]
        title = caption
        if result.defended:
            title += f"; {'no defense' if defense == UNDEFENDED else clean(defense, 40)}"
        figure = figures.by_batch_size(
            "batch-size" if i == 1 else f"batch-size-{i}", both, title, result.audit.about.size
        )
        ordered = sorted(both, key=lambda record: (record["batch_size"], not record["is_attack"]))
        drawn.append(Plot(figure, _scores_grid(result, title, ordered)))
    return drawn


def columns_section(result: AuditResult) -> Section | None:
    """Return what the strongest attack reads of each column; None where columns have no figures of their own."""
    title = "Columns"
    if not result.audit.about.columns and not any(result.by_column.values()):
        return None
    worst = result.worst
    if worst is None or not (records := result.by_column[setting_of(worst)]):
        return empty("columns", title, "No attack has a result by column.")
    head = f"Columns, read by {where(result, worst)}"
    column = grids.text("Column", "column", mark="sensitive")
    numbers = any(record["kind"] == "continuous" for record in records)
    within = [spare(grids.text("Read if within", "tolerance"))] if numbers else []
    closed = spare(grids.share("Read of what guessing misses", "closed"))
    columns = [
        *(column, spare(grids.text("Kind", "kind")), *within, *score_columns(result), closed),
        spare(grids.count("Place", "position")),
    ]
    shown = records[:MOST_COLUMNS]
    table = grids.filled(head, columns, shown, cut_columns(len(records)))
    drawn = [Plot(figures.by_column("columns", shown, head), table)]
    lifts = {key: {record["column"]: record for record in group} for key, group in result.by_column.items()}
    if len(lifts) > 1:
        lines = [[lifts[key].get(record["column"]) for key in lifts] for record in shown]
        names = [figures.label(result.label(key)) for key in lifts]
        caption = "Lift over the best baseline, in points, by the strongest attack of each configuration"
        each = [record for group in result.by_column.values() for record in group[:MOST_COLUMNS]]
        attack = grids.text("Attack", "attack", marks=result.audit.about.marks)
        everywhere = [column, *within, *setting_columns(result), attack, *score_columns(result), closed]
        table = replace(grids.filled(caption, everywhere, each, cut_columns(len(records))), most=100)
        drawn.append(Plot(figures.heat("columns-everywhere", names, lines, caption), table))
    marked = [record for record in records if record["sensitive"]]
    words = []
    if marked:
        parts = [f"{clean(record['column'])} {points(record['lift'])} ({record['tier']})" for record in marked[:8]]
        words.append(f"Lift of the sensitive columns (★), in points: {listed(parts)}.")
    if len(records) > MOST_COLUMNS:
        words.append(
            f"Figures and tables show {MOST_COLUMNS} of {len(records)} columns, sensitive ones and those of the "
            "largest lift; results.csv has all."
        )
    if result.audit.schema is not None and numbers:
        words.append(frames.tolerances(result.audit.schema, attacked=result.audit.about.columns))
    ways = frames.choices(result.runs)
    return Section("columns", title, [*words, *([Points(ways)] if ways else []), *drawn])


def pictures_section(result: AuditResult) -> Section | None:
    """Return original and reconstructed pictures; None where the table has no pictures."""
    measured = {
        (row.batch_size, row.defense, row.attack, row.metric): row.mean for row in result.rows if row.column is None
    }
    shown, captions = [], result.audit.about.captions
    for run in result.runs:
        if run.picture is None:
            continue
        key = (run.configuration.batch_size, run.configuration.defense)
        means = {metric: measured.get((*key, run.label, metric)) for metric in captions}
        figures = [captions[metric].format(mean) for metric, mean in means.items() if mean is not None]
        name = clean(run.label, 60) if figures else "the originals"
        figure = f": {', '.join(figures)}" if figures else ""
        kinds = {"baseline": " (baseline)", "about": " (no attack)" if figures else ""}
        kind = kinds.get(run.part.kind, "")
        shown.append(Image(run.picture, f"{name}{kind}, {result.label(key)}{figure}"))
    if not shown:
        return None
    unit = result.audit.spec.unit
    words = f"The first attacked images of the first {unit}, and below them what was made of each."
    return Section("pictures", "Images and what is read of them", [words, *shown])


def frontier_section(result: AuditResult) -> Section | None:
    """Return remaining leakage and cost of each defense; None without defenses and task."""
    title = "Defenses: what they leave and what they cost"
    records = result.frontier
    if not result.defended:
        return empty("frontier", title, _NO_DEFENSE)
    columns = [
        grids.text("Defense", "defense", marks=result.audit.about.marks),
        *([grids.count(result.audit.about.size.capitalize(), "batch_size")] if result.sized else []),
        grids.tier("Verdict"),
        grids.text("Strongest attack", "attack"),
        spare(grids.share("Read", "mean")),
        grids.interval("95% interval"),
        *closed_columns(),
    ]
    if not records:
        words = ["What each defense costs the task was not measured; this is what it leaves to the attacker."]
        table = grids.filled("Leakage under each defense", columns, result.overviews)
        return Section("frontier", title, [*words, table])
    error = is_error(records[0]["task_metric"])
    task = frames.task_name(records[0]["task_metric"])
    caption = f"Share read of what guessing misses against {lowered(task)}"
    table = grids.filled(
        caption,
        [
            *columns,
            *task_columns(task, error),
            (grids.number if error else grids.share)("Constant answer", "task_baseline"),
            spare(grids.count("Trainings", "task_n")),
            grids.number("Epsilon of a record", "epsilon"),
            grids.number("Epsilon of a label", "label_epsilon"),
            joining(grids.number("at delta", "delta", 2), "at delta {}"),
            joining(grids.count("after steps", "steps"), "after {} steps"),
            joining(grids.text("by", "accountant"), "by {}"),
            *canary_columns(),
        ],
        records,
    )
    words = [f"Down and to the {'left' if error else 'right'} is better: less leaks, and the task is learnt as well."]
    if any(record["epsilon"] is not None for record in records):
        words.append(
            "Epsilon bounds what one record more or less can change in all messages of one training, except with "
            "probability delta."
        )
        if result.audit.about.unaccounted is not None:
            words.append(result.audit.about.unaccounted)
    if any(record["accountant"] is not None for record in records):
        words.append(
            "It is computed as if batches were drawn by Poisson sampling. Trainings that chose a learning rate, and "
            "what else is sent, are not counted."
        )
    words += canary_words(records)
    if min(record["task_n"] for record in records) < LEAST_TRAININGS:
        words.append(f"Differences of the task over fewer than {LEAST_TRAININGS} trainings are not judged.")
    if all(record["closed"] is None for record in records):
        return Section("frontier", title, [*words, table])
    size = result.audit.about.size if result.sized else None
    marks = f"Marks are numbered by {size}; dotted" if size is not None else "Dotted"
    words.insert(1, f"{marks} lines are the bounds of the verdicts.")
    figure = figures.frontier("frontier", records, caption, f"{task} of the trained model", size, error)
    return Section("frontier", title, [*words, Plot(figure, table)])


def canary_words(records: Sequence[Record]) -> list[str]:
    """Return what canaries show of epsilons that are accounted for, in sentences; none where there are no canaries."""
    bounded = [record for record in records if record["message_epsilon"] is not None]
    if not bounded:
        return []
    broken = [record for record in bounded if record["measured_low"] > record["message_epsilon"]]
    words = [
        "Canaries bound the epsilon of one message from below, by what the defense's own code sends. They are read as "
        "those of normal noise, as is the closed form. Where the bound is above it, noise or clipping is not what it "
        "is said to be."
    ]
    if broken:
        names = listed([clean(record["defense"], 60) for record in broken])
        words.append(f"That is so under {names}: the accounted epsilon does not hold there.")
    return words


def advice_section(result: AuditResult) -> Section:
    """Return the smallest change that keeps leakage below each bound."""
    title = "What to change"
    attacked = result.attacked
    if not attacked:
        return empty("advice", title, "Without a result there is nothing to advise.")
    marked = any(record["sensitive"] for group in result.by_column.values() for record in group)
    sensitive = {key: _worst_sensitive(group) for key, group in result.by_column.items()} if marked else {}
    learnt = [record for record in result.frontier if record["attack"] is not None]
    error = any(is_error(record["task_metric"]) for record in learnt)
    metric = learnt[0]["task_metric"] if learnt else ""
    task = {setting_of(record): record["task"] for record in learnt}
    advised = advice(attacked, sensitive, task, not error)
    sizes = [record["batch_size"] for record in attacked] if result.sized else []
    defenses = list(dict.fromkeys(record["defense"] for record in attacked))
    secret = clean(result.audit.about.secret, 200)
    words = [
        "Among the configurations of this audit only, by the upper ends of the 95% intervals, and against the attacks "
        "that were run."
    ]
    about = result.audit.about
    lines = sentences(advised, sizes, defenses, secret, marked, metric, about.size, about.size_option)
    return Section("advice", title, [*words, Points(lines)])


def _worst_sensitive(columns: Sequence[Record]) -> float | None:
    uppers = [record["upper"] for record in columns if record["sensitive"] and (record["baseline"] or 0) < 1]
    return max(uppers, default=0.0) if all(upper is not None for upper in uppers) else None
