"""Products of two activations whose second operand becomes weights and biases on the NPU."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest

from tests.reference import quantized_ops
from tests.unit.compiler.npu.net import Net
from tilewright.compiler.graph.graph import Quant
from tilewright.compiler.npu.layers.product_params import int8_parts
from tilewright.compiler.options import CompileOptions
from tilewright.compiler.pipeline import compile_graph
from tilewright.isa.config import PRESETS
from tilewright.isa.program import CpuStep
from tilewright.runtime.executor import Executor
from tilewright.simulator.functional import FunctionalDevice

BASE = PRESETS["base"]
#: The presets, and a machine whose rows of accumulators hold two blocks of channels.
MACHINES = {**PRESETS, "tall": BASE.with_(name="tall", block_in=8, block_out=16, act_rows=16384)}


class Zero(Net):
    """A network whose tensors have the given zero points in turn."""

    def __init__(self, *zeros: int) -> None:
        super().__init__()
        self.zeros = zeros

    def quant(self, dtype: object) -> Quant:
        return Quant.of(np.float32(0.05), self.zeros[len(self.graph.tensors) % len(self.zeros)])

    def same(self, x: str) -> str:
        """Adds a product with the identity, so that the NPU makes the tensor's values again."""
        t = self.graph.tensor(x)
        one = self.graph.constant("one", np.eye(t.shape[-1], dtype=np.int8), Quant.of(np.float32(1), 0))
        return self.finish("QMatMul", [x, one], t.shape, np.int8, quant=t.quant, out_min=-128, out_max=127)


def test_int8_parts() -> None:
    for value in range(-300, 301):
        found = int8_parts(value)
        assert sum(found) == value and all(-128 <= part <= 127 for part in found)


@pytest.mark.parametrize("keep", ["outputs", "all"])
@pytest.mark.parametrize("zeros", [(-128,), (127, -128), (1, 17, -6), (0, 5), (64, -100, 96)])
@pytest.mark.parametrize(
    ("config", "exchanged"),
    [("base", False), ("base", True), ("tiny", False), ("small", True), ("wide", True), ("tall", False)],
)
def test_biases_at_the_ends_of_their_range(
    config: str, exchanged: bool, zeros: tuple[int, ...], keep: Literal["outputs", "all"]
) -> None:
    """Rows that are -128 or 127 throughout, or in part, give biases at both ends of their range.

    Most of the first operand is its zero point, so that products and biases together stay small.
    """
    depth, count = (37, 64) if exchanged else (64, 37)
    net = Zero(*zeros)
    a = net.input((2, 5, depth), np.int8)
    b = net.same(net.input((2, depth, count) if exchanged else (2, count, depth), np.int8))
    b = b if exchanged else net.transpose(b, 0, 2, 1)
    fine = Quant.of(np.float32(0.05 * 0.05 * 2), 3)  # a step is two products
    scores = net.finish("QMatMul", [a, b], (2, 5, count), np.int8, quant=fine, out_min=-128, out_max=127)
    graph = net.done(scores)
    rng = np.random.default_rng(len(zeros))
    rows = rng.integers(-128, 128, (2, count, depth))
    rows[:, :4] = np.array([-128, 127, -1, 0])[:, None]
    rows[:, 4:20] = np.where(np.arange(depth) < np.arange(0, 64, 4)[:, None], 127, -128)
    quant = graph.tensor(a).quant
    assert quant is not None
    first = np.full((2, 5, depth), int(quant.zero_point))
    first[:, np.arange(5), rng.integers(0, depth, 5)] += np.array([1, -1, 2, 1, -1])
    inputs = {
        a: np.clip(first, -128, 127).astype(np.int8),
        graph.inputs[1]: (rows.swapaxes(1, 2) if exchanged else rows).astype(np.int8),
    }
    expected = quantized_ops.run(graph, inputs)[scores]
    program = compile_graph(graph, MACHINES[config], CompileOptions(keep=keep))
    on_cpu = [op.split()[0] for step in program.steps if isinstance(step, CpuStep) for op in step.ops]
    assert "PackMatMulParams" not in on_cpu
    got = Executor(program, FunctionalDevice(MACHINES[config])).run(inputs).outputs[scores]
    assert len(np.unique(expected)) > 10 and np.array_equal(got, expected)
