"""An audit on the terminal, progress and report. Whatever comes from a table is text, never read as markup."""

from __future__ import annotations

import time
from collections.abc import Sequence

from rich.console import Console, RenderableType
from rich.measure import Measurement
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Column, Table
from rich.text import Text

from seepage.assessment.row import ResultRow
from seepage.assessment.task import is_error
from seepage.report.advice import what_to_do
from seepage.report.answer import FEW, done, in_hundred, rounded_up, what_is_missed
from seepage.report.cells import truth_and_guess
from seepage.report.frames import Record, Setting, assumptions, setting_of, task_name, tolerances, worst
from seepage.report.grids import GridCell
from seepage.report.result import AuditResult, Example
from seepage.report.summary import NOT_TRIED, headline, summary
from seepage.report.terminal import Paragraph, figures, make_table
from seepage.results.checks.finding import Finding, Severity, few_of
from seepage.results.verdict import GRAVITY, NOT_REACHED, UNDEFENDED, pick, style_of, verdict
from seepage.run.enough import until_decided
from seepage.run.limits import by_units
from seepage.run.plan import Plan
from seepage.run.runner import Listener
from seepage.settings.command import in_lines
from seepage.text import clean, how_many, lasting, listed, lowered, percent, points, span

# How often a log gets a line where there is no terminal to draw a bar on.
_LOG_SECONDS = 60.0
# Seconds from which a plan says what takes most of it.
_LONG = 600.0
# Seconds that checks and the report take.
_REPORT = 2.0


# Columns from which a bar is long, and those of the percentage and the times beside it.
_WIDE, _TIMES = 120, 36


class Bar(Listener):
    """A progress bar over all victims of an audit, weighted by the work they take; off a terminal, a line a minute."""

    def __init__(self, console: Console) -> None:
        self._wide = console.width >= _WIDE
        bar = 30 if self._wide else 10
        # What is being done is cut, so that the time left stays on the line.
        self._room = max(10, console.width - bar - _TIMES)
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=bar),
            TextColumn("{task.percentage:>3.0f}%"),
            TimeElapsedColumn(),
            TextColumn("elapsed,"),
            TimeRemainingColumn(),
            TextColumn("left"),
            console=console,
            disable=not console.is_terminal,
            transient=True,
        )
        self._task = self._progress.add_task("preparing", total=None)
        self._jobs = self._done = self._running = 0
        self._began = self._shown = time.monotonic()

    def __enter__(self) -> Bar:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def planned(self, plan: Plan) -> None:
        """Say what is about to be run, and what was measured before."""
        self._line(outlook(plan, time.process_time()))

    def begin(self, work: float, jobs: int) -> None:
        """Show how much there is to do, from the start where several studies follow each other."""
        self._jobs, self._done, self._running = jobs, 0, 0
        self._began = self._shown = time.monotonic()
        self._progress.update(self._task, total=max(work, 1e-9), completed=0)

    def started(self, what: str) -> None:
        """Show what is being attacked."""
        self._running += 1
        self._show(what)

    def advance(self, work: float) -> None:
        """Move the bar."""
        self._progress.advance(self._task, work)

    def finished(self, what: str, figure: float | None, units: int) -> None:
        """Show the series' figure so far."""
        self._show(what if figure is None else f"{what}: {percent(figure)} read (n={units})")

    def ended(self) -> None:
        """Count the job."""
        self._done += 1
        self._running -= 1

    def stopped(self, what: str, share: float, of: str) -> None:
        """Say how much of a job was done when the time ended."""
        done = f"{percent(share, 0)} of {of} done"
        self._line(f"The time ended during {clean(what, 200)} ({done}). The same command with more time measures it.")

    def failed(self, what: str, why: str) -> None:
        """Say at once what failed; the rest goes on."""
        self._progress.console.print(Text(f"failed: {clean(what, 200)}: {clean(why, 400)}", style="red"))
        self._show(what)

    def _show(self, what: str) -> None:
        # Jobs that did not fit by their forecasts come on top.
        jobs = max(self._jobs, self._done)
        counts = f"{self._done}/{jobs}" + (f" jobs, {max(self._running, 0)} running" if self._wide else "")
        line = f"{counts} · {clean(what, 200)}"
        self._progress.update(self._task, description=clean(line, self._room))
        now = time.monotonic()
        if not self._progress.console.is_terminal and now - self._shown >= _LOG_SECONDS:
            self._shown = now
            # What a defense costs the task is trained for after the last job.
            # Before the first job there is none to count.
            done = f"{self._done} of {jobs} jobs done after" if jobs else "preparing for"
            self._line(f"{done} {lasting(now - self._began)}, now {clean(what, 120)}.")

    def _line(self, text: str) -> None:
        self._progress.console.print(Paragraph(f"seepage: {clean(text, 4000)}", indent=0))


