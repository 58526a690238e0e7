"""Tails: Adds and tables that run in the VECTOR pass of the layer before them."""

from __future__ import annotations

from dataclasses import asdict

from tilewright.compiler.graph.graph import Graph, Node
from tilewright.compiler.graph.ops.elementwise import IDENTITY_TABLE, AddConstants, QAdd, QLut
from tilewright.compiler.npu.blocks.operands import Operands
from tilewright.compiler.npu.int8_storage import stored_limits
from tilewright.compiler.npu.layers.add_constants import stored_add_constants
from tilewright.compiler.npu.layers.layer import Add, Post
from tilewright.isa.program import Layout


def labels(nodes: list[Node]) -> tuple[str, str]:
    """Returns the name and the op of a layer that runs these nodes, for reports."""
    return " + ".join(n.name or n.outputs[0] for n in nodes), "+".join(n.op for n in nodes)


def fuse_tail(operands: Operands, post: Post, tail: list[Node], layout: Layout, value: str) -> str:
    """Adds the QAdd and QLut nodes that follow tensor `value` to `post`; returns the name of the tensor that results.

    Args:
        operands: provides the view of an Add's other operand.
        post: the layer's last operations, which are changed.
        tail: the nodes in order.
        layout: layout of the layer.
        value: name of the tensor before the tail.
    """
    for node in tail:
        match node.quantized:
            case QLut(table=table):
                if not keeps_bytes(operands.graph, node):
                    post.lut = operands.table(table, node.inputs[0], node.outputs[0])
            case QAdd() as add:
                constants = add_constants(operands.graph, node, add)
                first = node.inputs[0] == value
                view = operands.view(node.inputs[1 if first else 0], layout, like=node.outputs[0])
                low, high = stored_limits(operands.graph.tensor(node.outputs[0]), add)
                post.add = Add(view, asdict(constants if first else constants.swapped()), low, high)
        value = node.outputs[0]
    return value


def keeps_bytes(graph: Graph, node: Node) -> bool:
    """Returns True if a QLut changes only what its bytes mean, such as a factor that goes into the scale."""
    op, (x, y) = node.quantized, (graph.tensor(name) for name in (node.inputs[0], node.outputs[0]))
    return isinstance(op, QLut) and op.table == IDENTITY_TABLE and x.dtype == y.dtype


def add_constants(graph: Graph, node: Node, op: QAdd) -> AddConstants:
    """Returns the machine's constants of a QAdd that the NPU runs, in the order of its operands."""
    a, b = (graph.tensor(name) for name in node.inputs)
    found = stored_add_constants(op, a, b, graph.tensor(node.outputs[0]))
    assert found is not None
    return found
