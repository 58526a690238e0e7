"""AVERAGE_POOL_2D, MAX_POOL_2D, MEAN."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tilewright.compiler.graph.graph import Tensor
from tilewright.compiler.graph.ops.elementwise import QLut
from tilewright.compiler.graph.ops.pooling import QAveragePool, QGlobalAveragePool, QMaxPool
from tilewright.compiler.importer.tflite.builder import FILE, PLANES, TfliteBuilder
from tilewright.compiler.importer.tflite.builtin import names_axis
from tilewright.compiler.importer.tflite.convolution import pool_windows
from tilewright.compiler.importer.tflite.handlers import handles
from tilewright.compiler.importer.tflite.reduction import axes_of
from tilewright.compiler.importer.tflite.schema import FileOp
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
    clamp = b.clamp(builtin=op.name == "AVERAGE_POOL_2D" or (point and moved) or names_axis(x, y))
    source = b.value(0, PLANES)
    result = b.result((shape[0], shape[3], *out), PLANES)
    if op.name == "MAX_POOL_2D":
        largest = QMaxPool(kernel=tuple(kernel), strides=tuple(strides), pads=tuple(pads))
        if clamp == b.clamp_of(y, -np.inf, np.inf):
            b.quantized(largest, [source], result)
            return
        raw = b.graph.unique(result)
        t = b.graph.tensor(result)
        b.graph.add(Tensor(raw, t.shape, t.dtype, None, t.quant))
        b.quantized(largest, [source], raw)
        every = np.arange(256, dtype=np.uint8).view(t.dtype)
        b.quantized(QLut(table=np.clip(every, *clamp).tobytes()), [raw], result)
    elif kernel == list(shape[1:3]) and not any(pads) and out == [1, 1]:
        b.quantized(QGlobalAveragePool(half_away=True).clamped(*clamp), [source], result)
    else:
        average = QAveragePool(kernel=tuple(kernel), strides=tuple(strides), pads=tuple(pads), half_away=True)
        b.quantized(average.clamped(*clamp), [source], result)


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
    steps = [("Transpose", {"perm": [*kept, *axes]}), ("Reshape", {})]
    for kind, more in steps:
        inputs = [name] if kind == "Transpose" else [name, b.constant("shape", planes, np.int64)]
        name = b.onnx(kind, inputs, more)
        b.graph.tensor(name).quant = x.quant
    out = b.result([1 if a in axes else s for a, s in enumerate(shape)] if keep else [shape[a] for a in kept])
    t = b.graph.tensor(out)
    flat = b.graph.unique(out)
    b.graph.add(Tensor(flat, (1, planes[1]), t.dtype, None, t.quant))
    b.quantized(replace(average, keepdims=False), [name], flat)
    b.onnx("Reshape", [flat, b.constant("shape", t.shape, np.int64)], {"allowzero": 1}, out)
