"""torchvision's architectures with seeded weights."""

from __future__ import annotations

import importlib
from typing import Any

import torch
from torch import nn

#: torchvision's package describes these when it is imported. Its wheels hold their code for the torch of the same index
#: only; beside another one they are declared here, and architectures that classify call none of them.
_OPERATORS = ("nms", "qnms")


def _models() -> Any:
    try:
        torch.ops.load_library(importlib.util.find_spec("torchvision").submodule_search_locations[0] + "/_C.so")
    except OSError:
        library = torch.library.Library("torchvision", "FRAGMENT")
        for name in _OPERATORS:
            library.define(f"{name}(Tensor boxes, Tensor scores, float iou_threshold) -> Tensor")
        _kept.append(library)
    return importlib.import_module("torchvision.models")


_kept: list[Any] = []
models = _models()


def seeded(name: str) -> nn.Module:
    """An architecture by its name, in evaluation mode, its batch norms as if it had been trained."""
    torch.manual_seed(0)
    module: nn.Module = getattr(models, name)(weights=None)
    with torch.no_grad():
        for norm in module.modules():
            if isinstance(norm, nn.BatchNorm2d):
                norm.running_mean.normal_(0, 0.1)
                norm.running_var.uniform_(0.5, 1.5)
    return module.eval()
