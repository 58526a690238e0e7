"""Simplifies by algebra that changes no value, repeated until nothing changes.

x * 1, x / 1, x + 0, x - 0, x ^ 1                  =>  x
x / 2^n                                            =>  x * 2^-n
x - c                                              =>  x + (-c)
x ^ 2                                              =>  x * x
Flatten, Squeeze, Unsqueeze                        =>  Reshape
Transpose that only moves dimensions of size 1     =>  Reshape
Reshape(Reshape(x))                                =>  Reshape(x)
Transpose(Transpose(x))                            =>  Transpose(x) with the permutations composed
Squeeze(Transpose(Reshape(x))), five axes and more =>  Transpose(Reshape(x)) without the axes of size 1
f(Expand(x), y)                                    =>  f(x, y)            f broadcasts
MatMul(x, W) + b                                   =>  Gemm(x, W, b)      x and W of rank 2, b one per column
Gemm(Transpose(a), b)                              =>  Gemm(a, b) with transA flipped; the same for b
Conv(Pad(x, 0)), QConv(Pad(x, zero point))         =>  Conv(x) with larger pads
GlobalMaxPool, ReduceMax of quantised planes       =>  MaxPool with a window of their size
Relu(Relu(x)), Clip(Clip(x)) with the same bounds  =>  once
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from tilewright.compiler.graph.graph import Graph, Node
from tilewright.compiler.graph.moves import permutation
from tilewright.compiler.graph.ops.convolution import QConv
from tilewright.compiler.graph.ops.quantized_op import Windowed
from tilewright.compiler.graph.tensor import EIGHT_BIT
from tilewright.compiler.passes.fold.eliminate import eliminate

_BROADCASTING = {"Add", "Sub", "Mul", "Div", "Pow", "Equal", "Less", "Greater", "And", "Or", "Where", "Max", "Min"}
_NEUTRAL = {"Mul": 1.0, "Div": 1.0, "Pow": 1.0, "Add": 0.0, "Sub": 0.0}


class _View:
    """A graph with the lookups that rules need."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.producers, self.consumers = graph.producers(), graph.consumers()

    def maker(self, name: str, op: str) -> Node | None:
        node = self.producers.get(name)
        return node if node is not None and node.op == op else None

    def only_use(self, name: str) -> bool:
        return len(self.consumers.get(name, [])) == 1 and name not in self.graph.outputs


Rule = Callable[[_View, Node], bool]


def simplify(graph: Graph) -> None:
    for _ in range(100):
        view = _View(graph)
        changed = False
        for node in graph:
            for rule in RULES.get(node.op, ()):
                if rule(view, node):
                    changed = True
                    break
        if not changed:
            break
        eliminate(graph)


def neutral(view: _View, node: Node) -> bool:
    """Drops an operation with a neutral operand."""
    graph = view.graph
    for i in (1, 0) if node.op in ("Mul", "Add") else (1,):
        value, other = graph.const(node.inputs[i]), node.inputs[1 - i]
        if value is None or value.size == 0 or not np.all(value == _NEUTRAL[node.op]):
            continue
        if graph.tensor(other).shape == graph.tensor(node.outputs[0]).shape:
            node.become("Identity", [other])
            return True
    return False


def divide_by_power_of_two(view: _View, node: Node) -> bool:
    value = view.graph.const(node.inputs[1])
    if value is None or value.dtype.kind != "f" or value.size == 0:
        return False
    with np.errstate(all="ignore"):
        mantissa, _ = np.frexp(value)
        inverse = (1 / value).astype(value.dtype)
    if not np.all(np.abs(mantissa) == 0.5) or not np.all(np.isfinite(inverse) & (inverse != 0)):
        return False
    node.become("Mul", [node.inputs[0], view.graph.constant("factor", inverse)])
    return True


def subtract_constant(view: _View, node: Node) -> bool:
    value = view.graph.const(node.inputs[1])
    if value is None or value.dtype.kind != "f":
        return False
    node.become("Add", [node.inputs[0], view.graph.constant("addend", -value)])
    return True


