"""Norms of com.microsoft that add before they normalise: SkipLayerNormalization and its relatives, embeddings."""

from __future__ import annotations

import numpy as np

from tilewright.compiler.errors import UnsupportedError
from tilewright.compiler.importer.onnx.attention_core import MS
from tilewright.compiler.importer.onnx.builder import OnnxBuilder
from tilewright.compiler.importer.onnx.handlers import handles
from tilewright.compiler.importer.onnx.onnx_node import OnnxNode
from tilewright.compiler.importer.onnx.quantized import dequantize


def _skipped(builder: OnnxBuilder, node: OnnxNode, bias: str) -> str:
    """Emits input + skip + bias, which is the fourth output too."""
    if node.output(1) or node.output(2):
        raise UnsupportedError(f"{node.label}: the mean and inv_std outputs are not supported; output and sum are")
    total = builder.emit("Add", [node.input(0), node.input(1)])
    total = builder.emit("Add", [total, bias]) if bias else total
    if node.output(3):
        builder.emit("Identity", [total], [node.output(3)])
    return total


@handles("SkipLayerNormalization", domain=MS)
def skip_layer_normalization(builder: OnnxBuilder, node: OnnxNode) -> None:
    """Inputs input, skip, gamma, beta, bias; outputs output, mean, inv_std, sum."""
    attrs = {"axis": -1, "epsilon": float(node.attrs.get("epsilon", 1e-12))}
    total = _skipped(builder, node, node.input(4))
    builder.emit("LayerNormalization", [total, node.input(2), node.input(3)], [node.output(0)], attrs)


@handles("SkipSimplifiedLayerNormalization", domain=MS)
def skip_simplified_layer_normalization(builder: OnnxBuilder, node: OnnxNode) -> None:
    """Inputs input, skip, gamma, bias; outputs output, mean, inv_std, sum. The norm is RMSNormalization."""
    attrs = {"axis": -1, "epsilon": float(node.attrs.get("epsilon", 1e-12))}
    total = _skipped(builder, node, node.input(3))
    builder.emit("RMSNormalization", [total, node.input(2)], [node.output(0)], attrs)


@handles("EmbedLayerNormalization", domain=MS)
def embed_layer_normalization(builder: OnnxBuilder, node: OnnxNode) -> None:
    """Inputs input_ids, segment_ids, word, position and segment embeddings, gamma, beta, mask, position_ids; outputs
    output, mask_index, embedding_sum."""
    _embed(builder, node, [node.input(i) for i in range(2, 7)], node.input(7), node.input(8))


@handles("QEmbedLayerNormalization", domain=MS)
def q_embed_layer_normalization(builder: OnnxBuilder, node: OnnxNode) -> None:
    """Imports EmbedLayerNormalization with quantised tables: mask is input 7, scales of the tables 8 to 12, zero points
    13 to 17.
    """
    tables = [
        dequantize(builder, node, node.input(i), node.input(i + 6), node.input(i + 11)) if node.input(i) else ""
        for i in range(2, 7)
    ]
    _embed(builder, node, tables, node.input(7), "")


def _embed(builder: OnnxBuilder, node: OnnxNode, tables: list[str], mask: str, positions: str) -> None:
    words, places, segments, gamma, beta = tables
    batch, length = builder.shape(node.input(0))
    rows = lambda table, ids: builder.emit("Gather", [table, ids], attrs={"axis": 0})
    positions = positions or builder.ints("positions", range(length))
    total = builder.emit("Add", [rows(words, node.input(0)), rows(places, positions)])
    if node.input(1):
        total = builder.emit("Add", [total, rows(segments, node.input(1))])
    if node.output(1):
        count = builder.constant("count", np.zeros(batch, np.int32))
        if mask:
            one = builder.constant("one", 1, builder.tensor(mask).dtype)
            ones = builder.emit("Cast", [builder.emit("Equal", [mask, one])], attrs={"to": 6})
            count = builder.emit("ReduceSum", [ones, builder.ints("axes", [1])], attrs={"keepdims": 0})
        builder.bind(count, node.output(1))
    if node.output(2):
        builder.emit("Identity", [total], [node.output(2)])
    attrs = {"axis": -1, "epsilon": float(node.attrs.get("epsilon", 1e-12))}
    builder.emit("LayerNormalization", [total, gamma, beta], [node.output(0)], attrs)
