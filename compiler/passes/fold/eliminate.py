"""Drops nodes that change nothing: identities, no-op movement, duplicate constants and nodes, dead nodes.

Identity(x), Dropout(x), Cast(x) to its own type          =>  x
Reshape, Transpose, Expand, Slice, Pad, Tile, Resize      =>  x    where the elements stay unchanged
Concat(x), Sum(x), Max(x), Min(x), Mean(x)                =>  x
QLut with the identity table and the same quantisation    =>  x
QuantizeLinear(DequantizeLinear(x)), same parameters      =>  x    (8 bit: (q - z) * s / s rounds back to q)
f(x), f(x)                                                =>  f(x) once
"""

from __future__ import annotations

import numpy as np

from tilewright.compiler.graph.graph import Graph, Node
from tilewright.compiler.graph.moves import permutation
from tilewright.compiler.graph.ops.concat import QConcat
from tilewright.compiler.graph.ops.elementwise import IDENTITY_TABLE, QLut
from tilewright.compiler.graph.tensor import EIGHT_BIT
from tilewright.compiler.onnx.onnx_ops import RANDOM
from tilewright.compiler.passes.annotate import quant_of
from tilewright.compiler.passes.integer_rules.rule import RULES

#: Elements of a constant that are looked at first.
_BEGIN = 256


def eliminate(graph: Graph, last: bool = False) -> None:
    """Drops nodes that change nothing, by the rules above.

    Args:
        last: True once the integer ops are made. Before, ops that will become integer ops stay apart, and so do their
            QuantizeLinears: onnxruntime fuses each by itself, and leaves one with two QuantizeLinears in floats.
    """
    graph.prune()
    merge_constants(graph)
    renamed: dict[str, str] = {}
    producers: dict[str, Node] = {}
    seen: dict[object, Node] = {}
    kept: list[Node] = []
    outputs = set(graph.outputs)
    for node in graph:
        node.inputs = [renamed.get(i, i) for i in node.inputs]
        same = _unchanged(graph, node, producers)
        if same is not None and _redirect(graph, node.outputs[0], same, outputs, renamed, producers):
            continue
        if same is not None and node.op != "Identity":
            node.become("Identity", [same])  # a graph output that copies an input or output
        key = None if not last and _is_site(node, producers) else _key(node)
        twin = seen.get(key) if key is not None else None
        if twin is not None and len(twin.outputs) == len(node.outputs) and not outputs.intersection(node.outputs):
            if all(graph.tensor(a).quant is None or _same_quant(graph, a, b)
                   for a, b in zip(node.outputs, twin.outputs) if a and b) and all(
                       b or not a for a, b in zip(node.outputs, twin.outputs)):  # fmt: skip
                renamed.update((a, b) for a, b in zip(node.outputs, twin.outputs) if a)
                continue
        if key is not None:
            seen.setdefault(key, node)
        kept.append(node)
        producers.update((o, node) for o in node.outputs if o)
    graph.nodes = kept
    graph.prune()


def _same_quant(graph: Graph, a: str, b: str) -> bool:
    quant = graph.tensor(a).quant
    return quant is None or quant.same_as(graph.tensor(b).quant)


def _redirect(
    graph: Graph, name: str, same: str, outputs: set[str], renamed: dict[str, str], producers: dict[str, Node]
) -> bool:
    """Makes readers of `name` read `same`. A graph output keeps its name: its producer writes that name instead."""
    if name not in outputs:
        renamed[name] = same
        return True
    maker = producers.get(same)
    if maker is None or same in outputs:
        return False  # an input, a constant or another output: the Identity carries the copy
    maker.outputs = [name if o == same else o for o in maker.outputs]
    graph.tensor(name).quant = graph.tensor(same).quant
    producers[name] = maker
    for node in set_of_nodes(producers):
        node.inputs = [name if i == same else i for i in node.inputs]
    for old, new in list(renamed.items()):
        if new == same:
            renamed[old] = name
    renamed[same] = name
    return True


