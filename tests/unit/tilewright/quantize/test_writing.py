"""Quantised tensors and their parameters, and files that both runtimes load and run to the same bytes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilewright as tw
from tests.common import onnx_models
from tests.common.onnx_models import model_of
from tilewright.quantize import ranges
from tilewright.quantize.accuracy import Accuracy
from tilewright.quantize.correction import correct
from tilewright.quantize.integers import hold_bias, parameters
from tilewright.quantize.layers import Kind, Network, tensors_to_observe
from tilewright.quantize.model import Quantized, quantize_onnx
from tilewright.quantize.observe import Observer, runner
from tilewright.quantize.prepare import prepare
from tilewright.quantize.recipe import Precision, Range, Recipe, Weights
from tilewright.quantize.writing import quantised_layers, write

RANDOM = np.random.default_rng(1)


def weights(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


def quantize(model: onnx.ModelProto, data: Any, **options: Any) -> Quantized:
    """Quantises without the plain quantiser's network as a candidate."""
    return quantize_onnx(model, data, accuracy=Accuracy(ranges="mse"), **options)


def node(op: str, inputs: str, output: str, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op, inputs.split(), [output], output, **attributes)


def kinds(model: onnx.ModelProto) -> dict[str, Kind]:
    return {layer.name: layer.kind for layer in Network(onnx.shape_inference.infer_shapes(model)).layers}


def quantised(model: onnx.ModelProto) -> list[str]:
    """Names of the layers that are quantised."""
    return list(quantised_layers(Network(onnx.shape_inference.infer_shapes(model)), Recipe(model)))


CONV = {"w": weights(8, 3, 1, 1), "v": weights(4, 8, 1, 1)}


@pytest.mark.parametrize("low, high", [(0.0, 2.55), (-1.0, 1.0), (-3.0, -1.0), (2.0, 4.0), (0.0, 0.0), (-1e-20, 1e-20)])
@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16])
def test_parameters(low: float, high: float, dtype: Any) -> None:
    """0 is exact, and both ends are held."""
    found = parameters(Range(low, high), np.dtype(dtype))
    limits = np.iinfo(dtype)
    assert limits.min <= found.zero_point <= limits.max and found.scale > 0
    least, most = ((n - found.zero_point) * float(found.scale) for n in (limits.min, limits.max))
    assert least <= low + found.scale and most >= high - found.scale


@pytest.mark.medium
def test_chain_is_one_layer() -> None:
    """x * sigmoid(x) and a hard swish written out are one table each, without quantisation inside."""
    nodes = [
        node("Conv", "x w", "a"),
        node("Sigmoid", "a", "s"),
        node("Mul", "a s", "b"),
        node("Conv", "b v", "c"),
        node("Add", "c three", "d"),
        node("Clip", "d zero six", "e"),
        node("Mul", "c e", "f"),
        node("Div", "f six", "g"),
        node("Conv", "g u", "y"),
    ]
    numbers = {"three": np.float32(3), "zero": np.float32(0), "six": np.float32(6), "u": weights(2, 4, 1, 1)}
    model = model_of(nodes, {"x": [1, 3, 4, 4]}, ["y"], {**CONV, **numbers})
    found = kinds(model)
    assert found == {
        "a": Kind.PRODUCT,
        "s": Kind.ELEMENTWISE,
        "c": Kind.PRODUCT,
        "d": Kind.ELEMENTWISE,
        "y": Kind.PRODUCT,
    }
    assert tensors_to_observe(Network(onnx.shape_inference.infer_shapes(model))) == ["x", "a", "b", "c", "g", "y"]
    result = quantize(model, weights(8, 3, 4, 4))
    assert result.verified is not None and result.verified.report.ok
    assert result.verified.npu_macs == result.verified.macs > 0


