"""Lines on standard error that say what long work is at, where no progress bar can be drawn."""

from __future__ import annotations

import contextlib
import sys
import threading
import time

#: Seconds between two lines.
EVERY_SECONDS = 30.0


class Heartbeat:
    """Writes to standard error every 30 s what is being done, with the time since the start; nothing for shorter work.

    A thread of its own writes, so that work which reports nothing for a while, as tools and native code do, shows
    too.

    Args:
        text: what is being done.
        every_seconds: time between two lines.

    Attributes:
        text: the same, to be set while the work goes on.
    """

    def __init__(self, text: str, every_seconds: float = EVERY_SECONDS) -> None:
        self.text, self.every_seconds = text, every_seconds
        self._start = self._written = time.monotonic()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._beat, daemon=True, name="progress")

    def __enter__(self) -> Heartbeat:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._ended.set()
        self._thread.join()

    def progress(self, text: str, done: float) -> None:
        """Sets what is being done, and the fraction that is done."""
        self.show(text, done, 1.0)

    def show(self, text: str, done: float | None = None, total: float | None = None) -> None:
        """Sets what is being done, and how much of a total is done."""
        self.text = f"{text}, {done / total:.0%}" if done is not None and total else text

    def write_line(self) -> None:
        """Writes the line now; the next one comes in `every_seconds`."""
        self._written = time.monotonic()
        minutes, seconds = divmod(int(self._written - self._start), 60)
        with contextlib.suppress(OSError, ValueError):  # nobody listens: the work goes on
            print(f"{minutes:3}:{seconds:02} {self.text}", file=sys.stderr, flush=True)

    def _beat(self) -> None:
        while not self._ended.wait(max(0.0, self._written + self.every_seconds - time.monotonic())):
            if time.monotonic() - self._written >= self.every_seconds:  # else `write_line` was called meanwhile
                self.write_line()
