"""Benches: a part with free inputs, what is assumed about them, and what is checked in every cycle."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain, count
from typing import Any

from amaranth.back import rtlil
from amaranth.hdl import (
    Assert,
    Assume,
    Cat,
    ClockDomain,
    Fragment,
    Instance,
    Module,
    Mux,
    ResetInserter,
    Shape,
    Signal,
    Value,
)
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import Out

from tilewright.hw.parts.probes import probes
from tilewright.hw.parts.queue import Queue
from verification.formal.engine import Cut
from verification.rtl_text import digest_of_cells


def opened(part: Any) -> Module:
    """Elaborates `part` now, so that what it shows of its inside can be used; its parent gets the same module."""
    module: Module = part.elaborate(None)
    part.elaborate = lambda platform: module
    return module


def registers(module: Module, domain: str = "sync") -> dict[str, Signal]:
    """Registers of an opened part by name, without those of its submodules: for invariants about what the part does not
    show. The second one of a name has `$1` behind it, and so on. With the domain `comb` it is what is no register."""
    found: dict[str, Signal] = {}
    for statement in Fragment.get(module, None).statements.get(domain, ()):
        for signal in statement._lhs_signals():
            names = chain((signal.name,), (f"{signal.name}${n}" for n in count(1)))
            name = next(name for name in names if found.get(name, signal) is signal)
            found[name] = signal
    return found


@dataclass(frozen=True)
class Property:
    """A statement that holds in every cycle. `fault` must make it fail; None where all it is about is tied, which
    leaves no driver to cut."""

    name: str
    statement: str
    fault: Cut | None


class Bench:
    """A part and its surroundings, with what is assumed and what is checked.

    Attributes:
        properties: that are checked, by name.

    Args:
        only: the property to check; all others are left out. None = all of them, and the invariants.
    """

    def __init__(self, only: str | None = None) -> None:
        self.m = Module()
        self.only = only
        self.properties: dict[str, Property] = {}
        self._asserted = 0
        self._domain = ClockDomain("sync", reset_less=True)
        self.m.domains += self._domain
        self._inputs: list[Signal] = []

    def free(self, shape: Any, name: str) -> Signal:
        """Adds a value that the solver chooses in every cycle."""
        signal = Signal(shape, name=name)
        self._inputs.append(signal)
        return signal

    def constant(self, shape: Any, name: str) -> Signal:
        """Adds a value that the solver chooses once."""
        signal = Signal(shape, name=name)
        self.m.submodules[f"any_{name}"] = Instance("$anyconst", p_WIDTH=Shape.cast(shape).width, o_Y=signal)
        return signal

    def past(self, value: Any, name: str, cycles: int = 1) -> Value:
        """Returns `value` so many cycles ago; 0 before the first. To be asked for outside of conditions."""
        now = Value.cast(value)
        for n in range(cycles):
            before = Signal(now.shape(), name=name if cycles == 1 else f"{name}_{n}")
            self.m.d.sync += before.eq(now)
            now = before
        return now

    def part(self, name: str, part: Any, *, reset: Signal | None = None, **inputs: Any) -> Any:
        """Adds a part; inputs that are not given are free. Ports of interfaces are named `interface__port`. `reset`
        resets it; without one it starts from reset and has none later."""
        self.m.submodules[name] = part if reset is None else ResetInserter({"sync": reset})(part)
        for path, member, value in part.signature.flatten(part):
            if member.flow == Out:
                continue
            port = "__".join(map(str, path))
            driver = inputs.pop(port) if port in inputs else self.free(Value.cast(value).shape(), f"{name}_{port}")
            if driver is not None:
                self.m.d.comb += value.eq(driver)
        assert not inputs, inputs
        return part

    def cut(self, part: Any, name: str, **bits: int) -> None:
        """Leaves a part of the one that is looked at empty: its outputs are free, of those in `bits` so many of the
        lowest ones. Ports are named as in `part`."""
        part.elaborate = lambda platform: Module()
        for path, member, value in part.signature.flatten(part):
            if member.flow == Out:
                port, output = "__".join(map(str, path)), Value.cast(value)
                self.m.d.comb += output.eq(self.free(bits.get(port, len(output)), f"{name}_{port}"))

    def assume(self, condition: Any) -> None:
        """Restricts the runs to those in which the condition holds in every cycle."""
        self.m.d.comb += Assume(Value.cast(condition).bool())

    def state(self, name: str, statement: str, fault: Cut | None = None) -> None:
        """States a property, which the conditions of its name make up."""
        self.properties.setdefault(name, Property(name, statement, fault))

    def check(self, name: str, condition: Any, statement: str = "", fault: Cut | None = None) -> None:
        """Adds a condition of property `name`, which is stated with the first one, or before by `state`."""
        if statement:
            self.state(name, statement, fault)
        assert name in self.properties, f"{name} is checked, but not stated"
        if self.only in (None, name):
            self._assert(name, condition)

    def invariant(self, condition: Any) -> None:
        """States an invariant, which is proved with the properties and makes them inductive."""
        if self.only is None:
            self._assert("invariant", condition)

    def _assert(self, name: str, condition: Any) -> None:
        self._asserted += 1
        holds = Signal(name=f"{name}__{self._asserted}")
        self.m.d.comb += [holds.eq(Value.cast(condition).bool()), Assert(holds)]

    @property
    def _ports(self) -> list[Signal]:
        return [self._domain.clk, *self._inputs]

    def digest(self) -> str:
        """Returns 12 hex digits over the elaborated bench, whatever the files and the signals in it are called."""
        return digest_of_cells(Fragment.get(self.m, None), self._ports)

    def rtlil(self) -> str:
        """Returns the bench as RTLIL, for yosys."""
        text = rtlil.convert(self.m, name="bench", ports=self._ports, emit_src=False)
        return text.replace("cell \\$anyconst ", "cell $anyconst ")  # Amaranth takes it for a module


def implies(a: Any, b: Any) -> Value:
    return ~Value.cast(a).bool() | Value.cast(b).bool()


def distance(ahead: Value, behind: Value) -> Value:
    """Returns the difference of two wrapping counters."""
    return (ahead - behind)[: len(ahead)]


def stored(bench: Bench, memory: Memory) -> Value:
    """Returns all words of a memory, that of address 0 lowest."""
    words = []
    for n in range(memory.depth):
        port = memory.read_port(domain="comb")
        bench.m.d.comb += port.addr.eq(n)
        words.append(port.data)
    return Cat(words)


def contents(bench: Bench, queue: Queue, name: str) -> list[tuple[Value, Value]]:
    """(held, entry) of an opened queue, oldest first; adds the invariant of its pointers."""
    slots = max(2, queue.depth)
    inside = probes(queue)
    bench.invariant((queue.level <= queue.depth) & (inside.head < queue.depth) & (inside.tail < queue.depth))
    bench.invariant((inside.full == (queue.level == queue.depth)) & (inside.held == (queue.level != 0)))
    end = inside.head + queue.level
    bench.invariant(inside.tail == Mux(end >= queue.depth, end - queue.depth, end))
    words = stored(bench, inside.store)
    result = []
    for n in range(queue.depth):
        place = Signal(range(2 * slots), name=f"{name}_place{n}")
        entry = Signal(queue.width, name=f"{name}_entry{n}")
        raw = inside.head + n
        bench.m.d.comb += place.eq(Mux(raw >= queue.depth, raw - queue.depth, raw))
        bench.m.d.comb += entry.eq(words.word_select(place[: (slots - 1).bit_length()], queue.width))
        result.append((queue.level > n, entry))
    return result
