"""Mistakes at the command line that were once accepted in silence, ended as a fault, or were found after long work."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner, Result
from onnx import helper

from tests.common.onnx_models import model_of
from tilewright.cli import cli


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    onnx.save(model_of([helper.make_node("Relu", ["x"], ["y"])], {"x": [1, 4]}, {"y": [1, 4]}), "model.onnx")
    onnx.save(model_of([helper.make_node("Relu", ["x"], ["y"])], {"x": [1, 4]}, {}), "none.onnx")
    np.save("prompt.npy", np.zeros((1, 4), np.float32))
    Path("space.s").write_text("END\n")
    Path("empty.s").write_text("# nothing\n")
    Path("tiny.toml").write_text('base = "tiny"\n')
    Path("text.tflite").write_text("no model")
    os.symlink("model.onnx", "link.twp")
    return tmp_path


def tilewright(*arguments: str) -> Result:
    return CliRunner().invoke(cli, arguments, prog_name="tilewright")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("compile model.onnx -o model.onnx", "cannot write model.onnx: MODEL and --output name the same file"),
        ("compile model.onnx -o link.twp", "cannot write link.twp: MODEL and --output name the same file"),
        ("compile model.onnx -o a.twp --json ./a.twp", "cannot write a.twp: --output and --json name the same file"),
        ("compile model.onnx -o tiny.toml --config tiny.toml", "--output and --config name the same file"),
        ("run model.onnx prompt.npy --json prompt.npy", "FILES and --json name the same file"),
        ("run model.onnx --input x=prompt.npy --json prompt.npy", "--input and --json name the same file"),
        ("run model.onnx --backend cycle --timeline model.onnx", "MODEL and --timeline name the same file"),
        ("quantize model.onnx --calibration prompt.npy -o prompt.npy", "--calibration and --output name the same file"),
        ("asm space.s -o space.s", "FILE and --output name the same file"),
        ("info model.onnx --json model.onnx", "MODEL and --json name the same file"),
    ],
)
def test_what_is_read_is_not_overwritten(folder: Path, line: str, message: str) -> None:
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    result = tilewright(*line.split())
    assert result.exit_code == 2 and message in result.stderr, result.stderr
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_a_preset_is_no_file(folder: Path) -> None:
    for _ in range(2):
        assert tilewright("compile", "model.onnx", "-o", "tiny", "--config", "tiny").exit_code == 0


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("compile none.onnx -o a.twp", "none.onnx: the model has no outputs"),
        ("compile model.onnx -o a.twp --tuning none.log", "cannot read none.log: no such file"),
        ("compare base tiny --model model.onnx --tuning none.log", "cannot read none.log: no such file"),
        ("compile model.onnx -o a.twp --interval nan", "'nan' is not in the range 1<=x<=64"),
        ("explain model.onnx --clock nan", "'nan' is not in the range 0<x<=10000"),
        ("tune model.onnx --budget nan", "'nan' is not in the range x>=1.0"),
        ("asm empty.s -o a.bin", "empty.s holds no instruction"),
        ("run model.onnx --input x=", "input 'x=' names no file"),
        ("zoo widen text.tflite -o a.tflite", "text.tflite: not a TFLite model"),
        ("zoo build resnet8 -o a.onnx --set size=0", "resnet8: size must be a whole number from 1, or two of them"),
        ("zoo build resnet8 -o a.onnx --set classes=many", "resnet8: classes must be a whole number from 1, not 'ma"),
        ("zoo build resnet8 -o a.onnx --set batch_norm=1", "resnet8: batch_norm must be True or False, not 1"),
        ("zoo build mobilenet_v2 -o a.onnx --set alpha=-1", "mobilenet_v2: alpha must be a number above 0, not -1"),
        ("zoo build detector -o a.onnx --set activation=3", "detector: activation must be a word, not 3"),
        ("quantize model.onnx --calibration prompt.npy -o a.tflite", "of model.onnx comes another .onnx file"),
        ("quantize model.onnx --calibration prompt.npy -o a.onnx --check --metric nomod:f", "No module named 'nomod'"),
        ("bench --model .", "cannot read .: is a directory"),
    ],
)
def test_mistakes_are_said_at_once(folder: Path, line: str, message: str) -> None:
    before = {path.name for path in folder.iterdir()}
    result = tilewright(*line.split())
    assert result.exit_code == 2 and message in result.stderr, result.stderr
    assert result.stderr.count("\n") == 1 and {path.name for path in folder.iterdir()} == before


@pytest.mark.medium
def test_a_network_of_the_zoo_has_its_own_activation_beside_that_of_the_quantiser(folder: Path) -> None:
    line = "zoo build mobilenet_v1 --small -o a.onnx --activation uint8 --set activation=relu"
    assert tilewright(*line.split()).exit_code == 0


def test_a_folder_that_cannot_be_written_to_is_found_before_the_work(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "tilewright.common.store.os.access", lambda path, mode: not (mode & os.W_OK)
    )  # root may write anywhere
    result = tilewright("compile", "model.onnx", "-o", "a.twp")
    assert result.exit_code == 2 and "cannot write a.twp: Permission denied" in result.stderr
