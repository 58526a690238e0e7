"""Convolutions, products, pools and Softmax on floats as ONNX ops; weights may be float16 or int8."""

from __future__ import annotations

import numpy as np

from tilewright.compiler.importer.tflite.builder import PLANES, TfliteBuilder
from tilewright.compiler.importer.tflite.convolution import (
    image,
    pads_of_transposed,
    pool_windows,
    transposed_pads,
    windows,
)
from tilewright.compiler.importer.tflite.handlers import PLAIN, handles
from tilewright.compiler.importer.tflite.schema import FileOp


def _weights(b: TfliteBuilder, k: int, rank: int) -> np.ndarray:
    """Constant weights as float32. Raises UnsupportedError for others."""
    t = b.source(k)
    b.const(k, "weights")
    data = b.graph.const(b.real(k))
    if data is None or data.dtype.kind != "f" or data.ndim != rank or data.size == 0:
        raise b.refuse(f"weights {t.name!r} are {t.type_name}{list(t.shape)}; floats of rank {rank} are accepted")
    return data.astype(np.float32)


def _bias(b: TfliteBuilder, k: int, channels: int) -> list[str]:
    """The bias as float32; an integer bias counts in steps of the input scale times the weight scale."""
    if not b.has(k):
        return []
    t, data = b.source(k), b.const(k, "bias")
    if data.size != channels:
        raise b.damaged(f"bias {t.name!r} is {t.type_name}{list(t.shape)}, {channels} values are needed")
    data = data.reshape(-1)
    if data.dtype.kind == "i":
        if t.quant is None:
            raise b.refuse(f"bias {t.name!r} has no scale")
        data = data.astype(np.float64) * t.quant.scale
    return [b.constant(t.name, data, np.float32)]


def _conv(b: TfliteBuilder, weights: np.ndarray, group: int) -> None:
    """Emits a convolution with `weights` [O, C/group, kh, kw]."""
    op, shape = b.op, image(b, 0)
    kernel = list(weights.shape[2:])
    strides = [op.option("StrideH", 1), op.option("StrideW", 1)]
    dilations = [op.option("DilationHFactor", 1), op.option("DilationWFactor", 1)]
    _, pads = windows(b, shape[1:3], kernel, strides, dilations, op.option("Padding", 0))
    attrs = {"kernel_shape": kernel, "strides": strides, "pads": pads, "dilations": dilations, "group": group}
    inputs = [b.real(0, PLANES), b.constant("weights", np.ascontiguousarray(weights)), *_bias(b, 2, len(weights))]
    b.quantize_into(b.activated(b.onnx("Conv", inputs, attrs)), PLANES)


