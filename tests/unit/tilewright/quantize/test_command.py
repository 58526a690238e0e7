"""`tilewright quantize` as a user calls it, and the one line that says what to do where it cannot go on."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner, Result
from onnx import helper
from PIL import Image

from tests.common import onnx_models
from tests.common.onnx_models import model_of
from tests.common.paths import ROOT
from tests.common.tflite_models import Model, Op, T
from tilewright.cli import cli
from tilewright.common.installation import install_extra
from tilewright.quantize.metric import top1

DIGITS = ROOT / "examples" / "digits"


def run(*arguments: object) -> Result:
    return CliRunner().invoke(cli, ["quantize", *map(str, arguments)])


@pytest.fixture
def digits(tmp_path: Path) -> Path:
    """40 digits with labels in `tmp_path`."""
    data = np.load(DIGITS / "digits_test.npz")
    np.save(tmp_path / "images.npy", data["images"][:40].astype(np.float32) / 16)
    np.save(tmp_path / "labels.npy", data["labels"][:40])
    (tmp_path / "labels.txt").write_text("\n".join(map(str, data["labels"][:40])))
    return tmp_path


@pytest.mark.medium
@pytest.mark.parametrize("form", ["qdq", "qoperator"])
def test_result_runs(digits: Path, form: str) -> None:
    """Both runtimes have run the file that is written."""
    model, output = DIGITS / "digits_float.onnx", digits / "int8.onnx"
    result = run(model, "--calibration", digits / "images.npy", "-o", output, "--json", "-", "--form", form)
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["bytes"] == output.stat().st_size and found["quantize_nodes"] > 5
    assert found["verified"]["check"]["equal"] and found["verified"]["npu_macs"] == found["verified"]["macs"] > 0
    onnx_models.session(output)


@pytest.mark.slow
def test_accuracy_options(digits: Path) -> None:
    """Each has its effect on the result, or is one line."""
    model, output = DIGITS / "digits_float.onnx", digits / "int8.onnx"
    first = onnx.load(model).graph.node[0]
    common = [model, "--calibration", digits / "images.npy", "-o", output, "--json", "-", "--no-fit"]

    def layers(*options: object) -> dict[str, str]:
        result = run(*common, *options)
        assert result.exit_code == 0, result.output
        return {row["op"]: row["precision"] for row in json.loads(result.stdout)["sqnr"]["layers"]}

    assert layers("--ranges", "minmax", "--target", 0)[first.op_type] == "int8"
    assert layers("--ranges", "percentile", "--target", 0, "--keep-float", first.op_type)[first.op_type] == "float"
    assert layers("--ranges", "entropy", "--target", 0, "--int16", "Gemm")["Gemm"] == "int16"
    plot = digits / "pareto.svg"
    assert layers("--fastest", "--pareto-plot", plot)[first.op_type] == "int8" and "equalised" in plot.read_text()
    result = run(*common, "--fastest", "--target", 30)
    assert result.exit_code == 2 and "give one of --target, --fastest and --best" in result.output
    result = run(*common[:-3], "--no-fit", "--best", "--held-back", 8)
    assert result.exit_code == 0 and "int8 everywhere: " in "".join(result.stdout.splitlines()[-2:]), result.output
    result = run(*common, "--keep-float", "no such node")
    assert result.exit_code == 2 and "no layer that can be quantised has a node 'no such node'" in result.output
    result = run(*common, "--sqnr-plot", digits / "plot.gif")
    assert result.exit_code == 2 and "ends in .png or .svg" in result.output


@pytest.mark.medium
@pytest.mark.parametrize("labels", ["labels.npy", "labels.txt", None])
def test_metric(digits: Path, labels: str | None) -> None:
    arguments = ["--calibration", digits / "images.npy", "-o", digits / "int8.onnx", "--check", "--held-back", 12]
    arguments += ["--no-fit"] if labels != "labels.npy" else []
    arguments += ["--labels", digits / labels] if labels else []
    result = run(DIGITS / "digits_float.onnx", *arguments, "--json", "-")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)["check"]
    assert found["samples"] == 12 and found["labels"] == bool(labels) and found["metric"] == "top1"
    assert found["before"] >= 0.9 and found["after"] >= 0.9


@pytest.mark.medium
def test_own_metric(digits: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (digits / "own_metric.py").write_text(
        "def error(outputs, labels):\n"
        "    return max(abs(a['output'] - b['output']).max() for a, b in zip(outputs, labels))\n"
        "def broken(outputs, labels):\n    return outputs['none']\n"
    )
    monkeypatch.chdir(digits)
    arguments = [DIGITS / "digits_float.onnx", "--calibration", "images.npy", "-o", "int8.onnx", "--no-fit"]
    arguments += ["--check", "--metric"]
    result = run(*arguments, "own_metric:error")
    assert result.exit_code == 0, result.output
    assert "own_metric:error: 0 before" in result.stdout
    for name, message in [
        ("own_metric:none", "--metric own_metric:none: module 'own_metric' has no attribute 'none'"),
        ("top5", "--metric top5: must be top1 or module:function"),
        ("own_metric:broken", "--metric own_metric:broken failed: TypeError"),
    ]:
        assert message in run(*arguments, name).stderr


def test_top1() -> None:
    scores = lambda *rows: {"y": np.array(rows, np.float32)}
    outputs = [scores([0, 1], [1, 0]), scores([0, 1], [0, 1])]
    assert top1(outputs, [np.array([1, 0]), np.array([0, 1])]) == 0.75
    assert top1(outputs, outputs) == 1
    maps = {"y": np.zeros((1, 3, 2, 2), np.float32)}
    maps["y"][0, 2] = 1
    assert top1([maps], [np.full((2, 2), 2)]) == 1


@pytest.mark.medium
def test_images(tmp_path: Path) -> None:
    """A folder of images, for an old operator set with open sizes of no name."""
    for i in range(6):
        pixels = np.random.default_rng(i).integers(0, 256, (20, 30 + i, 3), np.uint8)
        Image.fromarray(pixels).save(tmp_path / f"{i}.png")
    w = np.random.default_rng(0).standard_normal((4, 3, 3, 3)).astype(np.float32)
    nodes = [helper.make_node("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1]), helper.make_node("Relu", ["a"], ["y"])]
    model = model_of(nodes, {"x": ["?", 3, "?", "?"]}, {"y": ["?", 4, "?", "?"]}, {"w": w}, opset=11)
    onnx.save(model, tmp_path / "m.onnx")
    common = [tmp_path / "m.onnx", "--calibration", tmp_path, "-o", tmp_path / "int8.onnx"]
    assert "leaves the image size of 'x' open" in run(*common).stderr
    (tmp_path / "m.onnx").rename(tmp_path.parent / "m.onnx")
    common[0] = tmp_path.parent / "m.onnx"
    result = run(*common, "--resize", "16x?", "--mean", "0.5,0.5,0.5", "--std", "0.5", "--bgr")
    assert result.exit_code == 0 and "equal" in result.stdout, result.output
    for arguments, message in [
        (["--resize", "16"], "must be height and width"),
        (["--mean", "a"], "must be one number"),
        (["--image-range", "0..1", "--mean", "0.5"], "give --image-range, or --mean and --std"),
        (["--metric", "top1"], "belong to --check"),
    ]:
        result = run(*common, *arguments)
        assert result.exit_code == 2 and message in result.stderr


def test_nothing_to_quantise(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.ones((4, 3), np.float32))
    for model, message in [
        (model_of([helper.make_node("Relu", ["x"], ["y"])], {"x": [1, 3]}, ["y"]), "has no Conv, Gemm or MatMul"),
        (
            model_of([helper.make_node("Unknown", ["x"], ["y"])], {"x": [1, 3]}, {"y": [1, 3]}),
            "onnxruntime cannot load",
        ),
    ]:
        onnx.save(model, tmp_path / "m.onnx")
        result = run(tmp_path / "m.onnx", "--calibration", tmp_path / "x.npy", "-o", tmp_path / "q.onnx")
        assert result.exit_code == 2 and message in result.stderr and len(result.stderr.splitlines()) == 1
        assert not (tmp_path / "q.onnx").exists()


def float_tflite() -> bytes:
    random = np.random.default_rng(0)
    w, b = random.standard_normal((8, 6)).astype(np.float32), random.standard_normal(8).astype(np.float32)
    tensors = [T("x", [1, 6], "float32"), T("w", [8, 6], "float32", data=w), T("b", [8], "float32", data=b),
               T("y", [1, 8], "float32")]  # fmt: skip
    op = Op("FULLY_CONNECTED", ["x", "w", "b"], ["y"], ("FullyConnectedOptions", {}))
    return Model(tensors, [op], ["x"], ["y"]).build()


def test_tflite(tmp_path: Path) -> None:
    """Quantised by ai-edge-quantizer, or a line that names the extra."""
    (tmp_path / "m.tflite").write_bytes(float_tflite())
    np.save(tmp_path / "x.npy", np.random.default_rng(1).standard_normal((12, 6)).astype(np.float32))
    arguments = [tmp_path / "m.tflite", "--calibration", tmp_path / "x.npy", "-o", tmp_path / "q.tflite", "--check"]
    result = run(*arguments, "--json", "-")
    if importlib.util.find_spec("ai_edge_quantizer") is None:
        assert result.exit_code == 2 and install_extra("tflite") in result.stderr
        return
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["verified"]["check"]["equal"] and found["check"]["after"] >= 2 / 3
    assert list(found["sqnr"]["outputs"]) == ["y"] and found["sqnr"]["outputs"]["y"] > 10
    again = run(tmp_path / "q.tflite", *arguments[1:4], tmp_path / "r.tflite")
    assert "quantised already" in again.stderr


@pytest.mark.medium
def test_value_and_check(tmp_path: Path) -> None:
    """An input that is fixed is none of the model before, either; other shapes than the file has."""
    w = np.random.default_rng(0).standard_normal((4, 3, 1, 1)).astype(np.float32)
    nodes = [helper.make_node("Conv", ["x", "w"], ["a"]), helper.make_node("Mul", ["a", "gain"], ["y"])]
    model = model_of(nodes, {"x": [10, 3, 4, 4], "gain": np.zeros((), np.float32)}, ["y"], {"w": w}, opset=17)
    onnx.save(model, tmp_path / "m.onnx")
    x = np.random.default_rng(1).standard_normal((8, 1, 3, 6, 6)).astype(np.float32)
    np.savez(tmp_path / "x.npz", x=x, gain=np.float32(3))
    arguments = [tmp_path / "m.onnx", "--calibration", tmp_path / "x.npz", "-o", tmp_path / "q.onnx"]
    assert "--shape x=... changes sizes that the file has fixed" in run(*arguments).stderr
    result = run(*arguments, "--shape", "x=1,3,6,6", "--value", "gain=3", "--check", "--json", "-")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["check"]["before"] == 1
    assert [i.name for i in onnx.load(tmp_path / "q.onnx").graph.input] == ["x"]
