"""Trials of engines that give the same semaphore in the same cycle, while another one takes it or none does: every way
in which a counter can change, for each semaphore."""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from tilewright.isa.config import NpuConfig
from tilewright.isa.device import DeviceError
from tilewright.isa.encoding import Op, op, to_bytes
from tilewright.simulator.cycle import CycleDevice
from verification.programs.error_cases import prepare
from verification.trials.directed import Run, trial
from verification.trials.trial import ENGINES, SEMAPHORES, Trial

#: The semaphore they meet at, those by which engines are held until all are ready, one that tells that they have met.
_MEET, _HELD, _MET = 1, (2, 3, 4, 5), 6
#: Cycles from what is given to the start of who takes it: around those in which both change the counter.
_APART = range(-2, 3)
#: Times that the engines are moved against each other, and by how many cycles an instruction does that.
_TRIES, _CYCLES = 4, 2


def simultaneous_gives(config: NpuConfig) -> Iterator[Trial]:
    """The trials, one for each semaphore."""
    for semaphore in range(1, config.semaphores + 1):
        runs = (Run(_renumbered(ops, semaphore, config), watchdog=250) for ops in _meetings(config))
        yield trial("met", semaphore, config, list(runs))


def _renumbered(ops: Sequence[Op], semaphore: int, config: NpuConfig) -> list[Op]:
    """The same program, which meets at another semaphore."""
    other = [0, *((semaphore - 1 + n) % config.semaphores + 1 for n in range(config.semaphores))]
    return [replace(o, values=o.values | {n: other[o[n]] for n in SEMAPHORES if o[n]}) for o in ops]


@functools.cache
def _meetings(config: NpuConfig) -> list[list[Op]]:
    """Programs in which some engines meet, all subsets of them, and another one takes at about that time, or none."""
    found = []
    for count in range(1, len(ENGINES) + 1):
        for givers in itertools.combinations(ENGINES, count):
            taker = next((name for name in ENGINES if name not in givers), "")
            takers = [(taker, apart) for apart in _APART] if taker else []
            found += [_aligned(config, givers, *how) for how in [("", 0), *takers]]
    return [ops for ops in found if ops is not None]


def _aligned(config: NpuConfig, givers: Sequence[str], taker: str, apart: int) -> list[Op] | None:
    """A program in which all givers complete what they give in the same cycle, and the taker starts `apart` cycles
    later; None if none of the tries does."""
    device, names = CycleDevice(config), [*givers, *([taker] if taker else [])]
    for held in itertools.permutations(_HELD, len(names)):  # one earlier, another one later
        idle = dict.fromkeys(names, 1)
        for _ in range(_TRIES):
            ops, places = _program(idle, held, givers, taker)
            times = _times(device, ops)
            ready = {name: int(times[place][3]) for name, place in places.items() if name in givers}
            if taker:
                ready[taker] = int(times[places[taker]][2]) - apart
            late = max(ready.values())
            if min(ready.values()) == late:
                return ops
            idle = {name: count + (late - ready[name]) // _CYCLES for name, count in idle.items()}
            if max(idle.values()) > config.queue_depth:
                break
    return None


def _program(
    idle: dict[str, int], held: Sequence[int], givers: Sequence[str], taker: str
) -> tuple[list[Op], dict[str, int]]:
    """The program with so many instructions before an engine gives or takes, and where those are that do."""
    ops = [
        op("LOAD_SYNC", signal0=_MEET),
        op("LOAD", region=1, count=60, signal0=_HELD[0]),
        *(op("LOAD_SYNC", signal0=semaphore) for semaphore in _HELD[1:]),
    ]
    places = {}
    for (name, count), semaphore in zip(idle.items(), held, strict=True):
        ops += [op(f"{name}_SYNC", wait0=semaphore), *[op(f"{name}_SYNC")] * count]
        places[name] = len(ops)
        ops.append(op(f"{name}_SYNC", **({"wait0": _MEET} if name == taker else {"signal0": _MEET})))
    # Then the counter must have what it should have: it is taken so often, and once more, which ends the run.
    left = 1 + len(givers) - bool(taker)
    ops += [op("GEMM_LOOP", count=100), op("GEMM", signal0=_MET), op("STORE_SYNC", wait0=_MET)]
    return [*ops, *[op("STORE_SYNC", wait0=_MEET)] * (left + 1), op("END")], places


def _times(device: CycleDevice, ops: Sequence[Op]) -> np.ndarray:
    """`Trace.times` of a program that waits for ever at its end."""
    regions = prepare(device)
    device.write(regions[0].base, to_bytes(ops))
    with contextlib.suppress(DeviceError):
        device.run(regions, 0, 0, len(ops), watchdog=250, trace=True)
    assert device.trace is not None
    return device.trace.times
