"""Models of odd shapes, options and scales on the command line: a result, or one line and the exit code of the docs."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from onnx import helper

from tests.common.onnx_models import model_of
from tests.common.tflite_models import Model as TfliteModel
from tests.common.tflite_models import Op, T, unary
from tests.reference.quantized_models import Model
from tilewright.cli import cli

Options = tuple[str, dict[str, Any]] | None


def refused(path: Path, *words: str) -> None:
    """`compile` ends with 2 and one line that has these words."""
    command = ["compile", str(path), "-o", str(path.with_suffix(".twp")), "--config", "tiny"]
    result = CliRunner().invoke(cli, command)
    assert result.exit_code == 2, (result.output, result.exception)
    (line,) = result.stderr.strip().splitlines()
    assert line.startswith("tilewright: error: ") and all(word in line for word in words), line
    assert not path.with_suffix(".twp").exists()


def softmax(x: list[int], y: list[int], dtype: str = "int8", scale: float = 0.1, options: Options = None) -> bytes:
    real = dtype == "float32"
    return unary(
        "SOFTMAX", T("x", x, dtype, None if real else scale, 0), T("y", y, dtype, None if real else 1 / 256, 0), options
    )


@pytest.mark.parametrize("dtype", ["int8", "uint8", "float32"])
@pytest.mark.parametrize(
    "x, y, words",
    [
        ([], [], ("SOFTMAX", "op 0")),
        ([0], [0], ("'x'", "[0]")),
        ([8, 0], [8, 0], ("'x'", "[8, 0]")),
        ([1, 8], [1, 7], ("SOFTMAX", "[1, 7]")),
        ([1, 8], [8], ("SOFTMAX", "[8]")),
        ([], [1], ("SOFTMAX",)),
    ],
)
def test_softmax_of_odd_shapes(tmp_path: Path, x: list[int], y: list[int], words: tuple[str, ...], dtype: str) -> None:
    (tmp_path / "m.tflite").write_bytes(softmax(x, y, dtype))
    refused(tmp_path / "m.tflite", *words)


@pytest.mark.parametrize("beta", [0.0, -1.0, float("nan"), float("inf")])
def test_softmax_of_another_beta(tmp_path: Path, beta: float) -> None:
    (tmp_path / "m.tflite").write_bytes(softmax([1, 8], [1, 8], options=("SoftmaxOptions", {"Beta": beta})))
    refused(tmp_path / "m.tflite", "SOFTMAX", f"beta={beta:g}; numbers above 0 are accepted")


@pytest.mark.parametrize("dtype", ["int16", "int32"])
def test_softmax_of_another_type(tmp_path: Path, dtype: str) -> None:
    (tmp_path / "m.tflite").write_bytes(softmax([1, 8], [1, 8], dtype))
    refused(tmp_path / "m.tflite")


@pytest.mark.parametrize("scale", [3e38, 1e-45, 0.0, -1.0, float("inf"), float("nan")])
@pytest.mark.parametrize("op", ["SOFTMAX", "LOGISTIC", "QUANTIZE"])
@pytest.mark.parametrize("where", ["x", "y"])
def test_scale_in_tflite(tmp_path: Path, op: str, scale: float, where: str) -> None:
    scales = {"x": 0.1, "y": 0.1, where: scale}
    data = unary(op, T("x", [1, 8], "int8", scales["x"], 0), T("y", [1, 8], "int8", scales["y"], 0))
    (tmp_path / "m.tflite").write_bytes(data)
    refused(tmp_path / "m.tflite", f"'{where}'", "scale")


@pytest.mark.parametrize("where", ["a", "b", "y"])
@pytest.mark.parametrize("op", ["ADD", "MUL", "CONCATENATION"])
def test_scale_of_a_pair_in_tflite(tmp_path: Path, op: str, where: str) -> None:
    scales = {"a": 0.1, "b": 0.1, "y": 0.1, where: 3e38}
    tensors = [T(name, [1, 4, 4, 8], "int8", scale, 0) for name, scale in scales.items()]
    (tmp_path / "m.tflite").write_bytes(TfliteModel(tensors, [Op(op, ["a", "b"], ["y"])], ["a", "b"], ["y"]).build())
    refused(tmp_path / "m.tflite", f"'{where}'", "3e+38")


@pytest.mark.parametrize("op", ["Add", "Mul", "Softmax", "Relu", "Sigmoid"])
def test_largest_scale_in_onnx(tmp_path: Path, op: str) -> None:
    """The largest scale is a float32 like any other: the bytes of onnxruntime, and no warning of overflow."""
    m = Model(np.int8, seed=1)
    x = m.input((1, 4, 6, 6), 3e38, 3)
    y = m.op(op, x, m.input((1, 4, 6, 6), 0.1, 0)) if op in ("Add", "Mul") else m.op(op, x)
    m.output(m.requantized(y, 3e38, 0))
    (tmp_path / "m.onnx").write_bytes(m.build().SerializeToString())
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        done = CliRunner().invoke(cli, ["run", str(tmp_path / "m.onnx"), "--config", "tiny", "--check"])
    assert done.exit_code == 0, done.output
    assert not seen and "Warning" not in done.stderr and "equal" in done.stdout


@pytest.mark.parametrize("scale", [0.0, -1.0])
def test_scale_of_zero_and_negative_scale_in_onnx(tmp_path: Path, scale: float) -> None:
    """onnxruntime runs them."""
    m = Model(np.int8, seed=1)
    m.output(m.requantized(m.op("Relu", m.input((1, 8), 0.1, 3)), scale, 0))
    (tmp_path / "m.onnx").write_bytes(m.build().SerializeToString())
    done = CliRunner().invoke(cli, ["run", str(tmp_path / "m.onnx"), "--config", "tiny", "--check"])
    assert done.exit_code == 0 and "equal" in done.stdout, done.output


@pytest.mark.parametrize("scale", [float("inf"), float("nan")])
def test_no_scale_in_onnx(tmp_path: Path, scale: float) -> None:
    m = Model(np.int8, seed=1)
    m.output(m.requantized(m.op("Softmax", m.input((1, 8), 0.1, 3)), scale, 0))
    (tmp_path / "m.onnx").write_bytes(m.build().SerializeToString())
    refused(tmp_path / "m.onnx", "QuantizeLinear", "scale")


@pytest.mark.parametrize("equation", ["abcd,abed->a\u00e3e", "abcd,abed->aabe", "abcd,abe->abce", "abcd->abcd"])
def test_equation_of_an_einsum(tmp_path: Path, equation: str) -> None:
    model = model_of(
        [helper.make_node("Einsum", ["x", "x"], ["y"], equation=equation)], {"x": (1, 4, 8, 8)}, {"y": (1, 4, 8, 8)}
    )
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    refused(tmp_path / "m.onnx", "Einsum")
