"""Norms by a root mean square, written out: one op, with the bits of the one that onnxruntime makes of them."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tilewright as tw
from tests.common.onnx_models import model_of, run
from tilewright.isa.program import CpuStep


def written_out(width: int, rows: int) -> onnx.ModelProto:
    steps = [("Pow", "x two", "p"), ("ReduceMean", "p last", "m"), ("Add", "m epsilon", "a"), ("Sqrt", "a", "r"),
             ("Div", "x r", "d"), ("Mul", "d scale", "y")]  # fmt: skip
    nodes = [helper.make_node(op, inputs.split(), [output], output) for op, inputs, output in steps]
    scale = np.random.default_rng(0).uniform(0.5, 1.5, width).astype(np.float32)
    constants = {"two": np.float32(2), "last": np.array([-1]), "epsilon": np.float32(1e-5), "scale": scale}
    return model_of(nodes, {"x": (TensorProto.FLOAT, [1, rows, width])}, {"y": [1, rows, width]}, constants)


@pytest.mark.parametrize("width, rows", [(64, 300), (24, 1), (200, 3), (20, 40)])
def test_written_out(width: int, rows: int) -> None:
    model = written_out(width, rows)
    x = np.random.default_rng(1).normal(size=(1, rows, width)).astype(np.float32) * 3
    program = tw.compile_program(model.SerializeToString(), "tiny")
    (step,) = program.steps
    assert isinstance(step, CpuStep) and [op.split()[0] for op in step.ops] == ["RMSNormalization"]
    with tw.Device("functional") as device:
        found = device.run(program, {"x": x})["y"]
    expected = run(model, {"x": x})["y"]
    if width % 8 == 0:
        np.testing.assert_array_equal(found, expected)
    else:
        np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_another_root_stays_as_it_is() -> None:
    """A root of other values, or over another axis, is no RMS norm."""
    model = written_out(16, 4)
    model.graph.node[0].op_type = "Mul"
    model.graph.node[0].input[1] = "scale"
    program = tw.compile_program(model.SerializeToString(), "tiny")
    assert all("RMSNormalization" not in op for s in program.steps if isinstance(s, CpuStep) for op in s.ops)
