"""Trained TFLite networks against LiteRT: outputs and every quantised tensor, byte for byte."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import tilewright as tw
from tests.common.wide_network import widened
from tilewright.cli import cli
from tilewright.measure.mlperf_tiny import NETWORKS, measure

FILES = [*(f"mlperf_tiny/{file}" for _, file in NETWORKS), "imagenet/mobilenet_v2_1.0_224_ptq.tflite"]


@pytest.mark.parametrize("file", FILES)
def test_every_quantised_tensor(file: str, models_dir: Path) -> None:
    report = tw.check(models_dir / file, keep="all")
    assert report.ok, report.summary()
    assert not report.fused
    assert not [r.name for r in report.rows if r.status != "equal"]


@pytest.mark.parametrize("file", FILES[:4])
def test_the_same_with_16_bit_activations(file: str, models_dir: Path) -> None:
    """Every tensor, against LiteRT's reference kernels."""
    report = tw.check(widened((models_dir / file).read_bytes()), keep="all")
    assert report.ok, report.summary()
    assert report.quantised and not report.fused
    assert not [r.name for r in report.rows if r.status != "equal"]


def test_bytes_and_file_give_the_same(models_dir: Path) -> None:
    path = models_dir / FILES[0]
    assert tw.compile(path.read_bytes()).instructions == tw.compile(path).instructions


def test_mlperf_tiny(models_dir: Path) -> None:
    entries = measure(models_dir / "mlperf_tiny")
    assert [e["file"] for e in entries] == [file for _, file in NETWORKS]
    assert all(e["output_mismatches"] == 0 and e["top1_equal"] == e["inputs"] for e in entries)
    assert entries[0]["accuracy"] == entries[0]["reference_accuracy"] > 0.9


def test_command_line(models_dir: Path, tmp_path: Path) -> None:
    result = tmp_path / "result.json"
    arguments = ["run", str(models_dir / FILES[3]), "--check", "--json", str(result)]
    assert cli.main(arguments, standalone_mode=False) in (0, None)
    assert json.loads(result.read_text())["check"]["mismatches"] == 0
