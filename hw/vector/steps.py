"""The steps of VECTOR: loop nest, addresses, reads, range check."""

from __future__ import annotations

from typing import NamedTuple

from amaranth.hdl import C, Cat, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from tilewright.hw.connections import unread
from tilewright.hw.interfaces import Fault, bits_for
from tilewright.hw.issue.loop_nest import LoopNest, report_range
from tilewright.hw.parts.probes import declare_probes
from tilewright.hw.sizes import pc_bits
from tilewright.hw.table import field, header
from tilewright.isa.config import NpuConfig
from tilewright.isa.instructions import ADDRESS_BITS, BY_NAME, ROW_WRITES, RowFunction, Source
from tilewright.isa.timing import ROW_DIVIDE_CYCLES, row_norm_write

ADDRESSES = ("a", "b", "dst", "prm")
#: Functions of ROW by the name of their port `row_{name}`. Fields of ROW and VECTOR_WIDE lie where VECTOR has its own.
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


class _Instruction(NamedTuple):
    """The properties of an instruction that its steps depend on.

    Attributes:
        null: it is VECTOR_SYNC, one step without reads.
        reducing: the steps of a group make one row.
        uses_b: steps that make a row read b.
        from_acc: a is read from ACC.
    """

    null: Value
    reducing: Value
    uses_b: Value
    from_acc: Value


class _Word(NamedTuple):
    """The instruction that comes next.

    Attributes:
        steps: properties that its steps depend on.
        source: source of its values; for ROW, the function.
        uses_prm: it uses PRM.
    """

    steps: _Instruction
    source: Value
    uses_prm: Value


class _Step(NamedTuple):
    """The step that is to be made.

    Attributes:
        active: there is an instruction at work.
        half: a and b lie in one bank, so a is read alone first, which is no step.
        reads_acc, reads_a, reads_b: this read is due. Nothing else gates them: the way to the scratchpads is long.
        granted: the reads that are due are made in this cycle.
        step: the step is made in this cycle.
    """

    active: Signal
    half: Signal
    reads_acc: Signal
    reads_a: Signal
    reads_b: Signal
    granted: Signal
    step: Signal


