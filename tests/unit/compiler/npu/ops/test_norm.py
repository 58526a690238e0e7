"""QNorm on the NPU: the norms that it takes or refuses."""

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.compiler.npu.net import Net
from tilewright.compiler.graph.graph import Quant, Tensor
from tilewright.compiler.npu.ops import unsupported_reason
from tilewright.isa.config import PRESETS


@pytest.mark.parametrize("constant", [(True, True), (True, False), (False, True), (False, False)])
def test_scale_and_bias_have_to_be_constants(constant: tuple[bool, bool]) -> None:
    net = Net()
    x = net.input((6, 20), np.int8)
    names = [x]
    for what, is_constant in zip(("scale", "bias"), constant, strict=True):
        if is_constant:
            names.append(net.graph.constant(what, np.linspace(-1, 1, 20, dtype=np.float32)))
        else:
            net.graph.add(Tensor(what, (20,), np.dtype(np.float32)))
            net.graph.inputs.append(what)
            names.append(what)
    y = net.finish("QNorm", names, (6, 20), np.int8, quant=Quant.of(np.float32(0.03), 0), epsilon=1e-5)
    graph = net.done(y)
    reason = unsupported_reason(graph, graph.nodes[-1], PRESETS["base"])
    assert reason == (None if all(constant) else "scale or bias is not constant")
