"""Means and sums over any axes, and operands of one channel, in one step of the NPU."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tests.network.layer_cases.case import move, small_conv
from tests.reference import quantized_ops
from tests.reference.quantized_models import Model
from tests.unit.compiler.npu.net import Net
from tests.unit.compiler.npu.rewrites.turns import compared, turns_of
from tilewright.compiler.graph.graph import Quant
from tilewright.compiler.pipeline import compile_graph
from tilewright.isa.config import PRESETS
from tilewright.isa.program import CpuStep, NpuStep
from tilewright.runtime.executor import Executor
from tilewright.simulator.functional import FunctionalDevice

CHANNELS = 20


def conv(m: Model, x: str, inputs: int, scale: float = 0.5, outputs: int = CHANNELS) -> str:
    return m.requantized(m.op("Conv", x, m.weights((outputs, inputs, 1, 1))), scale, int(np.iinfo(m.dtype).min) + 120)


def turns(m: Model, config: str, least: int = 13) -> int:
    """Returns the number of NPU steps, after both simulators gave onnxruntime's bytes, with `least` distinct ones."""
    return turns_of(compared(m, config, ("functional", "cycle"), least))


SHAPE = (1, 15, 5, 7)


@pytest.mark.medium
@pytest.mark.parametrize("config", ["tiny", "base"])
@pytest.mark.parametrize("keep", [0, 1])
@pytest.mark.parametrize("axes", [[1], [2], [3], [2, 3], [1, 2], [1, 3], [1, 2, 3]])
@pytest.mark.parametrize("op", ["ReduceMean", "ReduceSum"])
def test_of_planes(op: str, axes: list[int], keep: int, config: str) -> None:
    """Floats whose scales are powers of two are exact, and a mean of an odd number of elements is no tie."""
    m = Model([np.int8, np.uint8][keep], seed=7)
    zero = int(np.iinfo(m.dtype).min) + 117
    x = m.requantized(m.op("Conv", m.input((1, 8, *SHAPE[2:]), 0.05), m.weights((SHAPE[1], 8, 1, 1))), 0.25, zero)
    n = int(np.prod([SHAPE[a] for a in axes]))
    y = m.op(op, x, m.const(axes, np.int64), keepdims=keep)
    y = m.requantized(y, 0.25 * (n if op == "ReduceSum" else 1), zero)
    if not keep:
        y = m.op("Reshape", y, m.const([1 if a in axes else s for a, s in enumerate(SHAPE)], np.int64))
    kept = 1 if 1 in axes else SHAPE[1]
    m.output(m.requantized(m.op("Conv", y, m.weights((40, kept, 1, 1))), 0.02 if op == "ReduceMean" else 2.0, zero))
    assert turns(m, config) == 1


@pytest.mark.medium
@pytest.mark.parametrize("keep", [0, 1])
@pytest.mark.parametrize("axes", [[1], [2]])
def test_of_rows(axes: list[int], keep: int) -> None:
    m = Model(np.int8, seed=8)
    shape = (1, 11, 35)
    x = m.requantized(m.op("MatMul", m.input((1, 11, 8), 0.05, 3), m.weights((8, 35))), 0.25, 3)
    y = m.requantized(m.op("ReduceMean", x, m.const(axes, np.int64), keepdims=keep), 0.25, 3)
    if not keep:
        y = m.op("Reshape", y, m.const([1 if a in axes else s for a, s in enumerate(shape)], np.int64))
    m.output(m.requantized(m.op("MatMul", y, m.weights((1 if 2 in axes else 35, 40))), 0.02, 0))
    assert turns(m, "base") == 1


@pytest.mark.medium
def test_a_sum_whose_ties_floats_decide_says_so() -> None:
    m = Model(np.int8, seed=7)
    x = conv(m, m.input((1, 8, 6, 6), 0.05), 8, 0.3)
    y = m.requantized(m.op("ReduceSum", x, m.const([1], np.int64)), 2.0, 0)
    m.output(y)
    report = tw.check(m.build(), m.feeds(), config="base", cache=False)
    assert report.ok and any("in floats" in row.reason for row in report.rows), report.rows


@pytest.mark.medium
@pytest.mark.parametrize("config", ["tiny", "base"])
@pytest.mark.parametrize("op", ["Mul", "Add", "Max"])
def test_one_channel_for_all(op: str, config: str) -> None:
    """A gate of one channel applies to all channels of a pixel, as in spatial attention."""
    m = Model(np.int8, seed=9)
    x = conv(m, m.input((2, 8, 6, 7), 0.05), 8, 0.1)
    gate = m.requantized(m.op("Sigmoid", conv(m, x, CHANNELS, 0.02, 1)), 0.01, -128)
    pair = (x, gate) if op != "Max" else (gate, x)
    m.output(conv(m, m.requantized(m.op(op, *pair), 0.083, 5), CHANNELS, 0.05))
    assert turns(m, config) == 1


