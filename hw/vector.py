"""The VECTOR engine: loop nest, operand reads, lanes."""

from __future__ import annotations

from amaranth.hdl import Array, Cat, Module, Mux, Signal, Value, signed
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from hw.loop_nest import LoopNest, report_range
from hw.ports import PC_BITS
from hw.queue import RegisteredQueue
from hw.requantizer import FINAL_STAGE, INSIDE_STAGE, SCALE_STAGE, WINDOW_STAGE
from hw.scratchpads import bits_for
from hw.semaphores import SEMAPHORE_BITS
from hw.table import field, header, instructions_of
from hw.vector_lane import (
    ADD_STAGE,
    BIAS_STAGE,
    CLAMP_STAGE,
    LUT_STAGE,
    PRODUCT_STAGE,
    READ_STAGE,
    REQUANTIZE_STAGE,
    RESULT_STAGE,
    SOURCE_STAGE,
    VectorLane,
)
from isa.config import NpuConfig
from isa.instructions import ADDRESS_BITS, BY_NAME, INSTRUCTION_BITS, Engine, Rounding, Source
from isa.timing import VECTOR_DEPTH, VECTOR_SIGNAL

ADDRESSES = ("a", "b", "dst", "prm")
CONFIGURING = [i.name for i in instructions_of(Engine.VECTOR, configures=True)]
#: Instructions the pipeline can hold, with room to spare: contexts are reused in turn.
CONTEXTS = 32
#: Cycles after the step in which the row of ACC is there.
ACC_STAGE = 1
assert VECTOR_DEPTH + 2 < CONTEXTS and RESULT_STAGE == VECTOR_DEPTH


def _post_layout(*names: str) -> data.StructLayout:
    """Fields of the configuring instructions, as the pipeline keeps them."""
    shapes = {}
    for name in names:
        f = BY_NAME["VECTOR_ADD"].by_name.get(name) or BY_NAME["VECTOR_POST"].by_name.get(name)
        f = f or BY_NAME["VECTOR"].by_name[name]
        shapes[name] = signed(f.bits) if f.signed else f.bits
    return data.StructLayout(shapes)


#: What the requantiser and the stages after it need; kept per instruction, read when a step gets there.
REQUANTIZE = _post_layout("zp", "lo", "hi", "rounding", "source")
FINISH = _post_layout("ma", "mb", "c", "shift", "add_lo", "add_hi", "add", "lut", "table")