def square(view: _View, node: Node) -> bool:
    value, x = view.graph.const(node.inputs[1]), view.graph.tensor(node.inputs[0])
    same = x.shape == view.graph.tensor(node.outputs[0]).shape and x.dtype.kind == "f"
    if value is None or value.size == 0 or not np.all(value == 2) or not same:
        return False
    node.become("Mul", [x.name, x.name])
    return True


def to_reshape(view: _View, node: Node) -> bool:
    """Replaces Flatten, Squeeze, Unsqueeze, and a Transpose whose larger dimensions stay in order, with Reshape."""
    graph = view.graph
    shape = graph.tensor(node.inputs[0]).shape
    if node.op == "Transpose":
        moved = [p for p in permutation(node) if shape[p] != 1]
        if moved != sorted(moved):
            return False
    target = np.asarray(graph.tensor(node.outputs[0]).shape, np.int64)
    node.become("Reshape", [node.inputs[0], graph.constant("shape", target)], {"allowzero": 1})
    return True


def reshape_chain(view: _View, node: Node) -> bool:
    inner = view.maker(node.inputs[0], "Reshape")
    if inner is None:
        return False
    node.inputs = [inner.inputs[0], *node.inputs[1:]]
    return True


def squeezed_transpose(view: _View, node: Node) -> bool:
    """Drops axes of size 1 in front of a Transpose, not behind it, so that heads of attention look as usual."""
    graph, turn = view.graph, view.maker(node.inputs[0], "Transpose")
    split = None if turn is None else view.maker(turn.inputs[0], "Reshape")
    if turn is None or split is None or not (view.only_use(turn.inputs[0]) and view.only_use(node.inputs[0])):
        return False
    before, after = graph.tensor(turn.inputs[0]).shape, graph.tensor(node.outputs[0]).shape
    order = [axis for axis in permutation(turn) if before[axis] != 1]
    kept = [axis for axis, size in enumerate(after) if size != 1]
    if len(before) < 5 or len(after) >= len(before) or [before[axis] for axis in order] != [after[k] for k in kept]:
        return False
    perm, sizes = list(range(len(after))), [1] * len(after)
    for place, axis in zip(kept, sorted(order), strict=True):
        sizes[place] = before[axis]
        perm[kept[order.index(axis)]] = place
    heads = graph.like(graph.tensor(turn.inputs[0]), turn.inputs[0], tuple(sizes))
    turned = graph.like(graph.tensor(node.outputs[0]), node.outputs[0], after)
    split.inputs, split.attrs = [split.inputs[0], graph.constant("shape", np.array(sizes, np.int64))], {"allowzero": 1}
    split.outputs, turn.inputs, turn.outputs, turn.attrs = [heads], [heads], [turned], {"perm": perm}
    node.become("Identity", [turned])
    return True


def transpose_chain(view: _View, node: Node) -> bool:
    inner = view.maker(node.inputs[0], "Transpose")
    if inner is None:
        return False
    first = permutation(inner)
    node.inputs, node.attrs = [inner.inputs[0]], {"perm": [first[p] for p in permutation(node)]}
    return True


def drop_expand(view: _View, node: Node) -> bool:
    """Drops an Expand in front of an op that broadcasts itself, as long as the result keeps its shape."""
    changed = False
    for i, name in enumerate(node.inputs):
        expand = view.maker(name, "Expand")
        if expand is None:
            continue
        inputs = [*node.inputs]
        inputs[i] = expand.inputs[0]
        shapes = [view.graph.tensor(n).shape for n in inputs if n]
        if np.broadcast_shapes(*shapes) == view.graph.tensor(node.outputs[0]).shape:
            node.inputs = inputs
            changed = True
    return changed


def product_and_bias(view: _View, node: Node) -> bool:
    graph = view.graph
    for i in (0, 1):
        product, bias = view.maker(node.inputs[i], "MatMul"), graph.const(node.inputs[1 - i])
        if product is None or bias is None or not view.only_use(node.inputs[i]):
            continue
        a, b = (graph.tensor(n) for n in product.inputs)
        columns = b.shape[-1]
        if (
            len(a.shape) != 2
            or len(b.shape) != 2
            or bias.shape not in ((columns,), (1, columns))
            or a.dtype.kind != "f"
        ):
            continue
        attrs = {"alpha": 1.0, "beta": 1.0, "transA": 0, "transB": 0}
        node.origin = (*product.origin, *node.origin)
        node.become("Gemm", [a.name, b.name, node.inputs[1 - i]], attrs)
        return True
    return False


