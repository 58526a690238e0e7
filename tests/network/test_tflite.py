"""Trained TFLite networks against LiteRT: outputs and every quantised tensor, byte for byte."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import tilewright as tw
from tilewright.cli import cli
from tilewright.isa.config import preset
from tilewright.measure.mlperf_tiny import NETWORKS, measure
from tilewright.quantize.tflite_sixteen import widened

FILES = [*(f"mlperf_tiny/{file}" for _, file in NETWORKS), "imagenet/mobilenet_v2_1.0_224_ptq.tflite"]


#: Trained networks that take long, beside one of the same layers: keyword spotting is depthwise too.
LARGE = {FILES[2], FILES[4]}


def marked(files: list[str], large: set[str]) -> list[object]:
    return [pytest.param(file, marks=[pytest.mark.long] * (file in large)) for file in files]


@pytest.mark.parametrize("file", marked(FILES, LARGE))
def test_every_quantised_tensor(file: str, models_dir: Path) -> None:
    report = tw.check(models_dir / file, keep="all")
    assert report.ok, report.summary()
    assert not report.fused
    assert not [r.name for r in report.rows if r.status != "equal"]


@pytest.mark.parametrize("wide_results", [pytest.param(0, marks=pytest.mark.long), 1])
@pytest.mark.parametrize("file", marked(FILES[:4], {FILES[1], FILES[2]}))
def test_the_same_with_16_bit_activations(file: str, wide_results: int, models_dir: Path) -> None:
    """Every tensor, against LiteRT's reference kernels; on the CPU, and with the convolutions on the NPU."""
    config = preset("base").with_(wide_results=wide_results)
    report = tw.check(widened((models_dir / file).read_bytes()), config=config, keep="all")
    assert report.ok, report.summary()
    assert report.quantised and not report.fused
    assert not [r.name for r in report.rows if r.status != "equal"]


def test_bytes_and_file_give_the_same(models_dir: Path) -> None:
    path = models_dir / FILES[3]
    assert tw.compile(path.read_bytes()).instructions == tw.compile(path).instructions


@pytest.mark.parametrize(
    "files",
    [["kws_dscnn_int8.tflite"], pytest.param([file for _, file in NETWORKS], marks=pytest.mark.long)],
    ids=["keyword spotting", "all"],
)
def test_mlperf_tiny(files: list[str], models_dir: Path, tmp_path: Path) -> None:
    """Every file in the folder is measured."""
    for file in (*files, "kws_inputs.npz"):
        shutil.copy(models_dir / "mlperf_tiny" / file, tmp_path)
    entries = measure(tmp_path)
    assert [e["file"] for e in entries] == files
    assert all(e["output_mismatches"] == 0 and e["top1_equal"] == e["inputs"] for e in entries)
    assert entries[0]["accuracy"] == entries[0]["reference_accuracy"] > 0.9


@pytest.mark.long
def test_mlperf_tiny_with_16_bits(models_dir: Path) -> None:
    """Networks of 16 bits take about twice the cycles of bytes, and recognise the real inputs as often."""
    config = preset("base").with_(wide_results=1)
    eight = measure(models_dir / "mlperf_tiny", config)
    sixteen = measure(models_dir / "mlperf_tiny", config, activation="int16")
    assert not any(e["output_mismatches"] for e in sixteen)
    assert sixteen[0]["accuracy"] == sixteen[0]["reference_accuracy"] > 0.9
    assert all(1.5 * a["cycles"] < b["cycles"] < 2.1 * a["cycles"] for a, b in zip(eight[:3], sixteen[:3], strict=True))
    assert sixteen[3]["cycles"] == 0  # fully connected layers alone


def test_command_line(models_dir: Path, tmp_path: Path) -> None:
    result = tmp_path / "result.json"
    arguments = ["run", str(models_dir / FILES[3]), "--check", "--json", str(result)]
    assert cli.main(arguments, standalone_mode=False) in (0, None)
    assert json.loads(result.read_text())["check"]["mismatches"] == 0
