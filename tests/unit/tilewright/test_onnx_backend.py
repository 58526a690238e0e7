"""The ONNX backend as third parties use it: forms of inputs, devices, options, errors."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tilewright.onnx_backend as backend
from tests.common.onnx_models import model_of
from tilewright.compiler.errors import CompileError, StagingError
from tilewright.dynamic.model import DynamicModel
from tilewright.errors import InputError, UsageError
from tilewright.isa.program import Program

FLOAT = TensorProto.FLOAT


def difference() -> onnx.ModelProto:
    return model_of([helper.make_node("Sub", ["a", "b"], ["c"])], {"a": [2, 3], "b": [2, 3]}, ["c"])


A, B = np.arange(6, dtype=np.float32).reshape(2, 3), np.full((2, 3), 0.5, np.float32)


def test_inputs_as_list_dict_and_array() -> None:
    rep = backend.prepare(difference())
    assert isinstance(rep.model, Program)
    np.testing.assert_array_equal(rep.run([A, B])[0], A - B)
    np.testing.assert_array_equal(rep.run({"b": B, "a": A})["c"], A - B)
    negation = model_of([helper.make_node("Neg", ["a"], ["c"])], {"a": [2, 3]}, ["c"])
    np.testing.assert_array_equal(backend.run_model(negation, A).c, -A)


def test_initialisers_that_are_inputs_may_be_given() -> None:
    model = model_of([helper.make_node("Sub", ["a", "b"], ["c"])], {"a": [2, 3], "b": [2, 3]}, ["c"], {"b": B})
    rep = backend.prepare(model)
    np.testing.assert_array_equal(rep.run([A])[0], A - B)
    np.testing.assert_array_equal(rep.run([A, 3 * B])[0], A - 3 * B)
    np.testing.assert_array_equal(rep.run({"a": A})[0], A - B)


def test_open_shapes_are_taken_from_the_inputs() -> None:
    model = model_of([helper.make_node("Neg", ["a"], ["c"])], {"a": ["n", 3]}, ["c"])
    rep = backend.prepare(model)
    assert isinstance(rep.model, DynamicModel)
    for n in (1, 4):
        x = np.ones((n, 3), np.float32)
        np.testing.assert_array_equal(rep.run([x])[0], -x)


def test_values_that_decide_shapes() -> None:
    model = model_of([helper.make_node("Tile", ["a", "n"], ["c"])], {"a": [2, 3], "n": (TensorProto.INT64, [2])}, ["c"])
    times = np.array([2, 1])
    np.testing.assert_array_equal(backend.run_model(model, [A, times])[0], np.tile(A, times))
    ahead = backend.prepare(model, constants={"n": times}, ahead=True)
    np.testing.assert_array_equal(ahead.run([A])[0], np.tile(A, times))
    with pytest.raises(StagingError, match="repeats 'n' must be a constant"):
        backend.prepare(model, ahead=True)


def test_run_node() -> None:
    node = helper.make_node("Clip", ["x", "", "high"], ["y"])
    (y,) = backend.run_node(node, [A, None, np.float32(2.5)])
    np.testing.assert_array_equal(y, np.minimum(A, 2.5))
    old = helper.make_node("Clip", ["x"], ["y"], max=2.5)
    np.testing.assert_array_equal(backend.run_node(old, A, opset_version=6)[0], np.minimum(A, 2.5))


def test_devices_give_equal_bytes() -> None:
    rng = np.random.default_rng(0)
    constants = {
        "s": np.float32(0.05), "z": np.int8(3), "w": rng.integers(-127, 128, (8, 4, 3, 3)).astype(np.int8),
        "ws": np.float32(0.01), "wz": np.int8(0), "ys": np.float32(0.2), "yz": np.int8(-4),
    }  # fmt: skip
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("QLinearConv", ["q", "s", "z", "w", "ws", "wz", "ys", "yz"], ["r"], pads=[1, 1, 1, 1]),
        helper.make_node("DequantizeLinear", ["r", "ys", "yz"], ["y"]),
    ]
    model = model_of(nodes, {"x": [1, 4, 9, 9]}, ["y"], constants)
    x = rng.normal(0, 2, (1, 4, 9, 9)).astype(np.float32)
    on_npu, on_cpu = backend.prepare(model, "NPU"), backend.prepare(model, "CPU")
    assert isinstance(on_npu.model, Program) and any(row.where == "npu" for row in on_npu.model.layers)
    assert isinstance(on_cpu.model, Program) and not any(row.where == "npu" for row in on_cpu.model.layers)
    np.testing.assert_array_equal(on_npu.run([x])[0], on_cpu.run([x])[0])


def test_errors_are_one_line() -> None:
    assert backend.supports_device("NPU:0") and not backend.supports_device("CUDA")
    with pytest.raises(UsageError, match="unknown device 'CUDA'; available: CPU, NPU"):
        backend.prepare(difference(), "CUDA")
    with pytest.raises(InputError, match="1 inputs are given; the model takes a, b"):
        backend.prepare(difference()).run([A])
    bad = difference()
    bad.graph.node[0].op_type = "Subtract"
    with pytest.raises(CompileError, match="Subtract") as caught:
        backend.prepare(bad)
    assert "\n" not in str(caught.value)
