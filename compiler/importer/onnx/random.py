"""Random ops: the numbers are drawn at compile time, so that a program is a function of its inputs.

They are those of onnx's reference implementation for the same seed. Without a seed, one is made from the node's name.
"""

from __future__ import annotations

import zlib

import numpy as np

from tilewright.compiler.errors import CompileError
from tilewright.compiler.graph.graph import Tensor
from tilewright.compiler.importer.onnx.builder import OnnxBuilder
from tilewright.compiler.importer.onnx.handlers import handles
from tilewright.compiler.importer.onnx.onnx_node import OnnxNode
from tilewright.compiler.onnx.onnx_ops import elem_type, numpy_dtype


def generator(node: OnnxNode) -> np.random.RandomState:
    """The node's generator, numpy's MT19937, seeded."""
    seed = node.attrs.get("seed")
    return np.random.RandomState(zlib.crc32(node.label.encode()) if seed is None else int(seed))


@handles("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike")
def random(builder: OnnxBuilder, node: OnnxNode) -> None:
    like = builder.tensor(node.input(0)) if node.input(0) else None
    kind = node.attrs.get("dtype")
    if kind is not None or like is None:
        dtype = numpy_dtype(int(kind or 1), f"{node.label}: attribute dtype={kind}")
    else:
        dtype = like.dtype
    shape = like.shape if like is not None else tuple(int(n) for n in node.attrs["shape"])
    if min(shape, default=0) < 0:
        raise CompileError(f"{node.label}: shape={list(shape)} has a negative dimension")
    state = generator(node)
    if "Normal" in node.op:
        scale, offset = node.attrs.get("scale", 1.0), node.attrs.get("mean", 0.0)
        values = np.asarray(state.randn(*shape))
    else:
        low, high = node.attrs.get("low", 0.0), node.attrs.get("high", 1.0)
        scale, offset = high - low, low
        values = np.asarray(state.rand(*shape))
    values = values.astype(dtype)
    values = (values * np.asarray(scale, dtype) + np.asarray(offset, dtype)).astype(dtype)
    builder.graph.add(Tensor(node.output(0), values.shape, values.dtype, values))


@handles("Multinomial")
def multinomial(builder: OnnxBuilder, node: OnnxNode) -> None:
    """Imports log-probabilities [batch, classes] -> classes [batch, samples], by uniform numbers in cumulative sums."""
    batch, _ = builder.shape(node.input(0))
    dtype = numpy_dtype(int(node.attrs.get("dtype", 6)), f"{node.label}: attribute dtype")
    samples = generator(node).rand(batch, int(node.attrs.get("sample_size", 1)), 1).astype(np.float32)
    logs = builder.emit("Cast", [node.input(0)], attrs={"to": 1})
    sums = builder.emit("CumSum", [builder.emit("Softmax", [logs], attrs={"axis": 1}), builder.constant("axis", 1)])
    sums = builder.emit("Unsqueeze", [sums, builder.ints("axes", [1])])
    # The last sum is 1 but for rounding, and no number is 1.
    below = builder.emit("GreaterOrEqual", [builder.constant("uniform", samples), sums])
    below = builder.emit("Cast", [below], attrs={"to": elem_type(np.dtype(np.int32))})
    consecutive_positions = builder.emit("ReduceSum", [below, builder.ints("axes", [2])], attrs={"keepdims": 0})
    last = builder.constant("last", builder.shape(node.input(0))[1] - 1, np.int32)
    clipped = builder.emit("Min", [consecutive_positions, last])
    builder.emit("Cast", [clipped], [node.output(0)], {"to": elem_type(dtype)})
