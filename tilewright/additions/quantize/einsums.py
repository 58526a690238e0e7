"""Einsum of two operands as a MatMul between moves of axes, which the NPU has.

    A [batch, left, sum]   B [batch, sum, right]   =>   A B [batch, left, right]

Each of these is a list of labels: both operands are transposed and reshaped so, and the result back.
"""

from __future__ import annotations

import math

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tilewright.compiler.graph.macs import einsum_labels
from tilewright.quantize.layers import Network, attributes_of


def expand(model: onnx.ModelProto) -> bool:
    """Changes the model in place, if it has such an Einsum; shapes of its tensors must have been inferred."""
    network = Network(model)
    made = [_expanded(model, network, node) or [node] for node in network.nodes]
    if all(len(nodes) == 1 and nodes[0] is node for nodes, node in zip(made, network.nodes)):
        return False
    del model.graph.node[:]
    model.graph.node.extend(node for nodes in made for node in nodes)
    return True


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
    stem, made = node.name or node.output[0], []
    size = lambda labels: math.prod(sizes[label] for label in labels)

    def move(op: str, name: str, what: str, *more: str, **attributes: list[int]) -> str:
        made.append(helper.make_node(op, [name, *more], [f"{stem}_{what}_output"], f"{stem}_{what}", **attributes))
        return f"{stem}_{what}_output"

    def arranged(name: str, labels: list[str], wanted: list[str], shape: list[int], what: str) -> str:
        """A tensor with its axes in another order, then with some of them joined or divided."""
        perm = [labels.index(label) for label in wanted]
        value = network.constant(name)
        if value is not None:
            held = np.ascontiguousarray(value.transpose(perm).reshape(shape))
            model.graph.initializer.append(numpy_helper.from_array(held, f"{stem}_{what}"))
            return f"{stem}_{what}"
        if perm != sorted(perm):
            name = move("Transpose", name, f"{what}_turned", perm=perm)
        return reshaped(name, [sizes[label] for label in wanted], shape, what)

    def reshaped(name: str, given: list[int], shape: list[int], what: str) -> str:
        if given == shape:
            return name
        model.graph.initializer.append(numpy_helper.from_array(np.array(shape, np.int64), f"{stem}_{what}_shape"))
        return move("Reshape", name, what, f"{stem}_{what}_shape")

    rows = [sizes[label] for label in batch]
    x = arranged(names[0], a, [*batch, *left, *sums], [*rows, size(left), size(sums)], "left")
    y = arranged(names[1], b, [*batch, *sums, *right], [*rows, size(sums), size(right)], "right")
    made.append(helper.make_node("MatMul", [x, y], [f"{stem}_product_output"], stem))
    whole = [*batch, *left, *right]
    z = reshaped(made[-1].output[0], [*rows, size(left), size(right)], [sizes[label] for label in whole], "result")
    perm = [whole.index(label) for label in result]
    if perm != sorted(perm):
        move("Transpose", z, "result_turned", perm=perm)
    made[-1].output[0] = node.output[0]
    return made
