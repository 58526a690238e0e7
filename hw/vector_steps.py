"""The steps of VECTOR: loop nest, addresses, reads, range check."""

from __future__ import annotations

from amaranth.hdl import C, Cat, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hw.connections import unread
from hw.interfaces import Fault, bits_for, pc_bits
from hw.loop_nest import LoopNest, report_range
from hw.table import field, header
from isa.config import NpuConfig
from isa.instructions import ADDRESS_BITS, BY_NAME, ROW_WRITES, RowFunction, Source
from isa.timing import ROW_DIVIDE_CYCLES, row_norm_write

ADDRESSES = ("a", "b", "dst", "prm")
#: Functions of ROW, as the ports `row_{name}` say them. The fields of ROW and VECTOR_WIDE lie where VECTOR has its own.
ROW_FUNCTIONS = {
    "maximum": (RowFunction.MAXIMUM,),
    "sum": (RowFunction.EXP_SUM,),
    "exp": (RowFunction.EXP,),
    "moments": (RowFunction.MOMENTS, RowFunction.POWER),
    "norm": (RowFunction.NORM,),
}
_SHARED = tuple((n, n) for n in ("a", "dst", "prm", "reduce"))
for _instruction, _first, _b in (("ROW", "function", "number"), ("VECTOR_WIDE", "byte", "high")):
    for _own, _vector in ((_first, "source"), (_b, "b"), *_SHARED):
        _mine, _its = BY_NAME[_instruction].by_name[_own], BY_NAME["VECTOR"].by_name[_vector]
        assert (_mine.low, _mine.bits) == (_its.low, _its.bits)


