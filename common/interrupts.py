"""Ctrl-C while modules are imported: libraries turn the exception into others, or print it and go on."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType

STATUS = 130


@contextlib.contextmanager
def end_at_once() -> Iterator[None]:
    """Within the block Ctrl-C ends the process, with one line and STATUS. For imports only: nothing is tidied up.

    Does nothing outside of the main thread, and where Ctrl-C is not Python's own affair.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    if before is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, _end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _end(number: int, frame: FrameType | None) -> None:
    os.write(2, b"tilewright: error: interrupted\n")
    os._exit(STATUS)
