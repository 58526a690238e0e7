"""Ranges: what each method leaves out, and the error of the result."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.unit.tilewright.quantize import networks
from tilewright.errors import UsageError
from tilewright.quantize import ranges
from tilewright.quantize.histograms import HALF, Histogram
from tilewright.quantize.layers import Network
from tilewright.quantize.recipe import Range

RANDOM = np.random.default_rng(3)


def histogram(*parts: np.ndarray) -> Histogram:
    found = Histogram()
    for part in parts:
        found.add(part.astype(np.float32))
    return found


def error(values: np.ndarray, found: Range) -> float:
    """Mean square error of an 8-bit quantisation over a range, element by element."""
    scale = (found.high - found.low) / 255
    zero = np.rint(-found.low / scale)
    stored = np.clip(np.rint(values / scale) + zero, 0, 255)
    return float(np.mean(((stored - zero) * scale - values) ** 2))


def test_histogram_widens() -> None:
    """Values beyond the bins double their width; nothing is lost, extremes are exact."""
    small, large = RANDOM.normal(size=1000), RANDOM.normal(size=1000) * 1000
    found = histogram(small, large)
    assert found.counts.sum() == 2000
    assert found.low == np.float32(min(small.min(), large.min()))
    assert found.high == np.float32(max(small.max(), large.max()))
    expected, _ = np.histogram(np.concatenate([small, large]).astype(np.float32),
                               bins=(np.arange(2 * HALF + 1) - HALF) * found.width)  # fmt: skip
    assert np.abs(found.counts - expected).sum() <= 4  # values on a border


def test_not_finite_values_do_not_count() -> None:
    found = histogram(np.array([1.0, np.nan, np.inf, -2.0]))
    assert (found.low, found.high) == (-2.0, 1.0) and found.counts.sum() == 2
    assert ranges.least_error(histogram(np.array([np.nan]))) == Range(0.0, 0.0)


def test_outliers() -> None:
    """An outlier far away: the least error leaves it out, the extremes do not."""
    values = np.concatenate([*[RANDOM.normal(size=60000)] * 25, [60.0]])
    found = histogram(*np.array_split(values, 30))
    best = ranges.least_error(found)
    assert ranges.extremes(found) == Range(float(np.float32(values.min())), 60.0)
    assert best.low > -6 and best.high < 30
    assert error(values, best) < error(values, ranges.extremes(found)) / 2
    for other in (ranges.percentile(found), ranges.least_divergence(found)):
        assert other.high < 59 and error(values, best) <= error(values, other) * 1.1


def test_without_outliers_nothing_is_left_out() -> None:
    found = histogram(RANDOM.uniform(0, 1, 60000))
    best = ranges.least_error(found)
    assert best.low == 0.0 and best.high == pytest.approx(1.0, abs=0.02)


class Samples(list):  # type: ignore[type-arg]
    """Samples in memory."""


def network(last: str) -> onnx.ModelProto:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], "first"),
        helper.make_node(last, ["a"], ["b"], "function"),
        helper.make_node("MatMul", ["b", "v"], ["y"], "second"),
    ]
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 8]) for n in "xy")
    weights = [numpy_helper.from_array(RANDOM.normal(size=(8, 8)).astype(np.float32), n) for n in "wv"]
    model = helper.make_model(helper.make_graph(nodes, "g", [x], [y], weights),
                              opset_imports=[helper.make_opsetid("", 17)], ir_version=9)  # fmt: skip
    return onnx.shape_inference.infer_shapes(model)


@pytest.mark.medium
@pytest.mark.parametrize("last, least", [("Sigmoid", -30.0), ("HardSwish", -8.0)])
def test_error_behind_a_function(last: str, least: float) -> None:
    """Values that a function makes nearly constant need not be in the range: they reach to about -100."""
    samples = Samples({"x": (RANDOM.normal(size=(1, 8)) * 12).astype(np.float32)} for _ in range(400))
    found = ranges.find(network(last), samples, "mse")
    assert ranges.find(network(last), samples, "minmax")["a"].low < 2 * least
    assert found["a"].low > least


def test_unknown_method() -> None:
    with pytest.raises(UsageError, match="found by mse, minmax, percentile, entropy, not 'mean'"):
        ranges.find(network("Sigmoid"), Samples(), "mean")


def test_few_values_have_room() -> None:
    """The next samples of a normal tensor: with the extremes of 9 rows of 8 as its range they lose more than the
    steps. Bounded functions, zeros at an end and tensors of many values have no room, nor has what the user asks for.
    """
    random = np.random.default_rng(5)
    rows = [random.normal(size=(1, 8)).astype(np.float32) for _ in range(9)]
    given, samples = np.concatenate(rows), Samples({"x": row} for row in rows)
    seen = Range(float(given.min()), float(given.max()))
    found = ranges.find_all(network("Tanh"), samples, ["minmax", "mse"], room=True)
    x = found["mse"]["x"]
    assert seen.high * 1.2 < x.high < seen.high * 2 and seen.low * 2 < x.low < seen.low * 1.2
    assert found["minmax"]["x"] == seen and found["mse"]["b"].high <= 1
    later = random.normal(size=20_000)
    assert error(later, x) < error(later, seen) / 4
    assert ranges.find(network("Tanh"), samples, "mse")["x"] != x
    assert ranges.find_all(network("Relu"), samples, ["mse"], room=True)["mse"]["b"].low == 0.0
    many = [random.normal(size=(200, 8)).astype(np.float32) for _ in range(9)]
    wide = ranges.find_all(network("Relu"), Samples({"x": row} for row in many), ["mse"], room=True)
    assert wide["mse"]["x"].high <= np.concatenate(many).max()


def test_what_another_model_shows_is_not_looked_at_again() -> None:
    """Tensors with the same values are seen, exactly as by a look of one's own; others are left for that."""
    model, samples = networks.deep(), networks.samples(3)
    names = [name for node in model.graph.node for name in node.output]
    other = onnx.ModelProto()
    other.CopyFrom(model)
    swish = next(i for i, node in enumerate(other.graph.node) if node.output[0] == "h7")
    other.graph.initializer.append(numpy_helper.from_array(np.float32(2), "two"))
    other.graph.node.insert(swish + 1, helper.make_node("Mul", ["h7_once", "two"], ["h7"], "twice"))
    other.graph.node[swish].output[0] = "h7_once"
    taken: set[str] = set()
    seen = ranges.Seen()
    ranges.look_along(Network(model), other, samples, names, seen, lambda name, value: taken.add(name))
    assert taken == set(names)
    assert {"c0", "h6", "c7"} <= seen.histograms.keys() and not {"h7", "p", "x"} & seen.histograms.keys()
    whole = ranges.find_all(model, samples, ["minmax", "mse"])
    assert ranges.find_all(model, samples, ["minmax", "mse"], seen=seen) == whole
    bad = [{"x": np.full_like(samples[0]["x"], 1e30)}]
    with pytest.raises(UsageError, match="in the float model 'c0'"):
        ranges.look_along(Network(model), model, bad, names, ranges.Seen(), lambda name, value: None)
