"""Bench of VECTOR around its steps and lanes: what reaches the lanes of a step, what is written, when an instruction
retires.

Steps and lanes are replaced by free ones, which do what the proofs about them say: `vector_steps` says which rows a
step reads and names, this bench that the lanes get these rows and the instruction's parameters, and that what they make
is written to the row that is named; the proofs about a lane say what they make. The instruction is looked at when it
starts, and everything is compared with it as many cycles after a step as its stage is behind. The depth holds two
instructions from their configuration to their last write. Of contexts there are more than instructions in the pipeline
(asserted in `tilewright.hw.vector.vector`); the depth does not use all of them.
"""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Array, C, Cat, Module, Mux, Signal, Value
from amaranth.lib.wiring import Out

from tilewright.hw.table import field, header, instructions_of, is_instruction
from tilewright.hw.vector.lane import (
    BIAS_STAGE,
    CONTROL_STAGES,
    LUT_STAGE,
    PRODUCT_STAGE,
    READ_STAGE,
    RESULT_STAGE,
    SCALE_STAGE,
    SOURCE_STAGE,
)
from tilewright.hw.vector.requantizer import START
from tilewright.hw.vector.steps import ROW_FUNCTIONS
from tilewright.hw.vector.vector import ACC_STAGE, ADDEND_STAGE, Vector
from tilewright.isa.config import NpuConfig
from tilewright.isa.instructions import ROW_WRITES, Engine, Rounding, RowFunction, Source, WideByte
from tilewright.isa.timing import GIVE_CYCLES, TAKE_CYCLES, VECTOR_SIGNAL
from verification.formal.bench import Bench, implies, opened
from verification.formal.engine import Cut
from verification.formal.vector.steps_benches import is_row_of

# A step that a signal allows comes in the cycle after the data of the write at the earliest.
assert VECTOR_SIGNAL + GIVE_CYCLES + TAKE_CYCLES + 1 > RESULT_STAGE + 1


#: What is said of a step.
_OF_STEP = ("result", "first", "prm", "dst", "column")


def _started(b: Bench, part: Vector) -> dict[str, Signal]:
    """Returns the fields of the instruction at work and of its configuration, by name; assumes what front end and
    decoder guarantee."""
    control, word = part.control, part.control.word
    record: dict[str, Signal] = {}
    for bit, instruction in zip(control.configure, instructions_of(Engine.VECTOR, configures=True), strict=True):
        b.assume(implies(bit, is_instruction(word, instruction.name) & ~control.start))
        if instruction.name == "VECTOR_LOOP":
            continue
        for f in instruction.fields:
            value = field(word, instruction.name, f.name)
            following = Signal(value.shape(), name=f"next_{f.name}")
            record[f.name] = Signal(value.shape(), name=f"now_{f.name}")
            with b.m.If(bit):
                b.m.d.sync += following.eq(value)
            with b.m.If(control.start):
                b.m.d.sync += record[f.name].eq(following)
    is_vector, is_wide = is_instruction(word, "VECTOR"), is_instruction(word, "VECTOR_WIDE")
    is_row = is_instruction(word, "ROW") if part.config.row_unit else C(0)
    now = {"source": field(word, "VECTOR", "source"), "row": is_row}  # ROW has its function where VECTOR has its source
    now |= {name: Mux(is_vector, field(word, "VECTOR", name), 0) for name in ("rounding", "add", "lut")}
    now |= {f"wide_{name}": field(word, "VECTOR_WIDE", name) for name in ("low", "high", "byte")} | {"wide": is_wide}
    now |= {name: header(word, name) for name in ("signal0", "signal1")}
    now |= {"null": is_instruction(word, "VECTOR_SYNC"), "pc": control.pc}
    for name, value in now.items():
        record[name] = Signal(Value.cast(value).shape(), name=f"now_{name}")
        with b.m.If(control.start):
            b.m.d.sync += record[name].eq(value)
    runs = is_vector | is_row | is_instruction(word, "VECTOR_SYNC") | (is_wide if part.config.wide_results else 0)
    b.assume(implies(control.start, runs & control.ready))
    b.assume(implies(is_row, now["source"] <= max(RowFunction)))
    legal = (now["source"] <= max(Source)) & (now["rounding"] <= max(Rounding))
    b.assume(implies(is_vector, legal) & implies(is_wide, field(word, "VECTOR_WIDE", "byte") <= max(WideByte)))
    there = (word == b.past(word, "word")) & (control.pc == b.past(control.pc, "pc"))
    b.assume(implies(control.start, there & ~b.past(control.configure.any(), "configured")))
    return record


