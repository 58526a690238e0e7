"""Speed of the entry points of a language model, and how much of the memory's bus they use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilewright.generate.conversation import Conversation
from tilewright.generate.feed import DECODE, PREFILL
from tilewright.isa.device import Counters
from tilewright.measure.clock import Clock, clock_of
from tilewright.measure.latency import Latency, latency
from tilewright.runtime.cost import run_npu_steps
from tilewright.simulator.cycle import CycleDevice


@dataclass(frozen=True)
class Speed:
    """A run of an entry point.

    Attributes:
        latency: of NPU, CPU and the border between them.
        runs: how many there were.
        bus_bytes: read and written by the NPU.
        bus_fraction: bytes read, of what the bus could read in the NPU's cycles; it writes at the same time.
    """

    latency: Latency
    runs: int
    bus_bytes: int
    bus_fraction: float

    @property
    def per_second(self) -> float | None:
        seconds = self.latency.seconds
        return 1 / seconds if seconds else None

    def to_dict(self) -> dict[str, Any]:
        return self.latency.to_dict() | {
            "runs": self.runs, "bus_bytes": self.bus_bytes, "bus_fraction": self.bus_fraction,
        }  # fmt: skip


def speeds(conversation: Conversation, clock: Clock | None) -> dict[str, Speed]:
    """The speed of each entry point that ran. Cycles and bytes depend on no value: a device without a clock needs
    only the simulator's.

    Args:
        clock: of the NPU; None for that of the fastest board known to run the configuration.
    """
    found = {}
    for name in (PREFILL, DECODE):
        if not conversation.runs[name]:
            continue
        entry = conversation.language.program.entry(name)
        counters: Counters | None = conversation.counters[name]
        if counters is None or counters.cycles is None:
            counters = run_npu_steps(entry, CycleDevice(entry.config, functional=False))
        cycles = counters.cycles or 0
        readable = cycles * entry.config.bus_bytes
        found[name] = Speed(
            latency([entry], cycles, clock_of(entry.config, clock)), conversation.runs[name],
            counters.bytes_read + counters.bytes_written, counters.bytes_read / readable if readable else 0.0,
        )  # fmt: skip
    return found
