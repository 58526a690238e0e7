"""Trials made for what random programs seldom meet: operands beside a tie, engines that want the same semaphore in the
same cycle, errors and soft resets while the bus is at work."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

import numpy as np

from tilewright.hw.sim.device import RtlDevice
from tilewright.isa.config import NpuConfig
from tilewright.isa.device import Counters, Launch
from tilewright.isa.encoding import Op, op, to_bytes
from tilewright.isa.host import mask, run_values
from tilewright.isa.instructions import Memory, Rounding, Source
from tilewright.isa.timing import MemoryTiming
from tilewright.simulator.cycle import CycleDevice
from verification.programs.error_cases import outcome, prepare
from verification.programs.requantizer_operands import beside_ties, carries, random_operands
from verification.trials.directed import Run, scale_rows, trial
from verification.trials.trial import ENGINES, LIMIT, SEMAPHORES, Make, Trial

_PAIR_BYTES = 8  # of PRM: int32 bias, float32 scale


def corner_cases(config: NpuConfig) -> Iterator[Trial]:
    """Yields the trials, cheapest first."""
    yield trial("drain", 0, config, list(_drains()))
    yield Trial("quiet", 0, _quiet)
    yield Trial("quiet", 1, _quiet_after_reset)
    yield trial("again", 0, config, list(_again(config)))
    for number, pair in enumerate(itertools.combinations(ENGINES, 2)):
        yield trial("shared", number, config, [Run(ops) for ops in _shared(*pair, config)])
    for number in range(8):
        crowds = (Run(_crowd(100 * number + n, config)) for n in range(100))
        yield trial("crowd", number, config, list(itertools.islice((run for run in crowds if _ends(run, config)), 10)))
    for mode in Rounding:
        yield trial("numbers", 2 * mode, config, list(_ties(config, mode)))
        yield trial("numbers", 2 * mode + 1, config, list(_numbers(config, mode)))
        yield trial("carries", mode, config, list(_carries(config, mode)))


def _drains() -> Iterator[Run]:
    """An error while bursts are on their way, from memory and to it, and a run right after it."""
    busy = {
        "read": [op("LOAD", region=1, count=64, row=row, offset=4 * row) for row in (0, 64, 128, 192)],
        "write": [op("STORE", region=2, count=64, row=row, offset=4 * row) for row in (0, 64, 128, 192)],
    }
    for latency, kind in itertools.product((1, 30, 100, 900, 4000), busy):
        timing = MemoryTiming(read_latency=latency, write_latency=latency, read_interval=2, write_interval=2)
        for stop in ([op("GEMM", reduce=15)], [op("VECTOR_SYNC")] * 30 + [op("VECTOR", dst=(1 << 18) - 1)]):
            yield Run([*busy[kind], *stop, op("END")], timeout=30_000, timing=timing)
            after = [op("LOAD", region=1, count=3, signal0=1), op("STORE", region=2, count=3, wait0=1), op("END")]
            yield Run(after, watchdog=30_000, timeout=30_000, timing=timing)


#: A memory that answers so late that a machine that does not wait for it is seen to be early, in cycles.
_LATE = 1500


def _busy(make: Make, ops: list[Op], timing: MemoryTiming, **given: int) -> tuple[RtlDevice, bool]:
    """A machine that was made to run `ops`, and whether it has raised an interrupt."""
    device = make(0)
    device.timing, regions = timing, prepare(device)
    device.write(regions[0].base, to_bytes([*ops, op("END")]))
    return device, device.start(run_values(Launch(regions, 0, 0, len(ops) + 1, **given)))


def _quiet(make: Make) -> str:
    """The interrupt of an error comes when the memory has answered all it was asked."""
    late_reads, late_writes = MemoryTiming(read_latency=_LATE), MemoryTiming(write_latency=_LATE)
    for ops, timing, timeout, least in (
        ([op("LOAD", region=1, count=64)], late_reads, _LATE + 200, 2 * _LATE),  # the program is late as well
        ([op("STORE", region=2, count=64)], late_writes, 400, _LATE),
    ):
        device, raised = _busy(make, ops, timing, timeout=timeout)
        cycles = device.read_register("CYCLES_LO")
        if (
            not raised
            or not device.read_register("STATUS") & mask("STATUS", "ERROR")
            or not least <= cycles <= 2 * least
        ):
            return f"stopped by a timeout of {timeout} after {cycles} cycles, {least} at least wanted"
    return ""


def _quiet_after_reset(make: Make) -> str:
    """A soft reset lasts until the memory has answered all it was asked, and then everything runs."""

    def halfway(origin: int) -> RtlDevice:
        device = make(origin)
        device.limit = _LATE // 2
        return device

    device, raised = _busy(halfway, [op("VECTOR_SYNC")], MemoryTiming(read_latency=_LATE))
    device.limit = LIMIT
    device.write_register("CONTROL", mask("CONTROL", "SOFT_RESET"))
    reads = 0  # of a register, each of which takes at least two cycles and less than 16
    while device.read_register("STATUS") & mask("STATUS", "RESETTING") and reads < _LATE:
        reads += 1
    if raised or not _LATE // 32 <= reads < _LATE:
        return f"a soft reset took {reads} reads of a register"
    device.timing = MemoryTiming()
    return "" if outcome(device, to_bytes([op("END")])) is None else "a run after a soft reset fails"


def _shared(one: str, other: str, config: NpuConfig) -> Iterator[list[Op]]:
    """Two engines wait for the same semaphore, which is given once, and later once more."""
    giver = next(name for name in ("LOAD", "STORE", "GEMM") if name not in (one, other))
    late = {"LOAD": op("LOAD", region=1, count=40), "STORE": op("STORE", region=2, count=40)}.get(giver, op("GEMM"))
    for semaphore in range(1, config.semaphores + 1):
        spare = semaphore % config.semaphores + 1
        for both in ("wait0", "wait1"):
            give = op(f"{giver}_SYNC", signal0=semaphore)
            other_wait = {"wait0": "wait1", "wait1": "wait0"}[both]
            yield [
                *[op(f"{giver}_SYNC", signal0=spare)] * 2,
                late,
                op(f"{one}_SYNC", **{both: semaphore}),
                op(f"{other}_SYNC", **{both: semaphore, other_wait: spare}),
                give,
                late,
                give,
                op("END"),
            ]


def _ends(run: Run, config: NpuConfig) -> bool:
    """Returns whether a program ends in whatever order engines take what they share: the functional simulator has an
    order of its own."""
    return isinstance(run.on(CycleDevice(config))[0], Counters)


def _crowd(seed: int, config: NpuConfig) -> list[Op]:
    """All engines give and take few semaphores; a wait may last for ever."""
    rng = random.Random(f"crowd {seed}")
    few = rng.sample(range(1, config.semaphores + 1), rng.choice([2, 3, 4]))
    ops = [op(f"{engine}_SYNC", signal0=few[0], signal1=few[1]) for engine in ENGINES]
    for _ in range(rng.randint(20, 80)):
        names = dict.fromkeys(SEMAPHORES, 0)
        waits, signals = rng.sample(few, rng.choice([0, 1, 1, 2])), rng.sample(few, rng.choice([0, 1, 2, 2]))
        for kind, chosen in (("wait", waits), ("signal", signals)):
            for place, semaphore in zip(rng.sample((0, 1), len(chosen)), chosen, strict=True):
                names[f"{kind}{place}"] = semaphore
        ops.append(op(f"{rng.choice(ENGINES)}_SYNC", **names))
    return [*ops, op("END")]


def _ties(config: NpuConfig, mode: Rounding) -> Iterator[Run]:
    """Runs with values beside a tie, the same in all lanes."""
    pairs = np.array(beside_ties(), np.int64)
    for first in range(0, len(pairs), config.prm_rows):
        rows = np.repeat(pairs[first : first + config.prm_rows, None], config.block_in, axis=1)
        yield _requantized(rows, mode, (0, -128, 127))


def _again(config: NpuConfig) -> Iterator[Run]:
    """An accumulator is added to one to six cycles after it was written; all its bits are looked at."""
    rng = np.random.default_rng(0)
    for distance, exponent in itertools.product(range(1, 7), range(0, 20, 4)):
        largest = 127 if exponent > 8 else 1 << exponent // 2  # what is added is about as large as what is shown
        rest = rng.integers(-largest, largest + 1, 40 * config.block_in + config.tile_bytes).astype(np.int8)
        weights = _PAIR_BYTES * config.block_in + 40 * config.block_in
        ops = [
            op("LOAD", region=1, target=Memory.PRM, count=1),
            op("LOAD", region=1, offset=_PAIR_BYTES * config.block_in, count=40),
            op("LOAD", region=1, target=Memory.WGT, offset=weights, count=1, signal0=1),
            op("GEMM_LOOP", level=0, count=distance, act_stride=1, acc_stride=1),
            op("GEMM", wait0=1),
            op("GEMM_LOOP", level=1, count=5, act_stride=distance),
            op("GEMM", act=1, accumulate=1, signal0=2),
            op("VECTOR_LOOP", level=0, count=distance, a_stride=1, dst_stride=1),
            op("VECTOR_POST", lo=-128, hi=127),
            op("VECTOR", dst=64, wait0=2, signal0=3),
            op("STORE", region=2, row=64, count=distance, wait0=3),
            op("END"),
        ]
        yield Run(ops, data=scale_rows(config, 2.0**-exponent) + rest.tobytes())


def _carries(config: NpuConfig, mode: Rounding) -> Iterator[Run]:
    """Products that are rounded to a power of two, other ones in each lane."""
    for seed in range(8):
        pairs = np.array(carries(config.prm_rows * config.block_in, np.random.default_rng([seed, mode])), np.int64)
        yield _requantized(pairs.reshape(config.prm_rows, config.block_in, 2), mode, (0, -128, 127))


def _numbers(config: NpuConfig, mode: Rounding) -> Iterator[Run]:
    """Random operands, other ones in each lane."""
    for seed in range(24):
        found = random_operands(config.prm_rows * config.block_in, np.random.default_rng([seed, mode]))
        pairs = np.stack([found["acc"], found["scale"]], axis=-1).reshape(config.prm_rows, config.block_in, 2)
        low, high = sorted((int(found["low"][0]), int(found["high"][0])))
        yield _requantized(pairs, mode, (int(found["zero_point"][0]), low, high))


def _requantized(pairs: np.ndarray, mode: Rounding, post: tuple[int, int, int]) -> Run:
    """A program that requantises biases alone: the product they are added to is 0.

    Args:
        pairs: int64 [rows, lanes, 2], bias and pattern of the scale.
        post: zero point and limits of the results.
    """
    data = np.zeros(pairs.shape[:2], np.dtype([("bias", "<i4"), ("scale", "<u4")]))
    data["bias"], data["scale"] = pairs[..., 0], pairs[..., 1]
    rows = len(pairs)
    ops = [
        op("LOAD", region=1, target=Memory.PRM, count=rows, signal0=1),
        op("VECTOR_POST", zp=post[0], lo=post[1], hi=post[2]),
        op("VECTOR_LOOP", level=0, count=rows, dst_stride=1, prm_stride=1),
        op("VECTOR", source=Source.MUL, dst=1, rounding=mode, wait0=1, signal0=2),
        op("STORE", region=2, row=1, count=rows, wait0=2),
        op("END"),
    ]
    return Run(ops, timeout=20_000, data=data.tobytes())
