"""Convolutions that reach further than the window of the NPU.

Of 1-D ones with many taps, such as the frames of a Fourier transform, every tap of the new one is g taps of the old:

    x [N, C, L], W [O, C, K], stride S   =>   x [N, C g, L / g], W [O, C g, K / g], stride S / g      g = gcd(K, S)

1-D ones with a large dilation D, as in temporal convolution networks, walk down the columns of a plane of D columns:

    x [N, C, L], W [O, C, K], dilation D   =>   x [N, C, L / D, D], W [O, C, K, 1]

Of kernels with as many rows, on planes with little more, rows become channels; the weights of each row of results are
those of the kernel, moved down:

    x [N, C, H, L], W [O, C, K, T]   =>   x [N, C H, L], W [O R, C H, T]      R = H - K + 1

All have the same products, in another order, the last one with zeros between them.
"""

from __future__ import annotations

import math

import numpy as np
import onnx
from onnx import helper

from tilewright.compiler.limits import MAX_KERNEL, MAX_NPU_PAD, MAX_NPU_STEP
from tilewright.quantize.layers import Network, attributes_of
from tilewright.quantize.rewriting import Moves, numbers, replace_nodes

_MOST_ZEROS = 2
"""The rows of a plane over those of a kernel, at most: so many products more there are."""

_MOST_CHANNELS = 4096
"""Maximum of channels that rows become."""


def shorten(model: onnx.ModelProto) -> bool:
    """Changes the model in place, if it has such a convolution; shapes of its tensors must have been inferred."""
    return replace_nodes(model, _shorter, _folded, _flattened)


def _shorter(model: onnx.ModelProto, network: Network, node: onnx.NodeProto) -> list[onnx.NodeProto] | None:
    """The nodes in place of a convolution; None where it stays."""
    found = _operands(network, node)
    if found is None:
        return None
    weights, shape = found
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
    moves, x = Moves(model, node), node.input[0]
    if length < shape[2]:
        x = _until(moves, x, length)
    split, joined = [shape[0], channels, length // part, part], [shape[0], channels * part, length // part]
    x = moves.reshape(x, "split", split)
    x = moves.move("Transpose", [x], "turn", perm=[0, 1, 3, 2])
    x = moves.reshape(x, "join", joined)
    turned = weights.reshape(outputs, channels, taps // part, part).transpose(0, 1, 3, 2)
    held = moves.constant("taps", turned.reshape(outputs, channels * part, taps // part))
    conv = helper.make_node("Conv", [x, held, *node.input[2:]], list(node.output), node.name, strides=[stride // part])
    return [*moves.made, conv]


def _folded(model: onnx.ModelProto, network: Network, node: onnx.NodeProto) -> list[onnx.NodeProto] | None:
    """The nodes in place of a convolution with a large dilation; None where it stays."""
    found = _operands(network, node)
    if found is None:
        return None
    weights, (batch, channels, length) = found
    attributes = attributes_of(node)
    dilation, stride = (numbers(attributes, name, [1])[0] for name in ("dilations", "strides"))
    pads = numbers(attributes, "pads", [0, 0])
    reaches = dilation > MAX_NPU_STEP or (dilation > 1 and max(pads) > MAX_NPU_PAD)
    if not reaches or stride != 1 or attributes.get("auto_pad", b"NOTSET") not in (b"NOTSET", b"VALID"):
        return None
    outputs, _, taps = weights.shape
    whole = length + sum(pads)
    rows, result = -(-whole // dilation), whole - (taps - 1) * dilation
    moves, x = Moves(model, node), node.input[0]
    pads[1] += rows * dilation - whole
    if any(pads):
        x = moves.move("Pad", [x, moves.integers("pads", [0, 0, pads[0], 0, 0, pads[1]])], "pad")
    x = moves.reshape(x, "plane", [batch, channels, rows, dilation])
    made = (rows - taps + 1) * dilation
    held = moves.constant("taps", weights[..., None])
    group = attributes.get("group", 1)
    conv = helper.make_node("Conv", [x, held, *node.input[2:]], [f"{moves.name}_plane_of"], node.name, group=group)
    moves.made.append(conv)
    y = moves.reshape(conv.output[0], "line", [batch, outputs, made])
    if made > result:
        _until(moves, y, result)
    moves.made[-1].output[0] = node.output[0]
    return moves.made


def _flattened(model: onnx.ModelProto, network: Network, node: onnx.NodeProto) -> list[onnx.NodeProto] | None:
    """The nodes in place of a convolution whose kernel has many rows, nearly as many as the plane; None where it
    stays."""
    found = _operands(network, node, 4)
    if found is None:
        return None
    weights, (batch, channels, height, width) = found
    attributes = attributes_of(node)
    top, left, bottom, right = numbers(attributes, "pads", [0] * 4)
    stride, along = numbers(attributes, "strides", [1, 1])
    plain = numbers(attributes, "dilations", [1, 1]) == [1, 1] and attributes.get("group", 1) == 1
    outputs, _, taps, _ = weights.shape
    results = (height + top + bottom - taps) // stride + 1
    auto = attributes.get("auto_pad", b"NOTSET") not in (b"NOTSET", b"VALID")
    if taps <= MAX_KERNEL or height > _MOST_ZEROS * taps or not plain or auto or channels * height > _MOST_CHANNELS:
        return None
    wide = np.zeros((outputs, results, channels, height, weights.shape[3]), np.float32)
    for row in range(results):
        start = row * stride - top
        part = slice(max(start, 0), min(start + taps, height))
        wide[:, row, :, part] = weights[:, :, part.start - start : part.stop - start]
    moves = Moves(model, node)
    x = moves.reshape(node.input[0], "flat", [batch, channels * height, width])
    held = moves.constant("rows", wide.reshape(outputs * results, channels * height, weights.shape[3]))
    bias = network.constant(node.input[2]) if len(node.input) > 2 and node.input[2] else None
    more = [] if bias is None else [moves.constant("bias", np.repeat(bias, results))]
    reads, name = [x, held, *more], f"{moves.name}_flat_of"
    moves.made.append(helper.make_node("Conv", reads, [name], node.name, pads=[left, right], strides=[along]))
    moves.reshape(name, "unflat", [batch, outputs, results, (width + left + right - weights.shape[3]) // along + 1])
    moves.made[-1].output[0] = node.output[0]
    return moves.made


def _operands(network: Network, node: onnx.NodeProto, rank: int = 3) -> tuple[np.ndarray, list[int]] | None:
    """Weights of a rank and the shape of what is read; None of nodes that are no convolution with constant weights."""
    weights = network.constant(node.input[1]) if node.op_type == "Conv" and node.domain == "" else None
    shape = network.shape(node.input[0]) if weights is not None else None
    if weights is None or weights.ndim != rank or weights.dtype != np.float32 or shape is None or min(shape) < 1:
        return None
    return weights, shape


def _until(moves: Moves, x: str, length: int) -> str:
    """The first places of the last of three axes."""
    limits = [moves.integers(f"slice_{i}", [v]) for i, v in enumerate((0, length, 2))]
    return moves.move("Slice", [x, *limits], "slice")
