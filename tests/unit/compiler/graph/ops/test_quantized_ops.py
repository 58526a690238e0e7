"""Attributes and checks of the quantised ops, and the values of those that work element by element."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.compiler.errors import CompileError
from tilewright.compiler.graph.graph import Graph, Node, Quant, Tensor
from tilewright.compiler.graph.ops import QuantizedOp
from tilewright.compiler.graph.ops.concat import QConcat
from tilewright.compiler.graph.ops.convolution import QConv, QConvTranspose
from tilewright.compiler.graph.ops.elementwise import AddConstants, QAdd, QLut, QMul
from tilewright.compiler.graph.ops.norm import QNorm, QPlaneNorm
from tilewright.compiler.graph.ops.pooling import QAveragePool, QGlobalAveragePool, QMaxPool
from tilewright.compiler.graph.ops.product import QMatMul
from tilewright.compiler.graph.ops.softmax import QSoftmax

QUANT = Quant.of(0.5, 3)


def graph_of(op: QuantizedOp, result: tuple[int, ...], *operands: tuple[tuple[int, ...], str]) -> Graph:
    """One node on tensors of these shapes and types; int32 ones have no quantisation."""
    graph = Graph("one node")
    for k, (shape, dtype) in enumerate(operands):
        graph.add(Tensor(f"x{k}", shape, np.dtype(dtype), None, None if dtype == "int32" else QUANT))
        graph.inputs.append(f"x{k}")
    graph.add(Tensor("y", result, np.dtype(np.int8), None, QUANT))
    graph.nodes.append(Node.of(op, list(graph.inputs), ["y"], "node"))
    graph.outputs.append("y")
    return graph


IMAGE, WEIGHTS = ((1, 4, 8, 8), "int8"), ((6, 4, 3, 3), "int8")
KERNEL = (3, 3)
RIGHT = [
    graph_of(QConv(kernel=KERNEL), (1, 6, 6, 6), IMAGE, WEIGHTS, ((6,), "int32")),
    graph_of(QConv(kernel=KERNEL, strides=(2, 2), pads=(1, 1, 1, 1)), (1, 6, 4, 4), IMAGE, WEIGHTS),
    graph_of(QConvTranspose(kernel=KERNEL, strides=(2, 2)), (1, 5, 17, 17), IMAGE, ((4, 5, 3, 3), "int8")),
    graph_of(QMatMul(), (2, 5, 7), ((2, 5, 3), "uint8"), ((3, 7), "int8")),
    graph_of(QAdd(), (2, 3), ((2, 3), "int8"), ((3,), "int8")),
    graph_of(QMaxPool(kernel=(2, 2), strides=(2, 2)), (1, 4, 4, 4), IMAGE),
    graph_of(QGlobalAveragePool(), (1, 4, 1, 1), IMAGE),
    graph_of(QGlobalAveragePool(keepdims=False), (1, 4), IMAGE),
    graph_of(QConcat(axis=1, tables=(None, bytes(256))), (1, 8, 8, 8), IMAGE, IMAGE),
    graph_of(QSoftmax(), (2, 3), ((2, 3), "int8")),
    graph_of(QNorm(centred=False), (2, 3), ((2, 3), "int8"), ((3,), "float32")),
    graph_of(QPlaneNorm(groups=2), IMAGE[0], IMAGE, ((4,), "float32"), ((4,), "float32")),
]
WRONG = [
    (graph_of(QConv(kernel=KERNEL), (1, 6, 6, 6), IMAGE), "1 operands; 2 to 3 are needed"),
    (graph_of(QConv(kernel=KERNEL), (1, 6, 8, 8), IMAGE, WEIGHTS), r"y is \[1, 6, 8, 8\], not \[1, 6, 6, 6\]"),
    (graph_of(QConv(kernel=KERNEL, group=2), (1, 6, 6, 6), IMAGE, WEIGHTS), "in 2 groups"),
    (graph_of(QConv(kernel=KERNEL, pads=(1, 1)), (1, 6, 6, 6), IMAGE, WEIGHTS), r"window of rank 2 .* pads \(1, 1\)"),
    (graph_of(QConv(kernel=KERNEL), (1, 6, 6, 6), IMAGE, WEIGHTS, ((5,), "int32")), r"bias x2 is int32\[5\]"),
    (graph_of(QMatMul(), (5, 7), ((5, 4), "int8"), ((3, 7), "int8")), r"product of \[5, 4\] and \[3, 7\]"),
    (graph_of(QMul(), (2,), ((2,), "int8"), ((2,), "int32")), "x1 is int32, not int8 or uint8"),
    (graph_of(QLut(table=bytes(255)), (2,), ((2,), "int8")), "table of 255 bytes, not 256"),
    (graph_of(QAveragePool(kernel=(2,)), (1, 4, 7, 8), IMAGE), "window of rank 1 on x0"),
    (graph_of(QGlobalAveragePool(offset=1.0), (1, 4, 1, 1), IMAGE), "offset without factor"),
    (graph_of(QConcat(axis=1, tables=(None,)), (1, 8, 8, 8), IMAGE, IMAGE), "1 tables for 2 operands"),
    (graph_of(QSoftmax(axis=2), (2, 3), ((2, 3), "int8")), r"axis 2 of \[2, 3\]"),
    (
        graph_of(QNorm(), (2, 3), ((2, 3), "int8"), ((2,), "float32")),
        r"x1 is float32\[2\], not float32\[3\]",
    ),
    (graph_of(QPlaneNorm(groups=3), IMAGE[0], IMAGE, ((4,), "float32"), ((4,), "float32")), r"3 groups of \[1, 4"),
    (graph_of(QPlaneNorm(groups=2), IMAGE[0], IMAGE, ((2,), "float32"), ((4,), "float32")), r"not float32\[4\]"),
    (graph_of(QNorm(), (2, 3), ((2, 3), "int8")), "1 operands; 2 to 3 are needed"),
]


@pytest.mark.parametrize("graph", RIGHT, ids=lambda graph: str(graph.nodes[0].quantized))
def test_right(graph: Graph) -> None:
    graph.verify()


@pytest.mark.parametrize("graph, message", WRONG, ids=lambda value: value if isinstance(value, str) else "")
def test_wrong(graph: Graph, message: str) -> None:
    with pytest.raises(CompileError, match=f"graph broken after the test: {graph.nodes[0].op} 'node': .*{message}"):
        graph.verify("the test")


def test_vocabularies_are_kept_apart() -> None:
    for node, message in (
        (Node("QLut", ["x0"], ["y"]), "a quantised op without its attributes"),
        (Node("Relu", ["x0"], ["y"], quantized=QSoftmax()), "named Relu"),
    ):
        graph = graph_of(QSoftmax(), (2, 3), ((2, 3), "int8"))
        graph.nodes = [node]
        with pytest.raises(CompileError, match=message):
            graph.verify()


def test_clamps_add_up() -> None:
    op = QAdd().clamped(-20, 50).clamped(0, 90)
    assert (op.out_min, op.out_max) == (0, 50)
    assert op.clamped(60, 70).limits(np.dtype(np.int8)) == (60, 60)
    assert QAdd().limits(np.dtype(np.int8)) == (-128, 127) and QAdd().limits(np.dtype(np.uint8)) == (0, 255)


def test_equal_ops_are_equal() -> None:
    assert QConv(kernel=KERNEL) == QConv(kernel=KERNEL, strides=(1, 1)) != QConv(kernel=KERNEL, group=2)
    assert hash(QLut(table=bytes(256))) == hash(QLut(table=bytes(256)))


def test_printing() -> None:
    assert str(QConv(kernel=KERNEL, group=2)) == (
        "QConv(dilations=[1, 1], group=2, kernel=[3, 3], pads=[0, 0, 0, 0], strides=[1, 1])"
    )
    graph = graph_of(QLut(table=bytes(256)), (2,), ((2,), "int8"))
    assert "y = QLut(x0) {table=<256 bytes>}" in str(graph)


def test_multiply_accumulates() -> None:
    assert [g.macs(g.nodes[0]) for g in RIGHT[:5]] == [6 * 36 * 36, 6 * 16 * 36, 256 * 45, 2 * 5 * 7 * 3, 0]


def test_values() -> None:
    a, b = np.array([3, 5, -7], np.int8), np.array([1, 2, 3], np.int8)
    tensors = [Tensor(name, (3,), np.dtype(np.int8), None, QUANT) for name in "aby"]
    by_hand = np.array([2 * a + 3 * b - 5]) >> 1
    constants = AddConstants(2, 3, -5, 1)
    np.testing.assert_array_equal(QAdd(constants=constants).value([a, b], tensors[:2], tensors[2]), by_hand[0])
    np.testing.assert_array_equal(
        QAdd(constants=constants.swapped()).value([b, a], tensors[:2], tensors[2]), by_hand[0]
    )
    # (a - 3) / 2 + (b - 3) / 2, in steps of 1/2 from 3
    np.testing.assert_array_equal(QAdd().value([a, b], tensors[:2], tensors[2]), a + b - 3)
    # (a - 3) / 2 * (b - 3) / 2 in the same steps; ties go to even, with the zero point inside or after
    np.testing.assert_array_equal(QMul().value([a, b], tensors[:2], tensors[2]), [3, 2, 3])
    after = QMul(zero_point_after=True, out_max=2).value([a, b], tensors[:2], tensors[2])
    np.testing.assert_array_equal(after, [2, 2, 2])
    table = bytes(range(255, -1, -1))
    np.testing.assert_array_equal(QLut(table=table).value([a], tensors[:1], tensors[2]), [-4, -6, 6])
