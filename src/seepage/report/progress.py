"""The progress of an audit on the terminal. Whatever comes from a table is text, never read as markup."""

from __future__ import annotations

import time
from datetime import timedelta

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeElapsedColumn
from rich.text import Text

from seepage.report.terminal import Paragraph
from seepage.run.enough import until_decided
from seepage.run.plan import Plan
from seepage.run.runner import Listener
from seepage.text import clean, lasting, percent

# How often a log gets a line where there is no terminal to draw a bar on.
_LOG_SECONDS = 60.0
# Seconds from which a plan says what takes most of it.
_LONG = 600.0
# Seconds that checks and the report take.
_REPORT = 2.0
# Columns from which a bar is long, and those of the percentage and the times beside it.
_WIDE, _TIMES = 120, 36
# Share of the work from which its pace alone says the time left, and no longer the forecast.
_TELLING = 0.1


class TimeLeft(ProgressColumn):
    """The time left: first what the forecast says, and more and more what the work done so far took.

    The first jobs measure the speed badly, since several begin at once and none has ended.
    """

    def __init__(self) -> None:
        super().__init__()
        self.forecast: float | None = None  # seconds from the beginning of the work

    def render(self, task: Task) -> Text:
        """Return hours, minutes and seconds; dashes where nothing is known."""
        share = task.completed / task.total if task.total else 0.0
        measured = None if not share or task.elapsed is None else task.elapsed * (1 - share) / share
        if self.forecast is not None and task.elapsed is not None and share < _TELLING:
            planned = max(0.0, self.forecast - task.elapsed)
            weight = share / _TELLING
            measured = planned if measured is None else weight * measured + (1 - weight) * planned
        left = "-:--:--" if measured is None else str(timedelta(seconds=max(0, int(measured))))
        return Text(left, style="progress.remaining")


class Bar(Listener):
    """A progress bar over all victims of an audit, weighted by the work they take; off a terminal, a line a minute."""

    def __init__(self, console: Console) -> None:
        self._wide = console.width >= _WIDE
        bar = 30 if self._wide else 10
        # What is being done is cut, so that the time left stays on the line.
        self._room = max(10, console.width - bar - _TIMES)
        self._left = TimeLeft()
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=bar),
            TextColumn("{task.percentage:>3.0f}%"),
            TimeElapsedColumn(),
            TextColumn("elapsed,"),
            self._left,
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
        self._left.forecast = plan.seconds
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


def _longest_part(plan: Plan) -> list[str]:
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
        parts = [f"{jobs}{most if whole is None else ''}{length}{several}.", *_longest_part(plan)]
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
