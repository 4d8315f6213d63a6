"""Progress of an audit on the terminal."""

from __future__ import annotations

import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text

from seepage.run.runner import Listener, Plan
from seepage.text import clean, lasting, percent

# How often a log gets a line where there is no terminal to draw a bar on.
_LOG_SECONDS = 60.0


class Bar(Listener):
    """A progress bar over all victims of an audit, weighted by the work they take; off a terminal, a line a minute.

    What is about to be run, and about how long it takes, is said in a line on either.

    Example:
        >>> import io
        >>> with Bar(Console(file=io.StringIO())) as bar:
        ...     bar.begin(2.0, jobs=1)
        ...     bar.advance(1.0)
    """

    def __init__(self, console: Console) -> None:
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=30),
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
        self._began = self._told = time.monotonic()

    def __enter__(self) -> Bar:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def planned(self, plan: Plan) -> None:
        """Say what is about to be run, and what was measured before."""
        self._line(outlook(plan))

    def begin(self, work: float, jobs: int) -> None:
        """Show how much there is to do, from the start where several studies follow each other."""
        self._jobs, self._done, self._running = jobs, 0, 0
        self._began = self._told = time.monotonic()
        self._progress.update(self._task, total=max(work, 1e-9), completed=0)

    def started(self, what: str) -> None:
        """Show what is being attacked."""
        self._running += 1
        self._show(what)

    def advance(self, work: float) -> None:
        """Move the bar."""
        self._progress.advance(self._task, work)

    def finished(self, what: str, figure: float | None, victims: int) -> None:
        """Show the setting's figure so far."""
        self._done += 1
        self._running -= 1
        self._show(what if figure is None else f"{what}: {percent(figure)} of cells (n={victims})")

    def failed(self, what: str, why: str) -> None:
        """Say at once what failed; the rest goes on."""
        self._done += 1
        self._running -= 1
        self._progress.console.print(Text(f"failed: {clean(what, 200)}: {clean(why, 400)}", style="red"))
        self._show(what)

    def _show(self, what: str) -> None:
        told = f"{self._done}/{self._jobs} jobs, {max(self._running, 0)} running · {clean(what, 200)}"
        self._progress.update(self._task, description=told)
        now = time.monotonic()
        if not self._progress.console.is_terminal and now - self._told >= _LOG_SECONDS:
            self._told = now
            self._line(f"{self._done} of {self._jobs} jobs done after {lasting(now - self._began)}.")

    def _line(self, text: str) -> None:
        self._progress.console.print(Text(f"seepage: {text}"), soft_wrap=True)


def outlook(plan: Plan) -> str:
    """Return what is about to be run and about how long it takes, and what was measured before, in a line."""
    if plan.jobs:
        several = "" if plan.hands == 1 else f" with {plan.hands} at a time"
        told = [f"{len(plan.jobs)} job{'s' if len(plan.jobs) != 1 else ''}, about {lasting(plan.seconds)}{several}."]
    else:
        told = ["everything is measured already."]
    if plan.held:
        fewest, most = min(plan.held.values()), max(plan.held.values())
        victims = f"{most} victims" if fewest == most else f"{fewest} to {most} victims"
        told.append(f"Kept from before: {victims} in {len(plan.held)} of {len(plan.settings)} settings.")
    for i, shown in enumerate(plan.shown):
        asked = plan.settings[sum(plan.counts[:i])].spec.victims
        if shown > asked:
            told.append(f"Asked for {asked} victims a setting; those of before, up to {shown}, are shown too.")
            break
    return " ".join(told)
