"""Preparing a float model changes how it is written, never what it computes."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilewright as tw
from tests.common import onnx_models
from tests.common.onnx_models import model_of
from tilewright.quantize import quantize
from tilewright.quantize.prepare import prepare, require_same

RANDOM = np.random.default_rng(0)


def weights(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


def norm(channels: int) -> dict[str, np.ndarray]:
    return {"s": weights(channels), "b": weights(channels), "m": weights(channels), "v": np.abs(weights(channels)) + 1}


def prepared(model: onnx.ModelProto, sample: dict[str, np.ndarray], **options: Any) -> onnx.ModelProto:
    """The prepared model; its outputs are those of the given one."""
    found = prepare(model, **options)
    onnx.checker.check_model(found)
    ours, theirs = onnx_models.run(found, sample), onnx_models.run(model, sample)
    assert ours.keys() == theirs.keys()
    for name, value in theirs.items():
        np.testing.assert_allclose(ours[name], value, rtol=1e-4, atol=1e-4 * np.abs(value).max())
    return found


def ops(model: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in model.graph.node]


@pytest.mark.medium
@pytest.mark.parametrize(
    "node, shape, constants",
    [
        (("Conv", ["x", "w"], {}), [1, 3, 6, 6], {"w": weights(4, 3, 3, 3)}),
        (("Conv", ["x", "w", "c"], {"group": 2}), [1, 4, 6, 6], {"w": weights(4, 2, 3, 3), "c": weights(4)}),
        (("ConvTranspose", ["x", "w"], {"strides": [2, 2]}), [1, 3, 6, 6], {"w": weights(3, 4, 2, 2)}),
        (("Gemm", ["x", "w", "c"], {"transB": 1, "alpha": 0.5, "beta": 2.0}), [2, 6],
         {"w": weights(4, 6), "c": weights(1, 4)}),
        (("MatMul", ["x", "w"], {}), [2, 6], {"w": weights(6, 4)}),
    ],
    ids=["conv", "grouped", "transposed", "gemm", "matmul"],
)  # fmt: skip
def test_batch_norm_is_folded(node: Any, shape: list[int], constants: dict[str, np.ndarray]) -> None:
    op, inputs, attributes = node
    nodes = [
        helper.make_node(op, inputs, ["p"], **attributes),
        helper.make_node("BatchNormalization", ["p", "s", "b", "m", "v"], ["y"]),
    ]
    model = model_of(nodes, {"x": shape}, ["y"], {**constants, **norm(4)}, opset=17)
    found = prepared(model, {"x": weights(*shape)})
    assert ops(found) in ([op], ["Gemm"])


@pytest.mark.medium
@pytest.mark.parametrize("shape", [[1, 4, 5, 5], [1, 4, 5], [3, 4]])
def test_batch_norm_alone(shape: list[int]) -> None:
    """A BatchNormalization behind no product is a depthwise Conv, which the machine has."""
    nodes = [
        helper.make_node("BatchNormalization", ["x", "s", "b", "m", "v"], ["n"]),
        helper.make_node("Relu", ["n"], ["y"]),
    ]
    found = prepared(model_of(nodes, {"x": shape}, ["y"], norm(4), opset=17), {"x": weights(*shape)})
    assert "BatchNormalization" not in ops(found)
    assert ("Conv" in ops(found)) == (len(shape) > 2)


@pytest.mark.medium
@pytest.mark.parametrize("leading", [[2], [1, 5], ["n", 5], [1, 2, 5]])
def test_bias_of_matmul(leading: list[Any]) -> None:
    """MatMul and Add are one Gemm, also over more than two axes."""
    nodes = [helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("Add", ["b", "p"], ["y"])]
    model = model_of(nodes, {"x": [*leading, 6]}, ["y"], {"w": weights(6, 4), "b": weights(4)})
    sizes = [3 if n == "n" else n for n in leading]
    assert "Gemm" in ops(prepared(model, {"x": weights(*sizes, 6)}))


@pytest.mark.medium
def test_scales_and_shifts() -> None:
    """Div, Sub, Mul and Add of constants, from either side; a tensor that something else reads stays."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"]),
        helper.make_node("Div", ["a", "d"], ["b"]),
        helper.make_node("Sub", ["e", "b"], ["c"]),
        helper.make_node("Mul", ["c", "d"], ["f"]),
        helper.make_node("Add", ["f", "e"], ["g"]),
        helper.make_node("Mul", ["g", "d"], ["y"]),
    ]
    constants = {"w": weights(4, 3, 1, 1), "d": np.abs(weights(1, 4, 1, 1)) + 1, "e": weights(4, 1, 1)}
    model = model_of(nodes, {"x": [1, 3, 5, 5]}, ["y"], constants)
    sample = {"x": weights(1, 3, 5, 5)}
    assert ops(prepared(model, sample)) == ["Conv"]
    assert ops(prepared(model_of(nodes, {"x": [1, 3, 5, 5]}, ["y", "g"], constants), sample)) == ["Conv", "Mul"]
    assert (
        ops(
            prepared(
                model_of(nodes[:5], {"x": [1, 3, 4, 4]}, ["g"], {**constants, "e": weights(4, 4)}),
                {"x": weights(1, 3, 4, 4)},
            )
        )[0]
        == "Conv"
    )  # one value per pixel is no shift per channel


