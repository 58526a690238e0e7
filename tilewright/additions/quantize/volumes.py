"""3-D convolutions as 2-D ones, which the NPU has: the taps along the depth become channels, the depth of the result a
batch.

    x [N, C, D, H, W], W [O, C, K, ..]   =>   x [N D', C K, H, W], W [O, C K, ..]

For each of the D' results along the depth the K planes that it reads are gathered.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tilewright.quantize.layers import Network, attributes_of


def flatten(model: onnx.ModelProto) -> bool:
    """Changes the model in place, if it has such a convolution; shapes of its tensors must have been inferred."""
    network = Network(model)
    made = [_flat(model, network, node) or [node] for node in network.nodes]
    if all(len(nodes) == 1 for nodes in made):
        return False
    del model.graph.node[:]
    model.graph.node.extend(node for nodes in made for node in nodes)
    return True


def numbers(attributes: Mapping[str, object], name: str, default: list[int]) -> list[int]:
    """The integers of an attribute."""
    found = attributes.get(name, default)
    return [int(n) for n in found] if isinstance(found, list) else default


def _flat(model: onnx.ModelProto, network: Network, node: onnx.NodeProto) -> list[onnx.NodeProto] | None:
    """The nodes in place of a convolution; None where it stays."""
    weights = network.constant(node.input[1]) if node.op_type == "Conv" and node.domain == "" else None
    shape = network.shape(node.input[0]) if weights is not None and weights.ndim == 5 else None
    attributes = attributes_of(node)
    auto = attributes.get("auto_pad", b"NOTSET") not in (b"NOTSET", b"VALID")
    if weights is None or weights.dtype != np.float32 or shape is None or min(shape) < 1 or auto:
        return None
    pads = numbers(attributes, "pads", [0] * 6)
    strides, dilations = (numbers(attributes, name, [1] * 3) for name in ("strides", "dilations"))
    batch, channels, _, height, width = shape
    outputs, per_group, *kernel = weights.shape
    size = lambda axis: (
        (shape[2 + axis] + pads[axis] + pads[3 + axis] - (kernel[axis] - 1) * dilations[axis] - 1) // strides[axis] + 1
    )
    deep, high, wide = (size(axis) for axis in range(3))
    name, made = node.name or node.output[0], []

    def integers(what: str, values: object) -> str:
        model.graph.initializer.append(numpy_helper.from_array(np.array(values, np.int64), f"{name}_{what}"))
        return f"{name}_{what}"

    def move(op: str, inputs: list[str], what: str, **more: object) -> str:
        made.append(helper.make_node(op, inputs, [f"{name}_{what}_output"], f"{name}_{what}", **more))
        return f"{name}_{what}_output"

    x = str(node.input[0])
    if pads[0] or pads[3]:
        x = move("Pad", [x, integers("pads", [0, 0, pads[0], 0, 0, 0, 0, pads[3], 0, 0])], "pad")
    if kernel[0] > 1 or strides[0] > 1:
        planes = np.arange(deep)[:, None] * strides[0] + np.arange(kernel[0]) * dilations[0]
        x = move("Gather", [x, integers("planes", planes)], "planes", axis=2)
        x = move("Transpose", [x], "turn", perm=[0, 2, 1, 3, 4, 5])
    else:
        x = move("Transpose", [x], "turn", perm=[0, 2, 1, 3, 4])
    x = move("Reshape", [x, integers("flat_shape", [batch * deep, channels * kernel[0], height, width])], "flat")
    held = weights.reshape(outputs, per_group * kernel[0], *kernel[1:])
    model.graph.initializer.append(numpy_helper.from_array(np.ascontiguousarray(held), f"{name}_taps"))
    result = f"{name}_flat_of"
    made.append(
        helper.make_node(
            "Conv", [x, f"{name}_taps", *node.input[2:]], [result], name, group=attributes.get("group", 1),
            pads=[*pads[1:3], *pads[4:]], strides=strides[1:], dilations=dilations[1:],
        )
    )  # fmt: skip
    y = move("Reshape", [result, integers("deep_shape", [batch, deep, outputs, high, wide])], "deep")
    move("Transpose", [y], "back", perm=[0, 2, 1, 3, 4])
    made[-1].output[0] = node.output[0]
    return made
