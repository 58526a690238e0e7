"""Benches of the row unit: maxima and sums of rows and the quotient, each unit by itself.

A unit is made of its own method with free inputs. Beside one that takes several cycles goes the loop of the reference,
as many steps a cycle as the unit makes; they are compared when the loop has all its steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from amaranth.hdl import C, Cat, Module, Mux, Signal, Value

from tilewright.hw.vector.row_norm import (
    RowNormUnit,
)
from tilewright.hw.vector.row_unit import RowUnit
from tilewright.isa.config import NpuConfig
from tilewright.isa.instructions import ROW_QUOTIENT_BITS, ROW_SUM_BITS
from tilewright.isa.row_bits import (
    FACTOR_BITS,
    ROOT_BITS,
)
from tilewright.isa.timing import ROW_DIVIDE_CYCLES, row_scale_cycles, row_tree_stages
from verification.formal.bench import Bench, implies, registers
from verification.formal.engine import Cut
from verification.formal.vector.row_reference import (
    Reference,
    State,
    dividend,
)


def unit(b: Bench, part: Any) -> Module:
    """Returns the module of a part of which the bench makes the units it is about, with free ports."""
    module = Module()
    part.elaborate = lambda platform: module
    b.m.submodules.part = part
    return module


def inputs(b: Bench, part: Any, *names: str) -> dict[str, Signal]:
    """Connects these ports to free inputs, and returns them by name."""
    made = {name: b.free(getattr(part, name).shape(), name) for name in names}
    b.m.d.comb += [getattr(part, name).eq(value) for name, value in made.items()]
    return made


class Load:
    """A load of a unit, by its age in cycles.

    Attributes:
        since: cycles since then, up to `most` and one more.
    """

    def __init__(self, b: Bench, load: Value, most: int) -> None:
        self.b, self.load = b, load
        self.since = Signal(range(most + 2), init=most + 1, name="since")
        b.m.d.sync += self.since.eq(Mux(load, 1, Mux(self.since > most, self.since, self.since + 1)))
        self.in_time = self.since <= most

    def kept(self, value: Any, name: str) -> Signal:
        """Returns a value of the cycle in which it was loaded."""
        signal = Signal(Value.cast(value).shape(), name=f"loaded_{name}")
        with self.b.m.If(self.load):
            self.b.m.d.sync += signal.eq(value)
        return signal

    def state(self, start: State, step: Callable[[State], State]) -> State:
        """Returns the state of the reference's loop, begun with `start` at the load, after two steps a cycle."""
        now = tuple(Signal(len(value), name=f"state{n}") for n, value in enumerate(start))
        self.b.m.d.sync += [to.eq(value) for to, value in zip(now, step(step(now)))]
        with self.b.m.If(self.load):
            self.b.m.d.sync += [to.eq(value) for to, value in zip(now, start)]
        return now

    def same(self, registers: Iterable[Value], state: State) -> None:
        """States that registers equal the state of the reference, which makes proofs inductive."""
        for register, value in zip(registers, state, strict=True):
            self.b.invariant(implies(self.in_time, register == value))

    def found(self, register: Value, value: Value, bits: Value) -> None:
        """States that the low `bits` of a register equal those of the reference: bits are added from below."""
        self.b.invariant(implies(self.in_time, (register ^ value) & ((1 << bits) - 1) == 0))


def _kept(b: Bench, part: Any, keep: Value, number: str) -> Value:
    """Returns the bits of the elements that count, of the lanes of the pass that the port `number` names."""
    c = part.config
    if c.vector_passes == 1:
        return keep
    return keep.word_select(inputs(b, part, number)[number], c.vector_lanes)


