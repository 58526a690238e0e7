"""Trials of an RTL that may be faulty: what is run on it and what is looked at, as the tests of `tests/cosim` do.

Each compares with something else: programs with the simulators, registers with the register table.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from tilewright.hw.sim.device import RtlDevice
from tilewright.isa.config import NpuConfig
from tilewright.isa.device import DeviceError, Launch, Region
from tilewright.isa.encoding import op, to_bytes
from tilewright.isa.fields import INSTRUCTION_BYTES
from tilewright.isa.host import mask, run_values
from tilewright.isa.instructions import REGIONS, Engine
from tilewright.isa.registers import REGISTERS
from tilewright.simulator.cycle import CycleDevice
from tilewright.simulator.functional import FunctionalDevice
from verification.coverage.functional import instructions_on
from verification.programs.equality import (
    WATCHDOG,
    Outcome,
    case,
    clock_differences,
    of_events,
    of_trace,
    random_timing,
)
from verification.programs.error_cases import CASES, SIZE, outcome, prepare
from verification.programs.generator import GeneratedProgram, generate

#: Names of the engines that have instructions, and of the fields with numbers of semaphores.
ENGINES = [e.name for e in Engine if e != Engine.FETCH]
SEMAPHORES = ("wait0", "wait1", "signal0", "signal1")
#: Cycles that a run may take: a fault may keep a machine from ever ending, and its watchdog too.
LIMIT = 200_000
#: Instructions, and steps of one, of random programs, from the shortest on.
SIZES = ((6, 15), (20, 60), (40, 120), (60, 500))
#: Makes the machine; the argument is the address of the memory's first byte.
Make = Callable[[int], RtlDevice]


@dataclass(frozen=True)
class Trial:
    """A run that shows whether an RTL is faulty.

    Attributes:
        kind, number: its name.
        run: on a machine that is made for it, says how it differs from what is expected: "" = not at all.
        fresh: it needs a machine whose scratchpads are 0; others may have one that has run before.
    """

    kind: str
    number: int
    run: Callable[[Make], str]
    fresh: bool = True

    @property
    def name(self) -> str:
        return f"{self.kind} {self.number}"


#: Programs that stop, besides CASES: as words, and with what is given to the run.
_STOPS: list[tuple[bytes, dict[str, int]]] = [
    (to_bytes([op("GEMM")]), {}),  # no END
    (bytes([0xFF]) + bytes(15), {}),  # no such instruction
    *(
        (to_bytes(ops), {"watchdog": 500})
        for ops in ([op(f"{e}_SYNC", wait0=1), op("END")] for e in ("LOAD", "GEMM", "VECTOR", "STORE"))
    ),
    *(
        (to_bytes(ops), {})
        for ops in ([op(f"{e}_SYNC", signal0=9)] * 256 + [op("END")] for e in ("GEMM", "VECTOR", "STORE"))
    ),
    *((to_bytes([*ops, op("END")]), {}) for ops in CASES),
]


def trials(config: NpuConfig, programs: int) -> Iterator[Trial]:
    """The trials, those that find most for their time first.

    Args:
        programs: random programs, short ones before long ones; every other one runs at a random place of the memory.
            As many wait for ever, and have extreme fields. All programs that stop with an error are there.
    """
    for n in range(programs):
        yield _program(config, n, SIZES[n * len(SIZES) // programs], moved=n % 2 == 1)
    for n in range(1 + programs // 10):
        yield Trial("registers", n, functools.partial(_registers, config, n))
    for n in range(len(_STOPS)):
        yield _error(config, n)
    for n in range(programs):
        yield _limits(config, n)
        yield _extremes(config, n)


def _program(config: NpuConfig, seed: int, size: tuple[int, int], *, moved: bool) -> Trial:
    program = generate(seed, config, instructions=size[0], max_steps=size[1])
    timing = case(seed, config)[1]
    place = Place.random(random.Random(f"place {seed}"), config) if moved else Place()

    @functools.cache
    def expected() -> tuple[Outcome, np.ndarray]:
        cycle = CycleDevice(config, timing)
        base, regions = program.install(cycle)
        counters = cycle.run(regions, 0, 0, len(program.ops), watchdog=WATCHDOG, trace=True)
        found = Outcome(counters, None, cycle.read(base, program.memory.size), of_trace(cycle.trace, program.ops))
        return found, program.run(FunctionalDevice(config))

    def run(make: Make) -> str:
        wanted, memory = expected()
        device = make(place.origin)
        device.timing = timing
        there = place.moved(program)
        base, regions = there.install(device)
        counters = error = None
        try:
            counters = device.run(regions, 0, place.shifts[0], len(program.ops), watchdog=WATCHDOG, log="events")
        except DeviceError as stopped:
            error = stopped
        found = Outcome(counters, error, device.read(base, program.memory.size), of_events(device.events))
        if lines := clock_differences(found, wanted, program.ops):
            return lines[0]
        first = len(program.ops) * INSTRUCTION_BYTES  # instructions name other offsets there
        return "" if np.array_equal(found.memory[first:], memory[first:]) else "bytes"

    return Trial("moved" if moved else "program", seed, run)


@dataclass(frozen=True)
class Place:
    """The place of a program in the address space, which must not change anything.

    Attributes:
        origin: address of the memory's first byte.
        shifts: bytes before what the program uses that belong to a region too, for each region.
    """

    origin: int = 0
    shifts: tuple[int, ...] = (0,) * REGIONS

    @classmethod
    def random(cls, rng: random.Random, config: NpuConfig) -> Place:
        """Anywhere, all bits of an address as likely. Bursts end at 4096 bytes, so shifts are multiples of that."""
        top, most = 1 << config.axi_address_bits, config.offset_bits - 1
        origin = rng.randrange(top // 2, top - min(1 << 24, top // 4), 4096)
        return cls(origin, tuple(rng.randrange(0, 1 << rng.randint(13, most), 4096) for _ in range(REGIONS)))

    def moved(self, program: GeneratedProgram) -> GeneratedProgram:
        """The program, with regions that begin earlier and instructions that say so."""
        ops = [
            replace(o, values=o.values | {"offset": o["offset"] + self.shifts[o["region"]]})
            if o.name in ("LOAD", "STORE")
            else o
            for o in program.ops
        ]
        windows = tuple(
            Region(w.base - s, w.size + s, w.read, w.write) for w, s in zip(program.windows, self.shifts, strict=False)
        )
        image = program.memory.copy()
        words = np.frombuffer(to_bytes(ops), np.uint8)
        image[: words.size] = words
        return replace(program, ops=ops, windows=windows, memory=image)


def _error(config: NpuConfig, number: int) -> Trial:
    words, given = _STOPS[number]
    room = SIZE // INSTRUCTION_BYTES - len(words) // INSTRUCTION_BYTES
    before = random.Random(f"error {number}").choice([0, 0, 3, random.Random(number).randint(0, room)])
    engine = random.Random(number).choice(list(Engine)[1:])
    words = to_bytes([op(f"{engine.name}_SYNC")] * before) + words  # so that it is not among the first instructions
    expected = functools.cache(lambda: outcome(CycleDevice(config), words, **given))
    after = functools.cache(lambda: _clock(CycleDevice(config), config, number))

    def run(make: Make) -> str:
        device = make(0)
        found = outcome(device, words, **({"watchdog": 2000} | given))
        if found != expected():
            return f"{found}, not {expected()}"
        again = _clock(device, config, number)  # nothing is left of the run that stopped
        return "" if again == after() else f"then {again}, not {after()}"

    return Trial("error", number, run, fresh=False)


def _clock(device: RtlDevice | CycleDevice, config: NpuConfig, seed: int) -> object:
    """Counters of a short program. Its bytes depend on what the scratchpads hold, its clock does not."""
    program = generate(seed, config, instructions=SIZES[0][0], max_steps=SIZES[0][1])
    device.free_all()
    _, regions = program.install(device)
    return device.run(regions, 0, 0, len(program.ops), watchdog=WATCHDOG)


def _limits(config: NpuConfig, number: int) -> Trial:
    """An engine waits for ever, at some instruction, behind others; watchdog and timeout end at about the same time."""
    rng = random.Random(f"limits {number}")
    busy = [op("LOAD", region=1, count=rng.randint(1, 40)) for _ in range(rng.randint(0, 30))]
    engine = rng.choice(list(Engine)[1:])
    waits = [op(f"{engine.name}_SYNC", wait0=rng.randint(1, config.semaphores))]
    ops = [*busy, *waits, *busy[: rng.randint(0, 5)], op("END")]
    words, timing = to_bytes(ops), random_timing(rng)
    watchdog = rng.choice([rng.randint(1, 40), rng.randint(300, 5000)])
    given = {"watchdog": watchdog, "timeout": rng.choice([0, rng.randint(1, watchdog + 200)])}
    expected = functools.cache(lambda: outcome(CycleDevice(config, timing), words, **given))

    def run(make: Make) -> str:
        device = make(0)
        device.timing = timing
        found = outcome(device, words, **given)
        return "" if found == expected() else f"{found}, not {expected()}"

    return Trial("limits", number, run, fresh=False)


def _extremes(config: NpuConfig, number: int) -> Trial:
    """Instructions whose fields have the ends of their ranges, or anything between; most stop with an error."""
    rng = random.Random(f"extremes {number}")
    known = instructions_on(config)
    engine = rng.choice(list(Engine)[1:])
    ops = []
    for kind in rng.sample([i for i in known if i.engine == engine and not i.name.endswith("_SYNC")] * 3, k=6):
        values = {}
        for field in kind.fields:
            low, high = field.limits(config)
            few = [low, high, max(low, 0), min(1, high), rng.randint(low, high), rng.randint(low, min(high, low + 8))]
            values[field.name] = 0 if field.name in SEMAPHORES else rng.choice(few)
        ops.append(op(kind.name, **values))
    ops.append(op("END"))
    words, given = to_bytes(ops), {"watchdog": 2000, "timeout": 3000}
    expected = functools.cache(lambda: outcome(CycleDevice(config), words, **given))

    def run(make: Make) -> str:
        found = outcome(make(0), words, **given)
        return "" if found == expected() else f"{found}, not {expected()}"

    return Trial("extremes", number, run, fresh=False)


def _registers(config: NpuConfig, number: int, make: Make) -> str:
    """Random values in all registers, and what of them can be read; interrupts that are not wanted."""
    rng, device = random.Random(f"registers {number}"), make(0)
    kept = {r.name: rng.getrandbits(32) for r in REGISTERS if r.access == "RW"}
    for name in rng.sample(sorted(kept), len(kept)):
        device.write_register(name, kept[name])
    for r in rng.sample(REGISTERS, len(REGISTERS)):
        found, wanted = device.read_register(r.name), kept.get(r.name)
        if wanted is not None and found != wanted:
            return f"{r.name}: 0x{found:x}, not 0x{wanted:x}"
        if r.counts and found:
            return f"{r.name}: 0x{found:x} before a run"
    enabled = rng.randrange(4)
    regions = prepare(device)
    device.write(regions[0].base, to_bytes([op("END")]))
    for cause, timeout in (("DONE", 0), ("ERROR", 1)):
        values = run_values(Launch(regions, 0, 0, 1, timeout=timeout)) | {"IRQ_ENABLE": enabled}
        raised, pending = device.start(values), mask("IRQ_STATUS", cause)
        if raised != bool(enabled & pending):
            return f"interrupt {raised} for {cause} with 0x{enabled:x} enabled"
        for written, left in ((0, pending), (3 & ~pending, pending), (pending, 0)):
            device.write_register("IRQ_STATUS", written)
            if (found := device.read_register("IRQ_STATUS")) != left:
                return f"IRQ_STATUS 0x{found:x}, not 0x{left:x}, after 0x{written:x}"
    return ""
