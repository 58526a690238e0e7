"""The digits network as a PyTorch module."""

from __future__ import annotations

from collections.abc import Mapping

import network
import numpy as np
import torch
from torch import nn
from torch.nn import functional as F


class Digits(nn.Module):
    """The network of network.py with batch norms."""

    def __init__(self) -> None:
        super().__init__()
        self.convolutions = nn.ModuleDict()
        for name, (inputs, outputs, kernel, stride, groups) in network.CONVOLUTIONS.items():
            layer = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False)
            self.convolutions[name.replace(".", "_")] = nn.Sequential(layer, nn.BatchNorm2d(outputs))
        self.head = nn.Linear(network.FEATURES, network.CLASSES)

    def conv(self, x: torch.Tensor, name: str) -> torch.Tensor:
        return self.convolutions[name.replace(".", "_")](x)

    def residual(self, x: torch.Tensor, name: str) -> torch.Tensor:
        return F.relu(x + self.conv(F.relu(self.conv(x, f"{name}.a")), f"{name}.b"))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.residual(F.relu(self.conv(x, "stem")), "first")
        x = self.residual(F.relu(self.conv(x, "down")), "second")
        x = F.relu(self.conv(x, "separable.depthwise"))
        x = F.relu(self.conv(x, "separable.pointwise"))
        return self.head(x.mean((2, 3)))

    @staticmethod
    def trained(weights: Mapping[str, np.ndarray]) -> Digits:
        """The module with weights as `folded` gives them, in evaluation mode; its batch norms only add the biases."""
        model = Digits()
        with torch.no_grad():
            model.head.weight.copy_(torch.tensor(weights["head.weight"]))
            model.head.bias.copy_(torch.tensor(weights["head.bias"]))
            for name in network.CONVOLUTIONS:
                layer, norm = model.convolutions[name.replace(".", "_")]
                layer.weight.copy_(torch.tensor(weights[f"{name}.weight"]))
                norm.bias.copy_(torch.tensor(weights[f"{name}.bias"]))
                norm.weight.copy_(torch.sqrt(norm.running_var + norm.eps))
        return model.eval()

    def folded(self) -> dict[str, np.ndarray]:
        """Weights with the batch norms folded in, named as network.build wants them."""
        weights = {"head.weight": self.head.weight, "head.bias": self.head.bias}
        for name in network.CONVOLUTIONS:
            layer, norm = self.convolutions[name.replace(".", "_")]
            factor = norm.weight / torch.sqrt(norm.running_var + norm.eps)
            weights[f"{name}.weight"] = layer.weight * factor[:, None, None, None]
            weights[f"{name}.bias"] = norm.bias - norm.running_mean * factor
        return {name: value.detach().numpy().astype(np.float32) for name, value in weights.items()}
