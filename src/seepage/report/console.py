"""An audit on the terminal. Whatever comes from a table is shown as text, never read as markup."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from seepage.assessment.row import ResultRow
from seepage.report.frames import TASK_ACCURACY, TASK_RMSE, guarantee
from seepage.report.sections import Audited
from seepage.report.summary import summary
from seepage.report.terminal import make_table
from seepage.report.tolerances import tolerances
from seepage.results.checks import Alarm, Severity
from seepage.results.examples import Cell, Example
from seepage.results.tiers import Tier, settings
from seepage.results.verdict import UNDEFENDED, pick, strongest, verdict
from seepage.settings.setting import Audit
from seepage.text import clean, percent, points, span

_STYLES: dict[Tier, str] = {
    "none": "green",
    "low": "green",
    "moderate": "yellow",
    "high": "red",
    "total": "bold red",
    "inconclusive": "dim",
}
_SEVERITIES: dict[Severity, str] = {"error": "bold red", "warning": "yellow", "note": "dim"}
_MISSING = "–"
_SCORE = "accuracy"
_LONGEST_MESSAGE = 1200
# What the main table shows where there is room, the first longest.
_EXTRAS = ("whole records", "discrete / numbers", "s/victim")
# Characters that names and one setting's figures take in the table of columns, and in the table of examples.
_COLUMN_NAMES, _COLUMN_FIGURES = 36, 20
_EXAMPLE_NAMES, _EXAMPLE_CELLS = 20, 32
_MOST_TOLERANCES = 12


def show_report(console: Console, report: Audited) -> None:
    """Print the threat model, the audit's findings about itself, the results, the columns, examples and a summary."""
    audit, rows, alarms = report.audit, report.rows, report.findings
    _show_head(console, report)
    _show_alarms(console, alarms)
    console.print(_results_table(rows, alarms, console))
    attacks = {setting: attack for setting in settings(rows) if (attack := strongest(rows, *setting)) is not None}
    # Side by side only as many settings as there is room for.
    room = max(1, (console.width - _COLUMN_NAMES) // _COLUMN_FIGURES)
    for begin in range(0, len(attacks) if audit.about.columns else 0, room):
        some = dict(itertools.islice(attacks.items(), begin, begin + room))
        console.print(_columns_table(audit, rows, alarms, some))
    if (costs := costs_table(rows)) is not None:
        console.print(costs)
    if audit.dataset is not None and attacks and (words := tolerances(audit.dataset.schema, _MOST_TOLERANCES)):
        console.print(Padding(Text(words, "dim"), (0, 0, 1, 2)))
    for size in dict.fromkeys(one.batch_size for one in audit.configurations):
        shown = [e for e in report.examples if e.batch_size == size and e.attack == strongest(rows, size)]
        if shown:
            room = max(1, (console.width - _EXAMPLE_NAMES) // _EXAMPLE_CELLS)
            _show_examples(console, shown[:room])
            break
    console.print(Text("Summary", style="bold"))
    console.print(Padding(Text(summary(report)), (0, 0, 1, 2)))


def _show_head(console: Console, report: Audited) -> None:
    audit = report.audit
    about = audit.about
    console.print()
    console.print(
        Text(f"Audit of {clean(about.dataset)}", style="bold")
        + Text(
            f" · {about.rows:,} rows · {clean(about.protocol)}, model {clean(about.model)} · {report.asked} "
            f"{audit.spec.unit}s in each configuration · seed {audit.spec.seed}",
            style="not bold",
        )
    )
    for fact in audit.threat_model():
        console.print(Padding(Text(f"· {clean(fact, 600)}"), (0, 0, 0, 2)))
    console.print()


def _show_alarms(console: Console, alarms: Sequence[Alarm]) -> None:
    if not alarms:
        return
    console.print(Text("Checks of this audit", style="bold"))
    for alarm in alarms:
        text = Text(alarm.severity, style=_SEVERITIES[alarm.severity])
        text.append(f" {alarm.code} ", "not bold default")
        text.append(f"{alarm.title}. ", "bold default")
        text.append(clean(alarm.message, _LONGEST_MESSAGE), "not bold default")
        console.print(Padding(text, (0, 0, 0, 2)))
    console.print(Text(f"  seepage checks {alarms[0].code} says more about a code.\n", "dim"))


def _results_table(rows: Sequence[ResultRow], alarms: Sequence[Alarm], console: Console) -> Table:
    """Return the table with as many columns as there is room for, and the figures stacked where there is little."""
    defended = any(row.defense != UNDEFENDED for row in rows)
    for kept in range(len(_EXTRAS), -1, -1):
        table = _results_of(rows, alarms, defended, _EXTRAS[:kept], stacked=False)
        if Measurement.get(console, console.options.update(width=10**4), table).maximum <= console.width:
            return table
    return _results_of(rows, alarms, defended, (), stacked=True)


def _results_of(
    rows: Sequence[ResultRow], alarms: Sequence[Alarm], defended: bool, extras: Sequence[str], stacked: bool
) -> Table:
    table = make_table("Share of cells read and what guessing gives, in percent [95% interval]; lift in points")
    between = "\n" if stacked else " "
    table.add_column("batch", justify="right", no_wrap=True)
    if defended and not stacked:
        table.add_column("defense", overflow="fold")
    # Names may be broken anywhere, figures nowhere.
    table.add_column("attack", overflow="fold")
    for name in ("accuracy", "best guess", "lift", "leakage", *extras):
        table.add_column(name, justify="right", no_wrap=True)
    scored = list(dict.fromkeys((row.batch_size, row.defense) for row in pick(rows, metric=_SCORE)))
    for i, (size, defense) in enumerate(scored):
        here = pick(rows, batch_size=size, defense=defense, column=None)
        names = dict.fromkeys(row.attack for row in here if row.metric == _SCORE)
        if defended and stacked:
            table.add_row(str(size), Text(clean(defense, 32) if defense != UNDEFENDED else "no defense", "italic"))
        for j, attack in enumerate(names):
            scores = {row.metric: row for row in pick(here, attack=attack)}
            score = scores[_SCORE]
            attacks = score.is_attack
            found = verdict(score, scores.get("exact_match"), alarms, scores.get("certified"))
            guess = ""
            if score.baseline is not None:
                guess = f"{_plain(score.baseline)}{between}{clean(score.baseline_name)}"
            held = {
                "whole records": _mean(scores.get("exact_match")),
                "discrete / numbers": f"{_mean(scores.get('accuracy_discrete'))} / "
                f"{_mean(scores.get('accuracy_continuous'))}",
                "s/victim": f"{score.seconds_per_victim:.2f}" if score.seconds_per_victim is not None else "",
            }
            table.add_row(
                str(size) if j == 0 and not (defended and stacked) else "",
                *([Text(clean(defense, 32) if j == 0 else "")] if defended and not stacked else []),
                Text(clean(attack), style="" if attacks else "dim"),
                Text(f"{_mean(score)}{between}{span(score.low, score.high)}".strip()),
                Text(guess),
                points(score.lift) if attacks else "",
                Text(found.tier, style=_STYLES[found.tier]) if attacks else "",
                *(held[name] for name in extras),
            )
        if i + 1 < len(scored):
            table.add_section()
    return table


def _mean(row: ResultRow | None) -> str:
    return "–" if row is None else _plain(row.mean)


def _plain(rate: float | None) -> str:
    return percent(rate).removesuffix("%")


def _columns_table(
    audit: Audit, rows: Sequence[ResultRow], alarms: Sequence[Alarm], attacks: Mapping[tuple[int | None, str], str]
) -> Table:
    marked = "; * sensitive" if audit.about.sensitive else ""
    table = make_table(f"Columns: accuracy of the strongest attack (lift over the best guess, in points){marked}")
    table.add_column("column", no_wrap=True)
    table.add_column("kind", no_wrap=True)
    for (size, defense), attack in attacks.items():
        under = "" if defense == UNDEFENDED else f", {clean(defense, 32)}"
        table.add_column(Text(f"{size}: {clean(attack)}{under}"), justify="right")
    kinds = {} if audit.dataset is None else {column.name: column.kind for column in audit.dataset.schema.columns}
    for column in audit.about.columns:
        cells = []
        for (size, defense), attack in attacks.items():
            found = pick(rows, batch_size=size, defense=defense, attack=attack, metric="accuracy", column=column)
            text = f"{percent(found[0].mean)} ({points(found[0].lift)})" if found else "–"
            cells.append(Text(text, style=_STYLES[verdict(found[0], alarms=alarms).tier] if found else ""))
        name = Text(clean(column, 32) + (" *" if column in audit.about.sensitive else ""))
        table.add_row(name, kinds.get(column, ""), *cells)
    return table


def costs_table(rows: Sequence[ResultRow]) -> Table | None:
    """Return what each defense costs and guarantees, None where the task was not learnt."""
    made = [row for row in pick(rows, column=None) if row.metric in (TASK_ACCURACY, TASK_RMSE)]
    if not made:
        return None
    rate = all(row.metric == TASK_ACCURACY for row in made)
    table = make_table("Defenses: what they cost" + (" (percent of test rows)" if rate else " (RMSE)"))
    table.add_column("batch", justify="right", no_wrap=True)
    table.add_column("defense", overflow="fold")
    for name in ("task accuracy" if rate else "task error", "guessing"):
        table.add_column(name, justify="right", no_wrap=True)
    guarantees = [guarantee(row) for row in made]
    private = any(one["epsilon"] is not None for one in guarantees)
    if private:
        table.add_column("epsilon (delta, steps, accountant)", justify="right", overflow="fold")
    for row, one in zip(made, guarantees, strict=True):
        if rate:
            learnt, guess = f"{_mean(row)} {span(row.low, row.high)}".strip(), _plain(row.baseline)
        else:
            learnt, guess = (_MISSING if k is None else f"{k:.4g}" for k in (row.mean, row.baseline))
        bound = _MISSING
        if one["epsilon"] is not None:
            bound = f"{one['epsilon']:.3g} ({one['delta']:.2g}, {one['steps']:,}, {one['accountant']})"
        table.add_row(
            str(row.batch_size),
            Text(clean(row.defense, 32)),
            Text(learnt),
            guess,
            *([bound] if private else []),
        )
    return table


def _show_examples(console: Console, shown: Sequence[Example]) -> None:
    first = shown[0]
    title = (
        f"Examples: the first {len(shown)} record(s) at batch size {first.batch_size}, as they are and as "
        f"{clean(first.attack)} reads them (wrong cells marked ✗)"
    )
    table = make_table(title)
    table.add_column("column", no_wrap=True)
    for i, _ in enumerate(shown, start=1):
        table.add_column(f"truth {i}")
        table.add_column(f"read {i}")
    for position, first_cell in enumerate(first.cells):
        cells: list[Text] = []
        for example in shown:
            cell = example.cells[position]
            cells += [Text(_shown(cell.truth)), _read(cell)]
        table.add_row(Text(clean(first_cell.column, 32)), *cells)
    console.print(table)
    if any(cell.certainty is not None or cell.spread is not None for example in shown for cell in example.cells):
        console.print(
            Text(
                "  In brackets, the attacker's own certainty (discrete) or the spread of its attempts (numbers).\n",
                "dim",
            )
        )


def _read(cell: Cell) -> Text:
    text = Text("–" if cell.guess is None else _shown(cell.guess))
    if cell.certainty is not None:
        text.append(f" ({percent(cell.certainty, 0)})", "dim")
    elif cell.spread is not None:
        text.append(f" (±{cell.spread:.3g})", "dim")
    if not cell.right:
        text.append(" ✗", "bold red")
        text.stylize("red")
    return text


def _shown(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else clean(value, 24)
