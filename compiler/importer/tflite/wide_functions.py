"""Functions of 16-bit activations, by LiteRT's reference kernels: RELU and its kin, LOGISTIC, TANH, GELU, SOFTMAX."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np

from tilewright.compiler.graph.ops.wide import HIGHEST, LOWEST
from tilewright.compiler.importer.tflite.builder import FILE, TfliteBuilder, half_away
from tilewright.compiler.importer.tflite.fixed_point import Integers
from tilewright.compiler.importer.tflite.handlers import WIDE, handles
from tilewright.compiler.importer.tflite.schema import FileOp
from tilewright.compiler.importer.tflite.tables import RELUS, gelu
from tilewright.compiler.importer.tflite.wide import scaled
from tilewright.isa.numerics import litert_multiplier

Array = np.ndarray
_EVERY = np.arange(LOWEST, HIGHEST + 1, dtype=np.int64)
_OUTPUT_SCALE = 2.0**-15  # of LOGISTIC, TANH and SOFTMAX


@handles("RELU", "RELU6", table=WIDE)
def relu(b: TfliteBuilder, op: FileOp) -> None:
    ratio, form = b.wide_scale(b.source(0)) / b.wide_scale(b.target()), b.layout(0)
    ints = Integers(b)
    value = scaled(b, ints.of(b.value(0, form)), -LOWEST, *litert_multiplier(float(ratio)))
    ints.finish(value, form, *b.clamp_of(b.target(), *RELUS[op.name]))


@handles("LEAKY_RELU", table=WIDE)
def leaky_relu(b: TfliteBuilder, op: FileOp) -> None:
    sx, sy, form = b.wide_scale(b.source(0)), b.wide_scale(b.target()), b.layout(0)
    slope = np.float32(op.option("Alpha", 0.0))
    if slope < 0:
        raise b.refuse(f"a slope of {float(slope):g}; 0 and more are accepted beside 16-bit activations")
    ints = Integers(b)
    x = ints.of(b.value(0, form))
    kept = scaled(b, x, -LOWEST, *litert_multiplier(float(sx / sy)))
    bent = scaled(b, x, -LOWEST, *litert_multiplier(float(sx * slope / sy)))
    ints.finish(b.onnx("Where", [b.onnx("Less", [x, ints.constant(0)]), bent, kept]), form)


# --- LOGISTIC and TANH: the logistic function at multiples of 1/24, and straight lines between ---


@lru_cache(maxsize=1)
def _sigmoids() -> Array:
    """The logistic function at 0, 1/24, ... 255/24 as Q16, each point raised by half the error of the lines beside it
    (a sixteenth of the second difference); the last is 1."""
    at = lambda k: 65536 / (1 + np.exp(-k / 24))
    k = np.arange(256.0)
    second = at(k + 1) - 2 * at(k) + at(k - 1)
    return np.append(np.rint(at(k) - second / 16)[:-1], 65535).astype(np.int64)


def _input_of_lines(b: TfliteBuilder, most: int) -> Array:
    """All inputs in steps of 1 / (3 * 4096), by a multiplier of 15 bits; `most` is the left shift up to which scales
    that are powers of two are shifted instead."""
    scale = float(b.wide_scale(b.source(0)))
    exact = np.log2(scale)
    power = int(np.round(exact))
    if abs(exact - power) < 1e-3 and 0 <= 12 + power <= most:
        return _EVERY * (3 << (12 + power))
    factor, shift = scale * 4096.0 * 3.0, 0
    if factor >= 1 << 16:
        raise b.refuse(f"{b.source(0).name!r} has scale {scale:g}; below {(1 << 16) / (4096 * 3):.4f} is accepted")
    while factor <= 32767.0 / 2.0 and shift <= 30:
        factor, shift = factor * 2.0, shift + 1
    return (_EVERY * int(factor) + ((1 << shift) >> 1)) >> shift


def _lines(magnitude: Array, bits: int, saturated: int) -> Array:
    """Interpolates between the table's points, `bits` bits of the input apart, and gives `saturated` beyond them."""
    at = np.minimum(magnitude >> bits, 254)
    a, c = _sigmoids()[at], _sigmoids()[at + 1]
    inside = (a << bits) + (magnitude & ((1 << bits) - 1)) * (c - a)
    return np.where(magnitude >> bits >= 255, saturated, inside)


