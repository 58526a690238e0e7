"""Sums of counters."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.isa.device import Counters, EngineCounters


def add_counters(parts: Sequence[Counters]) -> Counters:
    """Adds counters of several runs; cycles are None if any part has none."""
    if len(parts) == 1:
        return parts[0]
    total = Counters(cycles=0 if parts else None)
    for c in parts:
        total.cycles = None if total.cycles is None or c.cycles is None else total.cycles + c.cycles
        total.macs += c.macs
        total.bytes_read += c.bytes_read
        total.bytes_written += c.bytes_written
        total.instructions += c.instructions
        for name, e in c.engines.items():
            sums = total.engines.setdefault(name, EngineCounters())
            sums.busy += e.busy
            sums.wait_semaphore += e.wait_semaphore
            sums.wait_memory += e.wait_memory
    return total
