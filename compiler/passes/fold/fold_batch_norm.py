"""Folds batch normalisation of constants into the op before it, or into one multiplication and one addition.

    y = (x - mean) * a + bias,  a = scale / sqrt(var + epsilon)

    BatchNormalization(Conv(x, W, B))  =>  Conv(x, W * a[out channel], (B - mean) * a + bias)
    the same for ConvTranspose and Gemm, and for a constant per channel multiplied or added behind them; otherwise
    BatchNormalization(x)              =>  x * a + (bias - mean * a)

Float models only; the factors are computed in float64 and rounded once.
"""

from __future__ import annotations

import numpy as np

from tilewright.compiler.graph.graph import Graph, Node, Tensor

_OUT_AXIS = {"Conv": 0, "ConvTranspose": 1}
_MAX_CHANNELS = 1 << 20  # no convolution has more


def fold_batch_norm(graph: Graph) -> None:
    producers, consumers = graph.producers(), graph.consumers()
    nodes: list[Node] = []
    for node in graph:
        factors, name = _factors(graph, node), node.inputs[0] if node.inputs else ""
        if factors is None and node.op in ("Mul", "Add"):
            name, factors = _channel_constant(graph, node)
        if factors is None:
            nodes.append(node)
            continue
        source = producers.get(name)
        alone = source is not None and len(consumers[name]) == 1 and name not in graph.outputs
        if source is not None and alone and _into_weights(graph, source, *factors):
            source.outputs = [node.outputs[0]]
            source.origin = (*source.origin, *node.origin)
            producers[node.outputs[0]] = source
        elif node.op != "BatchNormalization":
            nodes.append(node)
        else:
            nodes += _affine(graph, node, *factors)
    graph.nodes = nodes
    graph.prune()


def _factors(graph: Graph, node: Node) -> tuple[np.ndarray, np.ndarray] | None:
    """Factors (a, b) with y = a * x + b per channel, float64; None for no constant batch normalisation."""
    if node.op != "BatchNormalization" or graph.tensor(node.inputs[0]).dtype != np.float32:
        return None
    values = [graph.const(name) for name in node.inputs[1:5]]
    if any(v is None for v in values):
        return None
    scale, bias, mean, variance = (np.asarray(v, np.float64) for v in values)
    with np.errstate(all="ignore"):
        a = scale / np.sqrt(variance + float(node.attrs["epsilon"]))
        b = bias - mean * a
    return (a, b) if np.isfinite(a).all() and np.isfinite(b).all() else None


def _channel_constant(graph: Graph, node: Node) -> tuple[str, tuple[np.ndarray, np.ndarray] | None]:
    """The other operand and (a, b) of a Mul or Add with one float32 constant per channel (axis 1)."""
    for i in (0, 1):
        value, other = graph.const(node.inputs[i]), node.inputs[1 - i]
        if value is None or value.dtype != np.float32 or graph.const(other) is not None:
            continue
        shape = graph.tensor(node.outputs[0]).shape
        if graph.tensor(other).shape != shape or len(shape) < 2 or shape[1] > _MAX_CHANNELS:
            continue
        column = value.shape[1:] if len(value.shape) == len(shape) and value.shape[0] == 1 else value.shape
        if value.size != 1 and column != (shape[1], *([1] * (len(shape) - 2))):
            continue
        c = np.broadcast_to(value.astype(np.float64).reshape(-1), (shape[1],))
        return other, ((c, np.zeros_like(c)) if node.op == "Mul" else (np.ones_like(c), c))
    return "", None


def _into_weights(graph: Graph, source: Node, a: np.ndarray, b: np.ndarray) -> bool:
    """Scales the weights and bias of `source` where they are float constants."""
    if source.op not in ("Conv", "ConvTranspose", "Gemm"):
        return False
    weights = graph.const(source.inputs[1])
    bias_name = source.inputs[2] if len(source.inputs) > 2 else ""
    bias = graph.const(bias_name) if bias_name else np.zeros(1)
    if weights is None or bias is None or weights.dtype != np.float32:
        return False
    if source.op == "Gemm":
        if float(source.attrs.get("alpha", 1)) != 1 or float(source.attrs.get("beta", 1)) != 1 or bias.ndim > 1:
            return False
        axis = 0 if source.attrs.get("transB") else 1
    else:
        axis = _OUT_AXIS[source.op]
    if source.op == "ConvTranspose" and int(source.attrs["group"]) > 1:
        group, tail = int(source.attrs["group"]), (1,) * (weights.ndim - 2)
        per = a.reshape(group, 1, -1, *tail)
        wide = weights.reshape(group, -1, *weights.shape[1:]).astype(np.float64) * per
        scaled = wide.reshape(weights.shape)
    else:
        scaled = weights.astype(np.float64) * a.reshape([-1 if i == axis else 1 for i in range(weights.ndim)])
    source.inputs = [
        source.inputs[0],
        graph.constant(f"{source.inputs[1]}.normalized", scaled.astype(np.float32)),
        graph.constant(f"{bias_name or source.outputs[0]}.normalized", (bias * a + b).astype(np.float32)),
    ]
    return True


def _affine(graph: Graph, node: Node, a: np.ndarray, b: np.ndarray) -> list[Node]:
    x = graph.tensor(node.inputs[0])
    column = (-1, *([1] * (len(x.shape) - 2)))
    scaled = graph.unique(f"{node.outputs[0]}.scaled")
    graph.add(Tensor(scaled, x.shape, x.dtype))
    factor = graph.constant("scale", a.astype(np.float32).reshape(column))
    offset = graph.constant("bias", b.astype(np.float32).reshape(column))
    return [
        Node("Mul", [x.name, factor], [scaled], {}, node.name, node.origin),
        Node("Add", [scaled, offset], list(node.outputs), {}, node.name, node.origin),
    ]