def _longest(plan: Plan) -> list[str]:
    """Return what to leave out of a plan that takes long: the part that takes most of it, in a sentence."""
    if plan.seconds is None or plan.seconds < _LONG or plan.audits[0].spec.time_budget is not None:
        return []
    seconds: dict[str, float] = {}
    for job in plan.jobs:
        series = [plan.series[i] for i in job.series]
        # Parts that share an exposure cannot be left out one by one.
        label = series[0].part.label if len(series) == 1 else ", ".join(dict.fromkeys(entry.label for entry in series))
        seconds[label] = seconds.get(label, 0.0) + (plan.seconds_of[job.name] or 0.0)
    label = max(seconds, key=lambda name: seconds[name])
    share = seconds[label] / sum(seconds.values())
    others = [part.title for part in plan.audits[0].spec.attacks if part.title != label]
    # What is left is named, since no option takes an attack away.
    named = len(others) < len(plan.audits[0].spec.attacks) and others
    without = f" ({' '.join(f'--attack {name}' for name in others)})" if named else ""
    return [
        f"{percent(share)} of it is {label}: leave that out{without} or some columns (--drop COLUMN), or limit the "
        "time of all (--time-budget 10m)."
    ]


def outlook(plan: Plan, spent: float = 0.0) -> str:
    """Return what is about to be run, how long it takes and what was measured before; ``spent`` seconds count too."""
    unit = plan.audits[0].spec.unit if plan.audits else "unit"
    if plan.jobs:
        several = "" if plan.workers == 1 else f" with {plan.workers} at a time"
        jobs = f"{len(plan.jobs)} job{'s' if len(plan.jobs) != 1 else ''}"
        whole = None if plan.seconds is None else lasting(spent + plan.seconds + _REPORT)
        # Where figures decide on the number of units, all that may be needed are planned.
        open_end = any(until_decided(audit) or audit.yields for audit in plan.audits)
        most = " at most" if open_end else ""
        length = ", the first will tell how long" if whole is None else f", about {whole} in all{most}"
        parts = [f"{jobs}{most if whole is None else ''}{length}{several}.", *_longest(plan)]
        if any(map(until_decided, plan.audits)):
            parts.append(f"An attack ends after 5, 10 or 20 {unit}s where that shows its lift within 10 points.")
    elif plan.spare:
        parts = [f"{len(plan.spare)} jobs, none of which fits the time by its forecast."]
    else:
        parts = ["everything is measured already."]
    if plan.stored:
        fewest, most = min(plan.stored.values()), max(plan.stored.values())
        units = f"{most} {unit}s" if fewest == most else f"{fewest} to {most} {unit}s"
        parts.append(f"Kept from before: {units} in {len(plan.stored)} of {len(plan.series)} settings.")
    for audit, shown in zip(plan.audits, plan.shown, strict=True):
        if shown > audit.units:
            parts.append(f"Asked for {audit.units} {unit}s a setting; those of before, up to {shown}, are shown too.")
            break
    return " ".join(parts)


_STYLES = {"little": "green", "gain": "yellow", "mostly": "red", "whole": "bold red", "open": "magenta"}
_SEVERITIES: dict[Severity, str] = {"error": "bold red", "warning": "yellow", "note": "dim"}
_MISSING = "–"
_SCORE = "accuracy"
_LONGEST_MESSAGE = 1200
_LONGEST_LINE = 160
MOST_LINES = 45
"""Lines of 80 columns that the answer of an audit takes at most, with those that say where the report is."""
# Findings, and defenses that were not tried, that the first screen names.
_MOST_FINDINGS, _MOST_UNTRIED = 4, 2
_ALL = "--verbose prints all"
# Lines that say how many jobs are planned, where the report is, and how to go on.
_REPORT_LINES = 6
# What the main table shows where there is room, the first longest.
_EXTRAS = {"whole records": "exact_match", "discrete / numbers": "accuracy_discrete", "seconds": _SCORE}
# Characters that names and one setting's figures take in the table of columns, and in the table of examples.
_COLUMN_NAMES, _COLUMN_FIGURES = 36, 20
_EXAMPLE_NAMES, _EXAMPLE_CELLS = 20, 32
_MOST_TOLERANCES = 12
# Columns of a table of which a line is printed.
_MOST_COLUMNS = 15


