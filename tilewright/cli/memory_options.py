"""The options that say which memory and clock the NPU has, for commands that compile or explain."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import click

from tilewright.cli.arguments import Command, FloatRange
from tilewright.errors import UsageError
from tilewright.isa.config import NpuConfig
from tilewright.isa.timing import DEFAULT_MEMORY, MemoryTiming

if TYPE_CHECKING:
    from tilewright.measure.clock import Clock

_latency_option = click.option(
    "--latency",
    type=click.IntRange(1, 4096),
    help=f"Cycles from a read request to its first beat; default: {DEFAULT_MEMORY.read_latency}, or the board's.",
)
_interval_option = click.option(
    "--interval",
    type=FloatRange(1, 64),
    help=f"Cycles between beats, such as 2.5; default: {DEFAULT_MEMORY.read_interval}, or the board's.",
)
_board_option = click.option(
    "--board", metavar="BOARD", help="Memory and clock of this board's point of the configuration; see `fpga boards`."
)
_memory_option = click.option("--memory", metavar="bram|sdram", help="Another memory of the board.")


@dataclass(frozen=True, kw_only=True)
class MemoryOptions:
    """Options for the clock of the NPU, in MHz, and for its external memory.

    Attributes:
        clock_mhz: of the NPU.
        board: whose point of the configuration says both; `memory` is another one of its memories.
        latency: cycles from a read request to its first beat.
        interval: cycles between beats.
    """

    clock_mhz: float | None = None
    board: str | None = None
    memory: str | None = None
    latency: int | None = None
    interval: float | None = None

    @property
    def names_memory(self) -> bool:
        """Whether an option says which memory the NPU has."""
        return any(given is not None for given in (self.board, self.memory, self.latency, self.interval))

    def clock_and_memory(self, config: NpuConfig) -> tuple[Clock | None, MemoryTiming]:
        """Returns clock and memory of a machine; no clock where no option names one.

        Raises:
            FpgaError: no such board, or it cannot have this clock or memory. UsageError: a memory of no board.
        """
        clock, timing = None, DEFAULT_MEMORY
        if self.memory is not None and self.board is None:
            raise UsageError(f"--memory {self.memory} is one of a board's: it is for --board, which is not given")
        if self.clock_mhz is not None or self.board is not None:
            from tilewright.fpga.board import MEMORIES  # the RTL of all boards: half a second
            from tilewright.measure.clock import Clock, at_board, clock_option

            clock = clock_option(self.clock_mhz)
            if self.board is not None:
                if self.memory is not None and self.memory not in MEMORIES:
                    raise UsageError(f"--memory must be {' or '.join(MEMORIES)}, not {self.memory!r}")
                mhz, timing = at_board(self.board, config, self.clock_mhz, self.memory)
                clock = clock or Clock(mhz, self.board)
        if self.latency is not None:
            timing = replace(timing, read_latency=self.latency)
        if self.interval is not None:
            timing = replace(timing, read_interval=self.interval, write_interval=self.interval)
        return clock, timing


def options(command: Command) -> Command:
    """The memory beside the NPU: --board, --memory, --latency and --interval, as `MemoryOptions` has them."""
    for option in (_interval_option, _latency_option, _memory_option, _board_option):
        command = option(command)
    return command
