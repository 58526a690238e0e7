"""Reads nextpnr's log while it works: for the progress line, and to stop a run that does not end."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

from tilewright.fpga.errors import FpgaError

#: Passes after which the second router is stopped. Runs that succeed take up to 200; if a connection cannot be as fast
#: as asked for, the router would try for ever.
PASSES = 500
#: The router is also stopped after so many passes in which no wire was used twice and the same connections were too
#: slow: later passes would not find a faster way either.
SETTLED = 25
#: And after STUCK passes in which the number of wires used twice did not get smaller, while it is above FEW.
STUCK, FEW = 40, 100
_PASS = re.compile(r"iter=(\d+) wires=\d+ overused=(\d+) overuse=\d+(?: tmgfail=(\d+))?")
#: A row of the first router's table, from which the last number is read: the arcs (connections) left.
_ARCS = re.compile(r"\s\d+ \|[\d\s]+\|[\d\s]+\|\s+(\d+)\|")
_PLACER = re.compile(r"(?:iter=|at iteration #)(\d+)")


class Watch:
    """Reads the log of a running nextpnr.

    Parameters:
        log: its file, which need not exist yet.
        mhz: the requested clock.
        progress: receives the current state.
    """

    def __init__(self, log: Path, mhz: float, progress: Callable[[str], None] = lambda text: None) -> None:
        self.log, self.mhz, self.progress = log, mhz, progress
        self._read = self._same = self._late = 0
        self._fewest, self._fewest_at = sys.maxsize, 0
        log.unlink(missing_ok=True)  # of a build before

    def __call__(self) -> None:
        """Reads new lines of the log; call it now and then. Raises `FpgaError` where routing does not end."""
        if not self.log.exists():
            return
        with self.log.open("rb") as file:
            file.seek(self._read)
            text = file.read()
        text = text[: text.rfind(b"\n") + 1]  # the rest comes later
        self._read += len(text)
        reports = [reports for line in text.decode(errors="replace").splitlines() if (reports := self.line(line))]
        if reports:
            self.progress(reports[-1])

    def line(self, line: str) -> str:
        """The progress in a line of the log, "" if it has none. Raises `FpgaError` where routing does not end."""
        if found := _PASS.search(line):
            number, twice, late = int(found[1]), int(found[2]), int(found[3] or 0)
            self._same = self._same + 1 if twice == 0 and late == self._late else 0
            self._late = late
            if twice < self._fewest:
                self._fewest, self._fewest_at = twice, number
            stuck = self._fewest > FEW and number - self._fewest_at >= STUCK
            if number >= PASSES or self._same >= SETTLED or stuck:
                left = f"{twice} wires used twice" + (f", {late} connections too slow" if late else "")
                raise FpgaError(
                    f"place and route: not routed at {self.mhz:.1f} MHz: {left} after {number} passes; "
                    f"give a lower --clock-mhz or another --seed (see {self.log})"
                )
            return f"routing: pass {number}, {twice} wires used twice" + (f", {late} too slow" if late else "")
        if found := _ARCS.search(line):
            return f"routing: {int(found[1])} connections left"
        if found := _PLACER.search(line):
            return f"placing: step {found[1]}"
        return ""
