"""LiteRT's fixed-point arithmetic: multipliers, their application as int64 ONNX ops, 16-bit functions as tables."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from tilewright.compiler.importer.tflite.builder import FILE, TfliteBuilder
from tilewright.compiler.onnx.onnx_ops import elem_type

Array = np.ndarray
_INT64, _UINT64 = np.dtype(np.int64), np.dtype(np.uint64)


def multiply(x: Array, multiplier: int, shift: int, away: bool = True) -> Array:
    """`x * mantissa * 2^(shift - 31)`, rounded before (ties upwards) and after the right shift: ties away from zero in
    LiteRT's scalar kernels, upwards in its vector kernels."""
    high = ((x.astype(np.int64) << max(shift, 0)) * multiplier + (1 << 30)) >> 31
    if shift >= 0:
        return high
    return (high + (1 << (-shift - 1)) - (away & (high < 0))) >> -shift


def inverse_square_root(x: Array, multiplier: int, shift: int) -> Array:
    """`multiplier * 2^(shift - 31) / sqrt(x)` of integers from 1, by LiteRT's RSQRT: five Newton steps on numbers with
    3 integer bits, from 1 on.
    """

    def times(a: Array | int, b: Array | int) -> Array:
        return np.asarray(np.asarray(a, np.int64) * b + (1 << 30) >> 31)

    x = x.astype(np.int64)
    pairs = np.array([(31 - int(v).bit_length()) // 2 - 1 for v in x])
    half = ((x << 2 * pairs >> 1) + 1) >> 1
    y = np.full_like(x, 1 << 28)
    for _ in range(5):
        cube = times(times(y, y), y) << 6
        y = times((1 << 28) + (1 << 27), y) - times(half, cube) << 3
    y = times(y, 1518500250)
    y, right = np.where(x == 1, (1 << 31) - 1, y), np.where(x == 1, 0, 11 - pairs)
    y, right = y << np.maximum(-right, 0), np.maximum(right, 0)
    roots = np.concatenate([multiply(np.ones(1, np.int64), int(m), 20 - int(r)) for m, r in zip(y, right)])
    return multiply(roots, multiplier, shift - 20)


class Integers:
    """A writer of int64 arithmetic.

    Args:
        b: the graph's builder.
    """

    def __init__(self, b: TfliteBuilder) -> None:
        self.b = b
        self._tables: dict[int, str] = {}

    def constant(self, value: Any) -> str:
        return self.b.constant("integer", value, np.int64)

    def of(self, name: str) -> str:
        """Casts a tensor to int64."""
        return self.cast(name, _INT64)

    def cast(self, name: str, dtype: Any) -> str:
        dtype = np.dtype(dtype)
        return (
            name if self.b.graph.tensor(name).dtype == dtype else self.b.onnx("Cast", [name], {"to": elem_type(dtype)})
        )

    def add(self, x: str, y: str | Any) -> str:
        return self.b.onnx("Add", [x, y if isinstance(y, str) else self.constant(y)])

    def sub(self, x: str, y: str | Any) -> str:
        return self.b.onnx("Sub", [x, y if isinstance(y, str) else self.constant(y)])

    def mul(self, x: str, y: str | Any) -> str:
        return self.b.onnx("Mul", [x, y if isinstance(y, str) else self.constant(y)])

    def right(self, x: str, amount: Any) -> str:
        """Shifts right arithmetically. ONNX only shifts unsigned numbers, so a multiple of 2^amount is added first."""
        lifted = self.cast(self.add(x, 1 << 62), _UINT64)
        shifted = self.b.onnx("BitShift", [lifted, self.b.constant("shift", amount, np.uint64)], {"direction": "RIGHT"})
        return self.sub(self.of(shifted), np.int64(1 << 62) >> np.asarray(amount, np.int64))

    def rounded_right(self, x: str, amount: Any, away: bool | Array = True) -> str:
        """Shifts right with rounding, ties away from zero or upwards; one amount, or an array that broadcasts."""
        amount = np.asarray(amount, np.int64)
        if not amount.any():
            return x
        half = (np.int64(1) << amount) >> 1
        total = self.add(x, half)
        if np.any(away):  # one less below zero: a tie falls down there
            total = self.add(total, self.mul(self.right(x, 62), ((amount > 0) & away).astype(np.int64)))
        return self.right(total, amount)

    def scaled(self, x: str, multiplier: Any, shift: Any, away: bool | Array = True) -> str:
        """The doubling high product, ties upwards, shifted right with `rounded_right`. The factors may be arrays that
        broadcast, one per channel. LiteRT's scalar kernels round away, its vector kernels upwards."""
        shift = np.asarray(shift, np.int64)
        if np.any(shift > 0):
            x = self.mul(x, np.int64(1) << np.maximum(shift, 0))
        high = self.right(self.add(self.mul(x, multiplier), 1 << 30), 31)
        return self.rounded_right(high, np.maximum(-shift, 0), away)

    def clamped(self, x: str, low: int, high: int) -> str:
        return self.b.onnx("Clip", [x, self.constant(low), self.constant(high)])

    def finish(self, x: str, form: str = FILE, low: int | None = None, high: int | None = None) -> None:
        """Makes the op's output of integers, clipped to its type or to closer limits."""
        info = np.iinfo(self.b.target().dtype)
        result = self.b.result(self.b.graph.tensor(x).shape, form)
        low, high = info.min if low is None else low, info.max if high is None else high
        self.b.cast(self.clamped(x, int(low), int(high)), info.dtype, result)

    def product(self, x: str, weights: Array) -> str:
        """x [rows, K] of bytes by weights [K, N] as int64: exact in MatMulInteger's int32."""
        return self.of(self.b.onnx("MatMulInteger", [x, self.b.constant("weights", np.ascontiguousarray(weights))]))

    def looked_up(self, x: str, table: Array) -> str:
        """Looks up a function of 16-bit values, as int64.

        The table begins with the value for -32768; the graph keeps it as a constant.
        """
        if id(table) not in self._tables:
            self._tables[id(table)] = self.b.constant("table", table)
        return self.of(self.b.onnx("Gather", [self._tables[id(table)], self.add(x, 1 << 15)], {"axis": 0}))


# --- 16-bit functions: gemmlowp's fixed-point forms, every value a Q(15 - integer bits) number ---


def saturated(x: Array) -> Array:
    return np.asarray(np.clip(x, -32768, 32767))


def times(a: Array | int, b: Array | int) -> Array:
    """Rounding doubling high product: ties away from zero by truncation of the nudged product."""
    product = np.asarray(a, np.int64) * b
    nudged = product + np.where(product >= 0, 1 << 14, 1 - (1 << 14))
    return saturated(np.where(nudged >= 0, nudged >> 15, -(-nudged >> 15)))


def shifted(x: Array, exponent: int) -> Array:
    """x * 2^exponent, saturating; ties away from zero."""
    if exponent >= 0:
        return saturated(x << exponent)
    half = 1 << (-exponent - 1)
    return np.where(x >= 0, (x + half) >> -exponent, -((-x + half) >> -exponent))


def _constant(raw: int) -> int:
    """Rounds a 32-bit constant to 16 bits."""
    return (raw + (1 << 15)) >> 16


def _exp_of_negative(a: Array, bits: int) -> Array:
    """exp(a) for a <= 0 with `bits` integer bits, as Q15: a Taylor series on [-1/4, 0), factors for the rest."""
    fraction = 15 - bits
    quarter = 1 << (fraction - 2)
    inside = (a & (quarter - 1)) - quarter
    x = shifted(inside, bits) + (1 << 12)
    x2 = times(x, x)
    x3, x4 = times(x2, x), times(x2, x2)
    series = shifted(times(shifted(x4, -2) + x3, _constant(715827883)) + x2, -1)
    constant = _constant(1895147668)
    result = saturated(constant + times(constant, x + series))
    remainder = inside - a
    factors = (1672461947, 1302514674, 790015084, 290630308, 39332535, 720401, 242)
    for exponent, factor in enumerate(factors, -2):
        if bits > exponent:
            set_bit = remainder & (1 << (fraction + exponent)) != 0
            result = np.where(set_bit, times(result, _constant(factor)), result)
    if bits > 5:
        result = np.where(a < _constant(-(1 << (36 - bits))), 0, result)
    return np.where(a == 0, 32767, result)


def _reciprocal_of_half_sum(a: Array) -> Array:
    """2 / (1 + a) for a Q15 number in (0, 1), with 2 integer bits: three steps of Newton's division."""
    total = a + 32767
    half = np.where(total >= 0, total + 1, total - 1) // 2
    x = _constant(1515870810) + times(half, _constant(-1010580540))
    for _ in range(3):
        rest = (1 << 13) - times(half, x)
        x = x + shifted(times(x, rest), 2)
    return x


@lru_cache(maxsize=1)
def logistic_table() -> Array:
    """1 / (1 + exp(-x)) of all 16-bit values with 3 integer bits, as Q15."""
    a = np.arange(-32768, 32768, dtype=np.int64)
    negative = np.where(a > 0, -a, a)
    positive = shifted(_reciprocal_of_half_sum(_exp_of_negative(negative, 3)), 1)  # x/2 has one integer bit
    return np.where(a == 0, 1 << 14, np.where(a > 0, positive, 32767 - positive)).astype(np.int16)


@lru_cache(maxsize=8)
def tanh_table(bits: int) -> Array:
    """tanh of all 16-bit values with `bits` integer bits, as Q15."""
    a = np.arange(-32768, 32768, dtype=np.int64)
    negative = np.where(a > 0, -a, a)
    t = shifted(_reciprocal_of_half_sum(_exp_of_negative(negative, bits + 1)) - (1 << 13), 2)
    return np.where(a == 0, 0, np.where(a > 0, t, -t)).astype(np.int16)
