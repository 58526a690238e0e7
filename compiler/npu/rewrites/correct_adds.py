"""Adds for which no constants are exact become exact ones: the nearest Add and a correction.

    QAdd(a, b)  =>  QAdd'(a, b) + correction[16 * rows[a] + columns[b]]

QAdd' has the nearest constants, which miss a few of the 65,536 pairs of operands by a step. Tables map every value of a
and of b in such a pair to a number, all others to 0; a table of both numbers has the step. All pairs are compared. Four
small passes on the NPU cost less than leaving it; an Add whose operands come from the CPU and whose result goes there
stays as it is.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tilewright.compiler.graph.graph import Graph, Node, Quant, Tensor
from tilewright.compiler.graph.ops.elementwise import AddConstants, QAdd, QLut
from tilewright.compiler.graph.quantization import is_activation
from tilewright.compiler.npu.int8_storage import StoredType, stored_limits, stored_type
from tilewright.compiler.npu.layers.add_constants import nearest_add_constants
from tilewright.compiler.npu.rewrites.rewriter import Rewriter
from tilewright.isa.config import NpuConfig

_SUM = AddConstants(1, 1, 0, 0)
_NUMBERS = 16  # numbers for an operand's values; 0 is for values in no missed pair


def correct_adds(graph: Graph, config: NpuConfig) -> None:
    """Replaces QAdds without exact constants by the nearest QAdd and a correction from tables."""
    if not config.table_lookup:
        return
    rewriter = Rewriter(graph, config)
    rewriter.replace_nodes(lambda node: _corrected(rewriter, node), track=True)


def _corrected(rewriter: Rewriter, node: Node) -> list[Node] | None:
    """Returns the nodes in place of an Add that the NPU cannot run as it is; None for any other node."""
    graph, op = rewriter.graph, node.quantized
    if not isinstance(op, QAdd) or op.constants is not None:
        return None
    a, b, y = (graph.tensor(name) for name in (*node.inputs, *node.outputs))
    if not all(is_activation(t) for t in (a, b, y)) or rewriter.runs_on_npu(node):
        return None
    if not (any(rewriter.made_by_npu(t.name) for t in (a, b)) or rewriter.read_by_npu(y.name)):
        return None
    types = stored_type(a), stored_type(b), stored_type(y)
    found = nearest_add_constants(*types, *stored_limits(y, op), op.floats)
    if found is None:
        return None
    constants, correction = found
    nearest = graph.like(y, f"{y.name}.nearest")
    first = Node.of(
        replace(op, constants=_in_model_types(constants, types)), node.inputs, [nearest], node.name, node.origin
    )
    rows, columns = (np.asarray(correction.any(axis=axis)) for axis in (1, 0))
    if max(rows.sum(), columns.sum()) >= _NUMBERS or not rewriter.runs_on_npu(first):
        return None
    return [first, *_correction(graph, node, nearest, correction, rows, columns)]


def _in_model_types(k: AddConstants, types: tuple[StoredType, StoredType, StoredType]) -> AddConstants:
    """Returns constants for stored values as constants for the model's values."""
    oa, ob, oy = (shift for _, _, shift in types)
    return replace(k, c=k.c - oa * k.ma - ob * k.mb + (oy << k.shift))


def _correction(
    graph: Graph, node: Node, nearest: str, correction: np.ndarray, rows: np.ndarray, columns: np.ndarray
) -> list[Node]:
    """Returns the nodes that add the step of each missed pair to the nearest result."""
    y = graph.tensor(node.outputs[0])
    assert y.quant is not None
    nodes: list[Node] = []

    def emit(op: QAdd | QLut, inputs: list[str], out: str) -> str:
        nodes.append(Node.of(op, inputs, [out], node.name, node.origin))
        return out

    def tensor(stem: str, shape: tuple[int, ...], dtype: type, scale: float) -> str:
        name = graph.unique(f"{y.name}.{stem}")
        graph.add(Tensor(name, shape, np.dtype(dtype), None, Quant.of(scale, 0)))
        return name

    numbers = []
    for name, missed, factor in zip(node.inputs, (rows, columns), (_NUMBERS, 1), strict=True):
        table = np.where(missed, np.cumsum(missed) * factor, 0).astype(np.uint8)
        t = graph.tensor(name)
        if t.dtype == np.int8:  # a table is in the order of bytes, what is stored in that of values
            table = np.roll(table, 128)
        if t.data is not None:
            numbers.append(graph.constant(f"{y.name}.number", table[t.data.view(np.uint8)], Quant.of(1.0, 0)))
        else:
            numbers.append(emit(QLut(table=table.tobytes()), [name], tensor("number", t.shape, np.uint8, 1.0)))
    pair = emit(QAdd(constants=_SUM), numbers, tensor("pair", y.shape, np.uint8, 1.0))
    steps = np.zeros((_NUMBERS, _NUMBERS), np.int8)
    steps[1 : 1 + rows.sum(), 1 : 1 + columns.sum()] = correction[rows][:, columns]
    step = emit(QLut(table=steps.tobytes()), [pair], tensor("step", y.shape, np.int8, float(y.quant.scale)))
    emit(QAdd(constants=_SUM), [nearest, step], y.name)
    return nodes
