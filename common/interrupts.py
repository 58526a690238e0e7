"""Handles the signals that end a command, also while modules are imported, whose libraries turn the exception into
others or print it and go on, and while native code runs, when Python does not look at signals.

They are Ctrl-C (SIGINT), SIGTERM and SIGHUP. Each is a KeyboardInterrupt, so that the clean-up after Ctrl-C runs after
all of them; the exit status is 128 and the signal's number.
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

#: Each signal with the handler that Python or the system installs by default.
_USUAL: dict[signal.Signals, Any] = {
    signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL, signal.SIGHUP: signal.SIG_DFL,
}  # fmt: skip
#: Time in which native code must return to Python before a signal ends the process without it.
GRACE_SECONDS = 1.0
_received: list[int] = []


def status() -> int:
    """The exit status of an interrupted process: 128 plus the last signal received, else plus SIGINT."""
    return 128 + (_received[-1] if _received else signal.SIGINT)


def message() -> str:
    """The line that reports the interruption."""
    return _message(status() - 128)


def termination_requested() -> bool:
    """True if SIGTERM or SIGHUP was received, which end a command also where Ctrl-C means that it is enough."""
    return any(number != signal.SIGINT for number in _received)


def _message(number: int) -> str:
    return "interrupted" if number == signal.SIGINT else f"ended by {signal.Signals(number).name}"


@contextlib.contextmanager
def _handled(handler: Callable[[int, FrameType | None], None], only_usual: bool) -> Iterator[None]:
    """Installs a handler of the signals within the block; ignored signals, as under nohup, stay ignored."""
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
    """Makes a signal in the block end the process, with one line and its status. For imports only: nothing is cleaned
    up but the files of `tilewright.common.temporary`.

    Does nothing outside of the main thread, and where Ctrl-C is not Python's own affair. Where SIGINT is ignored, as in
    a script's background process, the other signals are still handled.
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
def interruptible() -> Iterator[None]:
    """Makes a signal in the block raise KeyboardInterrupt, or end the process where that cannot be raised in time.

    Only the main thread of a process receives signals; elsewhere, and where another handler of SIGINT is installed,
    nothing changes.
    """
    usual = signal.getsignal(signal.SIGINT) in (signal.default_int_handler, signal.SIG_IGN)
    if threading.current_thread() is not threading.main_thread() or not usual:
        yield
        return
    _received.clear()
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    handled = threading.Event()

    def interrupt(number: int, frame: FrameType | None) -> None:
        _received.append(number)
        handled.set()
        raise KeyboardInterrupt

    threading.Thread(target=_watch, args=(reader, handled, interrupt), daemon=True, name="interruption").start()
    old = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    try:
        with _handled(interrupt, True):
            yield
    finally:
        signal.set_wakeup_fd(old)
        os.close(writer)  # ends the thread, which closes the other end


def _watch(reader: int, handled: threading.Event, handler: Callable[[int, FrameType | None], None]) -> None:
    """Ends the process where the handler has not run in time; a command with a handler of its own is left alone."""
    with open(reader, "rb", buffering=0) as signals:
        while number := signals.read(1):
            mine = number[0] in _USUAL and signal.getsignal(number[0]) is handler
            if mine and not handled.wait(GRACE_SECONDS):
                terminal = sys.stderr is not None and sys.stderr.isatty()
                _end(
                    number[0], before="\x1b[?25h\n" if terminal else ""
                )  # shows the cursor, which a progress bar hides
            handled.clear()
