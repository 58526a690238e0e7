"""Functions of one tensor as 256-entry tables by LiteRT's rules, QUANTIZE and DEQUANTIZE."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from tilewright.compiler.graph.graph import Quant
from tilewright.compiler.graph.ops.elementwise import QLut
from tilewright.compiler.graph.quantization import AS_LITERT, quantize_as_litert
from tilewright.compiler.importer.tflite.builder import FILE, TfliteBuilder, half_away
from tilewright.compiler.importer.tflite.fixed_point import inverse_square_root, multiply, saturated, shifted, times
from tilewright.compiler.importer.tflite.handlers import handles
from tilewright.compiler.importer.tflite.kernels import by_reference_kernels
from tilewright.compiler.importer.tflite.schema import FileOp
from tilewright.compiler.importer.tflite.wide import quantize_floats
from tilewright.isa.numerics import litert_multiplier


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


def _real(b: TfliteBuilder) -> np.ndarray:
    """The float32 inputs of all bytes."""
    q, qx, _ = _types(b)
    real: np.ndarray = q.astype(np.float32) * np.float32(qx.scale)
    return real


def ideal(b: TfliteBuilder, function: Callable[[np.ndarray], np.ndarray]) -> None:
    """XNNPACK's table of a function of float32, here computed in float64 and rounded once: times the reciprocal of the
    scale, ties to even with the zero point inside."""
    qy = b.byte_quant(b.target())
    with np.errstate(all="ignore"):
        y = function(_real(b).astype(np.float64)).astype(np.float32)
        steps = y * (np.float32(1) / np.float32(qy.scale)) + np.float32(qy.zero_point)
    emit(b, np.rint(np.clip(steps, -256, 256)).astype(np.int64))


def builtin(b: TfliteBuilder, function: Callable[[np.ndarray], np.ndarray]) -> None:
    """The built-in kernels' table of a function of float32: times the reciprocal of the scale, ties away from zero,
    then the zero point."""
    qy = b.byte_quant(b.target())
    with np.errstate(all="ignore"):
        y = function(_real(b)).astype(np.float32)
        steps = half_away(y * (np.float32(1) / np.float32(qy.scale)))
    emit(b, np.clip(steps, -512, 512).astype(np.int64) + int(qy.zero_point))


def squared(b: TfliteBuilder) -> None:
    """MUL of a tensor with itself: XNNPACK squares the real value, and the zero point is inside the rounding."""
    q, qx, qy = _types(b)
    real = q.astype(np.float32) * np.float32(qx.scale)
    y = np.rint(real * real / np.float32(qy.scale) + np.float32(qy.zero_point))
    emit(b, np.clip(y, *b.clamp()).astype(np.int64))


_IDEAL: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "LOGISTIC": lambda x: 1 / (1 + np.exp(-x)),
    "ELU": lambda x: np.where(x > 0, x, np.expm1(x)),
    "TANH": np.tanh,
}
_BUILTIN: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "EXP": lambda x: np.exp(x.astype(np.float64)),
    "LOG": lambda x: np.where(x > 0, np.log(x.astype(np.float64)), -np.inf),  # the lowest value for 0 and below
}


@handles(*_IDEAL, *_BUILTIN)
def function(b: TfliteBuilder, op: FileOp) -> None:
    if op.name in _IDEAL:
        ideal(b, _IDEAL[op.name])
    else:
        builtin(b, _BUILTIN[op.name])


def gelu(b: TfliteBuilder) -> Callable[[np.ndarray], np.ndarray]:
    """The op's GELU in float32, like the kernel: where the factor of x is 2 but for rounding, ties are common."""
    half, one = np.float32(0.5), np.float32(1)

    def by_erfc(x: np.ndarray) -> np.ndarray:
        inside = (x * np.float32(-math.sqrt(0.5))).tolist()
        return half * x * np.array([math.erfc(v) for v in inside]).astype(np.float32)

    def by_tanh(x: np.ndarray) -> np.ndarray:
        inside = np.float32(math.sqrt(2 / math.pi)) * (x + np.float32(0.044715) * x * x * x)
        values: np.ndarray = half * x * (one + np.tanh(inside.astype(np.float64)).astype(np.float32))
        return values

    return by_tanh if b.op.option("Approximate", False) else by_erfc


@handles("GELU")
def byte_gelu(b: TfliteBuilder, op: FileOp) -> None:
    builtin(b, gelu(b))


@handles("RSQRT")
def rsqrt(b: TfliteBuilder, op: FileOp) -> None:
    """Imports RSQRT in fixed point; 0 gives the highest value, numbers below 0, at which LiteRT stops, the lowest."""
    q, qx, qy = _types(b)
    scale = float(np.sqrt(np.float32(qx.scale)) * np.float32(qy.scale))
    multiplier, shift = litert_multiplier(1 / scale)
    values = inverse_square_root(np.maximum(q, 1), multiplier, shift) + int(qy.zero_point)
    emit(b, np.where(q > 0, values, np.where(q == 0, 512, -512)))


@handles("SQRT")
def sqrt(b: TfliteBuilder, op: FileOp) -> None:
    """Imports SQRT, rounded down."""
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
    """Imports NEG: the stored integers are negated, whatever the scales are."""
    x = b.source(0)
    _types(b)
    assert x.dtype is not None
    emit(b, (-every(x.dtype)).astype(np.int8))


#: Bounds of the functions that only clip.
RELUS = {"RELU": (0, np.inf), "RELU6": (0, 6), "RELU_N1_TO_1": (-1, 1), "RELU_0_TO_1": (0, 1)}