class VectorSteps(wiring.Component):
    """Makes a step as soon as its reads are granted, and says what each of them is. It takes `vector_passes` cycles,
    in which what is said of it stays: rows are read in the first, the step is made in the last.

    Parameters:
        control: the signature of `control`.
        columns: of ACC.

    Ports:
        control: from the front end; of its configuring instructions VECTOR_LOOP is used here.
        configures_loop: the word is VECTOR_LOOP.
        current_pc: instruction of the step.
        running: an earlier instruction is in the pipeline; ROW waits for it, everything does for NORM.
        works: a pass is made.  stalled: a read was refused, or the divider is at work.
        end: the step is the last of its instruction.
        makes: a pass is made of what is no VECTOR_SYNC.  first_pass, last_pass, number: which.  result: it makes a row.
        acc_read, acc_row, acc_grant; a_*, b_*: reads of ACC or ACT (all granted or none; with a and b in one bank, a in
            an earlier cycle). b_row is the place in STAT in NORM.
        column: of the row of ACC.  from_acc: ACC is read.
        source, uses_prm: of the instruction: where its values come from; whether it uses PRM.
        row_maximum, row_sum, row_exp, row_moments, row_norm: it is ROW, with this function (MOMENTS or POWER).
        first: of a group.  prm, dst: rows of the step.
        fault: the step before named a row beyond its memory; there is none in this cycle.
    """

    def __init__(self, config: NpuConfig, control: wiring.Signature, columns: int) -> None:
        self.config, self.columns = config, columns
        reads: dict[str, object] = {}
        for operand in ("acc", "a", "b"):
            reads |= {f"{operand}_read": Out(1), f"{operand}_row": Out(ADDRESS_BITS), f"{operand}_grant": In(1)}
        super().__init__(
            {
                "control": In(control),
                "configures_loop": In(1),
                **({"running": In(1), **{f"row_{n}": Out(1) for n in ROW_FUNCTIONS}} if config.row_unit else {}),
                "current_pc": Out(pc_bits(config)),
                "works": Out(1),
                "stalled": Out(1),
                "end": Out(1),
                "makes": Out(1),
                "first_pass": Out(1, init=1),
                "last_pass": Out(1),
                "number": Out(bits_for(config.vector_passes)),
                "result": Out(1),
                **reads,
                "column": Out(bits_for(columns)),
                "from_acc": Out(1),
                "source": Out(BY_NAME["VECTOR"].by_name["source"].bits),
                "uses_prm": Out(1),
                "first": Out(1),
                "prm": Out(ADDRESS_BITS),
                "dst": Out(ADDRESS_BITS),
                "fault": Out(Fault(config)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        c = self.config
        control, word = self.control, self.control.word
        m.submodules.nest = nest = LoopNest(c.vector_loops, ADDRESSES, outer=("b", "dst", "prm"), bits=c.address_bits)
        m.d.comb += nest.configure.eq(self.configures_loop)
        for name in ("level", "count", *(f"{a}_stride" for a in ADDRESSES)):
            m.d.comb += getattr(nest, name).eq(field(word, "VECTOR_LOOP", name))
        unread(m, control.configure)  # VECTOR_LOOP is told apart by `configures_loop`

        def run(name: str) -> Value:
            return field(word, "VECTOR", name)

        # The instruction at work.
        active, null = Signal(), Signal()  # null: VECTOR_SYNC, one step without reads
        last_step = null | nest.last
        reducing, uses_b, from_acc = Signal(), Signal(), Signal()

        # About the next step, computed one step ahead: whether it makes a row, and what it reads.
        # `half`: a and b lie in one bank, so a is read alone first, which is no step.
        # `reads_*` are set only while a read is due: from them to the scratchpads it is far enough.
        bank_bits = (c.act_banks - 1).bit_length()
        result, half = self.result, Signal()
        reads_acc, reads_a, reads_b = Signal(), Signal(), Signal()

        def one_bank(a: Value, b: Value) -> Value:
            return a[:bank_bits] == b[:bank_bits]

        new_source = run("source")
        new = {
            "null": header(word, "opcode") == BY_NAME["VECTOR_SYNC"].opcode,
            "reducing": (new_source == Source.SUM) | (new_source == Source.MAX),
            "uses_b": run("add") | (new_source == Source.MUL),
            "from_acc": new_source == Source.ACC,
        }
        is_row, makes_none = C(0, 1), C(0, 1)  # ROW; it makes no row of ACT
        if c.row_unit:
            is_row, makes_none = Signal(), Signal()
            m.d.comb += [
                is_row.eq(header(word, "opcode") == BY_NAME["ROW"].opcode),
                makes_none.eq(self.row_maximum | self.row_sum | self.row_moments),
            ]
            new |= {
                "reducing": Mux(is_row, Cat(new_source != f for f in ROW_WRITES).all(), new["reducing"]),
                "uses_b": new["uses_b"] & ~is_row,
                "from_acc": new["from_acc"] & ~is_row,
            }
        is_wide = C(0, 1)
        if c.wide_results:
            is_wide = Signal()
            m.d.comb += is_wide.eq(header(word, "opcode") == BY_NAME["VECTOR_WIDE"].opcode)
            new |= {
                "reducing": new["reducing"] | is_wide,
                "uses_b": new["uses_b"] & ~is_wide,
                "from_acc": new["from_acc"] | is_wide,
            }
        at_work = {"null": null, "reducing": reducing, "uses_b": uses_b, "from_acc": from_acc}

        uses_prm = (new_source == Source.ACC) | (new_source == Source.MUL) | (new_source == Source.SUM)

        def of_step(of: dict[str, Value], group_last: Value, same: Value, due: Value) -> list[tuple[Signal, Value]]:
            makes_row = ~of["reducing"] | group_last
            needs_b = ~of["null"] & of["uses_b"] & makes_row
            together = of["from_acc"] | ~same  # a and b, or no a
            return [
                (result, makes_row),
                (half, needs_b & ~together),
                (reads_acc, due & ~of["null"] & of["from_acc"]),
                (reads_a, due & ~of["null"] & ~of["from_acc"]),
                (reads_b, due & needs_b & together),
            ]

        go, refused, granted, step = Signal(), Signal(), Signal(), Signal()
        with m.If(granted & half):
            m.d.sync += [half.eq(0), reads_a.eq(0), reads_b.eq(1)]
        with m.Elif(granted):
            m.d.sync += [reads_acc.eq(0), reads_a.eq(0), reads_b.eq(0)]  # until the next step
        with m.If(step):
            m.d.sync += [
                to.eq(value)
                for to, value in of_step(
                    at_work, nest.group_last_stepped, one_bank(nest.a_next, nest.b_next), ~last_step
                )
            ]
            with m.If(last_step):
                m.d.sync += active.eq(0)
        with m.If(control.start):
            m.d.sync += active.eq(1)
        with m.If(~active):  # all but the reads also without a start, so that `start` itself reaches few cells
            m.d.sync += [
                to.eq(value)
                for to, value in of_step(new, nest.group_last_started, one_bank(run("a"), run("b")), control.start)
            ]
            m.d.sync += [to.eq(new[name]) for name, to in at_work.items()]
            m.d.sync += [
                self.source.eq(new_source),
                self.uses_prm.eq(uses_prm | is_row | is_wide if c.wide_results else uses_prm | is_row),
                self.current_pc.eq(control.pc),
            ]
        m.d.comb += [nest.start.eq(~active), nest.step.eq(step)]
        m.d.comb += [getattr(nest, f"{a}_base").eq(run(a)) for a in ADDRESSES]
        # The levels of a group: those below `reduce`.
        m.d.comb += nest.inner.eq(Cat(new["reducing"] & (run("reduce") > k) for k in range(c.vector_loops)))

        busy, waits = self._rows(m, is_row, active, step, new_source) if c.row_unit else (C(0, 1), C(0, 1))

        # Reads and the step. Reads are also asked for while halted: whatever waits for them is halted as well.
        asks = Signal()
        m.d.comb += [
            asks.eq(~self.fault.error & ~busy),
            go.eq(active & ~self.fault.error & ~control.halt),
            self.acc_read.eq(asks & reads_acc),
            self.a_read.eq(asks & reads_a),
            self.a_row.eq(nest.a),
            self.b_read.eq(asks & reads_b),
            self.b_row.eq(nest.b),
            refused.eq((reads_acc & ~self.acc_grant) | (reads_a & ~self.a_grant) | (reads_b & ~self.b_grant)),
            granted.eq(go & ~busy & ~refused),
            self.works.eq(granted & ~half),
            step.eq(self.works & (null | self.last_pass)),
            self.stalled.eq(go & ~self.works),
        ]
        m.d.comb += control.ready.eq(~active & ~waits)
        if c.vector_passes > 1:
            with m.If(self.works & ~null):
                m.d.sync += [
                    self.number.eq(self.number + 1),
                    self.first_pass.eq(self.last_pass),
                    self.last_pass.eq(self.number == c.vector_passes - 2),
                ]
        else:
            m.d.comb += [self.number.eq(0), self.first_pass.eq(1), self.last_pass.eq(1)]

        columns = self.columns
        column_bits = (columns - 1).bit_length()
        narrow = c.block_in < c.block_out  # a vector is one column of the physical row
        if narrow:
            m.d.comb += [self.acc_row.eq(nest.a >> column_bits), self.column.eq(nest.a[:column_bits])]
        else:
            m.d.comb += [self.acc_row.eq(nest.a), self.column.eq(0)]

        # Rows beyond their memory: found in the step, reported in the next cycle.
        makes = self.works & ~null
        m.d.comb += [
            self.makes.eq(makes),
            self.end.eq(step & last_step),
            self.first.eq(nest.group_first),
            self.from_acc.eq(makes & from_acc & self.first_pass),
            self.prm.eq(nest.prm),
            self.dst.eq(nest.dst),
        ]
        limits = [
            (nest.a, nest.a >= Mux(from_acc, c.acc_vectors, c.act_rows)),
            (nest.b, uses_b & result & (nest.b >= c.act_rows)),
            *([(nest.b, self.row_norm & (nest.b >= c.prm_rows))] if c.row_unit else []),
            (nest.prm, self.uses_prm & result & (nest.prm >= c.prm_rows)),
            (nest.dst, result & ~makes_none & (nest.dst >= c.act_rows)),
        ]
        report_range(m, self.fault, self.current_pc, makes & self.first_pass, limits)
        return m

    def _rows(self, m: Module, is_row: Value, active: Value, step: Value, function: Value) -> tuple[Value, Value]:
        """Which function of ROW is at work. Returns whether a row would end for which the divider is not ready, and
        whether the next instruction has to wait for what is in the pipeline or behind it."""
        with m.If(~active):
            for name, functions in ROW_FUNCTIONS.items():
                m.d.sync += getattr(self, f"row_{name}").eq(is_row & Cat(function == f for f in functions).any())
        divides = Signal(range(ROW_DIVIDE_CYCLES))  # cycles until a row may end
        writes = Signal(range(row_norm_write(self.config) + 1))  # cycles until STAT is written
        after_norm = Signal()
        ends = (self.row_sum | self.row_moments) & self.result
        with m.If(divides != 0):
            m.d.sync += divides.eq(divides - 1)
        with m.If(writes != 0):
            m.d.sync += writes.eq(writes - 1)
        with m.If(step & ends):
            m.d.sync += divides.eq(ROW_DIVIDE_CYCLES - 1)
            with m.If(self.row_moments):
                m.d.sync += writes.eq(row_norm_write(self.config))
        with m.If(self.control.start):
            m.d.sync += after_norm.eq(is_row & (function == RowFunction.NORM))
        waits = (self.running & (is_row | after_norm)) | (is_row & (writes != 0))
        return ends & (divides != 0), waits