def _by_table(b: TfliteBuilder, table: Array) -> None:
    if float(b.wide_scale(b.target())) != _OUTPUT_SCALE:
        raise b.refuse(f"{b.target().name!r} has scale {float(b.wide_scale(b.target())):g}; 2^-15 is accepted")
    form = b.layout(0)
    ints = Integers(b)
    ints.finish(ints.looked_up(ints.of(b.value(0, form)), table.astype(np.int16)), form)


@handles("LOGISTIC", table=WIDE)
def logistic(b: TfliteBuilder, op: FileOp) -> None:
    x = _input_of_lines(b, 0)
    y = _lines(np.abs(x), 9, 0x7FFF << 10)
    _by_table(b, np.where(x >= 0, y + (1 << 9), (1 << 25) - y + (1 << 9) - 1) >> 10)


@handles("TANH", table=WIDE)
def tanh(b: TfliteBuilder, op: FileOp) -> None:
    x = _input_of_lines(b, 1)
    y = _lines(np.abs(x), 8, 0xFFFF << 8)
    _by_table(b, np.where(x >= 0, y - (1 << 23) + (1 << 7), (1 << 23) - y + (1 << 7) - 1) >> 8)


# --- EXP, LOG, RSQRT, GELU, and what SOFTMAX needs: tables of 513 entries, and straight lines between ---


def line_table(function: Callable[[Array], Array], first: np.floating, step: np.floating, scale: np.floating) -> Array:
    """A table of a function from `first` on in 512 steps, times `scale`; points are moved by half the line's middle
    error. The type of the scalars is that of the arithmetic."""
    steps = np.arange(512).astype(first.dtype)
    starts = first + steps * step
    at, middle, behind = (function(x) * scale for x in (starts, starts + step / 2, first + (steps + 1) * step))
    error = half_away((behind + half_away(at)) / 2) - half_away(middle)
    last = half_away(function(np.atleast_1d(first + 512 * step)) * scale)
    return np.asarray(np.clip(np.append(half_away(at) - half_away(error / 2), last), LOWEST, HIGHEST), np.int64)


def _lined(b: TfliteBuilder, function: Callable[[Array], Array]) -> None:
    """Makes the output a function of input 0, float32 to float32."""
    sx, sy = b.wide_scale(b.source(0)), b.wide_scale(b.target())
    ends = sx * np.float32(LOWEST), sx * np.float32(HIGHEST)
    scale = np.float32(1 << 16) / (sy * np.float32(HIGHEST) - sy * np.float32(LOWEST))
    with np.errstate(all="ignore"):
        points = line_table(function, ends[0], (ends[1] - ends[0]) / 512, scale)
    at, rest = (_EVERY >> 7) + 256, _EVERY & 127
    form, ints = b.layout(0), Integers(b)
    table = points[at] + ((points[at + 1] - points[at]) * rest + 64 >> 7)
    ints.finish(ints.looked_up(ints.of(b.value(0, form)), table.astype(np.int16)), form)


_REAL: dict[str, Callable[[Array], Array]] = {"EXP": np.exp, "LOG": np.log, "RSQRT": lambda x: 1 / np.sqrt(x)}
_AT_ZERO = {"LOG": LOWEST, "RSQRT": HIGHEST}
"""The steps of the result that functions of positive numbers give at 0 and below."""


@handles(*_REAL, table=WIDE)
def function(b: TfliteBuilder, op: FileOp) -> None:
    sy = b.wide_scale(b.target())

    def real(x: Array) -> Array:
        y = _REAL[op.name](x.astype(np.float64))
        return (np.where(x > 0, y, _AT_ZERO[op.name] * sy) if op.name in _AT_ZERO else y).astype(np.float32)

    _lined(b, real)


@handles("GELU", table=WIDE)
def wide_gelu(b: TfliteBuilder, op: FileOp) -> None:
    _lined(b, gelu(b))


