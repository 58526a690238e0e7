"""Weights of 4 and 2 bits on the NPU, against onnxruntime, which computes them in floats: equal but for proven ties."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tilewright as tw
from tests.common.onnx_models import model_of
from tilewright.isa.config import preset
from tilewright.runtime.cost import program_cycles

RANGES = {"INT4": (-8, 8), "UINT4": (0, 16), "INT2": (-2, 2), "UINT2": (0, 4)}
OUT = 24


def network(
    op: str, kind: str, per_channel: bool, out: int = OUT, depth: int = 40
) -> tuple[onnx.ModelProto, np.ndarray]:
    random = np.random.default_rng(5)
    low, high = RANGES[kind]
    shape, axis = {"Conv": ((out, 16, 3, 3), 0), "MatMul": ((depth, out), 1), "Gemm": ((out, depth), 0)}[op]
    channels = [out] if per_channel else []
    zeros = random.integers(low, high, channels) if low == 0 else np.zeros(channels, int)
    x = random.integers(-128, 128, (1, 16, 9, 9) if op == "Conv" else (6, depth)).astype(np.int8)
    attributes = {"Conv": {"pads": [1, 1, 1, 1]}, "MatMul": {}, "Gemm": {"transB": 1}}[op]
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "sx", "zx"], ["a"]),
        helper.make_node("DequantizeLinear", ["w", "sw", "zw"], ["b"], axis=axis),
        helper.make_node(op, ["a", "b"], ["c"], **attributes),
        helper.make_node("QuantizeLinear", ["c", "sy", "zy"], ["y"]),
    ]
    constants = {
        "sx": np.float32(0.05), "zx": np.int8(3), "sy": np.float32(0.4), "zy": np.int8(-7),
        "sw": random.uniform(0.01, 0.05, channels).astype(np.float32),
    }  # fmt: skip
    opset = 25 if "2" in kind else 21
    model = model_of(nodes, {"x": x}, ["y"], constants, opset=opset)
    for name, values in (("w", random.integers(low, high, shape)), ("zw", zeros)):
        code = getattr(TensorProto, kind)
        model.graph.initializer.append(helper.make_tensor(name, code, values.shape, values.reshape(-1).tolist()))
    return model, x


@pytest.mark.network
@pytest.mark.parametrize("per_channel", [True, False], ids=["per channel", "per tensor"])
@pytest.mark.parametrize("kind", [k for k in RANGES if hasattr(TensorProto, k)])
@pytest.mark.parametrize("op", ["Conv", "MatMul", "Gemm"])
def test_on_the_npu(op: str, kind: str, per_channel: bool) -> None:
    model, x = network(op, kind, per_channel)
    program = tw.compile_program(model, "small")
    assert [layer.where for layer in program.layers] == ["npu"]
    report = tw.check(model, {"x": x}, program=program)
    assert report.ok, report.summary()


@pytest.mark.network
@pytest.mark.parametrize(("kind", "codes", "share"), [("INT4", 16, 0.5), ("INT2", 32, 0.25)])
def test_packed_in_memory(kind: str, codes: int, share: float) -> None:
    """A machine with a decoder reads two or four weights a byte, in as little of the time."""
    if not hasattr(TensorProto, kind):
        pytest.skip(f"onnx has no {kind}")
    model, x = network("MatMul", kind, True, 1024, 512)
    plain, coded = (tw.compile_program(model, preset("base").with_(weight_codes=n)) for n in (0, codes))
    weights = 512 * 1024
    assert len(plain.constants) - len(coded.constants) > (1 - share) * weights - 1024
    assert program_cycles(coded) < (share + 0.06) * program_cycles(plain)
    report = tw.check(model, {"x": x}, program=coded)
    assert report.ok, report.summary()
