"""SOFTMAX, LOG_SOFTMAX, L2_NORMALIZATION and LOCAL_RESPONSE_NORMALIZATION, of 8-bit activations or floats."""

from __future__ import annotations

import numpy as np

from tilewright.compiler.graph.ops.softmax import QSoftmax
from tilewright.compiler.importer.tflite.builder import PLANES, TfliteBuilder
from tilewright.compiler.importer.tflite.handlers import PLAIN, handles
from tilewright.compiler.importer.tflite.schema import FileOp


def _check_rank(b: TfliteBuilder) -> None:
    if not b.shape(0):
        raise b.refuse(f"{b.source(0).name!r} has no dimension; 1 and more are accepted")


@handles("SOFTMAX")
def byte_softmax(b: TfliteBuilder, op: FileOp) -> None:
    beta = float(op.option("Beta", 1.0))
    if not 0 < beta < np.inf:
        raise b.refuse(f"beta={beta:g}; numbers above 0 are accepted")
    _check_rank(b)
    shape = b.shape(0)
    b.byte_quant(b.source(0))
    b.byte_quant(b.target())
    b.quantized(QSoftmax(axis=len(shape) - 1, beta=beta), [b.value(0)], b.result(shape))


@handles("SOFTMAX", "LOG_SOFTMAX", table=PLAIN)
def real_softmax(b: TfliteBuilder, op: FileOp) -> None:
    x = b.real(0)
    _check_rank(b)
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
