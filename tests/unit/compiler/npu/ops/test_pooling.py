"""Averages by LiteRT's rule: stored integers divided by their number, halves rounded away from zero."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.unit.compiler.npu.net import Net
from tilewright.compiler.graph.graph import Graph
from tilewright.compiler.npu.ops import unsupported_reason
from tilewright.compiler.pipeline import compile_graph
from tilewright.isa.config import PRESETS
from tilewright.isa.program import NpuStep
from tilewright.runtime.executor import Executor
from tilewright.simulator.functional import FunctionalDevice

BASE = PRESETS["base"]
MACHINES = {"base": BASE, "tiny": PRESETS["tiny"], "no window": BASE.with_(name="no window", depthwise=0)}


def pooled(dtype: Any, kernel: tuple[int, int], strides: tuple[int, int], size: tuple[int, int], whole: bool) -> Graph:
    """Returns a graph with an average of its operand's quantisation, as the rule requires."""
    net = Net()
    x = net.input((1, 5, *size), dtype)
    info, quant = np.iinfo(dtype), net.graph.tensor(x).quant
    limits = {"out_min": int(info.min) + 9, "out_max": int(info.max) - 7, "half_away": True, "quant": quant}
    if whole:
        return net.done(net.finish("QGlobalAveragePool", [x], (1, 5, 1, 1), dtype, **limits))
    out = tuple((s - k) // by + 1 for s, k, by in zip(size, kernel, strides))
    y = net.finish("QAveragePool", [x], (1, 5, *out), dtype, kernel=list(kernel), strides=list(strides), **limits)
    return net.done(y)


def average(x: np.ndarray, kernel: tuple[int, int], strides: tuple[int, int]) -> np.ndarray:
    """Returns the averages of windows by the rule, computed with integers."""
    view = np.lib.stride_tricks.sliding_window_view(x, kernel, (2, 3))[:, :, :: strides[0], :: strides[1]]
    sums, n = view.sum((4, 5), dtype=np.int64), kernel[0] * kernel[1]
    return np.sign(sums) * ((2 * np.abs(sums) + n) // (2 * n))


@pytest.mark.parametrize("machine", sorted(MACHINES))
@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
@pytest.mark.parametrize(
    ("kernel", "strides"), [((2, 2), (2, 2)), ((3, 2), (1, 1)), ((2, 5), (1, 2)), ((6, 8), (1, 1))]
)
def test_halves_are_rounded_away_from_zero(
    kernel: tuple[int, int], strides: tuple[int, int], dtype: Any, machine: str
) -> None:
    config, size, info = MACHINES[machine], (6, 8), np.iinfo(dtype)
    rng = np.random.default_rng(1)
    x = rng.integers(info.min, info.max + 1, (1, 5, *size)).astype(dtype)
    x[:, 1], x[:, 2] = info.min, info.max
    x[:, 3] = rng.integers(0, 3, size) - (0 if dtype is np.uint8 else 2)
    graph = pooled(dtype, kernel, strides, size, whole=kernel == size)
    wanted = np.clip(average(x, kernel, strides), int(info.min) + 9, int(info.max) - 7)
    program = compile_graph(graph, config)
    assert any(isinstance(step, NpuStep) for step in program.steps)
    found = Executor(program, FunctionalDevice(config)).run({graph.inputs[0]: x}).outputs[graph.outputs[0]]
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.medium
def test_windows_that_are_too_large_to_prove() -> None:
    for size, reason in (((128, 128), None), ((128, 129), "no float32 factor divides by a window of 16512 exactly")):
        graph = pooled(np.int8, (1, 1), (1, 1), size, whole=True)
        assert unsupported_reason(graph, graph.nodes[0], BASE) == reason
