"""Replaces DequantizeLinear -> op -> QuantizeLinear with one integer op; the integers equal onnxruntime's.

Every rule below reads the op's float inputs through the DequantizeLinear nodes that make them and its float output
through the QuantizeLinear nodes that take it; the arithmetic of the results is that of `tilewright.isa.numerics`:

    Conv, ConvTranspose, Gemm, MatMul    QConv, QConvTranspose, QMatMul: int32 sum, f32 scale
    Add, Mul                             QAdd, QMul: zero point inside the rounding
    AveragePool                          QAveragePool
    GlobalAveragePool, ReduceMean[2..]   QGlobalAveragePool
    MaxPool, data movement               themselves, on integers (`move_quantization`)
    Concat                               QConcat with a table per requantised operand
    Where                                itself, on integers, operands requantised to the output by tables
    Softmax                              QSoftmax
    LayerNormalization, RMSNormalization QNorm, with constant scale and bias over the last axis
    InstanceNormalization, GroupNormalization  QPlaneNorm, with constant scale and bias
    ArgMax, ArgMin                       themselves on integers: DQ with a positive scale keeps the order

With a negative scale, which reverses it, products, Add, Mul and AveragePool are integer ops still, on the CPU.

Between the op and its QuantizeLinear there may be Relu and Clip with constant bounds: Q is monotone, so
Q(clip(v, lo, hi)) = clip(Q(v), Q(lo), Q(hi)), and the clamp becomes out_min and out_max.
"""

from __future__ import annotations

import numpy as np

from tilewright.compiler.graph.graph import Graph, Node, Quant, Tensor
from tilewright.compiler.graph.ops.pooling import QMaxPool
from tilewright.compiler.graph.quantization import AS_LITERT, NO_ZERO_POINT, is_activation, limits, ordinary, quantize
from tilewright.compiler.graph.tensor import EIGHT_BIT
from tilewright.compiler.passes.annotate import annotate, quant_of
from tilewright.compiler.passes.fold.fold_constants import fold_constants
from tilewright.compiler.passes.integer_rules import RULES, Site


def fuse_quantization(graph: Graph) -> None:
    annotate(graph)
    producers, consumers = graph.producers(), graph.consumers()
    outputs = set(graph.outputs)
    nodes: list[Node] = []
    made: set[str] = set()
    for node in graph:
        if any(name in made for name in node.outputs):
            continue  # a QuantizeLinear that became part of an integer op
        if node.op in RULES:
            endings = _endings(graph, node, consumers, outputs)
            for quantizer, low, high in endings:
                site = Site(graph, node, producers, consumers, quantizer, low, high, len(endings) == 1)
                new = next((new for new in (rule(site) for rule in RULES[node.op]) if new is not None), None)
                if new is not None:
                    nodes += new
                    made.add(site.out.name)
        elif node.op in ("ArgMax", "ArgMin"):
            arg_max(graph, node, producers)
        elif node.op == "MaxPool":
            nodes.append(integer_max_pool(graph, node))
            continue
        nodes.append(node)
    graph.nodes = [n for n in nodes if not (n.op == "QuantizeLinear" and n.outputs[0] in made)]
    for node in graph:
        node.attrs.pop(NO_ZERO_POINT, None)
    fold_constants(graph)  # operands of Concat and Where quantised just now


def _endings(
    graph: Graph, node: Node, consumers: dict[str, list[Node]], outputs: set[str]
) -> list[tuple[Node, int, int]]:
    """The QuantizeLinear nodes behind `node`, through activations, with the clamp of each; empty if anything else reads
    the float result.
    """
    found: list[tuple[Node, int, int]] = []
    open_: list[tuple[str, float, float]] = [(node.outputs[0], -np.inf, np.inf)]
    while open_:
        name, low, high = open_.pop()
        users = consumers.get(name, [])
        if name in outputs or not users:
            return []
        for user in users:
            bounds = clamp_of(graph, user, name)
            if bounds is not None:
                open_.append((user.outputs[0], *_compose(low, high, *bounds)))
                continue
            quant = quant_of(graph, user) if user.op == "QuantizeLinear" and user.inputs[0] == name else None
            result: Tensor | None = graph.tensor(user.outputs[0]) if quant is not None else None
            if quant is None or result is None or not quant.per_tensor or result.dtype not in EIGHT_BIT:
                return []
            if user.attrs.get(AS_LITERT):
                return []
            if not ordinary(quant, signed=(low, high) == (-np.inf, np.inf)):
                return []
            found.append((user, *_integer_bounds(low, high, quant, result.dtype)))
    return found


def _compose(low: float, high: float, then_low: float, then_high: float) -> tuple[float, float]:
    """Composes min(max(clip(v, low, high), then_low), then_high) to one clip."""
    return min(max(low, then_low), then_high), min(max(high, then_low), then_high)


def _integer_bounds(low: float, high: float, quant: Quant, dtype: np.dtype) -> tuple[int, int]:
    least, most = limits(dtype)
    if np.isfinite(low):
        least = int(quantize(np.float32(low), quant, dtype))
    if np.isfinite(high):
        most = int(quantize(np.float32(high), quant, dtype))
    return least, most


def clamp_of(graph: Graph, node: Node, name: str) -> tuple[float, float] | None:
    """The bounds of a Relu or constant Clip of `name`; None for any other node."""
    if node.op == "Relu":
        return 0.0, np.inf
    if node.op != "Clip" or node.inputs[0] != name:
        return None
    bounds = [-np.inf, np.inf]
    for i in (1, 2):
        if i < len(node.inputs) and node.inputs[i]:
            value = graph.const(node.inputs[i])
            if value is None or value.size != 1 or np.isnan(value).any():
                return None
            bounds[i - 1] = float(value.reshape(()))
    return bounds[0], bounds[1]


def integer_max_pool(graph: Graph, node: Node) -> Node:
    """Replaces MaxPool on 8-bit integers with QMaxPool."""
    x = graph.tensor(node.inputs[0])
    if not is_activation(x) or len(node.outputs) > 1 or node.attrs.get("ceil_mode"):
        return node
    graph.tensor(node.outputs[0]).quant = x.quant
    a = node.attrs
    given = {key: a[key] for key in ("strides", "pads", "dilations") if key in a}
    op = QMaxPool(kernel=a["kernel_shape"], **given)
    return Node.of(op, node.inputs, node.outputs, node.name, node.origin)


def arg_max(graph: Graph, node: Node, producers: dict[str, Node]) -> None:
    """Makes ArgMax and ArgMin read the integers: a positive scale keeps the order and the ties. onnxruntime's ArgMax
    reads them whatever the scale is.
    """
    source = producers.get(node.inputs[0])
    if source is None or source.op != "DequantizeLinear":
        return
    quant, tensor = quant_of(graph, source), graph.tensor(source.inputs[0])
    if quant is not None and quant.per_tensor and is_activation(tensor) and (node.op == "ArgMax" or quant.scale > 0):
        node.inputs = [tensor.name]
