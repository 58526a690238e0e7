"""Functions of one tensor as 256-entry tables by LiteRT's rules, QUANTIZE and DEQUANTIZE."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from compiler.graph import Quant
from compiler.importer.tflite.builder import FILE, TfliteBuilder
from compiler.importer.tflite.fixed_point import multiply
from compiler.importer.tflite.handlers import handles
from compiler.importer.tflite.schema import FileOp
from compiler.onnx_ops import elem_type
from compiler.ops.elementwise import QLut
from isa.numerics import litert_multiplier


def every(dtype: np.dtype) -> np.ndarray:
    """All values of a byte type in the order of their raw bytes, as int64."""
    return np.arange(256, dtype=np.uint8).view(dtype).astype(np.int64)


def emit(b: TfliteBuilder, values: np.ndarray) -> None:
    """Makes the op's output from input 0 by a table of output values (clamped here)."""
    y = b.target()
    assert y.dtype is not None
    info = np.iinfo(y.dtype)
    table = np.clip(values, info.min, info.max).astype(y.dtype)
    form = b.layout(0)
    source = b.value(0, form)
    b.quantized(QLut(table=table.tobytes()), [source], b.result(b.graph.tensor(source).shape, form))


def _types(b: TfliteBuilder) -> tuple[np.ndarray, Quant, Quant]:
    x = b.source(0)
    qx, qy = b.byte_quant(x), b.byte_quant(b.target())
    assert x.dtype is not None
    return every(x.dtype) - int(qx.zero_point), qx, qy


def ideal(b: TfliteBuilder, function: Callable[[np.ndarray], np.ndarray]) -> None:
    """A table of a function computed in float64 from the float32 input, rounded to float32 and then to steps."""
    q, qx, qy = _types(b)
    with np.errstate(all="ignore"):
        y = function((q.astype(np.float32) * qx.scale).astype(np.float64)).astype(np.float32)
    emit(b, np.rint(y / qy.scale).astype(np.int64) + int(qy.zero_point))


def squared(b: TfliteBuilder) -> None:
    """MUL of a tensor with itself: XNNPACK squares the real value, and the zero point is inside the rounding."""
    q, qx, qy = _types(b)
    real = q.astype(np.float32) * np.float32(qx.scale)
    y = np.rint(real * real / np.float32(qy.scale) + np.float32(qy.zero_point))
    emit(b, np.clip(y, *b.clamp()).astype(np.int64))


@handles("LOGISTIC")
def logistic(b: TfliteBuilder, op: FileOp) -> None:
    ideal(b, lambda x: 1 / (1 + np.exp(-x)))


@handles("SQRT")
def sqrt(b: TfliteBuilder, op: FileOp) -> None:
    """Square root, rounded down."""
    q, qx, qy = _types(b)
    y = np.sqrt(np.maximum(q, 0).astype(np.float32) * qx.scale)
    emit(b, np.floor(y / qy.scale).astype(np.int64) + int(qy.zero_point))


@handles("ABS")
def absolute(b: TfliteBuilder, op: FileOp) -> None:
    q, qx, qy = _types(b)
    ratio = float(np.float32(qx.scale) / np.float32(qy.scale))
    y = np.abs(q) if ratio == 1 else multiply(np.abs(q), *litert_multiplier(ratio))
    emit(b, y + int(qy.zero_point))


@handles("NEG")
def neg(b: TfliteBuilder, op: FileOp) -> None:
    """The stored integers are negated, whatever the scales are."""
    x = b.source(0)
    _types(b)
    assert x.dtype is not None
    emit(b, (-every(x.dtype)).astype(np.int8))


@handles("TANH")
def tanh(b: TfliteBuilder, op: FileOp) -> None:
    ideal(b, np.tanh)


@handles("RELU", "RELU6", "RELU_N1_TO_1", "RELU_0_TO_1")
def relu(b: TfliteBuilder, op: FileOp) -> None:
    low, high = {"RELU": (0, np.inf), "RELU6": (0, 6), "RELU_N1_TO_1": (-1, 1), "RELU_0_TO_1": (0, 1)}[op.name]
    q, qx, qy = _types(b)
    bounds = b.clamp_of(b.target(), low, high)
    m, shift = litert_multiplier(float(np.float32(qx.scale) / np.float32(qy.scale)))
    same = np.float32(qx.scale) == np.float32(qy.scale)
    y = (q if same else multiply(q, m, shift)) + int(qy.zero_point)
    emit(b, np.clip(y, *bounds))


def scaled_by_256(q: np.ndarray, positive: float, negative: float, zero_point: int) -> np.ndarray:
    """XNNPACK's conversions: multipliers of 8 fractional bits, ties upwards."""
    m = np.where(q >= 0, int(np.rint(256 * positive)), int(np.rint(256 * negative)))
    return ((q * m + 128) >> 8) + zero_point


