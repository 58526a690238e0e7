"""Channels before depthwise convolutions as several tensors."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from tests.unit.tilewright.quantize import networks
from tilewright.quantize import ranges
from tilewright.quantize.accuracy import Accuracy, tune
from tilewright.quantize.equalise import Spread
from tilewright.quantize.judging import Judge
from tilewright.quantize.layers import Network
from tilewright.quantize.observe import run, session
from tilewright.quantize.prepare import prepare
from tilewright.quantize.recipe import Precision, Recipe
from tilewright.quantize.splitting import channel_sets, places, split

_WIDE = 8


def _model(spread: float, function: str = "HardSwish", blocks: int = 2) -> onnx.ModelProto:
    """Blocks of product, function, depthwise product, function; gains of every other channel are `spread`, and those of
    the depthwise products undo them."""
    random, nodes, constants = np.random.default_rng(3), [], []

    def add(name: str, *shape: int, gains: np.ndarray | float = 1.0) -> str:
        value = random.normal(size=shape) / np.sqrt(np.prod(shape[1:]))
        constants.append(numpy_helper.from_array((value * gains).astype(np.float32), name))
        return name

    def node(op: str, result: str, *names: str, **attributes: object) -> str:
        nodes.append(helper.make_node(op, list(names), [result], result, **attributes))
        return result

    name, channels = "x", 3
    gains = np.where(np.arange(_WIDE) % 2, spread, 1.0).reshape(-1, 1, 1, 1)
    for i in range(blocks):
        weights = add(f"w{i}", _WIDE, channels, 1, 1, gains=gains)
        name = node("Conv", f"a{i}", name, weights, add(f"b{i}", _WIDE))
        name = node(function, f"f{i}", name)
        name = node("Conv", f"d{i}", name, add(f"v{i}", _WIDE, 1, 3, 3, gains=1 / gains), group=_WIDE, pads=[1] * 4)
        name, channels = node("HardSwish", f"g{i}", name), _WIDE
    node("Conv", "y", name, add("last", 4, _WIDE, 1, 1))
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 3, 12, 12])
    y = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1, 4, 12, 12])
    graph = helper.make_graph(nodes, "g", [x], [y], constants)
    return prepare(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9))


@pytest.mark.parametrize("function", ["HardSwish", "Sigmoid", "Relu"])
def test_the_function_stays(function: str) -> None:
    model, samples = _model(200.0, function), networks.samples(3)
    assert [place.tensor for place in places(Network(model))] == ["f0", "f1"]
    found = split(model, samples)
    count = sum(node.op_type == "Concat" for node in found.graph.node)
    assert count == (0 if function == "Sigmoid" else 2)  # sigmoids are alike
    assert Network(found).shape("a0_part1") == ([1, _WIDE // 2, 12, 12] if count else None)
    real, own = session(model), session(found)
    for sample in networks.samples(3, seed=2):
        assert np.allclose(run(real, sample)["y"], run(own, sample)["y"], rtol=1e-3, atol=1e-4)


@pytest.mark.medium
def test_two_scales_make_less_noise() -> None:
    model, samples = _model(200.0), networks.samples(8)
    judge = Judge(model, samples)
    before, after = (judge.noise(Recipe(m, ranges.find(m, samples))) for m in (model, split(model, samples)))
    assert after.max() < before.max() / 10
    tuned = tune(Recipe(model), samples, Accuracy(fit=False, target=None)).chosen.measured
    assert judge.noise(tuned.recipe).max() < before.max() / 10


def test_left_alone() -> None:
    """Channels that are alike; nodes that the user named; results that others read."""
    samples = networks.samples(2)
    alike = _model(1.0)
    assert split(alike, samples) is alike
    model = _model(200.0, blocks=1)
    assert split(model, samples, ["d0"]) is model
    asked = Recipe(model, precision={"a0": Precision.FLOAT})
    tuned = tune(asked, samples, Accuracy(fit=False, target=None)).chosen.measured.recipe
    assert "a0" in {node.name for node in tuned.model.graph.node}
    model.graph.output.append(onnx.ValueInfoProto(name="f0"))
    assert places(Network(model)) == []


def test_sets() -> None:
    """One more only where it takes nine tenths of the noise away."""
    spread, wider = Spread(), Spread()
    spread.add(np.array([[1.0, 90.0, 0.5, 100.0]]), 1)
    wider.add(np.array([[1.0, 90.0, 0.5, 100.0, 9000.0]]), 1)
    assert [x.tolist() for x in channel_sets(spread, np.array([1, 0.01, 1, 0.01]))] == [[0, 2], [1, 3]]
    assert [x.tolist() for x in channel_sets(wider, np.array([1, 0.01, 1, 0.01, 1e-6]))] == [[0, 2], [1, 3], [4]]
    assert len(channel_sets(spread, np.ones(4))) == 1  # the large ones count as much: their noise stays
