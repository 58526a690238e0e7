"""Cross-layer equalisation."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from tests.common.onnx_models import model_of
from tests.unit.tilewright.quantize import networks
from tilewright.quantize import ranges
from tilewright.quantize.accuracy import Accuracy, tune
from tilewright.quantize.common_factors import sets
from tilewright.quantize.equalise import equalise
from tilewright.quantize.judging import Judge
from tilewright.quantize.layers import Network
from tilewright.quantize.observe import Observer, run, session
from tilewright.quantize.prepare import prepare
from tilewright.quantize.recipe import Precision, Recipe
from tilewright.quantize.writing import write

_WIDE = 8


def _model(lines: list[str], shapes: dict[str, tuple[int, ...]], spread: float = 1.0) -> onnx.ModelProto:
    """Nodes as "y = Op(a, b)" or "y = Op(a, b) key=1,2" over the input x [1, 3, 12, 12]; the last one's result is the
    output.

    Args:
        shapes: of the constants.
        spread: gains of the channels of w0, b0 lie between 1 / spread and spread; those of u1 undo them.
    """
    random, nodes = np.random.default_rng(1), []
    for line in lines:
        head, *given = line.split(") ")
        result, _, call = head.rstrip(")").partition(" = ")
        op, _, names = call.partition("(")
        attributes = {}
        for text in given[0].split() if given else []:
            key, _, value = text.partition("=")
            attributes[key] = [int(v) for v in value.split(",")] if "," in value else int(value)
        nodes.append(helper.make_node(op, names.split(", "), [result], result, **attributes))
    values = {k: random.normal(size=v) / np.sqrt(max(np.prod(v[1:]), 1)) for k, v in shapes.items()}
    gains = spread ** np.linspace(-1, 1, _WIDE)
    for name, power in (("w0", 1), ("b0", 1), ("u1", -1)):
        if name in values:
            values[name] = values[name] * (gains**power).reshape(-1, *[1] * (values[name].ndim - 1))
    constants = [numpy_helper.from_array(v.astype(np.float32), k) for k, v in values.items()]
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 3, 12, 12])
    y = helper.make_tensor_value_info(nodes[-1].output[0], onnx.TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "g", [x], [y], constants)
    return prepare(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9))


_FIRST = {"w0": (_WIDE, 3, 1, 1), "b0": (_WIDE,)}
_CASES = {
    "depthwise": (
        ["a = Conv(x, w0, b0)", "b = Conv(a, u1) group=8 pads=1,1,1,1", "c = Relu(b)", "d = Conv(c, w2)"],
        {"u1": (_WIDE, 1, 3, 3), "w2": (4, _WIDE, 1, 1)}, 2,
    ),
    "groups": (
        ["a = Conv(x, w0, b0)", "b = LeakyRelu(a)", "c = Conv(b, w1) group=2"], {"w1": (6, _WIDE // 2, 1, 1)}, 1,
    ),
    "pools": (
        ["a = Conv(x, w0, b0)", "b = Relu(a)", "c = MaxPool(b) kernel_shape=2,2", "d = GlobalAveragePool(c)",
         "e = Flatten(d)", "f = Gemm(e, w1) transB=1"],
        {"w1": (5, _WIDE)}, 1,
    ),
    "sum": (
        ["a = Conv(x, w0, b0)", "b = Conv(a, w1)", "c = Add(a, b)", "d = Relu(c)", "e = Conv(d, w2)"],
        {"w1": (_WIDE, _WIDE, 1, 1), "w2": (4, _WIDE, 1, 1)}, 1,
    ),
    "gate": (
        ["a = Conv(x, w0, b0)", "b = Relu(a)", "p = GlobalAveragePool(b)", "q = Conv(p, w1)", "g = Sigmoid(q)",
         "c = Mul(b, g)", "d = Conv(c, w2)"],
        {"w1": (_WIDE, _WIDE, 1, 1), "w2": (4, _WIDE, 1, 1)}, 1,
    ),
    "transposed": (
        ["a = ConvTranspose(x, w3, b0)", "b = Relu(a)", "c = ConvTranspose(b, w1)"],
        {"w3": (3, _WIDE, 2, 2), "w1": (_WIDE, 4, 2, 2)}, 1,
    ),
    "rows": (
        ["t = Transpose(x) perm=0,2,3,1", "m = MatMul(t, w3)", "n = LayerNormalization(m, s, b0)", "c = MatMul(n, w1)"],
        {"w3": (3, _WIDE), "s": (_WIDE,), "w1": (_WIDE, 4)}, 1,
    ),
    "swish": (["a = Conv(x, w0, b0)", "b = HardSwish(a)", "c = Conv(b, w1)"], {"w1": (4, _WIDE, 1, 1)}, 0),
    "read by another": (
        ["a = Conv(x, w0, b0)", "b = Conv(a, w1)", "e = Sigmoid(a)", "c = Add(b, e)"], {"w1": (_WIDE, _WIDE, 1, 1)}, 0,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", _CASES)
def test_the_function_stays(case: str) -> None:
    """The function stays the same, and weights change where channels differ."""
    lines, shapes, count = _CASES[case]
    model, samples = _model(lines, _FIRST | shapes, spread=30.0), networks.samples(3)
    assert len(sets(Network(model))) == count
    found, _ = equalise(model, samples)
    multiplied = any(node.name.endswith("_multiply") for node in found.graph.node)
    assert (found is not model) == (count > 0 or multiplied)
    real, own = session(model), session(found)
    for sample in networks.samples(3, seed=2):
        for a, b in zip(run(real, sample).values(), run(own, sample).values(), strict=True):
            assert np.allclose(a, b, rtol=1e-4, atol=1e-4 * np.abs(a).max())


@pytest.mark.medium
@pytest.mark.parametrize("gain, worth", [(60.0, True), (3.0, False)])
def test_outliers_that_only_floats_read(gain: float, worth: bool) -> None:
    """Two loud channels before a normalisation do not take the steps of the others; a class that is rare keeps its."""
    random = np.random.default_rng(0)
    loud = np.where(np.arange(8) < 2, gain, 1.0)
    w = [random.normal(size=(3, 8)), random.normal(size=(8, 8)) * loud, random.normal(size=(8, 4))]
    names = {f"w{i}": x.astype(np.float32) for i, x in enumerate(w)} | {"g": np.ones(8, np.float32)}
    lines = ["MatMul x w0 a", "Relu a b", "MatMul b w1 c", "Add c a d", "LayerNormalization d g e", "MatMul e w2 y"]
    nodes = [helper.make_node(op, ins, [out], out) for op, *ins, out in map(str.split, lines)]
    model = prepare(model_of(nodes, {"x": [16, 3]}, ["y"], names))
    samples = [{"x": random.normal(size=(16, 3)).astype(np.float32)} for _ in range(12)]
    floats = {"d": Precision.FLOAT, "e": Precision.FLOAT}
    kept, _ = equalise(model, samples)  # the sum is in 8 bits: it has one scale
    assert not any(node.op_type == "Mul" for node in kept.graph.node)
    found, _ = equalise(model, samples, precision=floats)
    assert any(node.output[0] == "c" and node.op_type == "Mul" for node in found.graph.node) == worth
    assert np.allclose(run(session(model), samples[0])["y"], run(session(found), samples[0])["y"], rtol=1e-4, atol=1e-4)
    real, *other = (_tensor(m, "c", samples[0]) for m in (model, *(
        write(Recipe(m, ranges.find(m, samples), floats)) for m in (model, found))))  # fmt: skip
    before, after = (np.square(x - real)[:, 2:].sum() for x in other)  # of the quiet channels
    assert not worth or after < before / 10


def test_scores_of_the_output_keep_one_scale() -> None:
    """A class that no sample has would saturate, had each class a range of its own."""
    random = np.random.default_rng(0)
    loud = np.where(np.arange(8) < 1, 60.0, 1.0)
    w = {
        "w0": random.normal(size=(3, 8)).astype(np.float32),
        "w1": (random.normal(size=(8, 8)) * loud).astype(np.float32),
    }
    nodes = [helper.make_node(*x) for x in (("MatMul", ["x", "w0"], ["a"], "a"), ("MatMul", ["a", "w1"], ["y"], "y"))]
    model = prepare(model_of(nodes, {"x": [16, 3]}, ["y"], w))
    found, _ = equalise(model, [{"x": random.normal(size=(16, 3)).astype(np.float32)} for _ in range(4)])
    assert not any(node.op_type == "Mul" for node in found.graph.node)


def _tensor(model: onnx.ModelProto, name: str, sample: dict[str, np.ndarray]) -> np.ndarray:
    return dict(Observer(model, [name], sample).values(sample))[name]


@pytest.mark.medium
def test_channels_alike_make_less_noise() -> None:
    lines, shapes, _ = _CASES["depthwise"]
    model, samples = _model(lines, _FIRST | shapes, spread=30.0), networks.samples(8)
    judge = Judge(model, samples)
    before, after = (judge.noise(Recipe(m, ranges.find(m, samples))) for m in (model, equalise(model, samples)[0]))
    assert after.max() < before.max() / 4
    assert equalise(model, samples, per_channel=False)[0] is model
    plain = [Accuracy(equalise=yes, fit=False, target=None) for yes in (False, True)]
    tuned = [tune(Recipe(model), samples, x).chosen.measured.recipe for x in plain]
    assert judge.noise(tuned[1]).max() < judge.noise(tuned[0]).max() / 4
