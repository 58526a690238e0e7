"""A linear Resize to powers of two as many rows and columns has a scale with which the NPU's integers are exact."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

import tilewright as tw
from tests.common.onnx_models import model_of
from tests.unit.tilewright.quantize.networks import samples
from tilewright.isa.program import NpuStep
from tilewright.quantize import quantize
from tilewright.quantize.integers import parameters, power_of_two
from tilewright.quantize.recipe import Range


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
@pytest.mark.parametrize("ends", [(0, 3), (-3, 0), (-1, 1), (-0.1, 255), (-1e-3, 254.9), (0, 255), (-128, 127), (2, 5)])
def test_power_of_two(ends: tuple[float, float], dtype: type) -> None:
    """The least such scale, and nothing of the range saturates."""
    found = parameters(power_of_two(Range(*ends)), np.dtype(dtype))
    low, high = min(ends[0], 0), max(ends[1], 0)
    limits, step = np.iinfo(dtype), float(found.scale)
    assert np.frexp(step)[0] == 0.5
    assert (limits.min - found.zero_point) * step <= low and high <= (limits.max - found.zero_point) * step
    steps = np.ceil(2 * high / step) - np.floor(2 * low / step)
    assert steps > 255  # half the scale would not hold the range


def _network(mode: str, function: str) -> onnx.ModelProto:
    random, make = np.random.default_rng(0), helper.make_node
    held = {name: (random.normal(size=shape) / 3).astype(np.float32) for name, shape in
            {"w0": (12, 3, 3, 3), "w1": (5, 12, 1, 1)}.items()}  # fmt: skip
    held["scales"] = np.float32([1, 1, 2, 4])
    nodes = [
        make("Conv", ["x", "w0"], ["c0"], "conv0"),
        make(function, ["c0"], ["f"], "function"),
        make("Resize", ["f", "", "scales"], ["r"], "resize", mode="linear", coordinate_transformation_mode=mode),
        make("Conv", ["r", "w1"], ["y"], "conv1"),
    ]
    return model_of(nodes, {"x": [1, 3, 12, 12]}, ["y"], held)


@pytest.mark.medium
@pytest.mark.parametrize(("mode", "turns"), [("half_pixel", 1), ("asymmetric", 1), ("align_corners", 2)])
@pytest.mark.parametrize("function", ["LeakyRelu", "Sigmoid"])
def test_turns(mode: str, turns: int, function: str) -> None:
    made = quantize(_network(mode, function), samples(8), held_back=2)  # type: ignore[arg-type]
    assert made.verified is not None and made.verified.report.ok and made.noise is not None and made.noise.worst > 25
    assert sum(isinstance(step, NpuStep) for step in tw.compile(made.model).steps) == turns