@handles("LEAKY_RELU")
def leaky_relu(b: TfliteBuilder, op: FileOp) -> None:
    q, qx, qy = _types(b)
    ratio = np.float32(qx.scale) / np.float32(qy.scale)
    slope = np.float32(op.option("Alpha", 0.0))
    emit(b, scaled_by_256(q, float(ratio), float(np.float32(ratio * slope)), int(qy.zero_point)))


@handles("HARD_SWISH")
def hard_swish(b: TfliteBuilder, op: FileOp) -> None:
    """LiteRT's fixed-point form: 7 fractional bits, 16-bit multipliers."""
    q, qx, qy = _types(b)
    hires = np.float32(np.float32(1) / np.float32(128)) * np.float32(qx.scale)
    out_m, out_shift = litert_multiplier(float(np.float32(hires / np.float32(qy.scale))))
    relu_m, relu_shift = litert_multiplier(float(np.float32(hires / np.float32(3.0 / 32768.0))))
    if not -15 <= out_shift <= 0:
        raise b.refuse("the scale of the input over that of the result must be within 2^-9..2^7")
    out16, relu16 = _to_16_bits(out_m), _to_16_bits(relu_m)
    x = q << 7
    preshift = _doubling_high_16(x, out16)
    gate = x.copy()
    if relu_shift > 0:
        gate = _saturating_left(gate, relu_shift - 1)
    gate = _doubling_high_16(gate, relu16)
    if relu_shift > 0:
        gate = _saturating_left(gate, 1)
    if relu_shift < 0:
        gate = _rounding_right(gate, -relu_shift)
    gate = (gate + (1 << 15)) >> 1
    product = gate * preshift
    y = np.sign(product) * (np.abs(product) >> 15)  # towards zero
    y = _rounding_right(_saturate_16(y), -out_shift)
    emit(b, _saturate_16(y) + int(qy.zero_point))


def _to_16_bits(m: int) -> int:
    return 32767 if m >= 0x7FFF7FFF else (m + (1 << 15)) >> 16


def _saturate_16(x: np.ndarray) -> np.ndarray:
    return np.asarray(np.clip(x, -32768, 32767))


def _doubling_high_16(x: np.ndarray, m: int) -> np.ndarray:
    """Rounding doubling high product of 16-bit values: rounds to nearest as gemmlowp does, towards zero in C."""
    product = x * m
    nudged = product + np.where(product >= 0, 1 << 14, 1 - (1 << 14))
    return _saturate_16(np.where(nudged >= 0, nudged >> 15, -(-nudged >> 15)))


def _saturating_left(x: np.ndarray, amount: int) -> np.ndarray:
    return _saturate_16(x << amount)


def _rounding_right(x: np.ndarray, amount: int) -> np.ndarray:
    """Ties away from zero."""
    if amount == 0:
        return x
    half = 1 << (amount - 1)
    return np.where(x >= 0, (x + half) >> amount, -((-x + half) >> amount))


@handles("QUANTIZE")
def quantize(b: TfliteBuilder, op: FileOp) -> None:
    x, y = b.source(0), b.target()
    form = b.layout(0)
    if not (b.is_bytes(x) and b.is_bytes(y)):
        if not b.is_steps(y):
            raise b.refuse(f"{y.name!r} of type {y.type_name} has no scale")
        b.quantize_into(b.real(0, form), form)
        return
    q, qx, qy = _types(b)
    if np.float32(qx.scale) == np.float32(qy.scale):
        emit(b, q + int(qy.zero_point))
    elif x.dtype == y.dtype:
        ratio = float(np.float32(qx.scale) / np.float32(qy.scale))
        emit(b, scaled_by_256(q, ratio, ratio, int(qy.zero_point)))
    else:
        factor = litert_multiplier(float(qx.scale) / float(qy.scale))
        emit(b, multiply(q, *factor, away=False) + int(qy.zero_point))


@handles("DEQUANTIZE")
def dequantize(b: TfliteBuilder, op: FileOp) -> None:
    """To float32: quantised tensors, float16, and constants with several scales."""
    x = b.source(0)
    form = FILE if x.data is not None else b.layout(0)
    if x.dtype == np.float16 and x.data is not None:
        made = b.constant(x.name, x.data, np.float32)
    elif x.dtype == np.float16:
        made = b.onnx("Cast", [b.value(0, form)], {"to": elem_type(np.dtype(np.float32))})
    elif b.is_steps(x):
        made = b.real(0, form)
    else:
        raise b.refuse(f"{x.name!r} of type {x.type_name} has no scale")
    out = b.result(b.graph.tensor(made).shape, form)
    if b.graph.const(made) is not None:
        b.graph.tensor(out).data = b.graph.const(made)
    else:
        b.onnx("Identity", [made], output=out)