def transposed_operand(view: _View, node: Node) -> bool:
    changed = False
    for i, key in ((0, "transA"), (1, "transB")):
        move = view.maker(node.inputs[i], "Transpose")
        if move is not None and permutation(move) == [1, 0]:
            node.inputs = [move.inputs[0] if k == i else n for k, n in enumerate(node.inputs)]
            node.attrs = {**node.attrs, key: 0 if node.attrs.get(key) else 1}
            changed = True
    return changed


def pad_into_conv(view: _View, node: Node) -> bool:
    graph = view.graph
    pad = view.maker(node.inputs[0], "Pad")
    if pad is None or pad.attrs.get("mode", "constant") != "constant":
        return False
    pads, value = graph.const(pad.inputs[1]), graph.const(pad.inputs[2])
    quant = graph.tensor(pad.inputs[0]).quant
    op = node.quantized
    zero = 0 if op is None else (int(quant.zero_point) if quant is not None and quant.per_tensor else None)
    if pads is None or value is None or zero is None or value.size != 1 or value.reshape(()) != zero:
        return False
    rank = len(pads) // 2
    if (pads < 0).any() or pads[[0, 1, rank, rank + 1]].any():
        return False
    extra = [int(p) for p in (*pads[2:rank], *pads[rank + 2 :])]
    summed = [a + b for a, b in zip(node.attributes["pads"], extra)]
    node.inputs = [pad.inputs[0], *node.inputs[1:]]
    if isinstance(op, Windowed):
        node.quantized = replace(op, pads=tuple(summed))
    else:
        node.attrs = {**node.attrs, "pads": summed}
    return True


def max_of_planes(view: _View, node: Node) -> bool:
    """Replaces a maximum over quantised planes, among which there is no NaN, with MaxPool."""
    graph = view.graph
    if graph.tensor(node.inputs[0]).dtype not in EIGHT_BIT and view.maker(node.inputs[0], "DequantizeLinear") is None:
        return False
    x, y = graph.tensor(node.inputs[0]), graph.tensor(node.outputs[0])
    if len(x.shape) != 4 or y.shape != (*x.shape[:2], 1, 1) or 0 in x.shape or x.shape[2:] == (1, 1):
        return False
    kernel = list(x.shape[2:])
    attrs = {"kernel_shape": kernel, "strides": [1, 1], "pads": [0] * 4, "dilations": [1, 1], "ceil_mode": 0}
    node.become("MaxPool", [x.name], attrs)
    return True


def sum_of_two(view: _View, node: Node) -> bool:
    if len(node.inputs) != 2:
        return False
    node.become("Add", node.inputs)
    return True


def twice(view: _View, node: Node) -> bool:
    inner = view.maker(node.inputs[0], node.op)
    if inner is None or inner.inputs[1:] != node.inputs[1:]:
        return False
    node.become("Identity", [node.inputs[0]])
    return True


RULES: dict[str, tuple[Rule, ...]] = {
    "Mul": (neutral, drop_expand),
    "Div": (neutral, divide_by_power_of_two, drop_expand),
    "Pow": (neutral, square),
    "Add": (neutral, product_and_bias, drop_expand),
    "Sub": (neutral, subtract_constant, drop_expand),
    "Flatten": (to_reshape,),
    "Squeeze": (to_reshape,),
    "Unsqueeze": (to_reshape,),
    "Reshape": (reshape_chain, squeezed_transpose),
    "Transpose": (transpose_chain, to_reshape),
    "Gemm": (transposed_operand,),
    "Conv": (pad_into_conv,),
    QConv.name: (pad_into_conv,),
    "Sum": (sum_of_two,),
    "GlobalMaxPool": (max_of_planes,),
    "ReduceMax": (max_of_planes,),
    "Relu": (twice,),
    "Clip": (twice,),
    **dict.fromkeys(_BROADCASTING - {"Mul", "Div", "Pow", "Add", "Sub"}, (drop_expand,)),
}
