"""AVERAGE_POOL_2D, MAX_POOL_2D, L2_POOL_2D and MEAN: of 8-bit activations, floats, and 16-bit activations."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from tilewright.compiler.graph.ops.elementwise import QLut
from tilewright.compiler.graph.ops.pooling import QAveragePool, QGlobalAveragePool, QMaxPool
from tilewright.compiler.importer.tflite.builder import FILE, PLANES, TfliteBuilder
from tilewright.compiler.importer.tflite.builtin import names_axis
from tilewright.compiler.importer.tflite.fixed_point import Integers
from tilewright.compiler.importer.tflite.handlers import PLAIN, WIDE, handles
from tilewright.compiler.importer.tflite.reduction import axes_of
from tilewright.compiler.importer.tflite.schema import FileOp
from tilewright.compiler.importer.tflite.wide import half_away, one_scale, scaled
from tilewright.compiler.importer.tflite.windows import pool_windows
from tilewright.isa import numerics


@handles("AVERAGE_POOL_2D", "MAX_POOL_2D")
def pool(b: TfliteBuilder, op: FileOp) -> None:
    x, y = b.source(0), b.target()
    if not b.byte_quant(x).same_as(b.byte_quant(y)) or x.dtype != y.dtype:
        raise b.refuse("input and output must have the same scale and zero point")
    shape = b.shape(0)
    kernel, strides, pads, out = pool_windows(b)
    point = op.option("FilterHeight", 0) == op.option("FilterWidth", 0) == 1
    moved = (op.option("StrideH", 0), op.option("StrideW", 0)) != (1, 1)
    # XNNPACK knows no strided window of 1.
    bounds = b.clamp(builtin=op.name == "AVERAGE_POOL_2D" or (point and moved) or names_axis(x, y))
    source = b.value(0, PLANES)
    result = b.result((shape[0], shape[3], *out), PLANES)
    if op.name == "MAX_POOL_2D":
        largest = QMaxPool(kernel=tuple(kernel), strides=tuple(strides), pads=tuple(pads))
        if bounds == b.clamp_of(y, -np.inf, np.inf):
            b.quantized(largest, [source], result)
            return
        raw = b.graph.like(b.graph.tensor(result), result)
        b.quantized(largest, [source], raw)
        every = np.arange(256, dtype=np.uint8).view(b.graph.tensor(raw).dtype)
        b.quantized(QLut(table=np.clip(every, *bounds).tobytes()), [raw], result)
    elif kernel == list(shape[1:3]) and not any(pads) and out == [1, 1]:
        b.quantized(QGlobalAveragePool(half_away=True).clamped(*bounds), [source], result)
    else:
        average = QAveragePool(kernel=tuple(kernel), strides=tuple(strides), pads=tuple(pads), half_away=True)
        b.quantized(average.clamped(*bounds), [source], result)


def _pooled(b: TfliteBuilder, x: str) -> str:
    """The maxima or averages of real values [N,C,H,W] in the op's windows."""
    kernel, strides, pads, _ = pool_windows(b)
    attrs = {"kernel_shape": kernel, "strides": strides, "pads": pads, "dilations": [1, 1]}
    return b.onnx("MaxPool" if b.op.name == "MAX_POOL_2D" else "AveragePool", [x], attrs)


@handles("AVERAGE_POOL_2D", "MAX_POOL_2D", table=PLAIN)
def real_pool(b: TfliteBuilder, op: FileOp) -> None:
    b.quantize_into(b.activated(_pooled(b, b.real(0, PLANES))), PLANES)


@handles("L2_POOL_2D", table=PLAIN)
def l2_pool(b: TfliteBuilder, op: FileOp) -> None:
    x = b.real(0, PLANES)
    b.quantize_into(b.activated(b.onnx("Sqrt", [_pooled(b, b.onnx("Mul", [x, x]))])), PLANES)


@handles("AVERAGE_POOL_2D", "MAX_POOL_2D", table=WIDE)
def wide_pool(b: TfliteBuilder, op: FileOp) -> None:
    """Imports pools in float64, which is exact for 16-bit sums and maxima; averages round ties away from zero."""
    one_scale(b, 0)
    made = _pooled(b, b.cast(b.value(0, PLANES), np.float64))
    if op.name == "AVERAGE_POOL_2D":
        made = half_away(b, made)
    ints = Integers(b)
    ints.finish(ints.of(made), PLANES, *b.clamp())


@handles("MEAN")
def mean(b: TfliteBuilder, op: FileOp) -> None:
    """Imports MEAN: a mean over axes 1 and 2 of an image runs directly; other axes are first moved into their place."""
    shape, rank = b.shape(0), len(b.shape(0))
    axes, keep = axes_of(b, 1), bool(op.option("KeepDims", False))
    if b.source(0).dtype != b.target().dtype:
        raise b.refuse("input and output types differ")
    n = int(np.prod([shape[a] for a in axes], dtype=np.int64))
    qx, qy = b.byte_quant(b.source(0)), b.byte_quant(b.target())
    factor = numerics.litert_mean_scale(qx.scale, qy.scale, n)
    offset = numerics.litert_mean_offset(factor, int(qx.zero_point), int(qy.zero_point), n)
    average = QGlobalAveragePool(factor=float(factor), offset=float(offset))
    average = average.clamped(*b.clamp_of(b.target(), -np.inf, np.inf))
    if rank == 4 and axes == [1, 2]:
        source = b.value(0, PLANES)
        out = b.result((shape[0], shape[3], 1, 1), PLANES) if keep else b.result((shape[0], shape[3]), FILE)
        b.quantized(replace(average, keepdims=keep), [source], out)
        return
    kept = [a for a in range(rank) if a not in axes]
    x = b.graph.tensor(b.value(0, FILE))
    name, planes = x.name, [1, x.size // max(n, 1), n, 1]
    name = b.moved("Transpose", [name], {"perm": [*kept, *axes]})
    name = b.moved("Reshape", [name, b.constant("shape", planes, np.int64)])
    out = b.result([1 if a in axes else s for a, s in enumerate(shape)] if keep else [shape[a] for a in kept])
    flat = b.graph.like(b.graph.tensor(out), out, (1, planes[1]))
    b.quantized(replace(average, keepdims=False), [name], flat)
    b.reshaped(flat, b.graph.tensor(out).shape, out)


@handles("MEAN", table=WIDE)
def wide_mean(b: TfliteBuilder, op: FileOp) -> None:
    """Imports MEAN: the sum in 32 bits, times a multiplier that is divided by the number of elements."""
    sx, sy = (float(b.wide_scale(t)) for t in (b.source(0), b.target()))
    axes, keep = axes_of(b, 1), int(bool(op.option("KeepDims", False)))
    n = math.prod(b.shape(0)[a] for a in axes)
    if not 0 < n < 1 << 16:
        raise b.refuse(f"a mean of {n} elements; 1 to 65535 are accepted")
    multiplier, shift = numerics.litert_multiplier(sx / sy)
    more = min(n.bit_length() - 1, 32, 31 + shift)
    ints = Integers(b)
    x = ints.of(b.value(0, FILE))
    if axes:
        x = b.onnx("ReduceSum", [x, b.constant("axes", axes, np.int64)], {"keepdims": keep})
    ints.finish(scaled(b, x, n << 15, (multiplier << more) // n, shift - more))
