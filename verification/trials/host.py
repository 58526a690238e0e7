"""Trials of what is seen from outside besides results: registers, and places without one; how long an answer takes; the
debug strobes; and that a machine that has stopped is still."""

from __future__ import annotations

import functools
import random
from collections import Counter
from collections.abc import Iterator

from tilewright.hw.sim.device import RtlDevice
from tilewright.isa.config import NpuConfig
from tilewright.isa.encoding import op, to_bytes
from tilewright.isa.host import mask, run_values
from tilewright.isa.instructions import Engine
from tilewright.isa.registers import REGISTER, REGISTER_SPACE, REGISTERS
from tilewright.isa.timing import MemoryTiming
from tilewright.simulator.cycle import CycleDevice
from verification.programs.equality import WATCHDOG, random_timing
from verification.programs.generator import generate
from verification.trials.fetch import READ, WRITE, Host, Run
from verification.trials.trial import Make, Trial


def host(config: NpuConfig) -> Iterator[Trial]:
    """Yields the trials, cheapest first."""
    yield Trial("holes", 0, _holes, fresh=False)
    yield Trial("answers", 0, _answers)
    yield Trial("cleared", 0, _cleared)
    for number, run in enumerate(_early()):
        yield Trial("halted", number, functools.partial(_halted, run))
    for number in range(4):
        yield _strobes(config, number)


def _access(device: RtlDevice, offset: int, value: int | None = None) -> int:
    """Reads, or writes, a register by its place, where perhaps none is."""
    library, handle = device._library, device._handle
    if value is None:
        return int(library.tw_rtl_read(handle, offset))
    library.tw_rtl_write(handle, offset, value)
    return value


def _holes(make: Make) -> str:
    """Offsets without a register read 0. Writes there, or to read-only registers, change nothing: neither what the host
    reads nor what the machine does."""
    device, rng = make(0), random.Random("holes")
    named = {r.offset: r for r in REGISTERS}
    empty = [offset for offset in range(0, REGISTER_SPACE, 4) if offset not in named]
    fixed = [r.offset for r in REGISTERS if r.access == "R"]
    if wrong := [offset for offset in [*empty, REGISTER["CONTROL"].offset] if _access(device, offset)]:
        return f"there is something at 0x{wrong[0]:x}"
    kept = {r.name: rng.getrandbits(32) for r in REGISTERS if r.access == "RW"}
    for name, value in kept.items():
        device.write_register(name, value)
    for offset in rng.sample(empty + fixed, len(empty + fixed)):
        _access(device, offset, rng.getrandbits(32))
        for name in rng.sample(sorted(kept), 3):
            if (found := device.read_register(name)) != kept[name]:
                return f"{name}: 0x{found:x}, not 0x{kept[name]:x}, after a write to 0x{offset:x}"
    if changed := [name for name in kept if device.read_register(name) != kept[name]]:
        return f"changed: {changed}"
    copy = [op("LOAD", region=READ, count=2, signal0=1), op("STORE", region=WRITE, count=2, wait0=1), op("END")]
    runs, run = Host(device), Run(to_bytes(copy))
    before = runs.found(run)
    for offset in empty + fixed:
        _access(device, offset, 0xFFFF_FFFF)
    return "" if (after := runs.found(run)) == before else f"{after}, not {before}"


#: Registers read, or written, one after the other, and the cycles one of them takes: the access that is taken, what
#: follows until it is answered, and for a read the cycle in which the host takes the answer.
_ACCESSES, _READ_TAKES, _WRITE_TAKES = 64, 5, 2


def _answers(make: Make) -> str:
    """Reads and writes take the cycles that `tilewright.hw.host.registers` promises, by the clock of a run that waits
    for ever."""
    device = make(0)
    device.limit = 300
    run = Run(to_bytes([op("VECTOR_SYNC", wait0=1), op("END")]), watchdog=0xFFFF_FFFF, timeout=0)
    device.start(run_values(run.launch(device)))
    slack = 40  # a counter is shown once in a round, and the reads of it count too
    for name, takes, access in (
        ("reads", _READ_TAKES, lambda: device.read_register("STATUS")),
        ("writes", _WRITE_TAKES, lambda: device.write_register("IRQ_ENABLE", 0)),
    ):
        before = device.read_register("CYCLES_LO")
        for _ in range(_ACCESSES):
            access()
        found = device.read_register("CYCLES_LO") - before
        if not takes * _ACCESSES <= found <= takes * _ACCESSES + slack:
            return f"{_ACCESSES} {name} in {found} cycles, not {takes} each"
    return ""