@pytest.mark.medium
@pytest.mark.parametrize("opset", [9, 11, 12])
def test_opset(opset: int) -> None:
    """Sets without a DequantizeLinear per channel are left behind; initialisers that are inputs become constants."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"]),
        helper.make_node("Dropout", ["a"], ["b"]),
        helper.make_node("ReduceMean", ["b"], ["c"], axes=[2, 3], keepdims=1),
        helper.make_node("Squeeze", ["c"], ["d"], axes=[2, 3]),
        helper.make_node("Softmax", ["d"], ["y"], axis=1),
    ]
    model = model_of(nodes, {"x": [1, 3, 5, 5]}, ["y"], {"w": weights(4, 3, 1, 1)}, opset=opset)
    model.ir_version = 3
    model.graph.input.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, [4, 3, 1, 1]))
    found = prepared(model, {"x": weights(1, 3, 5, 5)})
    assert found.opset_import[0].version >= 13 and "Dropout" not in ops(found)
    assert [x.name for x in found.graph.input] == ["x"]


def branch(name: str, nodes: list[onnx.NodeProto], output: str, constants: dict[str, np.ndarray] | None = None) -> Any:
    tensors = [numpy_helper.from_array(v, n) for n, v in (constants or {}).items()]
    return helper.make_graph(nodes, name, [], [onnx.ValueInfoProto(name=output)], tensors)


@pytest.mark.medium
def test_branches() -> None:
    """Branches in branches, with the same names inside, chosen by a constant and by a shape."""
    inner = branch("inner", [helper.make_node("Conv", ["x", "w"], ["r"])], "r", {"w": weights(4, 3, 1, 1)})
    other = branch("other", [helper.make_node("Neg", ["x"], ["r"])], "r")
    outer = branch("outer", [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Gather", ["shape", "last"], ["size"]),
        helper.make_node("Equal", ["size", "five"], ["t_size"]),
        helper.make_node("If", ["t_size"], ["t"], then_branch=inner, else_branch=other),
        helper.make_node("Relu", ["t"], ["u"]),
    ], "u", {"last": np.array(3), "five": np.array(5)})  # fmt: skip
    unused = branch("unused", [helper.make_node("Identity", ["x"], ["u"])], "u")
    nodes = [
        helper.make_node("Equal", ["sr", "rate"], ["chosen"]),
        helper.make_node("If", ["chosen"], ["y"], then_branch=outer, else_branch=unused),
    ]
    rate = (TensorProto.INT64, [])
    model = model_of(nodes, {"x": [1, 3, 5, 5], "sr": rate}, {"y": None}, {"rate": np.array(16000)})
    model.graph.output[0].type.tensor_type.elem_type = TensorProto.FLOAT
    found = prepare(model, values={"sr": np.array(16000)})
    assert ops(found) == ["Conv", "Relu"] and [x.name for x in found.graph.input] == ["x"]
    x = weights(1, 3, 5, 5)
    np.testing.assert_allclose(
        onnx_models.run(found, {"x": x})["y"], onnx_models.run(model, {"x": x, "sr": np.array(16000)})["y"], rtol=1e-5
    )


@pytest.mark.medium
def test_shapes() -> None:
    """Open sizes called "?" are not one size; --shape sets open sizes and replaces fixed ones."""
    nodes = [helper.make_node("Conv", ["x", "w"], ["y"])]
    model = model_of(nodes, {"x": ["?", 3, "?", "?"]}, {"y": ["?", 4, "?", "?"]}, {"w": weights(4, 3, 1, 1)})
    sizes = lambda m: [d.dim_value or d.dim_param for d in m.graph.input[0].type.tensor_type.shape.dim]
    assert sizes(prepare(model)) == ["", 3, "", ""]
    assert sizes(prepare(model, {"x": [1, 3, 7, 9]})) == [1, 3, 7, 9]
    fixed = model_of(nodes, {"x": [10, 3, 32, 32]}, {"y": [10, 4, 32, 32]}, {"w": weights(4, 3, 1, 1)})
    assert sizes(prepared(prepare(fixed, {"x": [1, 3, 8, 8]}), {"x": weights(1, 3, 8, 8)})) == [1, 3, 8, 8]
    for shapes, message in [
        ({"z": [1]}, "--shape z: the model's inputs are x"),
        ({"x": [1, 3]}, "--shape x has 2 sizes; the input has 4"),
    ]:
        with pytest.raises(tw.UsageError, match=message):
            prepare(model, shapes)


@pytest.mark.medium
def test_shared_weights() -> None:
    """Every product has weights of its own, which others may then change."""
    nodes = [helper.make_node("Conv", ["x", "w"], ["a"]), helper.make_node("Conv", ["a", "w"], ["y"])]
    found = prepared(
        model_of(nodes, {"x": [1, 3, 5, 5]}, ["y"], {"w": weights(3, 3, 1, 1)}), {"x": weights(1, 3, 5, 5)}
    )
    assert len({node.input[1] for node in found.graph.node}) == 2


def test_another_network_is_noticed() -> None:
    """The message says what to do where preparing changed the results."""
    model = lambda op: model_of([helper.make_node(op, ["x"], ["y"])], {"x": [1, 8]}, ["y"], opset=12)
    sample = {"x": weights(1, 8)}
    require_same(model("Relu"), model("Relu"), sample)
    with pytest.raises(tw.UsageError, match="gives another output 'y': export it again with opset_version"):
        require_same(model("Relu"), model("Sigmoid"), sample)


def test_onnxruntime_may_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that onnxruntime's optimiser crashes on is quantised as it is."""
    monkeypatch.setattr(sys.modules[prepare.__module__], "_OPTIMISE", "import os; os.abort()")
    constant = helper.make_node("Constant", [], ["w"], value=numpy_helper.from_array(weights(4, 3, 1, 1)))
    nodes = [constant, helper.make_node("Conv", ["x", "w"], ["y"])]
    found = prepared(model_of(nodes, {"x": [1, 3, 5, 5]}, ["y"]), {"x": weights(1, 3, 5, 5)})
    assert ops(found) == ["Conv"]