class VectorSteps(wiring.Component):
    """Makes a step as soon as its reads are granted, and describes it to the stages behind. A step takes
    `vector_passes` cycles, in which its description stays: rows are read in the first, the step is made in the last.

    Parameters:
        control: the signature of `control`.
        columns: number of columns of ACC.

    Ports:
        control: instructions from the front end; of the configuring ones VECTOR_LOOP is used here.
        configures_loop: the word is VECTOR_LOOP.
        current_pc: instruction of the step.
        running: an earlier instruction is in the pipeline; ROW waits for it, everything does for NORM.
        works: a pass is made.  stalled: a read was refused, or the divider is at work.
        end: the step is the last of its instruction.
        makes: a pass is made, not of VECTOR_SYNC.  first_pass, last_pass, number: it is the first, the last; its
            number.
            result: the step makes a row.
        acc_read, acc_row, acc_grant; a_*, b_*: reads of ACC or ACT (all granted or none; with a and b in one bank, a in
            an earlier cycle). b_row is the place in STAT in NORM.
        column: column of the row of ACC.  from_acc: ACC is read.
        source, uses_prm: the instruction's source of values; it uses PRM.
        row_maximum, row_sum, row_exp, row_moments, row_norm: it is ROW, with this function (MOMENTS or POWER).
        first: the step is the first of a group.  prm, dst: rows of the step.
        fault: the step before named a row beyond its memory; there is none in this cycle.

    Probes:
        work, now: the instruction and the step at work, see `_Instruction` and `_Step`.
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
        c, control = self.config, self.control
        m.submodules.nest = nest = LoopNest(c.vector_loops, ADDRESSES, outer=("b", "dst", "prm"), bits=c.address_bits)
        m.d.comb += nest.configure.eq(self.configures_loop)
        for name in ("level", "count", *(f"{a}_stride" for a in ADDRESSES)):
            m.d.comb += getattr(nest, name).eq(field(control.word, "VECTOR_LOOP", name))
        unread(m, control.configure)  # `configures_loop` marks VECTOR_LOOP

        is_row, makes_none = self._row_flags(m) if c.row_unit else (C(0, 1), C(0, 1))
        word = self._decode(m, is_row)
        null = Signal()
        reducing, uses_b, from_acc = Signal(), Signal(), Signal()
        work = _Instruction(null, reducing, uses_b, from_acc)
        now = _Step(*(Signal() for _ in _Step._fields))
        last_step = work.null | nest.last
        self._sequence(m, nest, word, work, now, last_step)
        busy, waits = self._rows(m, is_row, now.active, now.step, word.source) if c.row_unit else (C(0, 1), C(0, 1))
        self._read(m, nest, work, now, busy)
        m.d.comb += control.ready.eq(~now.active & ~waits)
        self._count_passes(m, work)
        self._name_column(m, nest)
        makes = self.works & ~work.null
        m.d.comb += [
            self.makes.eq(makes),
            self.end.eq(now.step & last_step),
            self.first.eq(nest.group_first),
            self.from_acc.eq(makes & work.from_acc & self.first_pass),
            self.prm.eq(nest.prm),
            self.dst.eq(nest.dst),
        ]
        self._check_rows(m, nest, work, makes, makes_none)
        declare_probes(self, work=work, now=now)
        return m

    def _run(self, name: str) -> Value:
        """Returns a field of the word, as VECTOR has it."""
        return field(self.control.word, "VECTOR", name)

    def _row_flags(self, m: Module) -> tuple[Value, Value]:
        """Returns whether the word is ROW, and whether the instruction at work makes no row of ACT."""
        is_row, makes_none = Signal(), Signal()
        m.d.comb += [
            is_row.eq(header(self.control.word, "opcode") == BY_NAME["ROW"].opcode),
            makes_none.eq(self.row_maximum | self.row_sum | self.row_moments),
        ]
        return is_row, makes_none

    def _decode(self, m: Module, is_row: Value) -> _Word:
        """Decodes the word, if it is an instruction."""
        c, opcode, source = self.config, header(self.control.word, "opcode"), self._run("source")
        steps = _Instruction(
            null=opcode == BY_NAME["VECTOR_SYNC"].opcode,
            reducing=(source == Source.SUM) | (source == Source.MAX),
            uses_b=self._run("add") | (source == Source.MUL),
            from_acc=source == Source.ACC,
        )
        uses_prm = (source == Source.ACC) | (source == Source.MUL) | (source == Source.SUM) | is_row
        if c.row_unit:
            steps = steps._replace(
                reducing=Mux(is_row, Cat(source != f for f in ROW_WRITES).all(), steps.reducing),
                uses_b=steps.uses_b & ~is_row,
                from_acc=steps.from_acc & ~is_row,
            )
        if c.wide_results:
            is_wide = Signal()
            m.d.comb += is_wide.eq(opcode == BY_NAME["VECTOR_WIDE"].opcode)
            steps = steps._replace(
                reducing=steps.reducing | is_wide,
                uses_b=steps.uses_b & ~is_wide,
                from_acc=steps.from_acc | is_wide,
            )
            uses_prm = uses_prm | is_wide
        return _Word(steps, source, uses_prm)

    def _prepare(
        self, m: Module, now: _Step, of: _Instruction, group_last: Value, a: Value, b: Value, due: Value
    ) -> None:
        """Prepares the next step, with a and b at these rows: whether it makes a row, and which reads it makes if
        `due`."""
        bank_bits = (self.config.act_banks - 1).bit_length()
        same = a[:bank_bits] == b[:bank_bits]
        makes_row = ~of.reducing | group_last
        needs_b = ~of.null & of.uses_b & makes_row
        together = of.from_acc | ~same  # a and b, or no a
        m.d.sync += [
            self.result.eq(makes_row),
            now.half.eq(needs_b & ~together),
            now.reads_acc.eq(due & ~of.null & of.from_acc),
            now.reads_a.eq(due & ~of.null & ~of.from_acc),
            now.reads_b.eq(due & needs_b & together),
        ]

    def _sequence(
        self, m: Module, nest: LoopNest, word: _Word, work: _Instruction, now: _Step, last_step: Value
    ) -> None:
        """Runs instructions and their steps, one after the other. A step is described one step ahead."""
        control = self.control
        with m.If(now.granted & now.half):
            m.d.sync += [now.half.eq(0), now.reads_a.eq(0), now.reads_b.eq(1)]
        with m.Elif(now.granted):
            m.d.sync += [now.reads_acc.eq(0), now.reads_a.eq(0), now.reads_b.eq(0)]  # until the next step
        with m.If(now.step):
            self._prepare(m, now, work, nest.group_last_stepped, nest.a_next, nest.b_next, ~last_step)
            with m.If(last_step):
                m.d.sync += now.active.eq(0)
        with m.If(control.start):
            m.d.sync += now.active.eq(1)
        with m.If(~now.active):  # all but the reads also without a start, so that `start` itself reaches few cells
            a, b = self._run("a"), self._run("b")
            self._prepare(m, now, word.steps, nest.group_last_started, a, b, control.start)
            m.d.sync += [to.eq(value) for to, value in zip(work, word.steps)]
            m.d.sync += [
                self.source.eq(word.source),
                self.uses_prm.eq(word.uses_prm),
                self.current_pc.eq(control.pc),
            ]
        m.d.comb += [nest.start.eq(~now.active), nest.step.eq(now.step)]
        m.d.comb += [getattr(nest, f"{a}_base").eq(self._run(a)) for a in ADDRESSES]
        # The levels of a group: those below `reduce`.
        levels = range(self.config.vector_loops)
        m.d.comb += nest.inner.eq(Cat(word.steps.reducing & (self._run("reduce") > k) for k in levels))

    def _read(self, m: Module, nest: LoopNest, work: _Instruction, now: _Step, busy: Value) -> None:
        """Makes reads and the step. Reads are also asked for while halted: whatever waits for them is halted as
        well."""
        go, refused, asks = Signal(), Signal(), Signal()
        m.d.comb += [
            asks.eq(~self.fault.error & ~busy),
            go.eq(now.active & ~self.fault.error & ~self.control.halt),
            self.acc_read.eq(asks & now.reads_acc),
            self.a_read.eq(asks & now.reads_a),
            self.a_row.eq(nest.a),
            self.b_read.eq(asks & now.reads_b),
            self.b_row.eq(nest.b),
            refused.eq(
                (now.reads_acc & ~self.acc_grant) | (now.reads_a & ~self.a_grant) | (now.reads_b & ~self.b_grant)
            ),
            now.granted.eq(go & ~busy & ~refused),
            self.works.eq(now.granted & ~now.half),
            now.step.eq(self.works & (work.null | self.last_pass)),
            self.stalled.eq(go & ~self.works),
        ]

    def _count_passes(self, m: Module, work: _Instruction) -> None:
        """Counts the passes of a step."""
        passes = self.config.vector_passes
        if passes > 1:
            with m.If(self.works & ~work.null):
                m.d.sync += [
                    self.number.eq(self.number + 1),
                    self.first_pass.eq(self.last_pass),
                    self.last_pass.eq(self.number == passes - 2),
                ]
        else:
            m.d.comb += [self.number.eq(0), self.first_pass.eq(1), self.last_pass.eq(1)]

    def _name_column(self, m: Module, nest: LoopNest) -> None:
        """Finds row and column of ACC: where blocks are narrow a vector is one column of the physical row."""
        c = self.config
        column_bits = (self.columns - 1).bit_length()
        if c.block_in < c.block_out:
            m.d.comb += [self.acc_row.eq(nest.a >> column_bits), self.column.eq(nest.a[:column_bits])]
        else:
            m.d.comb += [self.acc_row.eq(nest.a), self.column.eq(0)]

    def _check_rows(self, m: Module, nest: LoopNest, work: _Instruction, makes: Value, makes_none: Value) -> None:
        """Checks for rows beyond their memory: found in the step, reported in the next cycle."""
        c, result = self.config, self.result
        limits = [
            (nest.a, nest.a >= Mux(work.from_acc, c.acc_vectors, c.act_rows)),
            (nest.b, work.uses_b & result & (nest.b >= c.act_rows)),
            *([(nest.b, self.row_norm & (nest.b >= c.prm_rows))] if c.row_unit else []),
            (nest.prm, self.uses_prm & result & (nest.prm >= c.prm_rows)),
            (nest.dst, result & ~makes_none & (nest.dst >= c.act_rows)),
        ]
        report_range(m, self.fault, self.current_pc, makes & self.first_pass, limits)

    def _rows(self, m: Module, is_row: Value, active: Value, step: Value, function: Value) -> tuple[Value, Value]:
        """Registers the function of ROW at work. Returns whether a row would end for which the divider is not ready,
        and whether the next instruction has to wait for what is in the pipeline or behind it."""
        with m.If(~active):
            for name, functions in ROW_FUNCTIONS.items():
                m.d.sync += getattr(self, f"row_{name}").eq(is_row & Cat(function == f for f in functions).any())
        divides = Signal(range(ROW_DIVIDE_CYCLES))  # cycles until the last step of a row may begin
        writes = Signal(range(row_norm_write(self.config) + 1))  # cycles until STAT is written
        after_norm = Signal()
        ends = (self.row_sum | self.row_moments) & self.result
        with m.If(divides != 0):
            m.d.sync += divides.eq(divides - 1)
        with m.If(writes != 0):
            m.d.sync += writes.eq(writes - 1)
        with m.If(step & ends):
            m.d.sync += divides.eq(ROW_DIVIDE_CYCLES - self.config.vector_passes)
            with m.If(self.row_moments):
                m.d.sync += writes.eq(row_norm_write(self.config))
        with m.If(self.control.start):
            m.d.sync += after_norm.eq(is_row & (function == RowFunction.NORM))
        waits = (self.running & (is_row | after_norm)) | (is_row & (writes != 0))
        return ends & (divides != 0), waits
