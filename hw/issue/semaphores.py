"""Counting semaphores: four engines take and give."""

from __future__ import annotations

from amaranth.hdl import Array, C, Cat, Module, Mux, Signal, Value, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from tilewright.hw.interfaces import ENGINES, SEMAPHORE_BITS, Fault, Retire, Take
from tilewright.hw.parts.probes import declare_probes
from tilewright.hw.table import one_hot
from tilewright.isa.config import SEMAPHORE_LIMIT, NpuConfig
from tilewright.isa.instructions import Engine

#: The members of `Retire` that come with `give`.
GIVEN = ("signal0", "signal1", "pc")


class Semaphores(wiring.Component):
    """Counters 1..semaphores of 0..SEMAPHORE_LIMIT; number 0 means none and is always there.

    Latency: a take is granted in the cycle it is asked for and counts from the next cycle on; what is given in cycle t
    can be taken in cycle t+2. An engine is refused while a lower engine could take one of its semaphores, or another
    engine took one of them in the cycle before.

    Parameters:
        config: number of semaphores.

    Ports:
        takes, gives: requests and signals of the engines, in the order of ENGINES.
        counting: something was given in the cycle before.
        overflow: a counter went beyond the limit, by what was given two cycles before. In the cycle after, `pc` is the
            instruction that gave it, `address` the semaphore, and `overflow_engine` the engine.

    Probes:
        counts: the counters, from number 1 on.  there: one bit per semaphore, set where its counter is not 0.
        granted, given, given_to: by engine, what happened in the cycle before: it took; it gave; a bit for each
            semaphore that it gave.
    """

    def __init__(self, config: NpuConfig) -> None:
        self.config = config
        super().__init__(
            {
                "takes": In(Take(config.semaphores)).array(len(ENGINES)),
                "gives": In(Retire(config)).array(len(ENGINES)),
                "counting": Out(1),
                "overflow": Out(Fault(config, SEMAPHORE_BITS)),
                "overflow_engine": Out(range(max(Engine) + 1)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        names = [e.name.lower() for e in ENGINES]
        n = self.config.semaphores
        size = n + 1
        counts = [Signal(range(SEMAPHORE_LIMIT + 1), name=f"count{i}") for i in range(1, size)]
        there = Signal(size, init=1)  # bit i: counter i is not 0

        # Takes. To keep paths short, nothing here depends on a counter's adder, nor one grant on another.
        waits: dict[str, Value] = {}
        able: dict[str, Signal] = {}
        granted: dict[str, Signal] = {}  # in the cycle before
        for e, asks in zip(names, self.takes):
            wait0, wait1, lacks0 = asks.wait0, asks.wait1, asks.lacks0
            waits[e], able[e], granted[e] = wait0 | wait1, Signal(name=f"{e}_able"), Signal(name=f"{e}_granted")
            m.d.comb += [
                lacks0.eq(~(there & wait0).any()),
                able[e].eq(asks.want & ~lacks0 & (there & wait1).any()),
            ]
            m.d.sync += granted[e].eq(asks.grant)
        for k, e in enumerate(names):
            refused: list[Value] = []
            for x in names:
                shared = (waits[x] & waits[e])[1:].any()
                if x in names[:k]:
                    refused.append((able[x] | granted[x]) & shared)
                elif x != e:
                    refused.append(granted[x] & shared)
            m.d.comb += self.takes[k].grant.eq(able[e] & ~Cat(refused).any())
        take = Signal(size)
        taken: Value = C(0, size)
        for e in names:
            taken = taken | (waits[e] & granted[e].replicate(size))
        m.d.comb += take.eq(taken)

        gives, first_gives, given_now = [], [], []  # in the cycle before
        for e, retired in zip(names, self.gives):
            mask, first = Signal(size, name=f"{e}_gives"), Signal(size, name=f"{e}_gives_first")
            # Of the numbers only bits that legal ones have.
            signal0, signal1 = (one_hot(s[: n.bit_length()], size) for s in (retired.signal0, retired.signal1))
            m.d.sync += [mask.eq(0), first.eq(signal0)]
            with m.If(retired.give):
                m.d.sync += mask.eq(signal0 | signal1)
            gives.append(mask)
            first_gives.append(first)
            given_now.append(Signal(name=f"{e}_given"))
            m.d.sync += given_now[-1].eq(retired.give)
        m.d.comb += self.counting.eq(Cat(given_now).any())
        event = Signal()  # lets a simulation skip the counters: without it the RTL simulates a third slower
        m.d.comb += event.eq(Cat(granted.values(), given_now).any())
        over = Signal(size)
        beyond = [Signal(name=f"beyond{i}") for i in range(1, size)]
        m.d.comb += over.eq(Cat(C(0, 1), *beyond))
        # The change of a counter by what happens to it, as a table: cheaper in an FPGA than five adders.
        changes = [C((x & 15).bit_count() - (x >> 4), signed(4)) for x in range(32)]
        assert len(gives) == 4
        with m.If(event):
            for i, count in enumerate(counts, 1):
                change = Signal(signed(4), name=f"change{i}")
                total = Signal(range(-1, SEMAPHORE_LIMIT + len(ENGINES) + 1), name=f"total{i}")
                given = Cat(*[g[i] for g in gives])
                m.d.comb += change.eq(Array(changes)[Cat(given, take[i])])
                m.d.comb += total.eq(count + change)
                m.d.comb += beyond[i - 1].eq(total >> SEMAPHORE_LIMIT.bit_length() == 1)
                m.d.sync += count.eq(total)
                m.d.sync += there[i].eq(given.any() | (count > 1) | ((count == 1) & ~take[i]))

        # The first engine that signals an overflowing semaphore is to blame: its cycle is found in the cycle after, the
        # engine in the next.
        over_now = Signal(size)
        m.d.sync += over_now.eq(over)
        m.d.comb += self.overflow.error.eq(over_now.any())
        for engine, e, retired, mask, first in reversed(list(zip(ENGINES, names, self.gives, gives, first_gives))):
            gave, gave_first = Signal(size, name=f"{e}_gave"), Signal(size, name=f"{e}_gave_first")
            blamed, blamed_first = Signal(name=f"{e}_blamed"), Signal(name=f"{e}_blamed_first")
            delayed: dict[str, Value] = {}
            for p in GIVEN:
                delayed[p] = getattr(retired, p)
                for n in range(3):
                    later = Signal.like(delayed[p], name=f"{e}_{p}_{n}")
                    m.d.sync += later.eq(delayed[p])
                    delayed[p] = later
            m.d.sync += [
                gave.eq(mask),
                gave_first.eq(first),
                blamed.eq((over_now & gave).any()),
                blamed_first.eq((over_now & gave_first).any()),
            ]
            with m.If(blamed):
                m.d.comb += [
                    self.overflow_engine.eq(engine),
                    self.overflow.pc.eq(delayed["pc"]),
                    self.overflow.address.eq(Mux(blamed_first, delayed["signal0"], delayed["signal1"])),
                ]
        declare_probes(self, counts=Array(counts), there=there, granted=dict(zip(ENGINES, granted.values())))
        declare_probes(self, given_to=dict(zip(ENGINES, gives)), given=dict(zip(ENGINES, given_now)))
        return m
