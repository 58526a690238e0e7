"""Standard output on which nothing but text arrives."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Iterator
from typing import Any, TextIO

from tilewright.common.text import printable

_COLOUR = re.compile(r"(\x1b\[[0-9;]*m)")


class Printed:
    """Standard output on which nothing but text arrives: names in a stranger's model can hold what moves the cursor or
    renames the window. On a terminal the colours of tables pass.

    Args:
        stream: written to.

    Attributes:
        used: whether anything was written.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.used = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        self.used = True
        if not self._stream.isatty():
            return self._stream.write(printable(text))
        parts = _COLOUR.split(text)  # every second one is a colour
        return self._stream.write("".join(p if k % 2 else printable(p) for k, p in enumerate(parts)))


def open_standard_streams() -> None:
    """Opens those of the three that this process was started without: else the next file that is opened has their
    number, and takes what is printed."""
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            if (null := os.open(os.devnull, os.O_RDWR)) != number:
                os.dup2(null, number)
                os.close(null)
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115


@contextlib.contextmanager
def printed() -> Iterator[Printed]:
    """Replaces standard output by a `Printed` within its block."""
    with contextlib.redirect_stdout(Printed(sys.stdout)) as output:
        yield output
