"""Networks that give back what they take in: an encoder-decoder for segmentation and the MLPerf Tiny autoencoder."""

from __future__ import annotations

import onnx

from tilewright.zoo.builder import Builder, Size, Value, pair


def double_conv(b: Builder, x: Value, channels: int) -> Value:
    """Two 3x3 convolutions with ReLU."""
    return b.conv(b.conv(x, channels, 3, activation="relu"), channels, 3, activation="relu")


def segmentation(
    *,
    size: Size = 128,
    width: int = 16,
    depth: int = 3,
    upsample: str = "nearest",
    batch: int = 1,
    classes: int = 8,
    seed: int = 0,
    batch_norm: bool = False,
) -> onnx.ModelProto:
    """U-Net. input float32 [batch, 3, size, size] -> per-pixel scores float32 [batch, classes, size, size].

    The innermost step up is a ConvTranspose, the others Resize (`upsample`: nearest or linear) and a 1x1 convolution.
    The size must be divisible by 2 ** depth.
    """
    if any(d % 2**depth for d in pair(size)):
        raise ValueError(f"size must be a multiple of {2**depth} at depth {depth}, not {size!r}")
    b = Builder("segmentation", seed=seed, batch_norm=batch_norm)
    x = b.input((batch, 3, *pair(size)))
    skips = []
    for level in range(depth):
        x = double_conv(b, x, width << level)
        skips.append(x)
        x = b.max_pool(x, 2, 2)
    x = double_conv(b, x, width << depth)
    for level in reversed(range(depth)):
        if level == depth - 1:
            x = b.conv_transpose(x, width << level, activation="relu")
        else:
            x = b.conv(b.resize(x, 2, upsample), width << level, 1, activation="relu")
        x = double_conv(b, b.concat([x, skips[level]]), width << level)
    return b.finish(b.conv(x, classes, 1, norm=False))


def autoencoder(
    *, features: int = 640, hidden: int = 128, bottleneck: int = 8, batch: int = 1, seed: int = 0
) -> onnx.ModelProto:
    """MLPerf Tiny anomaly detection: 640-128x4-8-128x4-640. input and output float32 [batch, features]; 0.26 MMAC."""
    b = Builder("autoencoder", seed=seed)
    x = b.input((batch, features))
    for units in (*[hidden] * 4, bottleneck, *[hidden] * 4):
        x = b.dense(x, units, activation="relu")
    return b.finish(b.dense(x, features))
