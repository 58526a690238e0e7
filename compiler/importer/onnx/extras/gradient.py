"""Gradient: derivatives by reverse accumulation over the nodes imported so far."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tilewright.compiler.errors import CompileError, UnsupportedError
from tilewright.compiler.graph.graph import Node
from tilewright.compiler.importer.onnx.builder import OnnxBuilder
from tilewright.compiler.importer.onnx.handlers import handles
from tilewright.compiler.importer.onnx.onnx_node import OnnxNode
from tilewright.compiler.onnx.onnx_ops import elem_type


class Tape:
    """A writer of derivative formulas: from the adjoint of a node's output to those of its inputs."""

    def __init__(self, builder: OnnxBuilder) -> None:
        self.builder = builder

    def emit(self, op: str, *inputs: str, **attrs: object) -> str:
        return self.builder.emit(op, list(inputs), attrs=attrs)

    def number(self, value: float, like: str) -> str:
        return self.builder.constant("number", value, self.builder.tensor(like).dtype)

    def reduced(self, value: str, to: str) -> str:
        """Sums a broadcast operand's adjoint over the axes along which the operand was repeated."""
        have, want = self.builder.shape(value), self.builder.shape(to)
        if have == want:
            return value
        wide = (1,) * (len(have) - len(want)) + want
        axes = [k for k, (h, w) in enumerate(zip(have, wide)) if h != w]
        if axes:
            value = self.emit("ReduceSum", value, self.builder.ints("axes", axes), keepdims=1)
        return self.reshaped(value, to)

    def reshaped(self, value: str, like: str) -> str:
        return self.emit("Reshape", value, self.builder.ints("shape", self.builder.shape(like)), allowzero=1)

    def transposed(self, value: str) -> str:
        rank = len(self.builder.shape(value))
        return self.emit("Transpose", value, perm=[*range(rank - 2), rank - 1, rank - 2])

    def expanded(self, value: str, node: Node) -> str:
        """Repeats the adjoint of a reduction's result along the reduced axes."""
        shape = self.builder.shape(node.inputs[0])
        axes = self.builder.const(node.inputs[1]) if len(node.inputs) > 1 else None
        reduced = {int(a) % len(shape) for a in axes} if axes is not None else set(range(len(shape)))
        kept = [1 if k in reduced else n for k, n in enumerate(shape)]
        value = self.emit("Reshape", value, self.builder.ints("shape", kept), allowzero=1)
        return self.emit("Expand", value, self.builder.ints("shape", shape))


Rule = Callable[[Tape, Node, str], list[str]]


def _binary(left: Callable[[Tape, Node, str], str], right: Callable[[Tape, Node, str], str]) -> Rule:
    return lambda t, n, g: [t.reduced(left(t, n, g), n.inputs[0]), t.reduced(right(t, n, g), n.inputs[1])]


def _mat_mul(t: Tape, n: Node, g: str) -> list[str]:
    a, b = n.inputs
    if min(len(t.builder.shape(a)), len(t.builder.shape(b))) < 2:
        raise UnsupportedError(
            f"Gradient through MatMul {n.name!r} of a vector is not supported; matrices are accepted"
        )
    return [t.reduced(t.emit("MatMul", g, t.transposed(b)), a), t.reduced(t.emit("MatMul", t.transposed(a), g), b)]


def _relu(t: Tape, n: Node, g: str) -> list[str]:
    zero = t.number(0, g)
    return [t.emit("Where", t.emit("Greater", n.inputs[0], zero), g, zero)]


def _sigmoid(t: Tape, n: Node, g: str) -> list[str]:
    y = n.outputs[0]
    return [t.emit("Mul", g, t.emit("Mul", y, t.emit("Sub", t.number(1, g), y)))]


def _tanh(t: Tape, n: Node, g: str) -> list[str]:
    y = n.outputs[0]
    return [t.emit("Mul", g, t.emit("Sub", t.number(1, g), t.emit("Mul", y, y)))]


def _pow(t: Tape, n: Node, g: str) -> list[str]:
    """The adjoint of the base of a power; the exponent must be a constant."""
    x, p = n.inputs
    less = t.emit("Sub", p, t.builder.constant("one", 1, t.builder.tensor(p).dtype))
    factor = t.emit("Cast", p, to=elem_type(t.builder.tensor(x).dtype))
    slope = t.emit("Mul", factor, t.emit("Pow", x, less))
    return [t.reduced(t.emit("Mul", g, slope), x), ""]


def _mean(t: Tape, n: Node, g: str) -> list[str]:
    count = t.builder.tensor(n.inputs[0]).size / max(t.builder.tensor(n.outputs[0]).size, 1)
    return [t.emit("Div", t.expanded(g, n), t.number(count, g))]


