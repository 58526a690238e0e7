"""Layers that a user's kernels take the place of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from tilewright.compiler.graph.ops.kernel import NodeKernel
from tilewright.compiler.npu.layers.layer import Layer
from tilewright.isa.config import NpuConfig


@runtime_checkable
class LayerKernel(NodeKernel, Protocol):
    """A kernel that can take the place of layers and run nodes, as `tilewright.kernel.Kernel` is."""

    def layer_for(self, layer: Layer, config: NpuConfig) -> Layer | None:
        """Returns the layer that makes the same tensor by the kernel; None to leave the layer as it is."""


def replaced(layers: list[Layer], config: NpuConfig, kernels: Sequence[LayerKernel]) -> list[Layer]:
    """Returns layers with each that a kernel takes in its form; the first kernel that takes a layer has it."""
    found = []
    for layer in layers:
        by_kernels = (kernel.layer_for(layer, config) for kernel in kernels)
        found.append(next((taken for taken in by_kernels if taken is not None), layer))
    return found
