"""Models that ONNX's checker refuses or leaves open, and onnxruntime runs."""

from __future__ import annotations

import copy

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tilewright as tw
from tests.common import onnx_models
from tests.common.onnx_models import graph_of, model_of
from tilewright.compiler.errors import CompileError
from tilewright.compiler.importer.onnx import import_onnx

FLOAT = TensorProto.FLOAT


def same(model: onnx.ModelProto, feeds: dict[str, np.ndarray], **options: object) -> None:
    """Equal to onnxruntime but for the rounding of floats."""
    before = model.SerializeToString()
    got = tw.Device("functional").run(tw.compile(model, "tiny", cache=False, **options), feeds)
    for name, value in onnx_models.run(model, feeds).items():
        assert got[name].dtype == value.dtype
        np.testing.assert_allclose(got[name], value, rtol=2e-6, atol=1e-6)
    assert tw.check(model, feeds, config="tiny", **options).ok
    assert model.SerializeToString() == before


@pytest.fixture
def x() -> np.ndarray:
    return np.random.default_rng(0).standard_normal((2, 8)).astype(np.float32)


class TestOrder:
    CHAIN = [("Neg", "x", "a"), ("Relu", "a", "b"), ("Exp", "b", "c"), ("Neg", "c", "y")]

    @pytest.mark.parametrize("order", [(3, 2, 1, 0), (1, 0, 3, 2), (2, 0, 1, 3)])
    def test_of_a_graph(self, order: tuple[int, ...], x: np.ndarray) -> None:
        nodes = [helper.make_node(op, [a], [b]) for op, a, b in self.CHAIN]
        same(model_of([nodes[i] for i in order], {"x": x}, {"y": [2, 8]}), {"x": x})

    def test_of_a_subgraph_and_what_it_captures(self, x: np.ndarray) -> None:
        inner = [helper.make_node("Neg", ["t"], ["u"]), helper.make_node("Exp", ["captured"], ["t"])]
        branch = graph_of(inner, {}, {"u": [2, 8]})
        other = graph_of([helper.make_node("Identity", ["x"], ["v"])], {}, {"v": [2, 8]})
        nodes = [
            helper.make_node("If", ["flag"], ["y"], then_branch=branch, else_branch=other),
            helper.make_node("Relu", ["x"], ["captured"]),
        ]
        for flag in (True, False):
            model = model_of(nodes, {"x": x, "flag": (TensorProto.BOOL, [])}, {"y": [2, 8]})
            ordered = copy.deepcopy(model)  # onnxruntime sorts the graph, but no subgraph
            for attribute in ordered.graph.node[0].attribute:
                attribute.g.node.reverse()
            feeds = {"x": x, "flag": np.array(flag)}
            got = tw.Device("functional").run(tw.compile(model, "tiny", cache=False), feeds)["y"]
            np.testing.assert_allclose(got, onnx_models.run(ordered, feeds)["y"], rtol=2e-6)

    def test_of_a_function(self, x: np.ndarray) -> None:
        body = [helper.make_node("Neg", ["b"], ["c"]), helper.make_node("Relu", ["a"], ["b"])]
        function = helper.make_function("own", "F", ["a"], ["c"], body, [helper.make_opsetid("", 17)])
        model = model_of([helper.make_node("F", ["x"], ["y"], domain="own")], {"x": x}, {"y": [2, 8]}, opset=17)
        model.functions.append(function)
        model.opset_import.append(helper.make_opsetid("own", 1))
        got = tw.Device("functional").run(tw.compile(model, "tiny", cache=False), {"x": x})["y"]
        np.testing.assert_array_equal(got, -np.maximum(x, 0))

    def test_a_cycle_is_an_error(self) -> None:
        nodes = [helper.make_node("Add", ["x", "b"], ["a"]), helper.make_node("Neg", ["a"], ["b"])]
        with pytest.raises(CompileError, match="sorted"):
            import_onnx(model_of(nodes, {"x": [1]}, {"b": [1]}))


