"""Cycles of the zoo's networks on the cycle-level simulator, beside bounds, targets and another NPU's estimates.

Memory: `MemoryTiming()`, the first beat 64 cycles after its request, then one per cycle; or that of a board. The
columns `bar` and `stretch` are what this project aims at with `base`; `U65-256` is what Arm's Vela estimates for an
Ethos-U65 with as many MACs per cycle, for orientation: another machine, memory and model of time.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tilewright import zoo
from tilewright.api.compilation import compile_program
from tilewright.isa.config import NpuConfig
from tilewright.isa.timing import DEFAULT_MEMORY, MemoryTiming
from tilewright.measure.clock import Clock, clock_of
from tilewright.measure.explain import performance
from tilewright.runtime.devices import Device
from tilewright.runtime.inputs import random_inputs
from tilewright.simulator.bound import bound_cycles


@dataclass(frozen=True)
class Target:
    """A network and what its cycles are compared with, in thousands; None: no estimate is known."""

    network: str
    bar: int
    stretch: int
    u65: int | None = None
    quick: bool = False


TARGETS = (
    Target("resnet8", 65, 55, 104, quick=True),
    Target("ds_cnn", 27, 20, 54, quick=True),
    Target("vww", 85, 60, 147, quick=True),
    Target("autoencoder", 39, 34, 41, quick=True),
    Target("mobilenet_v2", 2500, 1750, 3405),
    Target("resnet18", 7900, 7300),
    Target("resnet50", 18500, 16500),
)


def measure(
    machine: NpuConfig,
    timing: MemoryTiming = DEFAULT_MEMORY,
    *,
    quick: bool = False,
    clock: Clock | None = None,
    progress: Callable[..., None] = lambda *_: None,
) -> list[dict[str, Any]]:
    """One entry per network.

    Args:
        machine, timing: the NPU and its memory.
        quick: leaves out the large networks.
        clock: for times; by default that of the fastest board known to run the machine.
        progress: told what is measured.
    """
    found = []
    chosen = [t for t in TARGETS if t.quick or not quick]
    for index, target in enumerate(chosen):
        progress(f"measuring {target.network}", index, len(chosen))
        program = compile_program(
            zoo.build_quantized(target.network), machine, memory=timing, cache=False, tuning="off"
        )
        inputs = random_inputs(program)
        with Device("cycle", timing=timing) as device:
            device.load(program)
            start = time.perf_counter()
            device.run(program, inputs)
            seconds = time.perf_counter() - start
            assert device.counters is not None
            bound = bound_cycles(program.layers, program.config, timing)
            entry: dict[str, Any] = {"network": target.network, "config": program.config.name, "macs": program.macs}
            entry |= performance(device.counters, bound)
            if (known := clock_of(program.config, clock)) is not None:
                entry |= known.describe(device.counters.cycles or 0)
        entry |= {"bar_cycles": 1000 * target.bar, "stretch_cycles": 1000 * target.stretch}
        entry["ethos_u65_256_cycles"] = 1000 * target.u65 if target.u65 else None
        entry |= {"compile_seconds": program.compile_seconds, "run_seconds": seconds}
        found.append(entry)
    return found
