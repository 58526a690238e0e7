"""The options that say which memory and clock the NPU has, for commands that compile or explain."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import click

from isa.config import NpuConfig
from isa.timing import DEFAULT_MEMORY, MemoryTiming
from tilewright.cli.arguments import Command
from tilewright.errors import UsageError

if TYPE_CHECKING:
    from tilewright.measure.clock import Clock

_latency_option = click.option(
    "--latency",
    type=click.IntRange(1, 4096),
    help=f"Cycles from a read request to its first beat; default: {DEFAULT_MEMORY.read_latency}, or the board's.",
)
_interval_option = click.option(
    "--interval",
    type=click.FloatRange(1, 64),
    help=f"Cycles between beats, such as 2.5; default: {DEFAULT_MEMORY.read_interval}, or the board's.",
)
_board_option = click.option(
    "--board", metavar="BOARD", help="Memory and clock of this board's point of the configuration; see `fpga boards`."
)
_memory_option = click.option("--memory", metavar="bram|sdram", help="Another memory of the board.")


def options(command: Command) -> Command:
    """The memory beside the NPU: --board, --memory, --latency and --interval, for `clock_and_memory`."""
    for option in (_interval_option, _latency_option, _memory_option, _board_option):
        command = option(command)
    return command


def clock_and_memory(
    config: NpuConfig,
    clock_mhz: float | None,
    board: str | None,
    memory: str | None,
    latency: int | None,
    interval: float | None,
) -> tuple[Clock | None, MemoryTiming]:
    """What `options` say: the clock, None if nothing is said of it, and the memory.

    Raises:
        FpgaError: no such board, or it cannot have this clock or memory. UsageError: a memory of no board.
    """
    clock, timing = None, DEFAULT_MEMORY
    if memory is not None and board is None:
        raise UsageError(f"--memory {memory} is one of a board's: it is for --board, which is not given")
    if clock_mhz is not None or board is not None:
        from fpga.board import MEMORIES  # the RTL of all boards: half a second
        from tilewright.measure.clock import Clock, asked, at_board

        clock = asked(clock_mhz)
        if board is not None:
            if memory is not None and memory not in MEMORIES:
                raise UsageError(f"--memory must be {' or '.join(MEMORIES)}, not {memory!r}")
            mhz, timing = at_board(board, config, clock_mhz, memory)
            clock = clock or Clock(mhz, board)
    if latency is not None:
        timing = replace(timing, read_latency=latency)
    if interval is not None:
        timing = replace(timing, read_interval=interval, write_interval=interval)
    return clock, timing