@pytest.mark.medium
def test_ends_stay_float() -> None:
    """Ops before the first product and after the last one stay float: no quantisation of boxes beside scores."""
    nodes = [
        node("Mul", "x half", "n"),
        node("Conv", "n w", "a"),
        node("Relu", "a", "r"),
        node("MaxPool", "r", "m", kernel_shape=[2, 2], strides=[2, 2]),
        node("Conv", "m v", "b"),
        node("Sigmoid", "b", "s"),
        node("Concat", "b s", "y", axis=1),
    ]
    model = model_of(nodes, {"x": [1, 3, 4, 4]}, ["y"], {**CONV, "half": np.float32(0.5)})
    assert quantised(model) == ["a", "m", "b"]
    result = quantize(model, weights(8, 3, 4, 4))
    makers = {o: n.op_type for n in result.model.graph.node for o in n.output}
    assert makers["y"] == "Concat" and makers["m"] == makers["b"] == "DequantizeLinear"


def test_norms_and_rotations_stay_float_and_caches_are_quantised() -> None:
    """A root mean square and the angles of RoPE have no steps of 8 bits; a cache has those of what is put into it."""
    nodes = [
        node("MatMul", "x w", "a"),
        node("Pow", "a two", "p"),
        node("ReduceMean", "p last", "m"),
        node("Sqrt", "m", "root"),
        node("Reciprocal", "root", "r"),
        node("Mul", "a r", "n"),
        node("MatMul", "n w2", "b"),
        node("Gather", "table position", "angle"),
        node("Mul", "b angle", "turned"),
        node("ScatterElements", "past rows turned", "present", axis=0),
        node("MatMul", "present w3", "y"),
    ]
    table = np.cos(np.arange(40, dtype=np.float32)).reshape(10, 4)
    numbers = {"w": weights(4, 4), "w2": weights(4, 4), "w3": weights(4, 4), "two": np.float32(2), "table": table}
    numbers |= {"last": np.array([-1]), "rows": np.array([[1] * 4])}
    inputs = {"x": [1, 4], "past": [6, 4], "position": (TensorProto.INT64, [1])}
    model = model_of(nodes, inputs, ["y", "present"], numbers)
    assert quantised(model) == ["a", "b", "present", "y"]
    data = {"x": weights(8, 1, 4), "past": weights(8, 6, 4), "position": np.arange(8)[:, None]}
    result = quantize(model, data, check=False).model
    constants = {x.name: numpy_helper.to_array(x) for x in result.graph.initializer}
    scales = {n.input[0]: constants[n.input[1]] for n in result.graph.node if n.op_type == "QuantizeLinear"}
    assert scales["past"] == scales["turned"] == scales["present_QuantizeLinear_Input"]


@pytest.mark.medium
def test_shared_parameters() -> None:
    """Moves keep the quantisation, and what only a Concat reads has that of its result: nothing is rounded twice."""
    nodes = [
        node("Conv", "x w", "a"),
        node("Conv", "x w2", "b"),
        node("Concat", "a b", "c", axis=1),
        node("Resize", "c  scales", "d", mode="nearest"),
        node("Transpose", "d", "e", perm=[0, 1, 3, 2]),
        node("Conv", "e v", "y"),
    ]
    nodes[3].input[:] = ["c", "", "scales"]
    constants = {"w": weights(4, 3, 1, 1), "w2": 9 * weights(4, 3, 1, 1), "v": weights(2, 8, 1, 1),
                 "scales": np.array([1, 1, 2, 2], np.float32)}  # fmt: skip
    result = quantize(model_of(nodes, {"x": [1, 3, 4, 4]}, ["y"], constants), weights(8, 3, 4, 4))
    values = {x.name: numpy_helper.to_array(x) for x in result.model.graph.initializer}
    assert len({float(values[f"{name}_scale"]) for name in "abcde"}) == 1
    assert float(values["y_scale"]) != float(values["a_scale"])


