"""Computes values of graph nodes at compile time.

Transcendental functions are computed in float64 and rounded once, so that a table does not depend on the libm at hand;
everything else is onnx's reference implementation.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from tilewright.compiler.graph.graph import Graph, Node
from tilewright.compiler.graph.ops.elementwise import Elementwise
from tilewright.compiler.graph.quantization import dequantize, quantize_by
from tilewright.compiler.onnx.onnx_ops import evaluate as evaluate_onnx
from tilewright.compiler.passes.annotate import quant_of

_erf_of_each = np.frompyfunc(math.erf, 1, 1)


def _erf(x: np.ndarray) -> np.ndarray:
    return np.asarray(_erf_of_each(x), np.float64)


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return np.asarray(1 / (1 + np.exp(-x)))


def _gelu(x: np.ndarray) -> np.ndarray:
    return np.asarray(0.5 * x * (1 + _erf(x * math.sqrt(0.5))))


def _softplus(x: np.ndarray) -> np.ndarray:
    return np.asarray(np.logaddexp(x, 0.0))


EXACT: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "Sigmoid": _sigmoid,
    "Tanh": np.tanh,
    "Erf": _erf,
    "Exp": np.exp,
    "Log": np.log,
    "Softplus": _softplus,
    "Mish": lambda x: x * np.tanh(_softplus(x)),
    "Sin": np.sin,
    "Cos": np.cos,
    "Tan": np.tan,
    "Sqrt": np.sqrt,
    "Reciprocal": np.reciprocal,
}
"""Attribute-free unary functions, on float64."""


def node_value(graph: Graph, node: Node, inputs: list[np.ndarray | None]) -> list[np.ndarray]:
    """Computes the outputs of one node for given inputs. Quantised ops must be elementwise.

    Args:
        inputs: arrays in the tensors' dtypes; shapes may differ from the graph's for elementwise ops.
    """
    x = inputs[0] if inputs else None
    out = graph.tensor(node.outputs[0])
    if isinstance(node.quantized, Elementwise):
        arrays = [a for a in inputs if a is not None]
        return [node.quantized.value(arrays, [graph.tensor(n) for n in node.inputs], out)]
    quant = quant_of(graph, node)
    if quant is not None and x is not None:
        if node.op == "DequantizeLinear" and (quant.per_tensor or x.shape == graph.tensor(node.inputs[0]).shape):
            return [dequantize(x, quant.along(x.ndim))]
        if quant.per_tensor and x.dtype == np.float32 and out.dtype.itemsize == 1:
            return [quantize_by(node.attrs, x, quant, out.dtype)]
    if x is not None and x.dtype == np.float32:
        with np.errstate(all="ignore"):
            if node.op in EXACT:
                return [np.asarray(EXACT[node.op](x.astype(np.float64))).astype(np.float32)]
            if node.op == "Softsign":  # onnxruntime's two roundings: reciprocal, then product
                return [np.reciprocal(np.abs(x) + np.float32(1)) * x]
            if node.op == "Gelu" and node.attrs.get("approximate", "none") == "none":
                return [np.asarray(_gelu(x.astype(np.float64))).astype(np.float32)]
            if node.op == "Swish":
                wide = x.astype(np.float64)
                return [(wide * _sigmoid(float(node.attrs.get("alpha", 1.0)) * wide)).astype(np.float32)]
    return evaluate_onnx(node, inputs)