@handles(*RELUS)
def relu(b: TfliteBuilder, op: FileOp) -> None:
    q, qx, qy = _types(b)
    bounds = b.clamp_of(b.target(), *RELUS[op.name], builtin=True)
    m, shift = litert_multiplier(float(np.float32(qx.scale) / np.float32(qy.scale)))
    same = np.float32(qx.scale) == np.float32(qy.scale)
    y = (q if same else multiply(q, m, shift)) + int(qy.zero_point)
    emit(b, np.clip(y, *bounds))


def scaled_by_256(q: np.ndarray, positive: float, negative: float, zero_point: int) -> np.ndarray:
    """Converts by XNNPACK's rule: multipliers of 8 fractional bits, ties upwards."""
    m = np.where(q >= 0, int(np.rint(256 * positive)), int(np.rint(256 * negative)))
    return ((q * m + 128) >> 8) + zero_point


def _has_8_bits(factor: np.float32) -> bool:
    """True if XNNPACK's conversions take a factor; others are the built-in kernels'."""
    return bool(abs(factor) >= 2.0**-8 and -128 + 2.0**-8 <= factor <= 128)


@handles("LEAKY_RELU")
def leaky_relu(b: TfliteBuilder, op: FileOp) -> None:
    q, qx, qy = _types(b)
    sx, slope = np.float32(qx.scale), np.float32(op.option("Alpha", 0.0))
    above = sx / np.float32(qy.scale)
    if _has_8_bits(above) and _has_8_bits(above * slope):
        emit(b, scaled_by_256(q, float(above), float(above * slope), int(qy.zero_point)))
        return
    below = sx * slope / np.float32(qy.scale)
    kept, bent = (multiply(q, *litert_multiplier(abs(float(factor)))) for factor in (above, below))
    emit(b, np.where(q >= 0, kept, bent * int(np.sign(below))) + int(qy.zero_point))


@handles("HARD_SWISH")
def hard_swish(b: TfliteBuilder, op: FileOp) -> None:
    """Imports HARD_SWISH in LiteRT's fixed-point form: 7 fractional bits, 16-bit multipliers."""
    q, qx, qy = _types(b)
    hires = np.float32(np.float32(1) / np.float32(128)) * np.float32(qx.scale)
    out_m, out_shift = litert_multiplier(float(np.float32(hires / np.float32(qy.scale))))
    relu_m, relu_shift = litert_multiplier(float(np.float32(hires / np.float32(3.0 / 32768.0))))
    if not -15 <= out_shift <= 0:
        raise b.refuse("the scale of the input over that of the result must be within 2^-9..2^7")
    out16, relu16 = _to_16_bits(out_m), _to_16_bits(relu_m)
    x = q << 7
    preshift = times(x, out16)
    gate = times(shifted(x, max(relu_shift - 1, 0)), relu16)
    gate = (shifted(gate, min(relu_shift, 1)) + (1 << 15)) >> 1
    product = gate * preshift
    y = np.sign(product) * (np.abs(product) >> 15)  # towards zero
    emit(b, saturated(shifted(saturated(y), out_shift)) + int(qy.zero_point))


def _to_16_bits(m: int) -> int:
    return 32767 if m >= 0x7FFF7FFF else (m + (1 << 15)) >> 16


@handles("QUANTIZE")
def quantize(b: TfliteBuilder, op: FileOp) -> None:
    x, y = b.source(0), b.target()
    form = b.layout(0)
    if not (b.is_bytes(x) and b.is_bytes(y)):
        if not b.is_steps(y):
            raise b.refuse(f"{y.name!r} of type {y.type_name} has no scale")
        _quantize_floats(b, b.real(0, form), form)
        return
    q, qx, qy = _types(b)
    ratio = np.float32(qx.scale) / np.float32(qy.scale)
    if ratio == 1:
        emit(b, q + int(qy.zero_point))
    elif x.dtype == y.dtype and _has_8_bits(ratio):
        emit(b, scaled_by_256(q, float(ratio), float(ratio), int(qy.zero_point)))
    else:
        factor = litert_multiplier(float(qx.scale) / float(qy.scale))
        emit(b, multiply(q, *factor, away=False) + int(qy.zero_point))


def _quantize_floats(b: TfliteBuilder, name: str, form: str) -> None:
    """Emits what LiteRT's kernels make of floats, a QuantizeLinear by the default ones; integers stay what they are."""
    value, y = b.graph.tensor(name), b.target()
    if value.dtype == np.float32 and by_reference_kernels(b.model):
        quantize_floats(b, name, form)
    elif value.dtype != np.float32 or not b.is_bytes(y) or y.quant is None or y.dtype is None:
        b.quantize_into(name, form)
    elif value.data is not None:
        b.graph.tensor(b.result(value.shape, form)).data = quantize_as_litert(value.data, y.quant, y.dtype)
    else:
        b.quantize_into(name, form)
        b.graph.nodes[-1].attrs[AS_LITERT] = 1


@handles("DEQUANTIZE", wide=True)
def dequantize(b: TfliteBuilder, op: FileOp) -> None:
    """Imports DEQUANTIZE to float32: quantised tensors, float16, and constants with several scales."""
    x = b.source(0)
    form = FILE if x.data is not None else b.layout(0)
    if b.wide():
        b.wide_scale(x)
    if x.dtype == np.float16 and x.data is not None:
        made = b.constant(x.name, x.data, np.float32)
    elif x.dtype == np.float16:
        made = b.cast(b.value(0, form), np.float32)
    elif b.is_steps(x):
        made = b.real(0, form)
    else:
        raise b.refuse(f"{x.name!r} of type {x.type_name} has no scale")
    out = b.result(b.graph.tensor(made).shape, form)
    if b.graph.const(made) is not None:
        b.graph.tensor(out).data = b.graph.const(made)
    else:
        b.onnx("Identity", [made], output=out)
