"""Images and rows that are repeated or chosen: onnxruntime's bytes in one step of the NPU."""

from __future__ import annotations

from collections.abc import Callable
from itertools import cycle

import numpy as np
import pytest

import tilewright as tw
from tests.reference.quantized_models import Model
from tests.unit.compiler.npu.rewrites.test_lower_moves import steps
from tilewright.compiler.npu.rewrites.lower_copies import _repeated, _runs
from tilewright.isa.config import PRESETS

TOKENS, HEADS, SHARED, DEPTH = 20, 4, 2, 16


def product(m: Model, x: str, inputs: int, outputs: int) -> str:
    return m.requantized(m.op("MatMul", x, m.weights((inputs, outputs))), 0.05, 3)


def heads(m: Model, x: str, count: int) -> str:
    rows = m.op("Reshape", product(m, x, 32, count * DEPTH), m.const([1, TOKENS, count, DEPTH], np.int64))
    return m.op("Transpose", rows, perm=[0, 2, 1, 3])


def shared(m: Model, x: str) -> str:
    """Adds keys or values of SHARED heads, repeated for HEADS of queries as in Llama's exports."""
    wide = m.op("Unsqueeze", heads(m, x, SHARED), m.const([2], np.int64))
    wide = m.op("Expand", wide, m.const([1, SHARED, HEADS // SHARED, TOKENS, DEPTH], np.int64))
    return m.op("Reshape", wide, m.const([1, HEADS, TOKENS, DEPTH], np.int64))


def grouped(m: Model) -> str:
    x = m.input((1, TOKENS, 32))
    keys = m.op("Transpose", shared(m, x), perm=[0, 1, 3, 2])
    scores = m.requantized(m.op("MatMul", heads(m, x, HEADS), keys), 0.5, 0)
    mixed = m.op("Transpose", m.requantized(m.op("MatMul", scores, shared(m, x)), 2.0, 0), perm=[0, 2, 1, 3])
    mixed = m.op("Reshape", mixed, m.const([1, TOKENS, HEADS * DEPTH], np.int64))
    return product(m, mixed, HEADS * DEPTH, 24)


def one_for_all(m: Model) -> str:
    """Adds attention with one head of keys for all heads, transposed together with the split into heads."""
    x = m.input((1, TOKENS, 32))
    rows = m.op("Reshape", product(m, x, 32, DEPTH), m.const([1, TOKENS, 1, DEPTH], np.int64))
    keys = m.op("Transpose", rows, perm=[0, 2, 3, 1])
    return product(m, m.requantized(m.op("MatMul", heads(m, x, HEADS), keys), 0.5, 0), TOKENS, 24)


def batches(m: Model, first: tuple[int, ...], second: tuple[int, ...]) -> str:
    a, b = (product(m, m.input((*shape[:-1], 16)), 16, shape[-1]) for shape in (first, second))
    return product(m, m.requantized(m.op("MatMul", a, b), 0.5, 0), second[-1], 16)


def chosen(m: Model, *places: int) -> str:
    rows = product(m, m.input((2, TOKENS, 32)), 32, 24)
    return product(m, m.op("Gather", rows, m.const(places, np.int64), axis=1), 24, 16)


COPIES: dict[str, Callable[[Model], str]] = {
    "grouped queries": grouped,
    "keys for all": one_for_all,
    "both": lambda m: batches(m, (2, 1, 12, 8), (1, 3, 8, 10)),
    "first": lambda m: batches(m, (1, 12, 24), (3, 24, 10)),
    "rank": lambda m: batches(m, (3, 12, 8), (8, 10)),
    "rows": lambda m: chosen(m, 3, 4, -1, 0),
}


@pytest.mark.medium
@pytest.mark.parametrize(("name", "dtype"), list(zip(COPIES, cycle((np.int8, np.uint8)), strict=False)))
def test_bytes_and_one_turn(name: str, dtype: type) -> None:
    m = Model(dtype, 5)
    m.output(COPIES[name](m))
    model, config = m.build(), PRESETS["base"]
    assert steps(tw.compile(model, config)) == (1, set())
    report = tw.check(model, m.feeds(), config=config, cache=False)
    assert report.ok and report.rows, report.summary()


def test_images_and_runs() -> None:
    assert _repeated((2, 1), (2, 3)).tolist() == [0, 0, 0, 1, 1, 1]
    assert _repeated((3,), (2, 3)).tolist() == [0, 1, 2, 0, 1, 2]
    assert list(_runs(np.array([3, 4, 0, 0, 1]))) == [(3, 5), (0, 1), (0, 2)]