class Vector(wiring.Component):
    """Runs VECTOR: one step per cycle unless a read is refused or a and b lie in one bank.

    Cycle 0: step, reads of ACC or ACT granted (all or none of them; with a and b in one bank, a in an earlier cycle).
    Then the stages of `VectorLane`. Signals are given VECTOR_SIGNAL cycles after the last step: the first step
    they allow comes in the cycle after its ACT write.

    Ports:
        configure, start, word, pc, ready: front end.
        acc_read, acc_row, acc_grant, acc_data{c}; a_*, b_*: reads.  prm (bias_*, scale_*), lut_*: reads, never refused;
        there is no lut_* without tables.
        write, write_row, write_data: to ACT.
        give, signal0, signal1, give_pc: completed instruction.
        step, running, current_pc, stalled: a step is made; at work; of which instruction; a read was refused.
        range_error, range_row, range_pc: the step before named a row beyond its memory; there is none in this cycle.
        halt: make no more steps.
    """

    def __init__(self, config: NpuConfig) -> None:
        self.config = config
        self.columns = max(config.block_in, config.block_out) // config.dw_lanes
        row = 8 * config.block_in
        reads: dict[str, object] = {}
        for operand in ("a", "b"):
            reads |= {
                f"{operand}_read": Out(1),
                f"{operand}_row": Out(ADDRESS_BITS),
                f"{operand}_grant": In(1),
                f"{operand}_data": In(row),
            }
        if config.table_lookup:
            reads |= {"lut_read": Out(1), "lut_table": Out(4)}
            reads |= {f"lut_index{l}": Out(8) for l in range(config.block_in)}
            reads |= {f"lut_value{l}": In(8) for l in range(config.block_in)}
        for kind in ("bias", "scale"):
            reads |= {
                f"{kind}_read": Out(1),
                f"{kind}_row": Out(ADDRESS_BITS),
                f"{kind}_data": In(32 * config.block_in),
            }
        super().__init__(
            {
                "configure": In(len(CONFIGURING)),
                "start": In(1),
                "word": In(INSTRUCTION_BITS),
                "pc": In(PC_BITS),
                "ready": Out(1),
                "acc_read": Out(1),
                "acc_row": Out(ADDRESS_BITS),
                "acc_grant": In(1),
                **{f"acc_data{c}": In(32 * config.dw_lanes) for c in range(self.columns)},
                **reads,
                "write": Out(1),
                "write_row": Out(ADDRESS_BITS),
                "write_data": Out(row),
                "give": Out(1),
                "signal0": Out(SEMAPHORE_BITS),
                "signal1": Out(SEMAPHORE_BITS),
                "give_pc": Out(PC_BITS),
                "step": Out(1),
                "running": Out(1),
                "current_pc": Out(PC_BITS),
                "stalled": Out(1),
                "range_error": Out(1),
                "range_row": Out(ADDRESS_BITS),
                "range_pc": Out(PC_BITS),
                "halt": In(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        c = self.config
        m.submodules.nest = nest = LoopNest(c.vector_loops, ADDRESSES, outer=("b", "dst", "prm"))

        def run(name: str) -> Value:
            return field(self.word, "VECTOR", name)

        # Configuration registers.
        opcode = header(self.word, "opcode")
        m.d.comb += nest.configure.eq(self.configure[CONFIGURING.index("VECTOR_LOOP")])
        for name in ("level", "count", *(f"{a}_stride" for a in ADDRESSES)):
            m.d.comb += getattr(nest, name).eq(field(self.word, "VECTOR_LOOP", name))
        registers: dict[str, Signal] = {}
        for name in ("VECTOR_ADD", "VECTOR_POST"):
            for f in BY_NAME[name].fields:
                registers[f.name] = Signal(signed(f.bits) if f.signed else f.bits, name=f.name)
                with m.If(self.configure[CONFIGURING.index(name)]):
                    m.d.sync += registers[f.name].eq(field(self.word, name, f.name))

        # The instruction at work.
        active, null = Signal(), Signal()  # null: VECTOR_SYNC, one step without reads
        last_step = null | nest.last
        source = Signal(BY_NAME["VECTOR"].by_name["source"].bits)
        reducing, uses_b, from_acc, biased = Signal(), Signal(), Signal(), Signal()
        za, zb = Signal.like(registers["za"]), Signal.like(registers["zb"])
        slot = Signal(range(CONTEXTS))

        # About the next step, computed one step ahead: whether it makes a row, and what it reads.
        # `half`: a and b lie in one bank, so a is read alone first, which is no step.
        bank_bits = (c.act_banks - 1).bit_length()
        result, half = Signal(), Signal()
        reads_acc, reads_a, reads_b = Signal(), Signal(), Signal()

        def one_bank(a: Value, b: Value) -> Value:
            return a[:bank_bits] == b[:bank_bits]

        new_source = run("source")
        new = {
            "null": opcode == BY_NAME["VECTOR_SYNC"].opcode,
            "reducing": (new_source == Source.SUM) | (new_source == Source.MAX),
            "uses_b": run("add") | (new_source == Source.MUL),
            "from_acc": new_source == Source.ACC,
        }
        at_work = {"null": null, "reducing": reducing, "uses_b": uses_b, "from_acc": from_acc}

        def of_step(of: dict[str, Value], group_last: Value, same: Value) -> list[tuple[Signal, Value]]:
            makes_row = ~of["reducing"] | group_last
            needs_b = ~of["null"] & of["uses_b"] & makes_row
            together = of["from_acc"] | ~same  # a and b, or no a
            return [
                (result, makes_row),
                (half, needs_b & ~together),
                (reads_acc, ~of["null"] & of["from_acc"]),
                (reads_a, ~of["null"] & ~of["from_acc"]),
                (reads_b, needs_b & together),
            ]

        go, granted = Signal(), Signal()
        with m.If(granted & half):
            m.d.sync += [half.eq(0), reads_a.eq(0), reads_b.eq(1)]
        with m.If(self.step):
            m.d.sync += [
                to.eq(value)
                for to, value in of_step(at_work, nest.group_last_stepped, one_bank(nest.a_next, nest.b_next))
            ]
            with m.If(last_step):
                m.d.sync += active.eq(0)
        with m.If(self.start):
            m.d.sync += [active.eq(1), slot.eq(slot + 1)]
        with m.If(~active):  # also without a start, so that `start` itself reaches few cells
            m.d.sync += [
                to.eq(value) for to, value in of_step(new, nest.group_last_started, one_bank(run("a"), run("b")))
            ]
            m.d.sync += [to.eq(new[name]) for name, to in at_work.items()]
            m.d.sync += [
                source.eq(new_source),
                biased.eq((new_source == Source.ACC) | (new_source == Source.MUL) | (new_source == Source.SUM)),
                za.eq(registers["za"]),
                zb.eq(registers["zb"]),
                self.current_pc.eq(self.pc),
            ]
        m.d.comb += [nest.start.eq(~active), nest.step.eq(self.step)]
        m.d.comb += [getattr(nest, f"{a}_base").eq(run(a)) for a in ADDRESSES]
        # The levels of a group: those below `reduce`.
        m.d.comb += nest.inner.eq(Cat(new["reducing"] & (run("reduce") > k) for k in range(c.vector_loops)))

        # Reads and the step. Reads are also asked for while halted: whatever waits for them is halted as well.
        asks = Signal()
        m.d.comb += [
            asks.eq(active & ~self.range_error),
            go.eq(asks & ~self.halt),
            self.acc_read.eq(asks & reads_acc),
            self.a_read.eq(asks & reads_a),
            self.a_row.eq(nest.a),
            self.b_read.eq(asks & reads_b),
            self.b_row.eq(nest.b),
            granted.eq(go & ~((reads_acc & ~self.acc_grant) | (reads_a & ~self.a_grant) | (reads_b & ~self.b_grant))),
            self.step.eq(granted & ~half),
            self.stalled.eq(go & ~self.step),
            self.ready.eq(~active),
        ]

        columns, lanes = self.columns, c.dw_lanes
        column_bits = (columns - 1).bit_length()
        column = Signal(bits_for(columns))
        narrow = c.block_in < c.block_out  # a vector is one column of the physical row
        if narrow:
            m.d.comb += [self.acc_row.eq(nest.a >> column_bits), column.eq(nest.a[:column_bits])]
        else:
            m.d.comb += self.acc_row.eq(nest.a)

        # Rows beyond their memory: found in the step, reported in the next cycle.
        makes = self.step & ~null
        limits = [
            (nest.a, nest.a >= Mux(from_acc, c.acc_vectors, c.act_rows)),
            (nest.b, uses_b & result & (nest.b >= c.act_rows)),
            (nest.prm, biased & result & (nest.prm >= c.prm_rows)),
            (nest.dst, result & (nest.dst >= c.act_rows)),
        ]
        report_range(m, self, makes, limits)

        # Contexts: what later stages need of an instruction. Written until it starts, read when its steps reach them.
        next_slot = Signal.like(slot)
        m.d.comb += next_slot.eq(slot + 1)
        slots: list[Value] = [slot]
        for t in range(ADD_STAGE):
            moved = Signal(range(CONTEXTS), name=f"slot_{t + 1}", reset_less=True)
            m.d.sync += moved.eq(slots[-1])
            slots.append(moved)

        def context(name: str, layout: data.StructLayout, stage: int) -> data.View:
            """The instruction's record, registered, as of pipeline cycle `stage`."""
            store = Memory(shape=layout, depth=CONTEXTS, init=[])
            m.submodules[name] = store
            write, read = store.write_port(), store.read_port(domain="comb")
            m.d.comb += [write.en.eq(1), write.addr.eq(next_slot), read.addr.eq(slots[stage - 1])]
            for member in layout.members:
                value = registers[member] if member in registers else run(member)
                m.d.comb += write.data[member].eq(value)
            record = Signal(layout, name=f"{name}_now", reset_less=True)
            m.d.sync += record.eq(read.data)
            return record

        def later(value: Value, cycles: int, name: str, *, reset_less: bool = True) -> Value:
            for t in range(cycles):
                held = Signal(Value.cast(value).shape(), name=f"{name}_{t}", reset_less=reset_less)
                m.d.sync += held.eq(value)
                value = held
            return value

        inside_at = REQUANTIZE_STAGE + INSIDE_STAGE
        requantize = context("requantize", REQUANTIZE, inside_at - 1)
        finish = context("finish", FINISH, ADD_STAGE - 1)

        def lower(low: Value, high: Value) -> Value:
            """The lower of two limits: where they cross, the upper one holds."""
            return Mux(low > high, high, low)

        is_inside = requantize.rounding == Rounding.EVEN_ZERO_POINT_INSIDE
        inside_zero_point = later(Mux(is_inside, requantize.zp, 0), 1, "inside_zero_point")
        outside_zero_point = later(Mux(is_inside, 0, requantize.zp), WINDOW_STAGE - INSIDE_STAGE + 1, "zero_point")
        window = later(is_inside, WINDOW_STAGE - INSIDE_STAGE + 1, "window")
        away = later(requantize.rounding == Rounding.HALF_AWAY, WINDOW_STAGE - INSIDE_STAGE + 1, "away")
        until_final = FINAL_STAGE - INSIDE_STAGE + 1
        low16 = later(lower(requantize.lo, requantize.hi), until_final, "low")
        high16 = later(requantize.hi, until_final, "high")
        is_raw = (requantize.source == Source.ACT) | (requantize.source == Source.MAX)
        requantized = later(~is_raw, ADD_STAGE - (inside_at - 1), "requantized")

        # Flags that travel.
        valid1 = later(makes, 1, "valid1", reset_less=False)
        valid2 = later(valid1 & ~self.range_error, 1, "valid2", reset_less=False)
        valid3 = later(valid2, 1, "valid3", reset_less=False)
        result3 = later(result, SOURCE_STAGE, "result")
        valid4 = later(valid3 & result3, 1, "valid4", reset_less=False)
        valid_lut = later(valid4, LUT_STAGE - PRODUCT_STAGE, "valid_late", reset_less=False)
        end = later(self.step & last_step, VECTOR_SIGNAL, "end", reset_less=False)
        source3 = later(source, SOURCE_STAGE, "source")
        first3 = later(nest.group_first, SOURCE_STAGE, "first")
        za3, zb3 = later(za, SOURCE_STAGE, "za"), later(zb, SOURCE_STAGE, "zb")
        from_acc2, take_a2 = later(makes & from_acc, READ_STAGE, "from_acc"), later(self.a_read, READ_STAGE, "take_a")
        column1 = later(column, ACC_STAGE, "column")
        biased4 = later(biased, BIAS_STAGE - 1, "biased")
        # Block RAM is slow: what it gives goes through a register.
        prm_bias = later(nest.prm, BIAS_STAGE - 2, "prm_bias")
        prm_scale = later(prm_bias, REQUANTIZE_STAGE + SCALE_STAGE - BIAS_STAGE, "prm_scale")
        bias, scale = later(Mux(biased4, self.bias_data, 0), 1, "bias"), later(self.scale_data, 1, "scale")
        m.d.comb += [
            self.bias_read.eq(valid3),
            self.bias_row.eq(prm_bias),
            self.scale_read.eq(1),
            self.scale_row.eq(prm_scale),
            self.write.eq(later(valid_lut, RESULT_STAGE + 1 - LUT_STAGE, "write", reset_less=False)),
            self.write_row.eq(later(nest.dst, RESULT_STAGE + 1, "dst")),
        ]
        if c.table_lookup:
            m.d.comb += [
                self.lut_read.eq(valid_lut),
                self.lut_table.eq(later(finish.table, LUT_STAGE - (ADD_STAGE - 1), "table")),
            ]
        ma17, c17 = later(finish.ma, 1, "ma"), later(finish.c, 1, "c")
        shift18 = later(finish["shift"], 2, "shift")
        shift19 = later(shift18, 1, "shift19")
        above19 = later(Cat(k >= shift18 + 7 for k in range(31)), 1, "above")
        low20, high20 = later(lower(finish.add_lo, finish.add_hi), 4, "add_low"), later(finish.add_hi, 4, "add_high")
        add20 = later(finish.add, CLAMP_STAGE - (ADD_STAGE - 1), "add")
        lut22 = later(finish.lut, RESULT_STAGE - (ADD_STAGE - 1), "lut")

        # Lanes.
        acc: list[Value] = [getattr(self, f"acc_data{n}") for n in range(columns)]
        if narrow:
            acc = [Array(acc)[column1]]
        acc = [later(word, READ_STAGE - ACC_STAGE, f"acc{n}") for n, word in enumerate(acc)]
        results = []
        for l in range(c.block_in):
            m.submodules[f"lane{l}"] = lane = VectorLane(tables=bool(c.table_lookup))
            word = acc[l // lanes][32 * (l % lanes) : 32 * (l % lanes) + 32]
            m.d.comb += [
                lane.s2_acc.eq(word),
                lane.s2_a.eq(self.a_data[8 * l : 8 * l + 8]),
                lane.s2_b.eq(self.b_data[8 * l : 8 * l + 8]),
                lane.s2_valid.eq(valid2),
                lane.s2_from_acc.eq(from_acc2),
                lane.s2_take_a.eq(take_a2),
                lane.s3_valid.eq(valid3),
                lane.s3_mul.eq(source3 == Source.MUL),
                lane.s3_sum.eq(source3 == Source.SUM),
                lane.s3_max.eq(source3 == Source.MAX),
                lane.s3_first.eq(first3),
                lane.s3_za.eq(za3),
                lane.s3_zb.eq(zb3),
                lane.s5_bias.eq(bias[32 * l : 32 * l + 32]),
                lane.s9_scale.eq(scale[32 * l : 32 * l + 32]),
                lane.s13_inside_zero_point.eq(inside_zero_point),
                lane.s15_window.eq(window),
                lane.s15_away.eq(away),
                lane.s15_zero_point.eq(outside_zero_point),
                lane.s16_low.eq(low16),
                lane.s16_high.eq(high16),
                lane.s16_mb.eq(finish.mb),
                lane.s17_requantized.eq(requantized),
                lane.s17_ma.eq(ma17),
                lane.s17_c.eq(c17),
                lane.s19_shift.eq(shift19),
                lane.s19_above.eq(above19),
                lane.s20_low.eq(low20),
                lane.s20_high.eq(high20),
                lane.s20_add.eq(add20),
            ]
            if c.table_lookup:
                m.d.comb += [
                    getattr(self, f"lut_index{l}").eq(lane.s21_index),
                    lane.s22_lut.eq(lut22),
                    lane.s22_value.eq(getattr(self, f"lut_value{l}")),
                ]
            results.append(lane.result)
        m.d.comb += self.write_data.eq(Cat(results))

        started, signals = Signal(), Signal(2 * SEMAPHORE_BITS, reset_less=True)
        m.d.sync += started.eq(self.start)
        m.d.sync += signals.eq(Cat(header(self.word, "signal0"), header(self.word, "signal1")))
        m.submodules.ends = ends = RegisteredQueue(2 * SEMAPHORE_BITS + PC_BITS, CONTEXTS)
        m.d.comb += [
            ends.i_valid.eq(started),
            ends.i_payload.eq(Cat(signals, self.current_pc)),
            ends.o_ready.eq(self.give),
            self.give.eq(end),
            Cat(self.signal0, self.signal1, self.give_pc).eq(ends.o_payload),
            self.running.eq(started | ends.o_valid),
        ]
        return m
