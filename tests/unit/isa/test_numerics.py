"""The arithmetic against independent exact forms: integers as hardware would do it, and fractions."""

import ctypes
import ctypes.util
import platform
from fractions import Fraction

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper

from tests.common import onnx_models
from tilewright.isa import numerics, wide_numerics
from tilewright.isa.instructions import Rounding
from tilewright.isa.wide_bits import WIDE_BIAS_BIT, WIDE_SHIFT_BIT

# The requantiser in integers: leading-zero count, 24 x 24 multiply, rounding shifts.


def round_shift(value: int, shift: int) -> int:
    """value / 2**shift rounded to nearest, ties to even; a negative shift multiplies."""
    if shift <= 0:
        return value << -shift
    quotient, rest = value >> shift, value & ((1 << shift) - 1)
    half = 1 << (shift - 1)
    return quotient + (rest > half or (rest == half and quotient & 1))


def to_24_bits(mantissa: int, exponent: int) -> tuple[int, int]:
    """mantissa * 2**exponent with a mantissa rounded to 24 bits."""
    extra = max(0, mantissa.bit_length() - 24)
    return round_shift(mantissa, extra), exponent + extra


def requantize_hardware(acc: int, scale: int, zero_point: int, low: int, high: int, rounding: Rounding) -> int:
    negative = (acc < 0) != bool(scale >> 31)
    exponent, mantissa = scale >> 23 & 0xFF, scale & 0x7FFFFF | 0x800000
    a, ea = to_24_bits(abs(acc), 0)
    p, ep = to_24_bits(a * mantissa if exponent else 0, ea + exponent - 150)
    if ep > 40:
        p, ep = min(p, 1 << 40), 0  # far beyond every clamp
    sign = -1 if negative else 1
    if rounding == Rounding.EVEN:
        y = sign * round_shift(p, -ep) + zero_point
    elif rounding == Rounding.HALF_AWAY:
        y = sign * ((p << 1 << max(0, ep)) + (1 << max(0, -ep)) >> 1 + max(0, -ep)) + zero_point
    else:
        if p.bit_length() + ep < -100:
            p = ep = 0  # too small to change anything
        low_exponent = min(0, ep)
        total = (sign * p << (ep - low_exponent)) + (zero_point << -low_exponent)
        m, em = to_24_bits(abs(total), low_exponent)
        y = (1 if total >= 0 else -1) * round_shift(m, -em)
    return min(max(y, low), high)


def check_requantize(acc: list[int], scale: list[int], zero_point: int, low: int, high: int) -> None:
    for rounding in Rounding:
        got = numerics.requantize(np.array(acc, np.int32), np.array(scale, np.uint32), zero_point, low, high, rounding)
        expected = [requantize_hardware(a, s, zero_point, low, high, rounding) for a, s in zip(acc, scale)]
        for i in np.flatnonzero(got != expected):
            raise AssertionError(f"{rounding!r}: acc {acc[i]}, scale 0x{scale[i]:08x}: {got[i]}, not {expected[i]}")


int32 = st.integers(-(2**31), 2**31 - 1) | st.integers(0, 31).flatmap(lambda n: st.integers(-(2**n), 2**n - 1))
int8 = st.integers(-128, 127)


@pytest.mark.medium
@given(st.lists(st.tuples(int32, st.integers(0, 2**32 - 1)), min_size=1, max_size=50), int8, int8, int8)
def test_requantize_any_bits(pairs: list[tuple[int, int]], zero_point: int, low: int, high: int) -> None:
    check_requantize([a for a, _ in pairs], [s for _, s in pairs], zero_point, low, high)


@pytest.mark.medium
@given(st.integers(0, 2**32 - 1), int8)
def test_requantize_near_the_output_range(seed: int, zero_point: int) -> None:
    """Scales that put the product within a few hundred, where rounding shows."""
    rng = np.random.default_rng(seed)
    acc = (rng.integers(1, 2**31, 100) >> rng.integers(0, 31, 100)) * rng.choice([-1, 1], 100)
    target = rng.integers(-300, 300, 100) + rng.choice([0.5, 0.25, 0.4999999, 0.5000001], 100)
    with np.errstate(divide="ignore"):
        scale = numerics.scale_bits(np.where(acc == 0, 1.0, target / np.where(acc == 0, 1, acc)))
    nudged = (scale.astype(np.int64) + rng.integers(-2, 3, 100)) & 0xFFFFFFFF
    check_requantize(acc.tolist(), nudged.tolist(), zero_point, -128, 127)


