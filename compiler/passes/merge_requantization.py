"""Two Q-DQ pairs in a row become one, as in onnxruntime.

    Q(s1,z1) -> DQ(s1,z1) -> Q(s2,z2) -> DQ(s2,z2)   =>   Q(s,z) -> DQ(s,z)

s and z cover the part of the real line both pairs can represent: [max of the lows, min of the highs] over 255 steps.
This is not what the ONNX text says (that would be two roundings), but what the reference computes whenever nothing else
reads the tensors in between. Pairs that come from QLinear ops are left alone, as there: such a Q or DQ carries the
name of the op it belongs to.
"""

from __future__ import annotations

import math

import numpy as np

from compiler.graph import Graph, Node, Quant
from compiler.passes.annotate import quant_of
from compiler.quantization import limits
from compiler.tensor import EIGHT_BIT


def merge_requantization(graph: Graph) -> None:
    producers, consumers = graph.producers(), graph.consumers()
    dropped: set[int] = set()

    def only_user(node: Node, op: str) -> Node | None:
        users = consumers.get(node.outputs[0], [])
        if len(users) != 1 or node.outputs[0] in graph.outputs or users[0].op != op:
            return None
        return users[0]

    for first in graph:
        while first.op == "QuantizeLinear" and id(first) not in dropped and not _of_qlinear(first, producers):
            back = only_user(first, "DequantizeLinear")
            again = only_user(back, "QuantizeLinear") if back is not None else None
            last = only_user(again, "DequantizeLinear") if again is not None else None
            if back is None or again is None or last is None:
                break
            if any(user.name == last.name for user in consumers.get(last.outputs[0], [])):
                break
            merged = _merged(graph, first, back, again, last)
            if merged is None:
                break
            dtype = graph.tensor(first.outputs[0]).dtype
            scale = graph.constant("merged_scale", np.asarray(merged.scale, np.float32))
            zero = graph.constant("merged_zero_point", merged.zero_point.astype(dtype))
            first.inputs[1:], last.inputs = [scale, zero], [first.outputs[0], scale, zero]
            graph.tensor(first.outputs[0]).quant = merged
            consumers[first.outputs[0]] = [last]
            dropped |= {id(back), id(again)}
    graph.nodes = [n for n in graph if id(n) not in dropped]
    graph.prune()


def _of_qlinear(node: Node, producers: dict[str, Node]) -> bool:
    maker = producers.get(node.inputs[0])
    return maker is not None and maker.name == node.name


def _merged(graph: Graph, first: Node, back: Node, again: Node, last: Node) -> Quant | None:
    """Scale and zero point of the one pair; None where the pairs are not constant, per tensor and of one type."""
    quants = [quant_of(graph, n) for n in (first, back, again, last)]
    a, b = quants[0], quants[2]
    if a is None or b is None or not a.per_tensor or not b.per_tensor:
        return None
    if not a.same_as(quants[1]) or not b.same_as(quants[3]):
        return None
    dtype = graph.tensor(first.outputs[0]).dtype
    if dtype not in EIGHT_BIT or graph.tensor(again.outputs[0]).dtype != dtype:
        return None
    if a.same_as(b):
        return a
    low, high = limits(dtype)
    lows, highs = ([np.float32(edge - int(q.zero_point)) * q.scale for q in (a, b)] for edge in (low, high))
    real_low, real_high = np.float32(max(lows)), np.float32(min(highs))
    scale = np.float32((real_high - real_low) / np.float32(high - low))
    if not scale > 0:
        return None  # the ranges do not meet
    shifted = float(np.float32(np.float32(low) - np.float32(real_low / scale)))
    zero = int(math.copysign(math.floor(abs(shifted) + 0.5), shifted))  # C's round: halves away from zero
    return Quant.of(scale, zero) if low <= zero <= high else None
