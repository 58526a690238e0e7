"""Files as ai-edge-quantizer writes them, against LiteRT."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from tests.common import needs

if find_spec("ai_edge_quantizer") is None:
    needs.skip(needs.AI_EDGE, "ai-edge-quantizer is not installed", module=True)

from ai_edge_quantizer import quantizer, recipe

import tilewright as tw
from tests.common.float_tflite import network
from tilewright.checking.litert_reference import LiteRtReference
from tilewright.quantize.tflite_prepare import prepare_tflite
from tilewright.runtime.inputs import random_inputs


@pytest.mark.parametrize(
    "name", ["static_wi8_ai8", "static_wi8_ai16", "weight_only_wi8_afp32", "weight_only_wi4_afp32"]
)
def test_recipe(name: str, tmp_path: Path) -> None:
    """int8 activations give LiteRT's bytes, all on the NPU, int16 ones on the CPU; int8 and int4 weights of a float
    network its floats."""
    r, path = np.random.default_rng(1), tmp_path / "float.tflite"
    path.write_bytes(prepare_tflite(network()))
    tool = quantizer.Quantizer(str(path), getattr(recipe, name)())
    samples = [{"inputs_0": r.normal(0, 1, (1, 8, 8, 3)).astype(np.float32)} for _ in range(8)]
    found = tool.calibrate({"serving_default": samples}) if tool.need_calibration else None
    data = bytes(tool.quantize(found).quantized_model)
    program = tw.compile(data, "base")
    inputs = random_inputs(program)
    with tw.Device("functional") as device:
        (got,) = device.run(program, inputs).values()
    (want,) = LiteRtReference(data).run(inputs).values()
    if name == "static_wi8_ai16":
        np.testing.assert_array_equal(got, want)
        assert program.npu_macs == 0 and any(note.startswith("16-bit activations: ") for note in program.notes)
    elif name == "static_wi8_ai8":
        assert program.npu_macs == program.macs
        np.testing.assert_array_equal(got, want)
    else:
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
