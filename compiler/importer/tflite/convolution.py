"""CONV_2D, DEPTHWISE_CONV_2D, TRANSPOSE_CONV, FULLY_CONNECTED."""

from __future__ import annotations

import numpy as np
import tflite

from tilewright.compiler.graph.graph import Quant
from tilewright.compiler.graph.ops.convolution import QConv, QConvTranspose
from tilewright.compiler.graph.ops.product import QMatMul
from tilewright.compiler.graph.ops.quantized_op import ROUNDS_TWICE
from tilewright.compiler.graph.windows import clipped
from tilewright.compiler.importer.tflite.builder import FILE, PLANES, TfliteBuilder
from tilewright.compiler.importer.tflite.builtin import BuiltinProduct, check_types, left_to_builtin, spread
from tilewright.compiler.importer.tflite.handlers import handles
from tilewright.compiler.importer.tflite.schema import FileOp, FileTensor


def windows(
    b: TfliteBuilder, size: tuple[int, ...], kernel: list[int], strides: list[int], dilations: list[int], padding: int
) -> tuple[list[int], list[int]]:
    """Output sizes and pads (begins, then ends) of SAME or VALID padding."""
    if min([*kernel, *strides, *dilations, *size]) < 1:
        raise b.damaged(f"kernel {kernel}, stride {strides}, dilation {dilations} on {list(size)}")
    out, begins, ends = [], [], []
    for n, k, s, d in zip(size, kernel, strides, dilations):
        reach = (k - 1) * d + 1
        if padding == tflite.Padding.SAME:
            count = -(-n // s)
            total = max((count - 1) * s + reach - n, 0)
        elif padding == tflite.Padding.VALID:
            count, total = -(-(n - reach + 1) // s), 0
        else:
            raise b.damaged(f"padding {padding}")
        if count < 1:
            raise b.damaged(f"a window of {reach} does not fit {n}")
        out.append(count)
        begins.append(total // 2)
        ends.append(total - total // 2)
    return out, begins + ends


def pool_windows(b: TfliteBuilder) -> tuple[list[int], list[int], list[int], list[int]]:
    """Kernel, strides, pads and output sizes of a pool of input 0; taps that never reach the input are cut off."""
    op, size = b.op, image(b, 0)[1:3]
    kernel = [op.option("FilterHeight", 0), op.option("FilterWidth", 0)]
    strides = [op.option("StrideH", 0), op.option("StrideW", 0)]
    out, pads = windows(b, size, kernel, strides, [1, 1], op.option("Padding", 0))
    kernel, pads = clipped(size, kernel, strides, [1, 1], pads, out)
    return kernel, strides, pads, out


def weights(b: TfliteBuilder, k: int, channel_axis: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """int8 values, scales and zero points (of shape () or [channels]) of constant weights."""
    t = b.source(k)
    data = b.const(k, "weights")
    if t.dtype not in (np.dtype(np.int8), np.dtype(np.uint8)) or t.quant is None:
        raise b.refuse(f"weights {t.name!r} are {t.type_name}; int8 and uint8 with scales are accepted")
    if t.quant.axis not in (None, channel_axis):
        raise b.refuse(f"weights {t.name!r} are quantised along axis {t.quant.axis}, not {channel_axis}")
    zero = t.quant.zero_point
    info = np.iinfo(t.dtype)
    if np.any((zero < info.min) | (zero > info.max)):
        raise b.damaged(f"zero points of weights {t.name!r} are outside {t.dtype}")
    if t.dtype == np.uint8:
        data, zero = (data.astype(np.int16) - 128).astype(np.int8), zero - 128
    return data, t.quant.scale, zero


def bias(b: TfliteBuilder, k: int, channels: int) -> list[str]:
    if not b.has(k):
        return []
    t, data = b.source(k), b.const(k, "bias")
    if data.dtype != np.int32 or data.size != channels:
        raise b.refuse(f"bias {t.name!r} is {t.type_name}{list(t.shape)}; int32[{channels}] is accepted")
    return [b.constant(t.name, data.reshape(-1))]


def image(b: TfliteBuilder, k: int) -> tuple[int, ...]:
    """The shape of an input of rank 4 (NHWC). Raises CompileError for another rank."""
    shape = b.shape(k)
    if len(shape) != 4:
        raise b.damaged(f"input has shape {list(shape)}, rank 4 is needed")
    return shape


def kernel_of(b: TfliteBuilder, t: FileTensor, data: np.ndarray) -> np.ndarray:
    if data.ndim != 4 or data.size == 0:
        raise b.damaged(f"weights {t.name!r} have shape {list(data.shape)}")
    return data


@handles("CONV_2D")
def conv_2d(b: TfliteBuilder, op: FileOp) -> None:
    shape = image(b, 0)
    data, scale, zero = weights(b, 1, 0)
    data = kernel_of(b, b.source(1), data)
    if shape[3] % data.shape[3] or data.shape[0] % (shape[3] // data.shape[3]):
        raise b.damaged(f"{shape[3]} channels and weights {list(data.shape)}")
    _conv(b, shape, data.transpose(0, 3, 1, 2), scale, zero, shape[3] // data.shape[3])


@handles("DEPTHWISE_CONV_2D")
def depthwise_conv_2d(b: TfliteBuilder, op: FileOp) -> None:
    shape = image(b, 0)
    data, scale, zero = weights(b, 1, 3)
    data = kernel_of(b, b.source(1), data)
    if data.shape[0] != 1 or data.shape[3] % shape[3]:
        raise b.damaged(f"{shape[3]} channels and weights {list(data.shape)}")
    _conv(b, shape, data.transpose(3, 0, 1, 2), scale, zero, shape[3])


def _conv(
    b: TfliteBuilder, shape: tuple[int, ...], data: np.ndarray, scale: np.ndarray, zero: np.ndarray, group: int
) -> None:
    op = b.op
    kernel = list(data.shape[2:])
    strides = [op.option("StrideH", 1), op.option("StrideW", 1)]
    dilations = [op.option("DilationHFactor", 1), op.option("DilationWFactor", 1)]
    out, pads = windows(b, shape[1:3], kernel, strides, dilations, op.option("Padding", 0))
    quant = Quant.of(scale, zero, 0)
    x, w = b.source(0), b.source(1)
    b.byte_quant(x)
    check_types(b, x, w)
    shape_out = (shape[0], data.shape[0], *out)
    if left_to_builtin(b, x, w, scale):
        attrs = {"kernel_shape": kernel, "strides": strides, "pads": pads, "dilations": dilations, "group": group}
        product = BuiltinProduct(b, x, scale, data.shape[0])
        made = product.convolution(b.value(0, PLANES), data, zero, bias(b, 2, data.shape[0]), attrs)
        b.onnx("Identity", [made], output=b.result(shape_out, PLANES))
        return
    inputs = [b.value(0, PLANES), b.constant(b.source(1).name, np.ascontiguousarray(data), None, quant)]
    inputs += bias(b, 2, data.shape[0])
    conv = QConv(
        kernel=tuple(kernel), strides=tuple(strides), pads=tuple(pads), dilations=tuple(dilations), group=group
    )
    conv = conv.clamped(*b.clamp())
    b.quantized(conv, inputs, b.result(shape_out, PLANES))


@handles("TRANSPOSE_CONV")
def transpose_conv(b: TfliteBuilder, op: FileOp) -> None:
    """Imports TRANSPOSE_CONV. Inputs output_shape, weights [O,kh,kw,C], x, optional bias."""
    data, scale, zero = weights(b, 1, 0)
    data = kernel_of(b, b.source(1), data)
    strides, pads, extra = transposed_pads(b, data.shape)
    reason = ""
    x, w = b.source(2), b.source(1)
    b.byte_quant(x)
    check_types(b, x, w)
    if left_to_builtin(b, x, w, scale):
        target = b.ints(0, "output shape")
        kernel = data.shape[1:3]
        around = [k - 1 - p + more for k, p, more in zip((*kernel, *kernel), pads, (0, 0, *extra))]
        if min(around) < 0:
            raise b.refuse(f"pads {pads} beyond the kernel {list(kernel)}")
        turned = data[:, ::-1, ::-1].transpose(0, 3, 1, 2)
        product = BuiltinProduct(b, x, scale, data.shape[0])
        planes = spread(b, b.value(2, PLANES), x, strides)
        attrs = {"kernel_shape": list(kernel), "pads": around}
        made = product.convolution(planes, turned, zero, bias(b, 3, data.shape[0]), attrs)
        b.onnx("Identity", [made], output=b.result((target[0], target[3], *target[1:3]), PLANES))
        return
    quant = Quant.of(scale, zero, 1)
    swapped = np.ascontiguousarray(data.transpose(3, 0, 1, 2))
    inputs = [b.value(2, PLANES), b.constant(b.source(1).name, swapped, None, quant)]
    if b.source(0).data is None:
        inputs.append(_builtin_bias(b, scale, data.shape[0]))
        reason = f"the output shape is computed in the file: {ROUNDS_TWICE}"
    else:
        inputs += bias(b, 3, data.shape[0])
    target = b.ints(0, "output shape")
    y = b.result((target[0], target[3], *target[1:3]), PLANES)
    conv = QConvTranspose(
        kernel=data.shape[1:3], strides=tuple(strides), pads=tuple(pads), output_padding=tuple(extra), reason=reason
    )
    b.quantized(conv.clamped(*b.clamp(builtin=bool(reason))), inputs, y)


def _builtin_bias(b: TfliteBuilder, scale: np.ndarray, channels: int) -> str:
    """The bias with which the machine's rule comes closest to LiteRT's rounding twice upwards, `floor(acc * f + 1/2 +
    2^(s-1))` with f = m * 2^s and 1/2 <= m < 1. The last term equals 1/(2m) more in acc, at least 1/2.
    """
    x, y = b.byte_quant(b.source(2)), b.byte_quant(b.target())
    factor = np.float64(x.scale) * np.broadcast_to(scale, (channels,)).astype(np.float64) / np.float64(y.scale)
    given = b.const(3, "bias").reshape(-1) if bias(b, 3, channels) else np.zeros(channels, np.int32)
    return b.constant("bias", given + (factor < 0.5), np.int32)


def transposed_pads(b: TfliteBuilder, weights_shape: tuple[int, ...]) -> tuple[list[int], list[int], list[int]]:
    """Strides, pads and output padding of a TRANSPOSE_CONV with weights [O,kh,kw,C]."""
    strides = [b.op.option("StrideH", 1), b.op.option("StrideW", 1)]
    same = b.op.option("Padding", 0) == tflite.Padding.SAME
    return strides, *pads_of_transposed(b, image(b, 2), weights_shape, b.ints(0, "output shape"), strides, same)


def pads_of_transposed(
    b: TfliteBuilder,
    shape: tuple[int, ...],
    weights_shape: tuple[int, ...],
    target: list[int],
    strides: list[int],
    same: bool,
) -> tuple[list[int], list[int]]:
    """Pads and output padding of a transposed convolution from [N,H,W,C] to `target` with weights [O,kh,kw,C]."""
    o, *kernel, c = weights_shape
    if len(target) != 4 or c != shape[3] or target[3] != o or target[0] != shape[0]:
        raise b.damaged(f"input {list(shape)}, weights {list(weights_shape)} and output {target}")
    begins, ends, extra = [], [], []
    for n, k, s, size in zip(shape[1:3], kernel, strides, target[1:3]):
        if s < 1 or size < 1:
            raise b.damaged(f"stride {strides} and output {target}")
        full = (n - 1) * s + k
        total = max(full - size, 0) if same else 0
        begins.append(total // 2)
        ends.append(max(full - size - total // 2, 0))
        extra.append(max(size - full, 0))
        if extra[-1] >= s:
            raise b.refuse(f"output {target} is larger than stride and kernel reach")
    return begins + ends, extra


def product_shapes(b: TfliteBuilder, weights: np.ndarray) -> tuple[int, tuple[int, ...]]:
    """The rows of input 0 of a FULLY_CONNECTED with weights [N, K], and the shape of its result."""
    if b.op.option("WeightsFormat", 0) != 0:
        raise b.refuse("shuffled weights are not supported")
    if weights.ndim != 2 or weights.size == 0:
        raise b.damaged(f"weights have shape {list(weights.shape)}")
    shape, (n, k) = b.shape(0), weights.shape
    size = int(np.prod(shape, dtype=np.int64))
    keep = bool(b.op.option("KeepNumDims", False))
    if size % k or (keep and (not shape or shape[-1] != k)):
        raise b.damaged(f"input {list(shape)} and weights {list(weights.shape)}")
    return size // k, ((*shape[:-1], n) if keep else (size // k, n))


@handles("FULLY_CONNECTED")
def fully_connected(b: TfliteBuilder, op: FileOp) -> None:
    data, scale, zero = weights(b, 1, 0)
    shape, (rows, out) = b.shape(0), product_shapes(b, data)
    n, k = data.shape
    x = b.value(0, FILE)
    b.byte_quant(b.source(0))
    check_types(b, b.source(0), b.source(1))
    if tuple(shape) != (rows, k):
        x = b.onnx("Reshape", [x, b.constant("shape", [rows, k], np.int64)], {"allowzero": 1})
        b.graph.tensor(x).quant = b.source(0).quant
    whole = b.source(1).dtype == np.int8 and bool(np.any(zero))
    if whole or left_to_builtin(b, b.source(0), b.source(1), scale):
        made = BuiltinProduct(b, b.source(0), scale, n).product(x, data, zero, bias(b, 2, n))
        y = b.result(out)
        b.onnx("Reshape", [made, b.constant("shape", out, np.int64)], {"allowzero": 1}, y)
        return
    w = b.constant(b.source(1).name, np.ascontiguousarray(data.T), None, Quant.of(scale, zero, 1))
    product = QMatMul().clamped(*b.clamp())
    y = b.result(out)
    if out == (rows, n):
        b.quantized(product, [x, w, *bias(b, 2, n)], y)
        return
    flat = b.graph.unique(y)
    t = b.graph.tensor(y)
    b.graph.add(type(t)(flat, (rows, n), t.dtype, None, t.quant))
    b.quantized(product, [x, w, *bias(b, 2, n)], flat)
    b.onnx("Reshape", [flat, b.constant("shape", out, np.int64)], {"allowzero": 1}, y)


@handles("BATCH_MATMUL")
def batch_matmul(b: TfliteBuilder, op: FileOp) -> None:
    names = []
    for k, accessor in ((0, "AdjX"), (1, "AdjY")):
        name, rank = b.value(k, FILE), len(b.shape(k))
        q = b.byte_quant(b.source(k))
        if rank < 2 or b.source(k).dtype != np.int8 or b.target().dtype != np.int8:
            raise b.refuse(
                f"input {k} of type {b.source(k).type_name} and rank {rank}; int8 of rank 2 or more is accepted"
            )
        if op.option(accessor, False):
            name = b.onnx("Transpose", [name], {"perm": [*range(rank - 2), rank - 1, rank - 2]})
            b.graph.tensor(name).quant = q
        names.append(name)
    (*first, m, k), (*second, rows, n) = (b.graph.tensor(name).shape for name in names)
    if rows != k:
        raise b.damaged(f"{list(b.shape(0))} and {list(b.shape(1))}")
    y = b.result((*np.broadcast_shapes(first, second), m, n))
    limits = b.clamp_of(b.target(), -np.inf, np.inf)
    b.quantized(QMatMul(reason=ROUNDS_TWICE).clamped(*limits), names, y)
