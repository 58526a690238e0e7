"""Marks each QuantizeLinear that onnxruntime leaves without an integer op in front of it, because of data movement.

onnxruntime carries DequantizeLinear and QuantizeLinear through few of the ops that move elements. Behind another one (a
Gather, a Split, ...) everything is computed in floats up to the next QuantizeLinear, whatever this compiler makes of
it. An attribute of the QuantizeLinear marks this before the moves are rewritten, and stays with it wherever it goes.
"""

from __future__ import annotations

from tilewright.compiler.graph.graph import Graph
from tilewright.compiler.passes.annotate import MONOTONE, MOVES

#: Attribute of a QuantizeLinear whose input onnxruntime computes in floats.
IN_FLOATS = "in_floats"
_OTHERS = {"GlobalMaxPool"}  # what this compiler alone carries them through
_CARRIES = {"Reshape", "Transpose", "Squeeze", "Unsqueeze", "Slice", "MaxPool", "Identity"}


def mark_floats(graph: Graph) -> None:
    floats: set[str] = set()
    for node in graph:
        if node.op == "DequantizeLinear":
            continue
        if node.op == "QuantizeLinear":
            if node.inputs[0] in floats:
                node.attrs = {**node.attrs, IN_FLOATS: 1}
        elif (node.op in MOVES | MONOTONE | _OTHERS and node.op not in _CARRIES) or not floats.isdisjoint(node.inputs):
            floats.update(name for name in node.outputs if name and graph.tensor(name).dtype.kind not in "iub")
