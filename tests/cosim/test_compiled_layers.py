"""Layers whose instructions the compiler interleaves, on RTL: the bytes of onnxruntime, the cycles of the simulator."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tests.common import onnx_models
from tests.common.squeeze_excite import squeezed
from tests.reference.quantized_models import Model
from tilewright.compiler.npu.layers.row_sums import RowSums
from tilewright.isa.config import preset

pytestmark = [pytest.mark.cosim, pytest.mark.slow]


def row_sums() -> Model:
    """A product whose second operand has a zero point, for which rows of the first one are added up."""
    m = Model(np.int8, seed=1)
    a, b = m.input((2, 21, 64), 0.05, 0), m.input((2, 60, 64), 0.05, 2)
    product = m.op("MatMul", a, m.op("Transpose", b, perm=[0, 2, 1]))
    m.output(m.requantized(product, 0.05 * 0.05 * 500, 3))
    return m


def plane_sums() -> Model:
    """The tile that waits to be added up must not be overwritten by what runs at the same time."""
    return squeezed(2, 21, (9, 8), 3)


@pytest.mark.parametrize("make", [row_sums, plane_sums])
def test_rtl_is_the_cycle_simulator(make) -> None:
    config, m = preset("tiny"), make()
    assert RowSums.of(config, 64, 2, 15) is not None
    proto, feeds = m.build(), m.feeds()
    program = tw.compile_program(proto, config, cache=False)
    expected = {name: value.tobytes() for name, value in onnx_models.run(proto, feeds).items()}
    counters = []
    for kind in ("cycle", "rtl"):
        with tw.Device(kind, config) as device:
            results = device.run(program, feeds)
            counters.append(device.counters)
            assert {name: value.tobytes() for name, value in results.items()} == expected
    assert counters[0] == counters[1]