def test_requantize_ties_and_extremes() -> None:
    powers = [2**n + d for n in range(31) for d in (-1, 0, 1)]
    acc = [*powers, *(-p for p in powers), -(2**31), 2**31 - 1, 0]
    for scale in (0x3F000000, 0xBF000000, 0x3E800000, 0x3F800000, 0x00000000, 0x007FFFFF, 0x00800000, 0x80000001,
                  0x7F7FFFFF, 0x7F800000, 0x7FC00001, 0xFF800000, 0xFFFFFFFF, 0x33800000, 0x2F800000):  # fmt: skip
        for zero_point in (0, 1, -1, 127, -128):
            check_requantize(acc, [scale] * len(acc), zero_point, -128, 127)


@pytest.mark.parametrize(
    ("acc", "scale", "zero_point", "even", "inside", "away"),
    [
        (1, 0.5, 0, 0, 0, 1),
        (3, 0.5, 0, 2, 2, 2),
        (5, 0.5, 0, 2, 2, 3),
        (-5, 0.5, 0, -2, -2, -3),
        (5, 0.5, 1, 3, 4, 4),
        (16777217, 2.0**-24, 0, 1, 1, 1),  # f32(16777217) = 16777216
        (2**25 + 2, 2.0**-26, 0, 0, 0, 1),  # f32 drops the 2: a tie
        (2**31 - 1, 2.0**-31, 0, 1, 1, 1),
        (-(2**31), 1.0, 5, -128, -128, -128),
        (1, -0.5, 3, 3, 2, 2),
    ],
)
def test_requantize_by_hand(acc: int, scale: float, zero_point: int, even: int, inside: int, away: int) -> None:
    bits = numerics.scale_bits(scale)
    got = [int(numerics.requantize(acc, bits, zero_point, -128, 127, r)) for r in Rounding]
    assert got == [even, inside, away]


def test_requantize_arguments() -> None:
    assert numerics.requantize([5, 5], numerics.scale_bits(1.0), 0, 10, -10).tolist() == [-10, -10]  # high wins
    with pytest.raises(ValueError, match="rounding must be one of"):
        numerics.requantize(1, 0, 0, 0, 0, 3)


def test_scale_value() -> None:
    bits = np.array([0x3F800000, 0xC0400000, 0, 0x007FFFFF, 0x80000001, 0x7F800000], np.uint32)
    assert numerics.scale_value(bits).tolist() == [1.0, -3.0, 0.0, 0.0, 0.0, 2.0**128]
    assert numerics.scale_bits([1.0, -3.0]).tolist() == [0x3F800000, 0xC0400000]


# Add and the other integer helpers.


@given(
    int32,
    int8,
    *[st.integers(-(2**23), 2**23 - 1)] * 2,
    st.integers(-(2**31), 2**31 - 1),
    st.integers(0, 31),
    int8,
    int8,
)
def test_add_integer(a: int, b: int, ma: int, mb: int, c: int, shift: int, low: int, high: int) -> None:
    total = ((a * ma + b * mb + c) % 2**32 ^ 2**31) - 2**31
    assert numerics.add_integer(a, b, ma, mb, c, shift, low, high) == min(max(total >> shift, low), high)


@given(st.integers(-(2**62), 2**62))
def test_wrap32(value: int) -> None:
    assert int(numerics.wrap32(value)) == (value % 2**32 ^ 2**31) - 2**31


# float32 fused multiply-add against fractions.


