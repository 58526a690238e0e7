"""Tables of functions: which of them the reference may round otherwise, as it approximates the function."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.common.onnx_models import model_of
from tilewright.compiler.graph.ops.elementwise import QLut
from tilewright.compiler.importer.onnx import import_onnx
from tilewright.compiler.passes import run_passes
from tilewright.compiler.stages.exactness import inexact_tensors


def function_model(ops: list[str], x_scale: float, y_scale: float) -> onnx.ModelProto:
    """int8 q -> DequantizeLinear -> ops in a chain, the last being Mul with x -> QuantizeLinear -> y."""
    nodes = [helper.make_node("DequantizeLinear", ["q", "sx", "z"], ["x"], "dq")]
    name = "x"
    for op in ops:
        nodes.append(helper.make_node(op, [name] if op != "Mul" else [name, "x"], [f"{name}_{op}"], op))
        name = f"{name}_{op}"
    nodes.append(helper.make_node("QuantizeLinear", [name, "sy", "z"], ["y"], "quantize"))
    constants = {"sx": np.float32(x_scale), "sy": np.float32(y_scale), "z": np.int8(0)}
    shape = [1, 256]
    return model_of(nodes, {"q": (TensorProto.INT8, shape)}, {"y": (TensorProto.INT8, shape)}, constants)


@pytest.mark.parametrize(
    ("ops", "x_scale", "y_scale", "functions"),
    [
        (["Sigmoid", "Mul"], 0.125, 0.25, "Swish"),  # where Sigmoid is 1 but for its last bits, x / 0.25 is a tie
        (["Sigmoid", "Mul"], 0.1, 0.0913, ""),
        (["HardSwish"], 0.125, 0.25, ""),  # exact, ties or not
        (["Mish"], 0.125, 0.25, "Mish"),
    ],
)
def test_tables_beside_ties_have_a_reason(ops: list[str], x_scale: float, y_scale: float, functions: str) -> None:
    graph = import_onnx(function_model(ops, x_scale, y_scale))
    run_passes(graph)
    assert [node.op for node in graph] == ["QLut"]
    expected = f"a table of {functions} with values beside a tie: last-bit differences can flip them"
    assert inexact_tensors(graph) == ({"y": expected} if functions else {})


def test_the_table_of_a_written_out_hard_swish_is_that_of_its_steps() -> None:
    """A tie at 34 steps: x * clip(x + 3, 0, 6) / 6 has another last bit than HardSwish."""
    steps = [("Add", "x", "c3"), ("Clip", "Add", "c0", "c6"), ("Mul", "x", "Clip"), ("Div", "Mul", "c6")]
    nodes = [helper.make_node("DequantizeLinear", ["q", "sx", "z"], ["x"])]
    nodes += [helper.make_node(op, inputs, [op]) for op, *inputs in steps]
    nodes.append(helper.make_node("QuantizeLinear", ["Div", "sy", "z"], ["y"]))
    x_scale, y_scale = np.float32(0.0649975165), np.float32(0.0525729395)
    constants = {"sx": x_scale, "sy": y_scale, "z": np.int8(0)}
    constants |= {f"c{k}": np.float32(k) for k in (0, 3, 6)}
    kind = {"q": (TensorProto.INT8, [1, 256])}, {"y": (TensorProto.INT8, [1, 256])}
    graph = import_onnx(model_of(nodes, *kind, constants))
    run_passes(graph)
    (lut,) = (node.quantized for node in graph)
    assert isinstance(lut, QLut)
    x = np.arange(256, dtype=np.uint8).view(np.int8) * x_scale
    wanted = np.clip(np.rint(x * np.clip(x + np.float32(3), 0, 6) / np.float32(6) / y_scale), -128, 127)
    single = np.rint(x * np.clip(x * np.float32(1 / 6) + np.float32(0.5), 0, 1) / y_scale)
    assert wanted[34] != single[34]
    np.testing.assert_array_equal(np.frombuffer(lut.table, np.int8), wanted)
