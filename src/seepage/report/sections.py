"""The parts of a report in the order in which they are read: words, figures and tables, each only where its data exist.

A part whose data do not exist says why in one sentence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from seepage.assessment.row import ResultRow
from seepage.report import figures, frames, grids
from seepage.report.advice import advice, sentences
from seepage.report.figures import Figure
from seepage.report.frames import Evidence, Record, Setting
from seepage.report.grids import Grid, GridCell
from seepage.report.summary import summary
from seepage.results.checks import LEAKED, SEVERITIES, Alarm, explanation
from seepage.results.examples import Example
from seepage.results.tiers import BOUNDS
from seepage.results.verdict import UNDEFENDED, pick, strongest
from seepage.settings.setting import Audit
from seepage.text import clean, listed, percent, points

MOST_ROWS = 2000
# On a table of one's own, a rate never speaks of fewer records than this.
LEAST_RECORDS = 5
_NEARLY_ALL = 0.98
_OF_A_RECORD = 60
_NO_DEFENSE = (
    "The audit has no setting with a defense. Add some with --defense, such as --defense "
    "'gaussian_noise:{scale: 0.01}' (in a document, the key defenses); seepage defenses lists them."
)


@runtime_checkable
class Audited(Protocol):
    """What a page needs of an audit, see ``seepage.report.report.Report``."""

    @property
    def audit(self) -> Audit:
        """The audit."""
        ...

    @property
    def rows(self) -> Sequence[ResultRow]:
        """Its figures."""
        ...

    @property
    def asked(self) -> int:
        """Number of units that figures may rest on."""
        ...

    @property
    def examples(self) -> Sequence[Example]:
        """Reconstructed records beside the truth."""
        ...

    @property
    def evidence(self) -> Mapping[tuple[int | None, str, str], Evidence]:
        """What was right, by batch size, defense and attack."""
        ...

    @property
    def findings(self) -> Sequence[Alarm]:
        """What the audit's own checks found."""
        ...

    @property
    def control(self) -> Sequence[ResultRow] | None:
        """Figures of the positive control; None where none was run."""
        ...

    @property
    def negative(self) -> Sequence[ResultRow] | None:
        """Figures of the negative control; None where none was run."""
        ...

    @property
    def not_applicable(self) -> Mapping[str, str]:
        """Codes of the checks that do not apply, with the reason."""
        ...


@dataclass(frozen=True)
class Ruler:
    """One line of the scale of verdicts: a setting's closed gap and the upper end of its interval."""

    called: str
    closed: float | None
    upper: float | None
    tier: str


@dataclass(frozen=True)
class Section:
    """One part of a page.

    Attributes:
        name: its anchor.
        title: its heading.
        words: paragraphs.
        points: a list of facts.
        figures: each with the table of its data.
        grids: tables of their own.
        kind: a word for parts with a layout of their own.
        extra: what that layout needs.
    """

    name: str
    title: str
    words: Sequence[str] = ()
    points: Sequence[str] = ()
    figures: Sequence[tuple[Figure, Grid]] = ()
    grids: Sequence[Grid] = ()
    kind: str = "plain"
    extra: Mapping[str, Any] = field(default_factory=dict)


def sections(report: Audited, prefix: str) -> list[Section]:
    """Return all parts of one audit.

    Args:
        report: the audit.
        prefix: of anchors, unique on the page.
    """
    found = _Found(report, prefix)
    return [
        _verdict(found),
        _threat_model(found),
        _doubts(found),
        _batch_sizes(found),
        _columns(found),
        _reliability(found),
        _exposed(found),
        _examples(found),
        _groups(found),
        _frontier(found),
        _advice(found),
        _all(found),
    ]


