"""A recommendation as a document and as JSON."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from seepage.advise.recommendation import Recommendation, in_words
from seepage.assessment.task import is_error
from seepage.files import write_whole
from seepage.report import figures, grids
from seepage.report.document import Block, Column, Command, Conclusion, Document, Grid, GridCell, Plot, Points, Section
from seepage.report.frames import Record, assumptions, task_name
from seepage.report.grids import canary_columns, joining, spare, task_columns
from seepage.report.page import page
from seepage.settings.catalogue import setting
from seepage.settings.command import given_options, table_option
from seepage.text import capitalised, clean, lowered, points, printable_json

PAGE, FIGURES = "recommendation.html", "recommendation.json"
_TIERS = {"found": "little", "none": "mostly", "undecided": "open"}
_OUTCOMES = {"found": "Found", "none": "None meets it", "undecided": "Undecided"}


def write_recommendation(folder: Path, advice: Recommendation) -> None:
    """Write the page and its figures into a run folder."""
    private = _private(advice)
    write_whole(folder / PAGE, page(recommendation_document(advice)), private)
    write_whole(folder / FIGURES, as_json(advice) + "\n", private)


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


def recommendation_document(advice: Recommendation) -> Document:
    """Return the recommendation, and the configurations that were looked at."""
    records = advice.records()
    drawn = [record for record in records if record["task"] is not None and record["lift"] is not None]
    table, report = _grid(advice, records), advice.given.report
    recommended: list[Block] = [Conclusion(None, _TIERS[advice.outcome], [capitalised(advice.line)])]
    if advice.chosen is not None:
        recommended.append(Command("Put this into your deployment, or audit it again with", command(advice)))
    words = [
        f"{_OUTCOMES[advice.outcome]}. Attacks know the defense that they face, and every change met the same "
        "repetitions in the search.",
        f"A change is recommended only after a confirmation on fresh repetitions, at level {advice.alpha:.2g} each. Of "
        "several that are not shown to differ in cost, one that a further audit passes with 90% comes first.",
    ]
    privacy = {} if advice.chosen is None else {row.metric: row for row in advice.chosen.privacy}
    if (accounted := privacy.get("epsilon")) is not None and accounted.mean is not None:
        steps, delta = accounted.settings.get("steps"), accounted.settings.get("delta")
        over = "" if steps is None else f" over {steps:,} rounds"
        with_delta = "" if delta is None else f" at delta {delta:.2g}"
        words.append(f"Its accounted epsilon for a single record is {accounted.mean:.3g}{over}{with_delta}.")
    rejected = in_words(advice)
    unmeasured = "What changes cost the task was not measured, so there is nothing to draw."
    drawing = Plot(_frontier(advice, drawn), table) if len(drawn) > 1 else unmeasured
    facts = [] if report is None else assumptions(report.audit)
    dataset = "" if report is None else clean(report.audit.about.dataset, 80)
    # A record that is proved is leakage, whatever the lift beside it.
    proved = in_words(advice, "leaks")
    return Document(
        f"What to change: {dataset}",
        [
            Section("recommended", "Recommended", [*recommended, *words]),
            Section("frontier", "Leakage against cost", [drawing]),
            Section("candidates", "Configurations that were looked at", [table]),
            Section(
                "rejected", "What was rejected, and why", [Points(rejected) if rejected else "Nothing was rejected."]
            ),
            Section("assumptions", "Assumptions", [Points(facts)]),
        ],
        [Section("candidates", "", [table, *proved, *words])],
        lead=f"The cheapest change that keeps the lift on {advice.figure} below {100 * advice.wish.below:g} points.",
        notice="This report is about a table of your own. It holds rates; treat it as confidential."
        if _private(advice)
        else "",
    )


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


def _private(advice: Recommendation) -> bool:
    return advice.given.report is not None and advice.given.report.audit.own


def _error(advice: Recommendation) -> bool:
    return advice.given.task is not None and is_error(advice.given.task.metric)


def _grid(advice: Recommendation, records: list[Record]) -> Grid:
    task = "Task" if advice.given.task is None else task_name(advice.given.task.metric)
    error = _error(advice)
    columns = [
        grids.text("Change", "change"),
        grids.text("Verdict", "status"),
        grids.text("Strongest attack", "attack"),
        joining(grids.text("on", "figure"), "on {}"),
        grids.gain("Lift (points)", "lift"),
        spare(grids.interval("Interval of lift", "lift_low", "lift_high")),
        joining(grids.gain("At most", "upper"), "at most {}"),
        joining(grids.count("n", "n"), "n={}"),
        spare(grids.text("Confirmed", "confirmed")),
        grids.share("A further audit passes with", "chance", 0),
        joining(grids.count("of n", "audited"), "of n={}"),
        spare(grids.text("Not limited: column", "beside")),
        joining(grids.gain("its lift", "beside_lift")),
        *task_columns(task, error),
        joining((grids.number if error else grids.share)("Constant answer", "task_baseline"), "constant {}"),
        spare(grids.count("Trainings", "task_n")),
        grids.number("Cost", "cost"),
        _cost_interval(),
        grids.number("Epsilon of a record", "epsilon"),
        joining(grids.number("at delta", "delta", 2), "at delta {}"),
        joining(grids.count("after rounds", "rounds"), "after {} rounds"),
        *map(spare, canary_columns()),
        spare(grids.number("Seconds of a repetition", "seconds")),
    ]
    caption = f"Configurations, the one as given first, limit {100 * advice.wish.below:g} points"
    return replace(grids.filled(caption, columns, records), most=None)


def _cost_interval() -> Column:
    """Return the column of the cost's interval, which says where no difference is shown."""
    plain = grids.interval("Interval of the cost", "cost_low", "cost_high", 1.0)

    def cell(record: Record) -> GridCell:
        shown = record["cost_low"] is None or record["cost_low"] > 0 or record["change"] == "no change"
        return plain.cell(record) if shown else replace(plain.cell(record), behind="(no difference shown)")

    return replace(plain, cell=cell)


def _frontier(advice: Recommendation, records: list[Record]) -> figures.Figure:
    """Return leakage against how well the task is learnt, with the limit as a line."""
    error = _error(advice)
    assert advice.given.task is not None
    task = task_name(advice.given.task.metric)
    # The figure's names of a change, of its lift and of the lift's interval.
    names = {"defense": "change", "closed": "lift", "closed_low": "lift_low", "upper": "lift_high"}
    drawn = [record | {name: record[of] for name, of in names.items()} for record in records]
    title = f"Lift against {lowered(task)}"
    figure = figures.frontier("frontier", drawn, title, f"{task} of the trained model", None, error)
    limit = 100 * advice.wish.below
    described = "; ".join(f"{record['change']}: lift {points(record['lift'])} points" for record in records[:8])
    description = (
        f"Lift over the best baseline beside how well the task is learnt, the limit at {limit:g} points: {described}."
    )
    y = replace(figure.y, title="Lift over the best baseline (points)")
    return replace(figure, description=description, y=y, limits=[(limit, "--muted")])
