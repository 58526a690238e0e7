"""Rotary embeddings of heads that products make: onnxruntime's bytes in one step of the NPU."""

from __future__ import annotations

import pytest

from tests.reference.quantized_models import Model
from tests.unit.compiler.npu.rewrites.test_pad_heads import checked


def turned(m: Model, rows: int, heads: int, depth: int, cut: int) -> None:
    """Adds a product whose heads have their parts before and behind channel `cut` exchanged, one of them negated."""
    x = m.input((1, rows, 32))
    y = m.requantized(m.op("MatMul", x, m.weights((32, heads * depth))), 0.05, 3)
    y = m.op("Reshape", y, m.const([1, rows, heads, depth], "int64"))
    y = m.op("Transpose", y, perm=[0, 2, 1, 3])
    bounds = [m.const([v], "int64") for v in (0, cut, depth, 3)]
    low, high = m.op("Slice", y, *bounds[:2], bounds[3]), m.op("Slice", y, *bounds[1:])
    both = m.requantized(m.op("Concat", m.requantized(m.op("Neg", high), 0.05, -3), low, axis=3), 0.05, 1)
    sine = m.requantized(m.op("Mul", both, m.input((1, 1, rows, depth))), 0.06, 0)
    z = m.op("Transpose", sine, perm=[0, 2, 1, 3])
    z = m.op("Reshape", z, m.const([1, rows, heads * depth], "int64"))
    m.output(m.requantized(m.op("MatMul", z, m.weights((heads * depth, 24))), 1.0, 0))


@pytest.mark.medium
@pytest.mark.parametrize(("rows", "heads", "config"), [(1, 3, "base"), (7, 2, "base"), (1, 2, "tiny")])
def test_halves_of_heads(rows: int, heads: int, config: str) -> None:
    m = Model(seed=3)
    turned(m, rows, heads, 32, 16)
    assert checked(m.build(), m.feeds(), config) == 1


@pytest.mark.medium
def test_parts_that_do_not_fill_blocks_stay() -> None:
    m = Model(seed=4)
    turned(m, 1, 2, 32, 8)
    assert checked(m.build(), m.feeds(), "base") > 1
