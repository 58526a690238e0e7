"""Settings of onnxruntime as reference: its integer kernels, and a run without graph optimisations if they fail."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tilewright as tw
from tests.common.onnx_models import model_of
from tilewright.checking.onnxruntime_reference import UNOPTIMISED, Reference
from tilewright.checking.saturation import int8_activations, saturates

F32 = np.float32


def between(op: str, x: list[int], z: Any, constants: dict[str, Any], weights: bool = False, **attrs: Any) -> Any:
    """x -> Q -> DQ -> op -> Q -> DQ -> y with scales that make ties; weights w with ws and wz along `axis`."""
    axis = attrs.pop("axis", None)
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "xs", "xz"], ["xq"]),
        helper.make_node("DequantizeLinear", ["xq", "xs", "xz"], ["xd"]),
    ]
    if weights:
        along = {} if axis is None else {"axis": axis}
        nodes.append(helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["wd"], **along))
    nodes += [
        helper.make_node(op, ["xd", "wd"] if weights else ["xd"], ["f"], **attrs),
        helper.make_node("QuantizeLinear", ["f", "ys", "xz"], ["yq"]),
        helper.make_node("DequantizeLinear", ["yq", "ys", "xz"], ["y"]),
    ]
    given = {"xs": F32(0.05), "xz": z, "ys": F32(0.2)} | constants
    return model_of(nodes, {"x": x}, {"y": (TensorProto.FLOAT, None)}, given, opset=19)


def draw(*shape: int) -> np.ndarray:
    return (2 * np.random.default_rng(0).standard_normal(shape)).astype(F32)


@pytest.mark.parametrize("op", ["QLinearConv", "QLinearMatMul"])
def test_an_int8_input_of_a_quantised_op(op: str) -> None:
    conv = op == "QLinearConv"
    generator = np.random.default_rng(0)
    x = generator.integers(-128, 128, (1, 4, 6, 6) if conv else (5, 8)).astype(np.int8)
    w = generator.integers(-128, 128, (6, 4, 3, 3) if conv else (8, 6)).astype(np.int8)
    constants = {"xs": F32(0.05), "xz": np.int8(3), "w": w, "ws": F32(0.02), "wz": np.int8(0), "ys": F32(0.1)}
    node = helper.make_node(op, ["x", "xs", "xz", "w", "ws", "wz", "ys", "xz"], ["y"])
    model = model_of([node], {"x": x}, {"y": (TensorProto.INT8, None)}, constants, opset=13)
    assert Reference(model).int8
    report = tw.check(model, {"x": x}, config="tiny", keep="all")
    assert report.ok and "without" not in report.reference


def test_which_activations_are_int8() -> None:
    dequantise = helper.make_node("DequantizeLinear", ["x", "s", "z"], ["y"])
    for kind, dtype in ((TensorProto.INT8, np.int8), (TensorProto.UINT8, np.uint8)):
        model = model_of([dequantise], {"x": (kind, [2])}, {"y": [2]}, {"s": F32(1), "z": dtype(0)})
        assert int8_activations(model) == (dtype == np.int8)
    weights = helper.make_node("DequantizeLinear", ["w", "s", "z"], ["d"])
    add = helper.make_node("Add", ["x", "d"], ["y"])
    constants = {"w": np.zeros(2, np.int8), "s": F32(1), "z": np.int8(0)}
    assert not int8_activations(model_of([weights, add], {"x": [2]}, {"y": [2]}, constants))


@pytest.mark.medium
@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
@pytest.mark.parametrize("op", ["MatMul", "Gemm", "Conv"])
def test_uint8_weights(op: str, dtype: type) -> None:
    """onnxruntime multiplies uint8 weights with uint8 activations only, and computes others in floats."""
    shape = [1, 16, 25, 20] if op == "Conv" else [500, 16]
    weights = np.random.default_rng(1).integers(0, 256, (8, 16, 1, 1) if op == "Conv" else (16, 8)).astype(np.uint8)
    model = between(op, shape, dtype(3), {"w": weights, "ws": F32(0.02), "wz": np.uint8(120)}, weights=True)
    report = tw.check(model, {"x": draw(*shape)}, config="tiny", keep="all")
    assert report.ok
    assert bool(report.borders) == (dtype == np.int8)


@pytest.mark.medium
@pytest.mark.parametrize("place", [{"config": "tiny"}, {"cpu_only": True}], ids=["npu", "cpu"])
@pytest.mark.parametrize("op", ["MatMul", "Gemm", "Conv"])
def test_weights_that_two_ops_share(op: str, place: dict[str, Any]) -> None:
    """The setting for exact kernels makes uint8 weights of one constant twice, with one name. Where the processor's own
    kernels are exact the reference does without it, and no tie is a border."""
    shape = [1, 16, 25, 20] if op == "Conv" else [500, 16]
    weights = np.random.default_rng(1).integers(-128, 128, (8, 16, 1, 1) if op == "Conv" else (16, 8)).astype(np.int8)
    model = between(op, shape, np.uint8(128), {"w": weights, "ws": F32(0.02), "wz": np.int8(0)}, weights=True)
    graph, own = model.graph, ("x", "xq", "xd", "f", "yq", "y")
    for proto in [copy.deepcopy(p) for p in (*graph.input, *graph.output, *graph.node)]:
        if isinstance(proto, onnx.NodeProto) and proto.output[0] in own:
            proto.input[:] = [f"{n}_" if n in own else n for n in proto.input]
            proto.output[:] = [f"{n}_" for n in proto.output]
            graph.node.append(proto)
        elif isinstance(proto, onnx.ValueInfoProto):
            some = graph.input if proto.name == "x" else graph.output
            proto.name += "_"
            some.append(proto)
    x = draw(*shape)
    report = tw.check(model, {"x": x, "x_": -x}, keep="all", **place)
    assert report.ok
    if not saturates():
        assert "without" not in report.reference and not report.borders


CASES = {
    "dilated pool": (
        between("AveragePool", [1, 3, 9, 9], np.uint8(100), {}, kernel_shape=[2, 2], dilations=[2, 1]), [1, 3, 9, 9],
    ),
    "scales along the sum": (
        between("MatMul", [5, 8], np.int8(3), {
            "w": np.random.default_rng(2).integers(-128, 128, (8, 6)).astype(np.int8),
            "ws": np.linspace(0.01, 0.02, 8, dtype=F32), "wz": np.zeros(8, np.int8),
        }, weights=True, axis=0), [5, 8],
    ),
}  # fmt: skip


@pytest.mark.medium
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("keep", ["outputs", "all"])
def test_a_graph_onnxruntime_cannot_run(case: str, keep: str) -> None:
    """onnxruntime's optimised graph of the model fails; the model as it is does not, and the report says which was
    run."""
    model, shape = CASES[case]
    report = tw.check(model, {"x": draw(*shape)}, config="tiny", keep=keep)
    assert report.ok and report.reference.endswith("without graph optimisations")
    assert report.reference in report.summary()


@pytest.mark.medium
@pytest.mark.parametrize("place", [{"config": "tiny"}, {"cpu_only": True}], ids=["npu", "cpu"])
def test_borders_without_optimisations(place: dict[str, Any]) -> None:
    """A product beside such an op is one of floats, which may round a tie otherwise; a wrong step is still seen. The
    floats behind it are compared as those of the reference's bytes, whether the NPU or the CPU multiplies."""
    weights = np.random.default_rng(1).integers(-128, 128, (8, 16)).astype(np.int8)
    model = between("Gemm", [300, 16], np.int8(3), {"w": weights, "ws": F32(0.02), "wz": np.int8(0)}, True, transB=1)
    pool = copy.deepcopy(CASES["dilated pool"][0]).graph
    for proto in (*pool.node, *pool.input, *pool.output, *pool.initializer):
        rename(proto)
    for field in ("node", "input", "output", "initializer"):
        getattr(model.graph, field).extend(getattr(pool, field))
    inputs = {"x": draw(300, 16), "x_": draw(1, 3, 9, 9)}
    report = tw.check(model, inputs, keep="all", **place)
    assert report.ok and report.borders["yq"] == UNOPTIMISED
    rows = {r.name: r for r in report.rows}
    assert rows["yq"].status == "border"  # the scales make ties
    assert rows["y"].status == "equal" and rows["y"].free_differences == rows["yq"].mismatches


def rename(proto: Any) -> None:
    if isinstance(proto, onnx.NodeProto):
        proto.input[:] = [f"{n}_" for n in proto.input]
        proto.output[:] = [f"{n}_" for n in proto.output]
    else:
        proto.name += "_"


def test_an_error_of_the_model_itself() -> None:
    model, _ = CASES["dilated pool"]
    with pytest.raises(tw.UsageError, match=r"onnxruntime [0-9.]+ cannot run the model"):
        Reference(model).run({"wrong": draw(1)})
