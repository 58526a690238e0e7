"""Exactness: the tensors that may differ from the reference by a quantisation step, and why."""

from __future__ import annotations

from tilewright.compiler.graph.graph import Graph, Node
from tilewright.compiler.graph.ops.quantized_op import BEHIND
from tilewright.compiler.passes.annotate import MONOTONE, MOVES

#: Float ops that only move or select values: they cannot differ from the reference in the last bit.
_EXACT = {
    "DequantizeLinear", "Reshape", "Transpose", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Slice", "Concat",
    "Split", "Gather", "Pad", "Expand", "Tile", "Relu", "Clip", "Max", "Min", "MaxPool", "Where", "Neg", "Abs",
}  # fmt: skip


#: Ops that round floats to integers: the first of their results.
QUANTISES = ("QuantizeLinear", "DynamicQuantizeLinear")


def dynamic_tensors(graph: Graph) -> set[str]:
    """The bytes that are quantised with a scale which is known only when the model runs."""
    return {node.outputs[0] for node in graph.nodes if node.op == "DynamicQuantizeLinear"}


def inexact_tensors(graph: Graph) -> dict[str, str]:
    """Why a tensor may be off by a step, by name: its node says so, or it is quantised from computed floats, where a
    difference in the last bit can flip the rounding.

    Where the model moves floats and quantises them, the compiler quantises and moves integers (`move_quantization`).
    The tensor before the move is none of the model's then: the first one that is has its reason. So has what another
    op, such as a table, computes from it (`BEHIND`).
    """
    producers = graph.producers()
    reasons = {}
    for node in graph.nodes:
        if node.reason:
            reasons[node.outputs[0]] = node.reason
        if node.op in QUANTISES:
            ops = _float_ops_before(graph, producers, node.inputs[0])
            if ops:
                text = f"quantised from float {', '.join(sorted(ops))}: last-bit differences can flip it"
                reasons[node.outputs[0]] = text
        for source in (name for name in node.inputs if name in reasons and graph.is_invented(name)):
            moved = node.op in MOVES | MONOTONE
            text = reasons[source] if moved else "; ".join(filter(None, (node.reason, f"{BEHIND}: {reasons[source]}")))
            reasons |= dict.fromkeys((name for name in node.outputs if name), text)
    return reasons


def _float_ops_before(graph: Graph, producers: dict[str, Node], name: str) -> set[str]:
    """Float ops that compute what `name` depends on."""
    ops: set[str] = set()
    seen: set[str] = set()
    left = [name]
    while left:
        name = left.pop()
        producer = producers.get(name)
        if producer is None or name in seen or graph.tensor(name).dtype.kind != "f":
            continue
        seen.add(name)
        if producer.op not in _EXACT:
            ops.add(producer.op)
        left += [operand for operand in producer.inputs if operand]
    return ops
