"""Moves Transposes down through elementwise ops and reductions to where they meet the opposite one and both vanish.

    f(Transpose(x), c)                            =>  Transpose(f(x, c'))       c' constant, moved back
    f(Transpose(x), Transpose(y))                 =>  Transpose(f(x, y))        the same permutation
    Softmax, Concat, ... (Transpose(x); axis)     =>  Transpose(op(x; perm[axis]))
    Reduce(Transpose(x); axes)                    =>  Reduce(x; perm[axes]), transposed as far as dimensions are left
    Transpose(Transpose(x))                       =>  one, or none              (by `simplify`)

Done only where another Transpose, a reduction that leaves nothing to move or the like is met further down: a Transpose
costs the same wherever it is. Every op still sees the same numbers, so nothing is rounded differently.
"""

from __future__ import annotations

import numpy as np

from tilewright.compiler.graph.graph import Graph, Node, Tensor
from tilewright.compiler.graph.moves import permutation
from tilewright.compiler.passes.fold.simplify import simplify

_UNARY = {
    "Abs", "Cast", "Ceil", "Clip", "Cos", "Elu", "Erf", "Exp", "Floor", "Gelu", "HardSigmoid", "HardSwish", "LeakyRelu",
    "Log", "Neg", "Reciprocal", "Relu", "Round", "Selu", "Sigmoid", "Sign", "Sin", "Softplus", "Softsign", "Sqrt",
    "Swish", "Tanh", "ThresholdedRelu",
}  # fmt: skip
_BINARY = {"Add", "Sub", "Mul", "Div", "Pow", "Max", "Min", "PRelu"}
_AXIS = {"Softmax", "LogSoftmax", "Concat"}
_REDUCE = {"ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceSumSquare"}


def sink_transposes(graph: Graph) -> None:
    changed = True
    rounds = 0
    while changed and rounds < len(graph.nodes) + 1:
        changed = _sink_one(graph)
        rounds += changed
        if changed:
            graph.prune()
    if rounds:
        simplify(graph)


def _sink_one(graph: Graph) -> bool:
    """Moves one Transpose below all ops between it and the one it meets."""
    producers, consumers = graph.producers(), graph.consumers()
    for node in graph:
        if node.op != "Transpose":
            continue
        path = _path(graph, producers, consumers, node)
        if path:
            for op in path:
                _move_below(graph, producers, op, permutation(node))
            return True
    return False


def _only_reader(graph: Graph, consumers: dict[str, list[Node]], name: str) -> Node | None:
    readers = consumers.get(name, [])
    return readers[0] if len(readers) == 1 and name not in graph.outputs else None


def _path(graph: Graph, producers: dict[str, Node], consumers: dict[str, list[Node]], start: Node) -> list[Node]:
    """The ops from `start` down to where its Transpose vanishes; empty where it does not."""
    perm, at = permutation(start), start
    path: list[Node] = []
    while True:
        reader = _only_reader(graph, consumers, at.outputs[0])
        if reader is None:
            return []
        if reader.op == "Transpose":
            return path
        if reader.op in _REDUCE:
            left = _remaining_dims(graph, reader, perm)
            done = left is not None and left == sorted(left)
            return [*path, reader] if done and _can_pass(graph, producers, reader, perm) else []
        if not _can_pass(graph, producers, reader, perm):
            return []
        path.append(reader)
        at = reader


def _axes(graph: Graph, node: Node) -> list[int] | None:
    """The axes of a reduction, None where they are not known."""
    rank = len(graph.tensor(node.inputs[0]).shape)
    given = graph.const(node.inputs[1]) if len(node.inputs) > 1 and node.inputs[1] else np.zeros(0, np.int64)
    if given is None:
        return None
    axes = [int(a) % rank for a in given.reshape(-1)]
    return axes or (None if node.attrs.get("noop_with_empty_axes") else list(range(rank)))


def _remaining_dims(graph: Graph, node: Node, perm: list[int]) -> list[int] | None:
    """The permuted dimensions that a reduction leaves, without kept ones of size 1; None where they are not known."""
    axes = _axes(graph, node)
    return None if axes is None else [p for k, p in enumerate(perm) if k not in axes]


