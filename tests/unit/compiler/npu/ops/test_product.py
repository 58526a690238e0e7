"""Products of two activations with the largest biases that the machine can make."""

from __future__ import annotations

import numpy as np
import pytest

from tests.reference import quantized_ops
from tests.unit.compiler.npu.layers.test_product_params import Zero
from tilewright.compiler.graph.graph import Quant
from tilewright.compiler.pipeline import compile_graph
from tilewright.isa.config import PRESETS
from tilewright.isa.program import CpuStep
from tilewright.runtime.executor import Executor
from tilewright.simulator.functional import FunctionalDevice

BASE = PRESETS["base"]


@pytest.mark.medium
@pytest.mark.parametrize(
    ("zeros", "depth"), [((-128, 0), 509), ((-128, 127), 255), ((-128, -128), 254), ((127, 5), 494)]
)
def test_the_largest_sums(zeros: tuple[int, int], depth: int) -> None:
    """Biases of a second operand that is -128 or 127 throughout reach 2**23; one element more goes to the CPU."""
    for more in (0, 1):
        net = Zero(*zeros)
        k = depth + more
        a = net.input((1, 3, k), np.int8)
        b = net.same(net.input((1, k, 16), np.int8))
        fine = Quant.of(np.float32(0.05 * 0.05 * 2), 3)
        scores = net.finish("QMatMul", [a, b], (1, 3, 16), np.int8, quant=fine, out_min=-128, out_max=127)
        graph = net.done(scores)
        program = compile_graph(graph, BASE)
        on_cpu = [op.split()[0] for step in program.steps if isinstance(step, CpuStep) for op in step.ops]
        assert ("PackMatMulParams" in on_cpu) == bool(more)
        first = np.full((1, 3, k), zeros[0])
        first[:, [0, 1, 2], [0, 1, 2]] += np.sign(-zeros[0]) * np.array([1, 2, 1])
        columns = np.random.default_rng(1).integers(-128, 128, (1, k, 16))
        columns[:, :, :4] = -128, 127, -128, 127
        columns[:, :3, 2:4] = 5
        inputs = {a: first.astype(np.int8), graph.inputs[1]: columns.astype(np.int8)}
        found = Executor(program, FunctionalDevice(BASE)).run(inputs).outputs[scores]
        np.testing.assert_array_equal(found, quantized_ops.run(graph, inputs)[scores])