def headline(report: Audited) -> dict[str, Any]:
    """Return the verdict on the setting in which most leaks, in words and as a record (None without attacks)."""
    one = frames.worst(frames.overview(report.rows, report.findings))
    if one is None or one["mean"] is None:
        return {"record": None, "tier": "inconclusive", "words": "No attack has a result, so nothing can be concluded."}
    rounds = report.audit.spec.attacked_rounds
    messages = "one gradient" if rounds == 1 else f"{rounds} rounds of the same clients, each with a gradient"
    behind = f"{messages} of {one['batch_size']} record{'s' if one['batch_size'] != 1 else ''}"
    defended = "" if one["defense"] == UNDEFENDED else f" under {clean(one['defense'], 60)}"
    words = f"From {behind}{defended}, the server reads {percent(one['mean'], 0)} of all cells"
    if one["baseline"] is not None:
        words += f"; without the gradient it would have guessed {percent(one['baseline'], 0)}"
    return {"record": one, "tier": one["tier"], "words": words + "."}


class _Found:
    """An audit and what several parts need of it."""

    def __init__(self, report: Audited, prefix: str) -> None:
        self.report = report
        self.rows = report.rows
        self.schema = report.audit.dataset.schema
        self.prefix = prefix
        self.alarms = report.findings
        self.overviews = frames.overview(report.rows, self.alarms)
        self.worst = frames.worst(self.overviews)
        self.by_column = {
            (one["batch_size"], one["defense"]): frames.columns(
                report.rows, self.schema, (one["batch_size"], one["defense"]), self.alarms
            )
            for one in self.overviews
            if one["attack"] is not None
        }
        # A table of one's own is the secret: of its records only positions are shown unless they are kept anyway.
        self.open = not report.audit.own or report.audit.spec.keep_records
        self.defended = any(one["defense"] != UNDEFENDED for one in self.overviews)

    def name(self, part: str) -> str:
        return f"{self.prefix}{part}"

    def called(self, setting: Setting) -> str:
        size, defense = setting
        return f"batch size {size}" + (f", {_defense(defense)}" if self.defended else "")

    def evidence(self, wanted: str, mixed: bool = False) -> tuple[Record, Evidence] | None:
        """Return the setting in which most leaks among those with evidence that has ``wanted``.

        Args:
            wanted: the field.
            mixed: whether a setting in which nearly every cell is right is passed over for another, since all that is
                to be compared is alike there.
        """
        having = []
        for one in self.overviews:
            held = self.report.evidence.get((one["batch_size"], one["defense"], one["attack"]))
            if held is not None and getattr(held, wanted) is not None:
                having.append((one, held))
        telling = [one for one, held in having if not mixed or held.right.mean() < _NEARLY_ALL]
        best = frames.worst(telling or [one for one, _ in having])
        return next(((one, held) for one, held in having if one is best), None)


def _defense(name: str) -> str:
    return "no defense" if name == UNDEFENDED else clean(name, 40)


def _where(found: _Found, one: Record) -> str:
    return f"{clean(one['attack'])}, {found.called((one['batch_size'], one['defense']))}"


def _setting_columns(found: _Found) -> list[grids.Column]:
    made = [grids.count("Batch size", "batch_size")]
    return [*made, grids.text("Defense", "defense")] if found.defended else made


def _verdict(found: _Found) -> Section:
    report = found.report
    table = grids.filled(
        "The strongest attack of each setting, beside the best guess on the same cells",
        [
            *_setting_columns(found),
            grids.tier("Leakage"),
            grids.text("Strongest attack", "attack"),
            grids.share("Cells read", "mean"),
            grids.interval("95% interval"),
            grids.share("Best guess", "baseline"),
            grids.gain("Lift (points)", "lift"),
            grids.share("Gap closed", "closed"),
            grids.at_most("at most", "upper"),
            grids.share("Whole records", "exact"),
            grids.count("Victims", "n"),
        ],
        found.overviews,
    )
    ruler = [
        Ruler(found.called((one["batch_size"], one["defense"])), one["closed"], one["upper"], one["tier"])
        for one in found.overviews
        if one["attack"] is not None
    ]
    words = [paragraph for paragraph in summary(report).split("\n\n") if paragraph]
    return Section(
        found.name("verdict"),
        "What the server learns",
        grids=[table],
        kind="verdict",
        extra={"headline": headline(report), "ruler": ruler, "bounds": BOUNDS, "summary": words},
    )


