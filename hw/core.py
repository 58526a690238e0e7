"""The core: engines, queues, semaphores, scratchpads and the bus side; everything a soft reset clears."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from tilewright.hw.connections import unread
from tilewright.hw.gemm.gemm import Gemm
from tilewright.hw.interfaces import ENGINES, Axi4, CoreStatus, Debug, EngineEvents, Program, RegionLookup
from tilewright.hw.issue.engine import EngineShell
from tilewright.hw.issue.faults import Faults
from tilewright.hw.issue.fetch import Fetch
from tilewright.hw.issue.front_end import FrontEnd
from tilewright.hw.issue.semaphores import Semaphores
from tilewright.hw.memory.axi_read import AxiRead
from tilewright.hw.memory.storage import Storage
from tilewright.hw.parts.queue import HeadQueue
from tilewright.hw.sizes import pc_bits
from tilewright.hw.table import header
from tilewright.hw.transfer.load import Load
from tilewright.hw.transfer.store import Store
from tilewright.hw.vector.vector import Vector
from tilewright.isa.config import NpuConfig
from tilewright.isa.fields import INSTRUCTION_BITS
from tilewright.isa.instructions import Engine, queue_of
from tilewright.isa.timing import QUIET_CYCLES


class Core(wiring.Component):
    """Connects the engines.

    Ports:
        start, halt: from control.  program: registers.  load_region, store_region: memory regions, looked up.
        axi: AXI4 master.
        status: to control.
        activities: to the counters, in the order of ENGINES.  mac_step: GEMM makes a product.
        dbg: for timelines.
    """

    def __init__(self, config: NpuConfig) -> None:
        self.config = config
        super().__init__(
            {
                "axi": Out(Axi4(config)),
                "dbg": Out(Debug(config)),
                "program": In(Program(config)),
                "load_region": Out(RegionLookup(config)),
                "store_region": Out(RegionLookup(config)),
                "start": In(1),
                "halt": In(1),
                "status": Out(CoreStatus(config)),
                "activities": Out(EngineEvents()).array(len(ENGINES)),
                "mac_step": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        c = self.config
        m.submodules.fetch = fetch = Fetch(c)
        m.submodules.load = load = Load(c)
        m.submodules.gemm = gemm = Gemm(c)
        m.submodules.vector = vector = Vector(c)
        m.submodules.store = store = Store(c)
        m.submodules.read = read = AxiRead(c)
        m.submodules.semaphores = semaphores = Semaphores(c)
        m.submodules.faults = faults = Faults(c)
        m.submodules.storage = storage = Storage(c)
        engines: dict[Engine, EngineShell] = {e.engine: e for e in (load, gemm, vector, store)}

        # Memory.
        connect(m, fetch.read, read.fetch)
        connect(m, load.read, read.load)
        for channel in ("ar", "r"):
            connect(m, flipped(getattr(self.axi, channel)), getattr(read, channel))
        for channel in ("aw", "w", "b"):
            connect(m, flipped(getattr(self.axi, channel)), getattr(store, channel))
        for region, access, allowed in (
            (self.load_region, load.region, self.load_region.read),
            (self.store_region, store.region, self.store_region.write),
        ):
            m.d.comb += [
                region.number.eq(access.number),
                access.base.eq(region.base),
                access.size.eq(region.size),
                access.allowed.eq(allowed),
            ]
        unread(m, self.load_region.write)

        # Scratchpads.
        connect(m, load.write, storage.load)
        connect(m, gemm.act, storage.gemm_act)
        connect(m, gemm.wgt, storage.gemm_wgt)
        connect(m, gemm.acc, storage.gemm_acc)
        connect(m, gemm.acc_write, storage.acc_write)
        connect(m, vector.acc, storage.vector_acc)
        connect(m, vector.a, storage.vector_a)
        connect(m, vector.b, storage.vector_b)
        connect(m, vector.bias, storage.bias)
        connect(m, vector.scale, storage.scale)
        connect(m, vector.write, storage.vector_write)
        connect(m, store.act, storage.store)
        if c.window_pairs:
            connect(m, gemm.second, storage.gemm_second)
        if c.weight_codes:
            connect(m, load.codes, storage.codes)
        if c.row_unit:
            connect(m, vector.scale_write, storage.scale_write)
        if c.table_lookup:
            connect(m, vector.table, storage.table)

        # Errors.
        connect(m, fetch.fault, faults.fetch)
        connect(m, load.operand_fault, faults.load_operand)
        connect(m, load.window_fault, faults.load_window)
        connect(m, load.bus_fault, faults.load_bus)
        connect(m, load.range_fault, faults.load_range)
        if c.weight_codes:
            connect(m, load.code_fault, faults.load_code)
        connect(m, gemm.range_fault, faults.gemm_range)
        connect(m, vector.range_fault, faults.vector_range)
        connect(m, store.window_fault, faults.store_window)
        connect(m, store.range_fault, faults.store_range)
        connect(m, store.bus_fault, faults.store_bus)
        connect(m, semaphores.overflow, faults.overflow)
        m.d.comb += [faults.fetch_code.eq(fetch.fault_code), faults.overflow_engine.eq(semaphores.overflow_engine)]
        connect(m, faults.report, flipped(self.status.error))

        fronts = self._fronts(m, engines, semaphores)
        filled = self._queues(m, fetch, fronts)
        self._locate_program(m, fetch)
        self._report(m, fetch, store, fronts, engines)
        self._end(m, fetch, read, store, fronts, engines, semaphores, filled)
        for part in (fetch, read):
            m.d.comb += part.halt.eq(self.halt)
        m.d.comb += [fetch.start.eq(self.start), self.mac_step.eq(gemm.mac)]
        return m

    def _fronts(self, m: Module, engines: dict[Engine, EngineShell], semaphores: Semaphores) -> dict[Engine, FrontEnd]:
        """Makes a front end for every engine, between semaphores and engine."""
        fronts: dict[Engine, FrontEnd] = {}
        for n, engine in enumerate(ENGINES):
            front = m.submodules[f"{engine.name.lower()}_front"] = fronts[engine] = FrontEnd(self.config, engine)
            connect(m, front.engine, engines[engine].control)
            connect(m, front.semaphores, semaphores.takes[n])
            connect(m, engines[engine].retire, semaphores.gives[n])
            m.d.comb += front.halt.eq(self.halt)
        return fronts

    def _queues(self, m: Module, fetch: Fetch, fronts: dict[Engine, FrontEnd]) -> Value:
        """Makes the instruction queues between FETCH and the front ends, of which two may share one. Returns whether
        any queue holds an instruction."""
        c = self.config
        room, filled = [], []
        for holder in dict.fromkeys(queue_of(e, c) for e in ENGINES):
            takers = [e for e in ENGINES if queue_of(e, c) == holder]
            entry = Cat(fetch.word, fetch.pc, *[fronts[e].marks(fetch.word) for e in takers])
            queue = m.submodules[f"{holder.name.lower()}_queue"] = HeadQueue(len(entry), c.queue_depth)
            mine = Cat(fetch.engine == e for e in takers).any()
            room.append(mine & queue.i_ready)
            filled.append(queue.filled)
            m.d.comb += [
                queue.i_valid.eq(fetch.valid & mine),
                queue.i_payload.eq(entry),
                queue.o_ready.eq(Cat(fronts[e].entry_ready for e in takers).any()),
            ]
            name = holder.name.lower()
            word, pc = Signal(INSTRUCTION_BITS, name=f"{name}_word"), Signal(pc_bits(c), name=f"{name}_pc")
            m.d.comb += Cat(word, pc, *[fronts[e].entry_marks for e in takers]).eq(queue.o_payload)
            for e in takers:
                m.d.comb += [
                    fronts[e].entry_valid.eq(queue.o_valid),
                    fronts[e].entry_word.eq(word),
                    fronts[e].entry_pc.eq(pc),
                    fronts[e].entry_load.eq(queue.o_load),
                    fronts[e].entry_next.eq(queue.o_next),
                ]
        m.d.comb += fetch.ready.eq(Cat(room).any())
        return Cat(filled).any()

    def _locate_program(self, m: Module, fetch: Fetch) -> None:
        """Looks up the program's region, which is set long before the run, by the port of STORE, which does nothing
        yet."""
        low = (self.config.bus_bytes - 1).bit_length()  # bits of a base that are 0
        region = self.store_region
        begun = Signal()
        with m.If(self.start):
            m.d.sync += begun.eq(1)
        with m.If(~begun):
            m.d.comb += region.number.eq(self.program.region)
        for port, name, zeros in ((fetch.base, "base", low), (fetch.size, "size", 0), (fetch.allowed, "read", 0)):
            kept = Signal(len(port) - zeros, name=f"program_{name}", reset_less=True)
            with m.If(~begun):
                m.d.sync += kept.eq(getattr(region, name) >> zeros)
            m.d.comb += port.eq(kept << zeros)
        m.d.comb += [
            fetch.offset.eq(self.program.offset),
            fetch.length.eq(self.program.length),
            self.status.pc.eq(fetch.pc),
        ]

    def _report(
        self,
        m: Module,
        fetch: Fetch,
        store: Store,
        fronts: dict[Engine, FrontEnd],
        engines: dict[Engine, EngineShell],
    ) -> None:
        """Drives counters, timelines, `progress`, and the engine that waits for a semaphore."""
        dbg = self.dbg.fetch
        m.d.comb += [
            dbg.step.eq(fetch.step),
            dbg.start.eq(fetch.step),
            dbg.start_pc.eq(fetch.pc),
            dbg.end.eq(fetch.step & ~fetch.valid),
            dbg.end_pc.eq(fetch.pc),
        ]
        for engine, events in zip(ENGINES, self.activities, strict=True):
            shell, front, dbg = engines[engine], fronts[engine], getattr(self.dbg, engine.name.lower())
            m.d.comb += [
                events.step.eq(shell.activity.step),
                events.waiting.eq(front.waiting),
                events.stalled.eq(shell.activity.stalled),
                dbg.step.eq(shell.activity.step),
                dbg.start.eq(front.engine.start),
                dbg.start_pc.eq(front.entry_pc),
                dbg.end.eq(shell.retire.give),
                dbg.end_pc.eq(shell.retire.pc),
            ]
        moves = [fetch.step, store.act.valid & store.act.grant.any()]
        moves += [engines[e].activity.step for e in ENGINES] + [fronts[e].entry_ready for e in ENGINES]
        moves += [c.valid & c.ready for c in (self.axi.ar, self.axi.r, self.axi.aw, self.axi.w, self.axi.b)]
        groups = [Cat(moves[n : n + 4]) for n in range(0, len(moves), 4)]
        moved = Signal(len(groups))  # in the cycle before
        m.d.sync += moved.eq(Cat(group.any() for group in groups))
        waiting = self.status.waiting
        m.d.comb += self.status.progress.eq(moved.any())
        for engine in reversed(ENGINES):
            front = fronts[engine]
            wait0, wait1 = (header(front.entry_word, name) for name in ("wait0", "wait1"))
            with m.If(front.waiting):
                m.d.comb += [
                    waiting.valid.eq(1),
                    waiting.engine.eq(engine),
                    waiting.pc.eq(front.entry_pc),
                    waiting.id.eq(Mux(front.lacked0, wait0, wait1)),
                ]

    def _end(
        self,
        m: Module,
        fetch: Fetch,
        read: AxiRead,
        store: Store,
        fronts: dict[Engine, FrontEnd],
        engines: dict[Engine, EngineShell],
        semaphores: Semaphores,
        filled: Value,
    ) -> None:
        """Finds when the program is complete, when the bus is idle, and when no engine can move any more."""
        running = {e: engines[e].activity.running for e in ENGINES}
        idle: list[Value] = [fetch.ended, ~filled]
        quiet: list[Value] = []
        for e in ENGINES:
            idle.append(~running[e])
            quiet.append(~running[e] & (~fronts[e].mine | fronts[e].was_blocked))
        finishing = Signal()
        still = Signal(range(QUIET_CYCLES + 1))  # cycles in which no engine moved
        with m.If(~Cat(quiet).all() | fetch.valid):
            m.d.sync += still.eq(0)
        with m.Elif(still != QUIET_CYCLES):
            m.d.sync += still.eq(still + 1)
        m.d.sync += [
            fetch.quiet.eq(still == QUIET_CYCLES),
            finishing.eq(Cat(*idle, read.idle, ~semaphores.counting).all()),
            self.status.finished.eq(finishing),  # one cycle later, so that an error of the cycle before comes first
        ]
        m.d.comb += self.status.bus_idle.eq(read.idle & store.idle)
