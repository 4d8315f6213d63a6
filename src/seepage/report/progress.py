"""Progress of an audit on the terminal."""

from __future__ import annotations

from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from seepage.audit import Listener


class Bar(Listener):
    """A progress bar over all victims of an audit, weighted by the work they take; silent off a terminal.

    Example:
        >>> import io
        >>> with Bar(Console(file=io.StringIO())) as bar:
        ...     bar.begin(2.0)
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

    def __enter__(self) -> Bar:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def begin(self, work: float) -> None:
        """Show how much there is to do."""
        self._progress.update(self._task, total=max(work, 1e-9), completed=0)

    def setting(self, batch_size: int, attack: str, done: int, victims: int) -> None:
        """Show what is being attacked."""
        self._progress.update(self._task, description=f"batch size {batch_size}, {attack}, victim {done + 1}/{victims}")

    def advance(self, work: float) -> None:
        """Move the bar."""
        self._progress.advance(self._task, work)
