"""Outputs that say which class."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from tests.unit.tilewright.quantize.networks import samples
from tilewright.quantize import classes, quantize
from tilewright.quantize.judging import Measured
from tilewright.quantize.layers import Network
from tilewright.quantize.prepare import prepare
from tilewright.quantize.recipe import Recipe


def _network(text: str) -> Network:
    return Network(prepare(onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : 17]> g {text}')))


@pytest.mark.parametrize(
    ("nodes", "found"),
    [
        ("(float[1,5,8] x) => (float[1,5,8] y) { y = Softmax(x) }", {"y": False}),
        ("(float[1,5,8] x) => (float[5,8] y) { a = LogSoftmax(x) y = Squeeze(a) }", {"y": True}),
        ("(float[1,5,8] x) => (float[1,5,8] y) { y = Softmax <axis = 1> (x) }", {}),
        ("(float[1,5,8] x) => (float[1,8,5] y) { a = Softmax(x) y = Transpose <perm = [0, 2, 1]> (a) }", {}),
        ("(float[1,5,8] x) => (float[1,5,8] y) { y = Sigmoid(x) }", {}),
    ],
)
def test_outputs(nodes: str, found: dict[str, bool]) -> None:
    assert classes.outputs(_network(nodes)) == found


def test_what_is_before_a_saturating_function_is_watched() -> None:
    network = _network("(float[1,5,8] x) => (float[40] y, float[1,5,8] z) { a = Exp(x) b = Softmax(a) "
                       "s = Constant <value_ints = [40]> () y = Reshape(b, s) z = Neg(a) }")  # fmt: skip
    with classes.extra_outputs(network.model):
        found = [x.name for x in network.model.graph.output]
    assert found == ["y", "z", "a"] and [x.name for x in network.model.graph.output] == ["y", "z"]


@pytest.mark.parametrize("choice", ["ArgMax <axis = 1> (s)", "Cast <to = 6> (b)"])
def test_integers_that_scores_choose(choice: str) -> None:
    """A network that has no float output is judged by what its integers are chosen by, and these are counted."""
    weights = "float[4,3,1,1] w = {0.5,-1,1,1,0.3,-0.2,-0.7,0.9,0.1,0.2,-0.4,0.6}, float t = {0.2}"
    nodes = f"s = Conv (x, w) b = Greater (s, t) y = {choice}"
    kind = "int64" if "ArgMax" in choice else "int32"
    head = '<ir_version: 9, opset_import: ["" : 17]>'
    model = onnx.parser.parse_model(f"{head} g (float[1,3,12,12] x) => ({kind}[1,N,12,12] y) <{weights}> {{ {nodes} }}")
    with classes.extra_outputs(prepared := prepare(model)):
        assert [x.name for x in prepared.graph.output] == ["y", "s"]
    found = quantize(model, samples(8), held_back=4)  # type: ignore[arg-type]
    assert found.noise is not None and not found.noise.outputs and 0.9 < found.noise.equal["y"] <= 1
    assert "y equal in" in str(found.noise)
    assert found.decision is not None and 25 < found.decision.chosen.decibels < 60


def test_flips() -> None:
    """Positions without a clear class do not count."""
    real = np.array([[0.9, 0.1, 0.0], [0.1, 0.8, 0.1], [0.4, 0.35, 0.25], [0.0, 0.3, 0.7]], np.float32)
    other = np.array([[0.6, 0.4, 0.0], [0.5, 0.4, 0.1], [0.3, 0.45, 0.25], [0.0, 0.3, 0.7]], np.float32)
    for logarithms in (False, True):
        a, b = (np.log(x + 1e-6) if logarithms else x for x in (real, other))
        found = classes.positions({"z": a[0], "y": a}, {"z": b[0], "y": b}, {"y": logarithms})
        assert found.tolist() == [[0, 0], [3, 1]]


def test_a_flip_misses_the_goal() -> None:
    recipe = Recipe(onnx.ModelProto())
    quiet, loud = np.array([1e-3]), np.array([0.1])
    assert Measured(recipe, quiet, np.zeros(1)).reaches(20)
    assert not Measured(recipe, loud, np.zeros(1)).reaches(20)
    assert not Measured(recipe, quiet, np.array([0.02])).reaches(20)
