"""Recognises decomposed functions and replaces them with the op they were written for.

    0.5 * x * (1 + erf(x / sqrt(2)))   in any order of the products      =>  Gelu(x)
    x * sigmoid(x)                                                       =>  Swish(x)
    x * hardsigmoid(x; 1/6, 1/2),  x * clip(x + 3, 0, 6) / 6             =>  HardSwish(x)
    (x - mean) / sqrt(mean((x - mean)^2) + e) * scale + bias             =>  LayerNormalization(x, scale, bias)
    x / sqrt(mean(x^2) + e) * scale                                      =>  RMSNormalization(x, scale)

Only float chains whose inner results have no other reader are taken; a quantisation in between makes another function,
which `fuse_lut` evaluates unchanged, as it does a HardSwish between integers.
"""

from __future__ import annotations

import math

import numpy as np
from msgspec import Struct

from tilewright.compiler.graph.graph import Graph, Node


class _Match(Struct):
    """A graph that is searched backwards from a node, over float tensors with one reader."""

    graph: Graph
    producers: dict[str, Node]
    consumers: dict[str, list[Node]]

    def inner(self, name: str, op: str, uses: int = 1) -> Node | None:
        """The node of kind `op` that makes `name`, if nothing outside the pattern reads it."""
        node = self.producers.get(name)
        if node is None or node.op != op or name in self.graph.outputs or len(self.consumers[name]) != uses:
            return None
        return node

    def scalar(self, name: str) -> float | None:
        value = self.graph.const(name)
        return float(value.reshape(())) if value is not None and value.size == 1 and value.dtype.kind == "f" else None

    def with_scalar(self, node: Node | None, value: float) -> str | None:
        """The other operand of a commutative node with a constant operand `value`."""
        if node is None:
            return None
        for i in (0, 1):
            found = self.scalar(node.inputs[i])
            if found is not None and math.isclose(found, value, rel_tol=1e-5):
                return node.inputs[1 - i]
        return None

    def is_table(self, x: str, node: Node) -> bool:
        """Whether a function from `x` to a node's result is one from integers to integers: its table is that of the
        steps in the file, whose roundings decide at ties."""
        made = self.producers.get(x)
        readers = self.consumers.get(node.outputs[0], [])
        into = bool(readers) and all(reader.op == "QuantizeLinear" for reader in readers)
        return made is not None and made.op == "DequantizeLinear" and into


def recognise(graph: Graph) -> None:
    # A norm by a root mean square stands inside of a layer norm, so it comes second.
    for rules in ((_gelu, _swish, _hard_swish, _layer_norm), (_rms_norm,)):
        match = _Match(graph, graph.producers(), graph.consumers())
        for node in graph:
            if graph.tensor(node.outputs[0]).dtype != np.float32 if node.outputs and node.outputs[0] else True:
                continue
            for rule in rules:
                if rule(match, node):
                    break
        graph.prune()


def _factors(match: _Match, name: str, limit: int = 3) -> list[str]:
    """The factors of a product written as nested Mul nodes."""
    node = match.inner(name, "Mul")
    if node is None or limit == 0:
        return [name]
    return [f for i in node.inputs for f in _factors(match, i, limit - 1)]


def _gelu(match: _Match, node: Node) -> bool:
    if node.op != "Mul":
        return False
    factors = [f for i in node.inputs for f in _factors(match, i)]
    if len(factors) != 3:
        return False
    half = [f for f in factors if (s := match.scalar(f)) is not None and s == 0.5]
    gates = [f for f in factors if match.with_scalar(match.inner(f, "Add"), 1.0) is not None]
    if len(half) != 1 or len(gates) != 1:
        return False
    (x,) = [f for f in factors if f not in (half[0], gates[0])] or [""]
    erf = match.inner(match.with_scalar(match.producers[gates[0]], 1.0) or "", "Erf")
    if erf is None or not x:
        return False
    divide, multiply = match.inner(erf.inputs[0], "Div"), match.inner(erf.inputs[0], "Mul")
    if divide is not None:
        divisor = match.scalar(divide.inputs[1])
        argument = divide.inputs[0] if divisor and math.isclose(divisor, math.sqrt(2), rel_tol=1e-5) else None
    else:
        argument = match.with_scalar(multiply, math.sqrt(0.5))
    if argument != x:
        return False
    node.become("Gelu", [x], {"approximate": "none"})
    return True


def _swish(match: _Match, node: Node) -> bool:
    if node.op != "Mul":
        return False
    for i in (0, 1):
        gate = match.inner(node.inputs[i], "Sigmoid")
        if gate is not None and gate.inputs[0] == node.inputs[1 - i]:
            node.become("Swish", [gate.inputs[0]], {"alpha": 1.0})
            return True
    return False


