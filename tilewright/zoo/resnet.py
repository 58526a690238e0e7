"""Residual networks: ResNet-18 and ResNet-50 for ImageNet sizes, ResNet-8 of MLPerf Tiny."""

from __future__ import annotations

import onnx

from tilewright.zoo.builder import Builder, Size, Value, pair


def basic_block(b: Builder, x: Value, channels: int, stride: int) -> Value:
    """Two 3x3 convolutions beside a shortcut, which is a 1x1 convolution where the shape changes."""
    y = b.conv(x, channels, 3, stride=stride, activation="relu")
    # Half gain on the branch keeps the variance from doubling at every addition.
    y = b.conv(y, channels, 3, gain=0.5)
    shortcut = b.conv(x, channels, 1, stride=stride, padding=0) if x.shape != y.shape else x
    return b.add(y, shortcut, "relu")


def bottleneck(b: Builder, x: Value, channels: int, stride: int) -> Value:
    """1x1, 3x3 (with the stride) and 1x1 convolutions to 4 x `channels` beside a shortcut."""
    y = b.conv(x, channels, 1, activation="relu")
    y = b.conv(y, channels, 3, stride=stride, activation="relu")
    y = b.conv(y, 4 * channels, 1, gain=0.5)
    shortcut = b.conv(x, 4 * channels, 1, stride=stride, padding=0) if x.shape != y.shape else x
    return b.add(y, shortcut, "relu")


def imagenet_stem(b: Builder, size: Size, batch: int) -> Value:
    """[N, 3, H, W] -> [N, 64, H/4, W/4]: 7x7 convolution and max pool."""
    x = b.conv(b.input((batch, 3, *pair(size))), 64, 7, stride=2, activation="relu")
    return b.max_pool(x, 3, 2, 1)


def resnet18(
    *, size: Size = 224, batch: int = 1, classes: int = 1000, seed: int = 0, batch_norm: bool = False
) -> onnx.ModelProto:
    """ResNet-18. input float32 [batch, 3, size, size] -> output float32 [batch, classes]; 1.81 GMAC at 224."""
    b = Builder("resnet18", seed=seed, batch_norm=batch_norm)
    x = imagenet_stem(b, size, batch)
    for stage, channels in enumerate((64, 128, 256, 512)):
        for block in range(2):
            x = basic_block(b, x, channels, 2 if stage and not block else 1)
    return b.finish(b.dense(b.global_pool(x, flatten=True), classes))


def resnet50(
    *, size: Size = 224, batch: int = 1, classes: int = 1000, seed: int = 0, batch_norm: bool = False
) -> onnx.ModelProto:
    """ResNet-50 (v1.5). input float32 [batch, 3, size, size] -> output float32 [batch, classes]; 4.09 GMAC at 224."""
    b = Builder("resnet50", seed=seed, batch_norm=batch_norm)
    x = imagenet_stem(b, size, batch)
    for stage, (channels, blocks) in enumerate(((64, 3), (128, 4), (256, 6), (512, 3))):
        for block in range(blocks):
            x = bottleneck(b, x, channels, 2 if stage and not block else 1)
    return b.finish(b.dense(b.global_pool(x, flatten=True), classes))


def resnet8(
    *, size: Size = 32, batch: int = 1, classes: int = 10, seed: int = 0, batch_norm: bool = False
) -> onnx.ModelProto:
    """MLPerf Tiny image classification. input float32 [batch, 3, size, size] -> output float32 [batch, classes]."""
    b = Builder("resnet8", seed=seed, batch_norm=batch_norm)
    x = b.conv(b.input((batch, 3, *pair(size))), 16, 3, activation="relu")
    for channels, stride in ((16, 1), (32, 2), (64, 2)):
        x = basic_block(b, x, channels, stride)
    return b.finish(b.dense(b.global_pool(x, flatten=True), classes))
