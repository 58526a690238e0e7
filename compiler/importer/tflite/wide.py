"""Operators of 16-bit activations with 8-bit weights ("16x8"), by LiteRT's reference kernels: products."""

from __future__ import annotations

import numpy as np

from tilewright.compiler.graph.graph import Tensor
from tilewright.compiler.graph.ops.wide import HIGHEST, LOWEST, MAX_PRODUCTS, QConv16, QMatMul16
from tilewright.compiler.importer.tflite.builder import FILE, PLANES, TfliteBuilder
from tilewright.compiler.importer.tflite.convolution import image, kernel_of, product_shapes, weights, windows
from tilewright.compiler.importer.tflite.fixed_point import Integers
from tilewright.compiler.importer.tflite.handlers import WIDE, handles
from tilewright.compiler.importer.tflite.schema import FileOp, FileTensor
from tilewright.isa import wide_numerics


def limits(b: TfliteBuilder, t: FileTensor, low: float, high: float) -> tuple[int, int]:
    """Real limits in the steps of a 16-bit tensor, ties away from zero."""
    scale = b.wide_scale(t)

    def steps(value: float, limit: int) -> int:
        if not np.isfinite(value):
            return limit
        found = np.sign(value) * np.floor(np.float64(np.float32(abs(value)) / scale) + 0.5)
        return int(min(max(found, LOWEST), HIGHEST))

    return steps(low, LOWEST), steps(high, HIGHEST)


def clamp(b: TfliteBuilder) -> tuple[int, int]:
    """The op's fused activation in the steps of its output."""
    return limits(b, b.target(), *b.activation())


# LiteRT computes on with results and shifted values as int32, without a check. Where these could be 2^31 and more, what
# its kernels give has no meaning, and the model is refused.


def scaled(b: TfliteBuilder, value: str, most: int, multiplier: int, shift: int) -> str:
    """`Integers.scaled` of integers up to a magnitude of `most`. Raises UnsupportedError where the left shift leaves
    the 32 bits of LiteRT's kernels."""
    room = 31 - most.bit_length()
    if shift > room:
        raise b.refuse(
            f"the scales give a factor of {multiplier * 2.0 ** (shift - 31):g} for integers up to {most}; "
            f"below {2.0**room:g} is accepted, as LiteRT computes in 32 bits"
        )
    return Integers(b).scaled(value, multiplier, shift)


def _check_sums(b: TfliteBuilder, data: np.ndarray, bias_at: int, factors: np.ndarray) -> None:
    """Raises UnsupportedError where sums of weights [channel, ...] leave LiteRT's 48 bits, or results its 32 bits."""
    sums = -LOWEST * np.abs(data.astype(np.int64)).reshape(len(data), -1).sum(axis=1).astype(np.float64)
    if b.has(bias_at):
        sums += np.abs(b.const(bias_at, "bias").reshape(-1).astype(np.float64))
    for values, bits, what in ((sums, 47, "sums"), (sums * factors + 0.5, 31, "results before the limits of 16 bits")):
        if np.any(values >= 2.0**bits):
            channel = int(np.argmax(values))
            raise b.refuse(
                f"{what} of channel {channel} may reach {float(values[channel]):g}, by its weights and bias and the "
                f"scales; below 2^{bits} is accepted"
            )


def _weights(b: TfliteBuilder, k: int, channel_axis: int) -> tuple[np.ndarray, np.ndarray]:
    """The int8 values of constant weights and a scale of each channel."""
    data, scale, zero = weights(b, k, channel_axis)
    if b.source(k).dtype != np.int8 or np.any(zero):
        raise b.refuse(f"weights {b.source(k).name!r} must be int8 with the zero point 0 beside 16-bit activations")
    channels = data.shape[channel_axis] if channel_axis < data.ndim else data.size
    if channels and data.size // channels > MAX_PRODUCTS:
        raise b.refuse(f"a sum of {data.size // channels} products; up to {MAX_PRODUCTS} are accepted")
    return data, np.broadcast_to(scale, (channels,))


def _bias(b: TfliteBuilder, k: int, channels: int) -> list[str]:
    """The bias as a constant of 64 bits."""
    if not b.has(k):
        return []
    t, data = b.source(k), b.const(k, "bias")
    if data.dtype != np.int64 or data.size != channels:
        raise b.refuse(
            f"bias {t.name!r} is {t.type_name}{list(t.shape)}; int64[{channels}] is accepted beside 16-bit activations"
        )
    return [b.constant(t.name, data.reshape(-1))]


