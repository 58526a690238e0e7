"""Replaces functions of one 8-bit tensor with tables.

A tensor is a function of a root r if every element of it depends on the same element of r alone. These are r itself,
and elementwise ops (Q and DQ included) over functions of r and constants whose elements are all alike, such as an
attention mask that masks nothing. Where such a tensor is 8-bit and quantised,

    t = f(r)   =>   t = QLut(r),  table[byte] = f(byte)     f: the sub-graph itself, run on all 256 inputs

with the farthest root there is; sub-graphs in between die unless something else reads them. So x*sigmoid(x),
x*hardsigmoid(x), GELU written with Erf, and requantisations are one look-up each.
"""

from __future__ import annotations

import numpy as np

from tilewright.compiler.errors import CompileError
from tilewright.compiler.graph.graph import Graph, Node, Tensor
from tilewright.compiler.graph.ops.elementwise import Elementwise, QLut
from tilewright.compiler.graph.quantization import is_activation
from tilewright.compiler.passes.fold.evaluate import node_value

ELEMENTWISE = {
    "Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Cast", "Ceil", "Celu", "Clip", "Cos", "Cosh", "Elu",
    "Erf", "Exp", "Floor", "Gelu", "HardSigmoid", "HardSwish", "Identity", "IsInf", "IsNaN", "LeakyRelu", "Log", "Mish",
    "Neg", "Not", "Reciprocal", "Relu", "Round", "Selu", "Shrink", "Sigmoid", "Sign", "Sin", "Sinh", "Softplus",
    "Softsign", "Sqrt", "Swish", "Tan", "Tanh", "ThresholdedRelu",
    "Add", "And", "Div", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Max", "Mean", "Min", "Mod",
    "Mul", "Or", "PRelu", "Pow", "Sub", "Sum", "Where", "Xor",
    "QuantizeLinear", "DequantizeLinear",
}  # fmt: skip

#: Functions that onnxruntime approximates in float32: its last bits are others than those of the exact value.
_APPROXIMATED = {
    "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Celu", "Cos", "Cosh", "Elu", "Erf", "Exp", "Gelu", "Log",
    "Mish", "Pow", "Selu", "Sigmoid", "Sin", "Sinh", "Softplus", "Swish", "Tan", "Tanh",
}  # fmt: skip
#: Steps, relative to the value, by which these approximations may be off: some units in the last place of float32.
_LAST_BITS = 1e-6


def fuse_lut(graph: Graph) -> None:
    roots: dict[str, list[str]] = {}  # candidates, nearest first
    for name in [*graph.inputs, *(n for n, t in graph.tensors.items() if not t.is_const)]:
        if is_activation(graph.tensors[name]):
            roots[name] = [name]
    producers = graph.producers()
    nodes: list[Node] = []
    for node in graph:
        found = _roots(graph, node, roots)
        tensor = graph.tensors.get(node.outputs[0]) if len(node.outputs) == 1 else None
        if not found or tensor is None:
            nodes.append(node)
            continue
        if not is_activation(tensor):
            roots[tensor.name] = found
            nodes.append(node)
            continue
        roots[tensor.name] = [tensor.name, *found]
        root = graph.tensor(found[-1])
        try:
            table, reason = _table(graph, tensor, root, producers)
        except CompileError:
            nodes.append(node)  # an op the reference implementation cannot run; it stays as it is
            roots[tensor.name] = [tensor.name]
            continue
        lut = QLut(table=table.tobytes(), reason=reason)
        nodes.append(Node.of(lut, [root.name], [tensor.name], node.name, _origin(node)))
    graph.nodes = nodes
    graph.prune()


def _origin(node: Node) -> tuple[str, ...]:
    return node.origin or (node.name,)


def _roots(graph: Graph, node: Node, roots: dict[str, list[str]]) -> list[str]:
    """Roots the node's result is a function of, nearest first; empty if there are none."""
    if node.op not in ELEMENTWISE and not isinstance(node.quantized, Elementwise):
        return []
    shape = graph.tensor(node.outputs[0]).shape
    common: list[str] | None = None
    for name in node.inputs:
        if not name:
            continue
        tensor = graph.tensor(name)
        if tensor.data is not None:
            if not _uniform(tensor.data):
                return []
            continue
        own = roots.get(name)
        if own is None:
            return []
        common = own if common is None else [r for r in common if r in own]
    return [r for r in common or [] if graph.tensor(r).shape == shape]


def _uniform(data: np.ndarray) -> bool:
    """True if there are elements, and all have the same value."""
    return data.size == 1 or (data.size > 1 and bool(np.all(data == data.reshape(-1)[0])))


def _table(graph: Graph, tensor: Tensor, root: Tensor, producers: dict[str, Node]) -> tuple[np.ndarray, str]:
    """The table uint8[256] from each byte of `root` to the byte of `tensor`, by running the nodes between them; and the
    reason why the reference may have another byte in places, "" if it cannot.
    """
    values: dict[str, np.ndarray] = {root.name: np.arange(256, dtype=np.uint8).view(root.dtype)}

    def scalar(name: str) -> np.ndarray | None:
        if not name:
            return None
        data = graph.const(name)
        return data.reshape(-1)[0] if data is not None else values[name]

    order: list[Node] = []
    pending = [tensor.name]
    seen = {root.name}
    while pending:
        name = pending[-1]
        node = producers.get(name)
        inputs = [] if name in seen or node is None else [i for i in node.inputs if i and graph.const(i) is None]
        missing = [i for i in inputs if i not in seen]
        if missing:
            pending += missing
            continue
        pending.pop()
        if name not in seen and node is not None:
            seen.add(name)
            order.append(node)
    for node in order:
        (value,) = node_value(graph, node, [scalar(n) for n in node.inputs])
        values[node.outputs[0]] = np.broadcast_to(value, (256,))
    table = np.ascontiguousarray(values[tensor.name].astype(tensor.dtype)).view(np.uint8)
    functions = sorted({node.op for node in order} & _APPROXIMATED)
    rounded = [(values[n.inputs[0]], scalar(n.inputs[1])) for n in order if n.op == "QuantizeLinear" and functions]
    if any(_is_near_tie(value, scale) for value, scale in rounded):
        return table, f"a table of {', '.join(functions)} with values beside a tie: last-bit differences can flip them"
    return table, ""


def _is_near_tie(values: np.ndarray, scale: np.ndarray | None) -> bool:
    """True if a value in steps of `scale` lies so near to the middle of two integers that last bits decide."""
    with np.errstate(all="ignore"):
        steps = values.astype(np.float64) / np.asarray(scale, np.float64)
        off = np.abs(steps - np.floor(steps) - 0.5)
        return bool(np.any(off <= _LAST_BITS * np.maximum(np.abs(steps), 1)))
