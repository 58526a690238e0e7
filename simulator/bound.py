"""The fewest cycles of a program, whatever is computed where and in which order, and each layer's part of them.

docs/simulators.md has the argument. The minimum work of the layers is in the program.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tilewright.isa.config import NpuConfig
from tilewright.isa.program import Layer
from tilewright.isa.timing import DEFAULT_MEMORY, MemoryTiming


def memory_cycles(
    layers: Sequence[Layer],
    config: NpuConfig,
    memory: MemoryTiming = DEFAULT_MEMORY,
    *,
    held: int = 0,
    kept: int = 0,
) -> int:
    """Cycles of the minimum traffic of layers: reads and writes have a channel each.

    Args:
        memory: memory timing; its intervals count, its latencies do not.
        held: bytes that may have been read before.
        kept: bytes that may be written later.
    """
    writes = sum(layer.minimum_writes for layer in layers)
    reads = sum(layer.minimum_bytes for layer in layers) - writes
    return max(
        _beats(reads - held, config.bus_bytes, memory.read_interval),
        _beats(writes - kept, config.bus_bytes, memory.write_interval),
    )


def _beats(nbytes: int, bus_bytes: int, interval: float) -> int:
    """The fewest cycles from the first to the last of the beats."""
    beats = -(-nbytes // bus_bytes)
    return math.floor((beats - 1) * interval) + 1 if beats > 0 else 0


def shares(layers: Sequence[Layer], config: NpuConfig, memory: MemoryTiming = DEFAULT_MEMORY) -> list[int]:
    """Divides the bound of a program among its layers in their order: the sum is what cannot be beaten.

    A layer's part is its steps of the array and, where memory takes longer than all steps, a part of the remaining
    cycles.
    """
    cuts = [0, *(k for k, layer in enumerate(layers) if layer.after_all and k), len(layers)]
    held = config.scratchpad_bytes
    kept = config.act_rows * config.block_in + config.acc_rows * config.block_out  # a sum in ACC becomes one byte
    best: list[tuple[int, int]] = [(0, 0)]  # cycles up to a cut, and the cut before it
    for last in range(1, len(cuts)):
        found = []
        for first in range(last):
            part = layers[cuts[first] : cuts[last]]
            steps = sum(layer.minimum_steps for layer in part)
            ends = {"held": held if first else 0, "kept": kept if last < len(cuts) - 1 else 0}
            found.append((best[first][0] + max(steps, memory_cycles(part, config, memory, **ends)), first))
        best.append(max(found))
    parts: list[int] = []
    last = len(cuts) - 1
    while last:
        total, first = best[last]
        parts = _divided(layers[cuts[first] : cuts[last]], total - best[first][0], config, memory) + parts
        last = first
    return parts


def _divided(layers: Sequence[Layer], cycles: int, config: NpuConfig, memory: MemoryTiming) -> list[int]:
    """Divides `cycles`, no fewer than all steps: those beyond the steps go to layers whose memory takes longer."""
    extra = cycles - sum(layer.minimum_steps for layer in layers)
    weights = [max(0, memory_cycles([layer], config, memory) - layer.minimum_steps) for layer in layers]
    found, given, seen = [], 0, 0
    for layer, weight in zip(layers, weights, strict=True):
        seen += weight
        upto = extra * seen // max(1, sum(weights))
        found.append(layer.minimum_steps + upto - given)
        given = upto
    return found


def bound_cycles(layers: Sequence[Layer], config: NpuConfig, memory: MemoryTiming = DEFAULT_MEMORY) -> int:
    """The fewest cycles the NPU's layers of a program can take with a memory."""
    return sum(shares([layer for layer in layers if layer.where == "npu"], config, memory))
