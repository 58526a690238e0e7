"""Softmax and norms of rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.network.layer_cases.case import Case, lut
from tilewright.compiler.graph.graph import Quant


def _rows(case: Case) -> tuple[str, tuple[int, ...], Any, dict[str, int]]:
    """An input of rows: its name, shape and type, and limits that are those of the type."""
    shape = (*(case.integer(1, 3) for _ in range(case.integer(0, 2))), case.integer(1, 40), case.integer(2, 90))
    dtype = case.dtype()
    info = np.iinfo(dtype)
    return case.input(shape, dtype), shape, dtype, {"out_min": int(info.min), "out_max": int(info.max)}


def softmax(case: Case) -> None:
    """A Softmax over the last axis between products, as attention has it."""
    x, shape, dtype, limits = _rows(case)
    w = case.weights((shape[-1], n := case.integer(2, 90)), n, 1)
    scores = case.finish("QMatMul", [x, w], (*shape[:-1], n), dtype, **limits)
    levels = case.integer(100, 300)
    quant = Quant.of(np.float32(1 / levels), limits["out_min"])
    exact = case.chance(0.3)
    factor = None if exact else float(np.floor(np.float32(1) / np.float32(1 / levels)))
    if exact:
        quant = Quant.of(np.float32(1 / 256), limits["out_min"])
    y = case.finish("QSoftmax", [scores], (*shape[:-1], n), dtype, quant=quant, axis=-1, levels=factor)
    if case.chance(0.3):
        y = lut(case, y)
    v = case.weights((n, m := case.integer(1, 40)), m, 1)
    case.graph.outputs += [y, case.finish("QMatMul", [y, v], (*shape[:-1], m), case.graph.tensor(y).dtype, **limits)]


def norm(case: Case) -> None:
    """A norm over the last axis between products."""
    x, shape, dtype, limits = _rows(case)
    rng = np.random.default_rng(case.integer(0, 1 << 30))
    inputs = [case.graph.constant("scale", rng.normal(1, 0.5, shape[-1]).astype(np.float32))]
    centred = case.chance(0.6)
    if centred:
        inputs.append(case.graph.constant("bias", rng.normal(0, 0.3, shape[-1]).astype(np.float32)))
    quant = Quant.of(np.float32(rng.uniform(3, 5) / 127), limits["out_min"] + 128 + case.integer(0, 10))
    y = case.finish(
        "QNorm", [x, *inputs], shape, dtype, quant=quant, centred=centred, epsilon=float(10.0 ** -rng.integers(4, 9))
    )
    v = case.weights((shape[-1], m := case.integer(1, 40)), m, 1)
    case.graph.outputs += [y, case.finish("QMatMul", [y, v], (*shape[:-1], m), dtype, **limits)]
