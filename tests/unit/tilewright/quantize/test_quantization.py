"""Quantising float ONNX models: the command line, how calibration is cut, and mistakes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import helper, numpy_helper

import tilewright as tw
from tests.common import onnx_models
from tests.common.onnx_models import model_of
from tests.common.paths import ROOT
from tilewright.cli import cli
from tilewright.quantization import quantize_model
from tilewright.quantize.accuracy import Accuracy
from tilewright.quantize.model import quantize_onnx

DIGITS = ROOT / "examples" / "digits"


@pytest.fixture(scope="module")
def images() -> np.ndarray:
    return np.load(DIGITS / "digits_test.npz")["images"].astype(np.float32) / np.float32(16)


def two_inputs(batch: int | str) -> onnx.ModelProto:
    """y = x W + z"""
    weights = np.random.default_rng(0).standard_normal((6, 4)).astype(np.float32)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("Add", ["p", "z"], ["y"])]
    return model_of(nodes, {"x": [batch, 6], "z": [batch, 4]}, {"y": [batch, 4]}, {"w": weights}, opset=20)


@pytest.mark.slow
def test_command_line(tmp_path: Path, images: np.ndarray) -> None:
    """Quantise, compile, run; the bytes are those of onnxruntime on the quantised model."""
    np.save(tmp_path / "images.npy", images[:40])
    output = tmp_path / "int8.onnx"
    arguments = ["quantize", str(DIGITS / "digits_float.onnx"), "-o", str(output), "--json", "-"]
    result = CliRunner().invoke(cli, [*arguments, "--calibration", str(tmp_path / "images.npy")])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["bytes"] == output.stat().st_size
    session = onnx_models.session(output)
    program = tw.compile(output)
    assert program.npu_macs == program.macs
    for image in images[40:45]:
        found = tw.Device("functional").run(program, image[None])["output"]
        assert found.tobytes() == session.run(None, {"input": image[None]})[0].tobytes()


@pytest.mark.parametrize("batch", [1, 4, "n"])
def test_batches(batch: int | str) -> None:
    """However the samples are cut, the extremes are the same, and so is the model."""
    random = np.random.default_rng(1)
    samples = {"x": random.standard_normal((8, 6), np.float32), "z": random.standard_normal((8, 4), np.float32)}
    plain = Accuracy(ranges="minmax", fit=False)
    whole = quantize_model(two_inputs(batch), samples, accuracy=plain)
    size = batch if isinstance(batch, int) else 3
    runs = [{n: a[i : i + size] for n, a in samples.items()} for i in range(0, 8, size)]
    other = quantize_model(two_inputs(batch), runs, accuracy=plain)
    assert list(whole.graph.node) == list(other.graph.node)
    assert list(whole.graph.initializer) == list(other.graph.initializer)
    if batch == "n":  # an open batch becomes that of the samples, unless they differ
        dims = [made.graph.input[0].type.tensor_type.shape.dim[0] for made in (whole, other)]
        assert [dim.dim_value or dim.dim_param for dim in dims] == [1, "n"]
    else:
        assert whole == other
    (scale,) = (x for x in whole.graph.initializer if x.name == "x_scale")
    low, high = samples["x"].min(), samples["x"].max()
    np.testing.assert_allclose(numpy_helper.to_array(scale), (high - low) / 255, rtol=1e-6)


def test_ranges_hold_what_is_held_back() -> None:
    """The greatest value may be in a sample that nothing else is chosen by."""
    random = np.random.default_rng(1)
    samples = {"x": random.standard_normal((8, 6), np.float32), "z": random.standard_normal((8, 4), np.float32)}
    samples["x"][2] *= 9  # one of those held back
    plain = Accuracy(ranges="minmax", fit=False)
    found = quantize_onnx(two_inputs(1), samples, held_back=2, accuracy=plain, check=False)
    assert found.recipe.ranges["x"].high == samples["x"].max() and found.recipe.ranges["x"].low == samples["x"].min()


def test_mistakes(tmp_path: Path, images: np.ndarray) -> None:
    x, z = np.zeros((8, 6), np.float32), np.zeros((8, 4), np.float32)
    for calibration, message in [
        (x, "must be arrays by name"),
        ({"x": x}, "inputs are x, z"),
        ({"x": np.zeros((12, 6), np.float32), "z": z}, "as many samples"),
        ({"x": x.astype(np.int64), "z": z}, r"int64\[8, 6\]; the model takes float32\[4, 6\]"),
        ({"x": x[:, :5], "z": z}, r"float32\[8, 5\]"),
        ({"x": x[:3], "z": z[:3]}, "not one whole sample"),
        ([], "not one whole sample"),
    ]:
        with pytest.raises(tw.UsageError, match=message):
            quantize_model(two_inputs(4), calibration)  # type: ignore[arg-type]
    with pytest.raises(tw.UsageError, match="quantised already: it has DequantizeLinear"):
        quantize_model(DIGITS / "digits_int8.onnx", images)
    (tmp_path / "text.onnx").write_text("no model")
    for path, message in [(tmp_path / "none.onnx", "cannot read"), (tmp_path / "text.onnx", "is no ONNX model")]:
        with pytest.raises(tw.UsageError, match=message):
            quantize_model(path, images)
