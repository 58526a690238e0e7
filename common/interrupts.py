"""Signals that end a command are heard: while modules are imported, whose libraries turn the exception into others or
print it and go on, and while native code runs, when Python does not look at signals.

They are Ctrl-C (SIGINT), SIGTERM and SIGHUP. Each is a KeyboardInterrupt, so that whatever tidies up after Ctrl-C does
so after all of them; the exit status is 128 and the signal's number.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from tilewright.common import temporary

#: With what Python or the system does about each as long as nobody else has a say.
_USUAL: dict[signal.Signals, Any] = {
    signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL, signal.SIGHUP: signal.SIG_DFL,
}  # fmt: skip
#: What native code has to come back to Python, before a signal ends the process without it.
GRACE_SECONDS = 1.0
_heard: list[int] = []


def status() -> int:
    """The exit status of a process that was interrupted: by the last signal that was heard, else as if by Ctrl-C."""
    return 128 + (_heard[-1] if _heard else signal.SIGINT)


def message() -> str:
    """What is said of it."""
    return _message(status() - 128)


def told_to_end() -> bool:
    """Whether SIGTERM or SIGHUP was heard, which end a command also where Ctrl-C means that it is enough."""
    return any(number != signal.SIGINT for number in _heard)


def _message(number: int) -> str:
    return "interrupted" if number == signal.SIGINT else f"ended by {signal.Signals(number).name}"


@contextlib.contextmanager
def _handled(handler: Callable[[int, FrameType | None], None], only_usual: bool) -> Iterator[None]:
    """While this lasts, the handler hears the signals; those that are ignored, as by nohup, stay so."""
    before = {number: signal.getsignal(number) for number in _USUAL}
    mine = [n for n, now in before.items() if now == _USUAL[n] or (callable(now) and not only_usual)]
    for number in mine:
        signal.signal(number, handler)
    try:
        yield
    finally:
        for number in mine:
            signal.signal(number, before[number])


@contextlib.contextmanager
def end_at_once() -> Iterator[None]:
    """Within the block a signal ends the process, with one line and its status. For imports only: nothing is tidied up
    but what `tilewright.common.temporary` knows.

    Does nothing outside of the main thread, and where Ctrl-C is not Python's own affair. Where it is ignored, as of
    what a script starts in the background, the other signals are heard.
    """
    main, now = threading.current_thread() is threading.main_thread(), signal.getsignal(signal.SIGINT)
    with _handled(_end, False) if main and (callable(now) or now is signal.SIG_IGN) else contextlib.nullcontext():
        yield


def _end(number: int, frame: FrameType | None = None, before: str = "") -> None:
    temporary.remove_all()
    with contextlib.suppress(OSError):
        os.write(2, f"{before}tilewright: error: {_message(number)}\n".encode())
    os._exit(128 + number)


@contextlib.contextmanager
def heard_at_once() -> Iterator[None]:
    """While this lasts a signal raises KeyboardInterrupt, or ends the process where that cannot be raised in time.

    Only the main thread of a process can listen; elsewhere, and where somebody else hears SIGINT, nothing changes.
    """
    usual = signal.getsignal(signal.SIGINT) in (signal.default_int_handler, signal.SIG_IGN)
    if threading.current_thread() is not threading.main_thread() or not usual:
        yield
        return
    _heard.clear()
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    heard = threading.Event()

    def interrupt(number: int, frame: FrameType | None) -> None:
        _heard.append(number)
        heard.set()
        raise KeyboardInterrupt

    threading.Thread(target=_watch, args=(reader, heard, interrupt), daemon=True, name="interruption").start()
    old = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    try:
        with _handled(interrupt, True):
            yield
    finally:
        signal.set_wakeup_fd(old)
        os.close(writer)  # ends the thread, which closes the other end


def _watch(reader: int, heard: threading.Event, handler: Callable[[int, FrameType | None], None]) -> None:
    """Ends the process where the handler has not run in time; a command that puts in one of its own is left alone."""
    with open(reader, "rb", buffering=0) as signals:
        while number := signals.read(1):
            mine = number[0] in _USUAL and signal.getsignal(number[0]) is handler
            if mine and not heard.wait(GRACE_SECONDS):
                terminal = sys.stderr is not None and sys.stderr.isatty()
                _end(
                    number[0], before="\x1b[?25h\n" if terminal else ""
                )  # shows the cursor, which a progress bar hides
            heard.clear()