@pytest.mark.medium
@pytest.mark.parametrize("op", ["Conv", "ConvTranspose", "Gemm", "GemmB", "MatMul", "MatMul3"])
@pytest.mark.parametrize("activation", ["int8", "uint8"])
def test_products(op: str, activation: str) -> None:
    """Weights per output channel on the right axis, whatever the op; integers in both runtimes."""
    scale = np.array([0.1, 10, 1, 3], np.float32)
    flat = weights(6, 4) * scale
    made: dict[str, tuple[onnx.NodeProto, list[int], np.ndarray, int]] = {
        "Conv": (node("Conv", "x w c", "y"), [1, 6, 4, 4], flat.T.reshape(4, 6, 1, 1), 0),
        "ConvTranspose": (node("ConvTranspose", "x w c", "y"), [1, 6, 4, 4], flat.reshape(6, 4, 1, 1), 1),
        "Gemm": (node("Gemm", "x w c", "y"), [1, 6], flat, 1),
        "GemmB": (node("Gemm", "x w c", "y", transB=1), [1, 6], flat.T, 1),  # written without transB
        "MatMul": (node("MatMul", "x w", "y"), [1, 6], flat, 1),
        "MatMul3": (node("MatMul", "x w", "y"), [1, 5, 6], flat, 1),
    }
    first, shape, w, axis = made[op]
    model = model_of([first], {"x": shape}, ["y"], {"w": w, "c": weights(4)})
    result = quantize(model, weights(6, *shape), activation=activation)
    (dequantize,) = (
        n for n in result.model.graph.node if n.op_type == "DequantizeLinear" and "quantized" in n.input[0] and
        "bias" not in n.input[0] and "_of_" not in n.input[0]
    )  # fmt: skip
    assert next(a.i for a in dequantize.attribute if a.name == "axis") == axis
    assert result.verified is not None and result.verified.report.ok
    assert result.verified.npu_macs == result.verified.macs > 0


def test_large_bias() -> None:
    """A bias far above the products' scale would not fit 32 bits: the weights get coarser."""
    model = model_of([node("Conv", "x w c", "y")], {"x": [1, 3, 4, 4]}, ["y"],
                     {"w": 1e-9 * weights(8, 3, 1, 1), "c": 100 * weights(8)})  # fmt: skip
    result = quantize(model, weights(4, 3, 4, 4))
    (bias,) = (numpy_helper.to_array(x) for x in result.model.graph.initializer if x.data_type == onnx.TensorProto.INT32
               and x.name.endswith("_quantized"))  # fmt: skip
    assert np.abs(bias.astype(np.int64)).max() <= 2**30 + 1000
    assert result.verified is not None and result.verified.report.ok


def test_only_the_channel_that_needs_it_gets_coarser() -> None:
    """Fitted integers of the other channels stay; channels without weights have a bias as exact as the others."""
    fitted = Weights(np.array([[[[90]], [[-127]]], [[[3]], [[127]]], [[[0]], [[0]]], [[[0]], [[0]]]], np.int8),
                     np.array([0.01, 1e-12, 1.0, 1.0], np.float32))  # fmt: skip
    bias = np.array([5.0, -40.0, 0.37, 0.0], np.float32)
    found = hold_bias(fitted, bias, 0.05, 0)
    assert found.scale is not None and np.array_equal(found.scale[[0, 3]], [np.float32(0.01), 1.0])
    assert np.array_equal(found.values[[0, 2, 3]], fitted.values[[0, 2, 3]]) and np.abs(found.values[1]).max() <= 1
    steps = np.abs(bias) / (0.05 * found.scale.astype(np.float64))
    assert steps.max() <= 2**30 * 1.001 and steps[2] == pytest.approx(2**20)
    whole = hold_bias(replace(fitted, scale=np.array(1e-9, np.float32)), bias, 0.05, None)
    assert whole.scale is not None and whole.scale.ndim == 0 and 40 / 0.05 / float(whole.scale) <= 2**30 * 1.001


