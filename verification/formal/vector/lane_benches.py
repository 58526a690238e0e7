"""Benches of a lane of VECTOR, with a requantiser that gives anything: what goes into it (`source`), and what is made
of what comes out (`finish`). With the proofs about the requantiser between them they chain to the effect of a VECTOR
instruction on one element, for what the lane is told and given; that these are the instruction's and the rows' is said
by the proofs about the engine.
"""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Array, C, Cat, Mux, Signal, Value, signed

from tilewright.hw.vector.lane import (
    ADD_STAGE,
    BIAS_STAGE,
    CONTROL_STAGES,
    LUT_STAGE,
    PRODUCT_STAGE,
    REQUANTIZE_STAGE,
    RESULT_STAGE,
    SOURCE_STAGE,
    SPLIT,
    VectorLane,
)
from tilewright.isa.instructions import Source
from tilewright.isa.row_bits import FACTOR_BITS
from verification.formal.bench import Bench, implies, opened
from verification.formal.engine import Cut


class _Lane:
    """A lane in a bench. `source` and `given` are those of the step in SOURCE_STAGE; every other input enters at its
    stage and is free.

    Attributes:
        requantizer: its ports; what it gives is free (`answer`, and `wide_answer` of that of VECTOR_WIDE).
        source: one of `Source`.
    """

    def __init__(self, b: Bench, passes: int, rows: int, wide: bool = False, **inputs: Any) -> None:
        self.part = lane = VectorLane(passes=passes, rows=rows, wide=wide)
        module = opened(lane)
        self.requantizer = requantizer = module.submodules.requantizer
        b.cut(requantizer, "requantizer")
        self.answer = requantizer.result
        if wide:
            other = module.submodules.wide_requantizer
            b.cut(other, "wide_requantizer")
            self.wide_answer = other.result
        self.source = source = b.free(3, "source")
        b.assume(source <= max(Source))
        for name in ("mul", "sum", "max"):
            inputs[f"control__{name}"] = source == Source[name.upper()]
        self.acc, self.a = b.free(signed(32), "acc"), b.free(signed(8), "a")
        # What is not the value is 0, see `VectorOperands`.
        inputs["acc"] = Mux(source == Source.ACC, self.acc, 0)
        inputs["a"] = Mux(source == Source.ACC, 0, self.a)
        if rows:  # ROW only where it is given
            inputs = dict.fromkeys(("control__norm", "control__norm_sum", "control__exponential"), 0) | inputs
        b.part("lane", lane, **inputs)


def source(only: str | None, passes: int, rows: int = 0) -> Bench:
    """Steps of any source, sums and maxima of any groups, with cycles without a step between them. Steps come in
    `passes`, in each of which it is another element's turn."""
    b = Bench(only)
    lane = _Lane(b, passes, rows)
    part, lane_control, source = lane.part, lane.part.control, lane.source
    turn = Signal(range(passes), name="turn")
    with b.m.If(lane_control.valid):
        b.m.d.sync += turn.eq(Mux(turn == passes - 1, 0, turn + 1))
    so_far = Array(Signal(signed(32), name=f"so_far{n}") for n in range(passes))
    value, begins = Signal(signed(32), name="v"), lane_control.first
    with b.m.Switch(source):
        with b.m.Case(Source.ACC):
            b.m.d.comb += value.eq(lane.acc)
        with b.m.Case(Source.ACT):
            b.m.d.comb += value.eq(lane.a)
        with b.m.Case(Source.MUL):
            b.m.d.comb += value.eq((part.a - lane_control.za) * (part.b - lane_control.zb))
        with b.m.Case(Source.SUM):
            b.m.d.comb += value.eq(Mux(begins, 0, so_far[turn]) + lane.a)
        with b.m.Case(Source.MAX):
            b.m.d.comb += value.eq(Mux(begins | (so_far[turn] < lane.a), lane.a, so_far[turn]))
    # A group that goes on does so with the source it began with.
    before, began = Signal(3, name="before"), Signal(name="began")
    with b.m.If(lane_control.valid):
        b.m.d.sync += [so_far[turn].eq(value), before.eq(source), began.eq(begins)]
    reduces = (source == Source.SUM) | (source == Source.MAX)
    some = Signal(name="some")
    b.m.d.sync += some.eq(some | lane_control.valid)
    b.assume(implies(lane_control.valid & reduces & ~begins, some & (source == before)))
    b.assume(implies(turn != 0, (source == before) & (begins == began)))  # of a step in all its passes
    cycles = REQUANTIZE_STAGE - SOURCE_STAGE
    there, then = b.past(lane_control.valid, "there", cycles), b.past(source, "source_then", cycles)
    given = b.past(value, "given", cycles) + b.past(part.bias, "bias")
    requantized = (then == Source.ACC) | (then == Source.MUL) | (then == Source.SUM)
    b.check(
        "value",
        implies(there & requantized, lane.requantizer.acc == given[:32].as_signed()),
        "Lane: the requantiser gets ACC, (a - za) * (b - zb), or the sum of a since the group began, plus"
        " the bias, wrapping",
        Cut("lane.v5"),
    )
    # The others are taken as they are.
    b.check(
        "plain",
        implies(there & ~requantized, lane.requantizer.acc[:8] == given[:8]),
        "Lane: what is not requantised is a, or the maximum of a since the group began",
        Cut("lane.smaller"),
    )
    return b


