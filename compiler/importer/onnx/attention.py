"""Attention, QAttention and MultiHeadAttention of com.microsoft, as products, sums and Softmax.

Scores get the terms of onnxruntime's CPU kernels, in their order: `attention_bias`, then `mask_filter_value` for keys
that are hidden and the lowest float for those a causal query must not see yet. Where all keys of a query are hidden the
order decides, as sums near -10000 are rounded to 1/1024.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tilewright.compiler.errors import CompileError, UnsupportedError
from tilewright.compiler.importer.onnx.attention_core import (
    MS,
    cast,
    default_scale,
    heads,
    joined,
    scores,
    shaped,
    weighted,
)
from tilewright.compiler.importer.onnx.builder import OnnxBuilder
from tilewright.compiler.importer.onnx.dynamic_quantized import integer_product
from tilewright.compiler.importer.onnx.handlers import handles
from tilewright.compiler.importer.onnx.onnx_node import OnnxNode


@handles("Attention", domain=MS)
def attention(builder: OnnxBuilder, node: OnnxNode) -> None:
    """Imports Attention. Inputs input [batch, sequence, channels], weights and bias of q, k and v side by side,
    mask_index, past [2, batch, heads, past, head_size], attention_bias; outputs output, present.
    """
    node.accept("do_rotary", 0)
    _leave_out(node, 6, "past_sequence_length")
    qkv = builder.emit("MatMul", [node.input(0), node.input(1)])
    _self_attention(builder, node, qkv, node.input(2), node.input(3), node.input(4), node.input(5))


@handles("QAttention", domain=MS)
def q_attention(builder: OnnxBuilder, node: OnnxNode) -> None:
    """Imports Attention with quantised input and weights. Inputs input, weight, bias, input_scale, weight_scale,
    mask_index, input_zero_point, weight_zero_point, past.
    """
    node.accept("do_rotary", 0)
    qkv = integer_product(builder, *(node.input(i) for i in (0, 1, 3, 4, 6, 7)))
    _self_attention(builder, node, qkv, node.input(2), node.input(5), node.input(8), "")


def _self_attention(
    builder: OnnxBuilder, node: OnnxNode, qkv: str, addend: str, mask: str, past: str, bias: str
) -> None:
    node.accept("past_present_share_buffer", 0)
    qkv = builder.emit("Add", [qkv, addend]) if addend else qkv
    shape, count = builder.shape(qkv), node.positive("num_heads", 0)
    sizes = [int(n) for n in node.attrs.get("qkv_hidden_sizes") or [shape[-1] // 3] * 3]
    if len(shape) != 3 or len(sizes) != 3 or sum(sizes) != shape[-1] or sizes[0] != sizes[1]:
        raise CompileError(
            f"{node.label}: q, k and v of {sizes} channels do not fit the product's shape {list(shape)}; "
            "[batch, sequence, channels of all three] is wanted, with as many for q as for k"
        )
    q, k, v = (heads(builder, node, x, count) for x in _split(builder, qkv, sizes, -1))
    if past:
        expected = (2, *builder.shape(k)[:2], builder.shape(past)[3], builder.shape(k)[3])
        if builder.shape(past) != expected or sizes[2] != sizes[0]:
            raise CompileError(f"{node.label}: past {past!r} has shape {list(builder.shape(past))}, not {expected}")
        k, v = (
            builder.emit("Concat", [shaped(builder, old, builder.shape(old)[1:]), new], attrs={"axis": 2})
            for old, new in zip(_split(builder, past, [1, 1], 0), (k, v))
        )
    if node.output(1):
        parts = [shaped(builder, x, [1, *builder.shape(x)]) for x in (k, v)]
        builder.emit("Concat", parts, [node.output(1)], {"axis": 0})
    _attend(builder, node, (q, k, v), mask, bias, builder.shape(past)[3] if past else 0)


@handles("MultiHeadAttention", domain=MS)
def multi_head_attention(builder: OnnxBuilder, node: OnnxNode) -> None:
    """Imports MultiHeadAttention. Inputs query, key, value [batch, sequence, channels] (key and value also as heads),
    bias of all three, key_padding_mask, attention_bias, past_key, past_value as heads; outputs output, present_key,
    present_value, qk.
    """
    for index, what in ((8, "past_sequence_length"), (9, "cache_indirection")):
        _leave_out(node, index, what)
    inputs, count = [node.input(i) for i in range(3)], node.positive("num_heads", 0)
    ranks = [len(builder.shape(name)) if name else 0 for name in inputs]
    if ranks not in ([3, 3, 3], [3, 4, 4]):
        raise UnsupportedError(
            f"{node.label}: query, key and value of {ranks} dimensions are not supported (0: left out); "
            "3, 3 and 3, or 3, 4 and 4 are (no packed key and value)"
        )
    if node.input(3):
        sizes = [builder.shape(x)[2] for x in inputs] if ranks[1] == 3 else []
        if builder.shape(node.input(3)) != (sum(sizes),):
            raise CompileError(f"{node.label}: bias {node.input(3)!r} must have the shape [{sum(sizes)}]")
        inputs = [builder.emit("Add", pair) for pair in zip(inputs, _split(builder, node.input(3), sizes, 0))]
    q, k, v = (heads(builder, node, x, count) if len(builder.shape(x)) == 3 else x for x in inputs)
    past = [node.input(6), node.input(7)]
    if any(past) and not all(past):
        raise CompileError(f"{node.label}: past_key and past_value belong together")
    if all(past):
        k, v = (builder.emit("Concat", pair, attrs={"axis": 2}) for pair in zip(past, (k, v)))
    for index, x in ((1, k), (2, v)):
        if node.output(index):
            builder.emit("Identity", [x], [node.output(index)])
    before = builder.shape(past[0])[2] if all(past) else 0
    _attend(builder, node, (q, k, v), node.input(4), node.input(5), before)


def _attend(builder: OnnxBuilder, node: OnnxNode, qkv: tuple[str, str, str], mask: str, bias: str, past: int) -> None:
    """Emits softmax(scale * q x k' + bias + masks) x v; the fourth output is the input of Softmax."""
    q, k, v = qkv
    dtype, (batch, _, length, size), keys = builder.tensor(q).dtype, builder.shape(q), builder.shape(k)[2]
    found = scores(builder, q, k, default_scale(node, size))
    found = builder.emit("Add", [found, cast(builder, bias, np.float32)]) if bias else found
    hidden = _key_mask(builder, node, mask, (batch, length, keys)) if mask else ""
    if node.attrs.get("unidirectional", 0) and length > 1:
        later = np.triu(np.full((length, keys), np.finfo(np.float32).min, np.float32), past + 1)
        later[-1] = 0  # the last query sees all keys, also where there are more of them than queries
        causal = builder.constant("causal", later)
        hidden = builder.emit("Add", [hidden, causal]) if hidden else causal
    found = builder.emit("Add", [found, hidden]) if hidden else found
    if node.output(3):
        builder.bind(cast(builder, found, dtype), node.output(3))
    y = weighted(builder, builder.emit("Softmax", [found], attrs={"axis": -1}), v)
    builder.bind(cast(builder, joined(builder, y), dtype), node.output(0))


def _key_mask(builder: OnnxBuilder, node: OnnxNode, mask: str, sizes: tuple[int, int, int]) -> str:
    """The tensor that a mask adds to scores, "" for a mask of a single column, which masks nothing.

    Args:
        sizes: batch, sequence, keys.
    """
    batch, length, keys = sizes
    shape, place = builder.shape(mask), builder.ints("key", range(keys))
    if len(shape) == 1 and shape[0] in (batch, 2 * batch, 3 * batch + 2):
        bound = cast(builder, mask, np.int64)
        ends = shaped(builder, _slice(builder, bound, 0, batch), [batch, 1, 1, 1])
        seen = builder.emit("Less", [place, ends])
        if shape[0] == 2 * batch:
            starts = shaped(builder, _slice(builder, bound, batch, 2 * batch), [batch, 1, 1, 1])
            seen = builder.emit("And", [seen, builder.emit("GreaterOrEqual", [place, starts])])
    elif shape in ((batch, keys), (batch, length, keys)):
        whole = shaped(builder, mask, [batch, 1, -1, keys])
        seen = builder.emit("Greater", [whole, builder.constant("zero", 0, builder.tensor(mask).dtype)])
    elif shape in ((batch, 1), (1, 1)) and node.op != "MultiHeadAttention":
        return ""
    else:
        raise UnsupportedError(
            f"{node.label}: a mask of shape {list(shape)} is not supported; with {batch} sequences of {length} queries "
            f"and {keys} keys, [{batch}], [{2 * batch}], [{3 * batch + 2}], [{batch}, {keys}] and "
            f"[{batch}, {length}, {keys}] are"
        )
    hidden = builder.constant("hidden", node.attrs.get("mask_filter_value", -10000.0), np.float32)
    return builder.emit("Where", [seen, builder.constant("seen", 0, np.float32), hidden])


def _split(builder: OnnxBuilder, x: str, sizes: Sequence[int], axis: int) -> list[str]:
    names = [builder.fresh() for _ in sizes]
    builder.emit("Split", [x, builder.ints("sizes", sizes)], names, {"axis": axis % len(builder.shape(x))})
    return names


def _slice(builder: OnnxBuilder, x: str, start: int, end: int) -> str:
    return builder.emit("Slice", [x, *(builder.ints("bound", [n]) for n in (start, end, 0, 1))])


def _leave_out(node: OnnxNode, index: int, what: str) -> None:
    if node.input(index):
        raise UnsupportedError(f"{node.label}: {what} {node.input(index)!r} is not supported; it must be left out")
