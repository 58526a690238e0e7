"""Weights and biases fitted to what a product really reads in the quantised model.

The quantised model is walked from its inputs to its outputs, beside the float model. At each product with constant
weights, over some places of some calibration samples,

    f, q    what the product reads in the float model, and in the quantised one whose earlier layers are done
    V       argmin E |W f - V q|^2 + damping |V - W|^2, both sides without their means: least squares undo a part of
            the noise that comes from before, as far as it is related to the signal
    Vq      V rounded so that E |(V - Vq) q|^2 is least (`rounding`)
    b       b + W E[f] - Vq E[q]: the mean of the result is that of the float model (bias correction)

A product that stays in floats undoes noise like any other; only its weights are not rounded.

Everything is linear algebra on second moments: the result depends on nothing but the model and the samples.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import onnx
from threadpoolctl import threadpool_limits

from tilewright.quantize import rounding, writing
from tilewright.quantize.layers import Kind, Layer, Network
from tilewright.quantize.moments import Moments, Product
from tilewright.quantize.recipe import Precision, Progress, Recipe, Sample, Samples, Weights
from tilewright.quantize.stepping import Stepper

UNSEEN = 4
"""Minimum of samples that weights are not fitted on, for a judgement by these alone."""

_CHUNK = 1 << 20
"""Values of rows per chunk of work."""


Rounded = dict[tuple[str, int, int | None], tuple[np.ndarray, np.ndarray]]
"""Scales and integers of weights that several products read, by their name and the axes of channels and of scales."""


@dataclass(frozen=True)
class Fit:
    """Options of the corrections: which are fitted, and on how many samples and rows.

    Attributes:
        bias: bias correction.
        rounding: weights rounded by second moments, else to the nearest.
        reconstruct: least squares before rounding.
        samples: calibration samples to walk with, at most.
        rows: places looked at, at most.
        least, share: of these, at least, and so many for every input: the moments of few inputs need few.
        damping: of the least squares, as a fraction of the inputs' mean variance.
        caution: so much more of it for every input per place seen: what few places say of many inputs is chance.
        few: a product with so many inputs for every place seen is rounded to the nearest.
    """

    bias: bool = True
    rounding: bool = True
    reconstruct: bool = True
    samples: int = 24
    rows: int = 16384
    least: int = 2048
    share: int = 64
    damping: float = 0.1
    caution: float = 0.1
    few: int = 8


def fit_samples(count: int, fit: Fit | None = None) -> range:
    """Numbers of the samples that weights are fitted on. At most half of `count` are taken, so that others are left to
    judge by; all where half would be too few."""
    most = (fit or Fit()).samples
    step = max(2, count // most) if count >= 2 * UNSEEN else 1
    return range(0, count, step)[:most]


def correct(
    recipe: Recipe, samples: Samples, fit: Fit | None = None, progress: Progress | None = None,
    known: Recipe | None = None,
) -> Recipe:  # fmt: skip
    """A recipe with fitted weights and biases. The given one is left unchanged.

    Args:
        known: a recipe that was fitted on the same samples, with other precisions perhaps: what it has of the layers
            before the first difference is taken over.

    Raises:
        UsageError: onnxruntime cannot run the model on a sample.
    """
    fit = fit or Fit()
    made = replace(recipe, weights={})
    network = recipe.network
    chosen = writing.quantised_layers(network, made)
    products = [x for x in network.layers if x.kind is Kind.PRODUCT and x.weights]
    products = [x for x in products if chosen.get(x.name) is not Precision.INT16]
    inputs: list[Sample] = [samples[i] for i in fit_samples(len(samples), fit)]
    written = writing.write(made)
    same = set() if known is None else _same_before(written, writing.write(replace(known, weights={})))
    real, quantised = Stepper(recipe.model, inputs), Stepper(written, inputs)
    rounded: Rounded = {}
    try:
        with threadpool_limits(1, "blas"):  # with several, products this small mostly wait for each other
            for number, layer in enumerate(products):
                if known is not None and layer.name in same:
                    if layer.name in known.weights:
                        made.weights[layer.name] = known.weights[layer.name]
                        _take_over(made.weights[layer.name], layer, quantised)
                    continue
                real.run_to(real.index(layer.name))
                quantised.run_to(quantised.index(layer.name))
                integers = layer.name in chosen
                weights = _fitted(network, layer, real, quantised, fit, recipe, number, integers, rounded)
                if weights is not None:
                    made.weights[layer.name] = weights
                    _take_over(weights, layer, quantised)
                if progress is not None:
                    progress("fitting weights", (number + 1) / len(products))
    finally:
        real.close()
        quantised.close()
    return made


def _same_before(written: onnx.ModelProto, other: onnx.ModelProto) -> set[str]:
    """Names of the nodes of a model before the first that differs in another model."""
    constants = [{x.name: x for x in model.graph.initializer} for model in (written, other)]
    found: set[str] = set()
    for a, b in zip(written.graph.node, other.graph.node):
        if a != b or any(constants[0].get(name) != constants[1].get(name) for name in a.input):
            break
        found.add(a.name)
    return found


def _fitted(
    network: Network, layer: Layer, real: Stepper, quantised: Stepper, fit: Fit, recipe: Recipe, number: int,
    integers: bool, rounded: Rounded,
) -> Weights | None:  # fmt: skip
    weights = network.constant(layer.weights)
    assert weights is not None
    product = Product.of(layer, weights)
    if product is None:
        return None
    w = np.ascontiguousarray(product.matrix(weights), np.float32)
    del weights  # it may be much of the model, as may be what follows
    random = np.random.default_rng(number)
    own = next(node for node in quantised.nodes if node.name == layer.name).input[0]
    limit = max(1, min(fit.rows, max(fit.least, fit.share * product.inputs)) // real.count)
    seen = real.count * min(limit, product.results(real.value(0, layer.inputs[0])))
    shared = len(network.readers[layer.weights]) > 1  # rounded alike for all, so that they stay one
    whole = seen * fit.few >= product.inputs and not shared  # else what they say of single inputs is chance
    moments = Moments(product, w, whole)
    for sample in range(real.count):
        f = real.value(sample, layer.inputs[0])
        if f.size:
            places, q = product.places(f, limit, random), quantised.value(sample, own)
            for some in np.array_split(places, -(-places.size * product.groups * product.inputs // _CHUNK)):
                moments.add(product.rows(f, some), product.rows(q, some))
            del f, q
    bias = network.constant(layer.bias) if layer.bias else None
    free = fit.bias and bias is not None and bias.size == product.groups * product.outputs
    if not moments.count:
        return None
    reconstruct = fit.reconstruct and whole
    qq = moments.of_inputs(central=free) if whole else np.zeros((), np.float32)
    power = np.einsum("gii->gi", qq).copy() if whole else moments.power()
    loss = moments.of_loss(central=free) if reconstruct else np.zeros((), np.float32)
    finite = all(np.isfinite(x).all() for x in (qq, power, loss))
    if not finite or not (integers or loss.any()):
        return None
    means = moments.q.astype(np.float32)[:, :, None]
    wanted = (w @ moments.f.astype(np.float32)[:, :, None])[:, :, 0]
    caution = fit.caution * product.inputs / moments.count
    del moments
    target = w
    if reconstruct:  # V = argmin E|W f - V q|^2 + d |V - W|^2  =  W + E[W (f - q) q'] (E[q q'] + d)^-1
        target = rounding.solve(qq, fit.damping + caution, loss)
        target += w
    del w
    if integers:
        axis, limit = writing.weight_axis(network, layer, recipe.per_channel), writing.limit_of(layer, recipe)
        key = layer.weights, layer.axis, axis
        if shared and key in rounded:
            scale, values = rounded[key]
            target = np.asarray(product.matrix(values), np.float32)
        else:
            scale = rounding.best_scales(target, np.ones_like(power) if shared else power, axis is not None, limit)
            if fit.rounding and whole:
                target = rounding.round_by_moments(target, qq, scale, overwrite=True, limit=limit)
            else:
                target = rounding.nearest(target, scale, limit)
            values = product.tensor(target.astype(np.int8))
            if shared:
                rounded[key] = scale, values
    if free and bias is not None:
        made = (target @ means)[:, :, 0] * (scale if integers else 1)
        bias = (bias + (wanted - made).reshape(bias.shape)).astype(np.float32)
    new = bias if free else None
    if not integers:
        return Weights(product.tensor(target).astype(np.float32), None, new)
    scale = scale.reshape(-1) if axis is not None else scale.reshape(-1)[0]
    return Weights(values, scale, new)


def _take_over(weights: Weights, layer: Layer, quantised: Stepper) -> None:
    """Writes fitted weights and bias into the model that is being run."""
    node = next(node for node in quantised.nodes if node.name == layer.name)
    values = weights.values
    if weights.scale is not None:
        wide = [-1 if i == layer.axis else 1 for i in range(values.ndim)]
        values = values * (weights.scale.reshape(wide) if weights.scale.ndim else weights.scale)
    node.input[1] = f"{layer.name}_fitted_weights"
    quantised.set(node.input[1], np.asarray(values, np.float32))
    if weights.bias is not None:
        node.input[2] = f"{layer.name}_fitted_bias"
        quantised.set(node.input[2], weights.bias)