def _cleared(make: Make) -> str:
    """The bus waits a cycle for each word that is cleared after a reset of the whole machine. A host that begins at
    once comes so late that what is random about the bus is other than for one that begins behind that time."""
    device = make(0)
    ops = [
        op("LOAD_DIM", level=0, count=30, mem_stride=12, row_stride=1),
        op("LOAD", region=READ, count=1, signal0=1),
        op("STORE", region=WRITE, count=40, wait0=1),
        op("END"),
    ]
    words = min(r.offset for r in REGISTERS if r.counts) // 4

    def begun(after: int) -> list[tuple[object, ...]]:
        found = []
        for seed in range(1, 9):
            device.stall(seed)
            device.restart()
            device._library.tw_rtl_tick(device._handle, after)
            found.append(Host(device).found(Run(to_bytes(ops))))
        device.stall(0)
        return found

    at_once = begun(0)
    if begun(words // 2) != at_once:
        return "the bus does not wait after a reset"
    return next(
        (f"the bus waits for {n} cycles after a reset" for n in range(words + 4, words + 8) if begun(n) == at_once), ""
    )


def _early() -> Iterator[Run]:
    """Runs that stop before what they are to do has begun, or while more waits."""
    slow = MemoryTiming(read_latency=900, write_latency=900)
    stores = [op("STORE", region=WRITE, count=64, row=row, offset=4 * row) for row in range(0, 640, 64)]
    later = [op("GEMM_LOOP", count=900), op("GEMM", signal0=1), op("STORE_SYNC", wait0=1), *stores]
    for ops in (stores, later):  # FETCH waits for the program
        yield Run(to_bytes([*ops, op("END")]), timing=slow, watchdog=100)
        yield Run(to_bytes([*ops, op("END")]), timing=slow, timeout=100)
    late = MemoryTiming(write_latency=900)
    yield Run(to_bytes([*stores, op("END")]), watchdog=100, timing=late)  # STORE for answers
    yield Run(to_bytes([*stores, op("END")]), timeout=700, timing=late)
    failing = [*stores[:5], op("VECTOR", dst=(1 << 18) - 1), *stores[5:], op("END")]
    yield Run(to_bytes(failing), timing=late)


def _halted(run: Run, make: Make) -> str:
    """Nothing is read, written or counted any more after an error."""
    device = make(0)
    device.timing = run.timing
    if not device.start(run_values(run.launch(device))):
        return "no interrupt"
    seen = []
    for _ in range(2):
        device.write_register("IRQ_STATUS", mask("IRQ_STATUS", "DONE", "ERROR"))
        status = {r.name: device.read_register(r.name) for r in REGISTERS if r.access == "R"}
        seen.append((status, device.memory.data.tobytes()))
        device._library.tw_rtl_tick(device._handle, 4000)
    if not seen[0][0]["STATUS"] & mask("STATUS", "ERROR"):
        return "no error"
    return "" if seen[0] == seen[1] else "the machine goes on after an error"


def _strobes(config: NpuConfig, number: int) -> Trial:
    """Debug strobes of a random program agree with the simulator: steps of each engine, and FETCH dispatches one
    instruction after the other and ends with the last."""
    program = generate(number, config, instructions=30, max_steps=60)
    timing = random_timing(random.Random(f"strobes {number}"))

    @functools.cache
    def wanted() -> dict[Engine, int]:
        device = CycleDevice(config, timing)
        _, regions = program.install(device)
        counters = device.run(regions, 0, 0, len(program.ops), watchdog=WATCHDOG)
        return {Engine[name]: c.busy for name, c in counters.engines.items()} | {Engine.FETCH: len(program.ops)}

    def run(make: Make) -> str:
        device = make(0)
        device.timing = timing
        _, regions = program.install(device)
        device.run(regions, 0, 0, len(program.ops), watchdog=WATCHDOG, log="steps")
        steps = Counter(e.engine for e in device.events if e.kind == "step")
        if steps != (there := Counter(wanted())):
            return f"{dict(steps)} steps, not {dict(there)}"
        starts = [e for e in device.events if e.engine == Engine.FETCH and e.kind == "start"]
        if [e.pc for e in starts] != list(range(len(program.ops))):
            return f"FETCH dispatches {[e.pc for e in starts]}"
        ends = [(e.cycle, e.pc) for e in device.events if e.engine == Engine.FETCH and e.kind == "end"]
        last = [(starts[-1].cycle, starts[-1].pc)]
        return "" if ends == last else f"FETCH ends at {ends}, not at {last}"

    return Trial("strobes", number, run)