@pytest.mark.medium
def test_one_column_for_all() -> None:
    """A gate of one column applies to all columns of a row."""
    m = Model(np.int8, seed=9)
    x = m.requantized(m.op("MatMul", m.input((1, 12, 8), 0.05, 3), m.weights((8, 40))), 0.1, 0)
    gate = m.requantized(m.op("Sigmoid", m.requantized(m.op("MatMul", x, m.weights((40, 1))), 0.02, 0)), 1 / 256, -128)
    y = m.requantized(m.op("Mul", x, gate), 0.1, 5)
    m.output(m.requantized(m.op("MatMul", y, m.weights((40, 24))), 0.05, 0))
    assert turns(m, "base") == 1


@pytest.mark.medium
def test_spatial_attention() -> None:
    """CBAM runs in one step: mean and maximum over channels, concatenated, convolved, and a gate for each pixel."""
    m = Model(np.uint8, seed=10)
    x = conv(m, m.input((1, 8, 12, 12), 0.05), 8, 0.25, 15)
    axis = m.const([1], np.int64)
    mean = m.requantized(m.op("ReduceMean", x, axis, keepdims=1), 0.25, 120)
    most = m.op("ReduceMax", x, axis, keepdims=1)
    both = m.requantized(m.op("Concat", mean, m.requantized(most, 0.25, 120), axis=1), 0.25, 120)
    gate = m.requantized(m.op("Conv", both, m.weights((1, 2, 7, 7)), pads=[3] * 4), 0.05, 128)
    gate = m.requantized(m.op("Sigmoid", gate), 1 / 256, 0)
    m.output(conv(m, m.requantized(m.op("Mul", x, gate), 0.1, 128), 15, 0.05))
    assert turns(m, "base") == 1


def test_of_what_the_cpu_makes_stays_what_it_is() -> None:
    net = Net()
    x = net.plane(16, 8)
    made = net.finish("QGlobalAveragePool", [net.reshape(net.transpose(x, 0, 2, 3, 1), 1, 64, 16)], (1, 64), np.int8,
                      keepdims=False)  # fmt: skip
    program = compile_graph(net.done(made), PRESETS["base"])
    assert not any("QConv" in layer.name for layer in program.layers)
    assert all(isinstance(step, (NpuStep, CpuStep)) for step in program.steps)


@pytest.mark.medium
@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
@pytest.mark.parametrize("shape", [(1, 12, 40), (2, 3, 5, 40)])
def test_linear_layers_of_rows(shape: tuple[int, ...], dtype: type) -> None:
    """MatMul and Add without a node between become one integer product with onnxruntime's bytes."""
    m = Model(dtype, seed=2)
    y = m.input(shape, 0.05)
    for inputs, outputs in ((40, 72), (72, 24)):
        bias = m.const(m.rng.normal(size=outputs), np.float32)
        y = m.requantized(m.op("Add", m.op("MatMul", y, m.weights((inputs, outputs))), bias), 0.1)
    m.output(y)
    program = tw.compile_program(m.build(), "base", cache=False)
    assert not any("MatMul" in o for step in program.steps if isinstance(step, CpuStep) for o in step.ops)
    assert turns(m, "base") == 1


@pytest.mark.medium
@pytest.mark.parametrize(("rows", "weights", "bias"), [
    ((5, 40, 32), (32, 64), (1, 64)),  # floats in onnxruntime
    ((4, 16), (16, 1), (8,)),  # the Add makes more columns
    ((4, 16), (16, 8), (1, 1, 8)),  # and more dimensions
])  # fmt: skip
def test_a_bias_that_onnxruntime_does_not_fuse(
    rows: tuple[int, ...], weights: tuple[int, ...], bias: tuple[int, ...]
) -> None:
    m = Model(np.int8, seed=2)
    y = m.op("MatMul", m.input(rows, 0.05), m.weights(weights))
    m.output(m.requantized(m.op("Add", y, m.const(m.rng.normal(size=bias), np.float32)), 0.02))
    assert turns(m, "base", 2) == 0


@pytest.mark.medium
@pytest.mark.parametrize(("op", "shape", "axes"), [
    ("ReduceMean", (1, 4, 168), [2]),
    ("ReduceMean", (1, 16, 6, 7, 1), [2]),
    ("ReduceSum", (1, 4, 4, 6, 7), [2, 3, 4]),
    ("ReduceMean", (1, 4, 4, 6, 7), [-3]),
])  # fmt: skip
def test_parts_of_an_axis(op: str, shape: tuple[int, ...], axes: list[int]) -> None:
    """Groups of channels, as in GroupNormalization, run on the CPU in part, with onnxruntime's bytes."""
    m = Model(np.int8, seed=3)
    x = m.requantized(m.op("Conv", m.input((1, 8, 6, 7), 0.05), m.weights((16, 8, 1, 1))), 0.25, 3)
    y = m.requantized(m.op("Reshape", x, m.const(shape, np.int64)), 0.25, 3)
    m.output(m.requantized(m.op(op, y, m.const(axes, np.int64)), 0.25 if op == "ReduceMean" else 8.0, 3))
    turns(m, "base", 2)


