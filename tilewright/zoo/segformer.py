"""A transformer for segmentation: four stages at falling resolution, joined at the first one's."""

from __future__ import annotations

import math

import onnx

from tilewright.zoo.builder import Builder, Size, Value, pair
from tilewright.zoo.transformer import attention

# SegFormer-B0: heads, and by how much keys and values are fewer than queries along each side.
STAGES = [(1, 8), (2, 4), (5, 2), (8, 1)]


def _rows(b: Builder, x: Value) -> Value:
    """[N, C, H, W] -> [N, H * W, C]."""
    n, c, h, w = x.shape
    return b.transpose(b.reshape(x, (n, c, h * w)), (0, 2, 1))


def _plane(b: Builder, x: Value, size: tuple[int, int]) -> Value:
    """[N, H * W, C] -> [N, C, H, W]."""
    n, _, c = x.shape
    return b.reshape(b.transpose(x, (0, 2, 1)), (n, c, *size))


def _block(b: Builder, x: Value, size: tuple[int, int], heads: int, fewer: int, expansion: int) -> Value:
    """Attention to a plane that is `fewer` times smaller, then a layer with a depthwise convolution inside."""
    width, linear = x.shape[2], math.sqrt(0.5)
    y = b.layer_norm(x)
    memory = None
    if fewer > 1:
        small = b.conv(_plane(b, y, size), width, fewer, stride=fewer, padding=0, norm=False, gain=linear)
        memory = b.layer_norm(_rows(b, small))
    x = b.add(x, attention(b, y, heads, memory))
    hidden = _plane(b, b.dense(b.layer_norm(x), width * expansion, gain=linear), size)
    hidden = _rows(b, b.depthwise(hidden, 3, norm=False, gain=linear))
    return b.add(x, b.dense(b.activate(hidden, "gelu"), width))


def segformer(
    *,
    size: Size = 256,
    width: int = 32,
    layers: int = 2,
    expansion: int = 4,
    joined: int = 256,
    batch: int = 1,
    classes: int = 150,
    seed: int = 0,
) -> onnx.ModelProto:
    """SegFormer-B0. input float32 [batch, 3, size, size] -> scores float32 [batch, classes, size / 4, size / 4].

    The size must be a multiple of 64. `joined` are the channels in which the four stages meet.
    """
    if any(d % 64 for d in pair(size)):
        raise ValueError(f"size must be a multiple of 64, not {size!r}")
    b = Builder("segformer", seed=seed)
    x = b.input((batch, 3, *pair(size)))
    planes = []
    for stage, (heads, fewer) in enumerate(STAGES):
        kernel, stride = (7, 4) if stage == 0 else (3, 2)
        x = b.conv(x, width * heads, kernel, stride=stride, norm=False, gain=math.sqrt(0.5))
        plane = x.shape[2], x.shape[3]
        rows = b.layer_norm(_rows(b, x))
        for _ in range(layers):
            rows = _block(b, rows, plane, heads, fewer, expansion)
        x = _plane(b, b.layer_norm(rows), plane)
        planes.append(x)
    parts = []
    for stage, features in enumerate(planes):
        y = b.conv(features, joined, 1, norm=False, gain=math.sqrt(0.5))
        parts.append(b.resize(y, 1 << stage, "linear") if stage else y)
    return b.finish(b.conv(b.conv(b.concat(parts[::-1]), joined, 1, activation="relu"), classes, 1, norm=False))
