"""Solver form of `tilewright.isa.row_norm` and `tilewright.isa.numerics.row_scale`: the same loops over values.

`tests/unit/verification/formal/test_row_reference.py` compares them with `isa`. A product is the sum of those of the
digits that the multipliers of the row unit have.
"""

from __future__ import annotations

from collections.abc import Callable

from amaranth.hdl import C, Cat, Module, Mux, Signal, Value

from tilewright.isa.instructions import ROW_QUOTIENT_BITS, ROW_SUM_BITS
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

#: What a loop goes on with.
State = tuple[Value, ...]
#: Bits of the low digit of a factor.
DIGIT = 17


class Reference:
    """Numbers of a row, computed in no time.

    Args:
        m: where their signals go.
        name: begins the names of these.
    """

    def __init__(self, m: Module, name: str) -> None:
        self.m, self.name, self._wires = m, name, 0

    def wire(self, value: Value, bits: int = 0) -> Signal:
        """Returns the value, or its lowest bits, as a signal: what is used twice is not computed twice."""
        self._wires += 1
        signal = Signal(bits or value.shape(), name=f"{self.name}_{self._wires}")
        self.m.d.comb += signal.eq(value)
        return signal

    def quotient_step(self, state: State, divisor: Value) -> State:
        """Rest and quotient so far of `tilewright.isa.numerics.quotient`, a bit later."""
        rest, found = state
        fits = self.wire(rest >= divisor)
        rest = self.wire(Mux(fits, rest - divisor, rest) << 1, ROW_SUM_BITS + 1)
        return rest, Cat(fits, found)[:ROW_QUOTIENT_BITS]

    def quotient(self, rest: Value, divisor: Value) -> Value:
        """`tilewright.isa.numerics.quotient`."""
        return self._repeated(ROW_QUOTIENT_BITS, self.quotient_step, (rest, C(0, ROW_QUOTIENT_BITS)), divisor)[1]

    def aligned(self, total: Value) -> tuple[Value, Value]:
        """Returns a total of ROW_SUM_BITS bits shifted left until its highest bit is set, at most by 15; by how many
        bits."""
        zeros: Value = C(0)
        for shift in (8, 4, 2, 1):
            empty = self.wire(total[ROW_SUM_BITS - shift :] == 0)
            total = self.wire(Mux(empty, total << shift, total), ROW_SUM_BITS)
            zeros = zeros + Mux(empty, shift, 0)
        return total, self.wire(zeros, 4)

    @staticmethod
    def scale(quotient: Value, exponent: Value, zeros: Value) -> Value:
        """Returns the float32 pattern of a quotient whose divisor was shifted by so many bits."""
        large = quotient[ROW_QUOTIENT_BITS - 1]
        mantissa = Mux(large, quotient >> (ROW_QUOTIENT_BITS - 24), quotient >> (ROW_QUOTIENT_BITS - 25))
        return Cat(mantissa[:23], (exponent + zeros - Mux(large, 0, 1))[:8], C(0, 1))

    def row_scale(self, total: Value, number: Value, exponent: Value) -> Value:
        """`tilewright.isa.numerics.row_scale`."""
        divisor, zeros = self.aligned(total)
        return self.scale(self.wire(self.quotient(dividend(number), divisor)), exponent, zeros)

    def radicand(self, scaled: Value, squared: Value, epsilon: Value) -> Value:
        """count * squares - total**2 + epsilon, of these products."""
        exact = ((scaled - squared) << EPSILON_FRACTION) + epsilon.as_signed()
        return self.wire(exact, RADICAND_BITS + EPSILON_FRACTION)

    def shift_step(self, state: State) -> State:
        """Returns the radicand, shifted left by two if its highest two bits are 0; how often it was."""
        radicand, exponent = state
        empty = self.wire(radicand[-2:] == 0)
        return self.wire(Mux(empty, radicand << 2, radicand), len(radicand)), self.wire(exponent + empty, EXPONENT_BITS)

    def shifted(self, radicand: Value) -> State:
        """Returns the radicand after all shifts, and the number of shifts by two bits."""
        return self._repeated(SHIFTS, self.shift_step, (radicand, C(0, EXPONENT_BITS)))

    def root_step(self, state: State) -> State:
        """Returns the bits of a number that are left, the root r of those before, which are r**2 + rest, and this rest:
        two bits b more, and r becomes 2r + 1 if (2r + 1)**2 <= 4 r**2 + 4 rest + b, else 2r."""
        left, root, rest = state
        more, less = self.wire((rest << 2) + left[-2:]), self.wire((root << 2) + 1)
        fits = self.wire(more >= less)
        rest = self.wire(Mux(fits, more - less, more), ROOT_BITS + 1)
        return self.wire(left << 2, len(left)), Cat(fits, root)[:ROOT_BITS], rest

    def root(self, radicand: Value) -> Value:
        """Returns the square root of radicand * 2**(2 * ROOT_BITS - RADICAND_BITS), its lowest bit set."""
        return self._repeated(ROOT_BITS, self.root_step, root_of(radicand))[1] | 1

    def factor(self, root: Value) -> Value:
        """2**48 / root."""
        return self.quotient(C(1 << 33, ROW_SUM_BITS), root << 10)[:FACTOR_BITS]

    def mean_step(self, state: State, count: Value) -> State:
        """Returns the bits of the dividend that are left, the rest and the mean of `tilewright.isa.row_norm.mean_of`, a
        bit later."""
        left, rest, found = state
        more = self.wire(Cat(left[-1], rest))
        fits = self.wire(more >= count)
        rest = self.wire(Mux(fits, more - count, more), COUNT_BITS)
        return self.wire(left << 1, len(left)), rest, Cat(fits, found)[:MEAN_BITS]

    def mean(self, total: Value, count: Value) -> Value:
        """`tilewright.isa.row_norm.mean_of`."""
        return self._repeated(MEAN_BITS, self.mean_step, mean_of(total), count)[2]

    def _repeated(self, times: int, step: Callable[..., State], state: State, *others: Value) -> State:
        for _ in range(times):
            state = step(state, *others)
        return state

    def offset(self, product: Value) -> Value:
        """-product to nearest, of (mean - 128) * factor."""
        return (~((product - (1 << MEAN_FRACTION - 1)) >> MEAN_FRACTION))[:32]


def dividend(number: Value) -> Value:
    """`number` of ROW as the divider has it."""
    return number << (ROW_SUM_BITS - len(number))


def root_of(radicand: Value) -> State:
    """Returns the initial state of `root_step`."""
    return Cat(C(0, 2 * ROOT_BITS - RADICAND_BITS), radicand), C(0, ROOT_BITS), C(0, ROOT_BITS + 1)


def mean_of(total: Value) -> State:
    """Returns the initial state of `mean_step`."""
    return Cat(C(0, MEAN_FRACTION), total[:8]), total[8:], C(0, MEAN_BITS)


def above_middle(mean: Value) -> Value:
    """mean - 128."""
    return Cat(mean[:-1], ~mean[-1]).as_signed()


def digits(value: Value) -> tuple[Value, Value]:
    """Returns the low digit of a value, and the rest of it."""
    return value[:DIGIT], value[DIGIT:].as_signed() if value.shape().signed else value[DIGIT:]


def product(values: tuple[Value, Value], others: tuple[Value, Value]) -> tuple[Value, ...]:
    """Returns the products of digits, the lowest first."""
    return tuple(x * y for x in values for y in others)


def of_digits(products: tuple[Value, ...]) -> Value:
    """Returns the product they make."""
    return products[0] + ((products[1] + products[2]) << DIGIT) + (products[3] << 2 * DIGIT)
