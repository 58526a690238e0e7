"""Number of NPU starts in a run, as `run` and `compile` report it."""

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.compiler.npu.net import Net
from tilewright.cli import programs
from tilewright.compiler.pipeline import compile_graph
from tilewright.isa.config import PRESETS


@pytest.mark.parametrize("between", [False, True])
def test_turns(between: bool) -> None:
    net = Net()
    y = net.product(net.input((3, 4), np.int8), 4)
    program = compile_graph(net.done(net.product(net.softmax(y) if between else y, 4)), PRESETS["tiny"])
    found = programs.totals(program)
    assert found["npu_turns"] == (2 if between else 1)
    assert programs.on_the_npu(found) == ("100.00% on the NPU, in 2 turns" if between else "100.00% on the NPU")
