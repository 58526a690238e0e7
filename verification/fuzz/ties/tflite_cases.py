"""Cases of quantised TFLite operators, alone and in pairs, with fused activations."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.common.tflite_models import T
from verification.fuzz.ties.tflite_model import TyingFile

CASES: dict[str, Any] = {}
#: Operators that 16-bit activations have as well.
WIDE = ("conv", "depthwise", "fully_connected", "pairs", "function", "relu", "requantise", "average_pool", "concat")
#: Numbers of fused activations in the schema: NONE, RELU, RELU_N1_TO_1, RELU6.
ACTIVATIONS = (0, 0, 1, 2, 3, 3)


def case(f: Any) -> Any:
    CASES[f.__name__] = f
    return f


def _then(m: TyingFile, y: T, i: int) -> None:
    """The end of a case: the tensor, or one operator more."""
    after = int(m.rng.integers(8))
    if m.dtype == "int16" or after > 2:
        m.output(y)
    elif after == 0:
        m.output(m.op("LOGISTIC", [y], m.tensor(y.shape, 1 / 256, -128 if m.dtype == "int8" else 0)))
    elif after == 1:
        m.output(m.op("QUANTIZE", [y], m.tensor(y.shape), "QuantizeOptions"))
    else:
        m.output(m.op("RELU6", [y], m.tensor(y.shape)))


def _weights(m: TyingFile, shape: tuple[int, ...], axis: int, per_channel: bool) -> T:
    if m.dtype == "uint8":
        data = m.draws.small(shape, np.dtype(np.uint8))
        return m.tensor(shape, m.draws.scale(), int(m.draws.one_of((0, 1, 2, 128))), "uint8", data)
    data = m.draws.small(shape, np.dtype(np.int8))
    scale = m.draws.channel_scales(shape[axis]) if per_channel else m.draws.scale()
    return m.tensor(shape, scale, 0, "int8", data, axis)


def _product(m: TyingFile, x: T, w: T, count: int, terms: int, bias: bool) -> tuple[T | None, float]:
    """Bias and the scale of the result."""
    sx, sw = np.float32(x.scale), np.asarray(w.scale, np.float32)
    b = None
    if bias or m.dtype == "int16":
        scale = np.minimum(sx.astype(float) * sw, np.finfo(np.float32).max)
        kind = "int64" if m.dtype == "int16" else "int32"
        b = m.tensor((count,), scale, 0, kind, m.rng.integers(-300, 300, count))
    assert w.data is not None
    mean = float(np.abs(w.data.astype(float) - w.zero).mean())
    largest = 74 * (1 if m.dtype != "int16" else 256) * mean * terms**0.5
    return b, m.draws.for_sums(float(sx) * float(np.median(sw)), largest / (1 if m.dtype != "int16" else 256))


@case
def conv(m: TyingFile, i: int) -> None:
    x = m.input((1, 9, 8, 4))
    w = _weights(m, (6, 2, 3, 4), 0, i % 2 == 0)
    b, scale = _product(m, x, w, 6, 24, True)  # LiteRT's kernel refuses one without a bias
    y = m.tensor((1, 8, 6, 6), scale)
    m.op("CONV_2D", [x, w, b], y, "Conv2DOptions", 3, Padding=1, StrideW=1, StrideH=1, DilationWFactor=1,
         DilationHFactor=1, FusedActivationFunction=ACTIVATIONS[i % 6])  # fmt: skip
    _then(m, y, i)


@case
def depthwise(m: TyingFile, i: int) -> None:
    x = m.input((1, 9, 8, 4))
    w = _weights(m, (1, 3, 3, 4), 3, i % 2 == 0)
    b, scale = _product(m, x, w, 4, 9, True)
    y = m.tensor((1, 7, 6, 4), scale)
    m.op(
        "DEPTHWISE_CONV_2D", [x, w, b], y, "DepthwiseConv2DOptions", 3, Padding=1, StrideW=1, StrideH=1,
        DepthMultiplier=1, DilationWFactor=1, DilationHFactor=1, FusedActivationFunction=ACTIVATIONS[i % 6],
    )  # fmt: skip
    _then(m, y, i)


@case
def fully_connected(m: TyingFile, i: int) -> None:
    x = m.input((32, 8))
    w = _weights(m, (6, 8), 0, i % 2 == 0)
    b, scale = _product(m, x, w, 6, 8, i // 2 % 2 == 0)
    y = m.tensor((32, 6), scale)
    inputs = [x, w] + ([b] if b is not None else [])
    m.op("FULLY_CONNECTED", inputs, y, "FullyConnectedOptions", 5, FusedActivationFunction=ACTIVATIONS[i % 6])
    _then(m, y, i)


@case
def pairs(m: TyingFile, i: int) -> None:
    """All pairs of codes; of 16 bits some, of one shape: LiteRT's reference kernels end the process where it is not."""
    name, kind = [("ADD", "AddOptions"), ("SUB", "SubOptions"), ("MUL", "MulOptions")][i % 3]
    sides = [(1, 64, 64, 1)] * 2 if m.dtype == "int16" else [(1, 256, 1, 1), (1, 1, 256, 1)]
    a, b = (m.input(s) for s in (sides if i % 2 else sides[::-1]))
    y = m.tensor(tuple(np.broadcast_shapes(*sides)))
    m.op(name, [a, b], y, kind, 2, FusedActivationFunction=ACTIVATIONS[i // 3 % 6])
    _then(m, y, i)


@case
def extremum(m: TyingFile, i: int) -> None:
    a = m.input((1, 16, 16, 4))
    b = m.input((1, 16, 16, 4), a.scale, a.zero)
    y = m.tensor(a.shape, a.scale, a.zero)
    _then(m, m.op(["MAXIMUM", "MINIMUM"][i % 2], [a, b], y, "MaximumMinimumOptions"), i)


_FUNCTIONS: tuple[tuple[str, str, dict[str, Any], float, int | None], ...] = (
    # operator, options, their fields, scale and zero point of the result that LiteRT demands (0: any)
    ("EXP", "ExpOptions", {}, 0, None), ("GELU", "GeluOptions", {"Approximate": False}, 0, None),
    ("GELU", "GeluOptions", {"Approximate": True}, 0, None), ("ELU", "", {}, 0, None),
    ("RSQRT", "", {}, 0, None), ("SQRT", "", {}, 0, None), ("LOG", "", {}, 0, None), ("ABS", "AbsOptions", {}, 0, None),
    ("NEG", "NegOptions", {}, -1, None), ("HARD_SWISH", "HardSwishOptions", {}, 0, None),
    ("LEAKY_RELU", "LeakyReluOptions", {"Alpha": 0.1}, 0, None),
    ("LEAKY_RELU", "LeakyReluOptions", {"Alpha": 0.5}, 0, None),
    ("LOGISTIC", "", {}, 1 / 256, -128), ("TANH", "", {}, 1 / 128, 0), ("RELU", "", {}, 0, None),
)  # fmt: skip


@case
def function(m: TyingFile, i: int) -> None:
    """A function of one tensor at all codes."""
    name, kind, fields, scale, zero = _FUNCTIONS[i % len(_FUNCTIONS)]
    if m.dtype == "int16":
        name, kind, fields, scale, zero = [_FUNCTIONS[k] for k in (12, 13, 10, 11, 14)][i % 5]
        scale, zero = (1 / 32768 if scale > 0 else 0), 0
    if m.dtype == "uint8" and zero is not None:
        zero += 128
    low = int(np.iinfo(m.dtype).min)
    x = m.input((1, 16, 16, 1), None, low if name in ("RSQRT", "SQRT", "LOG") else None)
    if scale == -1:
        scale, zero = x.scale, x.zero
    y = m.tensor(x.shape, scale or None, zero)
    _then(m, m.op(name, [x], y, kind, **fields), i)


@case
def relu(m: TyingFile, i: int) -> None:
    x = m.input((1, 16, 16, 1))
    _then(m, m.op(["RELU", "RELU6", "RELU_N1_TO_1", "RELU_0_TO_1"][i % 4], [x], m.tensor(x.shape)), i)


@case
def requantise(m: TyingFile, i: int) -> None:
    """QUANTIZE to another scale, or to another type."""
    x = m.input((1, 16, 16, 1))
    kinds = {
        "int8": ("int8", "int8", "uint8"),
        "uint8": ("uint8", "int8", "uint8"),
        "int16": ("int16", "int8", "int16"),
    }
    to = kinds[m.dtype][i % 3]
    zero = 0 if to == "int16" else m.draws.zero(np.dtype(to))
    y = m.tensor(x.shape, None, zero, to)
    m.output(m.op("QUANTIZE", [x], y, "QuantizeOptions", 2))


@case
def average_pool(m: TyingFile, i: int) -> None:
    x = m.input((1, 9, 9, 4))
    k = 2 + i % 2
    size = 9 - k + 1
    y = m.tensor((1, size, size, 4), x.scale, x.zero)
    m.op("AVERAGE_POOL_2D", [x], y, "Pool2DOptions", 2, Padding=1, StrideW=1, StrideH=1, FilterWidth=k, FilterHeight=k,
         FusedActivationFunction=ACTIVATIONS[i % 6])  # fmt: skip
    _then(m, y, i)


@case
def max_pool(m: TyingFile, i: int) -> None:
    x = m.input((1, 9, 9, 4))
    y = m.tensor((1, 8, 8, 4), x.scale, x.zero)
    m.op("MAX_POOL_2D", [x], y, "Pool2DOptions", 2, Padding=1, StrideW=1, StrideH=1, FilterWidth=2, FilterHeight=2,
         FusedActivationFunction=ACTIVATIONS[i % 6])  # fmt: skip
    _then(m, y, i)


@case
def mean(m: TyingFile, i: int) -> None:
    x = m.input((1, 4, [4, 3][i % 2], 64))
    m.last_scale = float(x.scale) / 4
    y = m.tensor((1, 1, 1, 64))
    _then(m, m.op("MEAN", [x, m.constant([1, 2])], y, "ReducerOptions", 2, KeepDims=True), i)


@case
def concat(m: TyingFile, i: int) -> None:
    parts = [m.input((1, 4, 32, c)) for c in (3, 2, 4)]
    if m.dtype == "int16" or i % 3 == 0:
        for p in parts[1:]:
            p.scale, p.zero = parts[0].scale, parts[0].zero
    same = (parts[0].scale, parts[0].zero) if m.dtype != "uint8" else (None, None)
    y = m.tensor((1, 4, 32, 9), *same)
    if m.dtype == "int8":
        for p in parts[1:]:
            p.scale, p.zero = parts[0].scale, parts[0].zero
    activation = ACTIVATIONS[i % 6] if i % 4 == 1 and m.dtype == "uint8" else 0
    m.op("CONCATENATION", parts, y, "ConcatenationOptions", 2, Axis=3, FusedActivationFunction=activation)
    m.output(y)


@case
def softmax(m: TyingFile, i: int) -> None:
    x = m.input((64, [4, 10][i % 2]))
    y = m.tensor(x.shape, 1 / 256, -128 if m.dtype == "int8" else 0)
    m.output(m.op("SOFTMAX", [x], y, "SoftmaxOptions", 2, Beta=[1.0, 1.0, 0.5, 2.0][i % 4]))


@case
def prelu(m: TyingFile, i: int) -> None:
    x = m.input((1, 16, 16, 4))
    slope = m.tensor((1, 1, 4), None, None, data=m.draws.codes((1, 1, 4), np.dtype(m.dtype)))
    _then(m, m.op("PRELU", [x, slope], m.tensor(x.shape)), i)


@case
def moves(m: TyingFile, i: int) -> None:
    x = m.input((1, 8, 8, 4))
    kind = i % 3
    if kind == 0:
        y = m.tensor((1, 10, 9, 4), x.scale, x.zero)
        m.op("PAD", [x, m.constant([[0, 0], [1, 1], [0, 1], [0, 0]])], y, "PadOptions")
    elif kind == 1:
        y = m.tensor((1, 4, 8, 8), x.scale, x.zero)
        m.op("TRANSPOSE", [x, m.constant([0, 3, 1, 2])], y, "TransposeOptions", 2)
    else:
        y = m.tensor((1, 16, 16, 4), x.scale, x.zero)
        fields = {"AlignCorners": bool(i // 3 % 2), "HalfPixelCenters": False}
        m.op("RESIZE_BILINEAR", [x, m.constant([16, 16])], y, "ResizeBilinearOptions", 3, **fields)
    _then(m, y, i)


@case
def floats(m: TyingFile, i: int) -> None:
    """QUANTIZE of floats on ties and a unit in the last place beside them."""
    y = m.tensor((1, 16, 16, 4))
    x = m.tensor(y.shape, 0, 0, "float32")
    m.inputs.append(x.name)
    halves = 2 * (m.draws.codes(tuple(y.shape), np.dtype(y.dtype)).astype(np.int64) - y.zero) + m.rng.integers(0, 2)
    near = halves.astype(np.float32) * np.float32(0.5) * np.float32(y.scale)
    m.feed[x.name] = (near.view(np.int32) + m.rng.integers(-1, 2, y.shape)).astype(np.int32).view(np.float32)
    _then(m, m.op("QUANTIZE", [x], y, "QuantizeOptions"), i)


@case
def floats_between(m: TyingFile, i: int) -> None:
    """Operators that the file leaves in floats, between DEQUANTIZE and QUANTIZE: each exact, on all pairs of codes."""
    sides = [(1, 256, 1, 1), (1, 1, 256, 1)]
    real = lambda shape: m.tensor(shape, 0, 0, "float32")
    a, b = (
        m.op("DEQUANTIZE", [m.input(s)], real(s), "DequantizeOptions", 2) for s in (sides if i % 2 else sides[::-1])
    )
    name = ["ADD", "SUB", "MUL", "DIV", "MAXIMUM", "MINIMUM", ""][i // 2 % 7]
    kind = "MaximumMinimumOptions" if name in ("MAXIMUM", "MINIMUM") else f"{name.capitalize()}Options"
    fused = {"FusedActivationFunction": ACTIVATIONS[i // 3 % 6]} if name in ("ADD", "SUB", "MUL") else {}
    if name:
        a = m.op(name, [a, b], real((1, 256, 256, 1)), kind, 2 if name != "DIV" else 1, **fused)
    y = m.op("QUANTIZE", [a], m.tensor(a.shape), "QuantizeOptions")
    if i % 3 == 0:  # another pair
        again = m.op("DEQUANTIZE", [y], real(y.shape), "DequantizeOptions", 2)
        y = m.op("QUANTIZE", [again], m.tensor(y.shape), "QuantizeOptions")
    m.output(y)
