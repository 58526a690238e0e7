"""Nodes of ONNX models that kernels run: bytes beside onnxruntime and the kernels' references; mistakes are told."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import TensorProto, helper

import tilewright as tw
from tests.common.custom_ops import pyramid_model
from tests.common.onnx_models import model_of
from tests.common.paths import ROOT
from tilewright import kernel as tk
from tilewright.cli import cli
from tilewright.compiler.errors import CompileError, UnsupportedError
from tilewright.isa import numerics
from tilewright.kernel.files import load_kernels

FILE = ROOT / "examples" / "kernels" / "custom_op.py"


@pytest.mark.medium
@pytest.mark.parametrize("dtype, config", [(np.int8, "base"), (np.uint8, "tiny")])
def test_a_node_between_convolutions(dtype: Any, config: str) -> None:
    model, kernels = pyramid_model(dtype, dilations=[1, 2]), load_kernels(FILE)
    report = tw.check(model, config=config, keep="all", device="cycle", kernels=kernels)
    assert report.ok and report.tensors == 5
    assert "the reference of kernel pyramid" in report.reference
    program = tw.compile_program(model, config, kernels=kernels)
    (row,) = [row for row in program.layers if row.op == "kernel pyramid"]
    assert row.name == "levels" and row.where == "npu"
    assert row.macs == 2 * 20 * 24 * 9 * 12 * 12 and row.minimum_steps > 0


@pytest.mark.medium
def test_the_command_checks_a_model(tmp_path: Path) -> None:
    path = tmp_path / "pyramid.onnx"
    onnx.save(pyramid_model(dilations=[1, 2]), path)
    result = CliRunner().invoke(cli, ["run", str(path), "--kernels", str(FILE), "--check", "--config", "tiny"])
    assert result.exit_code == 0, result.output
    assert "equal" in result.output
    plain = CliRunner().invoke(cli, ["run", str(path)])
    assert plain.exit_code != 0
    assert "com.me::Pyramid 'levels' is of domain 'com.me'" in plain.output
    assert "others run by a kernel (`tilewright compile --kernels FILE`" in plain.output


@pytest.mark.medium
def test_a_schedule_with_a_kernel_is_given_back(tmp_path: Path) -> None:
    path, schedule = tmp_path / "pyramid.onnx", tmp_path / "pyramid.toml"
    onnx.save(pyramid_model(dilations=[1, 2]), path)
    command = ["schedule", str(path), "--kernels", str(FILE), "--config", "tiny", "-o", str(schedule)]
    result = CliRunner().invoke(cli, command)
    assert result.exit_code == 0, result.output
    kernels = load_kernels(FILE)
    given = tw.compile_program(path, "tiny", kernels=kernels, schedule=schedule)
    assert given.instructions == tw.compile_program(path, "tiny", kernels=kernels, tuning="off").instructions


@tk.kernel
def shrunk(k: tk.Chip, x: tk.Tensor, *, table: np.ndarray) -> tk.Tensor:
    y = k.tensor(x.shape)
    k.apply(k.load(x.at()), k.table(table), into=y.at())
    return y


@shrunk.runs("com.me::Shrink")
def _of_node(node: tk.NodeFacts) -> dict[str, Any]:
    x, y = node.tensors[0], node.output
    real = (np.arange(-128, 128) - x.zero_point) * x.scale
    small = np.sign(real) * np.maximum(np.abs(real) - node.attributes["by"], 0)
    return {"table": np.clip(np.rint(small / y.scale) + y.zero_point, -128, 127).astype(np.int8)}


@shrunk.reference
def _shrunk_in_numpy(x: np.ndarray, table: np.ndarray) -> np.ndarray:
    return np.asarray(table[x.astype(int) + 128])


def shrink_model(shape: list[int], behind: list[onnx.NodeProto] | None = None, dtype: Any = np.int8) -> onnx.ModelProto:
    """com.me::Shrink alone, with a step in front and others behind."""
    constants = {"s": np.float32(0.5), "z": dtype(2), "s2": np.float32(0.25), "z2": dtype(7)}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["f"]),
        helper.make_node("Shrink", ["f"], ["g"], "thin", domain="com.me", by=3.0),
    ]
    behind = behind or [
        helper.make_node("QuantizeLinear", ["g", "s2", "z2"], ["r"]),
        helper.make_node("DequantizeLinear", ["r", "s2", "z2"], ["y"]),
    ]
    return model_of(nodes + behind, {"x": (TensorProto.FLOAT, shape)}, {"y": (TensorProto.FLOAT, None)}, constants)


@pytest.mark.parametrize("shape", [[6, 20], [1, 5, 24], [1, 12, 3, 3]])
@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_shapes_and_types(shape: list[int], dtype: Any) -> None:
    x = np.random.default_rng(2).normal(0, 20, shape).astype(np.float32)
    program = tw.compile_program(shrink_model(shape, dtype=dtype), "tiny", kernels=[shrunk])
    found = tw.Device("functional").run(program, {"x": x})["y"]
    info = np.iinfo(dtype)
    steps = np.clip(np.rint(x / np.float32(0.5)) + 2, info.min, info.max) - 2
    real = np.sign(steps) * np.maximum(np.abs(steps * 0.5) - 3, 0)
    np.testing.assert_array_equal(found, (np.clip(np.rint(real / 0.25) + 7, info.min, info.max) - 7) * 0.25)


def test_a_node_of_bytes() -> None:
    @tk.kernel
    def negated(k: tk.Chip, x: tk.Tensor) -> tk.Tensor:
        y = k.tensor(x.shape)
        k.apply(k.load(x.at()), k.table([min(127, -v) for v in range(-128, 128)]), into=y.at())
        return y

    @negated.runs("com.me::Negate")
    def _(node: tk.NodeFacts) -> dict[str, Any] | None:
        assert node.tensors[0].scale is None and node.output.scale is None
        return {}

    node = helper.make_node("Negate", ["x"], ["y"], domain="com.me")
    model = model_of([node], {"x": (TensorProto.INT8, [4, 8])}, {"y": (TensorProto.INT8, [4, 8])}, {})
    x = np.arange(-16, 16, dtype=np.int8).reshape(4, 8)
    program = tw.compile_program(model, "tiny", kernels=[negated])
    np.testing.assert_array_equal(tw.Device("cycle").run(program, {"x": x})["y"], -x)


def _quantised_twice() -> list[onnx.NodeProto]:
    make = helper.make_node
    return [
        make("QuantizeLinear", ["g", "s", "z"], ["r"]), make("DequantizeLinear", ["r", "s", "z"], ["y"]),
        make("QuantizeLinear", ["g", "s2", "z2"], ["r2"]),
    ]  # fmt: skip


def _raising(node: tk.NodeFacts) -> dict[str, Any]:
    return {"table": node.attributes["wrong"]}  # HERE


def _alone(match: Callable[[tk.NodeFacts], Any]) -> tk.Kernel:
    made = tk.Kernel(shrunk.function)
    made.runs("com.me::Shrink")(match)
    return made


@pytest.mark.parametrize(
    "model, kernel, options, text",
    [
        (lambda: shrink_model([4, 8], [helper.make_node("Relu", ["g"], ["y"], "r")]), shrunk, {},
         "com.me::Shrink 'thin': its result 'g' goes to Relu 'r' as floats, but a kernel makes bytes: QuantizeLinear"),
        (lambda: shrink_model([4, 8], _quantised_twice()), shrunk, {}, "quantise its result 'g' with different scales"),
        (lambda: shrink_model([4, 8]), _alone(lambda node: None), {},
         r"com.me::Shrink 'thin': no kernel takes it \(asked: shrunk\)"),
        (lambda: shrink_model([4, 8]), _alone(_of_node), {},
         "'thin': the model does not say the shape of its result 'r'; give it there"),
        (lambda: shrink_model([4, 8]), _alone(_raising), {},
         r"test_nodes.py:\d+: shrunk for com.me::Shrink 'thin': KeyError: 'wrong'"),
        (lambda: shrink_model([4, 8]), _alone(lambda node: {"tables": 1}), {}, "shrunk needs table: its constants are"),
        (lambda: shrink_model([4, 8]), shrunk, {"cpu_only": True},
         "com.me::Shrink 'thin' is run by kernel shrunk on the NPU, or not at all: the NPU was switched off"),
        (lambda: shrink_model([3, 4, 8]), shrunk, {}, r"reads 'q' \[3, 4, 8\]; kernels read \[N, C, H, W\]"),
        (lambda: shrink_model([1, 8, 200, 200]), shrunk, {},
         r"kernel shrunk for 'thin': test_nodes.py:\d+: a tile of 80000 rows does not fit: ACT has 4096"),
    ],
)  # fmt: skip
def test_nodes_that_cannot_be(
    model: Callable[[], onnx.ModelProto], kernel: tk.Kernel, options: dict[str, Any], text: str
) -> None:
    with pytest.raises((CompileError, tk.KernelError), match=text):
        tw.compile_program(model(), "tiny", kernels=[kernel], **options)


def test_floats_in_front() -> None:
    node = helper.make_node("Shrink", ["x"], ["y"], "thin", domain="com.me")
    model = model_of([node], {"x": (TensorProto.FLOAT, [4, 8])}, {"y": (TensorProto.FLOAT, [4, 8])}, {})
    with pytest.raises(UnsupportedError, match="reads 'x', float32; kernels read int8 and uint8: QuantizeLinear and"):
        tw.compile_program(model, "tiny", kernels=[shrunk])


def test_known_ops_may_be_taken() -> None:
    @tk.kernel
    def clipped(k: tk.Chip, x: tk.Tensor, *, scale: float, zero_points: tuple[int, int]) -> tk.Tensor:
        steps = (np.arange(-128, 128) - zero_points[0]).clip(0)
        y, found = k.tensor(x.shape), numerics.requantize(steps, numerics.scale_bits(scale), zero_points[1], -128, 127)
        k.apply(k.load(x.at()), k.table(found), into=y.at())
        return y

    @clipped.runs("Relu")
    def _(node: tk.NodeFacts) -> dict[str, Any]:
        x, y = node.tensors[0], node.output
        assert y.shape == (4, 8)
        return {"scale": x.scale / y.scale, "zero_points": (x.zero_point, y.zero_point)}

    model = shrink_model([4, 8])
    relu = helper.make_node("Relu", ["f"], ["g"], "cut")
    model.graph.node[2].CopyFrom(relu)
    model.graph.value_info.append(helper.make_tensor_value_info("g", TensorProto.FLOAT, [4, 8]))
    program = tw.compile_program(model, "tiny", kernels=[clipped])
    assert "kernel clipped" in [row.op for row in program.layers]
    x = np.random.default_rng(3).normal(0, 9, (4, 8)).astype(np.float32)
    plain = tw.Device("functional").run(tw.compile_program(model, "tiny"), {"x": x})
    np.testing.assert_array_equal(tw.Device("functional").run(program, {"x": x})["y"], plain["y"])
