"""A simulated board behind a pseudo-terminal, for programs that talk to serial ports, EnergyRunner among them."""

from __future__ import annotations

import os
import pty
import select
import tty
from collections.abc import Callable

from tilewright.standalone.ask import SLICE, SimulationLine
from tilewright.standalone.client import READY

#: Bytes of an answer's end that are looked at.
_END = 64


def start(line: SimulationLine) -> None:
    """Runs a board until it is ready. Its output is dropped: who connects to a board has not seen it start.

    Raises:
        UsageError: it says nothing for too long.
    """
    tail = b""
    while not _waits(tail):
        tail = (tail + line.receive())[-_END:]


def serve(line: SimulationLine, started: Callable[[str], None], ended: Callable[[], bool] = lambda: False) -> None:
    """Passes bytes between a board that has started and a pseudo-terminal.

    While the board waits for a command its clock stands still.

    Args:
        line: the board.
        started: called with the name of the pseudo-terminal's other end, such as `/dev/pts/7`.
        ended: asked ten times a second while the board waits, and oftener while it does not.
    """
    ours, theirs = pty.openpty()
    try:  # theirs stays open here too: programs come and go
        tty.setraw(theirs)
        started(os.ttyname(theirs))
        waits, tail = True, b""
        while not ended():
            if select.select([ours], [], [], 0.1 if waits else 0)[0]:
                line.send(os.read(ours, 4096))
                waits, tail = False, b""
            elif not waits and (got := line.line.run(SLICE)):
                os.write(ours, got)
                tail = (tail + got)[-_END:]
                waits = _waits(tail)
    finally:
        os.close(ours)
        os.close(theirs)


def _waits(tail: bytes) -> bool:
    """True if the board's last output says that it is ready for a command."""
    return tail.endswith(b"\n") and tail.rstrip().endswith(READY.encode())