def show_screen(console: Console, result: AuditResult) -> None:
    """Print the answer of an audit on one screen: verdict, what each configuration leaves, and what to do.

    Of 80 columns these are at most ``MOST_LINES`` lines; where there are more configurations, the mildest are left out.
    """
    above, below = _verdict_lines(result), _advice_lines(result, console.width)
    room = MOST_LINES - _REPORT_LINES - _height(console, [*_title_lines(result), *above, *below])
    for part in [*_title_lines(result), *above, *_answers_within(console, result, room), *below]:
        # A command that is longer than a line is the terminal's to break: a line end would end the command.
        console.print(part, soft_wrap=isinstance(part, Text) and bool(part.no_wrap))


def show_screens(console: Console, results: Sequence[AuditResult]) -> None:
    """Print a line for each audit and the screen of the gravest; of one audit its screen alone."""
    if len(results) > 1:
        heads = [headline(result) for result in results]
        lines = [
            (Text(_audit_name(result)), Text(head.tier, _STYLES[style_of(head.tier)]))
            for result, head in zip(results, heads, strict=True)
        ]
        columns = [Column("audit", overflow="fold"), "verdict"]
        console.print()
        console.print(make_table(f"{len(results)} audits; below them the gravest", columns, lines))
        gravest = worst([head.record for head in heads if head.record is not None])
        results = [next((r for r, head in zip(results, heads, strict=True) if head.record is gravest), results[0])]
    for result in results:
        show_screen(console, result)


def _audit_name(result: AuditResult) -> str:
    about, variant = result.audit.about, result.audit.spec.variant
    parts = [clean(about.dataset), clean(about.protocol), f"model {clean(about.model)}"]
    return ", ".join([*parts, *([clean(variant, 80)] if variant else [])])


def _height(console: Console, parts: Sequence[RenderableType]) -> int:
    """Return the number of lines that some parts take."""
    return sum(len(console.render_lines(part, pad=False)) for part in parts)


def _verdict_lines(result: AuditResult) -> list[RenderableType]:
    """Return the verdict and its sentences."""
    head = headline(result)
    tier = Text(head.tier.upper(), style=_STYLES[style_of(head.tier)])
    return [tier, *(Paragraph(sentence) for sentence in head.sentences), Text()]


def _advice_lines(result: AuditResult, width: int) -> list[RenderableType]:
    """Return what is not known, what to do, and the findings that matter."""
    untried = [clean(words, _LONGEST_LINE) for tier, words in headline(result).beside if tier == NOT_TRIED]
    lines: list[RenderableType] = [Paragraph(f"{NOT_TRIED}: {words}", "dim") for words in untried[:_MOST_UNTRIED]]
    if len(untried) > _MOST_UNTRIED:
        lines.append(Paragraph(f"and {len(untried) - _MOST_UNTRIED} more that are not tried ({_ALL})", "dim"))
    if steps := what_to_do(result):
        lines += [Text("What to do", style="bold"), *map(Paragraph, steps.sentences)]
        for words, command in steps.commands:
            if len(line := f"{words}: {command}") <= width - 2:
                lines.append(Text(f"  {line}", no_wrap=True, overflow="ignore"))
                continue
            lines.append(Paragraph(f"{words}:"))
            # What is pasted is broken where a shell goes on, never by the terminal's width.
            lines += [Text(f"  {line}", no_wrap=True, overflow="ignore") for line in in_lines(command, width - 2)]
    serious = [finding for finding in result.all_findings if finding.severity != "note"]
    if serious:
        lines.append(Text(f"Checks of this audit: {how_many(len(serious), 'finding')}", style="bold"))
        for finding in serious[:_MOST_FINDINGS]:
            text = Text(finding.severity, style=_SEVERITIES[finding.severity])
            about = ", ".join(few_of([repr(clean(name, 30)) for name in finding.columns]))
            title = f"{finding.title}: {about}" if about else finding.title
            text.append(f" {finding.code} {clean(title, _LONGEST_LINE)}.", "not bold default")
            lines.append(Paragraph(text))
        if len(serious) > _MOST_FINDINGS:
            lines.append(Paragraph(f"and {len(serious) - _MOST_FINDINGS} more ({_ALL})", "dim"))
    return lines


