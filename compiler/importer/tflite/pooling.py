"""AVERAGE_POOL_2D, MAX_POOL_2D, MEAN."""

from __future__ import annotations

from typing import Any

import numpy as np

from compiler.graph import Tensor
from compiler.importer.tflite.builder import FILE, PLANES, Builder
from compiler.importer.tflite.convolution import windows
from compiler.importer.tflite.reduction import axes_of
from compiler.importer.tflite.registry import handles
from compiler.importer.tflite.schema import FileOp
from isa import numerics


@handles("AVERAGE_POOL_2D", "MAX_POOL_2D")
def pool(b: Builder, op: FileOp) -> None:
    shape = b.shape(0)
    if len(shape) != 4:
        raise b.damaged(f"input has shape {list(shape)}, rank 4 is needed")
    x, y = b.source(0), b.target()
    if not b.byte_quant(x).same_as(b.byte_quant(y)) or x.dtype != y.dtype:
        raise b.refuse("input and output must have the same scale and zero point")
    kernel = [op.option("FilterHeight", 0), op.option("FilterWidth", 0)]
    strides = [op.option("StrideH", 0), op.option("StrideW", 0)]
    out, pads = windows(b, shape[1:3], kernel, strides, [1, 1], op.option("Padding", 0))
    clamp = b.clamp()
    source = b.value(0, PLANES)
    result = b.result((shape[0], shape[3], *out), PLANES)
    if op.name == "MAX_POOL_2D":
        attrs = {"kernel": kernel, "strides": strides, "pads": pads, "dilations": [1, 1]}
        if clamp == b.clamp_of(y, -np.inf, np.inf):
            b.node("QMaxPool", [source], result, attrs)
            return
        raw = b.graph.unique(result)
        t = b.graph.tensor(result)
        b.graph.add(Tensor(raw, t.shape, t.dtype, None, t.quant))
        b.node("QMaxPool", [source], raw, attrs)
        every = np.arange(256, dtype=np.uint8).view(t.dtype)
        table = np.clip(every, clamp["out_min"], clamp["out_max"]).view(np.uint8)
        b.node("QLut", [raw], result, {"table": table})
    elif kernel == list(shape[1:3]) and not any(pads) and out == [1, 1]:
        b.node("QGlobalAveragePool", [source], result, {"keepdims": 1, "half_away": 1, **clamp})
    else:
        shares: dict[str, Any] = {"kernel": kernel, "strides": strides, "pads": pads, "count_include_pad": 0}
        b.node("QAveragePool", [source], result, {**shares, "half_away": 1, **clamp})


@handles("MEAN")
def mean(b: Builder, op: FileOp) -> None:
    """Over axes 1 and 2 of an image as it is; any others are brought into the place of its two."""
    shape, rank = b.shape(0), len(b.shape(0))
    axes, keep = axes_of(b, 1), bool(op.option("KeepDims", False))
    if b.source(0).dtype != b.target().dtype:
        raise b.refuse("input and output types differ")
    n = int(np.prod([shape[a] for a in axes], dtype=np.int64))
    qx, qy = b.byte_quant(b.source(0)), b.byte_quant(b.target())
    factor = numerics.litert_mean_scale(qx.scale, qy.scale, n)
    offset = numerics.litert_mean_offset(factor, int(qx.zero_point), int(qy.zero_point), n)
    attrs = {"factor": float(factor), "offset": float(offset), **b.clamp_of(b.target(), -np.inf, np.inf)}
    if rank == 4 and axes == [1, 2]:
        source = b.value(0, PLANES)
        out = b.result((shape[0], shape[3], 1, 1), PLANES) if keep else b.result((shape[0], shape[3]), FILE)
        b.node("QGlobalAveragePool", [source], out, {"keepdims": int(keep), **attrs})
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
    b.node("QGlobalAveragePool", [name], flat, {"keepdims": 0, **attrs})
    b.onnx("Reshape", [flat, b.constant("shape", t.shape, np.int64)], {"allowzero": 1}, out)
