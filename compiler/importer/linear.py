"""Matrix products: Gemm, MatMul and their integer forms."""

from __future__ import annotations

from compiler.importer.builder import Builder
from compiler.importer.registry import OnnxNode, handles


@handles("Gemm")
def gemm(builder: Builder, node: OnnxNode) -> None:
    """Opset 6 had a `broadcast` attribute for C; the normal form always broadcasts."""
    attrs = {k: v for k, v in node.attrs.items() if k != "broadcast"}
    builder.emit("Gemm", node.inputs, node.outputs, attrs)
