"""One operator at a time against LiteRT, byte for byte."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tests.unit.compiler.importer.tflite.tflite_ops import CASES, MOVES, move_case
from tilewright.litert import LiteRtReference


def compare(data: bytes, r: np.random.Generator) -> None:
    program = tw.compile(data, "tiny")
    inputs = {}
    for t in program.inputs:
        info, size = np.iinfo(t.dtype), int(np.prod(t.shape))
        values = r.integers(info.min, info.max, size, endpoint=True) if size != 256 else np.arange(256) + info.min
        inputs[t.name] = values.astype(t.dtype).reshape(t.shape)
    expected = LiteRtReference(data).run(inputs)
    with tw.Device("functional") as device:
        got = device.run(program, inputs)
    for name, value in expected.items():
        np.testing.assert_array_equal(got[name], value)


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("op", CASES)
def test_arithmetic(op: str, dtype: str) -> None:
    for seed in range(3):
        r = np.random.default_rng([seed, len(op)])
        compare(CASES[op](op, r, dtype), r)


@pytest.mark.parametrize("case", MOVES, ids=lambda c: c[0])
def test_movement(case: tuple) -> None:
    r = np.random.default_rng(0)
    compare(move_case(case, r), r)
