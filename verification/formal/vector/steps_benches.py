"""Bench of the steps of VECTOR: which rows of which memory an instruction reads and names, in which order."""

from __future__ import annotations

from functools import reduce
from typing import Any, NamedTuple

from amaranth.hdl import C, Cat, Module, Mux, Signal, Value

from tilewright.hw.interfaces import EngineControl
from tilewright.hw.issue.loop_nest import LoopNest
from tilewright.hw.parts.probes import probes
from tilewright.hw.table import field, header, instructions_on, is_instruction
from tilewright.hw.vector.lane import SCALE_STAGE
from tilewright.hw.vector.row_unit import maximum_stage
from tilewright.hw.vector.steps import ADDRESSES, ROW_FUNCTIONS, VectorSteps
from tilewright.isa.config import NpuConfig
from tilewright.isa.instructions import BY_NAME, ROW_WRITES, Engine, RowFunction, Source
from tilewright.isa.timing import (
    ROW_DIVIDE_CYCLES,
    VECTOR_SIGNAL,
    row_norm_write,
    row_scale_cycles,
    row_scale_write,
)
from verification.formal.bench import Bench, implies, opened, registers
from verification.formal.engine import Cut
from verification.formal.machines import SMALL

#: A vector is a row of ACC, and a step is made in one pass.
WHOLE = SMALL.with_(name="formal_whole", vector_passes=1)
#: Four passes; a vector is one column of two of a row of ACC.
PASSES = SMALL.with_(name="formal_passes", vector_passes=4, block_out=8)
#: With results of 16 bits.
WIDE = WHOLE.with_(name="formal_wide", wide_results=1)
#: With the instruction of the row unit.
ROWS = WHOLE.with_(name="formal_rows", row_unit=1, lut_tables=4)
#: With it and two passes, in each of which PRM gives a word of each of its memories.
ROW_PASSES = ROWS.with_(name="formal_row_passes", vector_passes=2)


def _runs(config: NpuConfig) -> list[str]:
    """Returns the names of the instructions that make steps."""
    return [i.name for i in instructions_on(config) if i.engine == Engine.VECTOR and not i.configures]


class _Loops:
    """Takes the place of the nest, with what `loop_nest` proves of it: a row of each operand, which a step changes to
    what was said to be next, and flags of groups. Rows and flags are any.

    Attributes:
        rows: of every operand, in the step that is to be made.
        first, last: of its group.  ends: the step is the last.
    """

    def __init__(self, b: Bench, nest: LoopNest, bits: int) -> None:
        nest.elaborate = lambda platform: Module()  # type: ignore[method-assign]
        moves = nest.start | nest.step
        self.rows: dict[str, Value] = {}
        for a in ADDRESSES:
            row, following = Signal(bits, name=f"row_{a}"), b.free(bits, f"following_{a}")
            with b.m.If(moves):
                b.m.d.sync += row.eq(Mux(nest.start, getattr(nest, f"{a}_base"), following))
            b.m.d.comb += [getattr(nest, a).eq(row), getattr(nest, f"{a}_next").eq(following)]
            self.rows[a] = row
        flags = []
        for name in ("last", "group_first", "group_last"):
            flag, following = Signal(name=f"is_{name}"), b.free(1, f"following_{name}")
            with b.m.If(moves):
                b.m.d.sync += flag.eq(following)
            b.m.d.comb += getattr(nest, name).eq(flag)
            flags.append(flag)
        b.m.d.comb += [nest.group_last_started.eq(following), nest.group_last_stepped.eq(following)]
        self.ends, self.first, self.last = flags


def _instructions(b: Bench, part: Any, config: NpuConfig) -> None:
    """Assumes what front end and decoder guarantee: `front_end`, and the limits of the instruction table."""
    control = part.control
    word = control.word
    b.assume(~(part.configures_loop & control.start))
    b.assume(implies(part.configures_loop, is_instruction(word, "VECTOR_LOOP")))
    b.assume(implies(part.configures_loop, field(word, "VECTOR_LOOP", "level") < config.vector_loops))
    b.assume(implies(part.configures_loop, field(word, "VECTOR_LOOP", "count") != 0))
    b.assume(implies(control.start, control.ready & is_instruction(word, *_runs(config))))
    b.assume(implies(is_instruction(word, "VECTOR"), field(word, "VECTOR", "source") <= max(Source)))
    # It was at the head of the queue in the cycle before.
    b.assume(implies(is_instruction(word, "ROW"), field(word, "ROW", "function") <= max(RowFunction)))
    there = (word == b.past(word, "word")) & (control.pc == b.past(control.pc, "pc"))
    b.assume(implies(control.start, there & ~b.past(part.configures_loop, "configured")))