def _threat_model(found: _Found) -> Section:
    about = found.report.audit.about
    marked = [clean(name) for name in about.sensitive]
    facts = [
        *(clean(fact, 600) for fact in found.report.audit.threat_model()),
        *(f"{clean(note, 200)}." for note in about.notes),
        f"Columns marked as sensitive: {listed(marked[:20])}{', ...' if len(marked) > 20 else ''}."
        if marked
        else "No column is marked as sensitive, so none is singled out below.",
    ]
    words = [
        "Every figure below holds under these assumptions. A low figure means that these attacks found little, "
        "not that nothing can be found."
    ]
    return Section(found.name("threat-model"), "Threat model and what the attacker is granted", words, facts)


def _doubts(found: _Found) -> Section:
    alarms = found.report.findings
    shown = sorted(alarms or (), key=lambda alarm: SEVERITIES.index(alarm.severity))
    codes = dict.fromkeys(alarm.code for alarm in shown)
    if alarms is None:
        words = ["The audit's own checks were not run, so nothing is known against its figures or for them."]
    elif not shown:
        words = ["The audit's own checks found nothing to object to."]
    else:
        words = []
    return Section(
        found.name("checks"),
        "Checks of this audit",
        [*words, _control(found.report)],
        kind="alarms",
        extra={"alarms": shown, "explained": {code: words for code in codes if (words := explanation(code))}},
    )


def _control(report: Audited) -> str:
    if report.control is None:
        asked = "It was switched off." if not report.audit.spec.control else "It has no result."
        return f"Positive control: none. {asked} That the attacks work on this table at all is not shown."
    one = frames.worst(frames.overview(report.control))
    if one is None or one["closed"] is None:
        return "Positive control: no result. That the attacks work on this table at all is not shown."
    worked = one["closed"] >= LEAKED
    meaning = (
        "so the attack works here" if worked else "so the attack or the set-up is broken, rather than the data safe"
    )
    return (
        f"Positive control: from a single record behind the gradient of a wide untrained network, "
        f"{clean(one['attack'])} reads {percent(one['mean'])} of the cells and closes {percent(one['closed'])} of the "
        f"gap between guessing and certainty, {meaning}."
    )


def _batch_sizes(found: _Found) -> Section:
    records = frames.scores(found.rows, found.alarms)
    if not any(one["is_attack"] for one in records):
        return _empty(found, "batch-size", "Leakage by batch size", "No attack has a result.")
    guessing: dict[tuple[int, str], Record] = {}
    for one in records:
        if not one["is_attack"]:
            guessing.setdefault((one["batch_size"], one["attack"]), one)
    shown = []
    for i, defense in enumerate(dict.fromkeys(one["defense"] for one in records if one["is_attack"])):
        own = [one for one in records if one["defense"] == defense and one["is_attack"]]
        sizes = {one["batch_size"] for one in own}
        plotted = [*own, *(one for one in guessing.values() if one["batch_size"] in sizes)]
        title = "Cells read and cells guessed, with 95% intervals"
        if found.defended:
            title += f": {_defense(defense)}"
        figure = figures.by_batch_size(found.name(f"sizes-{i}"), plotted, title)
        table = grids.filled(
            title,
            [
                grids.count("Batch size", "batch_size"),
                grids.text("Attack or guess", "attack"),
                grids.share("Cells read", "mean"),
                grids.interval("95% interval"),
                grids.gain("Lift (points)", "lift"),
                grids.interval("Interval of lift", "lift_low", "lift_high"),
                grids.text("over", "baseline_name"),
                grids.tier("Leakage"),
                grids.count("Victims", "n"),
            ],
            sorted(plotted, key=lambda one: (one["batch_size"], not one["is_attack"])),
        )
        shown.append((figure, table))
    words = [
        "The more records stand behind one gradient, the harder they are to tell apart. What lies above the dotted "
        "lines was given away by the gradient; what lies below could be guessed without it."
    ]
    return Section(found.name("batch-size"), "Leakage by batch size", words, figures=shown)


