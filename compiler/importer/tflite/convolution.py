"""CONV_2D and _3D, DEPTHWISE_CONV_2D, TRANSPOSE_CONV, FULLY_CONNECTED and BATCH_MATMUL, on every type of activation."""

from __future__ import annotations

import numpy as np

from tilewright.compiler.graph.ops.product import QMatMul
from tilewright.compiler.graph.ops.quantized_op import ROUNDS_TWICE
from tilewright.compiler.importer.tflite.builder import TfliteBuilder
from tilewright.compiler.importer.tflite.byte_products import ByteProducts
from tilewright.compiler.importer.tflite.handlers import PLAIN, handles
from tilewright.compiler.importer.tflite.package import tflite
from tilewright.compiler.importer.tflite.products import Products
from tilewright.compiler.importer.tflite.real_products import RealProducts
from tilewright.compiler.importer.tflite.schema import FileOp
from tilewright.compiler.importer.tflite.wide_products import WideProducts
from tilewright.compiler.importer.tflite.windows import (
    Window,
    convolution_window,
    image,
    product_shapes,
    strides_of,
    transposed_window,
    weights_shape,
    windows,
)


def _products(b: TfliteBuilder) -> Products:
    """The arithmetic for the op's activations."""
    return WideProducts(b) if b.wide() else ByteProducts(b) if b.quantised() else RealProducts(b)


@handles("CONV_2D", "DEPTHWISE_CONV_2D", wide=True)
def convolution(b: TfliteBuilder, op: FileOp) -> None:
    _products(b).convolution(convolution_window(b))


@handles("CONV_3D", table=PLAIN)
def convolution_3d(b: TfliteBuilder, op: FileOp) -> None:
    """Imports CONV_3D of floats: x [N,D,H,W,C], weights [kd,kh,kw,C/group,O], optional bias."""
    if b.quantised():
        raise b.refuse("8-bit tensors are not supported; floats are")
    shape, weights = b.shape(0), weights_shape(b, 5)
    if len(shape) != 5 or shape[4] % weights[3]:
        raise b.damaged(f"input {list(shape)} and weights {list(weights)}")
    kernel, strides = list(weights[:3]), [op.option(f"Stride{axis}", 1) for axis in "DHW"]
    dilations = [op.option(f"Dilation{axis}Factor", 1) for axis in "DHW"]
    out, pads = windows(b, shape[1:4], kernel, strides, dilations)
    window = Window(
        kernel, strides, pads, (shape[0], weights[4], *out), 4, (4, 3, 0, 1, 2), dilations, shape[4] // weights[3]
    )
    RealProducts(b).convolution_3d(window)


@handles("TRANSPOSE_CONV", wide=True)
def transpose_conv(b: TfliteBuilder, op: FileOp) -> None:
    """Imports TRANSPOSE_CONV. Inputs: output shape, weights [O,kh,kw,C], x, optional bias."""
    same = op.option("Padding", 0) == tflite.Padding.SAME
    window = transposed_window(b, 2, 3, b.ints(0, "output shape"), strides_of(b), same)
    _products(b).transposed(window)


@handles("Convolution2DTransposeBias")
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
    (n, *size, _), (made, *kernel, _), strides = image(b, 0), weights_shape(b, 4), [stride_h, stride_w]
    size = [n * s if padding == 1 else (n - 1) * s + k for n, s, k in zip(size, strides, kernel)]
    RealProducts(b).transposed(transposed_window(b, 0, 2, [n, *size, made], strides, padding == 1))


@handles("FULLY_CONNECTED", wide=True)
def fully_connected(b: TfliteBuilder, op: FileOp) -> None:
    _products(b).product(*product_shapes(b))


@handles("BATCH_MATMUL", wide=True)
def batch_matmul(b: TfliteBuilder, op: FileOp) -> None:
    """Imports the product of two activations: of int8 as one op, of int16 in integers, of others by way of floats."""
    names, wide, quantised = [], b.wide(), b.quantised()
    for k, accessor in ((0, "AdjX"), (1, "AdjY")):
        t, rank = b.source(k), len(b.shape(k))
        if rank < 2:
            raise b.damaged(f"input {k} has rank {rank}; 2 or more is accepted")
        if quantised and not wide:
            b.byte_quant(t)
            if t.dtype != np.int8 or b.target().dtype != np.int8:
                raise b.refuse(f"input {k} is {t.type_name}, the result {b.target().type_name}; int8 is accepted")
        name = b.value(k) if quantised or wide else b.real(k)
        if op.option(accessor, False):
            name = b.moved("Transpose", [name], {"perm": [*range(rank - 2), rank - 1, rank - 2]})
        names.append(name)
    (*first, m, k), (*second, rows, n) = (b.graph.tensor(name).shape for name in names)
    if rows != k:
        raise b.damaged(f"{list(b.shape(0))} and {list(b.shape(1))}")
    if wide:
        WideProducts(b).batch(names)
    elif quantised:
        y = b.result((*np.broadcast_shapes(first, second), m, n))
        limits = b.clamp_of(b.target(), -np.inf, np.inf)
        b.quantized(QMatMul(reason=ROUNDS_TWICE).clamped(*limits), names, y)
    else:
        b.quantize_into(b.onnx("MatMul", names))