def maxima(only: str | None, c: NpuConfig) -> Bench:
    """Passes of any rows, and MAX at a place the solver chooses."""
    b = Bench(only)
    part = RowUnit(c)
    m = unit(b, part)
    part._maxima(m)
    keep, at = b.constant(c.block_in, "keep"), b.constant(range(c.prm_rows), "at")
    valid, first, last, place, prm = inputs(
        b, part, *(f"maximum_{n}" for n in ("valid", "first", "last", "prm")), "prm"
    ).values()
    row, cut = inputs(b, part, "a", "a_cut").values()
    b.m.d.comb += part.keep.eq(keep)
    b.assume((place < c.prm_rows) & (prm < c.prm_rows) & keep[0])
    counts = _kept(b, part, keep, "a_number")
    stages = 1 + row_tree_stages(c)
    best: Value = C(-128, 8).as_signed()
    for l in range(c.vector_lanes):
        lane = row.word_select(l, 8).as_signed()
        now = Signal.like(lane, name=f"of_lane{l}")
        b.m.d.comb += now.eq(Mux((counts[l] | ~cut) & (lane > best), lane, best))
        best = now
    top = b.past(best, "top", stages)
    so_far, now, kept = (Signal.like(best, name=name) for name in ("so_far", "now", "kept"))
    b.m.d.comb += now.eq(Mux(first | (top > so_far), top, so_far))
    store = m.submodules.maxima.read_port(domain="comb")
    b.m.d.comb += store.addr.eq(at)
    with b.m.If(valid):
        b.m.d.sync += so_far.eq(now)
        with b.m.If(last & (place == at)):
            b.m.d.sync += kept.eq(now)
    some = Signal(name="some")
    b.m.d.sync += some.eq(some | valid)
    b.assume(implies(valid, b.past(C(1), "there", stages) & (some | first)))
    b.invariant(
        (store.data == kept.as_unsigned()) & implies(some, registers(m)["$signal"] == so_far.as_unsigned() ^ 0x80)
    )
    b.check(
        "maximum",
        implies(b.past(prm == at, "asked"), part.maximum == b.past(kept, "kept_before")),
        "ROW: MAX of a place is the maximum of the row that named it last, of all vectors since its first"
        " one, of the elements that count",
        Cut("part.tree0", 6),
    )
    return b


def sums(only: str | None, c: NpuConfig) -> Bench:
    """Passes of any rows, of words with one field or two."""
    b = Bench(only)
    part = RowUnit(c)
    m = unit(b, part)
    keep = b.constant(c.block_in, "keep")
    words, cut, valid, first, two = inputs(b, part, "words", "words_cut", "sum_valid", "sum_first", "two_sums").values()
    b.m.d.comb += part.keep.eq(keep)
    totals = part._sum(m), part._second(m)
    stages, bits = 1 + row_tree_stages(c), c.row_square_bits
    counts = _kept(b, part, keep, "words_number")
    lanes = [Mux(counts[l] | ~cut, words.word_select(l, c.row_word_bits), 0) for l in range(c.vector_lanes)]
    vector = Signal(c.row_word_bits + c.vector_lanes.bit_length() - 1, name="vector")
    while len(lanes) > 1:  # by pairs, as the part has them: of many lanes the solver cannot tell another order
        lanes = [one + other for one, other in zip(lanes[::2], lanes[1::2])]
    b.m.d.comb += vector.eq(lanes[0])
    found = b.past(vector, "vector_then", stages)
    added = (Mux(two, found[:bits], found), found[bits:])
    some = Signal(name="some")
    b.m.d.sync += some.eq(some | valid)
    b.assume(implies(valid, b.past(C(1), "there", stages) & (some | first)))
    b.state(
        "sum",
        "ROW: the sum of all words of a row since its first vector, of the elements that count; where words have two "
        "fields, of the first one",
        Cut("part.tree0", 6),
    )
    b.state("second", "ROW: the sum of the second fields", Cut("part.tree0", 6))
    for name, more, total in zip(("sum", "second"), added, totals):
        so_far = Signal(len(total), name=f"{name}_so_far")
        with b.m.If(valid):
            b.m.d.sync += so_far.eq(Mux(first, 0, so_far) + more)
        b.check(name, implies(some, total == so_far))
    return b