def _columns(found: _Found) -> Section:
    title = "Columns"
    if found.worst is None or not (records := found.by_column[found.worst["batch_size"], found.worst["defense"]]):
        return _empty(found, "columns", title, "No attack has a result by column.")
    head = f"Columns as {_where(found, found.worst)} reads them"
    columns = [
        grids.text("Column", "column", mark="sensitive"),
        grids.text("Kind", "kind"),
        grids.text("Read if within", "tolerance"),
        grids.tier("Leakage"),
        grids.share("Cells read", "mean"),
        grids.interval("95% interval"),
        grids.share("Best guess", "baseline"),
        grids.text("which", "baseline_name"),
        grids.gain("Lift (points)", "lift"),
        grids.interval("Interval of lift", "lift_low", "lift_high"),
        grids.share("Gap closed", "closed"),
        grids.count("Place", "position"),
    ]
    figure = figures.by_column(found.name("columns-worst"), records, head)
    shown = [(figure, grids.filled(head, columns, records))]
    lifts = {key: {one["column"]: one for one in own} for key, own in found.by_column.items()}
    if len(lifts) > 1:
        lines = [[lifts[key].get(one["column"]) for key in lifts] for one in records]
        names = [figures.label(f"{found.called(key)}") for key in lifts]
        caption = "Lift of every column over the best guess, in points, by the strongest attack of each setting"
        each = [one for own in found.by_column.values() for one in own]
        table = grids.filled(
            caption,
            [
                grids.text("Column", "column", mark="sensitive"),
                grids.text("Read if within", "tolerance"),
                *_setting_columns(found),
                grids.text("Attack", "attack"),
                grids.gain("Lift (points)", "lift"),
                grids.interval("Interval of lift", "lift_low", "lift_high"),
                grids.share("Cells read", "mean"),
                grids.share("Best guess", "baseline"),
                grids.tier("Leakage"),
            ],
            each[:MOST_ROWS],
            _left_out(len(each)),
        )
        shown.append((figures.heat(found.name("columns-all"), names, lines, caption), table))
    marked = [one for one in records if one["sensitive"]]
    words = []
    if marked:
        told = [f"{clean(one['column'])} {points(one['lift'])} ({one['tier']})" for one in marked[:8]]
        words.append(f"Lift of the sensitive columns (★), in points: {listed(told)}.")
    if len(records) > figures.MOST_COLUMNS:
        words.append(
            f"The figures show the first {figures.MOST_COLUMNS} of {len(records)} columns, sensitive ones and those "
            "of the largest lift; the tables show all."
        )
    return Section(found.name("columns"), title, words, figures=shown)


def _reliability(found: _Found) -> Section:
    title = "How well the attacker knows which cells it has"
    held = found.evidence("uncertainty", mixed=True)
    if held is None:
        why = "No attack of this audit says how certain it is of a cell, so there is nothing to compare with the truth."
        return _empty(found, "reliability", title, why)
    one, evidence = held
    binned = frames.calibration(evidence, found.schema)
    covered = frames.coverage(evidence, found.schema)
    if not binned:
        return _empty(found, "reliability", title, "The attack gave no certainty for any cell.")
    known = frames.sure(evidence, found.schema)
    told = listed([f"{percent(rate, 0)} of the {kind} cells" for kind, rate in known.items()])
    associated = [
        f"{kind} cells {-row.mean:+.2f}"
        for kind in ("discrete", "continuous")
        for row in pick(frames.at(found.rows, (one["batch_size"], one["defense"])), metric=f"kendall_{kind}")
        if row.attack == one["attack"] and row.mean is not None
    ]
    words = [
        f"An attacker that knows which of its guesses are right can act on them. Taking cells from the most certain "
        f"down, {frames.SURE:.0%} are right up to {told} ({_where(found, one)}).",
    ]
    if associated:
        words.append(
            f"Which victims it reads better than others, its own certainty tells like this: {listed(associated)} "
            "(+1: the more certain, the better, always; 0: certainty tells nothing; -1: the reverse; Kendall's tau)."
        )
    first, second = "Accuracy by the attacker's own certainty", "Accuracy of the cells it is most certain of"
    return Section(
        found.name("reliability"),
        title,
        words,
        figures=[
            (
                figures.reliability(found.name("calibration"), binned, first),
                grids.grid(
                    first,
                    [
                        grids.text("Cells of kind", "kind"),
                        grids.share("Certainty from", "from", 0),
                        grids.share("to", "to", 0),
                        grids.share("Mean certainty", "certainty"),
                        grids.share("Right", "mean"),
                        grids.interval("95% interval"),
                        grids.count("Cells", "cells"),
                        grids.count("Victims", "n"),
                    ],
                    binned,
                    "Certainty of discrete cells is 1 less their normalised entropy; of continuous cells, whose "
                    "entropy has no scale, the rank among all of them.",
                ),
            ),
            (
                figures.covered(found.name("coverage"), covered, second),
                grids.grid(
                    second,
                    [
                        grids.text("Cells of kind", "kind"),
                        grids.share("Most certain share", "share"),
                        grids.share("Right", "mean"),
                        grids.count("Cells", "cells"),
                    ],
                    covered,
                ),
            ),
        ],
    )


