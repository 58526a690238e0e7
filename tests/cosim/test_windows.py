"""Windows: a token of a language model on the RTL, at the first row of its cache and past its end."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tilewright import zoo

SIZES = {"layers": 1, "width": 32, "hidden": 32, "window": 16, "context": 64}


@pytest.mark.cosim
@pytest.mark.slow
@pytest.mark.parametrize("heads", [1, 8])
def test_rows_are_put_where_the_simulators_put_them(heads: int) -> None:
    """One head of two blocks of channels, and heads of which four share a block."""
    model = zoo.build_quantized("micro_llama", whole=True, heads=heads, kv_heads=heads, **SIZES)
    program = tw.compile_program(model, shapes={"input_ids": [1, 1]}, states="auto")
    assert program.windows
    devices = [tw.Device(name) for name in ("functional", "cycle", "rtl")]
    for position in (0, 5, 16):
        feeds = {"input_ids": np.array([[7 + position]]), "position_ids": np.array([[position]])}
        logits = [device.run(program, feeds)["logits"] for device in devices]
        assert all(np.array_equal(other, logits[0]) for other in logits)
        states = [device.states(program) for device in devices]
        assert all(np.array_equal(other[name], states[0][name]) for other in states for name in other)
        cycles = [device.counters.cycles for device in devices[1:] if device.counters is not None]
        assert cycles[0] == cycles[1] is not None
