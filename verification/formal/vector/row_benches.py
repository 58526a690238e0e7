"""Benches of the row unit: maxima and sums of rows, the quotient, and the numbers of a norm, each unit by itself.

A unit is made of its own method with free inputs. Beside one that takes several cycles goes the loop of the reference,
as many steps a cycle as the unit makes; they are compared when the loop has all its steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from amaranth.hdl import C, Cat, Module, Mux, Signal, Value

from tilewright.hw.vector.row_norm import (
    ASK_STAGE,
    FACTOR_STAGE,
    MEAN_STAGE,
    PER_CYCLE,
    RADICAND_STAGE,
    ROOT_STAGE,
    WRITE_STAGE,
    RowNormUnit,
)
from tilewright.hw.vector.row_unit import RowUnit
from tilewright.isa.config import NpuConfig
from tilewright.isa.instructions import ADDRESS_BITS, ROW_QUOTIENT_BITS, ROW_SUM_BITS
from tilewright.isa.row_bits import (
    COUNT_BITS,
    EPSILON_FRACTION,
    EXPONENT_BITS,
    FACTOR_BITS,
    MEAN_BITS,
    MEAN_FRACTION,
    RADICAND_BITS,
    ROOT_BITS,
    SHIFTS,
)
from tilewright.isa.timing import ROW_DIVIDE_CYCLES, row_tree_stages
from verification.formal.bench import Bench, implies, opened, registers
from verification.formal.vector.row_reference import (
    Reference,
    State,
    above_middle,
    digits,
    dividend,
    mean_of,
    of_digits,
    product,
    root_of,
)


def _unit(b: Bench, part: Any) -> Module:
    """The module of a part of which the bench makes the units it is about, with free ports."""
    module = Module()
    part.elaborate = lambda platform: module
    b.m.submodules.part = part
    return module


def _inputs(b: Bench, part: Any, *names: str) -> dict[str, Signal]:
    """These ports, free."""
    made = {name: b.free(getattr(part, name).shape(), name) for name in names}
    b.m.d.comb += [getattr(part, name).eq(value) for name, value in made.items()]
    return made


class _Load:
    """What a unit was loaded with.

    Attributes:
        since: cycles since then, up to `most` and one more.
    """

    def __init__(self, b: Bench, load: Value, most: int) -> None:
        self.b, self.load = b, load
        self.since = Signal(range(most + 2), init=most + 1, name="since")
        b.m.d.sync += self.since.eq(Mux(load, 1, Mux(self.since > most, self.since, self.since + 1)))
        self.in_time = self.since <= most

    def kept(self, value: Any, name: str) -> Signal:
        """A value of the cycle in which it was loaded."""
        signal = Signal(Value.cast(value).shape(), name=f"loaded_{name}")
        with self.b.m.If(self.load):
            self.b.m.d.sync += signal.eq(value)
        return signal

    def state(self, start: State, step: Callable[[State], State]) -> State:
        """Where the loop of the reference is that began with `start`, two steps a cycle."""
        now = tuple(Signal(len(value), name=f"state{n}") for n, value in enumerate(start))
        self.b.m.d.sync += [to.eq(value) for to, value in zip(now, step(step(now)))]
        with self.b.m.If(self.load):
            self.b.m.d.sync += [to.eq(value) for to, value in zip(now, start)]
        return now

    def same(self, registers: Iterable[Value], state: State) -> None:
        """The unit is where the reference is: what makes proofs inductive."""
        for register, value in zip(registers, state, strict=True):
            self.b.invariant(implies(self.in_time, register == value))

    def found(self, register: Value, value: Value, bits: Value) -> None:
        """The same of one to which bits are added from below, of which so many are new."""
        self.b.invariant(implies(self.in_time, (register ^ value) & ((1 << bits) - 1) == 0))


def maxima(only: str | None, c: NpuConfig) -> Bench:
    """Vectors of any rows, and MAX at a place the solver chooses."""
    b = Bench(only)
    part = RowUnit(c)
    m = _unit(b, part)
    part._maxima(m)
    keep, at = b.constant(c.block_in, "keep"), b.constant(range(c.prm_rows), "at")
    valid, first, last, place, prm = _inputs(
        b, part, *(f"maximum_{n}" for n in ("valid", "first", "last", "prm")), "prm"
    ).values()
    row, cut = _inputs(b, part, "a", "a_cut").values()
    b.m.d.comb += part.keep.eq(keep)
    b.assume((place < c.prm_rows) & (prm < c.prm_rows) & keep[0])
    stages = 1 + row_tree_stages(c)
    best: Value = C(-128, 8).as_signed()
    for l in range(c.block_in):
        lane = row.word_select(l, 8).as_signed()
        now = Signal.like(lane, name=f"of_lane{l}")
        b.m.d.comb += now.eq(Mux((keep[l] | ~cut) & (lane > best), lane, best))
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
    b.check("maximum", implies(b.past(prm == at, "asked"), part.maximum == b.past(kept, "kept_before")))
    return b


def sums(only: str | None, c: NpuConfig) -> Bench:
    """Vectors of any rows, of words with one field or two."""
    b = Bench(only)
    part = RowUnit(c)
    m = _unit(b, part)
    keep = b.constant(c.block_in, "keep")
    words, cut, valid, first, two = _inputs(
        b, part, "words", "words_cut", "sum_valid", "sum_first", "two_sums"
    ).values()
    b.m.d.comb += part.keep.eq(keep)
    totals = part._sum(m), part._second(m)
    stages, bits = 1 + row_tree_stages(c), c.row_square_bits
    lanes = [Mux(keep[l] | ~cut, words.word_select(l, c.row_word_bits), 0) for l in range(c.block_in)]
    vector = Signal(c.row_word_bits + c.block_in.bit_length() - 1, name="vector")
    while len(lanes) > 1:  # by pairs, as the part has them: of many lanes the solver cannot tell another order
        lanes = [one + other for one, other in zip(lanes[::2], lanes[1::2])]
    b.m.d.comb += vector.eq(lanes[0])
    found = b.past(vector, "vector_then", stages)
    added = (Mux(two, found[:bits], found), found[bits:])
    some = Signal(name="some")
    b.m.d.sync += some.eq(some | valid)
    b.assume(implies(valid, b.past(C(1), "there", stages) & (some | first)))
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
    m = _unit(b, part)
    m.submodules.norms = norms
    b.cut(norms, "norms")
    total, root, ask = b.free(ROW_SUM_BITS, "total"), norms.root, norms.ask
    part._divide(m, total, norms)
    begin, place, number, exponent = _inputs(b, part, "divide", "divide_prm", "number", "exponent").values()
    row = _Load(b, begin | ask, ROW_DIVIDE_CYCLES)
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
    b.check("scale", part.write.valid == (there & of_scale))
    b.check("scale", implies(part.write.valid, part.write.row == kept["row"]))
    expected = reference.scale(quotient, kept["exponent"], kept["zeros"])
    b.check("scale", implies(part.write.valid, part.write.scale == expected))
    b.check("factor", implies(there & ~of_scale, norms.factor == quotient[:FACTOR_BITS]))
    return b


def radicand(only: str | None, c: NpuConfig) -> Bench:
    """Sums in any cycle."""
    b = Bench(only)
    part = RowNormUnit(c)
    m = _unit(b, part)
    squares, total = _inputs(b, part, "squares", "total").values()
    shapes = {"centred": 1, "count": COUNT_BITS, "epsilon": 32 + EPSILON_FRACTION}
    centred, count, epsilon = (b.constant(bits, name) for name, bits in shapes.items())
    b.m.d.comb += [part.centred.eq(centred), part.count.eq(count), part.epsilon.eq(epsilon)]
    found = part._radicand(m)
    scaled, squared = product(digits(count), digits(squares)), product(digits(total), digits(total))
    scaled = tuple(b.past(x, f"scaled{n}", RADICAND_STAGE) for n, x in enumerate(scaled))
    squared = tuple(b.past(x, f"squared{n}", RADICAND_STAGE) for n, x in enumerate(squared))
    exact = Reference(b.m, "r").radicand(of_digits(scaled), Mux(centred, of_digits(squared), 0), epsilon)
    there = b.past(C(1), "there", RADICAND_STAGE)
    b.check("radicand", implies(there, found[:RADICAND_BITS] == exact[EPSILON_FRACTION:]))
    return b


def shifted(only: str | None, c: NpuConfig) -> Bench:
    """Radicands, with another at any time."""
    b = Bench(only)
    part = RowNormUnit(c)
    m = _unit(b, part)
    whole, load = b.free(RADICAND_BITS, "radicand"), b.free(1, "load")
    epsilon = _inputs(b, part, "epsilon")["epsilon"]
    value, exponent = part._shifted(m, whole, load)
    cycles = ROOT_STAGE - RADICAND_STAGE
    assert PER_CYCLE == 2 and 2 * (cycles - 1) == SHIFTS
    row = _Load(b, load, cycles)
    state = row.state((Cat(epsilon[:EPSILON_FRACTION], whole), C(0, EXPONENT_BITS)), Reference(b.m, "r").shift_step)
    row.same(registers(m).values(), state)
    there = row.since == cycles
    b.check("shifted", implies(there, (value == state[0][EPSILON_FRACTION:]) & (exponent == state[1])))
    return b


def root(only: str | None, c: NpuConfig) -> Bench:
    """Radicands, with another at any time."""
    b = Bench(only)
    part = RowNormUnit(c)
    m = _unit(b, part)
    radicand, load = b.free(RADICAND_BITS, "radicand"), b.free(1, "load")
    part._root(m, radicand, load)
    cycles = ASK_STAGE - ROOT_STAGE
    assert PER_CYCLE == 2 and 2 * (cycles - 1) == ROOT_BITS
    row = _Load(b, load, cycles)
    state = row.state(root_of(radicand), Reference(b.m, "r").root_step)
    held, zeros = registers(m), len(state[0]) - RADICAND_BITS
    row.same((Cat(C(0, zeros), held["left"])[: len(state[0])], held["$signal"], held["rest"]), state)
    b.check("root", implies(row.since == cycles, part.root == state[1] | 1))
    return b


def mean(only: str | None, c: NpuConfig) -> Bench:
    """Totals, with another at any time."""
    b = Bench(only)
    part = RowNormUnit(c)
    m = _unit(b, part)
    total, load = _inputs(b, part, "total", "start").values()
    count = b.constant(COUNT_BITS, "count")
    b.m.d.comb += part.count.eq(count)
    found = part._mean(m)
    assert PER_CYCLE == 2 and 2 * MEAN_STAGE == MEAN_BITS
    row = _Load(b, load, MEAN_STAGE)

    def step(now: State) -> State:
        return reference.mean_step(now, count)

    reference = Reference(b.m, "r")
    state = row.state(step(step(mean_of(total))), step)
    held = registers(m)
    row.same((held["low"], held["rest"]), (state[0][MEAN_FRACTION:], state[1]))
    row.found(found, state[2], 2 * row.since)
    b.check("mean", implies(row.since == MEAN_STAGE, found == state[2]))
    return b


def offset(only: str | None, c: NpuConfig) -> Bench:
    """Means and factors in any cycle."""
    b = Bench(only)
    part = RowNormUnit(c)
    m = _unit(b, part)
    mean = b.free(MEAN_BITS, "mean")
    factor = _inputs(b, part, "factor")["factor"]
    found = part._offset(m, mean)
    cycles = WRITE_STAGE - FACTOR_STAGE
    products = product(digits(above_middle(mean)), digits(factor))
    products = tuple(b.past(x, f"product{n}", cycles) for n, x in enumerate(products))
    expected = Reference(b.m, "r").offset(of_digits(products))
    b.check("offset", implies(b.past(C(1), "there", cycles), found == expected))
    return b


class _Stages(RowNormUnit):
    """With units that give anything.

    Attributes:
        load_radicand, load_root: they begin with a row.  told_mean: of the offset.
        mean, exponent, offset: what units give.
    """

    def __init__(self, b: Bench, config: NpuConfig) -> None:
        super().__init__(config)
        self.exponent, self.mean, self.offset = (
            b.free(bits, name) for bits, name in ((EXPONENT_BITS, "exponent"), (MEAN_BITS, "mean"), (32, "offset"))
        )

    def _radicand(self, m: Module) -> Value:
        return C(0, RADICAND_BITS)

    def _shifted(self, m: Module, radicand: Value, load: Value) -> tuple[Value, Value]:
        self.load_radicand = load
        return C(0, RADICAND_BITS), self.exponent

    def _root(self, m: Module, radicand: Value, load: Value) -> None:
        self.load_root = load

    def _mean(self, m: Module) -> Value:
        return self.mean

    def _offset(self, m: Module, mean: Value) -> Value:
        self.told_mean = mean
        return self.offset


def stages(only: str | None, c: NpuConfig) -> Bench:
    """One row of many, and STAT at its place."""
    b = Bench(only)
    part = _Stages(b, c)
    module = opened(part)
    start, chosen, place = b.free(1, "start"), b.free(1, "chosen"), b.free(ADDRESS_BITS, "place")
    b.part("part", part, start=start, place=place)
    pause = Signal(range(ROW_DIVIDE_CYCLES), name="pause")  # until the next row may come
    b.m.d.sync += pause.eq(Mux(start, ROW_DIVIDE_CYCLES - 1, pause - pause.any()))
    b.assume(implies(start, (pause == 0) & (place < c.prm_rows)) & (part.read < c.prm_rows))
    looks, since = Signal(name="looks"), Signal(range(WRITE_STAGE + 2), name="since")
    begins = start & chosen & ~looks
    now = Mux(begins, 0, since)
    with b.m.If(begins | looks):
        b.m.d.sync += [looks.eq(1), since.eq(Mux(now > WRITE_STAGE, now, now + 1))]
    there = begins | looks

    def at(stage: int) -> Value:
        return there & (now == stage)

    def kept(value: Value, stage: int, name: str) -> Signal:
        signal = Signal(value.shape(), name=f"row_{name}")
        with b.m.If(at(stage)):
            b.m.d.sync += signal.eq(value)
        return signal

    for stage, load in ((RADICAND_STAGE, part.load_radicand), (ROOT_STAGE, part.load_root), (ASK_STAGE, part.ask)):
        b.check("loads", load == b.past(start, f"start{stage}", stage))
    b.check("mean", implies(at(FACTOR_STAGE), part.told_mean == kept(part.mean, MEAN_STAGE, "mean")))
    factor, exponent = kept(part.factor, FACTOR_STAGE, "factor"), kept(part.exponent, ROOT_STAGE, "exponent")
    offset, row = kept(part.offset, WRITE_STAGE, "offset"), kept(place, 0, "place")
    written = there & (now > WRITE_STAGE)
    # Until another row is written there.
    gone, other = Signal(name="gone"), b.past(start, "other", WRITE_STAGE)
    with b.m.If(written & other & (b.past(place, "other_place", WRITE_STAGE) == row)):
        b.m.d.sync += gone.eq(1)
    expected = Cat(factor, offset, exponent)
    store = module.submodules.norm_rows.read_port(domain="comb")
    b.m.d.comb += store.addr.eq(row)
    b.invariant(implies(looks, (since != 0) & (row < c.prm_rows)) & implies(written & ~gone, store.data == expected))
    asked = b.past(written & ~gone & (part.read == row), "asked")
    got = Cat(part.factor_now, part.offset_now, part.exponent_now)
    b.check("kept", implies(asked, got == expected))
    return b
