"""Trials that use all bits of what instructions count: levels of nests, boxes, long runs, full queues, long waits."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from tilewright.isa.config import NpuConfig
from tilewright.isa.device import Region
from tilewright.isa.encoding import Op, op
from tilewright.isa.instructions import Memory, Source
from tilewright.isa.timing import MemoryTiming
from verification.programs.error_cases import SIZE
from verification.trials import directed as directed
from verification.trials.directed import scale_rows, trial
from verification.trials.limits import Run, compared
from verification.trials.trial import ENGINES, Trial

#: Counts of 16 bits: every bit is 1 in one and 0 in the next.
COUNTS = (0xFFFF, 0xAAAA, 0x5555)
#: Cycles after which a long nest is ended by the timeout.
_ENOUGH = 400
#: A window for the longest run, where no memory is; and one for none.
_OPEN, _CLOSED = Region(0x4000_0000, 0x3FFF_FFFF, read=True, write=True), Region(0x4000_0000, 0)
_FAST = MemoryTiming(read_latency=1, write_latency=1)


def full_width(config: NpuConfig) -> Iterator[Trial]:
    """Yields the trials, cheapest first."""
    yield compared("queued", 0, config, [Run(_queued(engine, config)) for engine in ENGINES])
    yield compared("nests", 0, config, [Run(ops, timeout=_ENOUGH) for ops in _nests(config)])
    yield compared("boxes", 0, config, [Run(ops, {3: _OPEN, 4: _CLOSED}) for ops in _boxes()])
    yield compared("edges", 0, config, list(_edges(config)))
    yield compared("waits", 0, config, [Run([op("VECTOR_SYNC", wait0=1), op("END")], watchdog=w) for w in _WAITS])
    yield trial("windows", 0, config, list(_windows(config)))
    for number, ops in enumerate(_long_nests()):
        yield compared("long", number, config, [Run([*ops, op("END")])])
    for number, ops in enumerate(_long_boxes(), 2):
        yield compared("long", number, config, [Run([*ops, op("END")], watchdog=80_000, timing=_FAST)], fresh=True)


#: Watchdogs, the longest with a wait of more than 2^17 cycles.
_WAITS = (140_000, 3)


def _queued(engine: str, config: NpuConfig) -> list[Op]:
    """Instructions that wait for another engine until their queue is full."""
    other = "LOAD" if engine != "LOAD" else "STORE"
    late = op(other, region=2, count=400, signal0=1)
    return [late, op(f"{engine}_SYNC", wait0=1), *[op(f"{engine}_SYNC")] * (2 * config.queue_depth), op("END")]


def _nests(config: NpuConfig) -> Iterator[list[Op]]:
    """A level counts down from so much while all others count 1. None of them ends by itself."""
    for level in range(config.gemm_loops):
        for count in COUNTS:
            yield [op("GEMM_LOOP", level=level, count=count), op("GEMM", reduce=level), op("END")]
    for level in range(config.vector_loops):
        for count in COUNTS:
            yield [op("VECTOR_LOOP", level=level, count=count), op("VECTOR"), op("END")]


def _windows(config: NpuConfig) -> Iterator[directed.Run]:
    """DEPTHWISE with the largest starts and steps, in one level and in the other; what it makes is written."""
    if not config.depthwise:
        return
    data = scale_rows(config, 2.0**-9)  # what is behind it is random
    rows = min(config.act_rows, SIZE // 2 // config.block_in)
    for first, step in ((63, 15), (42, 10), (21, 5), (0, 1)):
        for start, other in itertools.permutations(((first, step), (0, 1))):
            counts = [s + 2 * t + 1 for s, t in (start, other)]
            names = {f"start{k}": s for k, (s, _) in enumerate((start, other))}
            names |= {f"step{k}": t for k, (_, t) in enumerate((start, other))}
            ops = [
                op("LOAD", region=1, target=Memory.PRM, count=1),
                op("LOAD", region=1, offset=len(data), count=rows),
                op("LOAD", region=1, target=Memory.WGT, offset=SIZE // 2, count=1, signal0=1),
                op("GEMM_LOOP", level=0, count=counts[0], act_stride=1, acc_stride=1),
                op("GEMM_LOOP", level=1, count=counts[1], act_stride=1, acc_stride=3),
                op("DEPTHWISE", wait0=1, signal0=2, **names),
                op("VECTOR_LOOP", level=0, count=9, a_stride=1, dst_stride=1),
                op("VECTOR_POST", lo=-128, hi=127),
                op("VECTOR", source=Source.ACC, wait0=2, signal0=3),
                op("STORE", region=2, count=9, wait0=3),
                op("END"),
            ]
            yield directed.Run(ops, data=data)


def _boxes() -> Iterator[list[Op]]:
    """Boxes of many lines, planes and rows, whose first run is refused (region 4) or has no memory (3)."""
    for name in ("LOAD", "STORE"):
        for count in COUNTS:
            for level in range(2):
                yield [op(f"{name}_DIM", level=level, count=count), op(name, region=4, count=1), op("END")]
            yield [op(name, region=3, count=count), op("END")]
            yield [op(name, region=3, count=count, offset=3), op("END")]
    for target in Memory:
        for count in COUNTS:
            yield [op("LOAD", target=target, region=3, count=count), op("END")]
    for count in COUNTS:
        yield [op("LOAD_DIM", level=0, count=count), op("LOAD_PAD", top=255), op("LOAD", region=4, count=1), op("END")]


def _edges(config: NpuConfig) -> Iterator[Run]:
    """The last beat of a window, where no memory is, and the byte behind it."""
    for size in (0x7FFF_FFE0, 0xAAAA_AAA0, 0x5555_5540, 0xFFFF_FFE0):
        for name, outside in itertools.product(("LOAD", "STORE"), (0, 1)):
            last = op(name, region=3, count=1, offset=size - config.block_in + outside)
            yield Run([last, op("END")], {3: Region(0, size, read=True, write=True)})


def _long_nests() -> Iterator[list[Op]]:
    """Nests that count to 2^16 and end."""
    yield [
        op("GEMM_LOOP", level=1, count=255),
        op("GEMM_LOOP", level=3, count=257),
        op("GEMM_LOOP", level=4, count=1),
        op("GEMM", reduce=2),
        op("GEMM_LOOP", level=1, count=1),
        op("GEMM_LOOP", level=3, count=1),
        op("GEMM_LOOP", level=2, count=0xFFFF),
        op("GEMM"),
    ]
    yield [op("VECTOR_LOOP", level=1, count=0x8001), op("VECTOR")]


def _long_boxes() -> Iterator[list[Op]]:
    """Boxes of 2^16 - 1 lines or planes that are walked to the end: filled ones, then such as move bytes."""
    yield [op("LOAD_PAD", left=1, top=255, bottom=255), op("LOAD_DIM", level=0, count=0xFFFF), op("LOAD", region=1)]
    yield [op("LOAD_PAD", left=1), op("LOAD_DIM", level=1, count=0xFFFF), op("LOAD", region=1)]
    for name, region in (("LOAD", 1), ("STORE", 2)):
        for level in range(2):
            yield [op(f"{name}_DIM", level=level, count=0x8001), op(name, region=region, count=1)]