class _Steps:
    """Steps as `vector_steps` has them, of any rows.

    Attributes:
        makes: a pass is made.  number: which.  of_step: properties of its step.
        ends: it is the last of its instruction.
        reads_a: a is read, for this step or one that is to come.
        from_acc, uses_prm: of the instruction.  row: that it is ROW with a function, by name.
        writes: its steps that make a row write it.
        valid: the pass made a cycle ago is not found to be wrong.  dead: one was, cycles ago.
    """

    def __init__(self, b: Bench, part: Vector, steps: Any, record: dict[str, Signal]) -> None:
        config = part.config
        steps.elaborate = lambda platform: Module()
        passes, control = config.vector_passes, steps.control
        active, turn = Signal(name="active"), Signal(range(passes), name="turn")
        fault, last_step = b.free(1, "fault"), b.free(1, "last_step")
        works, null, last_pass = Signal(name="works"), record["null"], turn == passes - 1
        b.m.d.comb += works.eq(active & ~fault & (b.free(1, "granted") | (turn != 0)))
        self.makes, self.number = works & ~null, turn
        step = works & (null | last_pass)
        ends = step & (null | last_step)
        with b.m.If(control.start):
            b.m.d.sync += active.eq(1)
        with b.m.Elif(ends):
            b.m.d.sync += active.eq(0)
        with b.m.If(self.makes):
            b.m.d.sync += turn.eq(Mux(last_pass, 0, turn + 1))
        # Properties of a step stay for its passes.
        held: dict[str, Value] = {}
        for name in _OF_STEP:
            bits = len(getattr(steps, name))
            coming, kept = b.free(bits, f"any_{name}"), Signal(bits, name=f"held_{name}")
            with b.m.If(self.makes & (turn == 0)):
                b.m.d.sync += kept.eq(coming)
            held[name] = Mux(turn == 0, coming, kept)
        # VECTOR_WIDE has its byte where VECTOR has its source; it takes ACC.
        source, is_row = record["source"], record["row"]
        from_acc = record["wide"] | ~is_row & (source == Source.ACC)
        self.row = {name: is_row_of(is_row, source, *of) for name, of in ROW_FUNCTIONS.items()}
        self.writes = ~is_row | is_row_of(is_row, source, *ROW_WRITES)
        reads_a = b.free(1, "reads_a") & active & ~null & (turn == 0) & ~fault & ~from_acc
        fresh = Signal(name="fresh")  # a was read for this step
        b.m.d.sync += fresh.eq((fresh | reads_a) & ~self.makes)
        b.assume(implies(self.makes & (turn == 0) & ~from_acc, fresh | reads_a))
        b.assume(implies(fault, b.past(self.makes & (turn == 0), "may_be_wrong")))
        self.dead = Signal(name="dead")
        b.m.d.sync += self.dead.eq(self.dead | fault)
        uses_prm = from_acc | is_row | (source == Source.MUL) | (source == Source.SUM)
        ready = ~active
        if config.row_unit:  # ROW waits for what is in the pipeline, everything waits for NORM
            waits = is_instruction(control.word, "ROW") | self.row["norm"]
            ready &= ~(part.activity.running & waits)
        outputs = held | {
            "control__ready": ready, "current_pc": record["pc"], "works": works, "makes": self.makes,
            "end": ends, "first_pass": turn == 0, "last_pass": last_pass, "number": turn, "a_read": reads_a,
            "from_acc": self.makes & (turn == 0) & from_acc, "source": source, "uses_prm": uses_prm,
            "fault__error": fault, **{f"row_{name}": value for name, value in self.row.items()},
        }  # fmt: skip
        for path, member, value in steps.signature.flatten(steps):
            if member.flow == Out:
                name = "__".join(map(str, path))
                b.m.d.comb += value.eq(outputs.get(name, 0))
        self.of_step, self.ends, self.uses_prm, self.from_acc, self.reads_a = held, ends, uses_prm, from_acc, reads_a
        self.valid = b.past(self.makes, "made") & ~fault  # a cycle later


