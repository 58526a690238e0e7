"""Evaluates nodes all of whose inputs are constants."""

from __future__ import annotations

from tilewright.compiler.errors import CompileError
from tilewright.compiler.graph.graph import Graph, Node
from tilewright.compiler.graph.ops.elementwise import Elementwise
from tilewright.compiler.onnx.onnx_ops import UNTRUSTED
from tilewright.compiler.passes.annotate import quant_of
from tilewright.compiler.passes.fold.evaluate import node_value

RANDOM = {"RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "Multinomial", "Bernoulli"}
LIMIT = 1 << 26  # elements of a result; larger constants stay as the ops that make them


def fold_constants(graph: Graph) -> None:
    """Folds everything but DequantizeLinear, whose integers the quantisation passes still need."""
    _fold(graph, {*RANDOM, *UNTRUSTED, "DequantizeLinear"})


def fold_dequantized(graph: Graph) -> None:
    """Folds everything, once the integer ops have their constants."""
    _fold(graph, {*RANDOM, *UNTRUSTED})


def _fold(graph: Graph, kept: set[str]) -> None:
    remaining: list[Node] = []
    for node in graph:
        inputs = [graph.const(n) if n else None for n in node.inputs]
        outputs = [graph.tensor(n) for n in node.outputs if n]
        if (
            node.op in kept
            or (node.quantized is not None and not isinstance(node.quantized, Elementwise))
            or any(v is None and n for v, n in zip(inputs, node.inputs))
            or sum(t.size for t in outputs) > LIMIT
            or (node.op == "Expand" and outputs[0].size > 4096)  # cheap to make, large to store
        ):
            remaining.append(node)
            continue
        try:
            values = node_value(graph, node, inputs)
        except CompileError:
            remaining.append(node)  # the reference implementation lacks something; the CPU kernels may not
            continue
        for name, value in zip(node.outputs, values):
            if name:
                tensor = graph.tensor(name)
                tensor.data = value.astype(tensor.dtype).reshape(tensor.shape)
                if node.op == "QuantizeLinear" and tensor.quant is None:
                    tensor.quant = quant_of(graph, node)
    graph.nodes = remaining
    graph.prune()
