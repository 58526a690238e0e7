"""Compares RTL, cycle-level simulator and functional simulator on one program, and shrinks programs that differ."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from tilewright.hw.sim.device import Event, RtlDevice
from tilewright.isa.config import PRESETS, NpuConfig
from tilewright.isa.device import Counters, DeviceError
from tilewright.isa.encoding import Op, to_bytes
from tilewright.isa.instructions import Engine
from tilewright.isa.timing import MemoryTiming
from tilewright.simulator.cycle import CycleDevice, Trace
from tilewright.simulator.functional import FunctionalDevice
from verification.programs.generator import PROGRAM_BYTES, GeneratedProgram, generate

#: With one pass, and with numbers of semaphores and queue entries that no preset for an FPGA has.
_TINY = PRESETS["tiny"].with_(vector_passes=1, semaphores=31, queue_depth=32)
#: Configurations that take paths the presets do not: bus wider than a row or an instruction, unequal blocks, queues of
#: the least depth, one burst at a time, memories that are no power of two, machines without the optional units, with
#: GEMM and VECTOR in one queue, with the row unit, with results of 16 bits.
VARIANTS: dict[str, NpuConfig] = {
    "wide_bus": _TINY.with_(
        name="wide_bus", row_unit=1, window_pairs=1, act_banks=8, axi_data_bits=128, burst_beats=16
    ),
    "widest_bus": _TINY.with_(
        name="widest_bus", block_in=8, block_out=4, window_delay=5, window_pairs=1, act_banks=16,
        axi_data_bits=256,
    ),
    "narrow_out": _TINY.with_(
        name="narrow_out", block_in=16, block_out=4, window_delay=1, axi_data_bits=64, act_banks=2
    ),
    "narrow_in": _TINY.with_(name="narrow_in", row_unit=1, wide_results=1, block_in=4, block_out=16, axi_data_bits=64),
    "serial": _TINY.with_(
        name="serial", queue_depth=2, read_outstanding=1, write_outstanding=1, burst_beats=2, semaphores=20,
        gemm_loops=5, vector_loops=4, act_banks=2, act_rows=1000, wgt_tiles=50, acc_rows=48, prm_rows=9, lut_tables=1,
        axi_address_bits=40,
    ),
    "no_units": _TINY.with_(name="no_units", depthwise=0, lut_tables=0),
    "one_queue": _TINY.with_(
        name="one_queue", axi_address_bits=21, vector_queue=0, queue_depth=5, row_unit=1, wide_results=1),
    "two_passes": _TINY.with_(
        name="two_passes", block_in=8, block_out=4, axi_data_bits=64, vector_passes=2, act_rows=512, wgt_tiles=64,
        wide_results=1, row_unit=1,
    ),
    "one_lane": _TINY.with_(
        name="one_lane", block_out=8, vector_passes=4, act_rows=512, wgt_tiles=64, row_unit=1,
        window_pairs=1,
    ),
    "narrow_no_units": _TINY.with_(
        name="narrow_no_units", block_in=4, block_out=8, axi_data_bits=64, depthwise=0, lut_tables=0
    ),
}  # fmt: skip
#: Without the optional units, and with GEMM and VECTOR in one queue: two of the variants in one build.
BARE = VARIANTS["one_queue"].with_(name="bare", depthwise=0, lut_tables=0, row_unit=0)
CONFIGS: dict[str, NpuConfig] = PRESETS | VARIANTS
TIMINGS = (
    MemoryTiming(),
    MemoryTiming(read_latency=1, write_latency=1),
    MemoryTiming(read_latency=3, write_latency=2, read_interval=2, write_interval=3),
    MemoryTiming(read_latency=200, write_latency=150, read_interval=1, write_interval=2),
    MemoryTiming(read_latency=17, write_latency=90, read_interval=7, write_interval=1),
    MemoryTiming(read_latency=14, write_latency=9, read_interval=8 / 3, write_interval=1.25),
)
#: Cycles without progress before a run counts as dead.
WATCHDOG = 20_000


def random_timing(rng: random.Random) -> MemoryTiming:
    """Any memory timing, the short ones more often."""
    latency = lambda: rng.choice([1, 2, rng.randint(1, 12), rng.randint(1, 300)])
    interval = lambda: rng.choice([1, 1, 1, 2, rng.randint(1, 12), rng.uniform(1, 4)])
    return MemoryTiming(
        read_latency=latency(), write_latency=latency(), read_interval=interval(), write_interval=interval()
    )


@dataclass
class Outcome:
    """Results of one device: counters or an error, memory afterwards, times at which instructions started and ended."""

    counters: Counters | None
    error: DeviceError | None
    memory: np.ndarray
    moments: dict[tuple[Engine, str, int], int] = field(default_factory=dict)

    @property
    def stop(self) -> tuple[object, ...] | None:
        e = self.error
        return None if e is None else (e.code, e.engine, e.pc, e.address)


class Trio:
    """The RTL and both simulators of a configuration."""

    def __init__(self, config: NpuConfig) -> None:
        self.config = config
        self.renew()

    def renew(self) -> None:
        """Fresh devices: scratchpads, which keep their contents between runs, are zero again."""
        self.rtl, self.cycle = RtlDevice(self.config), CycleDevice(self.config)
        self.functional = FunctionalDevice(self.config)

    def outcomes(self, program: GeneratedProgram, timing: MemoryTiming, watchdog: int = WATCHDOG) -> list[Outcome]:
        """Runs a program on RTL and cycle-level simulator; returns what each did."""
        self.rtl.timing = self.cycle.timing = timing
        found = []
        for device in (self.rtl, self.cycle):
            device.free_all()
            base, regions = program.install(device)
            counters = error = None
            try:
                options = {"log": "events"} if device is self.rtl else {"trace": True}
                counters = device.run(regions, 0, 0, len(program.ops), watchdog=watchdog, **options)  # type: ignore[arg-type]
            except DeviceError as stopped:
                error = stopped
            moments = of_events(self.rtl.events) if device is self.rtl else of_trace(self.cycle.trace, program.ops)
            found.append(Outcome(counters, error, device.read(base, program.memory.size), moments))
        if (
            self.cycle.trace is not None and found[1].error is not None
        ):  # the pipelines of the RTL run empty after a stop
            last = self.cycle.trace.cycles
            found[0].moments = {k: c for k, c in found[0].moments.items() if c <= last}
        return found

    def differences(self, program: GeneratedProgram, timing: MemoryTiming, watchdog: int = WATCHDOG) -> list[str]:
        """Lines that say how the devices differ; none if they are equal."""
        rtl, cycle = self.outcomes(program, timing, watchdog)
        lines = clock_differences(rtl, cycle, program.ops)
        if rtl.error is None and cycle.error is None:
            self.functional.free_all()
            want = program.run(self.functional)
            for name, outcome in (("rtl", rtl), ("cycle", cycle)):
                wrong = np.flatnonzero(outcome.memory != want)
                if wrong.size:
                    at = int(wrong[0])
                    lines.append(
                        f"{name}: {wrong.size} bytes differ from the functional simulator, the first at 0x{at:x}: "
                        f"0x{outcome.memory[at]:02x}, not 0x{want[at]:02x}"
                    )
        else:
            self.renew()  # what a stopped run leaves in the scratchpads is not specified
        return lines


def clock_differences(rtl: Outcome, cycle: Outcome, ops: Sequence[Op]) -> list[str]:
    """Returns the differences in counters, errors and moments, as texts; the first diverging event last."""
    lines = []
    if rtl.stop != cycle.stop:
        lines.append(f"stops: rtl {rtl.error or 'none'}; cycle {cycle.error or 'none'}")
    if rtl.counters and cycle.counters and rtl.counters != cycle.counters:
        lines.append(f"counters: rtl {rtl.counters}; cycle {cycle.counters}")
    event = first_divergence(rtl, cycle)
    if event is not None:
        (engine, kind, pc), ours, theirs = event
        lines.append(
            f"first diverging event: {kind} of {pc} {ops[pc].name} at {engine.name}: rtl {ours}, cycle {theirs}"
        )
    return lines


def first_divergence(
    rtl: Outcome, cycle: Outcome
) -> tuple[tuple[Engine, str, int], int | None, int | None] | None:  # fmt: skip
    """Returns the earliest start or end of an instruction that happens at different times."""
    keys = [k for k in rtl.moments.keys() | cycle.moments.keys() if rtl.moments.get(k) != cycle.moments.get(k)]
    if not keys:
        return None
    first = min(keys, key=lambda k: min(o.moments[k] for o in (rtl, cycle) if k in o.moments))
    return first, rtl.moments.get(first), cycle.moments.get(first)


def of_events(events: Sequence[Event]) -> dict[tuple[Engine, str, int], int]:
    """`Outcome.moments` of the RTL."""
    return {(e.engine, e.kind, e.pc): e.cycle for e in events if e.engine != Engine.FETCH or e.kind == "start"}


def of_trace(trace: Trace | None, ops: Sequence[Op]) -> dict[tuple[Engine, str, int], int]:
    """`Outcome.moments` of the cycle-level simulator."""
    if trace is None:
        return {}
    found = {}
    for pc, (dispatched, _, started, ended) in enumerate(trace.times.tolist()):
        configures = ops[pc].instruction.configures
        columns = ((Engine.FETCH, "start", dispatched), (ops[pc].instruction.engine, "start", started),
                   (ops[pc].instruction.engine, "end", ended))  # fmt: skip
        found.update({(e, k, pc): c for e, k, c in columns if c and not (configures and e != Engine.FETCH)})
    return found


def case(seed: int, config: NpuConfig) -> tuple[GeneratedProgram, MemoryTiming]:
    """Returns a program and a memory timing, made again from their seed."""
    rng = random.Random(f"case {seed}")
    timing = random_timing(rng)
    program = generate(
        seed, config, instructions=rng.choice([6, 20, 40, 60]), max_steps=rng.choice([15, 120, 500, 3000])
    )
    return program, timing


def with_ops(program: GeneratedProgram, ops: Sequence[Op]) -> GeneratedProgram:
    """Returns the program with other instructions and the same memory."""
    image = program.memory.copy()
    words = np.frombuffer(to_bytes(ops), np.uint8)
    image[:PROGRAM_BYTES] = 0
    image[: words.size] = words
    return GeneratedProgram(program.seed, program.config, list(ops), image, program.windows)


def cycle_differences(
    config: NpuConfig,
    program: GeneratedProgram,
    timing: MemoryTiming,
    make: Callable[[NpuConfig], FunctionalDevice] = FunctionalDevice,
) -> list[str]:
    """Lines that say how cycle-level and functional simulator differ: work, bytes, errors.

    Args:
        make: the functional simulator of a configuration.
    """
    cycle, functional = CycleDevice(config, timing), make(config)
    found: list[tuple[Counters | None, tuple[object, ...] | None, np.ndarray]] = []
    for device, options in ((cycle, {"watchdog": WATCHDOG}), (functional, {})):
        base, regions = program.install(device)
        counters = error = None
        try:
            counters = device.run(regions, 0, 0, len(program.ops), **options)
        except DeviceError as stopped:
            error = stopped
        found.append((counters, Outcome(None, error, program.memory).stop, device.read(base, program.memory.size)))
    (counters, stop, memory), (plain, wanted, image) = found
    lines = [] if stop == wanted else [f"stops: cycle {stop}; functional {wanted}"]
    for name in ("macs", "bytes_written", "instructions") if counters and plain else ():
        if getattr(counters, name) != getattr(plain, name):
            lines.append(f"{name}: cycle {getattr(counters, name)}; functional {getattr(plain, name)}")
    if not (lines or stop) and (wrong := np.flatnonzero(memory != image)).size:
        lines.append(f"{wrong.size} bytes differ, the first at 0x{int(wrong[0]):x}")
    return lines


def shrink(
    trio: Trio, program: GeneratedProgram, timing: MemoryTiming, report: Callable[[str], None]
) -> GeneratedProgram:
    """Returns the fewest instructions with which the clocks of RTL and cycle-level simulator still differ.

    Semaphores need not balance in what is left: a program that waits for ever stops both devices the same way.
    """

    def differs(ops: Sequence[Op]) -> bool:
        rtl, cycle = trio.outcomes(with_ops(program, ops), timing, watchdog=2000)
        return bool(clock_differences(rtl, cycle, ops))

    ops = minimised(program.ops, differs, report)
    trio.renew()
    return with_ops(program, ops)


def minimised(ops: Sequence[Op], differs: Callable[[Sequence[Op]], bool], report: Callable[[str], None]) -> list[Op]:
    """Instructions without those that are not needed for a difference; the last one, END, stays."""
    left, end = list(ops[:-1]), list(ops[-1:])
    chunk = len(left) // 2
    while chunk:
        start = 0
        while start < len(left):
            fewer = left[:start] + left[start + chunk :]
            if differs(fewer + end):
                left = fewer
            else:
                start += chunk
        report(f"{len(left)} instructions left")
        chunk //= 2
    return left + end