def is_row_of(is_row: Value, function: Value, *functions: RowFunction) -> Value:
    """Returns whether an instruction is ROW with one of these functions."""
    return is_row & Cat(function == f for f in functions).any()


class _Now(NamedTuple):
    """The instruction at work, where ROW is one.

    Attributes:
        active: there is one.  is_row: it is ROW.  source: or function.  makes_row: its step does.  step: it is made.
    """

    active: Value
    is_row: Value
    source: Value
    makes_row: Value
    step: Value

    def runs(self, *functions: RowFunction) -> Value:
        """Returns whether the instruction is ROW with one of these functions."""
        return is_row_of(self.is_row, self.source, *functions)


class _Since:
    """Cycles since something was so last, the cycle after it counted as 0; `most` where they are more, or it never was.

    Attributes:
        cycles: the count.  over: it is `most`.
    """

    def __init__(self, b: Bench, event: Value, most: int, name: str) -> None:
        self.cycles = Signal(range(most + 1), init=most, name=f"since_{name}")
        self.over = self.cycles >= most
        b.m.d.sync += self.cycles.eq(Mux(event, 0, Mux(self.over, most, self.cycles + 1)))


def _dividing(b: Bench, part: Any, module: Module, now: _Now, turn: Value, config: NpuConfig) -> tuple[Value, Value]:
    """Returns whether a row would end before the divider is ready, and whether the word may not start yet: ROW waits
    for what is in the pipeline and for STAT, everything waits for NORM."""
    inside = registers(module)
    b.invariant(implies(now.is_row, now.source <= max(RowFunction)))
    for name, functions in ROW_FUNCTIONS.items():
        flag_right = getattr(part, f"row_{name}") == now.runs(*functions)
        b.check("rows", implies(part.works, flag_right))
        b.invariant(implies(now.active, flag_right))
    moments, norm = now.runs(RowFunction.MOMENTS, RowFunction.POWER), now.runs(RowFunction.NORM)
    ends = now.makes_row & (moments | now.runs(RowFunction.EXP_SUM))
    # The divider is ready when the last pass comes, which follows the first one without a gap.
    most = ROW_DIVIDE_CYCLES - config.vector_passes
    divides = _Since(b, now.step & ends, most, "divides")
    apart = _Since(b, now.step & ends, ROW_DIVIDE_CYCLES - 1, "apart")
    b.invariant(implies(~apart.over, apart.cycles >= divides.cycles) & implies(divides.over, apart.cycles >= most))
    b.invariant(implies(now.active & ends & (turn != 0), apart.cycles >= most + turn))
    b.check("rows", implies(now.step & ends, apart.over))
    norms = _Since(b, now.step & now.makes_row & moments, row_norm_write(config), "norms")
    b.invariant(inside["divides"] == most - divides.cycles)
    b.invariant(inside["writes"] == row_norm_write(config) - norms.cycles)
    b.invariant(inside["after_norm"] == norm)
    _kept(b, part, now, norms, turn, config)
    coming = is_instruction(part.control.word, "ROW")
    return ends & ~divides.over, (part.running & (coming | norm)) | (coming & ~norms.over)


def _kept(b: Bench, part: Any, now: _Now, norms: _Since, turn: Value, config: NpuConfig) -> None:
    """States that values kept by an earlier ROW are there in the cycle in which they are read. It holds if `running` is
    1 until the signals of an instruction are given, as `vector`: `retire` says."""
    moments = now.runs(RowFunction.MOMENTS, RowFunction.POWER)
    sums, maximum, exp, norm = (
        now.runs(f) for f in (RowFunction.EXP_SUM, RowFunction.MAXIMUM, RowFunction.EXP, RowFunction.NORM)
    )
    ends_row = now.step & now.makes_row
    maxima = _Since(b, ends_row & maximum, maximum_stage(config), "maxima")
    scales = _Since(b, ends_row & sums, row_scale_write(config), "scales")
    ended = _Since(b, part.end, VECTOR_SIGNAL, "ended")
    so_far, right = Signal(init=1, name="so_far"), implies(now.active | ~ended.over, part.running)
    b.m.d.sync += so_far.eq(so_far & right)
    for kept, of in ((maxima, maximum), (scales, sums), (norms, moments)):
        # A row ends with its instruction at the latest; no other ROW is at work before all have ended.
        earlier = kept.over | (kept.cycles >= ended.cycles)
        b.invariant(implies(so_far & ~(of & now.active), earlier))
    at_work = now.active & now.is_row
    b.invariant(implies(so_far & at_work, ended.over) & implies(at_work & ~moments, norms.over))
    asks = so_far & part.makes
    b.check(
        "kept",
        implies(asks & (sums | exp), maxima.over),
        "ROW: what a ROW before has kept (MAX, the scale in PRM, STAT) is there when it is asked for",
        Cut("steps.writes", 25 + 2 * config.vector_passes),
    )
    word = turn // (config.vector_passes // row_scale_cycles(config))  # of a row of PRM
    b.check("kept", implies(asks & exp, scales.cycles + SCALE_STAGE - 2 >= row_scale_write(config) + word))
    b.check("kept", implies(asks & norm, norms.over))


