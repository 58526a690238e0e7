"""Bench of VECTOR with a row unit: the control of lanes and row unit in a step of ROW.

Steps, lanes and row unit are replaced by free ones. A step is of any function, in any cycle, whatever is before and
behind it; everything is compared with it as many cycles later as its stage is behind.
"""

from __future__ import annotations

from functools import reduce
from typing import Any

from amaranth.hdl import C, Cat, Mux, Signal, Value

from tilewright.hw.table import field, instructions_of, is_instruction
from tilewright.hw.vector.lane import (
    BIAS_STAGE,
    CONTROL_STAGES,
    PRODUCT_STAGE,
    REQUANTIZE_STAGE,
    RESULT_STAGE,
    SOURCE_STAGE,
)
from tilewright.hw.vector.requantizer import START
from tilewright.hw.vector.row_unit import (
    MAXIMUM_STAGE,
    WORD_STAGE,
    divide_stage,
    maximum_stage,
    norm_stage,
    sum_stage,
)
from tilewright.hw.vector.steps import ROW_FUNCTIONS
from tilewright.hw.vector.vector import ADDEND_STAGE, Vector
from tilewright.isa.config import NpuConfig
from tilewright.isa.instructions import Engine, RowFunction
from tilewright.isa.row_bits import EPSILON_FRACTION
from verification.formal.bench import Bench, implies, opened
from verification.formal.engine import Cut


