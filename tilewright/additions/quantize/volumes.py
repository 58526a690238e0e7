"""3-D convolutions as 2-D ones, which the NPU has: the taps along the depth become channels, the depth of the result a
batch.

    x [N, C, D, H, W], W [O, C, K, ..]   =>   x [N D', C K, H, W], W [O, C K, ..]

For each of the D' results along the depth the K planes that it reads are gathered.
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper

from tilewright.quantize.layers import Network, attributes_of
from tilewright.quantize.rewriting import Moves, numbers, replace_nodes


def flatten(model: onnx.ModelProto) -> bool:
    """Changes the model in place, if it has such a convolution; shapes of its tensors must have been inferred."""
    return replace_nodes(model, _flat)


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
    moves, x = Moves(model, node), str(node.input[0])
    if pads[0] or pads[3]:
        x = moves.move("Pad", [x, moves.integers("pads", [0, 0, pads[0], 0, 0, 0, 0, pads[3], 0, 0])], "pad")
    if kernel[0] > 1 or strides[0] > 1:
        planes = np.arange(deep)[:, None] * strides[0] + np.arange(kernel[0]) * dilations[0]
        x = moves.move("Gather", [x, moves.integers("planes", planes)], "planes", axis=2)
        x = moves.move("Transpose", [x], "turn", perm=[0, 2, 1, 3, 4, 5])
    else:
        x = moves.move("Transpose", [x], "turn", perm=[0, 2, 1, 3, 4])
    x = moves.reshape(x, "flat", [batch * deep, channels * kernel[0], height, width])
    held = moves.constant("taps", weights.reshape(outputs, per_group * kernel[0], *kernel[1:]))
    result = f"{moves.name}_flat_of"
    moves.made.append(
        helper.make_node(
            "Conv", [x, held, *node.input[2:]], [result], moves.name, group=attributes.get("group", 1),
            pads=[*pads[1:3], *pads[4:]], strides=strides[1:], dilations=dilations[1:],
        )
    )  # fmt: skip
    y = moves.reshape(result, "deep", [batch, deep, outputs, high, wide])
    moves.move("Transpose", [y], "back", node.output[0], perm=[0, 2, 1, 3, 4])
    return moves.made