def divide(only: str | None, c: NpuConfig) -> Bench:
    """The divider, of rows of EXP_SUM and of norms, of any sums and roots."""
    b = Bench(only)
    part, norms = RowUnit(c), RowNormUnit(c)
    m = unit(b, part)
    m.submodules.norms = norms
    b.cut(norms, "norms")
    total, root, ask = b.free(ROW_SUM_BITS, "total"), norms.root, norms.ask
    part._divide(m, total, norms)
    begin, place, number, exponent = inputs(b, part, "divide", "divide_prm", "number", "exponent").values()
    row = Load(b, begin | ask, ROW_DIVIDE_CYCLES)
    b.assume(~(begin & ask) & implies(begin | ask, row.since >= ROW_DIVIDE_CYCLES))
    b.assume(implies(begin, b.past(C(1), "there")))
    reference = Reference(b.m, "r")
    aligned, zeros = reference.aligned(b.past(total, "total_before"))
    divisor = row.kept(Mux(begin, aligned, Cat(C(0, ROW_SUM_BITS - ROOT_BITS), root)), "divisor")
    rest = Mux(begin, dividend(number), 1 << 33)[: ROW_SUM_BITS + 1]
    state = row.state((rest, C(0, ROW_QUOTIENT_BITS)), lambda now: reference.quotient_step(now, divisor))
    assert 2 * (ROW_DIVIDE_CYCLES - 1) == ROW_QUOTIENT_BITS
    there, of_scale, quotient = row.since == ROW_DIVIDE_CYCLES, row.kept(begin, "scale"), state[1]
    named = {"row": place, "exponent": exponent, "zeros": zeros}
    kept = {name: row.kept(value, name) for name, value in named.items()}
    held = registers(m)
    divisor_now, left, row_now = (held[name] for name in ("$signal$3", "$signal$2", "$like"))
    # Of the register of the rest, whose lowest bit is a constant, Yosys makes no port.
    less = registers(m, "comb")["less0"]
    row.same((divisor_now, less), (divisor, (state[0] - divisor)[: len(less)]))
    row.found(held["quotient"], quotient, 2 * (row.since - 1).as_unsigned())
    counts = of_scale & (row.since < ROW_DIVIDE_CYCLES)
    b.invariant(
        (left == Mux(counts, ROW_DIVIDE_CYCLES - row.since, 0)) & implies(row.in_time, held["scale"] == of_scale)
    )
    same = Cat(kept.values()) == Cat(row_now, held["exponent"], held["zeros"])
    b.invariant(implies(row.in_time & of_scale, same))
    b.state(
        "scale",
        "ROW: so many cycles after a row of EXP_SUM, and no others, `row_scale` of its sum and of the "
        "instruction is written to the scale of the row's PRM, word by word",
        Cut("part.zeros_high", 17 + row_scale_cycles(c)),
    )
    ended, row_of, expected = there & of_scale, kept["row"], reference.scale(quotient, kept["exponent"], kept["zeros"])
    writes: Value = ended
    if (words := row_scale_cycles(c)) > 1:
        since = Signal(range(words + 1), init=words, name="since_ended")
        b.m.d.sync += since.eq(Mux(ended, 0, Mux(since >= words, words, since + 1)))
        then = [Signal.like(v, name=f"then{n}") for n, v in enumerate((row_of, expected))]
        with b.m.If(ended):
            b.m.d.sync += [then[0].eq(row_of), then[1].eq(expected)]
        writes, (row_of, expected) = since < words, then
        b.invariant(held["writes"] == ended)
        b.invariant((held["writing"] == writes) & (part.write.word == Mux(writes, since, 0)[: len(part.write.word)]))
        b.invariant(implies(writes, (part.write.row == row_of) & (part.write.scale == expected)))
        b.invariant(implies(writes & row.in_time, row.since <= since + 1))
        b.check("scale", implies(writes, part.write.word == since))
    b.check("scale", part.write.valid == writes)
    b.check("scale", implies(part.write.valid, part.write.row == row_of))
    b.check("scale", implies(part.write.valid, part.write.scale == expected))
    b.check(
        "factor",
        implies(there & ~of_scale, norms.factor == quotient[:FACTOR_BITS]),
        "ROW: so many cycles after it is asked, 2**48 / root",
        Cut("part.less1", 16),
    )
    return b
