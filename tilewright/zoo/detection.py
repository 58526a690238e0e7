"""A one-stage detector: features at three scales, joined top-down and bottom-up, with a head on each."""

from __future__ import annotations

import onnx

from tilewright.zoo.builder import Builder, Size, Value, pair


def bottlenecks(b: Builder, x: Value, channels: int, count: int, activation: str, shortcut: bool) -> Value:
    """A split block: half of the channels pass `count` bottlenecks, the other half one 1x1 convolution."""
    half = channels // 2
    y = b.conv(x, half, 1, activation=activation)
    for _ in range(count):
        z = b.conv(b.conv(y, half, 1, activation=activation), half, 3, activation=activation, gain=0.5)
        y = b.add(y, z) if shortcut else z
    return b.conv(b.concat([y, b.conv(x, half, 1, activation=activation)]), channels, 1, activation=activation)


def detector(
    *,
    size: Size = 416,
    width: int = 32,
    depth: int = 1,
    activation: str = "silu",
    batch: int = 1,
    classes: int = 80,
    seed: int = 0,
    batch_norm: bool = False,
) -> onnx.ModelProto:
    """One-stage detector (as YOLOv5s). input float32 [batch, 3, size, size] -> float32 [batch, n, 5 + classes].

    n is 3 anchors for every place of the strides 8, 16 and 32. 3.5 GMAC at size 416. The size must be a multiple of 32.
    """
    if any(d % 32 for d in pair(size)):
        raise ValueError(f"size must be a multiple of 32, not {size!r}")
    b = Builder("detector", seed=seed, batch_norm=batch_norm)
    x = b.input((batch, 3, *pair(size)))
    x = b.conv(x, width, 6, stride=2, padding=2, activation=activation)
    levels = []
    for level, count in enumerate((depth, 2 * depth, 3 * depth, depth)):
        channels = width << level + 1
        x = b.conv(x, channels, 3, stride=2, activation=activation)
        x = bottlenecks(b, x, channels, count, activation, shortcut=True)
        levels.append(x)
    # Pyramid pooling: windows of 5, 9 and 13.
    x = b.conv(x, x.channels // 2, 1, activation=activation)
    pooled = [x]
    for _ in range(3):
        pooled.append(b.max_pool(pooled[-1], 5, 1, 2))
    x = b.conv(b.concat(pooled), levels[-1].channels, 1, activation=activation)
    # Top-down, then bottom-up.
    laterals = []
    for skip in (levels[2], levels[1]):
        x = b.conv(x, skip.channels, 1, activation=activation)
        laterals.append(x)
        x = bottlenecks(b, b.concat([b.resize(x), skip]), skip.channels, depth, activation, shortcut=False)
    scales = [x]
    for lateral in reversed(laterals):
        x = b.conv(x, lateral.channels, 3, stride=2, activation=activation)
        x = bottlenecks(b, b.concat([x, lateral]), 2 * lateral.channels, depth, activation, shortcut=False)
        scales.append(x)
    return b.finish(b.concat([_head(b, x, 3, 5 + classes) for x in scales], axis=1))


def _head(b: Builder, x: Value, anchors: int, values: int) -> Value:
    """Scores of every anchor at every place, [batch, places * anchors, values]."""
    n, _, h, w = x.shape
    y = b.reshape(b.conv(x, anchors * values, 1, norm=False, gain=4), (n, anchors, values, h * w))
    y = b.reshape(b.transpose(y, (0, 1, 3, 2)), (n, anchors * h * w, values))
    return b.activate(y, "sigmoid")
