"""Counting semaphores: four engines take and give."""

from __future__ import annotations

from amaranth.hdl import Array, C, Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hw.ports import PC_BITS
from isa.config import SEMAPHORE_LIMIT, NpuConfig
from isa.instructions import HEADER, Engine

#: Engines with semaphores, in priority order.
ENGINES = [e for e in Engine if e != Engine.FETCH]
SEMAPHORE_BITS = next(f for f in HEADER if f.name == "wait0").bits


class Semaphores(wiring.Component):
    """Counters 1..semaphores of 0..SEMAPHORE_LIMIT; number 0 means none and is always there.

    Latency: a take is granted in the cycle it is asked for; what is given in cycle t can be taken in cycle t+1.
    If two engines can take the same semaphore in one cycle, the lower engine number does and the other asks again.

    Parameters:
        config: number of semaphores.

    Ports, for e of load, gemm, vector, store:
        {e}_want, {e}_wait0, {e}_wait1: engine asks for both in this cycle.
        {e}_grant: it gets both (only while it asks).
        {e}_missing: the lowest-numbered field of the two that is not there (0 = none), for diagnosis.
        {e}_give, {e}_signal0, {e}_signal1, {e}_pc: engine gives one count to each.
        overflow, overflow_engine, overflow_pc, overflow_id: a counter went beyond the limit in this cycle.
    """

    def __init__(self, config: NpuConfig) -> None:
        self.config = config
        members: dict[str, object] = {
            "overflow": Out(1),
            "overflow_engine": Out(range(max(Engine) + 1)),
            "overflow_pc": Out(PC_BITS),
            "overflow_id": Out(SEMAPHORE_BITS),
        }
        for engine in ENGINES:
            e = engine.name.lower()
            members |= {
                f"{e}_want": In(1),
                f"{e}_wait0": In(SEMAPHORE_BITS),
                f"{e}_wait1": In(SEMAPHORE_BITS),
                f"{e}_grant": Out(1),
                f"{e}_missing": Out(SEMAPHORE_BITS),
                f"{e}_give": In(1),
                f"{e}_signal0": In(SEMAPHORE_BITS),
                f"{e}_signal1": In(SEMAPHORE_BITS),
                f"{e}_pc": In(PC_BITS),
            }
        super().__init__(members)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        names = [e.name.lower() for e in ENGINES]
        n = self.config.semaphores
        size = 1 << SEMAPHORE_BITS
        counts = [Signal(range(SEMAPHORE_LIMIT + 1), name=f"count{i}") for i in range(1, n + 1)]
        there = Signal(size)  # bit i: semaphore i can be taken
        m.d.comb += there.eq(Cat(C(1, 1), *[c != 0 for c in counts]))

        # Takes: a chain in priority order; `left` is what lower engine numbers leave.
        left = there
        taken = C(0, size)
        for e in names:
            want, w0, w1 = (getattr(self, f"{e}_{p}") for p in ("want", "wait0", "wait1"))
            grant, missing = getattr(self, f"{e}_grant"), getattr(self, f"{e}_missing")
            mask = Signal(size, name=f"{e}_mask")
            after = Signal(size, name=f"{e}_left")
            m.d.comb += [
                grant.eq(want & left.bit_select(w0, 1) & left.bit_select(w1, 1)),
                missing.eq(Mux(there.bit_select(w0, 1), Mux(there.bit_select(w1, 1), 0, w1), w0)),
                after.eq(left),
            ]
            with m.If(grant):
                m.d.comb += [
                    mask.eq((C(1, size) << w0) | (C(1, size) << w1)),
                    after.eq(left & ~mask | 1),
                ]
            taken = taken | mask
            left = after
        take = Signal(size)
        m.d.comb += take.eq(taken)

        gives = []
        for e in names:
            mask = Signal(size, name=f"{e}_gives")
            with m.If(getattr(self, f"{e}_give")):
                s0, s1 = getattr(self, f"{e}_signal0"), getattr(self, f"{e}_signal1")
                m.d.comb += mask.eq((C(1, size) << s0) | (C(1, size) << s1))
            gives.append(mask)
        event = Signal()
        m.d.comb += event.eq(Cat(take[1:], *[g[1:] for g in gives]).any())
        over = Signal(size)
        beyond = [Signal(name=f"beyond{i}") for i in range(1, n + 1)]
        m.d.comb += over.eq(Cat(C(0, 1), *beyond))
        with m.If(event):
            for i, count in enumerate(counts, 1):
                total = Signal(range(-1, SEMAPHORE_LIMIT + len(ENGINES) + 1), name=f"total{i}")
                m.d.comb += total.eq(count + sum(g[i] for g in gives) - take[i])
                m.d.comb += beyond[i - 1].eq(total > SEMAPHORE_LIMIT)
                m.d.sync += count.eq(total)

        # The first engine that signals an overflowing semaphore is to blame.
        m.d.comb += self.overflow.eq(over.any())
        for engine, e, mask in reversed(list(zip(ENGINES, names, gives))):
            s0, s1 = getattr(self, f"{e}_signal0"), getattr(self, f"{e}_signal1")
            with m.If((over & mask).any()):
                m.d.comb += [
                    self.overflow_engine.eq(engine),
                    self.overflow_pc.eq(getattr(self, f"{e}_pc")),
                    self.overflow_id.eq(Mux(over.bit_select(s0, 1), s0, s1)),
                ]
        self.counts = Array(counts)
        return m
