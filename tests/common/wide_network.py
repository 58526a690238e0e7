"""The 16x8 form of a TFLite network of bytes: the same weights, activations of 16 bits, biases of 64."""

from __future__ import annotations

import numpy as np

from compiler.importer.tflite.schema import FileModel, FileOp, FileTensor, read
from tests.common.tflite_models import Model, Op, T

#: Options of an operator that are kept, by the name of its table.
_OPTIONS: dict[str, tuple[str, tuple[str, ...]]] = {
    "CONV_2D": ("Conv2DOptions", ("Padding", "StrideH", "StrideW", "DilationHFactor", "DilationWFactor",
                                  "FusedActivationFunction")),
    "DEPTHWISE_CONV_2D": ("DepthwiseConv2DOptions", ("Padding", "StrideH", "StrideW", "DilationHFactor",
                                                     "DilationWFactor", "DepthMultiplier", "FusedActivationFunction")),
    "FULLY_CONNECTED": ("FullyConnectedOptions", ("KeepNumDims", "FusedActivationFunction")),
    "ADD": ("AddOptions", ("FusedActivationFunction",)),
    "AVERAGE_POOL_2D": ("Pool2DOptions", ("Padding", "StrideH", "StrideW", "FilterHeight", "FilterWidth",
                                          "FusedActivationFunction")),
    "SOFTMAX": ("SoftmaxOptions", ("Beta",)),
    "MEAN": ("ReducerOptions", ("KeepDims",)),
}  # fmt: skip
_WEIGHTED = ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED")


def widened(data: bytes) -> bytes:
    """A network of int8 activations as one of int16 activations, whose zero points are 0: each tensor's new range is
    that of the larger side of the old one."""
    file = read(data)
    names = [t.name for t in file.tensors]
    used = {i for op in file.ops for i in (*op.inputs, *op.outputs) if i >= 0}
    biases = {op.inputs[2]: op for op in file.ops if op.name in _WEIGHTED and len(op.inputs) > 2}
    fractions = {op.outputs[0] for op in file.ops if op.name in ("SOFTMAX", "LOGISTIC", "TANH")}
    scales = {
        t.index: 2.0**-15 if t.index in fractions else _wide_scale(t)
        for t in file.tensors
        if t.dtype == np.int8 and t.data is None
    }
    tensors = []
    for t in (file.tensors[i] for i in sorted(used)):
        if t.index in scales:
            tensors.append(T(t.name, t.shape, "int16", scales[t.index]))
        elif t.index in biases:
            tensors.append(_bias(file, t, biases[t.index], scales))
        else:
            assert t.dtype is not None
            given = {} if t.quant is None else {"scale": t.quant.scale, "axis": t.quant.axis or 0}
            tensors.append(T(t.name, t.shape, t.dtype.name, data=t.data, **given))
    ops = []
    for op in file.ops:
        table, kept = _OPTIONS.get(op.name, ("", ()))
        options = {k: op.option(k, 0) for k in kept} | ({"PotScaleInt16": False} if op.name == "ADD" else {})
        ins, outs = ([names[i] if i >= 0 else "" for i in ends] for ends in (op.inputs, op.outputs))
        ops.append(
            Op(
                op.name,
                ins,
                outs,
                (table, options) if table else None,
                4 if op.name in _WEIGHTED else 3 if table else 1,
            )
        )
    return Model(tensors, ops, [names[i] for i in file.inputs], [names[i] for i in file.outputs]).build()


def _wide_scale(t: FileTensor) -> float:
    assert t.quant is not None
    zero = int(t.quant.zero_point)
    return float(np.float32(float(t.quant.scale) * max(128 + zero, 127 - zero) / 32767))


def _bias(file: FileModel, t: FileTensor, op: FileOp, scales: dict[int, float]) -> T:
    """The bias in steps of the new activations' scale times the weights'."""
    x, w = (file.tensors[i].quant for i in op.inputs[:2])
    assert x is not None and w is not None and t.data is not None and not np.any(w.zero_point)
    new = scales[op.inputs[0]]
    values = np.rint(t.data.astype(np.float64) * float(x.scale) / new).astype(np.int64)
    return T(t.name, t.shape, "int64", new * w.scale, data=values)
