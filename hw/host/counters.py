"""The counters of a run, kept in a RAM."""

from __future__ import annotations

from amaranth.hdl import Array, Module, Mux, Shape, Signal
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from tilewright.isa.config import NpuConfig
from tilewright.isa.registers import REGISTERS

COUNTER_BITS = 64
#: In the order of the registers.
COUNTERS = tuple(r.name.removesuffix("_LO") for r in REGISTERS if r.counts and r.name.endswith("_LO"))
#: Counters of bytes; their events are beats.
BYTES = ("BYTES_READ", "BYTES_WRITTEN")
#: Cycles a round over all counters takes.
ROUND = 1 << (len(COUNTERS) - 1).bit_length()


class Counters(wiring.Component):
    """64-bit counters of events. One adder serves all counters in turn: it adds the events since its last visit.

    Latency: an event of cycle t is in the value shown for its counter from t+4 on, at most ROUND cycles later.

    Ports:
        clear: all counters are 0 again, events of this cycle not counted.
        events: by name, counts in this cycle.
        index, value: one of the counters (its place in COUNTERS) and its value; each comes once in ROUND cycles.
    """

    def __init__(self, config: NpuConfig) -> None:
        self.config = config
        super().__init__(
            {
                "clear": In(1),
                "events": In(data.StructLayout(dict.fromkeys(COUNTERS, 1))),
                "index": Out(range(ROUND)),
                "value": Out(COUNTER_BITS),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.store = store = Memory(shape=Shape(COUNTER_BITS), depth=ROUND, init=[])
        write, read = store.write_port(), store.read_port(domain="comb")

        # Events since the last visit.
        visited = Signal(range(ROUND))
        m.d.sync += visited.eq(visited + 1)
        recent = []
        for n, name in enumerate(COUNTERS):
            count, seen = Signal(range(ROUND + 1), name=f"{name}_recent"), Signal(name=f"{name}_seen")
            m.d.sync += [seen.eq(self.events[name]), count.eq(Mux(visited == n, 0, count) + seen)]
            with m.If(self.clear):
                m.d.sync += [seen.eq(0), count.eq(0)]
            beat = (self.config.bus_bytes - 1).bit_length() if name in BYTES else 0
            recent.append(count << beat)
        recent += [0] * (ROUND - len(recent))
        amount, adding = Signal(max(len(r) for r in recent[: len(COUNTERS)]), reset_less=True), Signal(range(ROUND))
        m.d.sync += [amount.eq(Array(recent)[visited]), adding.eq(visited)]

        # The words of the RAM belong to an earlier run until the first round is over.
        first = Signal(init=1)
        total = Signal(COUNTER_BITS)
        m.d.comb += [
            read.addr.eq(adding),
            total.eq(Mux(first, 0, read.data) + amount),
            write.en.eq(1),
            write.addr.eq(adding),
            write.data.eq(total),
        ]
        m.d.sync += [self.index.eq(adding), self.value.eq(total)]
        with m.If(adding == ROUND - 1):
            m.d.sync += first.eq(0)
        with m.If(self.clear):
            m.d.sync += [visited.eq(0), adding.eq(0), amount.eq(0), first.eq(1)]
        return m
