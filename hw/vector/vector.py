"""The VECTOR engine: steps, the parameters of later stages, lanes."""

from __future__ import annotations

from amaranth.hdl import Array, C, Cat, Module, Mux, Signal, Value
from amaranth.lib import data
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import Out, connect, flipped

from tilewright.hw.connections import unread
from tilewright.hw.interfaces import Fault
from tilewright.hw.issue.engine import EngineShell
from tilewright.hw.memory.scratchpad_ports import ParameterRead, RowWrite, ScaleWrite, ScratchpadRead, TableRead
from tilewright.hw.parts.pipeline import Pipeline, Stage
from tilewright.hw.table import field, header
from tilewright.hw.vector.contexts import (
    CONTEXTS,
    CYCLES_APART,
    FINISH,
    FINISH_CONTEXT_STAGE,
    REQUANTIZE,
    REQUANTIZE_CONTEXT_STAGE,
)
from tilewright.hw.vector.lane import (
    BIAS_STAGE,
    CONTROL_STAGES,
    LUT_STAGE,
    PRODUCT_STAGE,
    READ_STAGE,
    REQUANTIZE_STAGE,
    RESULT_STAGE,
    SCALE_STAGE,
    SHIFT_STAGE,
    SOURCE_STAGE,
    LaneControl,
    VectorLane,
)
from tilewright.hw.vector.operands import VectorOperands
from tilewright.hw.vector.requantizer import INSIDE_STAGE, START
from tilewright.hw.vector.row_unit import (
    MAXIMUM_STAGE,
    WORD_STAGE,
    RowUnit,
    divide_stage,
    maximum_stage,
    norm_stage,
    sum_stage,
)
from tilewright.hw.vector.steps import ROW_FUNCTIONS, VectorSteps
from tilewright.isa.config import NpuConfig
from tilewright.isa.instructions import BY_NAME, Engine, Rounding, RowFunction, Source, WideByte
from tilewright.isa.row_bits import EPSILON_FRACTION
from tilewright.isa.timing import VECTOR_DEPTH, VECTOR_SIGNAL

#: Cycles after the step in which the row of ACC is there.
ACC_STAGE = 1
#: Cycles after the step in which NORM adds a channel's bias.
ADDEND_STAGE = REQUANTIZE_STAGE + INSIDE_STAGE
assert VECTOR_DEPTH // CYCLES_APART + 2 < CONTEXTS and RESULT_STAGE == VECTOR_DEPTH


def _lower(low: Value, high: Value) -> Value:
    """Returns the lower of two limits: where they cross, the upper one holds."""
    return Mux(low > high, high, low)