def round_to_float32(x: Fraction) -> float:
    """Exact rounding to nearest even, subnormals included; |x| within the range of float32."""
    if x == 0:
        return 0.0
    exponent = max(-149, (abs(x).numerator.bit_length() - abs(x).denominator.bit_length()) - 24)
    while abs(x) / Fraction(2) ** exponent >= 2**24:
        exponent += 1
    return float(round(x / Fraction(2) ** exponent) * Fraction(2) ** exponent)  # round() of a Fraction: ties to even


floats = st.floats(-(2.0**60), 2.0**60, width=32)
grid = st.integers(-(2**24), 2**24).map(lambda n: n / 2**12)


@given(floats | grid, floats | grid, floats | grid)
def test_fma32_is_one_rounding(a: float, b: float, c: float) -> None:
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    assert float(numerics.fma32(a, b, c)) == round_to_float32(exact)


def test_fma32_double_rounding() -> None:
    """Sums just off a tie of float32, by less than float64 shows."""
    one, tiny = 1 + 2.0**-12, 2.0**-70
    for c in (tiny, -tiny):
        exact = Fraction(one) * Fraction(one) + Fraction(c)
        assert float(numerics.fma32(one, one, c)) == round_to_float32(exact)
    assert float(numerics.fma32(2.0**-75, 2.0**-75, 1 + 2.0**-23)) == 1 + 2.0**-23


# Whole operations against onnxruntime: every pair of operands.


def run_binary(op_type: str, dtype: type, parameters: list[float | int]) -> np.ndarray:
    """The result of a quantised binary operation on all 65,536 pairs, [256, 256]."""
    names = ["sa", "za", "sb", "zb", "sy", "zy"]
    constants = {n: np.asarray(v, np.float32 if n[0] == "s" else dtype) for n, v in zip(names, parameters)}
    node = helper.make_node(op_type, ["a", "sa", "za", "b", "sb", "zb", "sy", "zy"], ["y"], domain="com.microsoft")
    a, b = pairs(dtype)
    model = onnx_models.model_of([node], {"a": a, "b": b}, {"y": a}, constants, opset=17)
    onnx.checker.check_model(model, full_check=False)
    return np.asarray(onnx_models.run(model, {"a": a, "b": b})["y"])


def pairs(dtype: type) -> tuple[np.ndarray, np.ndarray]:
    values: np.ndarray = np.arange(256, dtype=np.uint8).view(dtype)
    return np.repeat(values, 256), np.tile(values, 256)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
@pytest.mark.parametrize("seed", range(4))
def test_add_and_mul_equal_onnxruntime(dtype: type, seed: int) -> None:
    rng = np.random.default_rng(seed)
    info = np.iinfo(dtype)
    scales = [float(np.float32(s)) for s in rng.uniform(0.002, 0.1, 3)]
    za, zb, zy = (int(z) for z in rng.integers(info.min, info.max + 1, 3))
    a, b = pairs(dtype)
    arguments = (scales[0], za, scales[1], zb, scales[2], zy)
    for op_type, reference, sy in (
        ("QLinearAdd", numerics.add_reference, scales[2]),
        ("QLinearMul", numerics.mul_reference, scales[2] / 8),
    ):
        arguments = (scales[0], za, scales[1], zb, float(np.float32(sy)), zy)
        expected = run_binary(op_type, dtype, list(arguments))
        assert (reference(a, b, *arguments, info.min, info.max) == expected).all(), op_type


def test_quantize_and_scales() -> None:
    assert numerics.quantize([0.5, 1.5, -3.0, 1e9], 1.0, 1, np.uint8).tolist() == [1, 3, 0, 255]
    assert numerics.dequantize(np.array([-128, 5], np.int8), 0.5, -128).tolist() == [0.0, 66.5]
    assert numerics.product_scale(0.5, [0.25, 1.0], 2.0).tolist() == [0.0625, 0.25]
    assert float(numerics.mean_scale(0.5, 0.25, 4)) == 0.5


