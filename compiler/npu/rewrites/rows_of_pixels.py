"""Pixels with their channels on the last axis become rows, as LayerNormalization and products read them.

    Transpose or Reshape to [N, H, W, C]  =>  the same, and a Reshape to rows [N, H * W, C]
    QNorm, QMatMul by constants, functions, sums and products of such pixels  =>  the same of rows, and a Reshape back

Planes and rows are the same blocks of channels, one vector for each pixel. Pixels in rows of an image, [N, H, W, C],
would be images of one row each: another order of vectors. ConvNeXt and its like have such blocks between convolutions.
"""

from __future__ import annotations

from dataclasses import replace

from tilewright.compiler.graph.graph import Graph, Node
from tilewright.compiler.graph.moves import Mover, permutation
from tilewright.compiler.graph.ops.elementwise import QAdd, QLut, QMul
from tilewright.compiler.graph.ops.norm import QNorm
from tilewright.compiler.graph.ops.product import QMatMul
from tilewright.isa.config import NpuConfig


def rows_of_pixels(graph: Graph, config: NpuConfig) -> None:
    """Makes 8-bit ops of pixels [N, H, W, C] between moves read and make rows."""
    rewriting = _Rows(graph)
    for node in graph.nodes:
        rewriting.add(node)
    graph.nodes = rewriting.nodes


class _Rows:
    """The nodes so far, and rows [N, H * W, C] of pixels [N, H, W, C] by the pixels' names."""

    def __init__(self, graph: Graph) -> None:
        self.graph, self.producers = graph, graph.producers()
        self.nodes: list[Node] = []
        self.rows: dict[str, str] = {}
        self.mover = Mover(graph, self.nodes)

    def add(self, node: Node) -> None:
        """Adds a node, or what takes its place."""
        if not (self._of_rows(node) or self._leaves(node)):
            self.nodes.append(node)
            if self._enters(node):
                y = node.outputs[0]
                shape = _rows_shape(self.graph.tensor(y).shape)
                self.rows[y] = self.mover.reshape(node.inputs[0] if node.op == "Reshape" else y, shape)

    def _enters(self, node: Node) -> bool:
        """Returns True if a node makes pixels of planes or of rows."""
        if node.op not in ("Transpose", "Reshape"):
            return False
        before, after = self.graph.tensor(node.inputs[0]), self.graph.tensor(node.outputs[0])
        if before.quant is None or len(after.shape) != 4:
            return False
        if node.op == "Transpose":
            return permutation(node) == [0, 2, 3, 1] and not self._has_heads(before.name)
        rows = len(before.shape) in (2, 3) and before.shape[-1] == after.shape[-1]
        return rows and min(after.shape[1:3]) > 1  # else rows of one head

    def _has_heads(self, name: str) -> bool:
        """Returns True for rows [N, T, H, D], the channels of which a Reshape has divided into heads."""
        maker = self.producers.get(name)
        return maker is not None and maker.op == "Reshape" and len(self.graph.tensor(maker.inputs[0]).shape) < 4

    def _leaves(self, node: Node) -> bool:
        """Adds a Reshape of pixels to other rows as one of their rows."""
        rows = self.rows.get(node.inputs[0]) if node.op == "Reshape" else None
        if rows is None:
            return False
        y = self.graph.tensor(node.outputs[0])
        if len(y.shape) not in (2, 3) or y.shape[-1] != self.graph.tensor(rows).shape[-1]:
            return False
        self.nodes.append(replace(node, inputs=[rows, *node.inputs[1:]]))
        return True

    def _of_rows(self, node: Node) -> bool:
        """Adds an op of pixels as one of rows, and a Reshape back; returns False for others."""
        if not isinstance(node.quantized, QNorm | QMatMul | QLut | QAdd | QMul):
            return False
        if isinstance(node.quantized, QMatMul) and not self.graph.tensor(node.inputs[1]).is_const:
            return False
        y = self.graph.tensor(node.outputs[0])
        if len(y.shape) != 4 or not any(name in self.rows for name in node.inputs):
            return False
        inputs: list[str] = []
        for name in node.inputs:
            operand = self._operand(name, y.shape[:3])
            if operand is None:
                return False
            inputs.append(operand)
        made = self.graph.like(y, f"{y.name}.rows", _rows_shape(y.shape))
        self.nodes.append(replace(node, inputs=inputs, outputs=[made]))
        self.mover.reshape(made, y.shape, y.name)
        self.rows[y.name] = made
        return True

    def _operand(self, name: str, pixels: tuple[int, ...]) -> str | None:
        """Returns an operand beside rows: rows of its own, a constant of the last axes, or "" for none; else None."""
        if not name or name in self.rows:
            return self.rows.get(name, name)
        x = self.graph.tensor(name)
        if x.is_const:
            return name if len(x.shape) <= 2 else None
        if x.shape[:3] != pixels:
            return None
        return self.mover.reshape(name, _rows_shape(x.shape))


def _rows_shape(pixels: tuple[int, ...]) -> tuple[int, int, int]:
    """Returns the shape [N, H * W, C] of the rows of pixels [N, H, W, C]."""
    n, h, w, c = pixels
    return n, h * w, c
