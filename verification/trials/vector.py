"""Trials of VECTOR and of the ends of GEMM, in which every bit of what is computed shows: sums, the integer Add, its
limits, what lies beside a tie; long counts; and what a run that stops leaves in memories."""

from __future__ import annotations

import functools
import itertools
import random
from collections.abc import Iterator, Sequence

import numpy as np

from tilewright.hw.sim.device import RtlDevice
from tilewright.isa.config import NpuConfig
from tilewright.isa.device import Launch
from tilewright.isa.encoding import Op, op, to_bytes
from tilewright.isa.host import counters_of, error_of, readable, run_values
from tilewright.isa.instructions import BY_NAME, Memory, Rounding, Source
from tilewright.simulator.cycle import CycleDevice, simulate
from verification.programs.error_cases import SIZE, prepare
from verification.trials.directed import Run, scale_rows, trial
from verification.trials.trial import LIMIT, Make, Trial

#: Instructions of a program, at most.
_ROOM = SIZE // 16 - 24
#: The rows of ACT that programs begin with: for every byte v, one with v, v + 1, v - 1, v + 2, and so on.
_AROUND = (0, 1, -1, 2)
_END = {"lo": -128, "hi": 127, "add_lo": -128, "add_hi": 127}
_MASK = (1 << 32) - 1


def vector(config: NpuConfig) -> Iterator[Trial]:
    """Yields the trials, cheapest first."""
    yield Trial("stops", 0, functools.partial(_stops, config))
    yield trial("fresh", 0, config, list(_fresh(config)))
    yield trial("sums", 0, config, list(_sums(config)))
    yield Trial("whole", 0, functools.partial(_whole_vectors, config))
    yield Trial("whole", 1, functools.partial(_whole_sums, config))
    yield Trial("whole", 2, functools.partial(_whole_windows, config))
    for number, steps in enumerate((_factors(), _limits(), _single_bits())):
        yield trial("added", number, config, list(_added(list(steps), config)))
    for mode in Rounding:
        yield trial("inside", mode, config, list(_inside(config, mode)))
    yield trial("counted", 0, config, [Run([*ops, op("END")], timeout=LIMIT) for ops in _counted(config)])


# What is computed.