@pytest.mark.medium
@pytest.mark.parametrize("size", [1.0, 1e-4, 1e-9])
def test_channels_without_weights(size: float) -> None:
    """Channels whose weights are all 0 give their bias, however small, in both runtimes."""
    w, c = weights(8, 3, 1, 1), weights(8)
    w[2:5], c[2:5] = 0, size * c[2:5]
    nodes = [node("Conv", "x w c", "a"), node("Conv", "a v", "y")]
    result = quantize(model_of(nodes, {"x": [1, 3, 4, 4]}, ["y", "a"], {**CONV, "w": w, "c": c}), weights(4, 3, 4, 4))
    assert result.verified is not None and result.verified.report.ok
    step = {x.name: numpy_helper.to_array(x) for x in result.model.graph.initializer}["a_scale"]
    found = onnx_models.run(result.model, {"x": weights(1, 3, 4, 4)})["a"]
    assert np.abs(found[0, 2:5] - c[2:5, None, None]).max() <= 0.51 * step


@pytest.mark.medium
@pytest.mark.parametrize("opset", [17, 21])
def test_precision(opset: int) -> None:
    """Layers of 16 bits and float ones beside those of 8 bits."""
    nodes = [node("Conv", "x w", "a"), node("Conv", "a v", "b"), node("Conv", "b u", "y")]
    constants = {**CONV, "u": weights(2, 4, 1, 1)}
    model = onnx.shape_inference.infer_shapes(model_of(nodes, {"x": [1, 3, 4, 4]}, ["y"], constants, opset=opset))
    names = tensors_to_observe(Network(model))
    recipe = Recipe(model, {name: Range(-5, 5) for name in names}, {"a": Precision.INT16, "b": Precision.FLOAT})
    result = write(recipe)
    onnx.checker.check_model(result)
    kinds = {x.name: x.data_type for x in result.graph.initializer}
    assert kinds["a_zero_point"] == onnx.TensorProto.INT16 and kinds["b_zero_point"] == onnx.TensorProto.INT8
    assert kinds["v_of_b_quantized"] == onnx.TensorProto.INT16
    sample = {"x": weights(1, 3, 4, 4)}
    assert tw.check(result, sample).ok


def test_branches_read_quantised_tensors() -> None:
    """A tensor keeps its name for its dequantised value, so that a branch finds it."""
    taken = helper.make_graph([helper.make_node("Neg", ["a"], ["n"])], "taken", [], [onnx.ValueInfoProto(name="n")])
    other = helper.make_graph([helper.make_node("Abs", ["a"], ["n"])], "other", [], [onnx.ValueInfoProto(name="n")])
    nodes = [
        node("Conv", "x w", "a"),
        helper.make_node("If", ["chosen"], ["z"], "if", then_branch=taken, else_branch=other),
        node("Conv", "a v", "y"),
    ]
    model = model_of(nodes, {"x": [1, 3, 4, 4], "chosen": (onnx.TensorProto.BOOL, [])}, ["y", "z"], CONV)
    samples = [{"x": weights(1, 3, 4, 4), "chosen": np.array(bool(i % 2))} for i in range(4)]
    result = quantize(model, samples)
    assert result.verified is not None and result.verified.report.ok


def test_pieces() -> None:
    """Observed in pieces of any size, tensors are the same."""
    nodes = [node("Conv", "x w", "a"), node("Relu", "a", "b"), node("Conv", "b v", "c"), node("Add", "c c", "y")]
    model = model_of(nodes, {"x": [1, 3, 4, 4]}, ["y"], CONV)
    sample = {"x": weights(1, 3, 4, 4)}
    names = ["x", "a", "b", "c", "y", "w"]
    whole = dict(Observer(model, names, sample).values(sample))
    observer = Observer(model, names, sample, piece_bytes=300)
    found = dict(observer.values(sample))
    assert observer.pieces > 2 and list(found) == ["w", "x", "a", "b", "c", "y"]
    assert all(np.array_equal(found[name], whole[name]) for name in names)