def _hard_swish(match: _Match, node: Node) -> bool:
    if node.op == "Mul":
        for i in (0, 1):
            gate = match.inner(node.inputs[i], "HardSigmoid")
            if gate is not None and gate.inputs[0] == node.inputs[1 - i]:
                alpha, beta = float(gate.attrs["alpha"]), float(gate.attrs["beta"])
                sixth = math.isclose(alpha, 1 / 6, rel_tol=1e-6) and beta == 0.5
                if sixth and not match.is_table(gate.inputs[0], node):
                    node.become("HardSwish", [gate.inputs[0]], {})
                    return True
    # x * clip(x + 3, 0, 6) / 6
    product = None
    if node.op == "Div" and match.scalar(node.inputs[1]) == 6.0:
        product = match.inner(node.inputs[0], "Mul")
    elif node.op == "Mul":
        product = match.inner(match.with_scalar(node, 1 / 6) or "", "Mul")
    if product is None:
        return False
    for i in (0, 1):
        clip = match.inner(product.inputs[i], "Clip")
        if clip is None or len(clip.inputs) < 3:
            continue
        if match.scalar(clip.inputs[1]) != 0.0 or match.scalar(clip.inputs[2]) != 6.0:
            continue
        x = product.inputs[1 - i]
        if match.with_scalar(match.inner(clip.inputs[0], "Add"), 3.0) == x and not match.is_table(x, node):
            node.become("HardSwish", [x], {})
            return True
    return False


def _layer_norm(match: _Match, node: Node) -> bool:
    """Matches from its end Add(Mul(Div(d, Sqrt(Add(ReduceMean(d^2), e))), scale), bias), d = Sub(x, ReduceMean(x))."""
    graph = match.graph
    if node.op != "Add":
        return False
    for i in (0, 1):
        scaled, bias = match.inner(node.inputs[i], "Mul"), graph.const(node.inputs[1 - i])
        if scaled is None or bias is None:
            continue
        for k in (0, 1):
            quotient, scale = match.inner(scaled.inputs[k], "Div"), graph.const(scaled.inputs[1 - k])
            if quotient is None or scale is None:
                continue
            found = _standardized(match, quotient)
            if found is None:
                continue
            x, axis, epsilon = found
            shape = graph.tensor(x).shape[axis:]
            if scale.shape != shape or bias.shape != shape:
                continue
            inputs = [x, scaled.inputs[1 - k], node.inputs[1 - i]]
            node.become("LayerNormalization", inputs, {"axis": axis, "epsilon": epsilon, "stash_type": 1})
            return True
    return False


def _rms_norm(match: _Match, node: Node) -> bool:
    """Matches Mul(Div(x, Sqrt(Add(ReduceMean(x^2), e))), scale), over the last axis."""
    graph = match.graph
    for i in (0, 1) if node.op == "Mul" else ():
        quotient, scale = match.inner(node.inputs[i], "Div"), graph.const(node.inputs[1 - i])
        root = match.inner(quotient.inputs[1], "Sqrt") if quotient is not None else None
        total = match.inner(root.inputs[0], "Add") if root is not None else None
        if quotient is None or total is None or scale is None:
            continue
        x = graph.tensor(quotient.inputs[0])
        for k in (0, 1):
            mean, epsilon = match.inner(total.inputs[k], "ReduceMean"), match.scalar(total.inputs[1 - k])
            square = match.inner(mean.inputs[0], "Mul") if mean is not None else None
            if mean is None or epsilon is None or square is None or square.inputs != [x.name, x.name]:
                continue
            axes = graph.const(mean.inputs[1]) if len(mean.inputs) > 1 else None
            last = axes is not None and [int(a) % len(x.shape) for a in axes.reshape(-1)] == [len(x.shape) - 1]
            if last and mean.attrs.get("keepdims", 1) and scale.shape == x.shape[-1:] and x.dtype == np.float32:
                attrs = {"axis": -1, "epsilon": epsilon, "stash_type": 1}
                node.become("RMSNormalization", [x.name, node.inputs[1 - i]], attrs)
                return True
    return False


def _standardized(match: _Match, quotient: Node) -> tuple[str, int, float] | None:
    """Matches (x - mean(x)) / sqrt(var(x) + epsilon); returns (x, first axis, epsilon)."""
    graph = match.graph
    root = match.inner(quotient.inputs[1], "Sqrt")
    total = match.inner(root.inputs[0], "Add") if root is not None else None
    if total is None:
        return None
    for i in (0, 1):
        variance, epsilon = match.inner(total.inputs[i], "ReduceMean"), match.scalar(total.inputs[1 - i])
        if variance is None or epsilon is None:
            continue
        difference = quotient.inputs[0]
        squared = match.producers.get(variance.inputs[0])
        if squared is None or squared.op != "Mul" or squared.inputs != [difference, difference]:
            continue
        subtract = match.producers.get(difference)
        if subtract is None or subtract.op != "Sub":
            continue
        mean = match.inner(subtract.inputs[1], "ReduceMean")
        if mean is None or mean.inputs[0] != subtract.inputs[0]:
            continue
        x = graph.tensor(subtract.inputs[0])
        axes = [graph.const(n.inputs[1]) if len(n.inputs) > 1 else None for n in (mean, variance)]
        if axes[0] is None or axes[1] is None or not np.array_equal(axes[0], axes[1]):
            continue
        rank = len(x.shape)
        axis = int(axes[0].min()) if axes[0].size else rank
        if sorted(axes[0].tolist()) != list(range(axis, rank)):
            continue
        if all(n.attrs.get("keepdims", 1) for n in (mean, variance)):
            return x.name, axis, epsilon
    return None
