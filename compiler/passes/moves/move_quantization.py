"""Makes data movement act on integers.

Moving, selecting and repeating elements commutes with the elementwise Q and DQ, so

    DQ -> move -> Q   =>  move            same scale
    DQ -> move        =>  move -> DQ      the product behind it may then read integers
    move -> Q         =>  Q -> move       the op in front of it may then write integers

Pad's value is one more element. Where DQ's scale does not have it (an infinity, say) and another one follows, Pad stays
behind DQ, and Q of that other scale rises through it.

MaxPool, ReduceMax and ReduceMin join in because DQ (positive scale) and Q are monotone. The ONNX tensor's name goes to
the tensor in its place: the integer result of the move that Q wrote.
"""

from __future__ import annotations

import numpy as np

from tilewright.compiler.graph.graph import Graph, Node, Quant, Tensor
from tilewright.compiler.graph.moves import permutation
from tilewright.compiler.graph.quantization import AS_LITERT, dequantize, is_activation, quantize, quantize_by
from tilewright.compiler.graph.resampling import Resampling
from tilewright.compiler.graph.tensor import EIGHT_BIT
from tilewright.compiler.passes.annotate import MONOTONE, MOVES, annotate, quant_of
from tilewright.compiler.passes.fold.fold_constants import fold_constants


def move_quantization(graph: Graph) -> None:
    annotate(graph)
    _transpose_weights(graph)
    _sink_dequantize(graph)
    _raise_quantize(graph)
    fold_constants(graph)


def _transpose_weights(graph: Graph) -> None:
    """Replaces Transpose(DQ(constant per channel)) with DQ(transposed constant), the channel axis moved along."""
    producers = graph.producers()
    for node in graph:
        source = producers.get(node.inputs[0]) if node.op == "Transpose" else None
        quant = quant_of(graph, source) if source is not None and source.op == "DequantizeLinear" else None
        if source is None or quant is None or quant.axis is None:
            continue
        tensor = graph.tensor(source.inputs[0])
        if tensor.data is None:
            continue
        perm = permutation(node)
        axis = perm.index(quant.axis)
        moved = Quant(quant.scale, quant.zero_point, axis)
        name = graph.constant(f"{tensor.name}.transposed", np.ascontiguousarray(tensor.data.transpose(perm)), moved)
        node.become("DequantizeLinear", [name, *source.inputs[1:]], {**source.attrs, "axis": axis})


def movable(graph: Graph, node: Node, sinking: bool) -> bool:
    """True if the node only moves elements of its first input."""
    if node.op == "Resize":
        how = Resampling.of(graph, node)
        return how is not None and not how.crops and how.copies(node.attrs["mode"])
    if node.op == "Pad" and node.attrs.get("mode") == "constant":
        return graph.const(node.inputs[2]) is not None
    if node.op == "MaxPool":
        return len(node.outputs) == 1 and sinking
    return node.op in MOVES or (node.op in MONOTONE and sinking)


def _sink_dequantize(graph: Graph) -> None:
    producers, consumers = graph.producers(), graph.consumers()
    outputs = set(graph.outputs)
    nodes: list[Node] = []
    dropped: set[int] = set()
    for node in graph:
        if id(node) in dropped:
            continue
        source = producers.get(node.inputs[0]) if node.inputs else None
        quant = quant_of(graph, source) if source is not None and source.op == "DequantizeLinear" else None
        data = graph.tensor(source.inputs[0]) if source is not None and quant is not None else None
        if data is None or source is None or quant is None or not movable(graph, node, sinking=True):
            nodes.append(node)
            continue
        if node.op in MONOTONE and not np.all(quant.scale > 0):  # the order of the integers is another one
            nodes.append(node)
            continue
        if not is_activation(data) or not quant.same_as(data.quant) or not _keeps_value(graph, node, data, consumers):
            nodes.append(node)
            continue
        integers: list[str] = []
        after: list[Node] = []
        for name in node.outputs:
            users = consumers.get(name, [])
            same = [u for u in users if _same(graph, u, quant, data.dtype)]
            if same and len(same) == len(users) and name not in outputs:
                first, *others = (u.outputs[0] for u in same)
                integers.append(first)
                dropped.update(id(u) for u in same)
                for other in others:
                    _alias(graph, other, first, outputs, after, consumers)
            else:
                fresh = graph.unique(f"{name}.{data.dtype}")
                graph.add(Tensor(fresh, graph.tensor(name).shape, data.dtype, None, quant))
                integers.append(fresh)
                back = Node("DequantizeLinear", [fresh, *source.inputs[1:]], [name], dict(source.attrs), node.name)
                after.append(back)
                producers[name] = back
        inputs = [data.name, *node.inputs[1:]]
        if node.op == "Pad" and node.attrs.get("mode") == "constant":
            inputs[2] = _pad_value(graph, node, quant, data.dtype)
        moved = Node(node.op, inputs, integers, node.attrs, node.name, (*node.origin, *source.origin))
        nodes += [moved, *after]
        for name in integers:
            producers[name] = moved
            graph.tensor(name).quant = quant
    graph.nodes = nodes