def _answers_within(console: Console, result: AuditResult, room: int) -> list[RenderableType]:
    """Return the table of configurations with as many rows as there is room for, the gravest at least."""
    if len(result.attacked) < 2 and not result.frontier and not (result.attacked and result.not_reached):
        return []
    rows = len(result.attacked) + len(result.not_reached)
    for number in range(rows, 0, -1):
        table = _answers_table(result, number)
        if number == 1 or _height(console, [table]) <= room:
            return [table]
    return []


def _answers_table(result: AuditResult, most: int) -> Table:
    """Return a line for each configuration: the verdict, what is read of what guessing misses, and the task.

    Of more than ``most`` configurations those without a figure are left out first, then the mildest.
    """
    learnt = {setting_of(record): record for record in result.frontier}
    error = any(is_error(record["task_metric"]) for record in learnt.values())
    task = [lowered(task_name(next(iter(learnt.values()))["task_metric"]))] if learnt else []
    defended = result.defended or bool(result.not_reached)
    heads = [
        *_heads(result, defended),
        Column("verdict"),
        *figures(f"{done(result).split()[-1]}\nof 100", "whole\nrecords", *task),
    ]
    ranked = sorted(result.attacked, key=lambda record: -GRAVITY.index(record["tier"]))[:most]
    rows = []
    for record in result.attacked:
        if record not in ranked:
            continue
        now = learnt.get(setting_of(record))
        shown = _MISSING if now is None or now["task"] is None else f"{now['task']:.4g}" if error else _task(now)
        closed, n = record["closed"], record["n"] or 0
        read = _MISSING if closed is None else f"{in_hundred(closed)}"
        wide = n >= FEW or not by_units(result.audit.spec)
        if closed is not None and record["upper"] is not None and wide:
            read += f" [{in_hundred(record['closed_low'])}, {rounded_up(record['upper'])}]"
        rows.append(
            (
                *([str(record["batch_size"])] if result.sized else []),
                *([Text(_defense(result, record["defense"]))] if defended else []),
                Text(result.marked(record["attack"], 24)),
                Text(record["tier"], style=_STYLES[style_of(record["tier"])]),
                read,
                percent(record["exact"], 0),
                *([shown] if task else []),
            )
        )
    for size, defense in result.not_reached[: max(0, most - len(rows))]:
        # That nothing was measured must not be taken for a good figure.
        sizes = [_MISSING if size is None else str(size)] if result.sized else []
        nothing = [_MISSING] * (2 + len(task))
        rows.append((*sizes, Text(_defense(result, defense)), _MISSING, Text(NOT_REACHED, "dim"), *nothing))
    missed = " or ".join(dict.fromkeys(what_is_missed(result, record) for record in result.attacked))
    table = make_table(f"Of 100 {missed} that an informed guess misses [95% interval]", heads, rows)
    if (hidden := len(result.attacked) + len(result.not_reached) - len(rows)) > 0:
        table.caption = f"and {how_many(hidden, 'configuration')} more ({_ALL})"
    return table


def _task(record: Record) -> str:
    return f"{_plain(record['task'])} {span(record['task_low'], record['task_high'])}".strip()