@handles("CONV_2D", table=PLAIN)
def conv_2d(b: TfliteBuilder, op: FileOp) -> None:
    shape, data = image(b, 0), _weights(b, 1, 4)
    if shape[3] % data.shape[3] or data.shape[0] % (shape[3] // data.shape[3]):
        raise b.damaged(f"{shape[3]} channels and weights {list(data.shape)}")
    _conv(b, data.transpose(0, 3, 1, 2), shape[3] // data.shape[3])


@handles("DEPTHWISE_CONV_2D", table=PLAIN)
def depthwise_conv_2d(b: TfliteBuilder, op: FileOp) -> None:
    shape, data = image(b, 0), _weights(b, 1, 4)
    if data.shape[0] != 1 or data.shape[3] % shape[3]:
        raise b.damaged(f"{shape[3]} channels and weights {list(data.shape)}")
    _conv(b, data.transpose(3, 0, 1, 2), shape[3])


@handles("TRANSPOSE_CONV", table=PLAIN)
def transpose_conv(b: TfliteBuilder, op: FileOp) -> None:
    data = _weights(b, 1, 4)
    strides, pads, extra = transposed_pads(b, data.shape)
    attrs = {"kernel_shape": data.shape[1:3], "strides": strides, "pads": pads, "output_padding": extra}
    inputs = [b.real(2, PLANES), b.constant("weights", np.ascontiguousarray(data.transpose(3, 0, 1, 2)))]
    made = b.onnx("ConvTranspose", [*inputs, *_bias(b, 3, data.shape[0])], attrs)
    b.quantize_into(b.activated(made), PLANES)


@handles("Convolution2DTransposeBias", table=PLAIN)
def transpose_conv_bias(b: TfliteBuilder, op: FileOp) -> None:
    """Imports MediaPipe's operator, which XNNPACK knows: x, weights [O,kh,kw,C], bias. Its options are those of
    TRANSPOSE_CONV in C (padding 1 SAME or 2 VALID, stride over the width, that over the height); the output's size
    follows.
    """
    if len(op.custom) < 12:
        raise b.damaged(f"{len(op.custom)} bytes of options; padding and two strides are needed")
    padding, stride_w, stride_h = (int(v) for v in np.frombuffer(op.custom[:12], "<i4"))
    if padding not in (1, 2) or min(stride_h, stride_w) < 1:
        raise b.damaged(f"padding {padding}, strides {[stride_h, stride_w]}")
    if b.quantised():
        raise b.refuse("8-bit tensors are not supported; floats are")
    shape, data, strides = image(b, 0), _weights(b, 1, 4), [stride_h, stride_w]
    kernel = data.shape[1:3]
    size = [n * s if padding == 1 else (n - 1) * s + k for n, s, k in zip(shape[1:3], strides, kernel)]
    target = [shape[0], *size, data.shape[0]]
    pads, extra = pads_of_transposed(b, shape, data.shape, target, strides, padding == 1)
    attrs = {"kernel_shape": kernel, "strides": strides, "pads": pads, "output_padding": extra}
    inputs = [b.real(0, PLANES), b.constant("weights", np.ascontiguousarray(data.transpose(3, 0, 1, 2)))]
    b.quantize_into(b.onnx("ConvTranspose", [*inputs, *_bias(b, 2, data.shape[0])], attrs), PLANES)


@handles("FULLY_CONNECTED", table=PLAIN)
def fully_connected(b: TfliteBuilder, op: FileOp) -> None:
    if op.option("WeightsFormat", 0) != 0:
        raise b.refuse("shuffled weights are not supported")
    shape = b.shape(0)
    if b.source(1).data is None and b.source(1).dtype == np.float32 and len(b.shape(1)) == 2:
        n, k = b.shape(1)
        weights = b.onnx("Transpose", [b.real(1)], {"perm": [1, 0]})
    else:
        data = _weights(b, 1, 2)
        n, k = data.shape
        weights = b.constant("weights", np.ascontiguousarray(data.T))
    keep = bool(op.option("KeepNumDims", False))
    size = int(np.prod(shape, dtype=np.int64))
    if size % k or (keep and (not shape or shape[-1] != k)):
        raise b.damaged(f"input {list(shape)} and weights {[n, k]}")
    rows = b.onnx("Reshape", [b.real(0), b.constant("shape", [size // k, k], np.int64)], {"allowzero": 1})
    made = b.onnx("MatMul", [rows, weights])
    if b.has(2):
        bias = _bias(b, 2, n) if b.source(2).data is not None else [b.real(2)]
        made = b.onnx("Add", [made, *bias])
    made = b.activated(made)
    if keep:
        made = b.onnx("Reshape", [made, b.constant("shape", [*shape[:-1], n], np.int64)], {"allowzero": 1})
    b.quantize_into(made)


@handles("BATCH_MATMUL", table=PLAIN)
def batch_matmul(b: TfliteBuilder, op: FileOp) -> None:
    names = []
    for k, accessor in ((0, "AdjX"), (1, "AdjY")):
        name, rank = b.real(k), len(b.shape(k))
        if rank < 2:
            raise b.damaged(f"input {k} has rank {rank}")
        if op.option(accessor, False):
            name = b.onnx("Transpose", [name], {"perm": [*range(rank - 2), rank - 1, rank - 2]})
        names.append(name)
    b.quantize_into(b.onnx("MatMul", names))


@handles("AVERAGE_POOL_2D", "MAX_POOL_2D", "L2_POOL_2D", table=PLAIN)
def pool(b: TfliteBuilder, op: FileOp) -> None:
    kernel, strides, pads, _ = pool_windows(b)
    attrs = {"kernel_shape": kernel, "strides": strides, "pads": pads}
    x = b.real(0, PLANES)
    if op.name == "MAX_POOL_2D":
        made = b.onnx("MaxPool", [x], attrs)
    elif op.name == "AVERAGE_POOL_2D":
        made = b.onnx("AveragePool", [x], attrs)
    else:
        made = b.onnx("Sqrt", [b.onnx("AveragePool", [b.onnx("Mul", [x, x])], attrs)])
    b.quantize_into(b.activated(made), PLANES)


@handles("SOFTMAX", "LOG_SOFTMAX", table=PLAIN)
def softmax(b: TfliteBuilder, op: FileOp) -> None:
    x = b.real(0)
    if not b.shape(0):
        raise b.refuse(f"{b.source(0).name!r} has no dimension; 1 and more are accepted")
    beta = float(op.option("Beta", 1.0)) if op.name == "SOFTMAX" else 1.0
    if beta != 1.0:
        x = b.onnx("Mul", [x, b.constant("beta", beta, np.float32)])
    b.quantize_into(b.onnx("Softmax" if op.name == "SOFTMAX" else "LogSoftmax", [x], {"axis": -1}))


@handles("L2_NORMALIZATION", table=PLAIN)
def l2_normalization(b: TfliteBuilder, op: FileOp) -> None:
    """Divides by the length of the last axis, or by 1e-6 where it is shorter."""
    x, rank = b.real(0), len(b.shape(0))
    axes = b.constant("axes", [rank - 1], np.int64)
    length = b.onnx("Sqrt", [b.onnx("ReduceSumSquare", [x, axes], {"keepdims": 1})])
    length = b.onnx("Max", [length, b.constant("epsilon", 1e-6, np.float32)])
    b.quantize_into(b.activated(b.onnx("Div", [x, length])))


@handles("LOCAL_RESPONSE_NORMALIZATION", table=PLAIN)
def local_response_normalization(b: TfliteBuilder, op: FileOp) -> None:
    radius = op.option("Radius", 5)
    attrs = {"size": 2 * radius + 1, "bias": op.option("Bias", 1.0), "beta": op.option("Beta", 0.5)}
    attrs["alpha"] = op.option("Alpha", 1.0) * (2 * radius + 1)
    b.quantize_into(b.onnx("LRN", [b.real(0, PLANES)], attrs), PLANES)


@handles("RESIZE_BILINEAR", table=PLAIN)
def resize_bilinear(b: TfliteBuilder, op: FileOp) -> None:
    shape, size = image(b, 0), b.ints(1, "size")
    if len(size) != 2 or min(size) < 1:
        raise b.damaged(f"{list(shape)} to {size}")
    kind = "asymmetric"
    if op.option("AlignCorners", False):
        kind = "align_corners"
    elif op.option("HalfPixelCenters", False):
        kind = "half_pixel"
    out = b.constant("sizes", [shape[0], shape[3], *size], np.int64)
    attrs = {"mode": "linear", "coordinate_transformation_mode": kind}
    b.quantize_into(b.onnx("Resize", [b.real(0, PLANES), "", "", out], attrs), PLANES)
