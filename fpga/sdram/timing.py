"""Timing of the SDRAM in cycles of the NPU, for the compiler and the cycle-level simulator."""

from __future__ import annotations

from tilewright.fpga.sdram.chip import COMMAND_BITS, COMMAND_CYCLES
from tilewright.isa.config import NpuConfig
from tilewright.isa.timing import MemoryTiming

#: Cycles from the handshake on AR to the first beat, without the words of a beat: cycles of the NPU, of the chip.
#: Response after the last beat to write: the same, without the words of the beats that wait before it.
READ_CYCLES = (5, 16)
WRITE_CYCLES = (4, 10)
#: Latencies of reads and writes where the chip has the clock of the NPU and there is no queue between two clocks.
SHARED_READ_CYCLES, SHARED_WRITE_CYCLES = 14, 9


def sdram_timing(config: NpuConfig, clock_hz: int, memory_hz: int, *, shared: bool = False) -> MemoryTiming:
    """Memory timing by a rule fitted to docs/decisions/sdram.md: rows are open, there is no refresh, and beats come
    as fast as the chip gives words or the bus takes them.

    Args:
        config: width of the bus.
        clock_hz, memory_hz: clocks of the NPU and of the chip.
        shared: True if both are one clock.
    """
    ratio = clock_hz / memory_hz
    beat = COMMAND_CYCLES * config.bus_bytes * 8 / COMMAND_BITS  # cycles of the chip
    interval = max(1.0, beat * ratio)
    parts = ((0, SHARED_READ_CYCLES), (0, SHARED_WRITE_CYCLES)) if shared else (READ_CYCLES, WRITE_CYCLES)
    read, write = (round(near + (far + max(0, beat - COMMAND_CYCLES)) * ratio) for near, far in parts)
    return MemoryTiming(read_latency=read, write_latency=write, read_interval=interval, write_interval=interval)
