"""Mixed precision."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import pytest

from tests.unit.tilewright.quantize import networks
from tilewright.errors import UsageError
from tilewright.quantize import precision, ranges, times
from tilewright.quantize.accuracy import Accuracy, tune
from tilewright.quantize.judging import Judge
from tilewright.quantize.layers import Network
from tilewright.quantize.recipe import Precision, Range, Recipe
from tilewright.quantize.switches import Switchboard, quantised_names


def test_patterns() -> None:
    network = Network(networks.deep())
    found = precision.by_patterns(network, ["conv1*", "Gemm"], ["conv?"])
    assert found["conv1"] is Precision.FLOAT and found["conv2"] is Precision.INT16
    assert found["gemm"] is Precision.FLOAT and "swish1" not in found
    with pytest.raises(UsageError, match="no layer that can be quantised has a node 'convolution'; the first ones are"):
        precision.by_patterns(network, ["convolution"], [])


def test_switches() -> None:
    """All off is the float model, all on the quantised one; one tensor makes less noise than all."""
    model, samples = networks.deep(), networks.samples(4)
    recipe = Recipe(model, ranges.find(model, samples, "minmax"))
    board, network = Switchboard(recipe), Network(model)
    every = quantised_names(network, recipe, {})
    real, judge = Judge(model, samples), Judge(model, samples[:1])
    off = board.run(samples[0], frozenset())["y"]
    assert np.allclose(off, real._real.get(0, "y"), atol=1e-5)
    error = lambda on: float(np.square(board.run(samples[0], on)["y"] - off).sum() / np.square(off).sum())
    assert error(every) == pytest.approx(float(judge.noise(recipe)[0]), rel=0.2)
    assert error(frozenset(["c0"])) < error(every)


@pytest.mark.medium
def test_the_noisy_layer_is_found() -> None:
    """A range far too wide for one tensor: its layer is the first to stay in floats, and the noise goes with it."""
    model, samples = networks.deep(depth=4), networks.samples(8)
    recipe = Recipe(model, ranges.find(model, samples, "minmax"))
    recipe.ranges["c1"] = Range(-200.0, 200.0)
    judge = Judge(model, samples)
    total = judge.noise(recipe)
    found = precision.sources(recipe, samples).keep(total, float(total.max()) / 10)
    assert "conv1" in found and len(found) <= 6
    assert judge.noise(recipe.with_precision(found)).max() < total.max() / 4


@pytest.mark.medium
@pytest.mark.parametrize("target", [20.0, 45.0])
def test_target(target: float) -> None:
    """Reached on other samples; layers stay in floats only where that is needed."""
    model, samples = networks.deep(spread=2.0), networks.samples(16)
    found = tune(Recipe(model), samples, Accuracy(target=target, pays=False)).chosen.measured.recipe
    reached = -10 * np.log10(Judge(model, networks.samples(8, seed=1)).noise(found).max())
    assert reached > target - 1
    assert bool(found.precision) == (target > 40)


@pytest.mark.medium
def test_outputs_of_doubles_count() -> None:
    """A network that ends with a Cast, as with pitches in Hz, is judged by that output."""
    model, samples = networks.deep(depth=4, spread=2.0), networks.samples(16)
    model.graph.node.append(onnx.helper.make_node("Cast", ["y"], ["z"], "cast", to=onnx.TensorProto.DOUBLE))
    del model.graph.output[:]
    model.graph.output.append(onnx.helper.make_tensor_value_info("z", onnx.TensorProto.DOUBLE, [1, 10]))
    found = tune(Recipe(model), samples, Accuracy(target=45.0, pays=False))
    assert found.chosen.measured.noise.size == 1 and found.chosen.kept and found.chosen.decibels > 44


def test_macs() -> None:
    network = Network(networks.deep(depth=2))
    sizes = {layer.name: times.macs(network, layer) for layer in network.layers if layer.weights}
    assert sizes == {"conv0": 12 * 12 * 16 * 3, "conv1": 12 * 12 * 16 * 9, "gemm": 160}


def test_noise_of_each_by_halves() -> None:
    """One that makes nearly all of it is found among many with few measurements; what is silent is not cut."""
    truth = {f"n{i:03}": np.array([1e-6, 0.0]) for i in range(256)} | {"n077": np.array([0.5, 0.1])}
    asked: list[int] = []

    def measure(names: Sequence[str]) -> np.ndarray:
        asked.append(len(names))
        return np.sum([truth[name] for name in names], axis=0)

    found = precision.noise_of_each(sorted(truth), measure, 64)
    assert len(asked) == 16 + 4 and max(found, key=lambda name: found[name][0]) == "n077"
    assert np.allclose(found["n077"], truth["n077"], rtol=1e-4)
    precision.noise_of_each(sorted(truth), measure, 18)
    assert len(asked) == 20 + 18


def test_groups_are_picked_by_gain_and_cost() -> None:
    """A pair takes away what lies between its two; what takes more multiply-accumulates than are left stays."""
    group = lambda *layers, cost: precision.Group(layers, cost, cost)
    one = lambda value: np.array([value])
    groups = [group("a", cost=100.0), group("b", cost=10.0), group("a", "b", cost=110.0), group("c", cost=50.0)]
    brought = [frozenset("A"), frozenset("B"), frozenset(["A", "B", "ab"]), frozenset("C")]
    noise = {"A": one(0.01), "B": one(0.01), "ab": one(0.9), "C": one(0.3), "rest": one(0.08)}
    found = precision.Sources(groups, brought, noise)
    assert found.keep(one(1.3), 0.5).keys() == {"a", "b"}
    assert found.keep(one(0.38), 0.1, 150.0) == {}
    assert found.keep(one(0.38), 0.1, 160.0).keys() == {"c"}