def _exposed(found: _Found) -> Section:
    title = "The most exposed cells"
    held = found.evidence("uncertainty")
    if held is None:
        why = "Without the attacker's own certainty no cell can be called more exposed than another it got right."
        return _empty(found, "exposed", title, why)
    one, evidence = held
    rates = {row["column"]: row["baseline"] for row in found.by_column[one["batch_size"], one["defense"]]}
    cells = frames.exposed(evidence, found.schema, rates)
    if not cells:
        why = "No cell is right that the attacker gave a certainty for and that guessing does not always get."
        return _empty(found, "exposed", title, why)
    if not found.open:
        cells = [{**cell, "truth": None, "guess": None} for cell in cells]
    caption = f"Right, and the attacker most certain ({_where(found, one)})"
    table = grids.filled(
        caption,
        [
            grids.text("Column", "column", mark="sensitive"),
            grids.count("Victim", "victim"),
            grids.count("Record", "record"),
            grids.text("Kind", "kind"),
            grids.share("Certainty", "certainty", 0),
            grids.number("Spread (standard deviations of the column)", "spread"),
            grids.share("Best guess right", "guessing"),
            grids.text("Truth", "truth", _OF_A_RECORD),
            grids.text("Read", "guess", _OF_A_RECORD),
        ],
        cells,
    )
    words = [
        "Cells that the attack read correctly and of which it was most certain by its own account; among equally "
        "certain ones, those that guessing gets least often come first."
    ]
    if not found.open:
        words.append("This is a table of your own: positions are shown, records are not.")
    return Section(found.name("exposed"), title, words, grids=[table])


def _examples(found: _Found) -> Section:
    title = "Example records, as they are and as they are read"
    report = found.report
    if not found.open:
        why = (
            "Records of a table of your own are not shown in reports. Audit with --keep-records (in a document "
            "keep_records: true) if whoever reads the report may see them."
        )
        return _empty(found, "examples", title, why)
    strong = {one["batch_size"]: strongest(report.rows, one["batch_size"]) for one in found.overviews}
    wanted = [example for example in report.examples if example.attack == strong.get(example.batch_size)]
    sizes = list(dict.fromkeys(example.batch_size for example in wanted))
    if not sizes:
        return _empty(found, "examples", title, "No reconstructed records were kept with this run.")
    shown = [_example_grid([example for example in wanted if example.batch_size == size]) for size in sizes]
    words = [
        "The first records of the first victims, whether they were read well or badly. Wrong cells carry a ✗. In "
        "brackets, the attacker's own certainty, or the spread of its attempts."
    ]
    return Section(found.name("examples"), title, words, grids=shown)


def _example_grid(shown: Sequence[Example]) -> Grid:
    heads = [grids.Column("Column", lambda _: GridCell("", None), grids.TEXT)]
    for i, _ in enumerate(shown, start=1):
        heads += [
            grids.Column(f"Truth {i}", lambda _: GridCell("", None), grids.TEXT),
            grids.Column(f"Read {i}", lambda _: GridCell("", None), grids.TEXT),
        ]
    lines = []
    for position, cell in enumerate(shown[0].cells):
        name = clean(cell.column, grids.LONGEST)
        line = [GridCell(name, name)]
        for example in shown:
            own = example.cells[position]
            truth, guess = _shown(own.truth), grids.MISSING if own.guess is None else _shown(own.guess)
            behind = ""
            if own.certainty is not None:
                behind = f"({percent(own.certainty, 0)})"
            elif own.spread is not None:
                behind = f"(±{own.spread:.3g})"
            line += [GridCell(truth, truth), GridCell(guess, guess, None if own.right else "wrong", behind)]
        lines.append(line)
    first = shown[0]
    right = sum(cell.right for example in shown for cell in example.cells)
    cells = sum(len(example.cells) for example in shown)
    caption = f"Batch size {first.batch_size}, {clean(first.attack)}: {right} of {cells} cells right"
    return Grid(caption, heads, lines)