def steps(only: str | None, config: NpuConfig) -> Bench:
    """Instructions with any loops, from a scratchpad that grants what it likes, halted in any cycle."""
    b = Bench(only)
    b.state(
        "rows",
        "VECTOR: a step makes a row unless it is one of a sum or maximum before the last of its group, and names its "
        "first step, the row and PRM of the nest",
        Cut("steps.result"),
    )
    columns = max(config.block_in, config.block_out) // config.dw_lanes
    part = VectorSteps(config, EngineControl(config, 3), columns)
    module = opened(part)
    b.part("steps", part)
    _instructions(b, part, config)
    control, word, start = part.control, part.control.word, part.control.start

    def kept(value: Any, name: str) -> Signal:
        """Returns a value of the instruction at work, as it was at the start."""
        signal = Signal(Value.cast(value).shape(), name=name)
        with b.m.If(start):
            b.m.d.sync += signal.eq(value)
        return signal

    coming = field(word, "VECTOR", "source")
    source, adds = kept(coming, "source"), kept(field(word, "VECTOR", "add"), "adds")
    null = kept(header(word, "opcode") == BY_NAME["VECTOR_SYNC"].opcode, "null")
    pc = kept(control.pc, "pc_at_work")
    active, step, fault = Signal(name="active"), Signal(name="step"), Signal(name="faulty")
    nest = module.submodules.nest
    loops = _Loops(b, nest, config.address_bits)
    is_wide = kept(is_instruction(word, "VECTOR_WIDE"), "is_wide") if config.wide_results else C(0)
    is_row = kept(is_instruction(word, "ROW"), "is_row") if config.row_unit else C(0)
    norm = is_row & (source == RowFunction.NORM)
    writes = ~is_row | norm | (source == RowFunction.EXP)
    reduces = Mux(is_row, ~writes, is_wide | (source == Source.SUM) | (source == Source.MAX))
    with b.m.If(start):
        b.m.d.sync += active.eq(1)
    with b.m.Elif(step & (null | loops.ends)):
        b.m.d.sync += active.eq(0)

    # What the step needs, and how far it is.
    makes_row = ~reduces | loops.last
    from_acc = is_wide | ~is_row & (source == Source.ACC)
    uses_b = ~is_wide & ~is_row & (adds | (source == Source.MUL))
    needs_b = uses_b & makes_row
    one_bank = (loops.rows["a"] ^ loops.rows["b"]) & (config.act_banks - 1) == 0
    uses_prm = is_row | from_acc | (source == Source.MUL) | (source == Source.SUM)
    alone = ~null & ~from_acc & needs_b & one_bank  # a is read before b
    has_a, turn = Signal(name="has_a"), Signal(range(config.vector_passes), name="turn")
    reads = active & ~null & (turn == 0)
    due = {
        "acc": reads & from_acc,
        "a": reads & ~from_acc & ~has_a,
        "b": reads & needs_b & (has_a | ~alone),
    }
    refused = reduce(lambda x, y: x | y, (due[name] & ~getattr(part, f"{name}_grant") for name in due))
    busy, waits = C(0), C(0)
    if config.row_unit:
        b.invariant(~(null & is_row))
        busy, waits = _dividing(b, part, module, _Now(active, is_row, source, makes_row, step), turn, config)
    goes = active & ~fault & ~control.halt & ~refused & ~busy
    works = goes & (has_a | ~alone | (turn != 0))
    with b.m.If(goes):
        b.m.d.sync += has_a.eq(alone & ~has_a & (turn == 0))
    last_pass = turn == config.vector_passes - 1
    b.m.d.comb += step.eq(works & (null | last_pass))
    with b.m.If(works & ~null):
        b.m.d.sync += turn.eq(Mux(last_pass, 0, turn + 1))
    work, now = probes(part).work, probes(part).now
    b.invariant(
        (now.active == active) & implies(~active | null, (turn == 0) & ~has_a) & implies(has_a, alone & (turn == 0))
    )
    of = (work.null == null) & (work.reducing == reduces) & (work.from_acc == from_acc)
    b.invariant(implies(active, of & (work.uses_b == uses_b)))
    b.invariant(implies(active, (part.source == source) & (part.uses_prm == uses_prm) & (part.current_pc == pc)))
    b.invariant(implies(active, (part.result == makes_row) & (now.half == (alone & ~has_a & (turn == 0)))))
    b.invariant(Cat(now.reads_acc, now.reads_a, now.reads_b) == Cat(due.values()))
    b.invariant((part.number == turn) & (turn < config.vector_passes))
    b.invariant((part.first_pass == (turn == 0)) & (part.last_pass == (turn == config.vector_passes - 1)))
    for name, expected in due.items():
        b.check(
            "reads",
            getattr(part, f"{name}_read") == (expected & ~fault & ~busy),
            "VECTOR: a step asks for row a of ACC or ACT, and for b where MUL or Add makes a row, until "
            "granted; a before b where both are in one bank; and for nothing else",
            Cut("steps.works"),
        )
    b.check("reads", implies(part.a_read, part.a_row == loops.rows["a"]))
    b.check("reads", implies(part.b_read, part.b_row == loops.rows["b"]))
    b.check("reads", implies(part.acc_read, part.acc_row * columns + part.column == loops.rows["a"]))
    b.check(
        "steps",
        (part.works == works) & (part.makes == (works & ~null)),
        "VECTOR: a step is made, pass by pass, in the cycle in which its last read is granted; "
        "VECTOR_SYNC is one without reads",
        Cut("steps.works"),
    )
    # The nest is told what the instruction says.
    groups = (coming == Source.SUM) | (coming == Source.MAX)
    if config.row_unit:
        whole_rows = Cat(field(word, "ROW", "function") == f for f in ROW_WRITES).any()
        groups = Mux(is_instruction(word, "ROW"), ~whole_rows, groups)
    if config.wide_results:
        groups |= is_instruction(word, "VECTOR_WIDE")
    levels = Cat(groups & (k < field(word, "VECTOR", "reduce")) for k in range(config.vector_loops))
    b.check(
        "nest",
        implies(start, nest.start & (nest.inner == levels)) & (nest.step == step),
        "VECTOR: the nest has the loops, the first rows and the levels of a group of the instruction, and"
        " goes on once for every step",
        Cut("steps.works"),
    )
    b.check(
        "nest",
        implies(
            start,
            Cat(getattr(nest, f"{a}_base") == field(word, "VECTOR", a)[: config.address_bits] for a in ADDRESSES).all(),
        ),
    )
    b.check("nest", implies(nest.start, ~active) & (nest.configure == part.configures_loop))
    for name in ("level", "count", *(f"{a}_stride" for a in ADDRESSES)):
        wide = field(word, "VECTOR_LOOP", name)
        b.check("nest", getattr(nest, name).as_unsigned() == wide[: len(getattr(nest, name))])
    b.check("steps", part.stalled == (active & ~fault & ~control.halt & ~works))
    b.check("steps", implies(works & ~null, part.from_acc == (from_acc & (turn == 0))))
    b.check("steps", implies(works, (part.source == source) & (part.current_pc == pc)))
    makes = works & ~null
    b.check("steps", implies(makes, (part.first_pass == (turn == 0)) & (part.last_pass == last_pass)))
    b.check("steps", implies(makes, part.number == turn))
    b.check("rows", implies(makes, (part.result == makes_row) & (part.first == loops.first)))
    b.check("rows", implies(makes, (part.uses_prm == uses_prm) & (part.prm == loops.rows["prm"])))
    b.check("rows", implies(makes, part.dst == loops.rows["dst"]))
    b.check(
        "end",
        (part.end == (step & (null | loops.ends))) & (part.control.ready == (~active & ~waits)),
        "VECTOR: an instruction ends with the last step of its nest, once, and the next one may start then",
        Cut("steps.works"),
    )
    # The first row beyond its memory, in the order of the checks.
    rows = loops.rows
    beyond = (
        (rows["a"], rows["a"] >= Mux(from_acc, config.acc_vectors, config.act_rows)),
        (rows["b"], needs_b & (rows["b"] >= config.act_rows)),
        (rows["b"], norm & (rows["b"] >= config.prm_rows)),
        (rows["prm"], uses_prm & makes_row & (rows["prm"] >= config.prm_rows)),
        (rows["dst"], makes_row & writes & (rows["dst"] >= config.act_rows)),
    )
    b.m.d.sync += fault.eq(makes & (turn == 0) & Cat(bad for _, bad in beyond).any())
    first_bad = reduce(lambda x, y: Mux(y[1], y[0], x), reversed(beyond), C(0, config.address_bits))
    b.check(
        "range",
        part.fault.error == fault,
        "VECTOR: of a, b, PRM and dst, the first used by a step and beyond its memory is reported a cycle after it",
        Cut("steps.row0"),
    )
    named = (part.fault.address == b.past(first_bad, "bad_row")) & (part.fault.pc == b.past(pc, "bad_pc"))
    b.check("range", implies(fault, named))
    return b
