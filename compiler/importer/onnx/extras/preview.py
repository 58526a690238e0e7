"""Ops of the domain ai.onnx.preview, by their definitions."""

from __future__ import annotations

from onnx import defs

from tilewright.compiler.errors import UnsupportedError
from tilewright.compiler.graph.graph import Node
from tilewright.compiler.importer.onnx.builder import OnnxBuilder
from tilewright.compiler.importer.onnx.handlers import handles
from tilewright.compiler.importer.onnx.onnx_node import OnnxNode
from tilewright.compiler.onnx.functions import function_body


@handles("FlexAttention", domain="ai.onnx.preview")
def flex_attention(builder: OnnxBuilder, node: OnnxNode) -> None:
    """Imports attention with graphs that change scores and probabilities, from the op's definition with their nodes."""
    inputs = [builder.tensor(name) if name else None for name in node.inputs]
    whole = Node(node.op, node.inputs, node.outputs, node.attrs, node.name)
    body = function_body(whole, inputs, defs.get_schema(node.op, node.version, node.domain))
    if body is None:
        raise UnsupportedError(f"{node.label}: its definition does not cover these inputs and attributes")
    builder.expand(whole, body)
