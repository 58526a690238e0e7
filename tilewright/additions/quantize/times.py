"""The time of a network under a choice of precisions, estimated in cycles of the configuration `base` at 200 MHz beside
a Cortex-A53.

It serves to compare choices before anything is compiled: products at the rate of the array or of the processor's float
vectors, other layers by their elements, and a turn of the NPU wherever layers in floats lie between quantised ones.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import numpy as np

from tilewright.quantize.layers import Kind, Layer, Network
from tilewright.quantize.recipe import Precision

TURN = 3000.0
"""Cycles in which the NPU waits for a CPU step between two of its own, and is started again."""

_NPU_STEP = 800.0
"""Cycles of a step of a recurrent layer beside its products: what follows has to wait for what comes before."""

_NPU_MACS, _NPU_ELEMENTS = 256.0, 16.0  # a cycle
_CPU_MACS, _CPU_ELEMENTS = 24.0, 2.0  # in a cycle of the NPU


def elements(network: Network, layer: Layer) -> float:
    """Returns the elements of the layer's results; open sizes count as 1."""
    return float(sum(np.prod([max(n, 1) for n in network.shape(name) or [1]]) for name in layer.outputs))


def macs(network: Network, layer: Layer) -> float:
    """Multiply-accumulates of a product, as far as the shapes are known; 0 of other layers."""
    if layer.kind is Kind.RECURRENT:
        steps, batch, _ = network.shape(layer.inputs[0]) or [1, 1, 1]
        return float(steps * max(batch, 1) * np.prod(network.constants[layer.nodes[-1].input[2]].dims))
    if layer.kind is not Kind.PRODUCT:
        return 0.0
    result = elements(network, layer)
    if layer.weights:
        sizes = list(network.constants[layer.weights].dims)
        if layer.op == "ConvTranspose":
            shape = network.shape(layer.inputs[0]) or [1]
            return float(np.prod([max(n, 1) for n in shape]) * np.prod(sizes[1:]))
        return result * float(np.prod(sizes) / max(sizes[layer.axis], 1))
    shape = network.shape(layer.nodes[0].input[0]) or [1]
    return result * max(shape[-1], 1)


def all_macs(network: Network) -> float:
    """Multiply-accumulates of one run, as far as the shapes are known."""
    return sum(macs(network, layer) for layer in network.layers)


def cycles(network: Network, layer: Layer, precision: Precision | None) -> float:
    """Estimated cycles of one layer."""
    size = elements(network, layer)
    if precision is Precision.INT8:
        if layer.kind is Kind.RECURRENT:
            steps = (network.shape(layer.inputs[0]) or [1])[0]
            return steps * _NPU_STEP + macs(network, layer) / _NPU_MACS
        return max(macs(network, layer) / _NPU_MACS, size / _NPU_ELEMENTS)
    return macs(network, layer) / _CPU_MACS + size / _CPU_ELEMENTS


def all_cycles(network: Network, precision: Mapping[str, Precision]) -> float:
    """Estimated cycles of one run.

    Args:
        precision: of the layers that are quantised, as `writing.quantised_layers` gives it.
    """
    real = [x for x in network.layers if x.kind is not Kind.MOVE or network.interpolates(x.nodes[0])]
    on_npu = [precision.get(layer.name) is Precision.INT8 for layer in real]
    inner = on_npu[on_npu.index(True) : len(on_npu) - on_npu[::-1].index(True)] if any(on_npu) else []
    turns = sum(before and not after for before, after in itertools.pairwise(inner))
    return sum(cycles(network, layer, precision.get(layer.name)) for layer in network.layers) + TURN * turns
