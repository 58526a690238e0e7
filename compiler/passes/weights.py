"""Constant weights as int8 and biases as int32.

uint8 w, zero point z   =>  int8 w - 128, zero point z - 128        (w - z unchanged)
all w - z within int8   =>  int8 w - z, zero point 0
"""

from __future__ import annotations

import numpy as np

from compiler.graph import Graph, Node, Quant
from compiler.passes.annotate import quant_of
from compiler.tensor import EIGHT_BIT, NARROW


def constant_weights(graph: Graph, dequantize: Node | None, axis: int) -> tuple[np.ndarray, Quant] | None:
    """int8 values and quantisation of a dequantised constant of 8, 4 or 2 bits; None if it is anything else.

    Args:
        axis: the output channel axis; per-channel scales along another axis do not fit the integer ops.
    """
    if dequantize is None or dequantize.op != "DequantizeLinear":
        return None
    quant, tensor = quant_of(graph, dequantize), graph.tensor(dequantize.inputs[0])
    if quant is None or tensor.data is None or tensor.dtype not in (*EIGHT_BIT, *NARROW):
        return None
    axis %= max(len(tensor.shape), 1)
    if not quant.per_tensor and quant.axis != axis:
        return None
    shape = [1] * len(tensor.shape)
    if not quant.per_tensor:
        shape[axis] = -1
    zero = quant.zero_point.reshape(shape) if not quant.per_tensor else quant.zero_point
    centred = tensor.data.astype(np.int32) - zero
    if centred.size == 0 or (centred.min() >= -128 and centred.max() <= 127):
        return centred.astype(np.int8), Quant(quant.scale, np.zeros_like(quant.zero_point), quant.axis)
    # |w - z| exceeds int8, so the zero point is far off the middle of uint8, or int8 has a zero point.
    shift = 128 if tensor.dtype == np.uint8 else 0
    return (tensor.data.astype(np.int32) - shift).astype(np.int8), Quant(
        quant.scale, quant.zero_point - np.int32(shift), quant.axis
    )


def add_weights(graph: Graph, dequantize: Node, data: np.ndarray, quant: Quant) -> str:
    """Name of a constant with these values: the ONNX tensor itself if it holds them already."""
    tensor = graph.tensor(dequantize.inputs[0])
    if tensor.dtype == np.int8 and data is not None and tensor.shape == data.shape:
        if np.array_equal(tensor.data, data) and quant.same_as(tensor.quant):  # type: ignore[arg-type]
            return tensor.name
    return graph.constant(f"{tensor.name}.int8", data, quant)


def constant_bias(
    graph: Graph, name: str, producers: dict[str, Node], x: Quant, w: Quant, channels: int
) -> np.ndarray | None:
    """int32 bias [channels]: the integers of a dequantised int32 constant, or RNE(b / f32(sx * sw)) of a float one.

    onnxruntime takes the integers whatever scale the model dequantises them with, and so does this.
    None if the bias is not constant or not one value per channel.
    """
    node = producers.get(name)
    if node is not None and node.op == "DequantizeLinear":
        tensor = graph.tensor(node.inputs[0])
        if tensor.data is not None and tensor.dtype == np.int32 and not node.attrs.get("block_size"):
            return _per_channel(tensor.data, channels)
        return None
    value = graph.const(name)
    if value is None or value.dtype != np.float32:
        return None
    value = _per_channel(value, channels)
    if value is None:
        return None
    scale = np.asarray(x.scale * w.scale, np.float32)
    with np.errstate(all="ignore"):
        scaled = np.rint(value / scale).astype(np.float64)
    info = np.iinfo(np.int32)
    return np.clip(np.nan_to_num(scaled), info.min, info.max).astype(np.int32)


def _per_channel(value: np.ndarray, channels: int) -> np.ndarray | None:
    """The bias as [channels] where its shape says one value per last axis."""
    if value.size == 1:
        return np.full(channels, value.reshape(()), value.dtype)
    if value.size == channels and value.shape[-1] == channels:
        return value.reshape(channels)
    return None