@pytest.mark.medium
def test_products_behind_ops_of_onnxruntime() -> None:
    """onnx infers no types behind them; the compiler does, and what it finds can be quantised."""
    r = np.random.default_rng(1)
    w = r.normal(0, 1, (8, 8)).astype(np.float32)
    nodes = [
        helper.make_node("SkipLayerNormalization", ["x", "x", "g"], ["n"], domain="com.microsoft"),
        helper.make_node("MatMul", ["n", "w"], ["y"]),
    ]
    model = model_of(nodes, {"x": (1, 3, 8)}, {"y": None}, {"g": np.ones(8, np.float32), "w": w})
    types = {x.name: x.type.tensor_type for x in prepare(model).graph.value_info}
    assert types["n"].elem_type == TensorProto.FLOAT and [d.dim_value for d in types["n"].shape.dim] == [1, 3, 8]


@pytest.mark.medium
def test_packed_weights_are_nothing_to_quantise() -> None:
    packed = {"w": np.zeros((4, 1, 16), np.uint8), "s": np.ones((4, 1), np.float32)}
    node = helper.make_node(
        "MatMulNBits", ["x", "w", "s"], ["y"], domain="com.microsoft", K=32, N=4, bits=4, block_size=32
    )
    model = model_of([node], {"x": (2, 32)}, {"y": None}, packed)
    with pytest.raises(tw.UsageError, match="the weights of its 1 MatMulNBits are integers already"):
        quantize(model, [{"x": np.ones((2, 32), np.float32)}])
