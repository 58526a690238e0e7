"""Random quantised layers as graphs: every op, attribute and type the NPU claims, small enough for milliseconds."""

from __future__ import annotations

import numpy as np

from tests.network.layer_cases.case import Case
from tests.network.layer_cases.joins import chain, concat, elementwise, mixed_concat, parts, rows_concat
from tests.network.layer_cases.planes import interpolate, large_mean, litert_average, plane_norm, pool, take
from tests.network.layer_cases.products import conv, conv_transpose, heads, masked, matmul, wide_conv
from tests.network.layer_cases.rows import norm, softmax
from tilewright.compiler.graph.graph import Graph

__all__ = ["KINDS", "Case", "make"]


def few_outside(case: Case) -> None:
    """Layers with weights of which few do not fit in int8."""
    case.few_outside = True
    (conv, conv, conv_transpose, matmul, chain)[case.integer(0, 4)](case)


def depthwise_outside(case: Case) -> None:
    """Depthwise layers with such weights."""
    case.few_outside = True
    conv(case, depthwise=True)


_KINDS = (
    conv,
    conv_transpose,
    matmul,
    heads,
    masked,
    pool,
    elementwise,
    concat,
    rows_concat,
    chain,
    parts,
    take,
    interpolate,
    large_mean,
    litert_average,
    mixed_concat,
    softmax,
    norm,
    wide_conv,
    plane_norm,
    few_outside,
    depthwise_outside,
)
KINDS = {f.__name__: f for f in _KINDS}


def make(kind: str, seed: int) -> tuple[Graph, dict[str, np.ndarray]]:
    """A graph of one kind and inputs for it, the same for the same seed."""
    case = Case(seed)
    KINDS[kind](case)
    inputs = {}
    for name in case.graph.inputs:
        t = case.graph.tensor(name)
        info = np.iinfo(t.dtype)
        inputs[name] = case.rng.integers(info.min, info.max + 1, t.shape).astype(t.dtype)
    case.graph.verify("generation")
    return case.graph, inputs