def set_of_nodes(producers: dict[str, Node]) -> list[Node]:
    return list({id(n): n for n in producers.values()}.values())


def _unchanged(graph: Graph, node: Node, producers: dict[str, Node]) -> str | None:
    """The input the node's only output equals, None if it changes something."""
    if not node.inputs or not node.inputs[0] or len([o for o in node.outputs if o]) != 1 or not node.outputs[0]:
        return None
    name = node.inputs[0]
    x, y = graph.tensor(name), graph.tensor(node.outputs[0])
    if x.dtype != y.dtype and node.op != "QuantizeLinear":
        return None
    same = x.shape == y.shape
    match node.quantized:
        case QConcat(tables=(None,)):
            return name
        case QLut(table=table):
            return name if table == IDENTITY_TABLE and x.quant is not None and x.quant.same_as(y.quant) else None
    match node.op:
        case "Identity" | "Dropout" | "Cast":
            return name
        case "Reshape" | "Flatten" | "Squeeze" | "Unsqueeze" | "Expand" | "Tile":
            return name if same else None
        case "Transpose":
            moved = [p for p in permutation(node) if x.shape[p] != 1]
            return name if same and moved == sorted(moved) else None
        case "Slice":
            steps = graph.const(node.inputs[4]) if len(node.inputs) > 4 else np.ones(1)
            return name if same and steps is not None and bool(np.all(steps == 1)) else None
        case "Pad":
            return name if same and not np.any(graph.const(node.inputs[1])) else None
        case "Concat" | "Sum" | "Max" | "Min" | "Mean":
            return name if len(node.inputs) == 1 else None
        case "QuantizeLinear":
            source = producers.get(name)
            if source is None or source.op != "DequantizeLinear":
                return None
            a, b, integer = quant_of(graph, source), quant_of(graph, node), graph.tensor(source.inputs[0])
            exact = a is not None and b is not None and a.same_as(b)
            return integer.name if exact and integer.dtype == y.dtype and y.dtype in EIGHT_BIT else None
    return None


def _is_site(node: Node, producers: dict[str, Node]) -> bool:
    """True for an op that an integer rule may take, or a QuantizeLinear behind one."""
    before = {producers[i].op for i in node.inputs if i in producers}
    if node.op in RULES:
        return "DequantizeLinear" in before
    return node.op == "QuantizeLinear" and not before.isdisjoint({*RULES, "Relu", "Clip"})


def _key(node: Node) -> object:
    """A key that is equal for nodes with equal results; None for nodes that must not be merged."""
    if node.op in RANDOM:
        return None
    try:
        attrs = tuple(sorted((k, _hashable(v)) for k, v in node.attrs.items()))
        key = (node.op, tuple(node.inputs), attrs, node.quantized, len(node.outputs))
        hash(key)
    except TypeError:
        return None
    return key


def _hashable(value: object) -> object:
    if isinstance(value, np.ndarray):
        return (str(value.dtype), value.shape, value.tobytes())
    if isinstance(value, list | tuple):
        return tuple(_hashable(v) for v in value)
    return value


def merge_constants(graph: Graph) -> None:
    """Merges equal constants (type, shape, bytes, quantisation) into one."""
    seen: dict[object, list[str]] = {}
    renamed: dict[str, str] = {}
    outputs = set(graph.outputs)
    for name, tensor in graph.tensors.items():
        if tensor.data is None or name in outputs:
            continue
        quant = tensor.quant
        params = (quant.scale.tobytes(), quant.zero_point.tobytes(), quant.axis) if quant is not None else None
        begin = tensor.data.reshape(-1)[:_BEGIN].tobytes()  # large ones are only read where they may be equal
        others = seen.setdefault((str(tensor.dtype), tensor.shape, params, begin), [])
        data = tensor.data.tobytes() if others else b""
        equal = next((other for other in others if graph.tensors[other].data.tobytes() == data), None)  # type: ignore[union-attr]
        if equal is None:
            others.append(name)
        else:
            renamed[name] = equal
    for node in graph:
        node.inputs = [renamed.get(i, i) for i in node.inputs]
