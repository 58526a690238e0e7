"""Ctrl-C that is heard: while modules are imported, whose libraries turn the exception into others or print it and go
on, and while native code runs, when Python does not look at signals."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType

STATUS = 130
#: What native code has to come back to Python, before Ctrl-C ends the process without it.
GRACE_SECONDS = 1.0


@contextlib.contextmanager
def end_at_once() -> Iterator[None]:
    """Within the block Ctrl-C ends the process, with one line and STATUS. For imports only: nothing is tidied up.

    Does nothing outside of the main thread, and where Ctrl-C is not Python's own affair.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    if not callable(before):
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


@contextlib.contextmanager
def heard_at_once() -> Iterator[None]:
    """While this lasts SIGINT raises KeyboardInterrupt, or ends the process where that cannot be raised in time.

    Only the main thread of a process can listen; elsewhere, and where SIGINT is ignored, nothing changes.
    """
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or before is not signal.default_int_handler:
        yield
        return
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    heard = threading.Event()

    def interrupt(number: int, frame: FrameType | None) -> None:
        heard.set()
        raise KeyboardInterrupt

    threading.Thread(target=_watch, args=(reader, heard, interrupt), daemon=True, name="interruption").start()
    old = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        signal.set_wakeup_fd(old)
        os.close(writer)  # ends the thread, which closes the other end


def _watch(reader: int, heard: threading.Event, handler: Callable[[int, FrameType | None], None]) -> None:
    """Ends the process where the handler has not run in time; a command that puts in one of its own is left alone."""
    with open(reader, "rb", buffering=0) as signals:
        while number := signals.read(1):
            mine = number[0] == signal.SIGINT and signal.getsignal(signal.SIGINT) is handler
            if mine and not heard.wait(GRACE_SECONDS):
                terminal = "\x1b[?25h\n" if sys.stderr.isatty() else ""  # shows the cursor, which a progress bar hides
                os.write(2, f"{terminal}tilewright: error: interrupted\n".encode())
                os._exit(STATUS)
            heard.clear()
