"""Progress of an audit on the terminal."""

from __future__ import annotations

from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text

from seepage.audit import Listener
from seepage.report.text import clean, percent


class Bar(Listener):
    """A progress bar over all victims of an audit, weighted by the work they take; silent off a terminal.

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

    def __enter__(self) -> Bar:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def begin(self, work: float, jobs: int) -> None:
        """Show how much there is to do."""
        self._jobs = jobs
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
