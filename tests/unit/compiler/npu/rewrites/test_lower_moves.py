"""Movement as products with 0 and 1: onnxruntime's bytes in one step of the NPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pytest

import tilewright as tw
from tests.common import onnx_models
from tests.reference.quantized_models import Model
from tests.unit.compiler.npu.net import Net
from tilewright.compiler.npu.rewrites.rewriter import Rewriter
from tilewright.compiler.pipeline import compile_graph
from tilewright.isa.config import PRESETS
from tilewright.isa.program import CpuStep, NpuStep, Program

CHANNELS = 24


def conv(m: Model, x: str, inputs: int, outputs: int) -> str:
    return m.requantized(m.op("Conv", x, m.weights((outputs, inputs, 1, 1))), 0.1, 0)


def depth_to_space(m: Model, x: str, mode: str) -> str:
    return conv(m, m.op("DepthToSpace", x, blocksize=2, mode=mode), CHANNELS // 4, 8)


def space_to_depth(m: Model, x: str) -> str:
    return conv(m, m.op("SpaceToDepth", x, blocksize=3), 9 * CHANNELS, 8)


def shuffle(m: Model, x: str) -> str:
    groups = m.op("Reshape", x, m.const([2, 3, CHANNELS // 3, 6, 12]))
    return conv(
        m, m.op("Reshape", m.op("Transpose", groups, perm=[0, 2, 1, 3, 4]), m.const([2, CHANNELS, 6, 12])), CHANNELS, 8
    )


def halves(m: Model, x: str) -> str:
    """Adds a block of ShuffleNet: one half stays, the other is convolved, both are concatenated and shuffled."""
    left, right = m.op("Split", x, axis=1, outputs=2, num_outputs=2)
    both = m.requantized(m.op("Concat", left, conv(m, right, CHANNELS // 2, CHANNELS // 2), axis=1), 0.1, 0)
    return shuffle(m, both)


def part(m: Model, x: str) -> str:
    return conv(m, m.op("Slice", x, m.const([-17]), m.const([20]), m.const([1])), 13, 8)


def chosen(m: Model, x: str) -> str:
    return conv(m, m.op("Gather", x, m.const([5, 0, 23, -2, 5]), axis=1), 5, 8)


def padded(m: Model, x: str, *pads: int) -> str:
    y = m.op("Pad", x, m.const(pads), m.const(0, np.float32))
    before, after = pads[1], pads[5]
    return m.op("MaxPool", conv(m, y, CHANNELS + before + after, 8), kernel_shape=[3, 3], strides=[2, 2])


def grown(m: Model, x: str) -> str:
    """Adds sums that grow by channels of zeros, as residual blocks of BlazeFace do: of each the padded one is first."""
    for channels in (CHANNELS, CHANNELS + 4, CHANNELS + 10):
        x = m.requantized(m.op("Add", x, conv(m, x, channels, channels)), 0.15, 0)
        x = m.op("Pad", x, m.const([0, 0, 0, 0, 0, 4 + 2 * (channels > CHANNELS), 0, 0]), m.const(0, np.float32))
    return m.requantized(m.op("Add", x, conv(m, x, CHANNELS + 16, CHANNELS + 16)), 0.2, 0)


def mirrored(m: Model, x: str, mode: str) -> str:
    return conv(m, m.op("Pad", x, m.const([0, 0, 2, 3, 0, 0, 1, 0]), mode=mode), CHANNELS, 8)


def flattened(m: Model, x: str, order: Sequence[int] = ()) -> str:
    """Adds a product of flattened planes, transposed before, with a bias and a scale for each output."""
    y = m.op("Slice", x, m.const([0]), m.const([1]), m.const([0]))
    if order:
        y = m.op("Transpose", y, perm=list(order))
    w = m.weights((CHANNELS * 72, 20), axis=1)
    return m.requantized(m.op("Gemm", m.op("Flatten", y), w, m.bias(20, x, w)), 3.0, 128 if m.dtype == np.uint8 else 0)


def repeated(m: Model, x: str, op: str) -> str:
    """Adds a value for each plane, repeated beside the planes as in ASPP."""
    mean = m.requantized(m.op("GlobalAveragePool", x), 0.5, 0)
    if op == "Resize":
        wide = m.op(op, mean, "", "", m.const([2, CHANNELS, 6, 12]), mode="linear")
    else:
        wide = m.op(op, mean, m.const([2, CHANNELS, 6, 12] if op == "Expand" else [1, 1, 6, 12]))
    return conv(m, m.requantized(m.op("Concat", x, wide, axis=1), 0.5, 0), 2 * CHANNELS, 8)


def largest(m: Model, x: str, op: str) -> str:
    y = m.op(op, x) if op == "GlobalMaxPool" else m.op(op, x, m.const([2, 3]), keepdims=1)
    return conv(m, m.requantized(y, 0.41, 3), CHANNELS, 30)


MOVES: dict[str, Callable[[Model, str], str]] = {
    "depth to space, DCR": lambda m, x: depth_to_space(m, x, "DCR"),
    "depth to space, CRD": lambda m, x: depth_to_space(m, x, "CRD"),
    "space to depth": space_to_depth,
    "shuffle": shuffle,
    "halves": halves,
    "part": part,
    "chosen": chosen,
    "padded planes": lambda m, x: padded(m, x, 0, 0, 1, 2, 0, 0, 3, 0),
    "mirrored": lambda m, x: mirrored(m, x, "reflect"),
    "edges": lambda m, x: mirrored(m, x, "edge"),
    "flattened": flattened,
    "flattened pixels": lambda m, x: flattened(m, x, [0, 2, 3, 1]),
    "flattened columns": lambda m, x: flattened(m, x, [0, 3, 1, 2]),
    **{name: lambda m, x, name=name: repeated(m, x, name) for name in ("Expand", "Tile", "Resize")},
    **{name: lambda m, x, name=name: largest(m, x, name) for name in ("GlobalMaxPool", "ReduceMax")},
    "padded channels": lambda m, x: padded(m, x, 0, 3, 1, 0, 0, 5, 0, 1),
    "sums that grow": grown,
}


def steps(program: Program) -> tuple[int, set[str]]:
    """Returns the number of NPU steps, and the ops of the CPU between them."""
    npu = [at for at, step in enumerate(program.steps) if isinstance(step, NpuStep)]

    def between() -> Iterator[str]:
        for step in program.steps[npu[0] : npu[-1]]:
            if isinstance(step, CpuStep):
                yield from (op.split()[0] for op in step.ops)

    return len(npu), set(between())


@pytest.mark.medium
@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
@pytest.mark.parametrize("config", ["tiny", "base"])
@pytest.mark.parametrize("name", MOVES)
def test_equals_onnxruntime(name: str, config: str, dtype: type) -> None:
    m = Model(dtype, seed=3)
    least = int(np.iinfo(dtype).min)
    x = m.input((2, 8, 6, 12), 0.05, least + 120)
    y = m.requantized(m.op("Conv", x, m.weights((CHANNELS, 8, 1, 1))), 0.5, least + 100)
    m.output(MOVES[name](m, y))
    proto, feeds = m.build(), m.feeds()
    program = tw.compile_program(proto, config, cache=False)
    assert steps(program) == (1, set())
    session = onnx_models.session(proto)
    (expected,), got = session.run(None, feeds), tw.Device("functional", PRESETS[config]).run(program, feeds)
    np.testing.assert_array_equal(got[session.get_outputs()[0].name], expected)
    assert len(np.unique(expected)) > 12


@pytest.mark.medium
def test_products_of_moves_are_none_of_the_model() -> None:
    """Products that move data count in no MACs, and a machine that uses only the CPU keeps the move."""
    m = Model(np.int8, seed=3)
    y = conv(m, m.input((2, 8, 6, 12), 0.05, 0), 8, CHANNELS)
    m.output(depth_to_space(m, y, "DCR"))
    proto = m.build()
    found = [tw.compile_program(proto, "base", cpu_only=cpu_only, cache=False) for cpu_only in (False, True)]
    macs = 2 * (6 * 12 * 8 * CHANNELS + 12 * 24 * 6 * 8)
    assert sum(layer.macs for layer in found[0].layers) == macs
    assert any(op.startswith("DepthToSpace") for step in found[1].steps if isinstance(step, CpuStep) for op in step.ops)


def test_moves_at_the_end_stay_on_the_cpu() -> None:
    """The host converts the result from blocks anyway."""
    net = Net()
    y = net.conv(net.plane(16, 8), 16)
    graph = net.done(net.move("DepthToSpace", [y], (1, 4, 16, 16), {"blocksize": 2}))
    program = compile_graph(graph, PRESETS["base"])
    assert steps(program)[0] == 1
    assert any(op.startswith("DepthToSpace") for step in program.steps if isinstance(step, CpuStep) for op in step.ops)


def test_readers_behind_many_moves() -> None:
    """A chain of moves may be longer than the depth of recursion."""
    net = Net()
    x = net.plane(16, 8)
    y = x
    for turn in range(3000):
        y = net.reshape(y, 1, 16, 64) if turn % 2 == 0 else net.reshape(y, 1, 16, 8, 8)
    assert Rewriter(net.done(net.conv(y, 16)), PRESETS["base"]).read_by_npu(x)