def show_report(console: Console, result: AuditResult) -> None:
    """Print the threat model, the audit's findings about itself, the results, the columns, examples and a summary."""
    audit, rows = result.audit, result.rows
    _show_head(console, result)
    _show_findings(console, result.all_findings)
    if any(row.metric == _SCORE and row.column is None for row in rows):
        console.print(_results_table(result, console))
    if (labels := _labels_table(result)) is not None:
        console.print(labels)
    attacks = {
        setting_of(record): record["attack"] for record in result.overviews if record["attack"] and record["of"] is None
    }
    # Side by side only as many settings as there is room for.
    room = max(1, (console.width - _COLUMN_NAMES) // _COLUMN_FIGURES)
    by_column = any(result.by_column.values())
    for begin in range(0, len(attacks) if by_column else 0, room):
        console.print(_columns_table(result, list(attacks)[begin : begin + room]))
    if (costs := costs_table(result)) is not None:
        console.print(costs)
    numbers = any(record["kind"] == "continuous" for own in result.by_column.values() for record in own)
    if audit.schema is not None and numbers:
        words = tolerances(audit.schema, _MOST_TOLERANCES, audit.about.columns)
        console.print(Paragraph(words, "dim"))
        console.print()
    for (size, defense), attack in attacks.items():
        shown = [e for e in result.examples if (e.batch_size, e.defense, e.attack) == (size, defense, attack)]
        if shown:
            room = max(1, (console.width - _EXAMPLE_NAMES) // _EXAMPLE_CELLS)
            _show_examples(console, result, shown[:room])
            break
    console.print(Text("Summary", style="bold"))
    console.print(Paragraph(summary(result)))
    console.print()


def _title_lines(result: AuditResult) -> list[RenderableType]:
    audit = result.audit
    about = audit.about
    variant = "" if audit.spec.variant is None else f" · {clean(audit.spec.variant, 80)}"
    facts = (
        f" · {about.rows:,} rows · {clean(about.protocol)}, model {clean(about.model)}{variant} · "
        f"{result.units_run} · seed {audit.spec.seed}"
    )
    title = Text(f"Audit of {clean(about.dataset)}", style="bold")
    return [Text(), Paragraph(title.append(facts, "not bold"), indent=0)]


def _show_head(console: Console, result: AuditResult) -> None:
    audit = result.audit
    for line in _title_lines(result):
        console.print(line)
    for fact in assumptions(audit):
        console.print(Paragraph(f"· {fact}"))
    if omitted := [clean(applicability.attack) for applicability in result.grid if not applicability.applies]:
        words = f"· Attacks that do not apply, see the report: {', '.join(omitted)}."
        console.print(Paragraph(words, "dim"))
    console.print()


def _show_findings(console: Console, findings: Sequence[Finding]) -> None:
    if not findings:
        return
    console.print(Text("Checks of this audit", style="bold"))
    for finding in findings:
        text = Text(finding.severity, style=_SEVERITIES[finding.severity])
        text.append(f" {finding.code} ", "not bold default")
        text.append(f"{finding.title}. ", "bold default")
        text.append(clean(finding.message, _LONGEST_MESSAGE), "not bold default")
        console.print(Paragraph(text))
    console.print(Text(f"  seepage checks {findings[0].code} says more about a code.\n", "dim"))


def _results_table(result: AuditResult, console: Console) -> Table:
    """Return the table with as many columns as there is room for, and the figures stacked where there is little."""
    measured = {row.metric for row in result.rows}
    extras = [name for name, metric in _EXTRAS.items() if metric in measured]
    for number in range(len(extras), -1, -1):
        table = _results_of(result, extras[:number], stacked=False)
        if Measurement.get(console, console.options.update(width=10**4), table).maximum <= console.width:
            return table
    return _results_of(result, (), stacked=True)


def _results_of(result: AuditResult, extras: Sequence[str], stacked: bool) -> Table:
    rows, findings = result.rows, result.all_findings
    about = result.audit.about
    what = f"Read of {clean(about.secret, 80)}"
    if about.trials is not None:
        what = f"Trials in which the attacker {clean(about.trials.does, 120)}"
    between, beside = "\n" if stacked else " ", result.defended and not stacked
    heads = _heads(result, beside)
    for name in ("read", "best baseline", "lift", "verdict", *extras):
        heads += figures(name, no_wrap=name != "best baseline")
    table = make_table(f"{what}, beside baselines, in percent [95% interval]; lift in points", heads)
    scored = list(dict.fromkeys((row.batch_size, row.defense) for row in pick(rows, metric=_SCORE)))
    for i, (size, defense) in enumerate(scored):
        here = pick(rows, batch_size=size, defense=defense, column=None)
        names = dict.fromkeys(row.attack for row in here if row.metric == _SCORE)
        named = _defense(result, defense)
        above = result.defended and stacked
        if above:
            table.add_row(*([str(size)] if result.sized else []), Text(named, "italic"))
        for j, attack in enumerate(names):
            scores = {row.metric: row for row in pick(here, attack=attack)}
            score = scores[_SCORE]
            rated = verdict(score, scores.get("exact_match"), findings, scores.get("certified"))
            kinds = (_mean(scores.get(f"accuracy_{kind}")) for kind in ("discrete", "continuous"))
            extra = {
                "whole records": _mean(scores.get("exact_match")),
                "discrete / numbers": " / ".join(kinds),
                "seconds": f"{score.seconds_per_victim:.2f}" if score.seconds_per_victim is not None else "",
            }
            first = j == 0 and not above
            table.add_row(
                *([str(size) if first else ""] if result.sized else []),
                *([Text(named if first else "")] if beside else []),
                *_cells(result, score, rated.tier if score.n else "", between),
                *(extra[name] for name in extras),
            )
        if i + 1 < len(scored):
            table.add_section()
    return table


def _cells(result: AuditResult, score: ResultRow, tier: str, between: str = " ") -> list[Text | str]:
    """Return the cells of an attack or a baseline in a table of accuracies."""
    attacks = score.is_attack
    best = "" if score.baseline is None else f"{_plain(score.baseline)}{between}{clean(score.baseline_name)}"
    return [
        Text(result.marked(score.attack), style="" if attacks else "dim"),
        Text(f"{_plain(score.mean)}{between}{span(score.low, score.high)}".strip()),
        Text(best),
        points(score.lift) if attacks else "",
        Text(tier, style=_STYLES[style_of(tier)]) if attacks and tier else "",
    ]


def _labels_table(result: AuditResult) -> Table | None:
    """Return what every attack and baseline reads of the label, None where it is no secret of the audit."""
    about = result.audit.about
    scores = [row for row in pick(result.rows, metric=_SCORE, column=about.label) if row.mean is not None]
    if about.label is None or not any(row.is_attack for row in scores):
        return None
    by = "" if about.label_attacker is None else f" by {lowered(about.label_attacker)}"
    rows = [
        (
            *([str(row.batch_size)] if result.sized else []),
            *([Text(_defense(result, row.defense))] if result.defended else []),
            *_cells(result, row, verdict(row, findings=result.all_findings).tier),
        )
        for row in scores
    ]
    title = f"Read of the label {clean(about.label)}{by}, in percent [95% interval]; lift in points"
    return make_table(
        title, [*_heads(result, result.defended), *figures("read", "best baseline", "lift", "verdict")], rows
    )


def _heads(result: AuditResult, defense: bool) -> list[Column]:
    """Return the heads of batch size, defense and attack, as far as they differ; names may be broken anywhere."""
    sizes = figures(result.audit.about.size.replace(" ", "\n"), no_wrap=True) if result.sized else []
    names = ["defense", "attack"] if defense else ["attack"]
    return [*sizes, *(Column(name, overflow="fold") for name in names)]


def _defense(result: AuditResult, name: str) -> str:
    return "no defense" if name == UNDEFENDED else result.marked(name, 32)


def _mean(row: ResultRow | None) -> str:
    return _MISSING if row is None else _plain(row.mean)


def _plain(rate: float | None) -> str:
    return percent(rate).removesuffix("%")


def _columns_table(result: AuditResult, settings: Sequence[Setting]) -> Table:
    by_setting = {key: {record["column"]: record for record in result.by_column[key]} for key in settings}
    # In the order of the table, or of results where rows are no table.
    by_column = {column: record for own in by_setting.values() for column, record in own.items()}
    order = [row.column for row in result.rows if row.column in by_column]
    marked = "; * sensitive" if any(record["sensitive"] for record in by_column.values()) else ""
    kinds = any(record["kind"] for record in by_column.values())
    heads = [Column(name, no_wrap=True) for name in (("column", "kind") if kinds else ("column",))]
    for key in settings:
        attack = next((record["attack"] for record in by_setting[key].values()), None)
        head = f"{result.label(key)}: {_MISSING if attack is None else result.marked(attack)}"
        heads.append(Column(Text(head), justify="right"))
    title = f"Columns: read by the strongest attack (lift over the best baseline, in points){marked}"
    table = make_table(title, heads)
    ranked = sorted(by_column.values(), key=lambda record: (not record["sensitive"], -(record["lift"] or 0.0)))
    shown_columns = {record["column"] for record in ranked[:_MOST_COLUMNS]}
    if len(by_column) > len(shown_columns):
        table.caption = (
            f"The {len(shown_columns)} of {len(by_column):,} columns of which most is read; results.csv has all."
        )
    for column in dict.fromkeys(name for name in order if name in shown_columns):
        cells = []
        for key in settings:
            record = by_setting[key].get(column)
            text = _MISSING if record is None else f"{percent(record['mean'])} ({points(record['lift'])})"
            cells.append(Text(text, style="" if record is None else _STYLES[style_of(record["tier"])]))
        head = by_column[column]
        name = Text(clean(column, 32) + (" *" if head["sensitive"] else ""))
        table.add_row(name, *([head["kind"] or ""] if kinds else []), *cells)
    return table


def costs_table(result: AuditResult) -> Table | None:
    """Return what each defense costs and guarantees, None where the task was not learnt."""
    records = result.frontier
    if not records:
        return None
    error = any(is_error(record["task_metric"]) for record in records)
    sized = len({record["batch_size"] for record in records}) > 1
    detailed = " (delta, steps, accountant)" if any(record["steps"] is not None for record in records) else ""
    bounds = {"epsilon": f"epsilon of a record{detailed}", "label_epsilon": "epsilon of a label"}
    bounds = {key: name for key, name in bounds.items() if any(record[key] is not None for record in records)}
    heads = [
        *(figures(result.audit.about.size.replace(" ", "\n"), no_wrap=True) if sized else []),
        Column("defense", overflow="fold"),
        *figures(lowered(task_name(records[0]["task_metric"])), "constant answer", no_wrap=True),
        *(Column(name, justify="right", overflow="fold") for name in bounds.values()),
    ]
    numbers = {record["task_n"] for record in records if record["task_low"] is not None}
    # Of two or three trainings an interval is wide, whatever the network has learnt: their number belongs to it.
    counts = listed([str(number) for number in sorted(numbers)])
    over = f" [95% interval of {counts} {result.audit.spec.unit}s]" if numbers else ""
    table = make_table("The task under each defense" + ("" if error else f", in percent{over}"), heads)
    for record in records:
        if error:
            learnt, baseline = (
                _MISSING if k is None else f"{k:.4g}" for k in (record["task"], record["task_baseline"])
            )
        else:
            learnt = f"{_plain(record['task'])} {span(record['task_low'], record['task_high'])}".strip()
            baseline = _plain(record["task_baseline"])
        table.add_row(
            *([str(record["batch_size"])] if sized else []),
            Text(result.marked(record["defense"], 32)),
            Text(learnt),
            baseline,
            *(_bound(record, key) for key in bounds),
        )
    if "epsilon" in bounds and result.audit.about.unaccounted is not None:
        table.caption = result.audit.about.unaccounted
    return table


def _bound(record: Record, key: str) -> str:
    if record[key] is None:
        return _MISSING
    shown = f"{record[key]:.3g}"
    if key == "epsilon" and record["steps"] is not None:
        shown += f" ({record['delta']:.2g}, {record['steps']:,}, {record['accountant']})"
    return shown


def _show_examples(console: Console, result: AuditResult, shown: Sequence[Example]) -> None:
    first = shown[0]
    title = (
        f"Examples: the first {how_many(len(shown), 'record')}, {result.label((first.batch_size, first.defense))}, as "
        f"they are and as {clean(first.attack)} reads them (wrong cells marked ✗)"
    )
    heads = [Column("column", no_wrap=True)]
    for i, _ in enumerate(shown, start=1):
        heads += [Column(f"truth {i}"), Column(f"read {i}")]
    rows = [
        [
            Text(clean(cell.column, 32)),
            *(_read(pair) for example in shown for pair in truth_and_guess(example.cells[position], 24)),
        ]
        for position, cell in enumerate(first.cells[:_MOST_COLUMNS])
    ]
    console.print(make_table(title, heads, rows))
    if any(cell.certainty is not None or cell.spread is not None for example in shown for cell in example.cells):
        words = "  In brackets, the attacker's own certainty (discrete) or the spread of its attempts (numbers).\n"
        console.print(Text(words, "dim"))


def _read(cell: GridCell) -> Text:
    text = Text(cell.text)
    if cell.behind:
        text.append(f" {cell.behind}", "dim")
    if cell.kind == "wrong":
        text.append(" ✗", "bold red")
        text.stylize("red")
    return text
