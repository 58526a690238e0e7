"""Functions that are no approximations: each of their float32 values is onnxruntime's, computed at compile time or by a
kernel. So tables of them are right where results lie on ties, too."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import tilewright as tw
from tests.common import onnx_models
from tests.common.onnx_models import model_of
from tilewright.compiler.importer.onnx import import_onnx
from tilewright.compiler.passes.fold.evaluate import node_value
from verification.fuzz.ties.parameters import BASES, RATIOS

FUNCTIONS: list[tuple[str, dict[str, Any]]] = [
    ("Abs", {}), ("Ceil", {}), ("Floor", {}), ("HardSigmoid", {}), ("HardSigmoid", {"alpha": 1 / 6, "beta": 0.5}),
    ("HardSwish", {}), ("LeakyRelu", {}), ("LeakyRelu", {"alpha": 0.3}), ("Neg", {}), ("Reciprocal", {}), ("Relu", {}),
    ("Round", {}), ("Shrink", {}), ("Shrink", {"bias": 0.1, "lambd": 0.3}), ("Sign", {}), ("Softsign", {}),
    ("Sqrt", {}), ("ThresholdedRelu", {}), ("ThresholdedRelu", {"alpha": 0.3}),
]  # fmt: skip
#: Every difference of two codes by every scale of the generator of tying parameters.
VALUES = np.concatenate(
    [
        np.arange(-255, 256).astype(np.float32) * (np.float32(base) * np.float32(ratio))
        for base, ratio in itertools.product(BASES, sorted(set(RATIOS)))
    ]
)


def _bits(values: np.ndarray) -> np.ndarray:
    """The bits of float32; those of any NaN are alike."""
    return np.where(np.isnan(values), np.float32(np.nan), values).astype(np.float32).view(np.uint32)


@pytest.mark.parametrize(("op", "attrs"), FUNCTIONS)
def test_values_in_every_bit(op: str, attrs: dict[str, Any]) -> None:
    model = model_of([helper.make_node(op, ["x"], ["y"], **attrs)], {"x": VALUES}, {"y": VALUES})
    expected = _bits(onnx_models.run(model, {"x": VALUES})["y"])
    graph = import_onnx(model)
    (constant,) = node_value(graph, graph.nodes[0], [VALUES])
    assert (_bits(constant) == expected).all()
    kernel = tw.Device("functional").run(tw.compile(model, cpu_only=True, cache=False), {"x": VALUES})["y"]
    assert (_bits(kernel) == expected).all()


@pytest.mark.parametrize("cpu_only", [False, True])
def test_table_of_softsign_on_ties(cpu_only: bool) -> None:
    """Steps of 1/15: k / (1 + k / 15) lies on ties for k of 15, 45 and others."""
    constants = {"s": np.float32(1 / 15), "zx": np.uint8(152), "zy": np.uint8(27)}
    nodes = [
        helper.make_node("DequantizeLinear", ["q", "s", "zx"], ["x"]),
        helper.make_node("Softsign", ["x"], ["y"]),
        helper.make_node("QuantizeLinear", ["y", "s", "zy"], ["out"]),
    ]
    q = np.arange(256, dtype=np.uint8)[None]
    spec = (onnx.TensorProto.UINT8, [1, 256])
    onnx_models.assert_equal(model_of(nodes, {"q": spec}, {"out": spec}, constants), {"q": q}, cpu_only=cpu_only)