@handles("ABS", table=WIDE)
def absolute(b: TfliteBuilder, op: FileOp) -> None:
    ratio, form, ints = float(b.wide_scale(b.source(0)) / b.wide_scale(b.target())), b.layout(0), Integers(b)
    x = b.onnx("Abs", [ints.of(b.value(0, form))])
    ints.finish(x if ratio == 1 else scaled(b, x, -LOWEST, *litert_multiplier(ratio)), form)


@lru_cache(maxsize=1)
def exponentials() -> Array:
    """The table of exp from -10 to 0."""
    return line_table(np.exp, *np.array([-10.0, 10.0 / 512, 32768.0]))


@lru_cache(maxsize=1)
def reciprocals() -> Array:
    """The table of 1 / (1 + x) from 0 to 1."""
    return line_table(lambda x: 1 / (1 + x), *np.array([0.0, 1.0 / 512, 32768.0]))


def _looked_up(b: TfliteBuilder, ints: Integers, x: str, table: Array) -> str:
    """Interpolates between two entries of a table, at x of 16 bits."""
    place = ints.add(ints.right(x, 7), 256)
    rest = ints.sub(x, ints.mul(ints.right(x, 7), 128))
    base, slope = (b.onnx("Gather", [ints.constant(v), place], {"axis": 0}) for v in (table[:-1], np.diff(table)))
    return ints.add(base, ints.right(ints.add(ints.mul(slope, rest), 64), 7))


@handles("SOFTMAX", table=WIDE)
def softmax(b: TfliteBuilder, op: FileOp) -> None:
    """Imports SOFTMAX along the last axis."""
    scale, shape = float(b.wide_scale(b.source(0))), b.shape(0)
    if not shape or not 0 < shape[-1] <= 1 << 16:
        raise b.refuse(f"shape {list(shape)}; 1 to 65536 elements in a row are accepted")
    if abs(float(b.wide_scale(b.target())) / _OUTPUT_SCALE - 1) > 1e-3:
        raise b.refuse(f"{b.target().name!r} has scale {float(b.wide_scale(b.target())):g}; 2^-15 is accepted")
    beta = float(np.float32(op.option("Beta", 1.0)))
    if not beta > 0:
        raise b.refuse(f"beta={beta}; above 0 is accepted")
    ints = Integers(b)
    axis = b.constant("axis", [len(shape) - 1], np.int64)
    x = ints.of(b.value(0, FILE))
    below = ints.sub(x, b.onnx("ReduceMax", [x, axis], {"keepdims": 1}))
    factor = float(np.float32(scale) * np.float32(beta)) / (10.0 / 65535.0)
    e = ints.clamped(ints.add(scaled(b, below, HIGHEST - LOWEST, *litert_multiplier(factor)), HIGHEST), LOWEST, HIGHEST)
    e = _looked_up(b, ints, e, exponentials())
    total = b.onnx("ReduceSum", [e, axis], {"keepdims": 1})
    powers = np.int64(1) << np.arange(32)
    reached = b.onnx("GreaterOrEqual", [total, ints.constant(powers)])
    bits = b.onnx("ReduceSum", [ints.cast(reached, np.int64), axis], {"keepdims": 1})
    # The sum with its highest bit at 30, rounded to 17 bits; less 1.5, as the table begins at 1.
    normal = b.onnx("Gather", [ints.constant((np.int64(1) << 31) >> np.arange(32)), bits], {"axis": 0})
    rest = ints.sub(ints.right(ints.add(ints.mul(total, normal), 1 << 13), 14), (1 << 15) + (1 << 16))
    reciprocal = _looked_up(b, ints, ints.clamped(rest, LOWEST, HIGHEST), reciprocals())
    product = ints.mul(e, reciprocal)
    unit = b.onnx("Gather", [ints.constant(np.maximum((np.int64(1) << np.arange(32)) >> 1, 1)), bits], {"axis": 0})
    half = b.onnx("Div", [unit, ints.constant(2)])
    ints.finish(b.onnx("Div", [ints.add(product, half), unit]), FILE, 0)
