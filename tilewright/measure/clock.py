"""The clock a machine runs at: what turns cycles into time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tilewright.fpga.board import Board
from tilewright.fpga.boards import BOARDS
from tilewright.fpga.points import board_named, point_of
from tilewright.fpga.uart_board import UartBoard
from tilewright.fpga.zynq.boards import ZYNQ_BOARDS, ZynqBoard
from tilewright.isa.config import PRESETS, NpuConfig
from tilewright.isa.timing import MemoryTiming


@dataclass(frozen=True)
class Clock:
    """A frequency in MHz, and where it comes from: the name of a board, or the option that gave it."""

    mhz: float
    source: str

    def milliseconds(self, cycles: int) -> float:
        return cycles / self.mhz / 1e3

    def describe(self, cycles: int) -> dict[str, Any]:
        """The fields of reports on a run of so many cycles: MHz, milliseconds, inferences per second."""
        ms = self.milliseconds(cycles)
        return {
            "clock_mhz": self.mhz,
            "clock_from": self.source,
            "milliseconds": ms,
            "inferences_per_second": 1e3 / ms if ms else None,
        }

    def sentence(self, cycles: int) -> str:
        """Describes time and clock for people."""
        found = self.describe(cycles)
        rate = found["inferences_per_second"]
        speed = f", {rate:,.{0 if rate >= 100 else 1}f} inferences/s" if rate else ""
        return f"{show(found['milliseconds'])} ms{speed} at {self.mhz:g} MHz ({self.source})"


def show(milliseconds: float) -> str:
    """Formats a number with three significant digits, or all digits before the point where there are more."""
    digits = 3 if milliseconds < 1 else 2 if milliseconds < 10 else 1 if milliseconds < 100 else 0
    return f"{milliseconds:,.{digits}f}"


def _points() -> Iterator[tuple[NpuConfig, Clock]]:
    """Configurations that the open flows build, with the clocks they reach."""
    boards: list[Board] = [*BOARDS.values(), *ZYNQ_BOARDS.values()]
    for board in boards:
        for name, point in board.points.items():
            yield PRESETS[name], Clock(point.clock_mhz, board.name)


def at_board(
    name: str, config: NpuConfig, mhz: float | None = None, memory: str | None = None
) -> tuple[float, MemoryTiming]:
    """The clock in MHz and the memory of a board's point of a machine, or of that point with others.

    Raises:
        FpgaError: no such board, or nothing is known of its memory, or it cannot have this clock or memory.
    """
    board = board_named(name)
    point = point_of(board, config, clock_mhz=mhz, memory=memory)
    if isinstance(board, ZynqBoard):
        return point.clock_mhz, board.memory_timing(config, point.clock_mhz)
    assert isinstance(board, UartBoard)
    return point.clock_mhz, board.memory_timing(config, point)


def clock_option(mhz: float | None) -> Clock | None:
    """The clock of the option --clock, None where it is not given."""
    return None if mhz is None else Clock(mhz, "--clock")


def clock_of(config: NpuConfig, given: Clock | None = None) -> Clock | None:
    """The clock of a machine.

    Args:
        config: the machine.
        given: what the user asks for; None takes the fastest board that is known to run this machine.

    Returns:
        None where no board is known and nothing is asked for.
    """
    if given is not None:
        return given
    known = [clock for built, clock in _points() if built.fingerprint == config.fingerprint]
    return max(known, key=lambda clock: clock.mhz, default=None)
