"""Float TFLite models that become quantised ONNX models."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner

from tests.common.float_tflite import RELU6, network
from tests.common.onnx_models import run
from tilewright.checking.litert_reference import LiteRtReference
from tilewright.cli import cli
from tilewright.errors import UsageError
from tilewright.quantize import quantize, tflite_floats
from tilewright.quantize.tflite_floats import as_onnx


def _samples(count: int) -> np.ndarray:
    return np.random.default_rng(1).normal(size=(count, 1, 8, 8, 3)).astype(np.float32)


def test_floats_are_those_of_litert() -> None:
    raw = network(RELU6)
    made = as_onnx(raw)
    onnx.checker.check_model(made, full_check=True)
    for x in _samples(3):
        np.testing.assert_allclose(run(made, {"x": x})["y"], LiteRtReference(raw).run({"x": x})["y"], atol=1e-5)


def test_quantised_as_an_onnx_model(tmp_path: Path) -> None:
    """All of it is on the NPU, near the floats of LiteRT; of the same file ai-edge-quantizer makes a TFLite model."""
    raw = network(RELU6)
    found = quantize(raw, _samples(24), as_onnx=True)
    assert found.verified is not None and found.verified.report.ok and found.verified.npu_macs == found.verified.macs
    x = np.random.default_rng(2).normal(size=(8, 1, 8, 8, 3)).astype(np.float32)
    wanted = np.stack([LiteRtReference(raw).run({"x": value})["y"] for value in x])
    error = wanted - np.stack([run(found.model, {"x": value})["y"] for value in x])  # type: ignore[union-attr]
    assert np.sum(wanted**2) > 1000 * np.sum(error**2)

    path, samples = tmp_path / "m.tflite", tmp_path / "x.npy"
    path.write_bytes(raw)
    np.save(samples, _samples(24))
    arguments = [path, "--calibration", samples, "-o", tmp_path / "q.onnx", "--activation", "uint8"]
    result = CliRunner().invoke(cli, ["quantize", *map(str, arguments)])
    assert result.exit_code == 0 and "uint8 activations" in result.stdout
    assert run(onnx.load(tmp_path / "q.onnx"), {"x": x[0]})["y"].shape == (1, 10)


def test_what_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """An operator that is not one of ONNX, and a model that another runtime computes otherwise."""
    raw = network(RELU6)
    imported = tflite_floats.import_tflite

    def other(*given: object) -> object:
        graph = imported(*given)  # type: ignore[arg-type]
        next(node for node in graph.nodes if node.op == "Add").op = "Sub"
        return graph

    monkeypatch.setattr(tflite_floats, "import_tflite", other)
    with pytest.raises(UsageError, match=r"another output 'y' than in LiteRT: give a \.tflite file as the output"):
        quantize(raw, _samples(4), as_onnx=True)

    def unknown(*given: object) -> object:
        graph = imported(*given)  # type: ignore[arg-type]
        graph.nodes[-1].op = "BoundedSlice"
        return graph

    monkeypatch.setattr(tflite_floats, "import_tflite", unknown)
    with pytest.raises(UsageError, match=r"\(BoundedSlice\) is not one of ONNX's operators"):
        quantize(raw, _samples(4), as_onnx=True)
