"""A vision transformer: patch convolution, pre-norm attention and GELU layers, mean-pooled head."""

from __future__ import annotations

import math

import numpy as np
import onnx

from tilewright.zoo.builder import Builder, Size, Value, pair


def attention(b: Builder, x: Value, heads: int, memory: Value | None = None) -> Value:
    """Multi-head attention of float32 [N, T, width] to itself, or to what keys and values are made of instead."""
    n, tokens, width = x.shape
    depth = width // heads
    read = memory or x

    def split(y: Value, order: tuple[int, ...]) -> Value:
        return b.transpose(b.reshape(y, (n, y.shape[1], heads, depth)), order)

    gain = math.sqrt(0.5)  # no ReLU before these layers: unit variance needs 1 / fan_in, half of He's
    query = split(b.dense(x, width, gain=gain), (0, 2, 1, 3))  # [N, heads, T, depth]
    key = split(b.dense(read, width, gain=gain), (0, 2, 3, 1))  # [N, heads, depth, T]
    value = split(b.dense(read, width, gain=gain), (0, 2, 1, 3))
    scores = b.op("MatMul", [query, key], (n, heads, tokens, read.shape[1]))
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
    class_token: bool = False,
) -> onnx.ModelProto:
    """Vision transformer. input float32 [batch, 3, size, size] -> output float32 [batch, classes].

    The size must be whole patches, the width whole heads. The classifier reads the mean of the tokens, or with
    `class_token` one more token, which stands before them.
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
    if class_token:
        token = b.random.standard_normal((batch, 1, width)).astype(np.float32)
        x = b.concat([Value(b.constant(token, "class_token"), token.shape), x])
        tokens += 1
    positions = b.random.standard_normal((1, tokens, width)).astype(np.float32) * np.float32(0.5)
    x = b.op("Add", [x, b.constant(positions, "positions")], x.shape)
    for _ in range(layers):
        x = b.add(x, attention(b, b.layer_norm(x), heads))
        hidden = b.dense(b.layer_norm(x), width * expansion, activation="gelu", gain=math.sqrt(0.5))
        x = b.add(x, b.dense(hidden, width))
    x = b.layer_norm(x)
    if class_token:
        x = b.op("Gather", [x, b.constant(np.array(0, np.int64), "first")], (batch, width), axis=1)
    else:
        axes = b.constant(np.array([1], np.int64), "token_axis")
        x = b.op("ReduceMean", [x, axes], (batch, width), keepdims=0)
    return b.finish(b.dense(x, classes, gain=math.sqrt(0.5)))


def deit(
    *,
    size: Size = 224,
    patch: int = 16,
    width: int = 192,
    heads: int = 3,
    layers: int = 12,
    classes: int = 1000,
    seed: int = 0,
) -> onnx.ModelProto:
    """DeiT-Tiny. input float32 [1, 3, size, size] -> output float32 [1, classes]; 1.25 GMAC at 224."""
    return transformer(
        size=size, patch=patch, width=width, heads=heads, layers=layers, classes=classes, seed=seed, class_token=True
    )


def bert(
    *,
    tokens: int = 128,
    width: int = 128,
    heads: int = 2,
    layers: int = 2,
    expansion: int = 4,
    vocabulary: int = 30522,
    classes: int = 2,
    seed: int = 0,
) -> onnx.ModelProto:
    """BERT encoder, BERT-Tiny by default. input_ids int64 [1, tokens] -> output float32 [1, classes].

    The norms follow the sums; the classifier reads the first token behind a layer with tanh. The width must be whole
    heads.
    """
    if width % heads:
        raise ValueError(f"width must be a multiple of the {heads} heads, not {width!r}")
    b = Builder("bert", seed=seed)

    def table(rows: int, name: str) -> str:
        return b.constant(b.random.standard_normal((rows, width)).astype(np.float32) * np.float32(0.5), name)

    b.inputs.append(onnx.helper.make_tensor_value_info("input_ids", onnx.TensorProto.INT64, [1, tokens]))
    x = b.op("Gather", [table(vocabulary, "words"), "input_ids"], (1, tokens, width), axis=0)
    x = b.layer_norm(b.op("Add", [x, table(tokens, "positions")], x.shape))
    for _ in range(layers):
        x = b.layer_norm(b.add(x, attention(b, x, heads)))
        hidden = b.dense(x, width * expansion, activation="gelu", gain=math.sqrt(0.5))
        x = b.layer_norm(b.add(x, b.dense(hidden, width)))
    x = b.op("Gather", [x, b.constant(np.array(0, np.int64), "first")], (1, width), axis=1)
    x = b.op("Tanh", [b.dense(x, width, gain=math.sqrt(0.5))], x.shape)
    return b.finish(b.dense(x, classes, gain=math.sqrt(0.5)))


def quantise_bert(model: onnx.ModelProto, *, activation: str, calibration: int, seed: int) -> onnx.ModelProto:
    """A float `bert` with 8-bit weights and activations, calibrated on random words."""
    from tilewright.zoo.quantization import quantize

    (ids,) = model.graph.input
    words = next(x for x in model.graph.initializer if x.name == "words").dims[0]
    shape = [d.dim_value for d in ids.type.tensor_type.shape.dim]
    random = np.random.default_rng(seed)
    prompts = [{ids.name: random.integers(0, words, shape)} for _ in range(calibration)]
    return quantize(model, activation=activation, calibration=prompts)