@pytest.mark.medium
@pytest.mark.parametrize("config", ["tiny", "base"])
def test_over_tokens_and_channels(config: str) -> None:
    m = Model(np.int8, seed=8)
    x = m.requantized(m.op("MatMul", m.input((3, 15, 40), 0.05), m.weights((40, 25))), 0.25, 3)
    y = m.requantized(m.op("ReduceMean", x, m.const([1, 2], np.int64), keepdims=1), 0.02, 3)
    m.output(m.requantized(m.op("MatMul", y, m.weights((1, 24))), 0.004, 3))
    assert turns(m, config) == 1


@pytest.mark.medium
@pytest.mark.parametrize("keep", [0, 1])
@pytest.mark.parametrize(("first", "second"), [(1, 2), (1, 3), (2, 3), (3, 2)])
def test_one_after_the_other(first: int, second: int, keep: int) -> None:
    """The second mean reads the result of the first one through its moves."""
    m = Model(np.int8, seed=8)
    x = conv(m, m.input((1, 8, 5, 7), 0.05), 8, 0.25, 15)
    y = m.requantized(m.op("ReduceMean", x, m.const([first], np.int64), keepdims=keep), 0.1, 3)
    axis = second - (not keep and second > first)
    y = m.requantized(m.op("ReduceMean", y, m.const([axis], np.int64), keepdims=keep), 0.03, 3)
    if not keep:
        shape = [1 if axis in (first, second) else size for axis, size in enumerate((1, 15, 5, 7))]
        y = m.op("Reshape", y, m.const(shape, np.int64))
    channels = 1 if first == 1 else 15
    m.output(m.requantized(m.op("Conv", y, m.weights((40, channels, 1, 1))), 0.004, 3))
    assert turns(m, "base", 6) == 1


@pytest.mark.parametrize("channels", [1, 15])
def test_a_vector_is_rows_as_well(channels: int) -> None:
    """A mean [1, C] of planes feeds a product without conversion."""
    m = Model(np.int8, seed=8)
    x = conv(m, m.input((1, 8, 5, 7), 0.05), 8, 0.25, channels)
    y = m.requantized(m.op("ReduceMean", x, m.const([2, 3], np.int64), keepdims=0), 0.05, 3)
    m.output(m.requantized(m.op("MatMul", y, m.weights((channels, 40))), 0.01 if channels > 1 else 0.002, 3))
    assert turns(m, "base", 9) == 1


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_of_channels_by_litert_rule(dtype: type) -> None:
    """LiteRT adds the zero point before it rounds, and sums of 15 channels have a scale for that in either type."""
    net, zero = Net(), int(np.iinfo(dtype).min) + 117
    x = small_conv(net, net.input((1, 8, 5, 7), dtype), 15, 1, dtype)
    flat = move(net, "Transpose", x, [], [[1, 5, 7, 15]], perm=[0, 2, 3, 1])[0]
    flat = move(net, "Reshape", flat, [[1, 35, 15, 1]], [[1, 35, 15, 1]])[0]
    quant = net.graph.tensor(x).quant
    assert quant is not None
    to, info = Quant.of(np.float32(0.0487), zero), np.iinfo(dtype)
    factor = np.float32(quant.scale / to.scale) * (np.float32(1) / np.float32(15))
    offset = np.float32(zero) - np.float32(np.float32(15 * int(quant.zero_point)) * factor)
    limits = {"out_min": int(info.min), "out_max": int(info.max)}
    y = net.finish("QGlobalAveragePool", [flat], (1, 35), dtype, quant=to, keepdims=False, factor=float(factor),
                   offset=float(offset), **limits)  # fmt: skip
    last = small_conv(net, move(net, "Reshape", y, [[1, 1, 5, 7]], [[1, 1, 5, 7]])[0], 24, 1, dtype)
    graph = net.done(last)
    program = compile_graph(graph, PRESETS["base"])
    assert sum(isinstance(step, NpuStep) for step in program.steps) == 1
    inputs = {graph.inputs[0]: net.rng.integers(info.min, info.max + 1, (1, 8, 5, 7)).astype(dtype)}
    found = Executor(program, FunctionalDevice(PRESETS["base"])).run(inputs).outputs[last]
    np.testing.assert_array_equal(found, quantized_ops.run(graph, inputs)[last])
