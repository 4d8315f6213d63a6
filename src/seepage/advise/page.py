"""A recommendation as one page, as JSON and on the terminal."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.padding import Padding
from rich.table import Column
from rich.text import Text

from seepage.advise.recommendation import Recommendation, in_words
from seepage.assessment.task import is_error
from seepage.files import write_whole
from seepage.report import figures, grids
from seepage.report.frames import Record, assumptions, task_name
from seepage.report.grids import Grid, canary_columns, task_columns
from seepage.report.html import page
from seepage.report.terminal import figures as figure_heads
from seepage.report.terminal import make_table
from seepage.settings.catalogue import setting
from seepage.settings.command import given_options, table_option
from seepage.text import capitalised, clean, lowered, percent, points, printable_json, span

PAGE, FIGURES = "recommendation.html", "recommendation.json"
_TIERS = {"found": "little", "none": "mostly", "undecided": "open"}
_OUTCOMES = {"found": "Found", "none": "None meets it", "undecided": "Undecided"}


def write_recommendation(folder: Path, advice: Recommendation) -> None:
    """Write the page and its figures into a run folder."""
    own = _own(advice)
    write_whole(folder / PAGE, render_recommendation(advice), own)
    write_whole(folder / FIGURES, as_json(advice) + "\n", own)


def as_json(advice: Recommendation) -> str:
    """Return outcome, recommended options and the figures of each configuration as JSON."""
    content = {
        "outcome": advice.outcome,
        "below": advice.wish.below,
        "line": advice.line,
        "options": advice.options,
        "alpha": advice.alpha,
        "configurations": advice.records(),
    }
    return printable_json(content, allow_nan=False)


def render_recommendation(advice: Recommendation) -> str:
    """Return the recommendation as one self-contained page in the look of reports."""
    records = advice.records()
    drawn = [record for record in records if record["task"] is not None and record["lift"] is not None]
    table = _grid(advice, records)
    chosen, report = advice.chosen, advice.given.report
    dataset = "" if report is None else report.audit.about.dataset
    drawings = [(_frontier(advice, drawn), table)] if len(drawn) > 1 else []
    return page(
        "recommend.html",
        f"What to change: {clean(dataset)}",
        dataset=clean(dataset, 80),
        lead=f"The cheapest change that keeps the lift on {advice.figure} below {100 * advice.wish.below:g} points.",
        own=_own(advice),
        line=capitalised(advice.line),
        tier=_TIERS[advice.outcome],
        command=command(advice) if chosen is not None else "",
        words=_words(advice),
        drawings_of=drawings,
        grid=table,
        rejected=in_words(advice),
        facts=[] if report is None else assumptions(report.audit),
    )


def show_recommendation(console: Console, advice: Recommendation) -> None:
    """Print the configurations that were looked at, and the recommendation."""
    records = advice.records()
    lines = [_cells(record) for record in records]
    shown = [head for head in lines[0] if any(line[head] for line in lines)]
    rows = [
        [Text(clean(record["change"], 60)), Text(record["status"]), *(Text(line[head]) for head in shown)]
        for record, line in zip(records, lines, strict=True)
    ]
    heads = [*(Column(name, overflow="fold") for name in ("change", "verdict")), *figure_heads(*shown)]
    console.print(make_table(f"Configurations, limit {100 * advice.wish.below:g} points", heads, rows))
    # A record that is proved is leakage, whatever the lift beside it.
    for sentence in [*in_words(advice, "leaks"), *_words(advice)]:
        console.print(Padding(Text(sentence), (0, 0, 0, 2)))


def command(advice: Recommendation) -> str:
    """Return the command that audits the recommended configuration again."""
    name = advice.spec.setting
    plugin = setting(name)
    limit = f"--fail-above {advice.wish.below:g}"
    pieces = (
        "seepage",
        plugin.command or name,
        table_option(advice.spec),
        given_options(advice.spec),
        advice.options,
        limit,
    )
    return " ".join(piece for piece in pieces if piece)


def _words(advice: Recommendation) -> list[str]:
    words = [
        f"{_OUTCOMES[advice.outcome]}. Attacks know the defense that they face, and every change met the same "
        "repetitions in the search.",
        f"A change is recommended only after a confirmation on fresh repetitions, at level {advice.alpha:.2g} each. Of "
        "several that are not shown to differ in cost, one that a further audit passes with 90% comes first.",
    ]
    chosen = advice.chosen
    privacy = {} if chosen is None else {row.metric: row for row in chosen.privacy}
    if (accounted := privacy.get("epsilon")) is not None and accounted.mean is not None:
        steps, delta = accounted.settings.get("steps"), accounted.settings.get("delta")
        over = "" if steps is None else f" over {steps:,} rounds"
        at = "" if delta is None else f" at delta {delta:.2g}"
        words.append(f"Its accounted epsilon for a single record is {accounted.mean:.3g}{over}{at}.")
    return words


def _own(advice: Recommendation) -> bool:
    return advice.given.report is not None and advice.given.report.audit.own


def _error(advice: Recommendation) -> bool:
    return advice.given.task is not None and is_error(advice.given.task.metric)


def _grid(advice: Recommendation, records: list[Record]) -> Grid:
    task = "Task" if advice.given.task is None else task_name(advice.given.task.metric)
    columns = [
        grids.text("Change", "change"),
        grids.text("Verdict", "status"),
        grids.text("Strongest attack", "attack"),
        grids.text("on", "figure"),
        grids.gain("Lift (points)", "lift"),
        grids.interval("Interval of lift", "lift_low", "lift_high"),
        grids.gain("At most", "upper"),
        grids.count("n", "n"),
        grids.text("Confirmed", "confirmed"),
        grids.share("A further audit passes with", "chance", 0),
        grids.count("of n", "audited"),
        grids.text("Not limited: column", "beside"),
        grids.gain("its lift", "beside_lift"),
        *task_columns(task, _error(advice)),
        (grids.number if _error(advice) else grids.share)("Constant answer", "task_baseline"),
        grids.count("Trainings", "task_n"),
        grids.number("Cost", "cost"),
        grids.interval("Interval of the cost", "cost_low", "cost_high", 1.0),
        grids.number("Epsilon of a record", "epsilon"),
        grids.number("at delta", "delta", 2),
        grids.count("after rounds", "rounds"),
        *canary_columns(),
        grids.number("Seconds of a repetition", "seconds"),
    ]
    return grids.filled("Configurations, the one as given first", columns, records)


def _frontier(advice: Recommendation, records: list[Record]) -> figures.Figure:
    """Return leakage against how well the task is learnt, with the limit as a line."""
    error = _error(advice)
    assert advice.given.task is not None
    task = task_name(advice.given.task.metric)
    # The figure's names of a change, of its lift and of the lift's interval.
    names = {"defense": "change", "closed": "lift", "closed_low": "lift_low", "upper": "lift_high"}
    drawn = [record | {name: record[of] for name, of in names.items()} for record in records]
    title = f"Lift against {lowered(task)}"
    figure = figures.frontier("frontier-figure", drawn, title, f"{task} of the trained model", None, error)
    limit = 100 * advice.wish.below
    described = "; ".join(f"{record['change']}: lift {points(record['lift'])} points" for record in records[:8])
    seen = (
        f"Lift over the best baseline beside how well the task is learnt, the limit at {limit:g} points: {described}."
    )
    y = replace(figure.y, title="Lift over the best baseline (points)")
    return replace(figure, description=seen, y=y, limits=[(limit, "--muted")])


def _cells(record: Record) -> dict[str, str]:
    """Return the figures of a configuration by the heads of their columns; empty where there is none."""
    cells = {"lift (points)": "", "strongest attack": "", "a further audit passes": "", "task": ""}
    if record["chance"] is not None:
        cells["a further audit passes"] = f"{percent(record['chance'], 0)} of n={record['audited']}"
    if record["lift"] is not None:
        most = "" if record["upper"] is None else f", at most {points(record['upper'])}"
        cells["lift (points)"] = f"{points(record['lift'])}{most} n={record['n']}"
    if record["attack"] is not None:
        cells["strongest attack"] = f"{clean(record['attack'], 24)} on {clean(record['figure'], 24)}"
    if record["task"] is not None and is_error(record["task_metric"]):
        cells["task"] = f"{record['task']:.4g}"
    elif record["task"] is not None:
        cells["task"] = f"{percent(record['task'])} {span(record['task_low'], record['task_high'])}".strip()
    rounds = "" if record["rounds"] is None else f", {record['rounds']:,} rounds"
    cells["cost"] = _cost_cell(record)
    numbers = {
        "epsilon": ("epsilon", f"{{:.3g}}{rounds}"),
        "one message: closed form": ("message_epsilon", "{:.3g}"),
        "measured": ("measured_low", "at least {:.3g}"),
    }
    if record["task"] is not None and record["task_baseline"] is not None:
        same = record["task_baseline"]
        cells["task"] += f", constant {f'{same:.4g}' if is_error(record['task_metric']) else percent(same)}"
    for head, (name, form) in numbers.items():
        cells[head] = "" if record[name] is None else form.format(record[name])
    return cells


def _cost_cell(record: Record) -> str:
    """Return the cost with the interval of the difference."""
    if record["cost"] is None or record["change"] == "no change":
        return ""
    if record["cost_low"] is None:
        return f"{record['cost']:.2g}"
    shown = "" if record["cost_low"] > 0 else ", no difference shown"
    return f"{record['cost']:.2g} [{record['cost_low']:.2g}, {record['cost_high']:.2g}]{shown}"
