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
from tests.common.tflite_models import Model, Op, T
from tilewright.checking.litert_reference import LiteRtReference
from tilewright.quantize.tflite_prepare import prepare_tflite
from tilewright.runtime.inputs import random_inputs


def network() -> bytes:
    """A convolution, a depthwise one beside it, and a product, in floats."""
    r = np.random.default_rng(0)
    constant = lambda name, *shape: T(name, shape, "float32", data=r.normal(0, 0.3, shape))
    inner = [T(name, (1, 8, 8, 16), "float32") for name in ("c", "d", "s")]
    tensors = [
        T("x", (1, 8, 8, 3), "float32"), constant("w", 16, 3, 3, 3), constant("b", 16), constant("v", 1, 3, 3, 16),
        constant("e", 16), constant("f", 10, 16), constant("g", 10), *inner, T("m", (1, 16), "float32"),
        T("axes", (2,), "int32", data=np.array([1, 2])), T("y", (1, 10), "float32"),
    ]  # fmt: skip
    window = {"StrideH": 1, "StrideW": 1}
    ops = [
        Op("CONV_2D", ["x", "w", "b"], ["c"], ("Conv2DOptions", {**window, "FusedActivationFunction": 1})),
        Op("DEPTHWISE_CONV_2D", ["c", "v", "e"], ["d"], ("DepthwiseConv2DOptions", {**window, "DepthMultiplier": 1})),
        Op("ADD", ["c", "d"], ["s"], ("AddOptions", {})),
        Op("MEAN", ["s", "axes"], ["m"], ("ReducerOptions", {})),
        Op("FULLY_CONNECTED", ["m", "f", "g"], ["y"], ("FullyConnectedOptions", {})),
    ]
    return prepare_tflite(Model(tensors, ops, ["x"], ["y"]).build())


@pytest.mark.parametrize(
    "name", ["static_wi8_ai8", "static_wi8_ai16", "weight_only_wi8_afp32", "weight_only_wi4_afp32"]
)
def test_recipe(name: str, tmp_path: Path) -> None:
    """int8 activations give LiteRT's bytes, all on the NPU, int16 ones on the CPU; int8 and int4 weights of a float
    network its floats."""
    r, path = np.random.default_rng(1), tmp_path / "float.tflite"
    path.write_bytes(network())
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
