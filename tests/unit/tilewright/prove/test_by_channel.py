"""Functions with a constant for each channel, floats in the graph and integers in the program, are proved."""

from __future__ import annotations

import numpy as np
import pytest

from tests.reference.quantized_models import Model
from tests.unit.tilewright.prove.sides import both
from tilewright.isa.config import PRESETS
from tilewright.isa.program import Program
from tilewright.prove.checker.compare import prove
from tilewright.prove.checker.graph import QuantisedGraph

CHANNELS = 20


def sides(op: str, dtype: type, factors: np.ndarray, config: str) -> tuple[QuantisedGraph, Program]:
    """A convolution, the function and another convolution: the graph, and its program."""
    m, least = Model(dtype, seed=4), int(np.iinfo(dtype).min)
    x = m.op("Conv", m.input((1, 8, 6, 5), 0.05, least + 120), m.weights((CHANNELS, 8, 1, 1)))
    y = m.op(op, m.requantized(x, 0.05, least + 117), m.const(factors.reshape(-1, 1, 1), np.float32))
    y = m.requantized(y, 0.0437, least + 130)
    m.output(m.requantized(m.op("Conv", y, m.weights((8, CHANNELS, 1, 1))), 0.3, least + 128))
    return both(m.build().SerializeToString(), PRESETS[config])


@pytest.mark.medium
@pytest.mark.parametrize(("config", "dtype"), [("tiny", np.int8), ("base", np.uint8)])
@pytest.mark.parametrize("op", ["PRelu", "Mul", "Div", "Add", "Sub"])
def test_proved_and_other_constants_are_not(op: str, config: str, dtype: type) -> None:
    factors = np.random.default_rng(1).normal(0.3, 0.5, CHANNELS).astype(np.float32)
    factors[:3] = 1, -1, 0.5
    graph, program = sides(op, dtype, factors, config)
    verdict = prove(graph, program, seed=1)
    assert verdict.proved, verdict
    assert not any(step.op == op for steps in graph.work.values() for step in steps)  # on the NPU
    other = factors.copy()
    other[7] += 0.125
    assert not prove(graph, sides(op, dtype, other, config)[1], seed=1).proved
