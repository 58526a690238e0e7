"""Trials of how instructions are issued: loops that some instructions configure and others find as they were, engines
that give and take a semaphore in bursts, counters that overflow beside others, numbers of instructions above 2^15,
and what is not issued any more in a run that stops."""

from __future__ import annotations

import contextlib
import functools
import itertools
import random
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tilewright.isa.config import SEMAPHORE_LIMIT, NpuConfig
from tilewright.isa.device import Counters, DeviceError
from tilewright.isa.encoding import Op, op, to_bytes
from tilewright.isa.instructions import Engine, Memory, Source
from tilewright.isa.timing import MemoryTiming
from tilewright.simulator.cycle import CycleDevice
from verification.programs.error_cases import prepare
from verification.trials.directed import Run, trial
from verification.trials.limits import LATE, compared, stops, syncs
from verification.trials.limits import Run as FarRun
from verification.trials.trial import ENGINES, Make, Trial

#: Bursts that are tried for one in which engines meet in a way that is new, and the steps of what they wait for.
_BURSTS, _WAIT = 200, 400
#: Counts that a semaphore has when a burst begins, and how many more it can hold where it shall overflow.
_COUNTS, _ROOM = 12, 4
#: Programs with loops, their instructions with steps, and the steps of one at most.
_PROGRAMS, _NESTS, _STEPS = 24, 12, 40
#: Rows of ACT, WGT tiles, rows of PRM and ACC, in which loops move; results lie behind those of ACT.
_ROWS = {"act": 64, "wgt": 32, "acc": 16, "a": 64, "b": 64, "dst": 64, "prm": 6}
#: Numbers of instructions with which a program fills a region that ends within the addresses: each bit by itself is 0.
_LENGTHS = [0xFFE_FFFF & ~(1 << bit) for bit in range(28)]


