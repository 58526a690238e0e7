"""A vision transformer: patch convolution, pre-norm attention and GELU layers, mean-pooled head."""

from __future__ import annotations

import math

import numpy as np
import onnx

from tilewright.zoo.builder import Builder, Size, Value, pair


def attention(b: Builder, x: Value, heads: int) -> Value:
    """Multi-head self-attention on float32 [N, T, width]."""
    n, tokens, width = x.shape
    depth = width // heads

    def split(y: Value, order: tuple[int, ...]) -> Value:
        return b.transpose(b.reshape(y, (n, tokens, heads, depth)), order)

    gain = math.sqrt(0.5)  # no ReLU before these layers: unit variance needs 1 / fan_in, half of He's
    query = split(b.dense(x, width, gain=gain), (0, 2, 1, 3))  # [N, heads, T, depth]
    key = split(b.dense(x, width, gain=gain), (0, 2, 3, 1))  # [N, heads, depth, T]
    value = split(b.dense(x, width, gain=gain), (0, 2, 1, 3))
    scores = b.op("MatMul", [query, key], (n, heads, tokens, tokens))
    scale = b.constant(np.array(1 / math.sqrt(depth), np.float32), "attention.scale")
    scores = b.op("Mul", [scores, scale], scores.shape)
    weights = b.op("Softmax", [scores], scores.shape, axis=-1)
    mixed = b.op("MatMul", [weights, value], (n, heads, tokens, depth))
    joined = b.reshape(b.transpose(mixed, (0, 2, 1, 3)), (n, tokens, width))
    return b.dense(joined, width, gain=gain)


def transformer(
    *,
    size: Size = 224,
    patch: int = 16,
    width: int = 192,
    heads: int = 3,
    layers: int = 4,
    expansion: int = 4,
    batch: int = 1,
    classes: int = 1000,
    seed: int = 0,
) -> onnx.ModelProto:
    """Vision transformer. input float32 [batch, 3, size, size] -> output float32 [batch, classes].

    The size must be whole patches, the width whole heads. Tokens are averaged for the classifier.
    """
    height, width_in = pair(size)
    if height % patch or width_in % patch:
        raise ValueError(f"size must be a multiple of the patch {patch}, not {size!r}")
    if width % heads:
        raise ValueError(f"width must be a multiple of the {heads} heads, not {width!r}")
    b = Builder("transformer", seed=seed)
    x = b.input((batch, 3, height, width_in))
    x = b.conv(x, width, patch, stride=patch, padding=0, norm=False, gain=math.sqrt(0.5))
    tokens = x.shape[2] * x.shape[3]
    x = b.transpose(b.reshape(x, (batch, width, tokens)), (0, 2, 1))
    positions = b.random.standard_normal((1, tokens, width)).astype(np.float32) * np.float32(0.5)
    x = b.op("Add", [x, b.constant(positions, "positions")], x.shape)
    for _ in range(layers):
        x = b.add(x, attention(b, b.layer_norm(x), heads))
        hidden = b.dense(b.layer_norm(x), width * expansion, activation="gelu", gain=math.sqrt(0.5))
        x = b.add(x, b.dense(hidden, width))
    x = b.layer_norm(x)
    axes = b.constant(np.array([1], np.int64), "token_axis")
    x = b.op("ReduceMean", [x, axes], (batch, width), keepdims=0)
    return b.finish(b.dense(x, classes, gain=math.sqrt(0.5)))
