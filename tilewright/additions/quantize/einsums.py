"""Einsum of two operands as a MatMul between moves of axes, which the NPU has.

    A [batch, left, sum]   B [batch, sum, right]   =>   A B [batch, left, right]

Each of these is a list of labels: both operands are transposed and reshaped so, and the result back.
"""

from __future__ import annotations

import math

import onnx
from onnx import helper

from tilewright.compiler.graph.macs import einsum_labels
from tilewright.quantize.layers import Network, attributes_of
from tilewright.quantize.rewriting import Moves, replace_nodes


def expand(model: onnx.ModelProto) -> bool:
    """Changes the model in place, if it has such an Einsum; shapes of its tensors must have been inferred."""
    return replace_nodes(model, _expanded)


def _expanded(model: onnx.ModelProto, network: Network, node: onnx.NodeProto) -> list[onnx.NodeProto] | None:
    """The nodes in place of an Einsum; None where it stays."""
    if node.op_type != "Einsum" or node.domain != "" or len(node.input) != 2:
        return None
    shapes = [network.shape(name) for name in node.input]
    a_shape, b_shape = shapes
    floats = all(map(network.is_float, node.input))
    if a_shape is None or b_shape is None or not floats or min([*a_shape, *b_shape], default=0) < 1:
        return None
    equation = attributes_of(node)["equation"]
    text = equation.decode() if isinstance(equation, bytes) else str(equation)
    (a, b), result = einsum_labels(text, [len(a_shape), len(b_shape)])
    sizes = dict(zip(a, a_shape)) | dict(zip(b, b_shape))
    alike = all(
        sizes[label] == size for labels, shape in ((a, a_shape), (b, b_shape)) for label, size in zip(labels, shape)
    )
    once = all(len(set(labels)) == len(labels) for labels in (a, b, result))
    if not alike or not once or set(a) ^ set(b) != set(result) - (set(a) & set(b)):
        return None
    sums = [label for label in a if label in b and label not in result]
    if not sums:
        return None
    batch = [label for label in result if label in a and label in b]
    names = list(node.input)
    if names[0] in network.constants and names[1] not in network.constants:  # weights are the second operand
        a, b, names = b, a, names[::-1]
    left, right = ([label for label in result if label in labels and label not in batch] for labels in (a, b))
    moves = Moves(model, node)
    size = lambda labels: math.prod(sizes[label] for label in labels)

    def arranged(name: str, labels: list[str], wanted: list[str], shape: list[int], what: str) -> str:
        """A tensor with its axes in another order, then with some of them joined or divided."""
        perm = [labels.index(label) for label in wanted]
        value = network.constant(name)
        if value is not None:
            return moves.constant(what, value.transpose(perm).reshape(shape))
        if perm != sorted(perm):
            name = moves.move("Transpose", [name], f"{what}_turned", perm=perm)
        return reshaped(name, [sizes[label] for label in wanted], shape, what)

    def reshaped(name: str, given: list[int], shape: list[int], what: str) -> str:
        return name if given == shape else moves.reshape(name, what, shape)

    rows = [sizes[label] for label in batch]
    x = arranged(names[0], a, [*batch, *left, *sums], [*rows, size(left), size(sums)], "left")
    y = arranged(names[1], b, [*batch, *sums, *right], [*rows, size(sums), size(right)], "right")
    product = f"{moves.name}_product_output"
    moves.made.append(helper.make_node("MatMul", [x, y], [product], moves.name))
    whole = [*batch, *left, *right]
    z = reshaped(product, [*rows, size(left), size(right)], [sizes[label] for label in whole], "result")
    perm = [whole.index(label) for label in result]
    if perm != sorted(perm):
        moves.move("Transpose", [z], "result_turned", perm=perm)
    moves.made[-1].output[0] = node.output[0]
    return moves.made
