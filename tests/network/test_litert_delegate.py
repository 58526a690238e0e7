"""Trained TFLite networks inside LiteRT, with the delegate and without: the same bytes."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
from tests.common import needs
from tilewright.litert import reports
from tilewright.measure.mlperf_tiny import NETWORKS

if find_spec("ai_edge_litert") is None:
    needs.skip(needs.LITERT, "ai-edge-litert is not installed", module=True)

from ai_edge_litert.interpreter import Interpreter, load_delegate

FILES = [
    *(pytest.param(f"mlperf_tiny/{file}", marks=[pytest.mark.long] * ("vww" in file)) for _, file in NETWORKS),
    pytest.param("imagenet/mobilenet_v2_1.0_224_ptq.tflite", marks=pytest.mark.long),
]


@pytest.mark.parametrize("file", FILES)
def test_bytes_of_litert(file: str, models_dir: Path) -> None:
    """All products on the NPU, in one part."""
    path = str(models_dir / file)
    plain = Interpreter(path)
    ours = Interpreter(path, experimental_delegates=[load_delegate(tw.litert_delegate())])
    report = reports()[-1]
    assert report.parts == 1 and report.npu_macs == report.macs > 0
    assert not [name for name in report.reasons if "CONV" in name or "FULLY" in name]
    r = np.random.default_rng(0)
    for interpreter in (plain, ours):
        interpreter.allocate_tensors()
    for _ in range(2):
        results = []
        for detail in plain.get_input_details():
            info = np.iinfo(detail["dtype"])
            value = r.integers(info.min, info.max + 1, detail["shape"]).astype(detail["dtype"])
            for interpreter in (plain, ours):
                interpreter.set_tensor(detail["index"], value)
        for interpreter in (plain, ours):
            interpreter.invoke()
            results.append([interpreter.get_tensor(x["index"]) for x in interpreter.get_output_details()])
        for expected, found in zip(*results, strict=True):
            np.testing.assert_array_equal(found, expected)
