"""Swish and hard swish as products through which factors of channels pass."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilewright as tw
from tests.unit.tilewright.quantize import networks
from tilewright.isa.program import NpuStep
from tilewright.quantize import Accuracy, quantize, ranges
from tilewright.quantize.equalise import equalise
from tilewright.quantize.judging import Judge
from tilewright.quantize.layers import Network
from tilewright.quantize.observe import run, session
from tilewright.quantize.recipe import Recipe
from tilewright.quantize.self_gated import gated, opened
from tilewright.quantize.writing import write

FUNCTIONS = {
    "HardSwish": ["HardSwish(c) -> y"],
    "HardSigmoid": ["HardSigmoid(c) -> g", "Mul(c, g) -> y"],
    "Swish": ["Sigmoid(c) -> g", "Mul(g, c) -> y"],
    "written out": ["Add(c, three) -> t", "Clip(t, zero, six) -> g", "Mul(c, g) -> m", "Div(m, six) -> y"],
    "scaled": ["HardSigmoid(c) -> g", "Mul(c, g) -> m", "Mul(m, a) -> n", "Add(n, b) -> y"],
}
"""Functions of a tensor c, all but the last result in any order."""

OTHERS = {
    "read twice": ["HardSwish(c) -> h", "Add(h, c) -> y"],
    "gate of another": ["Tanh(c) -> t", "Mul(t, c) -> g", "Mul(c, g) -> y"],
    "square": ["Mul(c, c) -> y"],
    "softplus": ["Softplus(c) -> g", "Mul(c, g) -> y"],
}


def _model(steps: list[str]) -> onnx.ModelProto:
    random = np.random.default_rng(1)
    weights = random.normal(size=(8, 3, 1, 1)) * np.geomspace(0.02, 9, 8).reshape(8, 1, 1, 1)
    values = {"w": weights, "three": np.float32(3), "zero": np.float32(0), "six": np.float32(6), "a": -2.0, "b": 0.7}
    nodes = [helper.make_node("Conv", ["x", "w"], ["c"], "conv")]
    for step in steps:
        op, inputs, result = step.replace("(", "|").replace(") -> ", "|").split("|")
        nodes.append(helper.make_node(op, inputs.split(", "), [result], result))
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, c, 12, 12]) for n, c in (("x", 3), ("y", 8)))
    constants = [numpy_helper.from_array(np.asarray(v, np.float32), k) for k, v in values.items()]
    graph = helper.make_graph(nodes, "g", [x], [y], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return onnx.shape_inference.infer_shapes(model)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_same_function(name: str) -> None:
    """A function as products has the values it had, up to the tails of the sigmoid that are left out."""
    model, samples = _model(FUNCTIONS[name]), networks.samples(3)
    network = Network(model)
    assert [x.y for layer in network.layers if (x := gated(network, layer))] == ["y"]
    made = opened(model, samples)
    assert [n.op_type for n in made.graph.node].count("Conv") == (3 if name == "scaled" else 2)
    for sample in samples:
        (wanted,), (found,) = (run(session(m), sample).values() for m in (model, made))
        weights = numpy_helper.to_array(model.graph.initializer[0])[:, :, 0, 0]
        largest = np.abs(np.einsum("oc,nchw->nohw", weights, sample["x"])).max()
        tails = np.exp(-8) * largest if name == "Swish" else 0.0
        assert np.abs(wanted - found).max() <= tails + 1e-6 * np.abs(wanted).max()


@pytest.mark.parametrize("name", OTHERS)
def test_other_functions_stay(name: str) -> None:
    model = _model(OTHERS[name])
    network = Network(model)
    assert not any(gated(network, layer) for layer in network.layers)
    assert opened(model, networks.samples(3)) is model


def test_channels_alike_stay() -> None:
    model = networks.deep(depth=2, width=1)
    assert opened(model, networks.samples(3)) is model


@pytest.mark.medium
def test_more_accurate() -> None:
    """Steps of each channel's own leave less noise, if channels of hard swishes differ much."""
    model, samples = networks.deep(spread=6.0, seed=3), networks.samples(8)
    judge = Judge(model, samples)

    def decibels(made: onnx.ModelProto) -> float:
        even, _ = equalise(made, samples)
        return judge.measure(Recipe(even, ranges.find(even, samples, "mse"), {})).mean

    assert decibels(opened(model, samples)) > decibels(model) + 2


@pytest.mark.medium
def test_taken_by_the_search() -> None:
    """A network that misses the goal with layers in floats gets it so. All in 8 bits it runs in one turn."""
    model, samples = networks.deep(spread=6.0, seed=3), networks.samples(24)
    made = quantize(model, samples, held_back=4, accuracy=Accuracy(target=45.0, fit=False))
    assert made.decision is not None and made.verified is not None and made.verified.report.ok
    assert made.decision.chosen.decibels > 45.0
    names = [candidate.name for candidate in made.decision.candidates]
    gates = made.decision.candidates[names.index("gates opened, mse")]
    assert gates.decibels > made.decision.candidates[names.index("mse")].decibels + 4
    program = tw.compile(write(gates.measured.recipe))
    assert sum(isinstance(step, NpuStep) for step in program.steps) == 1