def _transpose(t: Tape, n: Node, g: str) -> list[str]:
    perm = n.attrs.get("perm") or list(range(len(t.builder.shape(g))))[::-1]
    return [t.emit("Transpose", g, perm=[int(p) for p in np.argsort(perm)])]


RULES: dict[str, Rule] = {
    "Identity": lambda t, n, g: [g],
    "Neg": lambda t, n, g: [t.emit("Neg", g)],
    "Exp": lambda t, n, g: [t.emit("Mul", g, n.outputs[0])],
    "Log": lambda t, n, g: [t.emit("Div", g, n.inputs[0])],
    "Sqrt": lambda t, n, g: [t.emit("Div", g, t.emit("Add", n.outputs[0], n.outputs[0]))],
    "Relu": _relu,
    "Sigmoid": _sigmoid,
    "Tanh": _tanh,
    "Add": _binary(lambda t, n, g: g, lambda t, n, g: g),
    "Sub": _binary(lambda t, n, g: g, lambda t, n, g: t.emit("Neg", g)),
    "Mul": _binary(lambda t, n, g: t.emit("Mul", g, n.inputs[1]), lambda t, n, g: t.emit("Mul", g, n.inputs[0])),
    "Div": _binary(
        lambda t, n, g: t.emit("Div", g, n.inputs[1]),
        lambda t, n, g: t.emit("Neg", t.emit("Div", t.emit("Mul", g, n.outputs[0]), n.inputs[1])),
    ),
    "Pow": _pow,
    "MatMul": _mat_mul,
    "ReduceSum": lambda t, n, g: [t.expanded(g, n)],
    "ReduceMean": _mean,
    "Reshape": lambda t, n, g: [t.reshaped(g, n.inputs[0]), ""],
    "Squeeze": lambda t, n, g: [t.reshaped(g, n.inputs[0]), ""],
    "Unsqueeze": lambda t, n, g: [t.reshaped(g, n.inputs[0]), ""],
    "Flatten": lambda t, n, g: [t.reshaped(g, n.inputs[0])],
    "Transpose": _transpose,
}


@handles("Gradient", domain="ai.onnx.preview.training")
def gradient(builder: OnnxBuilder, node: OnnxNode) -> None:
    """Emits dy/dx for the graph's tensors `xs`, at the values of the inputs, which may be other tensors than `xs`."""
    xs, zs, y = list(node.attrs["xs"]), list(node.attrs.get("zs") or []), node.attrs["y"]
    if len(node.inputs) != len(xs) + len(zs):
        raise CompileError(f"{node.label}: {len(node.inputs)} inputs for {len(xs) + len(zs)} tensors in xs and zs")
    builder.tensor(y)
    at = dict(zip([*xs, *zs], node.inputs))
    path = _path_nodes(builder, set(at), y)
    if any(name != value for name, value in at.items()):
        path = _emit_copies(builder, path, at)
        y = at.get(y, y)
    tape = Tape(builder)
    adjoints = {y: builder.constant("seed", np.ones(builder.shape(y)), builder.tensor(y).dtype)}
    for inner in path[::-1]:
        g = adjoints.get(inner.outputs[0])
        if g is None:
            continue
        if inner.op not in RULES:
            raise UnsupportedError(
                f"{node.label}: the derivative of {inner.op} {inner.name!r} is not supported; "
                f"supported: {', '.join(RULES)}"
            )
        for name, part in zip(inner.inputs, RULES[inner.op](tape, inner, g)):
            if part:
                adjoints[name] = tape.emit("Add", adjoints[name], part) if name in adjoints else part
    for x, name in zip(xs, node.outputs):
        if name:
            value = at[x]
            none = np.zeros(builder.shape(value), builder.tensor(value).dtype)
            builder.emit("Identity", [adjoints.get(value) or builder.constant("zero", none)], [name])


def _path_nodes(builder: OnnxBuilder, sources: set[str], y: str) -> list[Node]:
    """The nodes on the paths from the sources to y, in order."""
    needed, path = {y} - sources, []
    for inner in reversed(builder.graph.nodes):
        if needed & set(inner.outputs):
            path.append(inner)
            needed |= {name for name in inner.inputs if name} - sources
    return path[::-1]


def _emit_copies(builder: OnnxBuilder, path: list[Node], at: dict[str, str]) -> list[Node]:
    """Emits the nodes once more on other values. `at` maps old tensor names to new ones; results are added to it."""
    first = len(builder.graph.nodes)
    for inner in path:
        names = [builder.fresh(name) if name else "" for name in inner.outputs]
        builder.emit(inner.op, [at.get(name, name) for name in inner.inputs], names, inner.attrs)
        at.update(zip(inner.outputs, names))
    return builder.graph.nodes[first:]
