"""Multiply-accumulates of float ops, worked out by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright.compiler.graph.macs import macs_of

#: Op, attributes, shapes of operands, elements of the first result, multiply-accumulates.
CASES: list[tuple[str, dict[str, Any], list[tuple[int, ...]], int, int]] = [
    ("Conv", {}, [(1, 4, 9), (6, 2, 3)], 6 * 7, 6 * 7 * 2 * 3),
    ("ConvTranspose", {}, [(1, 4, 9), (4, 6, 3)], 6 * 11, 4 * 9 * 6 * 3),
    ("MatMul", {}, [(2, 5, 8), (8, 3)], 2 * 5 * 3, 2 * 5 * 3 * 8),
    ("Gemm", {}, [(5, 8), (8, 3)], 15, 15 * 8),
    ("Gemm", {"transA": 1}, [(8, 5), (8, 3)], 15, 15 * 8),
    ("Einsum", {"equation": "bij,jk->bik"}, [(3, 20, 32), (32, 24)], 0, 3 * 20 * 32 * 24),
    ("Einsum", {"equation": "...i, ...i -> ..."}, [(4, 5, 7), (5, 7)], 0, 4 * 5 * 7),
    ("Einsum", {"equation": "i,j,k"}, [(2,), (3,), (5,)], 0, 2 * 30),
    ("Einsum", {"equation": "ij->ji"}, [(3, 4)], 12, 0),
    ("LSTM", {}, [(10, 2, 8), (1, 64, 8), (1, 64, 16)], 0, 10 * 2 * 64 * (8 + 16)),
    ("GRU", {"layout": 1}, [(2, 10, 8), (2, 48, 8), (2, 48, 16)], 0, 10 * 2 * 2 * 48 * (8 + 16)),
    ("RNN", {}, [(3, 1, 5), (1, 6, 5), (1, 6, 6)], 0, 3 * 6 * 11),
    ("IntegerLSTM", {"shape": [7, 2, 16]}, [], 0, 7 * 2 * 4 * 16 * 16),
    ("DynamicQuantizedLSTM", {"shape": [7, 1, 3]}, [], 0, 7 * 4 * 9),
    ("Relu", {}, [(5,)], 5, 0),
]


@pytest.mark.parametrize(("op", "attrs", "shapes", "size", "macs"), CASES, ids=[case[0] for case in CASES])
def test_macs(op: str, attrs: dict[str, Any], shapes: list[tuple[int, ...]], size: int, macs: int) -> None:
    assert macs_of(op, attrs, shapes, size) == macs


def test_gates_given() -> None:
    """A recurrent op whose inputs are its gates multiplies its state only."""
    shapes = [(10, 2, 64), (1, 64, 64), (1, 64, 16)]
    assert macs_of("LSTM", {}, shapes, 0, np.eye(64, dtype=np.float32)[None]) == 10 * 2 * 64 * 16
    assert macs_of("LSTM", {}, shapes, 0, np.ones((1, 64, 64), np.float32)) == 10 * 2 * 64 * (64 + 16)