def of_rows(only: str | None, rows: int, passes: int = 1) -> Bench:
    """Steps of ROW, among others: NORM with any factor and offset, words of a wide table."""
    b = Bench(only)
    norm, exponential = b.free(1, "norm"), b.free(1, "exponential")
    factor, offset = b.free(FACTOR_BITS, "factor"), b.free(signed(32), "offset")
    lane_control = {
        "norm": norm,
        "norm_sum": b.past(norm, "norm_sum"),
        "exponential": exponential,
        "mb": Mux(norm, factor, b.free(signed(24), "mb")),
        "offset": offset,
    }
    lane = _Lane(b, passes, rows, **{f"control__{name}": value for name, value in lane_control.items()})
    part = lane.part
    b.assume(implies(norm, part.control.valid & (lane.source != Source.MUL)))
    b.assume(implies(b.past(norm, "in_sum", BIAS_STAGE - SOURCE_STAGE), part.bias == 0))
    cycles = REQUANTIZE_STAGE - SOURCE_STAGE
    # Of the multiplier, which is that of Add's operand b: the solver finds products with the same factors only.
    operand = Mux(norm, part.a, b.past(part.b, "operand", ADD_STAGE - 1 - SOURCE_STAGE))
    products = zip(("low", "high"), digits(operand, part.control.mb))
    low, high = (b.past(x, f"{name}_product") for name, x in products)
    start = Signal(signed(32), name="starts_from")
    b.m.d.comb += start.eq(offset + (high << SPLIT) + low)
    there = b.past(norm, "norm_there", cycles) & ~exponential
    b.check(
        "norm",
        implies(there, lane.requantizer.acc == b.past(start, "start_there", cycles - 1)),
        "Lane, NORM: the requantiser gets a * factor + offset of its row, wrapping",
        Cut("lane.norm5"),
    )
    b.check(
        "word",
        implies(exponential, lane.requantizer.acc == part.word),
        "Lane, EXP: the requantiser gets the word of the wide table",
        Cut("lane.requantizes"),
    )
    index = b.past(part.a - part.control.za, "index_before", PRODUCT_STAGE - SOURCE_STAGE)
    b.check(
        "index",
        implies(b.past(C(1), "index_there"), part.word_index == index[:8]),
        "Lane, ROW: the wide table is asked for (a - za) & 255",
        Cut("lane.factor0"),
    )
    return b


def digits(value: Value, factor: Value) -> tuple[Value, Value]:
    """Products of a value with the low SPLIT bits of a factor, and with the rest of it."""
    return value * factor[:SPLIT], value * factor[SPLIT:].as_signed()


