"""Maxima and minima of integers on the NPU: onnxruntime's bytes in one step."""

from __future__ import annotations

import numpy as np
import pytest

from tests.reference.quantized_models import Model
from tests.unit.compiler.npu.rewrites.turns import compared, turns_of
from tilewright.isa.program import CpuStep, Program

CHANNELS = 20


def conv(m: Model, x: str, inputs: int, scale: float = 0.5, outputs: int = CHANNELS) -> str:
    zero = int(np.iinfo(m.dtype).min) + 120
    return m.requantized(m.op("Conv", x, m.weights((outputs, inputs, 1, 1))), scale, zero)


def simulated(m: Model, config: str) -> Program:
    """Returns the program, after both simulators gave onnxruntime's bytes."""
    return compared(m, config, ("functional", "cycle"), least=13)


def turns(m: Model, config: str) -> int:
    """Returns the number of NPU steps; between them the CPU only converts."""
    program = simulated(m, config)
    assert not any("Max" in o or "Min" in o for s in program.steps if isinstance(s, CpuStep) for o in s.ops)
    return turns_of(program)


@pytest.mark.medium
@pytest.mark.parametrize("config", ["tiny", "base"])
@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
@pytest.mark.parametrize("scales", [(0.5, 0.5), (0.5, 0.37)])
@pytest.mark.parametrize("op", ["Max", "Min"])
def test_of_two(op: str, scales: tuple[float, float], dtype: type, config: str) -> None:
    """QuantizeLinear is monotonic, so operands of different scales can be compared after it."""
    m = Model(dtype, seed=4)
    x = m.input((2, 8, 6, 7), 0.05)
    pair = [conv(m, x, 8, scale) for scale in scales]
    y = m.requantized(m.op(op, *pair), 0.5, int(np.iinfo(dtype).min) + 120)
    m.output(conv(m, y, CHANNELS, 0.5))
    assert turns(m, config) == 1


@pytest.mark.medium
@pytest.mark.parametrize("shape", [(CHANNELS, 1, 1), (1, CHANNELS, 6, 7)])
@pytest.mark.parametrize("op", ["Max", "Min"])
def test_of_a_constant(op: str, shape: tuple[int, ...]) -> None:
    m = Model(np.int8, seed=5)
    y = conv(m, m.input((2, 8, 6, 7), 0.05), 8)
    limit = m.const(m.rng.normal(0, 20, shape), np.float32)
    m.output(conv(m, m.requantized(m.op(op, limit, y), 0.6, 10), CHANNELS, 0.5))
    assert turns(m, "base") == 1


@pytest.mark.medium
def test_of_three_clamped() -> None:
    m = Model(np.uint8, seed=6)
    x = m.input((2, 8, 6, 7), 0.05)
    y = m.op("Relu", m.op("Max", *(conv(m, x, 8, scale) for scale in (0.5, 0.4, 0.6))))
    m.output(conv(m, m.requantized(y, 0.5, 90), CHANNELS, 0.5))
    assert turns(m, "base") == 1


@pytest.mark.medium
@pytest.mark.parametrize("config", ["tiny", "base"])
@pytest.mark.parametrize("axes", [[1], [2], [3], [2, 3], [1, 2], [1, 2, 3]])
@pytest.mark.parametrize("op", ["ReduceMax", "ReduceMin"])
@pytest.mark.parametrize("channels", [16, 20, 80])
def test_along_axes(op: str, axes: list[int], config: str, channels: int) -> None:
    m = Model([np.int8, np.uint8][channels == 16], seed=7)
    x = conv(m, m.input((2, 8, 6, 7), 0.05), 8, 0.5, channels)
    y = m.op(op, x, m.const(axes, np.int64), keepdims=1)
    m.output(conv(m, y, 1 if 1 in axes else channels, 0.5))
    assert turns(m, config) == 1


@pytest.mark.medium
@pytest.mark.parametrize("config", ["tiny", "base"])
@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
@pytest.mark.parametrize("shape", [(1, 1, 6, 7), (1, CHANNELS, 6, 7), (CHANNELS, 1, 1)])
@pytest.mark.parametrize("kind", ["x, constant", "constant, x", "x, least", "x, y"])
def test_where_a_mask_is_constant(kind: str, shape: tuple[int, ...], dtype: type, config: str) -> None:
    m = Model(dtype, seed=9)
    x = m.input((1, 8, 6, 7), 0.05)
    y = conv(m, x, 8)
    values = {"constant": -3.0, "least": -1e9}
    pair = [{"x": y, "y": ""}.get(k) or (conv(m, x, 8, 0.4) if k == "y" else m.const(values[k], np.float32))
            for k in kind.split(", ")]  # fmt: skip
    mask = m.const(m.rng.integers(0, 2, shape), bool)
    y = m.requantized(m.op("Where", mask, *pair), 0.6, int(np.iinfo(dtype).min) + 100)
    m.output(conv(m, y, CHANNELS, 0.5))
    assert turns(m, config) == 1


@pytest.mark.medium
@pytest.mark.parametrize("axis", [1, 2])
def test_of_rows(axis: int) -> None:
    m = Model(np.int8, seed=8)
    zero = 0
    x = m.requantized(m.op("MatMul", m.input((1, 12, 8), 0.05, 3), m.weights((8, 40))), 0.5, zero)
    y = m.op("ReduceMax", x, m.const([axis], np.int64), keepdims=1)
    m.output(m.requantized(m.op("MatMul", y, m.weights((40 if axis == 1 else 1, 60))), 0.02, zero))
    assert turns(m, "base") == 1


@pytest.mark.medium
@pytest.mark.parametrize("axes", [[1], [2, 3], [1, 3]])
def test_of_what_is_one_itself(axes: list[int]) -> None:
    m = Model(np.int8, seed=4)
    x = m.input((1, 8, 5, 7), 0.05)
    y = m.requantized(m.op("Max", conv(m, x, 8), conv(m, x, 8)), 0.5, -8)
    y = m.requantized(m.op("ReduceMax", y, m.const(axes, np.int64), keepdims=1), 0.5, -8)
    m.output(conv(m, y, 1 if 1 in axes else CHANNELS, 0.2, 40))
    assert turns(m, "base") == 1


@pytest.mark.medium
@pytest.mark.parametrize("scale", [0.5, 0.3])
@pytest.mark.parametrize("op", ["ReduceMax", "ReduceMin"])
def test_of_planes_with_their_channels_last(op: str, scale: float) -> None:
    """A transposed tensor that is read with another scale than it was written with goes to the host."""
    m = Model(np.int8, seed=7)
    x = m.op("Conv", m.input((2, 8, 6, 7), 0.05), m.weights((CHANNELS, 8, 1, 1)))
    zero = m.const(3, np.int8)
    x = m.op("Transpose", m.op("QuantizeLinear", x, m.const(0.5, np.float32), zero), perm=[0, 2, 3, 1])
    x = m.op("DequantizeLinear", x, m.const(scale, np.float32), zero)
    y = m.requantized(m.op(op, x, m.const([1, 2], np.int64), keepdims=1), scale, 3)
    m.output(conv(m, m.op("Transpose", y, perm=[0, 3, 1, 2]), CHANNELS, 0.5))
    if scale == 0.5:
        assert turns(m, "base") == 1
    else:
        simulated(m, "base")
