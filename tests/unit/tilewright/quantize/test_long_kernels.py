"""Convolutions with more taps than the NPU's window."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

from tests.common.onnx_models import model_of
from tilewright.quantize import quantize
from tilewright.quantize.observe import run, session
from tilewright.quantize.prepare import prepare
from tilewright.quantize.verifying import verify_here


def _frames(taps: int, stride: int, length: int, **attributes: object) -> onnx.ModelProto:
    """Frames of a signal [1, 2, length] as 6 channels, as an exporter writes a Fourier transform."""
    random = np.random.default_rng(1)
    held = {"w": random.normal(size=(6, 2, taps)).astype(np.float32), "b": random.normal(size=6).astype(np.float32)}
    node = helper.make_node("Conv", ["x", "w", "b"], ["y"], "frames", strides=[stride], **attributes)
    return model_of([node], {"x": [1, 2, length]}, ["y"], held)


def _taps(model: onnx.ModelProto) -> list[int]:
    held = {x.name: list(x.dims) for x in model.graph.initializer}
    (conv,) = (node for node in model.graph.node if node.op_type == "Conv")
    return held[conv.input[1]][1:]


@pytest.mark.parametrize(
    "taps, stride, length, shape",
    [(512, 160, 1760, [64, 16]), (256, 128, 700, [256, 2]), (64, 64, 64, [128, 1]), (128, 96, 323, [64, 4])],
)
def test_taps_become_channels(taps: int, stride: int, length: int, shape: list[int]) -> None:
    """The function stays, also where the last samples are in no frame."""
    model = _frames(taps, stride, length)
    found = prepare(model)
    assert _taps(found) == shape
    sample = {"x": np.random.default_rng(2).normal(size=(1, 2, length)).astype(np.float32)}
    wanted, got = (run(session(m), sample)["y"] for m in (model, found))
    assert wanted.shape == got.shape and np.allclose(wanted, got, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(
    "taps, stride, more",
    [(63, 21, {}), (128, 3, {}), (256, 2, {}), (128, 64, {"pads": [1, 0]}), (128, 64, {"dilations": [2]})],
)
def test_what_stays(taps: int, stride: int, more: dict[str, object]) -> None:
    """Short kernels, strides without a common part, or too small a one; pads and dilations."""
    assert _taps(prepare(_frames(taps, stride, 600, **more))) == [2, taps]


def _convolution(shape: list[int], taps: list[int], **attributes: object) -> onnx.ModelProto:
    random = np.random.default_rng(1)
    group = int(str(attributes.get("group", 1)))
    held = {"w": random.normal(size=(6, shape[1] // group, *taps)), "b": random.normal(size=6)}
    node = helper.make_node("Conv", ["x", "w", "b"], ["y"], "conv", **attributes)
    return model_of([node], {"x": shape}, ["y"], {k: v.astype(np.float32) for k, v in held.items()})


#: Shape of the input, kernel, attributes, and the kernel in its place.
REACHING: list[tuple[list[int], list[int], dict[str, object], list[int]]] = [
    ([2, 4, 700], [3], {"dilations": [128]}, [4, 3, 1]),
    ([1, 4, 700], [3], {"dilations": [256], "pads": [512, 0], "group": 2}, [2, 3, 1]),
    ([1, 4, 300], [11], {"dilations": [32], "pads": [320, 320]}, [4, 11, 1]),
    ([2, 1, 100, 30], [96, 3], {"pads": [0, 1, 0, 1]}, [100, 3]),
    ([1, 2, 70, 12], [66, 3], {"pads": [3, 0, 1, 2], "strides": [2, 3]}, [140, 3]),
]


@pytest.mark.parametrize(("shape", "taps", "attributes", "made"), REACHING)
def test_what_reaches_far(shape: list[int], taps: list[int], attributes: dict[str, object], made: list[int]) -> None:
    """Dilations become rows of a plane, rows of a plane channels; the function stays, and runs on the NPU."""
    model = _convolution(shape, taps, **attributes)
    found = prepare(model)
    assert _taps(found) == made
    random = np.random.default_rng(2)
    samples = [{"x": random.normal(size=shape).astype(np.float32)} for _ in range(4)]
    wanted, got = (run(session(m), samples[0])["y"] for m in (model, found))
    assert wanted.shape == got.shape and np.allclose(wanted, got, rtol=1e-4, atol=1e-3)
    verified = verify_here(quantize(model, samples, check=False).model, samples[0])  # type: ignore
    assert verified.npu_macs == verified.macs > 0 and not verified.report.mismatches


@pytest.mark.parametrize(
    ("shape", "taps", "attributes"),
    [
        ([1, 4, 200], [3], {"dilations": [64]}),
        ([1, 4, 700], [3], {"dilations": [128], "strides": [2]}),
        ([1, 1, 200, 9], [96, 3], {}),
        ([1, 6, 100, 9], [96, 3], {"group": 3}),
    ],
)
def test_what_reaches_far_stays(shape: list[int], taps: list[int], attributes: dict[str, object]) -> None:
    """Dilations that the NPU walks, with strides; planes much larger than the kernel; groups."""
    assert _taps(prepare(_convolution(shape, taps, **attributes)))[1:] == taps


@pytest.mark.medium
def test_frames_run_on_the_npu() -> None:
    random = np.random.default_rng(3)
    samples = [{"x": random.normal(size=(1, 2, 1760)).astype(np.float32)} for _ in range(8)]
    verified = verify_here(quantize(_frames(512, 160, 1760), samples, check=False).model, samples[0])  # type: ignore
    assert verified.npu_macs == verified.macs > 0 and not verified.report.mismatches
