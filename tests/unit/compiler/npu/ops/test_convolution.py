"""Transposed convolutions in which no tap reaches some of the outputs."""

from __future__ import annotations

import numpy as np
import pytest

from tests.reference import quantized_ops
from tests.unit.compiler.npu.net import Net
from tests.unit.compiler.npu.schedule.steps import step_of
from tilewright.compiler.npu.emit.geometry import Border
from tilewright.compiler.pipeline import compile_graph
from tilewright.isa.config import preset
from tilewright.runtime.executor import Executor
from tilewright.simulator.functional import FunctionalDevice

BASE = preset("base")
#: Kernel, strides, and the padding the layer reads around its input: phases without taps need none.
CASES = [
    ((1, 1), (2, 3), Border()), ((1, 3), (2, 2), Border(left=1, right=1)), ((3, 1), (2, 4), Border(top=1, bottom=1)),
    ((2, 2), (3, 3), Border()), ((3, 2), (1, 3), Border(top=2, bottom=2)),
]  # fmt: skip


@pytest.mark.parametrize(("kernel", "strides", "border"), CASES)
def test_outputs_without_taps(kernel: tuple[int, int], strides: tuple[int, int], border: Border) -> None:
    net = Net()
    x = net.input((1, 5, 4, 6), np.int8)
    weights, bias = net.weights((5, 7, *kernel), 1, 1), net.bias(7)
    extra = [max(s - k, 0) for k, s in zip(kernel, strides)]  # all that is beyond the last tap as well
    out = [(n - 1) * s + k + more for n, k, s, more in zip((4, 6), kernel, strides, extra)]
    y = net.finish(
        "QConvTranspose", [x, weights, *bias], (1, 7, *out), np.int8, kernel=kernel, strides=strides,
        dilations=(1, 1), pads=(0,) * 4, output_padding=extra, group=1, out_min=-128, out_max=127,
    )  # fmt: skip
    graph = net.done(y)
    (layer,) = step_of(net, BASE).layers
    found, fill = layer.input_border()
    assert fill == 3 and found == border
    inputs = {x: np.random.default_rng(1).integers(-128, 128, (1, 5, 4, 6)).astype(np.int8)}
    made = Executor(compile_graph(graph, BASE), FunctionalDevice(BASE)).run(inputs).outputs[y]
    np.testing.assert_array_equal(made, quantized_ops.run(graph, inputs)[y])