def whole(only: str | None, config: NpuConfig) -> Bench:
    """VECTOR with any instructions, rows and results of lanes."""
    b = Bench(only)
    part = Vector(config)
    module = opened(part)
    steps = module.submodules.steps
    lanes = [getattr(module.submodules, f"lane{l}") for l in range(config.vector_lanes)]
    for l, lane in enumerate(lanes):
        b.cut(lane, f"lane{l}")
    if config.row_unit:
        b.cut(module.submodules.rows, "rows")
    results = [lane.result for lane in lanes]
    b.part("vector", part)
    record = _started(b, part)
    made = _Steps(b, part, steps, record)
    # The passes of a step that is found to be wrong have a gap; the machine stops.
    alive = ~made.dead & ~steps.fault.error if config.vector_passes > 1 else C(1)

    def after(value: Any, stage: int, name: str) -> Value:
        """Returns a value as it was in the cycle of the step, `stage` cycles ago."""
        return b.past(value, f"{name}_{stage}_after", stage)

    b.state(
        "parameters",
        "VECTOR: in every stage of a step the lanes are told what its instruction says, and what was configured before "
        "it started",
        Cut("vector.window_13", 20),
    )
    b.state(
        "operands",
        "VECTOR: the lanes get the rows that were read for the step, in its passes one after the other; of ACC and a "
        "the one that is not the source is 0",
        Cut("vector.operands.takes_a", 10),
    )
    b.state(
        "prm",
        "VECTOR: bias and scale are those of the step's row of PRM; no bias where the source uses none",
        Cut("vector.prm_1", 12),
    )
    b.state(
        "table",
        "VECTOR: a step that makes a row reads the table of its instruction",
        Cut("vector.results_19", 25),
    )

    def check(name: str, stage: int, condition: Any, also: Any = 1) -> None:
        """Checks a condition `stage` cycles after a step that is not found to be wrong."""
        b.check(name, implies(alive & b.past(made.valid & b.past(also, "also"), f"{name}_there", stage - 1), condition))

    rounding, source = record["rounding"], record["source"]
    inside = rounding == Rounding.EVEN_ZERO_POINT_INSIDE
    low, high, add_low, add_high = (record[name] for name in ("lo", "hi", "add_lo", "add_hi"))
    expected = {
        "mul": source == Source.MUL,
        "sum": source == Source.SUM,
        "max": source == Source.MAX,
        "first": made.of_step["first"],
        "za": record["za"],
        "zb": record["zb"],
        "inside_zero_point": Mux(inside, record["zp"], 0),
        "zero_point": Mux(inside, 0, record["zp"]),
        "window": inside,
        "away": rounding == Rounding.HALF_AWAY,
        "low": Mux(low > high, high, low),
        "high": high,
        "requantized": (source != Source.ACT) & (source != Source.MAX),
        "ma": record["ma"],
        "mb": record["mb"],
        "offset": record["c"],
        "shift": record["shift"],
        "above": Cat(k >= record["shift"] + 7 for k in range(31)),
        "add_low": Mux(add_low > add_high, add_high, add_low),
        "add_high": add_high,
        "add": record["add"],
        "look_up": record["lut"],
    }
    lane_control = lanes[0].control
    if config.wide_results:
        expected |= {"wide": record["wide"], "upper": record["wide_byte"] == WideByte.HIGH}
        expected |= {"wide_low": record["wide_low"], "wide_high": record["wide_high"].as_signed()}
    # What an instruction of 16 bits does not look at; what `row_told` says of functions of ROW.
    others = ("inside_zero_point", "zero_point", "window", "away", "low", "high", "requantized")
    looks = dict.fromkeys(others, ~record["wide"])
    of_row = made.row
    if config.row_unit:
        expected |= dict.fromkeys(("norm", "norm_sum"), of_row["norm"]) | {
            "exponential": of_row["exp"],
            "start": C(START),
        }
        looks |= {"za": ~of_row["sum"] & ~of_row["exp"]} | dict.fromkeys(("mb", "offset", "start"), ~of_row["norm"])
        check("parameters", ADDEND_STAGE, Cat(lane.addend for lane in lanes) == 0, also=~of_row["norm"])
        asks = of_row["sum"] | of_row["exp"] | of_row["moments"]
        word_table = after(record["table"], PRODUCT_STAGE, "word_table")
        check("table", PRODUCT_STAGE, part.table.word_table == word_table, also=asks)
    for name, value in expected.items():
        stage = CONTROL_STAGES[name]
        was = Signal(value.shape(), name=f"expected_{name}")
        b.m.d.comb += was.eq(value)
        check(
            "parameters",
            stage,
            getattr(lane_control, name) == after(was, stage, name),
            also=looks.get(name, 1),
        )
    b.check(
        "valid",
        implies(alive, lane_control.valid == b.past(made.valid, "valid", SOURCE_STAGE - 1)),
        "VECTOR: lanes sum, and keep, what a step gives them, unless one of its rows is beyond its memory",
        Cut("vector.makes_1"),
    )

    _operands(b, part, made, lanes, check, after)
    # PRM: asked for two cycles before it is there.
    prm, number = made.of_step["prm"], made.number
    early = made.uses_prm & ~of_row["norm"]  # NORM has its bias later, as `row_told` says
    for name, port, stage in (("bias", part.bias, BIAS_STAGE), ("scale", part.scale, SCALE_STAGE)):
        ask = stage - (3 if name == "bias" else 2)
        asked = (
            port.valid
            & (port.row == after(prm, ask, f"{name}_row"))
            & (port.number == after(number, ask, f"{name}_number"))
        )
        check("prm", ask, asked, early if name == "bias" else made.uses_prm)
        got = b.past(port.data, f"{name}_got", stage - ask - 1)
        if name == "bias":
            got = Mux(after(early, stage, "uses_prm"), got, 0)
        check("prm", stage, Cat(getattr(lane, name) for lane in lanes) == got)
    check("table", LUT_STAGE, part.table.table == after(record["table"], LUT_STAGE, "table"))
    results_row = made.of_step["result"] & made.writes
    check("table", LUT_STAGE, implies(after(results_row, LUT_STAGE, "row"), part.table.valid))

    last = made.makes & (made.number == config.vector_passes - 1) & results_row
    was_last = b.past(made.valid & b.past(last, "last"), "was_last", RESULT_STAGE - 1)
    b.check(
        "write",
        implies(alive, part.write.valid == was_last),
        "VECTOR: a step that makes a row writes what the lanes make of it to the row it names, once; "
        "nothing else is written",
        Cut("vector.results_21", 27),
    )
    b.check("write", implies(alive & was_last, part.write.row == after(made.of_step["dst"], RESULT_STAGE, "dst")))
    row = [b.past(Cat(results), f"results{n}", n) for n in reversed(range(config.vector_passes))]
    b.check("write", implies(b.past(was_last, "written"), part.write.data == Cat(row)))

    b.check(
        "retire",
        part.retire.give == b.past(made.ends, "ended", VECTOR_SIGNAL),
        "VECTOR: an instruction retires once, in order, with its signals, so long after its last step "
        "that the steps they allow come behind its last write",
        Cut("vector.end_19"),
    )
    for name in ("signal0", "signal1", "pc"):
        of = after(record[name], VECTOR_SIGNAL, name)
        b.check("retire", implies(part.retire.give, getattr(part.retire, name) == of))
    return b


