"""Networks with squeeze-and-excite gates: a small MobileNetV3 (HardSwish) and an EfficientNet (SiLU)."""

from __future__ import annotations

import math

import onnx

from tilewright.zoo.builder import Builder, Size, Value, pair, scaled_channels

# MobileNetV3-Small: (kernel, expanded channels, output channels, squeeze-and-excite, activation, stride).
V3_BLOCKS = [
    (3, 16, 16, True, "relu", 2),
    (3, 72, 24, False, "relu", 2),
    (3, 88, 24, False, "relu", 1),
    (5, 96, 40, True, "hard_swish", 2),
    (5, 240, 40, True, "hard_swish", 1),
    (5, 240, 40, True, "hard_swish", 1),
    (5, 120, 48, True, "hard_swish", 1),
    (5, 144, 48, True, "hard_swish", 1),
    (5, 288, 96, True, "hard_swish", 2),
    (5, 576, 96, True, "hard_swish", 1),
    (5, 576, 96, True, "hard_swish", 1),
]

# EfficientNet-B0: (expansion, output channels, blocks, stride of the first, kernel).
B0_STAGES = [
    (1, 16, 1, 1, 3),
    (6, 24, 2, 2, 3),
    (6, 40, 2, 2, 5),
    (6, 80, 3, 2, 3),
    (6, 112, 3, 1, 5),
    (6, 192, 4, 2, 5),
    (6, 320, 1, 1, 3),
]


def gated_block(
    b: Builder,
    x: Value,
    expanded: int,
    channels: int,
    *,
    kernel: int,
    stride: int,
    squeezed: int | None,
    activation: str,
    gate: tuple[str, str],
) -> Value:
    """Inverted residual with an optional squeeze-and-excite of `squeezed` channels before the narrowing."""
    y = b.conv(x, expanded, 1, activation=activation) if expanded != x.channels else x
    y = b.depthwise(y, kernel, stride=stride, activation=activation)
    if squeezed is not None:
        y = b.squeeze_excite(y, squeezed, *gate)
    y = b.conv(y, channels, 1, gain=1.2)  # the gate halves the signal; the linear end needs less than He's gain
    return b.add(x, y) if x.shape == y.shape else y


def squeeze_excite(
    *,
    alpha: float = 1.0,
    size: Size = 224,
    batch: int = 1,
    classes: int = 1000,
    seed: int = 0,
    batch_norm: bool = False,
) -> onnx.ModelProto:
    """MobileNetV3-Small. input float32 [batch, 3, size, size] -> output float32 [batch, classes]; 57 MMAC at 224."""
    b = Builder("squeeze_excite", seed=seed, batch_norm=batch_norm)
    x = b.conv(b.input((batch, 3, *pair(size))), scaled_channels(16 * alpha), 3, stride=2, activation="hard_swish")
    for kernel, expanded, channels, gated, activation, stride in V3_BLOCKS:
        expanded = scaled_channels(expanded * alpha)
        x = gated_block(
            b,
            x,
            expanded,
            scaled_channels(channels * alpha),
            kernel=kernel,
            stride=stride,
            squeezed=scaled_channels(expanded / 4) if gated else None,
            activation=activation,
            gate=("relu", "hard_sigmoid"),
        )
    x = b.conv(x, scaled_channels(576 * alpha), 1, activation="hard_swish")
    x = b.dense(b.global_pool(x, flatten=True), scaled_channels(1024 * alpha), activation="hard_swish")
    return b.finish(b.dense(x, classes))


def efficientnet(
    *,
    width: float = 1.0,
    depth: float = 1.0,
    size: Size = 224,
    batch: int = 1,
    classes: int = 1000,
    seed: int = 0,
    batch_norm: bool = False,
) -> onnx.ModelProto:
    """EfficientNet, B0 by default. input float32 [batch, 3, size, size] -> output float32 [batch, classes]."""
    b = Builder("efficientnet", seed=seed, batch_norm=batch_norm)
    x = b.conv(b.input((batch, 3, *pair(size))), scaled_channels(32 * width), 3, stride=2, activation="silu")
    for expansion, channels, blocks, first_stride, kernel in B0_STAGES:
        for block in range(math.ceil(blocks * depth)):
            x = gated_block(
                b,
                x,
                x.channels * expansion,
                scaled_channels(channels * width),
                kernel=kernel,
                stride=first_stride if block == 0 else 1,
                squeezed=max(1, x.channels // 4),
                activation="silu",
                gate=("silu", "sigmoid"),
            )
    x = b.conv(x, scaled_channels(1280 * width), 1, activation="silu")
    return b.finish(b.dense(b.global_pool(x, flatten=True), classes))