def _can_pass(graph: Graph, producers: dict[str, Node], node: Node, perm: list[int]) -> bool:
    """True if a Transpose by `perm` may move from all inputs of `node` that have one to its output."""
    out = graph.tensor(node.outputs[0]).shape
    if len([o for o in node.outputs if o]) != 1:
        return False
    if node.op in _REDUCE:
        return _axes(graph, node) is not None
    if node.op in _UNARY:
        return all(not i or (graph.const(i) is not None and graph.tensor(i).size == 1) for i in node.inputs[1:])
    if node.op not in _BINARY | _AXIS or len(out) != len(perm):
        return False
    for name in node.inputs:
        maker = producers.get(name)
        turned = maker is not None and maker.op == "Transpose" and permutation(maker) == perm
        constant = node.op != "Softmax" and node.op != "LogSoftmax" and graph.const(name) is not None
        on_path = maker is not None and _comes_from_transpose(graph, producers, name, perm)
        if not (turned or constant or on_path):
            return False
    return node.op not in ("PRelu",) or graph.const(node.inputs[1]) is not None


def _comes_from_transpose(graph: Graph, producers: dict[str, Node], name: str, perm: list[int]) -> bool:
    """True if `name` comes from a Transpose by `perm` through ops it may pass."""
    node = producers.get(name)
    if node is None or len(graph.consumers().get(name, [])) != 1:
        return False
    if node.op == "Transpose":
        return permutation(node) == perm
    passable = node.op in _UNARY or (node.op in _BINARY | _AXIS and len(node.inputs) > 0)
    return (
        passable
        and any(_comes_from_transpose(graph, producers, i, perm) for i in node.inputs if i)
        and _can_pass(graph, producers, node, perm)
    )


def _move_below(graph: Graph, producers: dict[str, Node], node: Node, perm: list[int]) -> None:
    """Makes `node` read the inputs of its inputs' Transposes and puts one behind it."""
    rank = len(perm)
    back = [perm.index(k) for k in range(rank)]
    inputs = []
    for k, name in enumerate(node.inputs):
        maker = producers.get(name)
        if maker is not None and maker.op == "Transpose":
            inputs.append(maker.inputs[0])
        elif node.op in _REDUCE and k == 1:
            axes = _axes(graph, node)
            assert axes is not None
            inputs.append(graph.constant("axes", np.asarray([perm[a] for a in axes], np.int64)))
        elif name and node.op in _BINARY | {"Concat"}:
            value = graph.const(name)
            assert value is not None
            full = value.reshape([1] * (rank - value.ndim) + list(value.shape))
            inputs.append(graph.constant(f"{name}.turned", np.ascontiguousarray(full.transpose(back))))
        else:
            inputs.append(name)
    result = graph.tensor(node.outputs[0])
    if node.op in _REDUCE:
        _turn_reduction(graph, producers, node, inputs, perm)
        return
    if "axis" in node.attrs:
        node.attrs = {**node.attrs, "axis": perm[int(node.attrs["axis"]) % rank]}
    before = graph.unique(f"{result.name}.turned")
    graph.add(Tensor(before, tuple(result.shape[b] for b in back), result.dtype, None, result.quant))
    below = Node("Transpose", [before], [result.name], {"perm": perm}, node.name, node.origin)
    node.inputs, node.outputs = inputs, [before]
    graph.nodes.insert(graph.nodes.index(node) + 1, below)
    producers[before], producers[result.name] = node, below


def _turn_reduction(graph: Graph, producers: dict[str, Node], node: Node, inputs: list[str], perm: list[int]) -> None:
    """Moves a Transpose below a reduction. The remaining axes keep their order; kept dimensions of size 1 may have to
    move, which is a Reshape.
    """
    result = graph.tensor(node.outputs[0])
    axes = _axes(graph, node)
    assert axes is not None
    if len(inputs) == 1:
        inputs.append(graph.constant("axes", np.asarray(sorted(perm[a] for a in axes), np.int64)))
    node.inputs = inputs
    if not node.attrs.get("keepdims", 1):
        return
    source = graph.tensor(inputs[0]).shape
    turned = {perm[a] for a in axes}
    shape = tuple(1 if k in turned else n for k, n in enumerate(source))
    if shape == result.shape:
        return
    before = graph.unique(f"{result.name}.turned")
    graph.add(Tensor(before, shape, result.dtype, None, result.quant))
    target = graph.constant("shape", np.asarray(result.shape, np.int64))
    below = Node("Reshape", [before, target], [result.name], {"allowzero": 1}, node.name, node.origin)
    node.outputs = [before]
    graph.nodes.insert(graph.nodes.index(node) + 1, below)
    producers[before], producers[result.name] = node, below