def control(only: str | None, c: NpuConfig) -> Bench:
    """Steps of any functions and instructions that start in any cycle."""
    b = Bench(only)
    part = Vector(c)
    module = opened(part)
    steps, rows = module.submodules.steps, module.submodules.rows
    lanes = [getattr(module.submodules, f"lane{l}") for l in range(c.vector_lanes)]
    for name, inner in (("steps", steps), ("rows", rows), *((f"lane{l}", lane) for l, lane in enumerate(lanes))):
        b.cut(inner, name)
    b.part("vector", part)
    flags = {name: getattr(steps, f"row_{name}") for name in ROW_FUNCTIONS}
    b.assume(sum(flags.values(), C(0)) <= 1)
    right = b.past(steps.makes, "made") & ~steps.fault.error  # a cycle later

    def at(value: Any, stage: int, name: str) -> Value:
        return b.past(value, f"{name}_{stage}_after", stage)

    def step(stage: int, *functions: str, also: Any = 1) -> Value:
        """True if a step of one of these functions started so many cycles ago."""
        name = "_".join(functions)
        of = reduce(lambda x, y: x | y, (flags[f] for f in functions)) & also
        return b.past(right & b.past(of, f"{name}_{stage}_of"), f"{name}_{stage}_right", stage - 1)

    s = maximum_stage(c)
    b.check(
        "maximum",
        rows.maximum_valid == step(s, "maximum"),
        "ROW: the row unit is told of every vector of MAXIMUM, of no other, whether it is the first or "
        "the last of its row, and of its place, when its maximum is there",
        Cut("vector.row_maximum_5", 12),
    )
    first, last = steps.first, steps.result
    if c.vector_passes > 1:
        first, last = first & steps.first_pass, last & steps.last_pass
    says = Cat(rows.maximum_first, rows.maximum_last, rows.maximum_prm)
    b.check("maximum", implies(rows.maximum_valid, says == at(Cat(first, last, steps.prm), s, "said")))
    s = sum_stage(c)
    b.check(
        "sums",
        rows.sum_valid == step(s, "sum", "moments"),
        "ROW: so it is of vectors of EXP_SUM, MOMENTS and POWER, and of the end of their rows, when the sums are there",
        Cut("vector.row_moments_8", 14),
    )
    says = Cat(rows.sum_first, rows.two_sums)
    b.check("sums", implies(rows.sum_valid, says == at(Cat(first, flags["moments"]), s, "sum_said")))
    for name, function, s in (("norm", "moments", norm_stage(c)), ("divide", "sum", divide_stage(c))):
        asks, place = getattr(rows, name), getattr(rows, "norm_place" if name == "norm" else "divide_prm")
        b.check("sums", asks == step(s, function, also=last))
        b.check("sums", implies(asks, place == at(steps.prm, s, f"{name}_place")))
    b.check(
        "vectors",
        (rows.a == Cat(lane.a for lane in lanes)) & (rows.words == Cat(lane.word for lane in lanes)),
        "ROW: it gets the lanes' values and words, only those of the tail of a last vector, and is asked "
        "for MAX and STAT of the step",
        Cut("vector.result_3", 12),
    )
    b.check("vectors", rows.a_cut == at(steps.result, MAXIMUM_STAGE, "a_cut"))
    b.check("vectors", rows.words_cut == at(steps.result, WORD_STAGE, "words_cut"))
    if c.vector_passes > 1:
        b.check("vectors", rows.a_number == at(steps.number, MAXIMUM_STAGE, "a_number"))
        b.check("vectors", rows.words_number == at(steps.number, WORD_STAGE, "words_number"))
    b.check("vectors", (rows.prm == steps.prm) & (rows.read == steps.b_row))
    wide = part.table.wide == step(PRODUCT_STAGE, "sum", "exp", "moments")
    b.check("vectors", wide & (Cat(part.table.word_index) == Cat(lane.word_index for lane in lanes)))

    control = lanes[0].control
    b.check(
        "norm",
        control.norm == step(SOURCE_STAGE, "norm"),
        "ROW: lanes get factor, offset and exponent of the step's STAT in NORM, and bias of its PRM behind the product",
        Cut("vector.row_factor_2", 12),
    )
    b.check("norm", control.norm_sum == step(PRODUCT_STAGE, "norm"))
    # The row unit gives what it keeps a cycle after the step.
    b.check("norm", implies(control.norm, control.mb == at(rows.factor, SOURCE_STAGE - 1, "factor")))
    offset = at(rows.offset, PRODUCT_STAGE - 1, "offset")
    b.check("norm", implies(control.norm_sum, control.offset.as_unsigned() == offset))
    s = CONTROL_STAGES["start"]
    exponent = Mux(at(flags["norm"], s, "is_norm"), at(rows.norm_exponent, s - 1, "exponent"), 0)
    b.check("norm", implies(at(C(1), s, "there"), control.start == (START - exponent)[:8]))
    late = at(flags["norm"], ADDEND_STAGE, "late")
    addend = Mux(late, at(part.bias.data, 2, "bias"), 0)
    b.check("norm", Cat(lane.addend for lane in lanes) == addend)
    asks = step(ADDEND_STAGE - 3, "norm")
    asked = part.bias.valid & (part.bias.row == at(steps.prm, ADDEND_STAGE - 3, "channel"))
    number = at(steps.number, ADDEND_STAGE - 3, "pass") if c.vector_passes > 1 else 0
    b.check("norm", implies(asks, asked & (part.bias.number == number)))
    no_bias = at(flags["norm"], BIAS_STAGE, "no_bias")
    b.check("norm", implies(no_bias, Cat(lane.bias for lane in lanes) == 0))
    b.check(
        "exponential",
        control.exponential == at(flags["exp"], REQUANTIZE_STAGE, "exponential"),
        "ROW: EXP requantises words; of EXP_SUM and EXP the maximum of the step's MAX is subtracted",
        Cut("vector.exponential_3", 12),
    )
    less = at(flags["sum"] | flags["exp"], SOURCE_STAGE, "less")
    maximum = at(rows.maximum, SOURCE_STAGE - 1, "maximum")
    b.check("exponential", implies(less, control.za == maximum))
    makes_none = flags["maximum"] | flags["sum"] | flags["moments"]
    writes = b.past(right & b.past(last & ~makes_none, "results"), "writes", RESULT_STAGE - 1)
    b.check(
        "write",
        part.write.valid == writes,
        "ROW: of its functions EXP and NORM write rows",
        Cut("vector.results_21", 25),
    )

    word = part.control.word
    starts = part.control.start & is_instruction(word, "ROW")
    tail, function = field(word, "ROW", "tail"), field(word, "ROW", "function")
    says = {
        "number": field(word, "ROW", "number"),
        "exponent": field(word, "ROW", "exponent"),
        "centred": function == RowFunction.MOMENTS,
        "keep": Cat((tail == 0) | (tail > l) for l in range(c.block_in)),
    }
    configured = {name: Signal(field(word, "VECTOR_ADD", name).shape(), name=f"next_{name}") for name in ("ma", "c")}
    for bit, instruction in zip(part.control.configure, instructions_of(Engine.VECTOR, configures=True), strict=True):
        if instruction.name == "VECTOR_ADD":
            with b.m.If(bit):
                b.m.d.sync += [to.eq(field(word, "VECTOR_ADD", name)) for name, to in configured.items()]
    says["epsilon"] = Cat(configured["ma"][:EPSILON_FRACTION], configured["c"])
    for name, value in says.items():
        kept = Signal(Value.cast(value).shape(), name=f"now_{name}")
        with b.m.If(starts):
            b.m.d.sync += kept.eq(value)
        b.check(
            "instruction",
            getattr(rows, name) == kept,
            "ROW: the row unit is told what the instruction says, and epsilon of VECTOR_ADD before it",
            Cut("vector.number"),
        )
    return b
