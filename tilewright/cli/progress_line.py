"""A line on a terminal that says what long work is at, drawn only once the work takes longer than two seconds."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from rich.progress import Progress

#: Seconds of work after which the line is drawn.
AFTER_SECONDS = 2.0


class ProgressLine:
    """Draws a line with a bar on standard error, a terminal, while its block takes longer than two seconds.

    The package that draws is loaded when the line is: most commands end before.

    Args:
        text: what is being done.
    """

    def __init__(self, text: str) -> None:
        self._shown: tuple[str, float | None, float | None] = (text, None, None)
        self._began = time.monotonic()
        self._lock = threading.Lock()
        self._progress: Progress | None = None
        self._timer = threading.Timer(AFTER_SECONDS, self._draw)
        self._timer.daemon = True

    def __enter__(self) -> Self:
        self._timer.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._timer.cancel()
        self._timer.join()
        if self._progress is not None:
            self._progress.stop()

    def show(self, text: str, done: float | None = None, total: float | None = None) -> None:
        """Shows the current text, and how much of a total is done."""
        with self._lock:
            self._shown = (text, done, total)
            if self._progress is not None:
                self._update(self._progress)

    def _draw(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
        )
        progress = Progress(*columns, console=Console(stderr=True), transient=True, get_time=time.monotonic)
        with self._lock:
            progress.add_task("")
            progress.tasks[0].start_time = self._began
            self._update(progress)
            self._progress = progress
        progress.start()

    def _update(self, progress: Progress) -> None:
        text, done, total = self._shown
        progress.update(progress.tasks[0].id, description=text, completed=done, total=total)
