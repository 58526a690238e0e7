"""Merges two Q-DQ pairs in a row into one, like onnxruntime.

    Q(s1,z1) -> DQ(s1,z1) -> Q(s2,z2) -> DQ(s2,z2)   =>   Q(s,z) -> DQ(s,z)

s and z cover the part of the real line both pairs can represent: [max of the lows, min of the highs] over 255 steps, or
65535 at 16 bits. The ONNX text defines two roundings instead, but the reference computes this whenever nothing else
reads the tensors in between. Ops that change nothing may stand between them (`_next`). Pairs that come from QLinear ops
are left alone, like in onnxruntime: such a Q or DQ carries the name of the op it belongs to. So are those of TFLite
files.
"""

from __future__ import annotations

import math

import numpy as np

from tilewright.compiler.graph.graph import Graph, Node, Quant
from tilewright.compiler.graph.moves import permutation
from tilewright.compiler.graph.quantization import AS_LITERT, limits
from tilewright.compiler.graph.tensor import EIGHT_BIT
from tilewright.compiler.passes.annotate import quant_of

#: Types of the pairs that onnxruntime merges.
_TYPES = (*EIGHT_BIT, np.dtype(np.int16), np.dtype(np.uint16))


def merge_requantization(graph: Graph) -> None:
    producers, consumers = graph.producers(), graph.consumers()
    dropped: set[int] = set()

    def following(node: Node | None, op: str) -> Node | None:
        """The only reader of the node's result, behind ops that change nothing."""
        found = _next(graph, consumers, node) if node is not None else None
        if found is None or found[0].op != op:
            return None
        between.extend(found[1])
        return found[0]

    for first in graph:
        while first.op == "QuantizeLinear" and id(first) not in dropped and not _of_qlinear(first, producers):
            between: list[Node] = []
            back = following(first, "DequantizeLinear")
            again = following(back, "QuantizeLinear")
            last = following(again, "DequantizeLinear")
            if back is None or again is None or last is None:
                break
            if any(user.name == last.name for user in consumers.get(last.outputs[0], [])):
                break
            merged = _merged(graph, first, back, again, last)
            if merged is None:
                break
            dtype = graph.tensor(first.outputs[0]).dtype
            # A new name, as onnxruntime does not merge pairs when the tensor between them is observed.
            first.outputs = [graph.like(graph.tensor(first.outputs[0]), first.outputs[0])]
            scale = graph.constant("merged_scale", np.asarray(merged.scale, np.float32))
            zero = graph.constant("merged_zero_point", merged.zero_point.astype(dtype))
            first.inputs[1:], last.inputs = [scale, zero], [first.outputs[0], scale, zero]
            graph.tensor(first.outputs[0]).quant = merged
            consumers[first.outputs[0]] = [last]
            dropped |= {id(node) for node in (back, again, *between)}
    graph.nodes = [n for n in graph if id(n) not in dropped]
    graph.prune()


def _next(graph: Graph, consumers: dict[str, list[Node]], node: Node) -> tuple[Node, list[Node]] | None:
    """The only reader of a node's result and the ops between, which change nothing: onnxruntime removes such an op, and
    transposes that undo each other. None where there are several readers."""
    name, between = node.outputs[0], list[Node]()
    order = list(range(len(graph.tensor(name).shape)))
    turned = list(order)
    while True:
        users = consumers.get(name, [])
        if len(users) != 1 or name in graph.outputs:
            return None
        user = users[0]
        perm = permutation(user) if user.op == "Transpose" else None
        if perm is not None and perm != order:
            turned = [turned[axis] for axis in perm]
        elif not _changes_nothing(graph, user, name):
            alone = sum(node.op == "Transpose" for node in between) == 1  # one is kept, even if it moves nothing
            return None if alone or turned != order else (user, between)
        between.append(user)
        name = user.outputs[0]


#: The operand with which a binary op gives the other one.
_NEUTRAL = {"Add": 0, "Sub": 0, "Mul": 1, "Div": 1}


def _changes_nothing(graph: Graph, node: Node, name: str) -> bool:
    """True if onnxruntime removes the op before it looks at Q and DQ. It keeps others, such as a Reshape."""
    before, after = graph.tensor(name), graph.tensor(node.outputs[0])
    if before.shape != after.shape or before.dtype != after.dtype or any(node.outputs[1:]):
        return False
    if node.op in ("Identity", "Dropout", "Cast", "Expand"):
        return True
    if node.op not in _NEUTRAL or (node.op in ("Sub", "Div") and node.inputs[0] != name):
        return False
    others = [graph.const(other) for other in node.inputs if other != name]
    return len(others) == 1 and others[0] is not None and others[0].size == 1 and bool(others[0] == _NEUTRAL[node.op])


def _of_qlinear(node: Node, producers: dict[str, Node]) -> bool:
    maker = producers.get(node.inputs[0])
    return bool(node.attrs.get(AS_LITERT)) or (maker is not None and maker.name == node.name)


def _merged(graph: Graph, first: Node, back: Node, again: Node, last: Node) -> Quant | None:
    """Scale and zero point of the merged pair; None where pairs are not constant, per tensor and of one type."""
    quants = [quant_of(graph, n) for n in (first, back, again, last)]
    a, b = quants[0], quants[2]
    if a is None or b is None or not a.per_tensor or not b.per_tensor:
        return None
    if not a.same_as(quants[1]) or not b.same_as(quants[3]):
        return None
    dtype = graph.tensor(first.outputs[0]).dtype
    if dtype not in _TYPES or graph.tensor(again.outputs[0]).dtype != dtype:
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
