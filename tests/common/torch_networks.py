"""The zoo's architectures as torch modules with seeded weights, small enough for quick tests."""

from __future__ import annotations

import torch
from torch import nn


class Residual(nn.Module):
    """Two 3x3 convolutions beside the identity, or beside a 1x1 convolution where shapes change."""

    def __init__(self, inputs: int, outputs: int, stride: int = 1) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs),
        )  # fmt: skip
        same = stride == 1 and inputs == outputs
        shorter = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))
        self.short = nn.Identity() if same else shorter

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.body(x) + self.short(x))


class Inverted(nn.Module):
    """MobileNetV2's block: widen, depthwise, narrow."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        wide = 4 * inputs
        self.same = stride == 1 and inputs == outputs
        self.body = nn.Sequential(
            nn.Conv2d(inputs, wide, 1, bias=False), nn.BatchNorm2d(wide), nn.ReLU6(),
            nn.Conv2d(wide, wide, 3, stride, 1, groups=wide, bias=False), nn.BatchNorm2d(wide), nn.ReLU6(),
            nn.Conv2d(wide, outputs, 1, bias=False), nn.BatchNorm2d(outputs),
        )  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.body(x) if self.same else self.body(x)


class SqueezeExcite(nn.Module):
    """Channels scaled by what the whole plane holds."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.gate = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(channels, channels // 4, 1), nn.Hardswish(),
            nn.Conv2d(channels // 4, channels, 1), nn.Hardsigmoid(),
        )  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.gate(x)


class Transformer(nn.Module):
    """A vision transformer: patches, encoder layers, mean, classes."""

    def __init__(self, width: int = 32, classes: int = 10) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 8, 8)
        self.position = nn.Parameter(torch.randn(1, 16, width) * 0.02)
        layer = lambda: nn.TransformerEncoderLayer(width, 4, 64, 0.0, "gelu", batch_first=True, norm_first=True)
        self.layers = nn.Sequential(layer(), layer())
        self.head = nn.Linear(width, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        tokens = self.patches(x).flatten(2).transpose(1, 2) + self.position
        return self.head(self.layers(tokens).mean(1))


def _head(channels: int) -> list[nn.Module]:
    return [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 10)]


def _resnet() -> nn.Module:
    stem = [nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU()]
    return nn.Sequential(*stem, Residual(16, 16), Residual(16, 32, 2), Residual(32, 64, 2), *_head(64))


def _mobilenet() -> nn.Module:
    stem = [nn.Conv2d(3, 16, 3, 2, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU6()]
    return nn.Sequential(*stem, Inverted(16, 16, 1), Inverted(16, 24, 2), Inverted(24, 24, 1), *_head(24))


def _efficientnet() -> nn.Module:
    stem = [nn.Conv2d(3, 16, 3, 2, 1, bias=False), nn.BatchNorm2d(16), nn.SiLU()]
    return nn.Sequential(*stem, Inverted(16, 32, 2), SqueezeExcite(32), nn.SiLU(), Inverted(32, 32, 1), *_head(32))


NETWORKS = {"resnet": _resnet, "mobilenet": _mobilenet, "efficientnet": _efficientnet, "transformer": Transformer}


def build(name: str) -> nn.Module:
    """A network for [N, 3, 32, 32] with seeded weights and batch norms that have seen some data, in evaluation mode."""
    torch.manual_seed(0)
    module = NETWORKS[name]()
    with torch.no_grad():
        for _ in range(10):
            module(torch.randn(16, 3, 32, 32))
    return module.eval()
