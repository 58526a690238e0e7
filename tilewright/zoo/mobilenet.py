"""Networks of depthwise-separable convolutions: MobileNetV1 and V2, and the two of MLPerf Tiny."""

from __future__ import annotations

import onnx

from tilewright.zoo.builder import Builder, Size, Value, pair, scaled_channels

# (output channels at alpha 1, stride) of MobileNetV1's thirteen separable blocks.
V1_BLOCKS = [(64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5, (1024, 2), (1024, 1)]

# (expansion, output channels at alpha 1, blocks, stride of the first) of MobileNetV2.
V2_STAGES = [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)]


def separable(b: Builder, x: Value, channels: int, stride: int, activation: str) -> Value:
    """Depthwise 3x3 and pointwise 1x1, each with its activation."""
    x = b.depthwise(x, 3, stride=stride, activation=activation)
    return b.conv(x, channels, 1, activation=activation)


def inverted_residual(b: Builder, x: Value, channels: int, stride: int, expansion: int) -> Value:
    """Widen, depthwise 3x3, narrow without activation; added to its input where the shape is kept."""
    y = b.conv(x, x.channels * expansion, 1, activation="relu6") if expansion > 1 else x
    y = b.depthwise(y, 3, stride=stride, activation="relu6")
    # The linear end feeds no ReLU: gain 0.7 keeps the variance level.
    y = b.conv(y, channels, 1, gain=0.7)
    return b.add(x, y) if x.shape == y.shape else y


def mobilenet_v1(
    *,
    alpha: float = 1.0,
    size: Size = 224,
    batch: int = 1,
    classes: int = 1000,
    seed: int = 0,
    batch_norm: bool = False,
    activation: str = "relu6",
) -> onnx.ModelProto:
    """MobileNetV1. input float32 [batch, 3, size, size] -> output float32 [batch, classes]; 0.57 GMAC at 224."""
    b = Builder("mobilenet_v1", seed=seed, batch_norm=batch_norm)
    x = b.conv(b.input((batch, 3, *pair(size))), int(32 * alpha), 3, stride=2, activation=activation)
    for channels, stride in V1_BLOCKS:
        x = separable(b, x, int(channels * alpha), stride, activation)
    return b.finish(b.dense(b.global_pool(x, flatten=True), classes))


def mobilenet_v2(
    *,
    alpha: float = 1.0,
    size: Size = 224,
    batch: int = 1,
    classes: int = 1000,
    seed: int = 0,
    batch_norm: bool = False,
) -> onnx.ModelProto:
    """MobileNetV2. input float32 [batch, 3, size, size] -> output float32 [batch, classes]; 0.30 GMAC at 224."""
    b = Builder("mobilenet_v2", seed=seed, batch_norm=batch_norm)
    x = b.conv(b.input((batch, 3, *pair(size))), scaled_channels(32 * alpha), 3, stride=2, activation="relu6")
    for expansion, channels, blocks, first_stride in V2_STAGES:
        for block in range(blocks):
            stride = first_stride if block == 0 else 1
            x = inverted_residual(b, x, scaled_channels(channels * alpha), stride, expansion)
    x = b.conv(x, scaled_channels(1280 * max(alpha, 1.0)), 1, activation="relu6")
    return b.finish(b.dense(b.global_pool(x, flatten=True), classes))


def vww(
    *, size: Size = 96, batch: int = 1, classes: int = 2, seed: int = 0, batch_norm: bool = False
) -> onnx.ModelProto:
    """MLPerf Tiny visual wake words: MobileNetV1 0.25. input float32 [batch, 3, 96, 96] -> float32 [batch, 2]."""
    return mobilenet_v1(
        alpha=0.25, size=size, batch=batch, classes=classes, seed=seed, batch_norm=batch_norm, activation="relu"
    )


def ds_cnn(
    *, size: Size = (49, 10), batch: int = 1, classes: int = 12, seed: int = 0, batch_norm: bool = False
) -> onnx.ModelProto:
    """MLPerf Tiny keyword spotting. input float32 [batch, 1, 49, 10] -> output float32 [batch, classes]; 2.7 MMAC."""
    b = Builder("ds_cnn", seed=seed, batch_norm=batch_norm)
    x = b.input((batch, 1, *pair(size)))
    x = b.conv(x, 64, (10, 4), stride=2, padding=(4, 1, 5, 1), activation="relu")
    for _ in range(4):
        x = separable(b, x, 64, 1, "relu")
    return b.finish(b.dense(b.global_pool(x, flatten=True), classes))
