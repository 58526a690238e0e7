"""Matrix products: Gemm, MatMul and their integer forms."""

from __future__ import annotations

from tilewright.compiler.importer.onnx.builder import OnnxBuilder
from tilewright.compiler.importer.onnx.handlers import handles
from tilewright.compiler.importer.onnx.onnx_node import OnnxNode


@handles("Gemm")
def gemm(builder: OnnxBuilder, node: OnnxNode) -> None:
    """Imports Gemm: opset 6 had a `broadcast` attribute for C; the normal form always broadcasts."""
    attrs = {k: v for k, v in node.attrs.items() if k != "broadcast"}
    builder.emit("Gemm", node.inputs, node.outputs, attrs)