def _shown(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else clean(value, _OF_A_RECORD)


def _groups(found: _Found) -> Section:
    title = "Groups and rare records"
    held = found.evidence("right", mixed=True)
    if held is None:
        return _empty(found, "groups", title, "The run kept no record of single cells, so groups cannot be told apart.")
    one, evidence = held
    width = len(found.schema.columns)
    least = 1 if not found.report.audit.own else LEAST_RECORDS
    grouped = frames.subgroups(evidence, least, width)
    rare = frames.rarity(evidence)
    where = _where(found, one)
    shown = []
    words = ["A mean over all records can hide that some of them are read far better than others."]
    if rare:
        caption = f"Cells read by rarity of the record ({where})"
        table = grids.grid(
            caption,
            [
                grids.count("Quarter", "quarter"),
                grids.number("Rarity from (nats a cell)", "from"),
                grids.number("to", "to"),
                grids.share("Cells read", "mean"),
                grids.interval("95% interval"),
                grids.count("Records", "records"),
                grids.count("Victims", "n"),
            ],
            rare,
            "Rarity is the mean self-information of a record's cells under the public marginals.",
        )
        shown.append((figures.quarters(found.name("rarity"), rare, caption), table))
    else:
        words.append("There are too few records, or they are all equally rare, to compare rare with common ones.")
    if grouped:
        caption = f"Cells read by group of records ({where})"
        named = [{**group, "shown": _group_name(group)} for group in grouped]
        table = grids.grid(
            caption,
            [
                grids.text("Column", "column"),
                grids.text("Group", "shown"),
                grids.share("Cells read", "mean"),
                grids.count("Records", "records"),
                grids.count("Cells", "cells"),
            ],
            named,
            None if least == 1 else f"Groups of fewer than {least} records are taken together.",
        )
        shown.append((figures.groups(found.name("groups-figure"), grouped, one["mean"], caption), table))
    else:
        words.append("No discrete column is marked as sensitive, so there are no groups to compare.")
    return Section(found.name("groups"), title, words, figures=shown)


def _group_name(group: Record) -> str:
    return f"{group['pooled']} small categories together" if group["pooled"] else clean(group["category"])


def _frontier(found: _Found) -> Section:
    title = "Defenses: what they leave and what they cost"
    records = frames.frontier(found.rows, found.overviews)
    rate = all(one["task_metric"] == frames.TASK_ACCURACY for one in records)
    if not found.defended:
        return _empty(found, "defenses", title, _NO_DEFENSE)
    columns = [
        grids.text("Defense", "defense"),
        grids.count("Batch size", "batch_size"),
        grids.tier("Leakage"),
        grids.text("Strongest attack", "attack"),
        grids.share("Cells read", "mean"),
        grids.interval("95% interval"),
        grids.share("Gap closed", "closed"),
        grids.at_most("at most", "upper"),
    ]
    if not records:
        words = ["What each defense costs in task accuracy was not measured; this is what it leaves to the attacker."]
        table = grids.filled("Leakage under each defense", columns, found.overviews)
        return Section(found.name("defenses"), title, words, grids=[table])
    caption = "Share of the gap closed against " + ("task accuracy" if rate else "task error (RMSE)")
    learnt = grids.share if rate else grids.number
    table = grids.filled(
        caption,
        [
            *columns,
            learnt("Task accuracy" if rate else "Task error", "task"),
            grids.interval("its interval", "task_low", "task_high", 100.0 if rate else 1.0),
            learnt("Guessing", "task_baseline"),
            grids.count("Trainings", "task_n"),
            grids.number("Epsilon", "epsilon"),
            grids.number("at delta", "delta", 2),
            grids.count("after steps", "steps"),
            grids.text("by", "accountant"),
        ],
        records,
    )
    words = [
        f"Down and to the {'right' if rate else 'left'} is better: less leaks, and the task is learnt as well. Marks "
        "are numbered by batch size; dotted lines are the bounds of the verdict's tiers."
    ]
    if any(one["epsilon"] is not None for one in records):
        words.append(
            "Epsilon bounds what one record more or less can change in all messages of one training, except with "
            "probability delta; it is computed as if batches were drawn by Poisson sampling, and counts neither the "
            "trainings that chose a learning rate nor what else the client sends."
        )
    figure = figures.frontier(found.name("frontier"), records, caption)
    return Section(found.name("defenses"), title, words, figures=[(figure, table)])


def _advice(found: _Found) -> Section:
    title = "What to change"
    attacked = [one for one in found.overviews if one["attack"] is not None and one["mean"] is not None]
    if not attacked:
        return _empty(found, "advice", title, "Without a result there is nothing to advise.")
    marked = any(column.sensitive for column in found.schema.columns)
    sensitive = {key: _worst_sensitive(own) for key, own in found.by_column.items()} if marked else {}
    learnt = frames.frontier(found.rows, attacked)
    rate = all(one["task_metric"] == frames.TASK_ACCURACY for one in learnt)
    task = {(one["batch_size"], one["defense"]): one["task"] for one in learnt}
    advised = advice(attacked, sensitive, task, rate)
    defenses = [one["defense"] for one in attacked]
    told = sentences(advised, [one["batch_size"] for one in attacked], list(dict.fromkeys(defenses)), marked, rate)
    words = [
        "Among the settings of this audit only, by the upper ends of the 95% intervals, and against the attacks that "
        "were run."
    ]
    return Section(found.name("advice"), title, words, told)


def _worst_sensitive(own: Sequence[Record]) -> float | None:
    uppers = [one["upper"] for one in own if one["sensitive"] and (one["baseline"] or 0) < 1]
    return max(uppers, default=0.0) if all(upper is not None for upper in uppers) else None


def _all(found: _Found) -> Section:
    return every_figure(found.rows, _setting_columns(found), "s/victim", found.name("all"))


def every_figure(
    rows: Sequence[ResultRow], settings: Sequence[grids.Column], seconds: str, name: str = "all"
) -> Section:
    """Return all figures as one folded table, those of whole settings before those of columns.

    Args:
        rows: of results.
        settings: columns that say where a figure is from.
        seconds: title of the column with the time that an attack took.
        name: of the section.
    """
    ordered = sorted(rows, key=lambda row: row.column is not None)
    table = grids.filled(
        "Every figure of this audit",
        [
            grids.text("Metric", "metric"),
            grids.text("Column", "column"),
            *settings,
            grids.text("Attack or guess", "attack"),
            grids.number("Mean", "mean"),
            grids.interval("95% interval", scale=1.0),
            grids.number("Std", "std"),
            grids.count("n", "n"),
            grids.number("Best guess", "baseline"),
            grids.text("which", "baseline_name"),
            grids.number("Lift", "lift"),
            grids.interval("Interval of lift", "lift_low", "lift_high", scale=1.0),
            grids.number(seconds, "seconds_per_victim"),
            grids.text("Status", "status"),
        ],
        [row.as_dict() for row in ordered[:MOST_ROWS]],
        _left_out(len(rows)),
    )
    words = ["Rates are shares of 1. results.json and results.csv beside this file hold the same with all settings."]
    return Section(name, "All figures", words, grids=[table], kind="folded")


def _left_out(count: int) -> str | None:
    """Return what to say of a table that does not show all rows, None where it does."""
    if count <= MOST_ROWS:
        return None
    return f"The first {MOST_ROWS:,} of {count:,}; results.csv beside this file has all of them."


def _empty(found: _Found, name: str, title: str, why: str) -> Section:
    return Section(found.name(name), title, [why], kind="empty")
