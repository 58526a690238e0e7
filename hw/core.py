"""The core: engines, queues, semaphores, scratchpads and the bus side; everything a soft reset clears."""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import Any

from amaranth.hdl import Array, C, Cat, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hw.activations import ActivationScratchpad
from hw.axi_read import AxiRead
from hw.bursts import OFFSET_BITS
from hw.control import ENGINES, ERROR_ADDRESS_BITS
from hw.fetch import Fetch
from hw.front_end import FrontEnd
from hw.gemm import Gemm
from hw.load import Load
from hw.ports import PC_BITS, axi_master, debug
from hw.queue import RegisteredQueue
from hw.scratchpads import AccumulatorScratchpad, ParameterScratchpad, TableScratchpad, WeightScratchpad
from hw.semaphores import Semaphores
from hw.store import WRITE_INPUTS, WRITE_PORTS, Store
from hw.table import header
from hw.vector import Vector
from isa.config import NpuConfig
from isa.instructions import INSTRUCTION_BITS, REGIONS, Engine, ErrorCode, Memory, queue_of
from isa.timing import QUIET_CYCLES

READ_PORTS = ("arvalid", "araddr", "arlen", "rready")
READ_INPUTS = ("arready", "rvalid", "rdata", "rresp", "rlast")


class Core(wiring.Component):
    """Connects the engines.

    Ports:
        start, halt: from control.  program_*, region{r}_*: registers.
        axi_*: AXI4 master.  bus_idle: nothing in flight.  finished: the program was complete two cycles before.
        error: there was one two cycles before.  error_code, error_engine, error_pc, error_address: the first of it,
            lowest engine first, a cycle later.
        progress; waiting, waiting_*; pc; {e}_step, {e}_waiting, {e}_stalled: see `hw.control`.
        dbg_*: see `hw.ports`.
    """

    def __init__(self, config: NpuConfig) -> None:
        self.config = config
        members: dict[str, object] = {}
        for r in range(REGIONS):
            members |= {
                f"region{r}_base": In(config.axi_address_bits),
                f"region{r}_size": In(OFFSET_BITS),
                f"region{r}_read": In(1),
                f"region{r}_write": In(1),
            }
        for engine in ENGINES:
            members |= {f"{engine.name.lower()}_{event}": Out(1) for event in ("step", "waiting", "stalled")}
        super().__init__(
            {
                **axi_master(config),
                **debug(),
                **members,
                "start": In(1),
                "halt": In(1),
                "program_region": In(range(REGIONS)),
                "program_offset": In(OFFSET_BITS),
                "program_length": In(PC_BITS),
                "bus_idle": Out(1),
                "finished": Out(1),
                "error": Out(1),
                "error_code": Out(8),
                "error_engine": Out(4),
                "error_pc": Out(PC_BITS),
                "error_address": Out(ERROR_ADDRESS_BITS),
                "progress": Out(1),
                "waiting": Out(1),
                "waiting_engine": Out(4),
                "waiting_pc": Out(PC_BITS),
                "waiting_id": Out(8),
                "pc": Out(PC_BITS),
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
        m.submodules.semaphores = semaphores = Semaphores(c)
        m.submodules.read = read = AxiRead(c)
        cores: dict[Engine, Any] = {Engine.LOAD: load, Engine.GEMM: gemm, Engine.VECTOR: vector, Engine.STORE: store}
        for part in (fetch, read, *cores.values()):
            m.d.comb += part.halt.eq(self.halt)

        # FETCH and the queues.
        def of_program(name: str) -> Value:
            return Array(getattr(self, f"region{r}_{name}") for r in range(REGIONS))[self.program_region]

        m.d.comb += [
            fetch.start.eq(self.start),
            fetch.offset.eq(self.program_offset),
            fetch.length.eq(self.program_length),
            self.pc.eq(fetch.pc),
            self.mac_step.eq(gemm.mac),
        ]
        # Set long before the run; the choice takes time.
        low = (c.bus_bytes - 1).bit_length()  # bits of a base that are 0
        for port, name, zeros in ((fetch.base, "base", low), (fetch.size, "size", 0), (fetch.allowed, "read", 0)):
            kept = Signal(len(port) - zeros, name=f"program_{name}", reset_less=True)
            m.d.sync += kept.eq(of_program(name) >> zeros)
            m.d.comb += port.eq(kept << zeros)
        fronts: dict[Engine, FrontEnd] = {}
        idle: list[Value] = [fetch.ended]
        quiet: list[Value] = []
        room = []
        queues: dict[Engine, RegisteredQueue] = {}
        for holder in dict.fromkeys(queue_of(e, c) for e in ENGINES):
            queue = m.submodules[f"{holder.name.lower()}_queue"] = queues[holder] = RegisteredQueue(
                INSTRUCTION_BITS + PC_BITS, c.queue_depth
            )
            mine = Cat(fetch.engine == e for e in ENGINES if queue_of(e, c) == holder).any()
            room.append(mine & queue.i_ready)
            m.d.comb += [
                queue.i_valid.eq(fetch.valid & mine),
                queue.i_payload.eq(Cat(fetch.word, fetch.pc)),
            ]
        for engine in ENGINES:
            e, core = engine.name.lower(), cores[engine]
            front = m.submodules[f"{e}_front"] = FrontEnd(c, engine)
            fronts[engine] = front
            queue = queues[queue_of(engine, c)]
            m.d.comb += [
                front.entry_valid.eq(queue.o_valid),
                Cat(front.entry_word, front.entry_pc).eq(queue.o_payload),
                front.entry_load.eq(queue.o_load),
                front.entry_next.eq(queue.o_next),
                front.core_ready.eq(core.ready),
                front.halt.eq(self.halt),
                getattr(semaphores, f"{e}_want").eq(front.want),
                getattr(semaphores, f"{e}_wait0").eq(front.wait0),
                getattr(semaphores, f"{e}_wait1").eq(front.wait1),
                front.grant.eq(getattr(semaphores, f"{e}_grant")),
                front.lacks0.eq(getattr(semaphores, f"{e}_lacks0")),
                core.configure.eq(front.configure),
                core.start.eq(front.start),
                core.word.eq(front.entry_word),
                core.pc.eq(front.entry_pc),
                getattr(semaphores, f"{e}_give").eq(core.give),
                getattr(semaphores, f"{e}_signal0").eq(core.signal0),
                getattr(semaphores, f"{e}_signal1").eq(core.signal1),
                getattr(semaphores, f"{e}_pc").eq(core.give_pc),
                getattr(self, f"{e}_step").eq(core.step),
                getattr(self, f"{e}_waiting").eq(front.waiting),
                getattr(self, f"{e}_stalled").eq(core.stalled if hasattr(core, "stalled") else 0),
                getattr(self, f"dbg_{e}_step").eq(core.step),
                getattr(self, f"dbg_{e}_start").eq(front.start),
                getattr(self, f"dbg_{e}_start_pc").eq(front.entry_pc),
                getattr(self, f"dbg_{e}_end").eq(core.give),
                getattr(self, f"dbg_{e}_end_pc").eq(core.give_pc),
            ]
            idle += [~front.mine, ~core.running]
            quiet.append(~core.running & (~front.mine | front.was_blocked))
        for holder, queue in queues.items():
            takers = [fronts[e] for e in ENGINES if queue_of(e, c) == holder]
            m.d.comb += queue.o_ready.eq(Cat(front.entry_ready for front in takers).any())
        m.d.comb += [
            fetch.ready.eq(Cat(room).any()),
            self.dbg_fetch_step.eq(fetch.step),
            self.dbg_fetch_start.eq(fetch.step),
            self.dbg_fetch_start_pc.eq(fetch.pc),
            self.dbg_fetch_end.eq(fetch.step & ~fetch.valid),
            self.dbg_fetch_end_pc.eq(fetch.pc),
        ]

        self._connect_scratchpads(m, load, gemm, vector, store)

        # The bus.
        full_size = (c.bus_bytes - 1).bit_length()
        m.d.comb += [getattr(self, f"axi_{n}").eq(getattr(read, n)) for n in READ_PORTS]
        m.d.comb += [getattr(read, n).eq(getattr(self, f"axi_{n}")) for n in READ_INPUTS]
        m.d.comb += [getattr(self, f"axi_{n}").eq(getattr(store, n)) for n in WRITE_PORTS]
        m.d.comb += [getattr(store, n).eq(getattr(self, f"axi_{n}")) for n in WRITE_INPUTS]
        for channel in ("ar", "aw"):
            m.d.comb += [
                getattr(self, f"axi_{channel}size").eq(full_size),
                getattr(self, f"axi_{channel}burst").eq(1),  # INCR
                getattr(self, f"axi_{channel}cache").eq(3),  # normal, non-cacheable, bufferable
            ]
        for name, part in (("fetch", fetch), ("load", load)):
            m.d.comb += [
                getattr(read, f"{name}_valid").eq(part.request_valid),
                getattr(read, f"{name}_address").eq(part.request_address),
                getattr(read, f"{name}_beats").eq(part.request_beats),
                part.request_ready.eq(getattr(read, f"{name}_ready")),
                part.beat.eq(getattr(read, f"{name}_beat")),
                part.beat_data.eq(read.data),
            ]
        m.d.comb += [
            fetch.beat_bad.eq(read.bad),
            read.load_beat_ready.eq(load.beat_ready),
            load.bus_idle.eq(read.load_idle),
            self.bus_idle.eq(read.idle & store.idle),
        ]
        finishing = Signal()
        still = Signal(range(QUIET_CYCLES + 1))  # cycles in which no engine moved
        with m.If(~Cat(quiet).all() | fetch.valid):
            m.d.sync += still.eq(0)
        with m.Elif(still != QUIET_CYCLES):
            m.d.sync += still.eq(still + 1)
        m.d.sync += [
            fetch.quiet.eq(still == QUIET_CYCLES),
            finishing.eq(Cat(*idle, read.idle, ~semaphores.counting).all()),
            self.finished.eq(finishing),  # one cycle later, so that an error of the cycle before comes first
        ]
        for r in range(REGIONS):
            for name in ("base", "size", "read", "write"):
                for part in (load, store):
                    if hasattr(part, f"region{r}_{name}"):
                        m.d.comb += getattr(part, f"region{r}_{name}").eq(getattr(self, f"region{r}_{name}"))

        # Errors, lowest engine first; progress; who waits.
        load_bad = load.beat & load.beat_ready & read.bad
        errors: list[tuple[Value, ErrorCode | Value, Engine | Value, Value, Value]] = [
            (fetch.error, fetch.error_code, Engine.FETCH, fetch.pc, fetch.error_address),
            (load.operand_error, ErrorCode.ILLEGAL_OPERAND, Engine.LOAD, load.pc, Value.cast(0)),
            (load.window_error, ErrorCode.WINDOW, Engine.LOAD, load.window_pc, load.window_address),
            (load_bad, ErrorCode.BUS_READ, Engine.LOAD, load.current_pc, read.beat_address),
            (load.range_error, ErrorCode.SCRATCHPAD_RANGE, Engine.LOAD, load.range_pc, load.range_row),
            (gemm.range_error, ErrorCode.SCRATCHPAD_RANGE, Engine.GEMM, gemm.range_pc, gemm.range_row),
            (vector.range_error, ErrorCode.SCRATCHPAD_RANGE, Engine.VECTOR, vector.range_pc, vector.range_row),
            (store.window_error, ErrorCode.WINDOW, Engine.STORE, store.window_pc, store.window_address),
            (store.range_error, ErrorCode.SCRATCHPAD_RANGE, Engine.STORE, store.range_pc, store.range_row),
            (store.bus_error, ErrorCode.BUS_WRITE, Engine.STORE, store.bus_pc, store.bus_address),
            (
                semaphores.overflow,
                ErrorCode.SEMAPHORE_OVERFLOW,
                semaphores.overflow_engine,
                semaphores.overflow_pc,
                semaphores.overflow_id,
            ),
        ]
        # An error that happens in cycle t is registered in t+1 (GEMM and VECTOR do that themselves), `error` follows in
        # t+2, and code, engine, instruction and address in t+3. `told` has what is registered in t+1.
        told: list[tuple[list[Value], Value, ErrorCode | Value, Engine | Value, Value, Value]] = []
        # `together`: errors registered side by side, of which the first one wins; `before`: those of lower engines.
        together: list[Value] = []
        before: list[Value] = []
        for n, (condition, code, where, pc, address) in enumerate(errors):
            if isinstance(where, Engine) and where in (Engine.GEMM, Engine.VECTOR):
                before = [failed for _, failed, *_ in told]
                told.append((before, condition, code, where, pc, address))
                together, before = [], [*before, condition]
                continue
            failed = Signal(name=f"error{n}")
            m.d.sync += failed.eq(condition & ~Cat(together, C(0, 1)).any())
            together.append(condition)
            late: list[Any] = [code, where, pc, address]
            for k, (x, name) in enumerate(zip(late, ("code", "engine", "pc", "at"))):
                if isinstance(x, Value):
                    late[k] = Signal.like(x, name=f"error{n}_{name}", reset_less=True)
                    # An overflow says which engine it was one cycle later; what the others say is kept for that cycle.
                    with m.If(1 if condition is semaphores.overflow else ~failed):
                        m.d.sync += late[k].eq(x)
            told.append((before, failed, *late))
        m.d.sync += self.error.eq(Cat(condition for _, condition, *_ in told).any())
        chosen: dict[str, list[Value]] = {"code": [], "engine": [], "pc": [], "address": []}
        for earlier, condition, *what in told:
            first = Signal()
            m.d.sync += first.eq(condition & ~Cat(earlier, C(0, 1)).any())
            for name, value in zip(chosen, what):
                port = getattr(self, f"error_{name}")
                chosen[name].append(Mux(first, value, 0)[: len(port)])
        m.d.sync += [getattr(self, f"error_{name}").eq(reduce(or_, values)) for name, values in chosen.items()]
        moves = [fetch.step, store.act_read & store.act_grant.any()]
        moves += [cores[e].step for e in ENGINES] + [fronts[e].entry_ready for e in ENGINES]
        for channel in ("ar", "r", "aw", "w", "b"):
            moves.append(getattr(self, f"axi_{channel}valid") & getattr(self, f"axi_{channel}ready"))
        moved = Signal(len(moves))
        m.d.sync += moved.eq(Cat(moves))
        m.d.comb += self.progress.eq(moved.any())
        for engine in reversed(ENGINES):
            front = fronts[engine]
            with m.If(front.waiting):
                m.d.comb += [
                    self.waiting.eq(1),
                    self.waiting_engine.eq(engine),
                    self.waiting_pc.eq(front.entry_pc),
                    self.waiting_id.eq(
                        Mux(
                            front.lacked0,
                            header(front.entry_word, "wait0"),
                            header(front.entry_word, "wait1"),
                        )
                    ),
                ]
        return m

    def _connect_scratchpads(self, m: Module, load: Load, gemm: Gemm, vector: Vector, store: Store) -> None:
        c = self.config
        m.submodules.act = act = ActivationScratchpad(c)
        m.submodules.wgt = wgt = WeightScratchpad(c)
        m.submodules.acc = acc = AccumulatorScratchpad(c)
        m.submodules.prm = prm = ParameterScratchpad(c)
        loaded: list[tuple[Memory, WeightScratchpad | ParameterScratchpad | TableScratchpad]]
        loaded = [(Memory.WGT, wgt), (Memory.PRM, prm)]
        lut_grant: Value = C(1)
        if c.table_lookup:
            m.submodules.lut = lut = TableScratchpad(c)
            loaded.append((Memory.LUT, lut))
            m.d.comb += [lut.read.eq(vector.lut_read), lut.table.eq(vector.lut_table)]
            lut_grant = lut.write_grant
            for l in range(c.block_in):
                m.d.comb += [
                    getattr(lut, f"index{l}").eq(getattr(vector, f"lut_index{l}")),
                    getattr(vector, f"lut_value{l}").eq(getattr(lut, f"value{l}")),
                ]

        # LOAD writes.
        target = {t: Signal(name=f"load_to_{t.name.lower()}") for t in Memory}
        m.d.comb += [target[t].eq(load.write_valid & (load.write_target == t)) for t in Memory]
        m.d.comb += [
            act.load_write.eq(target[Memory.ACT]),
            act.load_row.eq(load.write_row),
            act.load_rows.eq(load.write_rows),
            act.load_chunk.eq(load.write_chunk),
            act.load_full.eq(load.write_full),
            act.load_data.eq(load.write_data),
            load.write_grant.eq((~target[Memory.ACT] | act.load_grant) & (~target[Memory.LUT] | lut_grant)),
        ]
        for t, pad in loaded:
            m.d.comb += [
                pad.write.eq(target[t]),
                pad.write_row.eq(load.write_row),
                pad.write_chunk.eq(load.write_chunk),
                pad.write_full.eq(load.write_full),
                pad.write_data.eq(load.write_data),
            ]

        # GEMM.
        m.d.comb += [
            act.gemm_read.eq(gemm.act_read),
            act.gemm_row.eq(gemm.act_row),
            gemm.act_data.eq(act.gemm_data),
            wgt.read.eq(gemm.wgt_read),
            wgt.read_row.eq(gemm.wgt_row),
            acc.gemm_read.eq(gemm.acc_read),
            acc.gemm_row.eq(gemm.acc_read_row),
            acc.write_mask.eq(gemm.acc_write_mask),
            acc.write_row.eq(gemm.acc_write_row),
        ]
        m.d.comb += [getattr(gemm, f"weights{o}").eq(getattr(wgt, f"row{o}")) for o in range(c.block_out)]
        for n in range(acc.columns):
            m.d.comb += [
                getattr(acc, f"write_data{n}").eq(getattr(gemm, f"acc_write_data{n}")),
                getattr(gemm, f"acc_data{n}").eq(getattr(acc, f"data{n}")),
                getattr(vector, f"acc_data{n}").eq(getattr(acc, f"data{n}")),
            ]

        # VECTOR.
        m.d.comb += [
            acc.vector_read.eq(vector.acc_read),
            acc.vector_row.eq(vector.acc_row),
            vector.acc_grant.eq(acc.vector_grant),
            act.vector_write.eq(vector.write),
            act.vector_write_row.eq(vector.write_row),
            act.vector_write_data.eq(vector.write_data),
        ]
        for x in ("a", "b"):
            m.d.comb += [
                getattr(act, f"vector_{x}_read").eq(getattr(vector, f"{x}_read")),
                getattr(act, f"vector_{x}_row").eq(getattr(vector, f"{x}_row")),
                getattr(vector, f"{x}_grant").eq(getattr(act, f"vector_{x}_grant")),
                getattr(vector, f"{x}_data").eq(getattr(act, f"vector_{x}_data")),
            ]
        for kind in ("bias", "scale"):
            m.d.comb += [
                getattr(prm, f"{kind}_read").eq(getattr(vector, f"{kind}_read")),
                getattr(prm, f"{kind}_row").eq(getattr(vector, f"{kind}_row")),
                getattr(vector, f"{kind}_data").eq(getattr(prm, kind)),
            ]

        # STORE.
        m.d.comb += [
            act.store_read.eq(store.act_read),
            act.store_row.eq(store.act_row),
            act.store_more.eq(store.act_more),
            store.act_grant.eq(act.store_grant),
            store.act_data.eq(act.store_data),
        ]