def _alias(
    graph: Graph, name: str, first: str, outputs: set[str], after: list[Node], consumers: dict[str, list[Node]]
) -> None:
    """Makes readers of `name` read `first`; a graph output keeps its name through an Identity."""
    for user in consumers.get(name, []):
        user.inputs = [first if i == name else i for i in user.inputs]
        if user not in consumers.setdefault(first, []):
            consumers[first].append(user)
    if name in outputs:
        after.append(Node("Identity", [first], [name]))


def _same(graph: Graph, node: Node, quant: Quant, dtype: np.dtype) -> bool:
    return (
        node.op == "QuantizeLinear"
        and quant.same_as(quant_of(graph, node))
        and graph.tensor(node.outputs[0]).dtype == dtype
    )


def _pad_value(graph: Graph, node: Node, quant: Quant, dtype: np.dtype, quantizer: Node | None = None) -> str:
    value = graph.const(node.inputs[2])
    assert value is not None
    attrs = quantizer.attrs if quantizer is not None else {}
    made = quantize_by(attrs, value.astype(np.float32).reshape(()), quant, dtype)
    return graph.constant("pad_value", made.reshape(()))


def _keeps_value(graph: Graph, node: Node, data: Tensor, consumers: dict[str, list[Node]]) -> bool:
    """True if a Pad of the integers `data` has the value of the Pad of reals: their scale has it exactly, or all its
    results are quantised again so. True for other ops.
    """
    if node.op != "Pad" or node.attrs.get("mode") != "constant":
        return True
    value, quant = graph.const(node.inputs[2]), data.quant
    assert value is not None and quant is not None
    if np.all(dequantize(quantize(value.astype(np.float32), quant, data.dtype), quant) == value):
        return True
    left = [name for name in node.outputs if name]
    while left:
        name = left.pop()
        for user in consumers.get(name, []):
            if _same(graph, user, quant, data.dtype) and not user.attrs.get(AS_LITERT):
                continue
            if user.inputs[0] != name or not movable(graph, user, sinking=True):
                return False
            left += [made for made in user.outputs if made]
        if name in graph.outputs:
            return False
    return True


def _raise_quantize(graph: Graph) -> None:
    """Moves Q of a moved float tensor up: quantise first, move integers. Backwards, so that it passes whole chains."""
    producers, consumers = graph.producers(), graph.consumers()
    outputs = set(graph.outputs)
    for node in reversed(list(graph.nodes)):
        if node.op not in MOVES or len(node.outputs) != 1 or not movable(graph, node, sinking=False):
            continue
        name, source = node.outputs[0], node.inputs[0]
        users = consumers.get(name, [])
        if len(users) != 1 or name in outputs or users[0].op != "QuantizeLinear":
            continue
        quantizer = users[0]
        quant, result = quant_of(graph, quantizer), graph.tensor(quantizer.outputs[0])
        if quant is None or not quant.per_tensor or result.dtype not in EIGHT_BIT:
            continue
        maker = producers.get(source)
        if maker is None and not graph.tensor(source).is_const:
            continue  # a graph input: nothing in front of the move could use the integers
        if len(consumers.get(source, [])) != 1 or source in outputs:
            continue
        fresh = graph.unique(f"{source}.{result.dtype}")
        graph.add(Tensor(fresh, graph.tensor(source).shape, result.dtype, None, quant))
        first = Node("QuantizeLinear", [source, *quantizer.inputs[1:]], [fresh], quantizer.attrs, quantizer.name)
        inputs = [fresh, *node.inputs[1:]]
        if node.op == "Pad" and node.attrs.get("mode") == "constant":
            inputs[2] = _pad_value(graph, node, quant, result.dtype, quantizer)
        moved = Node(node.op, inputs, [result.name], node.attrs, node.name, (*node.origin, *quantizer.origin))
        at = graph.nodes.index(node)
        graph.nodes.remove(quantizer)
        graph.nodes[at : at + 1] = [first, moved]
        consumers[source] = [first]
        producers[result.name] = moved
