"""Weights and biases fitted to what a product really reads in the quantised model.

The quantised model is walked from its inputs to its outputs, beside the float model. At each product with constant
weights, over some places of some calibration samples,

    f, q    what the product reads in the float model, and in the quantised one whose earlier layers are done
    V       argmin E |W f - V q|^2 + damping |V - W|^2, both sides without their means: least squares undo a part of
            the noise that comes from before, as far as it is related to the signal
    Vq      V rounded so that E |(V - Vq) q|^2 is least (`rounding`)
    b       b + W E[f] - Vq E[q]: the mean of the result is that of the float model (bias correction)

Everything is linear algebra on second moments: the result depends on nothing but the model and the samples.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx
from onnx import numpy_helper
from threadpoolctl import threadpool_limits

from tilewright.quantize import rounding, writing
from tilewright.quantize.layers import Kind, Layer, Network
from tilewright.quantize.moments import Moments, Product
from tilewright.quantize.recipe import Precision, Progress, QuantizedWeights, Recipe, Sample, Samples
from tilewright.quantize.stepping import Stepper


@dataclass(frozen=True)
class Fit:
    """What is fitted.

    Attributes:
        bias: bias correction.
        rounding: weights rounded by second moments, else to the nearest.
        reconstruct: least squares before rounding.
        samples: calibration samples to walk with, at most.
        rows: places looked at, per sample and in all.
        damping: of the least squares, as a fraction of the inputs' mean variance.
    """

    bias: bool = True
    rounding: bool = True
    reconstruct: bool = True
    samples: int = 8
    rows: int = 4096
    damping: float = 0.1


def taken(count: int, fit: Fit | None = None) -> range:
    """Which of `count` samples weights are fitted on: half of them at most, so that others are left to judge by."""
    most = (fit or Fit()).samples
    step = max(2, count // most) if count >= most else 1
    return range(0, count, step)[:most]


def correct(recipe: Recipe, samples: Samples, fit: Fit | None = None, progress: Progress | None = None) -> Recipe:
    """A recipe with fitted weights and biases. The given one is left unchanged.

    Raises:
        UsageError: onnxruntime cannot run the model on a sample.
    """
    fit = fit or Fit()
    model = onnx.ModelProto()
    model.CopyFrom(recipe.model)
    made = Recipe(model, recipe.ranges, recipe.precision, dict(recipe.weights), recipe.activation, recipe.per_channel)
    network = Network(model)
    chosen = writing.quantised_layers(network, made)
    products = [x for x in network.layers if x.kind is Kind.PRODUCT and x.weights and x.name in chosen]
    products = [x for x in products if chosen[x.name] is Precision.INT8]
    inputs: list[Sample] = [samples[i] for i in taken(len(samples), fit)]
    real, quantised = Stepper(recipe.model, inputs), Stepper(writing.write(made), inputs)
    biases = {x.name: x for x in model.graph.initializer}
    try:
        for number, layer in enumerate(products):
            real.run_to(real.index(layer.name))
            quantised.run_to(quantised.index(layer.name))
            with threadpool_limits(1, "blas"):  # with several, products this small mostly wait for each other
                weights, bias = _fitted(network, layer, real, quantised, fit, recipe.per_channel, number)
            if weights is not None:
                made.weights[layer.name] = weights
            if bias is not None:
                biases[layer.bias].CopyFrom(numpy_helper.from_array(bias, layer.bias))
            _take_over(made, layer, layer.axis, bias, quantised)
            if progress is not None:
                progress("fitting weights", (number + 1) / len(products))
    finally:
        real.close()
        quantised.close()
    return made


def _fitted(
    network: Network, layer: Layer, real: Stepper, quantised: Stepper, fit: Fit, per_channel: bool, number: int
) -> tuple[QuantizedWeights | None, np.ndarray | None]:
    weights = network.constant(layer.weights)
    assert weights is not None
    product = Product.of(layer, weights)
    if product is None:
        return None, None
    w = np.ascontiguousarray(product.matrix(weights), np.float32)
    moments = Moments(product, w)
    random = np.random.default_rng(number)
    own = next(node for node in quantised.nodes if node.name == layer.name).input[0]
    limit = max(1, fit.rows // real.count)
    for sample in range(real.count):
        f = real.value(sample, layer.inputs[0])
        if f.size:
            places = product.places(f, limit, random)
            rows = product.rows(f, places)
            del f
            moments.add(rows, product.rows(quantised.value(sample, own), places))
    bias = network.constant(layer.bias) if layer.bias else None
    free = fit.bias and bias is not None and bias.size == product.groups * product.outputs
    if not moments.count:
        return None, None
    qq = moments.of_inputs(central=free)
    loss = moments.of_loss(central=free) if fit.reconstruct else np.zeros((), np.float32)
    if not (np.isfinite(qq).all() and np.isfinite(loss).all()):
        return None, None
    target = w
    if fit.reconstruct:  # V = argmin E|W f - V q|^2 + d |V - W|^2  =  W + E[W (f - q) q'] (E[q q'] + d)^-1
        firm = qq.copy()
        rounding.damp(firm, fit.damping)
        target = w + np.linalg.solve(firm, loss.transpose(0, 2, 1)).transpose(0, 2, 1)
        del firm
    axis = writing.weight_axis(network, layer, per_channel)
    scale = rounding.best_scales(target, np.einsum("gii->gi", qq), axis is not None)
    if fit.rounding:
        integers = rounding.round_by_moments(target, qq, scale)
    else:
        integers = rounding.nearest(target, scale)
    found = QuantizedWeights(
        product.tensor(integers).astype(np.int8), scale.reshape(-1) if axis is not None else scale.reshape(-1)[0]
    )
    if not free or bias is None:
        return found, None
    rounded = integers * scale[:, :, None]
    shift = np.einsum("goi,gi->go", w, moments.f) - np.einsum("goi,gi->go", rounded, moments.q)
    return found, (bias + shift.reshape(bias.shape)).astype(np.float32)


def _take_over(made: Recipe, layer: Layer, axis: int, bias: np.ndarray | None, quantised: Stepper) -> None:
    """The fitted weights and bias into the model that is being run."""
    node = next(node for node in quantised.nodes if node.name == layer.name)
    weights = made.weights.get(layer.name)
    if weights is not None:
        scale = weights.scale
        wide = scale if scale.ndim == 0 else scale.reshape([-1 if i == axis else 1 for i in range(weights.values.ndim)])
        node.input[1] = f"{layer.name}_fitted_weights"
        quantised.set(node.input[1], np.asarray(weights.values * wide, np.float32))
    if bias is not None:
        node.input[2] = f"{layer.name}_fitted_bias"
        quantised.set(node.input[2], bias)
