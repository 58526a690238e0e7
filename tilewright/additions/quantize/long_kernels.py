"""1-D convolutions with more taps than the NPU's window, such as the frames of a Fourier transform.

    x [N, C, L], W [O, C, K], stride S   =>   x [N, C g, L / g], W [O, C g, K / g], stride S / g      g = gcd(K, S)

Every tap of the new one is g taps of the old: the same products, in another order.
"""

from __future__ import annotations

import math

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tilewright.compiler.limits import MAX_KERNEL
from tilewright.quantize.layers import Network, attributes_of


def shorten(model: onnx.ModelProto) -> bool:
    """Changes the model in place, if it has such a convolution; shapes of its tensors must have been inferred."""
    network = Network(model)
    made = [_shorter(model, network, node) or [node] for node in network.nodes]
    if all(len(nodes) == 1 for nodes in made):
        return False
    del model.graph.node[:]
    model.graph.node.extend(node for nodes in made for node in nodes)
    return True


def _shorter(model: onnx.ModelProto, network: Network, node: onnx.NodeProto) -> list[onnx.NodeProto] | None:
    """The nodes in place of a convolution; None where it stays."""
    weights = network.constant(node.input[1]) if node.op_type == "Conv" and node.domain == "" else None
    shape = network.shape(node.input[0]) if weights is not None else None
    if weights is None or weights.ndim != 3 or weights.dtype != np.float32 or shape is None or min(shape) < 1:
        return None
    attributes = attributes_of(node)
    given = {"group": 1, "dilations": [1], "pads": [0, 0], "auto_pad": b"NOTSET"}
    strides = attributes.get("strides")
    stride = int(strides[0]) if isinstance(strides, list) else 1
    outputs, channels, taps = weights.shape
    part = math.gcd(taps, stride)
    plain = all(attributes.get(name, value) == value for name, value in given.items())
    if taps <= MAX_KERNEL or part == 1 or taps // part > MAX_KERNEL or not plain or shape[2] < taps:
        return None
    length = (shape[2] - taps) // stride * stride + taps  # what is read: a multiple of `part`
    name, x = node.name or node.output[0], node.input[0]
    made: list[onnx.NodeProto] = []

    def constant(stem: str, value: np.ndarray) -> str:
        model.graph.initializer.append(numpy_helper.from_array(np.ascontiguousarray(value), f"{name}_{stem}"))
        return f"{name}_{stem}"

    def move(op: str, inputs: list[str], stem: str, **attrs: list[int]) -> str:
        made.append(helper.make_node(op, inputs, [f"{name}_{stem}_output"], f"{name}_{stem}", **attrs))
        return f"{name}_{stem}_output"

    if length < shape[2]:
        limits = [constant(f"slice_{i}", np.array([v], np.int64)) for i, v in enumerate((0, length, 2))]
        x = move("Slice", [x, *limits], "slice")
    split, joined = [shape[0], channels, length // part, part], [shape[0], channels * part, length // part]
    x = move("Reshape", [x, constant("split_shape", np.array(split, np.int64))], "split")
    x = move("Transpose", [x], "turn", perm=[0, 1, 3, 2])
    x = move("Reshape", [x, constant("join_shape", np.array(joined, np.int64))], "join")
    turned = weights.reshape(outputs, channels, taps // part, part).transpose(0, 1, 3, 2)
    held = constant("taps", turned.reshape(outputs, channels * part, taps // part))
    made.append(
        helper.make_node("Conv", [x, held, *node.input[2:]], list(node.output), node.name, strides=[stride // part])
    )
    return made