class Vector(EngineShell):
    """Runs VECTOR: one step per cycle unless a read is refused or a and b lie in one bank.

    Cycle 0: step, its reads are granted. Then the stages of `VectorLane`. Signals are given VECTOR_SIGNAL cycles after
    the last step: the first step they allow comes in the cycle after its ACT write.

    Ports:
        control, retire, activity: see `EngineShell`.
        acc, a, b: reads that may be refused.  bias, scale, table: reads that are not; no table without tables.
        write: rows to ACT.  scale_write: writes of the row unit, where there is one, to PRM.
        range_fault: the step before named a row beyond its memory; there is none in this cycle.
    """

    def __init__(self, config: NpuConfig) -> None:
        self.columns = max(config.block_in, config.block_out) // config.dw_lanes
        row = 8 * config.block_in
        super().__init__(
            config,
            Engine.VECTOR,
            {
                "acc": Out(ScratchpadRead(Out(32 * config.dw_lanes).array(self.columns), refusable=True)),
                "a": Out(ScratchpadRead(Out(row), refusable=True)),
                "b": Out(ScratchpadRead(Out(row), refusable=True)),
                "bias": Out(ParameterRead(config)),
                "scale": Out(ParameterRead(config)),
                **(
                    {"table": Out(TableRead(config.vector_lanes, wide=config.row_unit * config.row_word_bits))}
                    if config.table_lookup
                    else {}
                ),
                "write": Out(RowWrite(row)),
                **({"scale_write": Out(ScaleWrite(config))} if config.row_unit else {}),
                "range_fault": Out(Fault(config)),
            },
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        c = self.config
        m.submodules.steps = steps = VectorSteps(c, self.control.signature.flip(), self.columns)
        connect(m, flipped(self.control), steps.control)
        connect(m, steps.fault, flipped(self.range_fault))
        m.d.comb += [
            steps.configures_loop.eq(self.configures("VECTOR_LOOP")),
            self.acc.valid.eq(steps.acc_read),
            self.acc.row.eq(steps.acc_row),
            steps.acc_grant.eq(self.acc.grant),
            self.a.valid.eq(steps.a_read),
            self.a.row.eq(steps.a_row),
            steps.a_grant.eq(self.a.grant),
            self.b.valid.eq(steps.b_read),
            self.b.row.eq(steps.b_row),
            steps.b_grant.eq(self.b.grant),
            self.activity.step.eq(steps.works),
            self.activity.stalled.eq(steps.stalled),
        ]
        pipe = Pipeline(m)
        if c.row_unit:
            self._rows(m, pipe, steps)
        self._travel(m, pipe, steps)
        if c.row_unit:
            self._row_stages(m, pipe)
        self._contexts(m, pipe)
        self._lanes(m, pipe, steps.column)
        self.retire_in_order(m, steps.current_pc, pipe.at("end", VECTOR_SIGNAL), CONTEXTS)
        return m

    def _travel(self, m: Module, pipe: Pipeline, steps: VectorSteps) -> None:
        """Puts a step into the pipeline; makes the reads and the write of its later stages."""
        for name in ("result", "first", "from_acc", "uses_prm", "prm", "dst"):
            pipe.put(name, getattr(steps, name))
        pipe.put("take_a", steps.a_read)
        self._put_passes(m, pipe, steps)
        for name, source in (("mul", Source.MUL), ("sum", Source.SUM), ("max", Source.MAX)):
            pipe.put(name, steps.source == source)
        # A step that is found to be wrong ends as it becomes known.
        pipe.put("makes", steps.makes, reset=True)
        pipe.put("valid", pipe.at("makes", 1) & ~steps.fault.error, 1, reset=True)
        at_source = pipe.stage(SOURCE_STAGE)
        results = at_source["valid"] & at_source["result"]
        if self.config.row_unit:
            results &= ~(at_source["row_maximum"] | at_source["row_sum"] | at_source["row_moments"])
        pipe.put("results", results, SOURCE_STAGE, reset=True)
        pipe.put("end", steps.end, reset=True)
        # Block RAM is slow: what it gives goes through a register, which can lie in the block.
        gate = BIAS_STAGE - 1  # no bias where none is added
        ask_bias, ask_scale, before_write = (
            pipe.stage(gate - 2),
            pipe.stage(SCALE_STAGE - 2),
            pipe.stage(RESULT_STAGE),
        )
        pipe.put("read_bias", self.bias.data, gate - 1)
        added = pipe.at("uses_prm", gate)
        bias_row, bias_number, ask = ask_bias["prm"], ask_bias["number"], ask_bias["valid"]
        if self.config.row_unit:  # NORM adds it later: it is read later, too, when no other instruction can read one
            added &= ~pipe.at("row_norm", gate)
            ask_late = pipe.stage(ADDEND_STAGE - 3)
            late = ask_late["valid"] & ask_late["row_norm"]
            bias_row, ask = Mux(late, ask_late["prm"], bias_row), ask | late
            if self.config.vector_passes > 1:
                bias_number = Mux(late, ask_late["number"], bias_number)
            pipe.put(
                "addend", Mux(pipe.at("row_norm", ADDEND_STAGE - 1), pipe.at("read_bias", gate), 0), ADDEND_STAGE - 1
            )
        pipe.put("bias", Mux(added, pipe.at("read_bias", gate), 0), gate)
        pipe.put("scale", self.scale.data, SCALE_STAGE - 1)
        m.d.comb += [
            self.bias.valid.eq(ask),
            self.bias.row.eq(bias_row),
            self.bias.number.eq(bias_number),
            self.scale.valid.eq(1),
            self.scale.row.eq(ask_scale["prm"]),
            self.scale.number.eq(ask_scale["number"]),
            self.write.valid.eq(before_write["results"] & before_write["last_pass"]),
            self.write.row.eq(before_write["dst"]),
        ]

    def _rows(self, m: Module, pipe: Pipeline, steps: VectorSteps) -> None:
        """Makes the row unit; puts the functions of ROW into the pipeline."""
        m.submodules.rows = self.rows = rows = RowUnit(self.config)
        connect(m, rows.write, flipped(self.scale_write))
        for name in ROW_FUNCTIONS:
            pipe.put(f"row_{name}", getattr(steps, f"row_{name}"))
        pipe.put("exponential", steps.row_exp)
        m.d.comb += [
            steps.running.eq(self.activity.running),
            rows.prm.eq(steps.prm),
            rows.read.eq(steps.b_row),
        ]
        # Of the instruction; the next ROW starts when this one is out of the pipeline.
        word, elements = self.control.word, self.config.block_in
        tail = field(word, "ROW", "tail")
        with m.If(self.control.start & (header(word, "opcode") == BY_NAME["ROW"].opcode)):
            m.d.sync += [
                rows.keep.eq(Cat((tail == 0) | (tail > n) for n in range(elements))),
                rows.number.eq(field(word, "ROW", "number")),
                rows.exponent.eq(field(word, "ROW", "exponent")),
                rows.centred.eq(field(word, "ROW", "function") == RowFunction.MOMENTS),
            ]

    def _row_stages(self, m: Module, pipe: Pipeline) -> None:
        """Drives the row unit, per stage; takes its factor and offset of a row back into the pipeline, for NORM."""
        rows, c = self.rows, self.config
        pipe.put("norm", pipe.at("valid", SOURCE_STAGE) & pipe.at("row_norm", SOURCE_STAGE), SOURCE_STAGE)
        pipe.put("norm_sum", pipe.at("norm", PRODUCT_STAGE), PRODUCT_STAGE)
        for name in ("factor", "offset", "norm_exponent"):
            pipe.put(f"row_{name}", getattr(rows, name), 1)
        before_start = CONTROL_STAGES["start"] - 1
        exponent = Mux(pipe.at("row_norm", before_start), pipe.at("row_norm_exponent", before_start), 0)
        pipe.put("start", (START - exponent)[:8], before_start)
        at_maximum, at_sum = pipe.stage(maximum_stage(c)), pipe.stage(sum_stage(c))
        at_divide, at_norm = pipe.stage(divide_stage(c)), pipe.stage(norm_stage(c))

        def first(stage: Stage) -> Value:
            """Returns whether a row begins."""
            return stage["first"] & stage["first_pass"] if c.vector_passes > 1 else stage["first"]

        def last(stage: Stage) -> Value:
            """Returns whether a row ends."""
            return stage["result"] & stage["last_pass"] if c.vector_passes > 1 else stage["result"]

        m.d.comb += [
            rows.a_cut.eq(pipe.at("result", MAXIMUM_STAGE)),
            rows.words_cut.eq(pipe.at("result", WORD_STAGE)),
            rows.maximum_valid.eq(at_maximum["valid"] & at_maximum["row_maximum"]),
            rows.maximum_first.eq(first(at_maximum)),
            rows.maximum_last.eq(last(at_maximum)),
            rows.maximum_prm.eq(at_maximum["prm"]),
            rows.sum_valid.eq(at_sum["valid"] & (at_sum["row_sum"] | at_sum["row_moments"])),
            rows.sum_first.eq(first(at_sum)),
            rows.two_sums.eq(at_sum["row_moments"]),
            rows.norm.eq(at_norm["valid"] & at_norm["row_moments"] & last(at_norm)),
            rows.norm_place.eq(at_norm["prm"]),
            rows.divide.eq(at_divide["valid"] & at_divide["row_sum"] & last(at_divide)),
            rows.divide_prm.eq(at_divide["prm"]),
        ]
        if c.vector_passes > 1:
            m.d.comb += [
                rows.a_number.eq(pipe.at("number", MAXIMUM_STAGE)),
                rows.words_number.eq(pipe.at("number", WORD_STAGE)),
            ]

    def _put_passes(self, m: Module, pipe: Pipeline, steps: VectorSteps) -> None:
        """Puts the pass of its row that a value belongs to into the pipeline."""
        if self.config.vector_passes == 1:
            unread(m, steps.number, steps.first_pass, steps.last_pass)
            pipe.hold("number", C(0))
            for name in ("first_pass", "last_pass"):
                pipe.hold(name, C(1))
            return
        for name in ("number", "first_pass", "last_pass"):
            pipe.put(name, getattr(steps, name))

    def _contexts(self, m: Module, pipe: Pipeline) -> None:
        """Keeps the fields of an instruction that later stages need: written until it starts, read when its steps reach
        them."""
        registers = self.registers(m, "VECTOR_ADD", "VECTOR_POST")
        za, zb = Signal.like(registers["za"], name="za_now"), Signal.like(registers["zb"], name="zb_now")
        with m.If(self.control.ready):
            m.d.sync += [za.eq(registers["za"]), zb.eq(registers["zb"])]
        if self.config.row_unit:
            with m.If(self.control.start & (header(self.control.word, "opcode") == BY_NAME["ROW"].opcode)):
                m.d.sync += self.rows.epsilon.eq(Cat(registers["ma"][:EPSILON_FRACTION], registers["c"]))
            pipe.put("plain_za", za)
            is_row = pipe.at("row_sum", 1) | pipe.at("row_exp", 1)
            pipe.put("za", Mux(is_row, self.rows.maximum, pipe.at("plain_za", 1)), 1)
            wide_table = Signal.like(registers["table"], name="wide_table")
            with m.If(self.control.ready):
                m.d.sync += wide_table.eq(registers["table"])
            pipe.put("wide_table", wide_table)
        else:
            pipe.put("za", za)
        pipe.put("zb", zb)
        slot, next_slot = Signal(range(CONTEXTS)), Signal(range(CONTEXTS))
        m.d.comb += next_slot.eq(slot + 1)
        with m.If(self.control.start):
            m.d.sync += slot.eq(next_slot)
        pipe.put("slot", slot)

        def context(name: str, layout: data.StructLayout, stage: int) -> data.View:
            """Returns the instruction's record, registered, in pipeline cycle `stage`."""
            store = Memory(shape=layout, depth=CONTEXTS, init=[])
            m.submodules[name] = store
            write, read = store.write_port(), store.read_port(domain="comb")
            m.d.comb += [write.en.eq(1), write.addr.eq(next_slot), read.addr.eq(pipe.at("slot", stage - 1))]
            for member in layout.members:
                value = registers[member] if member in registers else self.run(member)
                others = self.config.row_unit or self.config.wide_results
                if others and member in ("rounding", "add", "lut"):  # ROW and VECTOR_WIDE have other fields there
                    value &= (header(self.control.word, "opcode") == BY_NAME["VECTOR"].opcode).replicate(len(value))
                m.d.comb += write.data[member].eq(value)
            record = Signal(layout, name=f"{name}_now", reset_less=True)
            m.d.sync += record.eq(read.data)
            return record

        requantize = context("requantize", REQUANTIZE, REQUANTIZE_CONTEXT_STAGE)
        is_inside = requantize.rounding == Rounding.EVEN_ZERO_POINT_INSIDE
        is_raw = (requantize.source == Source.ACT) | (requantize.source == Source.MAX)
        for name, value in {
            "inside_zero_point": Mux(is_inside, requantize.zp, 0),
            "zero_point": Mux(is_inside, 0, requantize.zp),
            "window": is_inside,
            "away": requantize.rounding == Rounding.HALF_AWAY,
            "low": _lower(requantize.lo, requantize.hi),
            "high": requantize.hi,
            "requantized": ~is_raw,
        }.items():
            pipe.put(name, value, REQUANTIZE_CONTEXT_STAGE)
        if self.config.wide_results:
            self._wide_context(m, pipe, next_slot)
        finish = context("finish", FINISH, FINISH_CONTEXT_STAGE)
        for name, value in {
            "ma": finish.ma,
            "mb": finish.mb,
            "offset": finish.c,
            "shift": finish["shift"],
            "add_low": _lower(finish.add_lo, finish.add_hi),
            "add_high": finish.add_hi,
            "add": finish.add,
            "look_up": finish.lut,
            "table": finish.table,
        }.items():
            pipe.put(name, value, FINISH_CONTEXT_STAGE)
        before_shift = SHIFT_STAGE - 1
        shift = pipe.at("shift", before_shift)
        pipe.put("above", Cat(k >= shift + 7 for k in range(31)), before_shift)

    def _wide_context(self, m: Module, pipe: Pipeline, next_slot: Value) -> None:
        """Keeps the fields of VECTOR_WIDE for the lanes, per instruction, as `_contexts` does."""
        word, stage = self.control.word, CONTROL_STAGES["wide_low"] - 1
        kept = {name: field(word, "VECTOR_WIDE", name) for name in ("low", "high", "byte")}
        kept["wide"] = header(word, "opcode") == BY_NAME["VECTOR_WIDE"].opcode
        layout = data.StructLayout({name: Value.cast(value).shape() for name, value in kept.items()})
        m.submodules.wide = store = Memory(shape=layout, depth=CONTEXTS, init=[])
        write, read = store.write_port(), store.read_port(domain="comb")
        m.d.comb += [write.en.eq(1), write.addr.eq(next_slot), read.addr.eq(pipe.at("slot", stage - 1))]
        m.d.comb += [write.data[name].eq(value) for name, value in kept.items()]
        record = Signal(layout, name="wide_now", reset_less=True)
        m.d.sync += record.eq(read.data)
        pipe.put("wide_low", record.low, stage)
        pipe.put("wide_high", record.high, stage)
        pipe.put("upper", record.byte == WideByte.HIGH, stage)
        pipe.put("wide", record.wide, stage)

    def _lanes(self, m: Module, pipe: Pipeline, column: Value) -> None:
        """Makes the lanes, each with its share of the operands, and the table look-up."""
        c = self.config
        tables = bool(c.table_lookup)
        rows = c.row_unit * c.row_word_bits
        wide = bool(c.wide_results)
        control = LaneControl(tables=tables, rows=rows, wide=wide).create(path=("lanes",))
        values = {name: pipe.at(name, CONTROL_STAGES[name]) for name in control.signature.members}
        if rows:  # NORM has the first half of Add early; nothing else is in the pipeline then
            values["mb"] = Mux(values["norm"], pipe.at("row_factor", SOURCE_STAGE), values["mb"])
            offset = pipe.at("row_offset", PRODUCT_STAGE).as_signed()
            values["offset"] = Mux(values["norm_sum"], offset, values["offset"])
        m.d.comb += [getattr(control, name).eq(value) for name, value in values.items()]
        m.submodules.operands = operands = VectorOperands(c)
        acc: list[Value] = list(self.acc.data)
        if c.block_in < c.block_out:  # a vector is one column of the physical row
            pipe.put("column", column)
            acc = [Array(acc)[pipe.at("column", ACC_STAGE)]]
        else:
            unread(m, column)
        pipe.put("acc", Cat(acc), ACC_STAGE)
        at_read, before_read = pipe.stage(READ_STAGE), pipe.stage(READ_STAGE - 1)
        m.d.comb += [
            operands.row_acc.eq(at_read["acc"]),
            operands.row_a.eq(self.a.data),
            operands.row_b.eq(self.b.data),
            operands.first.eq(at_read["first_pass"]),
            operands.from_acc.eq(at_read["from_acc"]),
            operands.take_a.eq(at_read["take_a"]),
            operands.moves_a.eq(before_read["take_a"] | before_read["from_acc"] | ~before_read["first_pass"]),
        ]
        results = []
        for l in range(c.vector_lanes):
            m.submodules[f"lane{l}"] = lane = VectorLane(passes=c.vector_passes, tables=tables, rows=rows, wide=wide)
            connect(m, control, lane.control)
            m.d.comb += [
                lane.acc.eq(operands.acc.word_select(l, 32)),
                lane.a.eq(operands.a.word_select(l, 8)),
                lane.b.eq(operands.b.word_select(l, 8)),
                lane.bias.eq(pipe.at("bias", BIAS_STAGE).word_select(l, 32)),
                lane.scale.eq(pipe.at("scale", SCALE_STAGE).word_select(l, 32)),
            ]
            if tables:
                m.d.comb += [self.table.index[l].eq(lane.index), lane.value.eq(self.table.value[l])]
            if rows:
                m.d.comb += [
                    self.table.word_index[l].eq(lane.word_index),
                    lane.word.eq(self.table.word[l]),
                    lane.addend.eq(pipe.at("addend", ADDEND_STAGE).word_select(l, 32)),
                ]
            results.append(lane.result)
        # The passes of a row follow each other without a gap.
        row = [Cat(results)]
        for n in range(1, c.vector_passes):
            before = Signal(8 * c.vector_lanes, name=f"pass{n}_before", reset_less=True)
            m.d.sync += before.eq(row[0])
            row.insert(0, before)
        m.d.comb += self.write.data.eq(Cat(row))
        if tables:
            at_table = pipe.stage(LUT_STAGE)
            m.d.comb += [self.table.valid.eq(at_table["results"]), self.table.table.eq(at_table["table"])]
        if rows:
            at_word = pipe.stage(PRODUCT_STAGE)
            m.d.comb += [
                self.table.wide.eq(
                    at_word["valid"] & (at_word["row_sum"] | at_word["row_exp"] | at_word["row_moments"])
                ),
                self.table.word_table.eq(at_word["wide_table"]),
                self.rows.a.eq(operands.a),
                self.rows.words.eq(Cat(self.table.word)),
            ]