def finish(only: str | None, wide: bool = False) -> Bench:
    """The end of a lane, from what the requantiser gives, or the value itself, to the result: integer Add and table
    look-up. Parameters of a step are free a cycle before ADD_STAGE and enter at their stages."""
    b = Bench(only)
    ma, mb, c = b.free(signed(24), "ma"), b.free(signed(24), "mb"), b.free(signed(32), "c")
    shift, low, high = b.free(5, "shift"), b.free(signed(8), "add_low"), b.free(signed(8), "add_high")
    flags = {name: b.free(1, name) for name in ("requantized", "add", "look_up", *(("wide",) if wide else ()))}
    b.assume(low <= high)
    lane_control = {"ma": ma, "mb": mb, "offset": c, "shift": shift, "add_low": low, "add_high": high} | flags
    lane_control["above"] = Cat(k >= shift + 7 for k in range(31))
    begin = ADD_STAGE - 1
    inputs = {
        f"control__{name}": b.past(value, name, CONTROL_STAGES[name] - begin) for name, value in lane_control.items()
    }
    lane = _Lane(b, 1, 0, wide, **inputs)
    # The value as it is, and operand b, which come from earlier stages.
    plain = b.past(lane.requantizer.acc[:8], "plain", ADD_STAGE - REQUANTIZE_STAGE)
    operand = b.past(lane.part.b, "operand", begin - SOURCE_STAGE)

    def from_add(value: Value, name: str) -> Value:
        """Returns a parameter in ADD_STAGE."""
        return b.past(value, f"{name}_at_add")

    chosen = Signal(signed(8), name="chosen")
    b.m.d.comb += chosen.eq(Mux(from_add(flags["requantized"], "requantized"), lane.answer, plain))
    if wide:
        with b.m.If(from_add(flags["wide"], "wide")):
            b.m.d.comb += chosen.eq(lane.wide_answer)
    total = Signal(signed(32), name="sum")
    # Each product is the sum of those with the digits of the factor that the part has.
    low_b, high_b = (b.past(part, name) for part, name in zip(digits(operand, mb), ("low_b", "high_b")))
    low_a, high_a = digits(chosen, from_add(ma, "ma"))
    with_b = from_add(c, "c") + (high_b << SPLIT) + low_b
    b.m.d.comb += total.eq(with_b[:32] + (high_a << SPLIT) + low_a)
    shifted = Signal(signed(32), name="shifted")
    b.m.d.comb += shifted.eq(total >> from_add(shift, "shift"))
    least, most = (from_add(x, name) for x, name in ((low, "least"), (high, "most")))
    clamped = Mux(shifted > most, most, Mux(shifted < least, least, shifted))
    before = Signal(8, name="before_table")
    b.m.d.comb += before.eq(Mux(from_add(flags["add"], "add"), clamped, chosen))
    index = LUT_STAGE - ADD_STAGE
    b.check(
        "index",
        implies(b.past(C(1), "there", ADD_STAGE), lane.part.index == b.past(before, "index", index)),
        "Lane: v is the requantiser's result or the value itself; with Add it becomes clamp((v*ma + b*mb "
        "+ c) >> shift); the table is asked for v & 255",
        Cut("lane.wide20", 18),
    )
    for name in ("inside_zero_point", "window", "away", "zero_point", "low", "high"):
        b.check(
            "told",
            getattr(lane.requantizer, name) == getattr(lane.part.control, name),
            "Lane: scale, zero points, mode and limits reach the requantiser as they are",
        )
    b.check("told", lane.requantizer.scale == lane.part.scale)
    result = Mux(
        b.past(flags["look_up"], "looks_up", RESULT_STAGE + 1 - begin),
        lane.part.value,
        b.past(lane.part.index, "plain_result", 2),
    )
    b.check(
        "result",
        implies(b.past(C(1), "result_there", RESULT_STAGE), lane.part.result == result),
        "Lane: the result is what the table gave, where it is looked up, else v",
        Cut("lane.result_0", 23),
    )
    return b