@pytest.mark.parametrize("taps", [3, 9, 25, 49])
def test_means_that_cannot_tie_do_not_depend_on_the_order(taps):
    """Sums of floats in any order round as the integer sum does where `mean_may_tie` is false."""
    rng = np.random.default_rng(taps)
    checked = 0
    for _ in range(60):
        sx, sy = np.float32(rng.choice([0.02, 0.03, 0.05])), np.float32(rng.choice([0.02, 0.03, 0.05, 0.07]))
        zx = int(rng.integers(-128, 128))
        if numerics.mean_may_tie(sx, zx, sy, taps, -128, 127):
            continue
        checked += 1
        q = rng.integers(-128, 128, (500, taps))
        integer = np.rint((q - zx).sum(1).astype(np.float32) * numerics.mean_scale(sx, sy, taps))
        for order in (np.arange(taps), rng.permutation(taps)):
            x = numerics.dequantize(q[:, order], sx, zx)
            mean = np.cumsum(x, axis=1, dtype=np.float32)[:, -1] / np.float32(taps)
            np.testing.assert_array_equal(np.rint(mean / sy), integer)
    assert checked


def test_means_that_tie():
    assert numerics.mean_may_tie(0.02, 0, 0.02, 4, -128, 127)
    assert numerics.mean_may_tie(0.03, 0, 0.02, 9, -128, 127)  # 3/2 of a sum's ninth
    assert not numerics.mean_may_tie(0.02, 0, 0.02, 9, -128, 127)
    assert numerics.mean_may_tie(0.02, 0, 0.02, 65537, -128, 127)  # not looked at


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other libraries round expf another way")
def test_exponentials_of_litert_are_those_of_expf() -> None:
    expf = ctypes.CDLL(ctypes.util.find_library("m")).expf
    expf.argtypes, expf.restype, rounded = [ctypes.c_float], ctypes.c_float, 0
    for step in np.exp(np.random.default_rng(0).uniform(-8, 2, 100)).astype(np.float32):
        x = -(step * np.arange(256, dtype=np.float32))
        got = numerics.litert_exponentials(step)
        np.testing.assert_array_equal(got, np.array([expf(v) for v in x], np.float32))
        rounded += np.count_nonzero(got != np.exp(x, dtype=np.float64).astype(np.float32))
    assert rounded > 0  # not only values that any method rounds this way
    assert np.isnan(numerics.litert_exponentials(np.float32(np.inf))[0])


def test_row_scale_is_the_quotient_truncated() -> None:
    rng = np.random.default_rng(3)
    for _ in range(300):
        value = float(rng.choice([254, 255, 256, 1, rng.integers(1, 1 << 18), 0.25]))
        total = int(2.0 ** rng.uniform(20, 36))
        quotient = numerics.row_numerator(value)
        assert quotient is not None
        bits = numerics.row_scale(total, *quotient)
        mantissa, exponent = (bits & 0x7FFFFF) | 0x800000, (bits >> 23) - 150
        # mantissa <= value / total / 2**exponent < mantissa + 1, in integers
        exact = Fraction(value) / total / Fraction(2) ** exponent
        assert mantissa <= exact < mantissa + 1, (value, total)
    assert numerics.row_numerator(1 / 3) is None and numerics.row_numerator(0.0) is None


@pytest.mark.parametrize("name", ["bias", "multiplier", "shift"])
def test_parameters_of_wide_results_keep_to_their_bits(name):
    most = {"bias": wide_numerics.WIDE_BIAS_MOST, "multiplier": (1 << 15) - 1, "shift": 64}
    least = {"bias": -wide_numerics.WIDE_BIAS_MOST, "multiplier": 0, "shift": 1}
    for limits, step in ((most, 1), (least, -1)):
        low, pattern = wide_numerics.wide_parameters(**limits)
        upper = int(pattern.view(np.int32)) >> WIDE_BIAS_BIT
        assert int(low) + (upper << 32) == limits["bias"]
        assert int(pattern) & 0x7FFF == limits["multiplier"]
        assert (int(pattern) >> WIDE_SHIFT_BIT & 63) + 1 == limits["shift"]
        with pytest.raises(ValueError, match=f"{name} -?[0-9]+ for VECTOR_WIDE; .* are accepted"):
            wide_numerics.wide_parameters(**{**limits, name: np.array([1, limits[name] + step])})