def issue(config: NpuConfig) -> Iterator[Trial]:
    """Yields the trials, shortest first."""
    for number in range(0, _PROGRAMS, 4):
        programs = [_loops(engine, n, config) for n in range(number, number + 4) for engine in ("GEMM", "VECTOR")]
        yield trial("loops", number // 4, config, [Run(ops, timeout=20_000, data=_data(config)) for ops in programs])
    bursts = _bursts(config)
    for semaphore in range(1, config.semaphores + 1):
        yield trial("burst", semaphore, config, [Run(_burst(n, semaphore, config), watchdog=600) for n in bursts])
        full = [*_pairs(semaphore, config), *(_burst(n, semaphore, config, overflows=True) for n in range(6))]
        yield trial("full", semaphore, config, [Run(ops, timeout=20_000) for ops in full])
    fails = op("LOAD", region=6, count=1)  # before anybody looks at all of the program
    yield Trial("stopped", 0, functools.partial(_stopped, config))
    for number in range(0, len(_LENGTHS), 8):
        runs = [FarRun([fails, op("END")], length=length) for length in _LENGTHS[number : number + 8]]
        yield compared("lengths", number // 8, config, runs)
    for number, ops in enumerate(stops(config)):
        late = FarRun([*syncs(LATE + 9), *ops, op("END")])
        yield compared("above", number, config, [late, FarRun([*ops, op("END")])])


class _Nest:
    """The loops of an engine, as instructions have left them."""

    def __init__(self, engine: str, levels: int, zones: Sequence[str], rng: random.Random) -> None:
        self.name, self.rng = f"{engine}_LOOP", rng
        self.counts = [1] * levels
        self.strides = {zone: [0] * levels for zone in zones}

    def configure(self) -> Iterator[Op]:
        """Gives few levels, or one of them twice, other counts and strides; many have one iteration."""
        rng = self.rng
        for level in rng.choices(range(len(self.counts)), k=rng.choice([0, 1, 1, 2, 3])):
            self.counts[level] = 1
            room = _STEPS // int(np.prod(self.counts))
            self.counts[level] = min(room, rng.choice([1, 1, 1, 2, 2, 3, 4]))
            for zone, strides in self.strides.items():
                strides[level] = rng.randint(-3, 3)
                if sum(self._reach(zone)) >= _ROWS[zone]:
                    strides[level] = 0
            given = {f"{zone}_stride": strides[level] for zone, strides in self.strides.items()}
            yield op(self.name, level=level, count=self.counts[level], **given)

    def _reach(self, zone: str) -> tuple[int, int]:
        """Rows that its steps are away from the first one, before and behind it."""
        spans = [(n - 1) * stride for n, stride in zip(self.counts, self.strides[zone], strict=True)]
        return -sum(min(span, 0) for span in spans), sum(max(span, 0) for span in spans)

    def bases(self) -> dict[str, int]:
        """First rows with which all steps stay within their zones."""
        reach = {zone: self._reach(zone) for zone in self.strides}
        return {zone: self.rng.randint(low, _ROWS[zone] - 1 - high) for zone, (low, high) in reach.items()}


def _loops(engine: str, seed: int, config: NpuConfig) -> list[Op]:
    """Instructions of GEMM or VECTOR with loops that the ones before have left in part; each result is stored."""
    rng, width = random.Random(f"loops {engine} {seed}"), config.block_in
    act, prm = _ROWS["act"] * width, _ROWS["prm"] * Memory.PRM.row_bytes(config)
    ops = [
        op("LOAD", region=1, target=Memory.PRM, count=_ROWS["prm"]),
        op("LOAD", region=1, offset=prm, count=_ROWS["act"]),
        op("LOAD", region=1, offset=prm + act, target=Memory.WGT, count=_ROWS["wgt"], signal0=1, signal1=2),
        op("GEMM_SYNC", wait0=1),
        op("VECTOR_SYNC", wait0=2, signal0=3),
        op("VECTOR_POST", lo=-128, hi=127, add_lo=-128, add_hi=127),
        op("VECTOR_ADD", ma=1, mb=1),
    ]
    shown = _ROWS["dst"] if engine == "VECTOR" else max(1, _ROWS["acc"] * config.block_out // width)
    if engine == "GEMM":
        nest = _Nest(engine, config.gemm_loops, ("act", "wgt", "acc"), rng)
        ops.append(op("VECTOR_LOOP", level=0, count=shown, a_stride=1, dst_stride=1))
    else:
        nest = _Nest(engine, config.vector_loops, ("a", "b", "dst", "prm"), rng)
    for number in range(_NESTS):
        ops += nest.configure()
        values = nest.bases() | {"reduce": rng.randint(0, len(nest.counts))}
        if engine == "GEMM":
            ops.append(op("GEMM", **values, accumulate=rng.randint(0, 1), wait0=3, signal0=1))
            ops.append(op("VECTOR", dst=_ROWS["act"], wait0=1, signal0=2))
        else:
            source = rng.choice([Source.ACT, Source.MUL, Source.SUM, Source.MAX])
            values |= {"source": source, "dst": values["dst"] + _ROWS["act"], "add": rng.randint(0, 1)}
            ops.append(op("VECTOR", **values, wait0=3, signal0=2))
        offset = number * shown * width
        ops.append(op("STORE", region=2, offset=offset, row=_ROWS["act"], count=shown, wait0=2, signal0=3))
    return [*ops, op("END")]


def _data(config: NpuConfig) -> bytes:
    """Rows of PRM with a scale each, and small numbers, of which no sum saturates."""
    rng = np.random.default_rng(0)
    rows = np.zeros((_ROWS["prm"], config.block_in), np.dtype([("bias", "<i4"), ("scale", "<f4")]))
    rows["bias"] = np.arange(_ROWS["prm"])[:, None] * 3
    rows["scale"] = (1 + np.arange(_ROWS["prm"])[:, None] / 4) / 2
    numbers = _ROWS["act"] * config.block_in + _ROWS["wgt"] * config.tile_bytes
    return rows.tobytes() + rng.integers(-4, 5, numbers).astype(np.int8).tobytes()


def _bursts(config: NpuConfig) -> list[int]:
    """Bursts in which engines give a semaphore in the same cycle, while one takes it or none: each in a new way."""
    device, chosen = CycleDevice(config), []
    found: set[Any] = set()
    for number in range(_BURSTS):
        ops = _burst(number, 1, config)
        regions = prepare(device)
        device.write(regions[0].base, to_bytes(ops))
        with contextlib.suppress(DeviceError):
            device.run(regions, 0, 0, len(ops), watchdog=600, trace=True)
        assert device.trace is not None
        gives: dict[int, set[Engine]] = {}
        takes: dict[int, Engine] = {}
        for o, (_, _, started, ended) in zip(ops, device.trace.times.tolist(), strict=True):
            if started and 1 in (o["wait0"], o["wait1"]):
                takes[started] = o.instruction.engine
            if ended and 1 in (o["signal0"], o["signal1"]):
                gives.setdefault(ended + 1, set()).add(o.instruction.engine)
        patterns = {(frozenset(engines), takes.get(cycle)) for cycle, engines in gives.items()}
        if patterns - found:
            chosen.append(number)
        found |= patterns
    return chosen


def _burst(seed: int, semaphore: int, config: NpuConfig, *, overflows: bool = False) -> list[Op]:
    """All engines are held until their queues are full of instructions that give a semaphore and take it; then it must
    have what is left. Or they give it and others until it overflows."""
    rng = random.Random(f"burst {seed} {overflows}")
    shared, *numbers, finished, other, another = ((semaphore - 1 + n) % config.semaphores + 1 for n in range(8))
    held = dict(zip(ENGINES, numbers, strict=True))
    count = SEMAPHORE_LIMIT - rng.randint(1, _ROOM) if overflows else _COUNTS
    ops = [
        *[op("LOAD_SYNC", signal0=shared)] * count,
        op("GEMM_LOOP", level=0, count=_WAIT),
        op("GEMM", signal0=held["VECTOR"]),
        *[op("GEMM_SYNC")] * rng.randint(4, 10),  # VECTOR takes longest from an instruction to what it gives
        op("GEMM_SYNC", signal0=held["LOAD"], signal1=held["STORE"]),
        op("GEMM_SYNC", signal0=held["GEMM"]),
        *[op(f"{name}_SYNC", wait0=number) for name, number in held.items()],
        # Instructions of some steps: engines give every other cycle, now in this one and now in that one.
        *[op(f"{engine}_LOOP", level=0, count=rng.randint(1, 4)) for engine in ("GEMM", "VECTOR")],
        *[op("GEMM"), op("VECTOR"), op("LOAD_PAD", left=rng.randint(1, 4)), op("LOAD", region=1, count=0)],
    ]
    seldom = rng.choice([2, 4, 8, 20])  # takes; engines that want the same delay each other
    left = count
    for name in ENGINES * max(1, min(config.queue_depth, 16) - 4):
        pairs = {"signal": [(shared, 0), (0, shared), (0, 0)], "wait": [(shared, 0), (0, shared), *[(0, 0)] * seldom]}
        if overflows:
            few = (0, shared, other, another)
            pairs = {"signal": list(itertools.permutations(few, 2)), "wait": [(0, 0)]}
        values = {f"{kind}{n}": pair[n] for kind, some in pairs.items() for pair in [rng.choice(some)] for n in (0, 1)}
        left += (shared in (values["signal0"], values["signal1"])) - (shared in (values["wait0"], values["wait1"]))
        ops.append(op(f"{name}_SYNC", **values))
    ops += [op(f"{name}_SYNC", signal0=finished) for name in ENGINES]
    ops += [op("STORE_SYNC", wait0=finished)] * len(ENGINES)
    return [*ops, *[op("STORE_SYNC", wait0=shared)] * (0 if overflows else left + 1), op("END")]


def _pairs(semaphore: int, config: NpuConfig) -> Iterator[list[Op]]:
    """An instruction gives a semaphore that overflows, and one that does not."""
    for other in range(1, config.semaphores + 1):
        if other != semaphore:
            engine = ENGINES[(other + semaphore) % len(ENGINES)]
            one = op(f"{engine}_SYNC", signal0=other, signal1=semaphore)
            yield [*[op(f"{engine}_SYNC", signal0=semaphore)] * SEMAPHORE_LIMIT, one, op("END")]


def _stopped(config: NpuConfig, make: Make) -> str:
    """A run ends with an error while the memory has yet to answer what the next instructions wait for: these do not
    begin when it does, and nothing is written."""
    late = MemoryTiming(read_latency=900)
    stores = [op("STORE", region=2, count=60, row=row, offset=4 * row) for row in range(0, 240, 60)]
    waits = [op("LOAD", region=1, count=9, signal0=1), op("STORE_SYNC", wait0=1), *stores]
    for ops, watchdog, timeout in (
        (stores, 100, 5000),  # FETCH waits, then LOAD
        (stores, 2000, 100),
        (waits, 2000, 1400),
        ([*waits, op("VECTOR", dst=config.act_rows)], 2000, 5000),
        ([*waits, op("GEMM", acc=config.acc_rows)], 2000, 5000),
    ):
        run = Run([*ops, op("END")], timing=late, watchdog=watchdog, timeout=timeout)
        wanted = run.on(CycleDevice(config))[0]
        kept = Run([op("END")] * len(run.ops)).on(CycleDevice(config))[1]
        found, there = run.on(make(0))
        if found != wanted or isinstance(wanted, Counters):
            return f"{found}, not {wanted}"
        if there != kept:
            return f"something is written after {found}"
    return ""
