"""Timing shared by RTL, cycle-level simulator and the compiler's cost model. Units are cycles.

Latency constants are those of the RTL in `hw/`; its tests assert them.
"""

from __future__ import annotations

from dataclasses import dataclass

from isa.config import NpuConfig


@dataclass(frozen=True, kw_only=True)
class MemoryTiming:
    """External memory as the test memory and the cycle model see it; see `docs/machine.md`.

    Attributes:
        read_latency: cycles from the address handshake to the first data beat.
        write_latency: cycles from the last data beat to the response.
        read_interval, write_interval: cycles between beats, 1 = a beat every cycle.
    """

    read_latency: int = 64
    write_latency: int = 16
    read_interval: int = 1
    write_interval: int = 1

    def __post_init__(self) -> None:
        for name, low, high in (
            ("read_latency", 1, 4096),
            ("write_latency", 1, 4096),
            ("read_interval", 1, 64),
            ("write_interval", 1, 64),
        ):
            value = getattr(self, name)
            if type(value) is not int or not low <= value <= high:
                raise ValueError(f"{name} must be {low}..{high} cycles, not {value!r}")


def lower_bound_cycles(macs: int, memory_bytes: int, config: NpuConfig) -> int:
    """The fewest cycles a layer can take: `max(macs / macs_per_cycle, bytes / bytes_per_cycle)`, rounded up."""
    return max(-(-macs // config.macs_per_cycle), -(-memory_bytes // config.bus_bytes))