def test_kept_float_weights() -> None:
    """onnxruntime does not quantise the weights of a layer that is to stay float between quantised ones."""
    fine = weights(4, 8, 1, 1) * np.array([1e-3, 1e-2, 1, 30], np.float32).reshape(4, 1, 1, 1)
    nodes = [node("Conv", "x w", "a"), node("Conv", "a v", "b"), node("Conv", "b u", "y")]
    model = model_of(nodes, {"x": [1, 3, 4, 4]}, ["y"], {**CONV, "v": fine, "u": weights(2, 4, 1, 1)})
    model = onnx.shape_inference.infer_shapes(model)
    ranges = {name: Range(-9, 9) for name in tensors_to_observe(Network(model))} | {"b": Range(-400, 400)}
    result = write(Recipe(model, ranges, {"b": Precision.FLOAT}))
    result.graph.output.extend([onnx.ValueInfoProto(name=name) for name in ("a", "b")])
    found = onnx_models.run(result, {"x": weights(1, 3, 4, 4)})
    exact = np.einsum("oi,nihw->nohw", fine[:, :, 0, 0].astype(np.float64), found["a"])
    assert np.abs(found["b"] - exact).max() <= 0.51 * 800 / 255
    assert all(x.data_type != onnx.TensorProto.INT8 for x in result.graph.initializer if x.name.startswith("v_"))


def test_weights_of_all_steps_stay_one() -> None:
    """Five steps of an unrolled recurrent network: one matrix in the file, as in the float model, fitted or not."""
    random = np.random.default_rng(0)
    weights = [
        numpy_helper.from_array(random.normal(size=(8, 8)).astype(np.float32) / 3, "w"),
        numpy_helper.from_array(random.normal(size=8).astype(np.float32), "b"),
    ]
    nodes, name = [], "x"
    for i in range(5):
        nodes += [
            helper.make_node("Gemm", [name, "w", "b"], [f"g{i}"], f"gemm{i}", transB=1),
            helper.make_node("Tanh", [f"g{i}"], [f"h{i}"], f"tanh{i}"),
        ]
        name = f"h{i}"
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 8]) for n in ("x", name)]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], weights)
    model = prepare(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9))
    samples = [{"x": random.normal(size=(1, 8)).astype(np.float32)} for _ in range(8)]
    recipe = Recipe(model, ranges.find(model, samples, "minmax"))
    for one in (recipe, correct(recipe, samples)):
        written = write(one)
        assert [list(x.dims) for x in written.graph.initializer if x.data_type == TensorProto.INT8].count([8, 8]) == 1
        outputs = [runner(m)(samples[0])[name] for m in (model, written)]
        assert np.allclose(*outputs, atol=0.1)


def test_weights_of_4_bits() -> None:
    """Dense weights lie within -7..7, those of layers with groups in 8 bits; biases stay integers of 32."""
    dense, grouped = weights(8, 4, 1, 1), weights(8, 1, 3, 3)
    nodes = [node("Conv", "x w", "a"), node("Conv", "a v", "y", group=8)]
    model = model_of(nodes, {"x": [1, 4, 6, 6]}, ["y"], {"w": dense, "v": grouped})
    samples = [{"x": weights(1, 4, 6, 6)} for _ in range(2)]
    model = prepare(model)
    written = write(Recipe(model, ranges.find(model, samples, "minmax"), limit=7))  # type: ignore[arg-type]
    stored = {x.name: numpy_helper.to_array(x) for x in written.graph.initializer}
    most = {v.shape: int(np.abs(v.astype(int)).max()) for v in stored.values() if v.dtype == np.int8 and v.ndim == 4}
    assert most == {dense.shape: 7, grouped.shape: 127}
