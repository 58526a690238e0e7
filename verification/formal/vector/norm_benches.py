"""Benches of the row unit: the numbers of a norm, each unit by itself, as in `row_benches`."""

from __future__ import annotations

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
from tilewright.isa.config import NpuConfig
from tilewright.isa.instructions import ADDRESS_BITS
from tilewright.isa.row_bits import (
    COUNT_BITS,
    EPSILON_FRACTION,
    EXPONENT_BITS,
    MEAN_BITS,
    MEAN_FRACTION,
    RADICAND_BITS,
    ROOT_BITS,
    SHIFTS,
)
from tilewright.isa.timing import ROW_DIVIDE_CYCLES
from verification.formal.bench import Bench, implies, opened, registers
from verification.formal.engine import Cut
from verification.formal.vector.row_benches import Load, inputs, unit
from verification.formal.vector.row_reference import (
    Reference,
    State,
    above_middle,
    digits,
    mean_of,
    of_digits,
    product,
    root_of,
)


def radicand(only: str | None, c: NpuConfig) -> Bench:
    """Sums in any cycle."""
    b = Bench(only)
    part = RowNormUnit(c)
    m = unit(b, part)
    squares, total = inputs(b, part, "squares", "total").values()
    shapes = {"centred": 1, "count": COUNT_BITS, "epsilon": 32 + EPSILON_FRACTION}
    centred, count, epsilon = (b.constant(bits, name) for name, bits in shapes.items())
    b.m.d.comb += [part.centred.eq(centred), part.count.eq(count), part.epsilon.eq(epsilon)]
    found = part._radicand(m)
    scaled, squared = product(digits(count), digits(squares)), product(digits(total), digits(total))
    scaled = tuple(b.past(x, f"scaled{n}", RADICAND_STAGE) for n, x in enumerate(scaled))
    squared = tuple(b.past(x, f"squared{n}", RADICAND_STAGE) for n, x in enumerate(squared))
    exact = Reference(b.m, "r").radicand(of_digits(scaled), Mux(centred, of_digits(squared), 0), epsilon)
    there = b.past(C(1), "there", RADICAND_STAGE)
    b.check(
        "radicand",
        implies(there, found[:RADICAND_BITS] == exact[EPSILON_FRACTION:]),
        "ROW: count * squares + epsilon, less total**2 in MOMENTS, without the fraction",
        Cut("part.product_high", 4),
    )
    return b


def shifted(only: str | None, c: NpuConfig) -> Bench:
    """Radicands, with another at any time."""
    b = Bench(only)
    part = RowNormUnit(c)
    m = unit(b, part)
    whole, load = b.free(RADICAND_BITS, "radicand"), b.free(1, "load")
    epsilon = inputs(b, part, "epsilon")["epsilon"]
    value, exponent = part._shifted(m, whole, load)
    cycles = ROOT_STAGE - RADICAND_STAGE
    assert PER_CYCLE == 2 and 2 * (cycles - 1) == SHIFTS
    row = Load(b, load, cycles)
    state = row.state((Cat(epsilon[:EPSILON_FRACTION], whole), C(0, EXPONENT_BITS)), Reference(b.m, "r").shift_step)
    row.same(registers(m).values(), state)
    there = row.since == cycles
    b.check(
        "shifted",
        implies(there, (value == state[0][EPSILON_FRACTION:]) & (exponent == state[1])),
        "ROW: the radicand shifted left by two until one of its highest two bits is set, at most 20 "
        "times, and how often that was",
        Cut("part.empty1", 14),
    )
    return b


def root(only: str | None, c: NpuConfig) -> Bench:
    """Radicands, with another at any time."""
    b = Bench(only)
    part = RowNormUnit(c)
    m = unit(b, part)
    radicand, load = b.free(RADICAND_BITS, "radicand"), b.free(1, "load")
    part._root(m, radicand, load)
    cycles = ASK_STAGE - ROOT_STAGE
    assert PER_CYCLE == 2 and 2 * (cycles - 1) == ROOT_BITS
    row = Load(b, load, cycles)
    state = row.state(root_of(radicand), Reference(b.m, "r").root_step)
    held, zeros = registers(m), len(state[0]) - RADICAND_BITS
    row.same((Cat(C(0, zeros), held["left"])[: len(state[0])], held["$signal"], held["rest"]), state)
    b.check(
        "root",
        implies(row.since == cycles, part.root == state[1] | 1),
        "ROW: the square root of what was shifted, its lowest bit set",
        Cut("part.fits1", 16),
    )
    return b


def mean(only: str | None, c: NpuConfig) -> Bench:
    """Totals, with another at any time."""
    b = Bench(only)
    part = RowNormUnit(c)
    m = unit(b, part)
    total, load = inputs(b, part, "total", "start").values()
    count = b.constant(COUNT_BITS, "count")
    b.m.d.comb += part.count.eq(count)
    found = part._mean(m)
    assert PER_CYCLE == 2 and 2 * MEAN_STAGE == MEAN_BITS
    row = Load(b, load, MEAN_STAGE)

    def step(now: State) -> State:
        return reference.mean_step(now, count)

    reference = Reference(b.m, "r")
    state = row.state(step(step(mean_of(total))), step)
    held = registers(m)
    row.same((held["low"], held["rest"]), (state[0][MEAN_FRACTION:], state[1]))
    row.found(found, state[2], 2 * row.since)
    b.check(
        "mean",
        implies(row.since == MEAN_STAGE, found == state[2]),
        "ROW: total / count with 20 bits of a fraction",
        Cut("part.divides0", 16),
    )
    return b


def offset(only: str | None, c: NpuConfig) -> Bench:
    """Means and factors in any cycle."""
    b = Bench(only)
    part = RowNormUnit(c)
    m = unit(b, part)
    mean = b.free(MEAN_BITS, "mean")
    factor = inputs(b, part, "factor")["factor"]
    found = part._offset(m, mean)
    cycles = WRITE_STAGE - FACTOR_STAGE
    products = product(digits(above_middle(mean)), digits(factor))
    products = tuple(b.past(x, f"product{n}", cycles) for n, x in enumerate(products))
    expected = Reference(b.m, "r").offset(of_digits(products))
    b.check(
        "offset",
        implies(b.past(C(1), "there", cycles), found == expected),
        "ROW: (128 - mean) * factor, to nearest, wrapping",
        Cut("part.middle", 4),
    )
    return b


class _Stages(RowNormUnit):
    """The norm unit with inner units that give anything.

    Attributes:
        load_radicand, load_root: they begin with a row.  offset_mean: the mean that the offset is made of.
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
        self.offset_mean = mean
        return self.offset


def stages(only: str | None, c: NpuConfig) -> Bench:
    """The stages of one row of many, and STAT at its place."""
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
        b.check(
            "loads",
            load == b.past(start, f"start{stage}", stage),
            "ROW: radicand and root begin, and the divider is asked, when the unit before has its number",
            Cut("part.at2", 4),
        )
    b.check(
        "mean",
        implies(at(FACTOR_STAGE), part.offset_mean == kept(part.mean, MEAN_STAGE, "mean")),
        "ROW: the offset is made of the mean of the same row",
        Cut("part.mean1", 44),
    )
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
    b.check(
        "kept",
        implies(asked, got == expected),
        "ROW: STAT has factor, offset and exponent of a row at the place it named, until another row "
        "names it, which nothing else changes",
        Cut("part.place2", 47),
    )
    return b
