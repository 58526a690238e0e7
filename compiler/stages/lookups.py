"""Rows of an embedding for the tokens of a prompt: the runtime copies them as it writes the tokens.

    Gather(table, tokens)  Relayout  =>  a lookup of the program, and no kernel

Tokens are in no order, so that no window finds their rows. Nothing has to be computed for them, either: rows of the
table lie in the NPU's memory as blocks, and go to the buffer that the first layer reads.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from tilewright.compiler.graph.graph import Graph, Node, Tensor
from tilewright.compiler.npu.blocks.blocked import Contents
from tilewright.compiler.npu.blocks.convert import Converter
from tilewright.compiler.npu.blocks.tasks import Task
from tilewright.compiler.npu.layers.layer import Layer
from tilewright.isa.program import Layout


class RowsOfInput(Struct, frozen=True):
    """Rows of a table, one for each value of an input.

    Attributes:
        tensor: the input.
        table: blocked constant of the rows, by name.
        rows, stride: number of rows, and bytes of one.
        buffer: buffer in the arena that they are copied to.
    """

    tensor: str
    table: str
    rows: int
    stride: int
    buffer: str


def take_lookups(graph: Graph, converter: Converter) -> list[RowsOfInput]:
    """Takes the nodes that look rows up from the tasks; none if the CPU has other nodes to run beside them."""
    nodes = [task for task in converter.tasks if not isinstance(task, Layer)]
    moved = {node.inputs[0]: node for node in nodes if node.op == "Relayout"}
    gathers = [node for node in nodes if node.op != "Relayout"]
    pairs = [(node, moved.get(node.outputs[0])) for node in gathers]
    if len(nodes) != 2 * len(pairs):
        return []
    found = []
    for gather, relayout in pairs:
        table = _table(graph, gather)
        buffer = converter.buffers.get(relayout.outputs[0]) if relayout is not None else None
        if table is None or buffer is None or not _is_dense(graph.tensor(gather.outputs[0]), buffer.contents):
            return []
        if buffer.layout is not Layout.CHANNELS_LAST or graph.outputs.count(gather.outputs[0]):
            return []
        found.append((gather.inputs[1], table, buffer.name))
    converter.tasks[:] = _layers(converter.tasks)
    return [_lookup(converter, *each) for each in found]


def _layers(tasks: Sequence[Task]) -> list[Task]:
    return [task for task in tasks if isinstance(task, Layer)]


def _table(graph: Graph, node: Node) -> Tensor | None:
    """Returns the table of bytes of a node that takes rows of it by an input, None if it does something else."""
    if node.op != "Gather" or int(node.attrs.get("axis", 0)) != 0 or node.inputs[1] not in graph.inputs:
        return None
    table = graph.tensor(node.inputs[0])
    return table if table.data is not None and len(table.shape) == 2 and table.dtype.itemsize == 1 else None


def _is_dense(rows: Tensor, contents: Contents) -> bool:
    """Returns True if rows [1, values, channels] are one image whose columns are the rows."""
    return contents is Contents.TENSOR and len(rows.shape) > 1 and rows.size == rows.shape[-1] * rows.shape[-2]


def _lookup(converter: Converter, tensor: str, table: Tensor, buffer: str) -> RowsOfInput:
    rows, channels = table.shape
    assert table.data is not None
    view = converter.constant(table, table.data.reshape(rows, 1, channels), Layout.CHANNELS_LAST)
    return RowsOfInput(tensor, view.buffer, rows, view.sn, buffer)