def _sums(config: NpuConfig) -> Iterator[Run]:
    """Sums and maxima of few rows and of many, in one level and in two, with scales that show their bits."""
    exponents = range(0, 20, 2)
    prm = scale_rows(config, *(2.0**-e for e in exponents))
    ops = [
        op("LOAD", region=1, target=Memory.PRM, count=len(exponents)),
        op("LOAD", region=1, offset=len(prm), count=1024, signal0=1),
        op("VECTOR_POST", **_END),
        op("VECTOR_SYNC", wait0=1),
    ]
    dst = 2048
    for inner, middle, outer in ((1, 1, 2), (2, 1, 3), (3, 2, 2), (5, 1, 7), (40, 3, 2), (500, 1, 2)):
        counts = (inner, middle, outer)
        for level, (count, stride) in enumerate(zip(counts, (1, 0, 7), strict=True)):
            ops.append(op("VECTOR_LOOP", level=level, count=count, a_stride=stride, dst_stride=stride // 7))
        for source, exponent in itertools.product((Source.SUM, Source.MAX), exponents[: 2 + inner.bit_length() // 2]):
            ops.append(op("VECTOR", source=source, reduce=2, dst=dst, prm=exponent // 2))
            dst += outer
    ops += [op("VECTOR_SYNC", signal0=2), op("STORE", region=2, row=2048, count=dst - 2048, wait0=2), op("END")]
    yield Run(ops, timeout=LIMIT, data=prm)


def _added(steps: Sequence[tuple[dict[str, int], dict[str, int], int, int]], config: NpuConfig) -> Iterator[Run]:
    """Programs with a VECTOR for each of the steps, which are: constants of VECTOR_POST and of VECTOR_ADD, or none, and
    the bytes a and b. Each is made with Add and, from the requantiser with a scale of 1, without."""
    around = np.add.outer(np.arange(256), np.resize(_AROUND, config.block_in)).astype(np.uint8)
    data = scale_rows(config, 1) + around.tobytes()
    for first in range(0, len(steps), _ROOM // 4):
        some = steps[first : first + _ROOM // 4]
        ops = [
            op("LOAD", region=1, target=Memory.PRM, count=1),
            op("LOAD", region=1, offset=len(data) - around.size, count=256, signal0=1),
            op("VECTOR_SYNC", wait0=1),
        ]
        for number, (post, add, a, b) in enumerate(some):
            rows = {"a": a & 255, "b": b & 255}
            ops += [op("VECTOR_POST", **_END | post), op("VECTOR_ADD", **add)]
            ops.append(op("VECTOR", source=Source.ACT, add=1, dst=256 + 2 * number, **rows))
            ops.append(op("VECTOR", source=Source.SUM, dst=257 + 2 * number, **rows))
        ops += [op("VECTOR_SYNC", signal0=2), op("STORE", region=2, row=256, count=2 * len(some), wait0=2), op("END")]
        yield Run(ops, timeout=20_000, data=data)


def _signed(value: int) -> int:
    """Wrapped to an int32."""
    return ((value + (1 << 31)) & _MASK) - (1 << 31)


def _single_bits() -> Iterator[tuple[dict[str, int], dict[str, int], int, int]]:
    """Sums about a power of two, and about its negative, with every shift."""
    for bit, sign, shift in itertools.product(range(32), (1, -1), range(32)):
        yield {}, {"c": _signed(sign << bit), "ma": 1, "shift": shift}, 0, 0


def _limits() -> Iterator[tuple[dict[str, int], dict[str, int], int, int]]:
    """Sums and values beside limits, also such as are the same, or cross by one, by one bit, or by more."""
    rng = random.Random("limits")
    for number in range(300):
        low = rng.randint(-128, 127)
        others = (low, low - 1, low + 1, low ^ 1 << rng.randrange(7), rng.randint(-128, 127))
        high = min(127, max(-128, others[number % len(others)]))
        post = {"lo": low, "hi": high, "add_lo": low, "add_hi": high}
        for near in (low, high):
            yield post, {"ma": 1}, near, 0


def _factors() -> Iterator[tuple[dict[str, int], dict[str, int], int, int]]:
    """Factors of both operands with all their bits, and a constant that makes a small number of the sum."""
    rng = random.Random("factors")
    for number in range(400):
        ma, mb = (rng.randint(-(1 << 23), (1 << 23) - 1) >> rng.choice((0, 0, 7, 17)) for _ in range(2))
        a, b = (rng.randint(-128, 127) for _ in range(2))
        shift = number % 4 * rng.randint(0, 8)
        total = rng.randint(-128, 127) << shift | rng.getrandbits(shift)
        yield {}, {"ma": ma, "mb": mb, "shift": shift, "c": _signed(total - a * ma - b * mb)}, a, b


#: Zero points with every length of the integer part, and both neighbours of what makes it longer.
_ZERO_POINTS = sorted({s * (1 << k) + d for s in (1, -1) for k in range(7) for d in (-1, 0, 1)} | {-128, -127, 127})


def _inside(config: NpuConfig, mode: Rounding) -> Iterator[Run]:
    """Values beside n + 1/2, farther from it by one bit each, with zero points that round them to a tie or do not."""
    values: list[float] = []
    for n in (-3, -2, -1, 0, 1, 2, 6):
        apart = [sign * 2.0**-e for e in range(1, 27) for sign in (1, -1)]
        values += [n + 0.5 + d for d in (0.0, *apart, *(1.5 * d for d in apart), *(d + d / 8 for d in apart))]
    exact = [v for v in dict.fromkeys(values) if v and float(np.float32(v)) == v]
    lanes, rows = config.block_in, config.prm_rows
    points = _ZERO_POINTS if mode == Rounding.EVEN_ZERO_POINT_INSIDE else (0, -1, 77)
    for first in range(0, len(exact), lanes * rows):
        some = np.resize(exact[first : first + lanes * rows], (rows, lanes))
        _, exponents = np.frexp(some)
        data = np.zeros(some.shape, np.dtype([("bias", "<i4"), ("scale", "<f4")]))
        data["bias"], data["scale"] = np.ldexp(some, 24 - exponents), np.ldexp(1.0, exponents - 24)
        ops = [
            op("LOAD", region=1, target=Memory.PRM, count=rows, signal0=1),
            op("VECTOR_LOOP", level=0, count=rows, dst_stride=1, prm_stride=1),
            op("VECTOR_SYNC", wait0=1),
        ]
        for number, zp in enumerate(points):
            ops += [op("VECTOR_POST", **_END | {"zp": zp})]
            ops += [op("VECTOR", source=Source.MUL, dst=1 + rows * number, rounding=mode)]
        count = min(rows * len(points), SIZE // lanes)
        ops += [op("VECTOR_SYNC", signal0=2), op("STORE", region=2, row=1, count=count, wait0=2), op("END")]
        yield Run(ops, timeout=40_000, data=data.tobytes())


def _counted(config: NpuConfig) -> Iterator[list[Op]]:
    """Levels that count to even and odd numbers of 9 bits and more, and end."""
    for name, levels, most in (("GEMM", config.gemm_loops, 14), ("VECTOR", config.vector_loops, 11)):
        for number, bit in enumerate(range(8, most)):
            for count in (5 << bit - 2, (3 << bit - 1) + 1):
                level = (number + count % 2) % levels
                one = op(f"{name}_LOOP", level=level, count=1)
                yield [op(f"{name}_LOOP", level=level, count=count), op(name), one, op(name)]


def _fresh(config: NpuConfig) -> Iterator[Run]:
    """DEPTHWISE whose first steps emit, right after others that have filled the window, with ones in all bits."""
    if not config.depthwise:
        return
    tile = np.zeros((config.block_out, config.block_in), np.int8)
    for slot, fill in itertools.product(range(config.block_in), (0xFF, 0xAA, 0x55)):
        tile[:] = 0
        tile[:, slot] = 1
        full = np.full((config.block_in, config.block_in), fill, np.uint8)
        data = scale_rows(config, 1) + full.tobytes() + tile.tobytes()
        window = {"start0": 0, "step0": 1, "step1": 1}
        ops = [
            op("LOAD", region=1, target=Memory.PRM, count=1),
            op("LOAD", region=1, offset=len(data) - tile.size - full.size, count=config.block_in),
            op("LOAD", region=1, target=Memory.WGT, offset=len(data) - tile.size, count=1, signal0=1),
            op("GEMM_LOOP", level=0, count=config.block_in, act_stride=1, acc_stride=1),
            op("DEPTHWISE", wait0=1, **window),
            op("DEPTHWISE", acc=16, **window),
            op("GEMM_LOOP", level=0, count=1),
            op("GEMM", acc=60),
            op("DEPTHWISE", acc=61, **window, signal0=2),
            op("VECTOR_LOOP", level=0, count=64, a_stride=1, dst_stride=1),
            op("VECTOR_POST", **_END),
            op("VECTOR", dst=64, wait0=2, signal0=3),
            op("STORE", region=2, row=64, count=64, wait0=3),
            op("END"),
        ]
        yield Run(ops, data=data)


# What runs leave that stop.


def _stops(config: NpuConfig, make: Make) -> str:
    """An engine that names a row beyond its memory makes no step in the cycle in which that becomes known, and one in
    the next at most."""
    limits = {"GEMM": {"act": config.act_rows, "wgt": config.wgt_tiles, "acc": config.acc_rows}}
    limits["VECTOR"] = {"a": config.acc_vectors, "prm": config.prm_rows, "dst": config.act_rows}
    for name, fields in limits.items():
        for field, rows in fields.items():
            last = min(rows, BY_NAME[name].by_name[field].maximum) - 1
            for before, count in ((0, 2), (3, 9)):
                loop = op(f"{name}_LOOP", level=0, count=count, **{f"{field}_stride": 1})
                stops = op(name, **{field: last - before + 1})
                plain = (op("VECTOR", dst=2), op("GEMM"))
                ops = [*plain, op("LOAD", region=1, count=20), loop, stops, *plain, op("END")]
                if found := _stop(config, make, ops, name):
                    return found
    return ""


def _stop(config: NpuConfig, make: Make, ops: list[Op], engine: str) -> str:
    """The difference in an engine's steps until an error, as text; "" for none."""
    model, device = CycleDevice(config), make(0)
    regions = [prepare(on) for on in (model, device)]
    for on, where in zip((model, device), regions, strict=True):
        on.write(where[0].base, to_bytes(ops))
    program = 0, 0, len(ops)
    clock = simulate(config, model.timing, model.memory.data, regions[0], program, watchdog=2000, timeout=3000)
    if clock.error is None:  # a memory as large as its rows can be told
        return ""
    device.start(run_values(Launch(regions[1], *program, watchdog=2000, timeout=3000)))
    values = {r.name: device.read_register(r.name) for r in readable()}
    error = error_of(values)
    if (error.code, error.engine, error.pc) != (clock.error.code, clock.engine, clock.pc):
        return f"{error}, not {clock.error} at {clock.pc}"
    more = counters_of(values, config, 0).engines[engine].busy - clock.counters.engines[engine].busy
    return "" if 0 <= more <= 1 else f"{more} more steps of {engine}"


def _left(
    config: NpuConfig, make: Make, before: Run, stopped: Iterator[tuple[Run, list[Op]]], after: Run, rows: int
) -> str:
    """Checks that each of the first rows after a stopped run is what was there before, or what the whole run makes.

    Args:
        before: what makes the rows what they are before the run.
        stopped: runs, and what they would be if they were not stopped.
        after: shows the rows.
    """
    model, device = CycleDevice(config), make(0)
    model_of: dict[bytes, list[np.ndarray]] = {}

    def shown(on: RtlDevice | CycleDevice, *runs: Run) -> np.ndarray:
        written = [run.on(on)[1] for run in runs][-1]
        return np.frombuffer(written, np.uint8)[: rows * config.block_in].reshape(rows, -1)

    for run, whole in stopped:
        key = to_bytes(whole)
        if key not in model_of:
            old = shown(model, before, after)
            model_of[key] = [old, shown(model, Run(whole), after)]
        old, new = model_of[key]
        found = shown(device, before, run, after)
        one_of_them = (found == old).all(axis=1) | (found == new).all(axis=1)
        if not one_of_them.all():
            row = int(np.flatnonzero(~one_of_them)[0])
            return f"row {row} is {found[row].tolist()}, not {old[row].tolist()} or {new[row].tolist()}"
    return ""


#: Rows that are shown.
_ROWS = 32


def _whole_vectors(config: NpuConfig, make: Make) -> str:
    """VECTOR writes a row of ACT when it is complete, or not at all."""
    before = Run([op("LOAD", region=1, count=_ROWS), op("LOAD", region=1, offset=512, row=64, count=_ROWS), op("END")])
    after = Run([op("STORE", region=2, count=_ROWS), op("END")])
    loop = op("VECTOR_LOOP", level=0, count=_ROWS, a_stride=1, b_stride=1, dst_stride=1)
    constants = [op("VECTOR_ADD", ma=1, shift=1, c=9), op("VECTOR_POST", **_END)]
    ops = [loop, *constants, op("VECTOR", source=Source.ACT, a=64, b=65, add=1), op("END")]
    stopped = ((Run(ops, timeout=timeout), ops) for timeout in range(120, 140))
    return _left(config, make, before, stopped, after, _ROWS)


def _shown_sums(config: NpuConfig) -> tuple[Run, Run]:
    """Operands of GEMM for `_left`, and what shows rows of ACC."""
    prm = scale_rows(config, 2.0**-12)
    before = [
        op("LOAD", region=1, target=Memory.PRM, count=1),
        op("LOAD", region=1, offset=len(prm), count=500),
        op("LOAD", region=1, target=Memory.WGT, offset=SIZE // 2, count=4, signal0=1),
        op("GEMM_LOOP", level=0, count=_ROWS, act_stride=1, acc_stride=1),
        op("GEMM", act=400, wait0=1),
        op("END"),
    ]
    after = [
        op("VECTOR_LOOP", level=0, count=_ROWS, a_stride=1, dst_stride=1),
        op("VECTOR_POST", **_END),
        op("VECTOR", dst=2048, signal0=1),
        op("STORE", region=2, row=2048, count=_ROWS, wait0=1),
        op("END"),
    ]
    return Run(before, data=prm), Run(after)


def _whole_sums(config: NpuConfig, make: Make) -> str:
    """GEMM writes a row of ACC when its sum is complete, or not at all."""
    before, after = _shown_sums(config)
    loops = [
        op("GEMM_LOOP", level=0, count=50, act_stride=1),
        op("GEMM_LOOP", level=1, count=_ROWS, act_stride=3, acc_stride=1),
    ]
    ops = [*loops, op("GEMM", reduce=1), op("END")]
    stopped = ((Run(ops, timeout=timeout), ops) for timeout in range(120, 600, 37))
    return _left(config, make, before, stopped, after, _ROWS)


def _whole_windows(config: NpuConfig, make: Make) -> str:
    """A step of DEPTHWISE that names a tile beyond WGT stops it, but those beside it are what they should be."""
    if not config.depthwise:
        return ""
    before, after = _shown_sums(config)
    far = 1 << min(config.address_bits - 1, 16)

    def program(number: int, tile: int) -> list[Op]:
        loops = [
            op("GEMM_LOOP", level=0, count=number, act_stride=1, acc_stride=1),
            op("GEMM_LOOP", level=2, count=2, act_stride=1, acc_stride=number, wgt_stride=tile),
            op("GEMM_LOOP", level=3, count=2, act_stride=2, acc_stride=2 * number),
        ]
        return [*loops, op("DEPTHWISE", step0=1, step1=1), op("END")]

    stopped = ((Run(program(number, far)), program(number, 0)) for number in (1, 2, 3))
    return _left(config, make, before, stopped, after, _ROWS)
