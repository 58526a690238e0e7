"""Fitted weights and biases, measured with onnxruntime on samples that were not used to fit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import pytest

from tests.unit.tilewright.quantize import networks
from tilewright.quantize import integers, ranges, writing
from tilewright.quantize.correction import Fit, correct, fit_samples
from tilewright.quantize.judging import Judge
from tilewright.quantize.layers import Network
from tilewright.quantize.observe import runner
from tilewright.quantize.recipe import Precision, Range, Recipe, Weights

HELD = networks.samples(16, seed=1)


@pytest.fixture(scope="module")
def plain() -> Recipe:
    model = networks.deep(spread=4.0)
    return Recipe(model, ranges.find(model, networks.samples(16), "mse"))


def decibels(recipe: Recipe, judge: Judge) -> float:
    return float(-10 * np.log10(judge.noise(recipe).max()))


def outputs(model: onnx.ModelProto) -> np.ndarray:
    """The scores of the samples held back. [samples, classes]."""
    run = runner(model)
    return np.concatenate([run(sample)["y"] for sample in HELD])


@pytest.mark.medium
def test_fit_improves_other_samples(plain: Recipe) -> None:
    judge, before = Judge(plain.model, HELD), plain.model.SerializeToString()
    found = {
        name: decibels(correct(plain, networks.samples(16), fit), judge)
        for name, fit in {
            "bias": Fit(rounding=False, reconstruct=False), "rounding": Fit(reconstruct=False), "all": Fit(),
        }.items()
    }  # fmt: skip
    assert found["all"] > decibels(plain, judge) + 3
    assert found["bias"] > decibels(plain, judge) - 1 and found["rounding"] > decibels(plain, judge)
    assert plain.model.SerializeToString() == before and not plain.weights


@pytest.mark.medium
def test_biased_rounding_is_corrected(plain: Recipe) -> None:
    """Weights that were all rounded down shift every mean; the bias takes the shift away."""
    network = Network(plain.model)
    down = {}
    for layer in network.layers:
        if layer.weights:
            weights = network.constant(layer.weights)
            assert weights is not None
            nearest = integers.nearest_weights(weights, None)
            down[layer.name] = Weights(np.floor(weights / nearest.scale).astype(np.int8), nearest.scale)
    judge = Judge(plain.model, HELD)
    biased = Recipe(plain.model, plain.ranges, weights=down)
    rounded = correct(biased, networks.samples(16), Fit(rounding=False, reconstruct=False))
    assert decibels(rounded, judge) > decibels(biased, judge) + 1
    wanted = outputs(plain.model).mean(axis=0)
    before, after = (np.abs(outputs(writing.write(r)).mean(axis=0) - wanted).mean() for r in (biased, rounded))
    assert after < before / 2


@pytest.mark.medium
def test_the_same_twice(plain: Recipe) -> None:
    one, two = (writing.write(correct(plain, networks.samples(4))).SerializeToString() for _ in range(2))
    assert one == two


@pytest.mark.medium
def test_a_product_in_floats_is_fitted_as_well(plain: Recipe) -> None:
    """A shift of what it reads does not get through; the model reads all that it has."""
    ranged, samples = dict(plain.ranges), networks.samples(7)  # too few to leave any
    ranged["h1"] = Range(0.5 * ranged["h1"].low, 0.5 * ranged["h1"].high)  # clips, so that means are shifted
    kept = replace(plain, ranges=ranged).with_precision({"gemm": Precision.FLOAT})
    fitted = correct(kept, samples)
    assert fitted.weights["gemm"].scale is None and fitted.weights["gemm"].values.dtype == np.float32
    model = writing.write(fitted)
    read = {name for node in model.graph.node for name in node.input}
    assert {x.name for x in model.graph.initializer} <= read
    judge = Judge(plain.model, samples)
    without = {name: x for name, x in fitted.weights.items() if x.scale is not None}
    assert decibels(fitted, judge) > decibels(replace(fitted, weights=without), judge) + 1


def test_samples_are_left_to_judge_by() -> None:
    for count in (1, 7, 8, 9, 16, 18, 48, 1000):
        left = count - len(fit_samples(count))
        assert left == 0 if count < 8 else left >= 4


@pytest.mark.medium
def test_what_is_before_a_change_is_taken_over(plain: Recipe) -> None:
    """A product kept in floats changes the fit behind it only, and the result is that of a fit of all."""
    samples = networks.samples(8)
    known = correct(plain, samples)
    kept = plain.with_precision({"conv5": Precision.FLOAT, "swish5": Precision.FLOAT})
    whole = correct(kept, samples)
    done: list[float] = []
    found = correct(kept, samples, known=known, progress=lambda _, fraction: done.append(fraction))
    products = ["conv0", "conv1", "conv2", "conv3", "conv4", "conv5", "conv6", "conv7", "gemm"]
    assert [products[round(fraction * len(products)) - 1] for fraction in done] == ["conv5", "conv6", "conv7", "gemm"]
    assert found.weights.keys() == whole.weights.keys()
    for name, weights in whole.weights.items():
        assert np.mean(found.weights[name].values != weights.values) < 0.02 or weights.scale is None
    judge = Judge(plain.model, HELD)
    assert abs(decibels(found, judge) - decibels(whole, judge)) < 0.5


def test_few_places_say_nothing_of_many_inputs() -> None:
    """A product of 16 inputs and one place a sample is rounded to the nearest, and its mean corrected."""
    model, samples = networks.deep(depth=1), networks.samples(3)
    recipe = Recipe(model, ranges.find(model, samples, "minmax"))
    few, many = (correct(recipe, samples, Fit(few=few)).weights["gemm"] for few in (4, 8))
    weights = np.asarray(Network(model).constant("wg"))
    assert few.scale is not None and few.bias is not None and np.any(few.bias != 0)
    assert np.array_equal(few.values, integers.round_weights(weights, few.scale, 1))
    assert many.scale is not None
    assert not np.array_equal(many.values, integers.round_weights(weights, many.scale, 1))