def test_an_input_without_a_shape(x: np.ndarray) -> None:
    model = model_of([helper.make_node("Relu", ["x"], ["y"])], {"x": (FLOAT, None)}, {"y": (FLOAT, None)})
    assert not model.graph.input[0].type.tensor_type.HasField("shape")
    same(model, {"x": x})
    assert import_onnx(model, {"x": [3, 5]}).tensor("y").shape == (3, 5)
    with pytest.raises(CompileError, match="'x' has no shape; set it with --shape x="):
        import_onnx(model)


@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
@pytest.mark.parametrize("declared", [[], [1]])
def test_a_scalar(declared: list[int], shape: tuple[int, ...]) -> None:
    """onnxruntime takes any single value for a scalar; a scalar for one of a vector, too, is taken here."""
    nodes = [helper.make_node("Cast", ["s"], ["f"], to=FLOAT), helper.make_node("Mul", ["x", "f"], ["y"])]
    model = model_of(nodes, {"x": [1, 4], "s": (TensorProto.INT64, declared)}, {"y": [1, 4]})
    x, s = np.ones((1, 4), np.float32), np.full(shape, 7, np.int64)
    runs = [(model, {}, {"x": x, "s": s}), (model, {"constants": {"s": s}}, {"x": x})]
    for source, options, feeds in runs:
        if not declared or len(shape) < 2:
            made = tw.Device("functional").run(tw.compile(source, "tiny", cache=False, **options), feeds)["y"]
            np.testing.assert_array_equal(made, 7 * x)
        else:
            with pytest.raises(tw.TilewrightError, match="must have"):
                tw.Device("functional").run(tw.compile(source, "tiny", cache=False, **options), feeds)
    if not declared:
        same(model, {"x": x, "s": s})
        same(model, {"x": x, "s": s}, shapes={"s": shape})


@pytest.mark.parametrize("axis", [-1, 1])
@pytest.mark.parametrize("op", ["SimplifiedLayerNormalization", "LayerNormalization"])
def test_norms_onnx_has_not(op: str, axis: int) -> None:
    """Ops that onnxruntime has in ONNX's domain, in an opset without them."""
    generator = np.random.default_rng(1)
    x = generator.standard_normal((2, 3, 8)).astype(np.float32)
    scale = generator.standard_normal(x.shape[axis:]).astype(np.float32)
    single = op.startswith("Simplified")
    node = helper.make_node(op, ["x", "g"] if single else ["x", "g", "b"], ["y", "inv"] if single else ["y"],
                            axis=axis, epsilon=1e-3)  # fmt: skip
    outputs = {"y": (FLOAT, None), "inv": (FLOAT, None)} if single else {"y": (FLOAT, None)}
    model = model_of([node], {"x": x}, outputs, {"g": scale, "b": scale[::-1]}, opset=16)
    same(model, {"x": x})


@pytest.mark.parametrize("zero", [5, -(2**31), [7, 0, -9]])
@pytest.mark.parametrize("constant", [False, True])
def test_int32_with_a_zero_point(zero: object, constant: bool) -> None:
    points = np.array(zero, np.int32)
    data = np.random.default_rng(0).integers(-(2**31), 2**31, (2, 3)).astype(np.int32)
    nodes = [
        helper.make_node("DequantizeLinear", ["d", "s", "z"], ["f"], axis=1),
        helper.make_node("Add", ["f", "x"], ["y"]),
    ]
    constants = {"s": np.full(points.shape, 0.3, np.float32), "z": points} | ({"d": data} if constant else {})
    feeds = {"x": np.zeros((2, 3), np.float32)} | ({} if constant else {"d": data})
    model = model_of(nodes, feeds, {"y": [2, 3]}, constants)
    got = tw.Device("functional").run(tw.compile(model, "tiny", cache=False), feeds)["y"]
    np.testing.assert_array_equal(got, onnx_models.run(model, feeds)["y"])


def test_what_cannot_be_folded() -> None:
    """numpy's choose, by which onnx evaluates GatherElements, takes 64 rows at most."""
    constants = {"d": np.arange(70, dtype=np.int64), "i": np.arange(70, dtype=np.int64)[::-1] % 66}
    node = helper.make_node("GatherElements", ["d", "i"], ["g"], axis=0)
    last = helper.make_node("Add", ["g", "x"], ["y"])
    x = np.zeros(70, np.int64)
    same(model_of([node, last], {"x": x}, {"y": (TensorProto.INT64, [70])}, constants), {"x": x})
