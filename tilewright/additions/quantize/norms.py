"""Norms of transformers, means of powers, and what logarithms read: which of them leave the NPU.

The NPU adds and normalises in 8 bits, so that a whole transformer is one turn. But in some networks a few channels of
the sums are a hundred times louder than the others, for which one scale then leaves no steps. The sums and norms beside
such a tensor compute in floats, one more turn for each of them; what products write for them is equalised
(`equalise`), and everything else stays in 8 bits.

A mean of powers over the image, with a root behind, as networks that compare pictures have it, is of the same kind: one
scale for x^3 leaves no steps for small x. So is what stands before a logarithm, such as the spectrum of a sound, whose
quiet parts count as much as the loud ones: everything from the input on computes in floats there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tilewright.quantize import times
from tilewright.quantize.layers import Kind, Layer, Network
from tilewright.quantize.recipe import Precision, Recipe, Samples
from tilewright.quantize.switches import Switchboard, noise
from tilewright.quantize.writing import quantised_layers

_LOUD = 0.25
"""Noise of a loud tensor alone, as a fraction of what the outputs may have."""

_FRONT = 0.25
"""Maximum of the multiply-accumulates before a logarithm that may leave the NPU, as a share of all."""


def in_floats(recipe: Recipe, samples: Samples, goal: float) -> dict[str, Precision]:
    """The layers to compute in floats: sums and norms; powers, their means and roots; all before a logarithm.

    Args:
        goal: SQNR that the outputs should have, in dB.

    Raises:
        UsageError: onnxruntime cannot run the model on a sample.
    """
    network = recipe.network
    beside = _tensors(network, recipe) | _powers(network, recipe) | _logarithms(network, recipe)
    if not beside:
        return {}
    board, sample = Switchboard(recipe), samples[0]
    real = [board.run(sample, frozenset())]
    measure = lambda names: noise(real, [board.run(sample, frozenset(names))])
    loud = loudest(list(beside), measure, _LOUD * 10 ** (-goal / 10))
    return {layer.name: Precision.FLOAT for name in loud for layer in beside[name]}


def loudest(names: Sequence[str], measure: Callable[[Sequence[str]], np.ndarray], limit: float) -> list[str]:
    """The tensors whose noise alone is above a limit in any output.

    Args:
        measure: the noise that some tensors make together, as a fraction of the outputs' energy. [outputs].
    """
    if not names or (measure(names) <= limit).all():
        return []
    if len(names) == 1:
        return list(names)
    half = len(names) // 2
    return loudest(names[:half], measure, limit) + loudest(names[half:], measure, limit)


def _tensors(network: Network, recipe: Recipe) -> dict[str, list[Layer]]:
    """Tensors between products and norms that would have no steps if the layers listed were in floats: the sums and
    norms that write and read them."""
    chosen = quantised_layers(network, recipe)
    if not any(layer.kind is Kind.NORM and layer.name in chosen for layer in network.layers):
        return {}
    sums = {x.name for x in network.layers if x.name in chosen and (x.kind is Kind.NORM or _is_sum(x))}
    found: dict[str, list[Layer]] = {}
    for layer in network.layers:
        if layer.name not in sums:
            continue
        for name in layer.inputs:
            users = [network.layer_of.get(o) for node in network.readers[name] for o in node.output]
            maker = network.layer_of.get(name)
            known = maker is not None and (maker.name in sums or maker.kind in (Kind.PRODUCT, Kind.MOVE))
            if maker is None or not known or maker.kind is Kind.NORM or network.exposed(name):
                continue
            if all(user is not None and user.name in sums for user in users):
                beside = [maker, *(x for x in users if x is not None)] if maker.name in sums else [layer]
                found[name] = [x for x in beside if x.name not in recipe.precision]
    return found


def _powers(network: Network, recipe: Recipe) -> dict[str, list[Layer]]:
    """Powers that a mean reads: their layers, those of the means, and of the functions behind."""
    chosen = quantised_layers(network, recipe)
    found: dict[str, list[Layer]] = {}
    for layer in network.layers:
        maker = network.layer_of.get(layer.inputs[0]) if layer.kind is Kind.POOL and layer.op != "Softmax" else None
        if maker is None or not {maker.name, layer.name} <= chosen.keys() or not _is_power(network, maker):
            continue
        users = [network.layer_of.get(o) for node in network.readers.get(layer.outputs[0], []) for o in node.output]
        roots = [x for x in users if x is not None and x.kind is Kind.ELEMENTWISE]
        found[layer.inputs[0]] = [x for x in (maker, layer, *roots) if x.name not in recipe.precision]
    return found


def _logarithms(network: Network, recipe: Recipe) -> dict[str, list[Layer]]:
    """Returns the layers from the inputs on to each logarithm, by the tensor that it reads."""
    chosen, most = quantised_layers(network, recipe), _FRONT * times.all_macs(network)
    found: dict[str, list[Layer]] = {}
    for layer in network.layers:
        logarithm = layer.kind is Kind.ELEMENTWISE and any(node.op_type == "Log" for node in layer.nodes)
        if not logarithm or layer.name not in chosen:
            continue
        before = {layer.name: layer}
        pending, seen = [layer.inputs[0]], set[str]()
        while pending:
            name = pending.pop()
            if name in network.layer_of:
                before[network.layer_of[name].name] = network.layer_of[name]
            if name in network.producer and name not in seen:
                pending += network.producer[name].input
            seen.add(name)
        if sum(times.macs(network, x) for x in before.values()) <= most:
            found[layer.inputs[0]] = [x for x in before.values() if x.name not in recipe.precision]
    return found


def _is_power(network: Network, layer: Layer) -> bool:
    """Whether a function has a square or a higher power, so that its greatest values are far above most others."""
    if layer.kind is not Kind.ELEMENTWISE:
        return False
    exponents = (network.constant(node.input[1]) for node in layer.nodes if node.op_type == "Pow")
    squares = any(node.op_type == "Mul" and node.input[0] == node.input[1] for node in layer.nodes)
    return squares or any(value is not None and value.max(initial=0) > 1 for value in exponents)


def _is_sum(layer: Layer) -> bool:
    return layer.kind is Kind.PAIR and layer.op == "Add" and len(layer.inputs) == 2