@handles("CONV_2D", table=WIDE)
def conv_2d(b: TfliteBuilder, op: FileOp) -> None:
    shape = image(b, 0)
    if not b.has(2):
        raise b.refuse("there is no bias; LiteRT asks for one of int64 beside 16-bit activations")
    data, scale = _weights(b, 1, 0)
    data = kernel_of(b, b.source(1), data)
    if shape[3] % data.shape[3] or data.shape[0] % (shape[3] // data.shape[3]):
        raise b.damaged(f"{shape[3]} channels and weights {list(data.shape)}")
    _conv(b, shape, data.transpose(0, 3, 1, 2), scale, shape[3] // data.shape[3])


@handles("DEPTHWISE_CONV_2D", table=WIDE)
def depthwise_conv_2d(b: TfliteBuilder, op: FileOp) -> None:
    shape = image(b, 0)
    data, scale = _weights(b, 1, 3)
    data = kernel_of(b, b.source(1), data)
    if data.shape[0] != 1 or data.shape[3] % shape[3]:
        raise b.damaged(f"{shape[3]} channels and weights {list(data.shape)}")
    _conv(b, shape, data.transpose(3, 0, 1, 2), scale, shape[3])


def _conv(b: TfliteBuilder, shape: tuple[int, ...], data: np.ndarray, scale: np.ndarray, group: int) -> None:
    op, kernel = b.op, list(data.shape[2:])
    strides = [op.option("StrideH", 1), op.option("StrideW", 1)]
    dilations = [op.option("DilationHFactor", 1), op.option("DilationWFactor", 1)]
    out, pads = windows(b, shape[1:3], kernel, strides, dilations, op.option("Padding", 0))
    factors = wide_numerics.wide_factor(b.wide_scale(b.source(0)), scale, b.wide_scale(b.target()))
    found = [wide_numerics.wide_multiplier(float(f)) for f in factors]
    low, high = clamp(b)
    conv = QConv16(
        kernel=tuple(kernel), strides=tuple(strides), pads=tuple(pads), dilations=tuple(dilations), group=group,
        multipliers=tuple(m for m, _ in found), shifts=tuple(s for _, s in found), low=low, high=high,
    )  # fmt: skip
    if min(conv.shifts) < 8:
        raise b.refuse(f"scales that are {float(np.max(factors)):g} of that of the result; below 128 is accepted")
    inputs = [b.value(0, PLANES), b.constant(b.source(1).name, np.ascontiguousarray(data))]
    inputs += _bias(b, 2, data.shape[0])
    _check_sums(b, data, 2, np.ldexp(np.array(conv.multipliers, np.float64), -np.array(conv.shifts)))
    b.quantized(conv, inputs, b.result((shape[0], data.shape[0], *out), PLANES))


@handles("FULLY_CONNECTED", table=WIDE)
def fully_connected(b: TfliteBuilder, op: FileOp) -> None:
    data, scale = _weights(b, 1, 0)
    shape, (rows, out) = b.shape(0), product_shapes(b, data)
    factors = wide_numerics.wide_factor(b.wide_scale(b.source(0)), scale, b.wide_scale(b.target()))
    low, high = clamp(b)
    product = QMatMul16(factors=tuple(float(f) for f in factors), low=low, high=high)
    n, k = data.shape
    x = b.value(0, FILE)
    if tuple(shape) != (rows, k):
        x = b.onnx("Reshape", [x, b.constant("shape", [rows, k], np.int64)], {"allowzero": 1})
    inputs = [x, b.constant(b.source(1).name, np.ascontiguousarray(data.T)), *_bias(b, 2, n)]
    _check_sums(b, data, 2, factors)
    y = b.result(out)
    if out == (rows, n):
        b.quantized(product, inputs, y)
        return
    flat = b.graph.add(Tensor(b.graph.unique(y), (rows, n), np.dtype(np.int16))).name
    b.quantized(product, inputs, flat)
    b.onnx("Reshape", [flat, b.constant("shape", out, np.int64)], {"allowzero": 1}, y)
