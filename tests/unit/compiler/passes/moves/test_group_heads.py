"""Grouped-query attention to a cache: its heads are multiplied as they lie, with onnxruntime's bytes."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tests.reference.quantized_models import Model
from tilewright.compiler.npu.ops.product import images_of_each
from tilewright.isa.program import CpuStep

DEPTH, LENGTH = 16, 32


def attention(m: Model, rows: int, shared: int, each: int) -> None:
    """Adds products of queries, of `each` heads for one of the cache's `shared`, with keys and with values."""

    def copied() -> str:
        wide = m.op("Unsqueeze", m.input((1, shared, LENGTH, DEPTH)), m.const([2], np.int64))
        wide = m.op("Expand", wide, m.const([1, shared, each, LENGTH, DEPTH], np.int64))
        return str(m.op("Reshape", wide, m.const([1, shared * each, LENGTH, DEPTH], np.int64)))

    x = m.input((1, rows, 32))
    query = m.requantized(m.op("MatMul", x, m.weights((32, shared * each * DEPTH))), 0.05, 3)
    query = m.op("Reshape", query, m.const([1, rows, shared * each, DEPTH], np.int64))
    query = m.op("Transpose", query, perm=[0, 2, 1, 3])
    scores = m.requantized(m.op("MatMul", query, m.op("Transpose", copied(), perm=[0, 1, 3, 2])), 0.2, 4)
    mixed = m.requantized(m.op("MatMul", scores, copied()), 1.5, 5)
    mixed = m.op("Reshape", m.op("Transpose", mixed, perm=[0, 2, 1, 3]),
                 m.const([1, rows, shared * each * DEPTH], np.int64))  # fmt: skip
    m.output(m.requantized(m.op("MatMul", mixed, m.weights((shared * each * DEPTH, 24))), 60.0, 9))


@pytest.mark.medium
@pytest.mark.parametrize(("rows", "shared", "each"), [(1, 2, 3), (20, 2, 3), (1, 1, 4)])
@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_nothing_is_copied(rows: int, shared: int, each: int, dtype: type) -> None:
    m = Model(dtype, seed=5)
    attention(m, rows, shared, each)
    model, feeds = m.build(), m.feeds()
    program = tw.compile_program(model, "base", cache=False)
    report = tw.check(model, feeds, program=program)
    assert report.ok and report.rows, report.summary()
    ops = [op.split()[0] for step in program.steps if isinstance(step, CpuStep) for op in step.ops]
    assert "QTake" not in ops and ("QMatMul" in ops) == (rows == 1)
    got, timed = (tw.Device(kind).run(program, feeds) for kind in ("functional", "cycle"))
    assert all(np.array_equal(got[name], timed[name]) and len(np.unique(got[name])) > 8 for name in got)


def test_images_of_each() -> None:
    """The second operand's images follow each other as those of the first do, each several times in a row."""
    assert images_of_each((1, 3, 3), (1, 3, 1)) == 3
    assert images_of_each((2, 3), (2, 3)) == 1
    assert images_of_each((2, 3), (1, 1)) == 6
    assert images_of_each((), ()) == 1
    assert images_of_each((2, 3), (1, 3)) is None
    assert images_of_each((1, 3), (4, 3)) is None
    assert images_of_each((2, 3), (3,)) is None