def _operands(b: Bench, part: Vector, made: _Steps, lanes: list, check: Any, after: Any) -> None:
    """The lanes get what was read for the step: of `acc` and `a` the one that is not the value is 0."""
    config = part.config
    turn = after(made.number, READ_STAGE, "turn")
    begins = turn == 0
    columns = list(part.acc.data)
    at = ACC_STAGE
    column = Array(columns)[after(made.of_step["column"], at, "column")] if len(columns) > 1 else columns[0]
    rows = {
        "acc": (b.past(column, "column_row", READ_STAGE - at), begins),
        "a": (part.a.data, after(made.reads_a, READ_STAGE, "reads_a")),
        "b": (part.b.data, begins),
    }
    from_acc = after(made.from_acc, SOURCE_STAGE, "from_acc")
    for name, (data, comes) in rows.items():
        kept = Signal(len(data), name=f"row_{name}")
        here = Mux(comes, data, kept)
        b.m.d.sync += kept.eq(here)
        bits = len(data) // config.vector_passes
        share = b.past(here.word_select(turn, bits), f"share_{name}")
        used = {"acc": from_acc, "a": ~from_acc, "b": C(1)}[name]
        got = Cat(getattr(lane, name) for lane in lanes)
        check("operands", SOURCE_STAGE, got == Mux(used, share, 0))
