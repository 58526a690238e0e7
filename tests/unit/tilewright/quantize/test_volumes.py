"""3-D convolutions become 2-D ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from tests.common.onnx_models import model_of
from tilewright.quantize import quantize
from tilewright.quantize.observe import run, session
from tilewright.quantize.prepare import prepare
from tilewright.quantize.verifying import verify_here

#: Shape of the input, kernel, attributes.
CASES: list[tuple[list[int], list[int], dict[str, Any]]] = [
    ([1, 4, 5, 6, 7], [3, 3, 3], {"pads": [1] * 6}),
    ([2, 4, 7, 9, 8], [3, 3, 2], {"strides": [2, 2, 1], "pads": [1, 1, 0, 0, 1, 1]}),
    ([1, 4, 6, 7, 7], [2, 1, 3], {"dilations": [3, 1, 2], "group": 2}),
    ([1, 4, 3, 5, 5], [1, 3, 3], {}),
]


def _model(shape: list[int], kernel: list[int], attributes: dict[str, Any]) -> onnx.ModelProto:
    random = np.random.default_rng(0)
    weights = random.normal(size=(6, shape[1] // attributes.get("group", 1), *kernel))
    held = {"w": weights.astype(np.float32), "b": random.normal(size=6).astype(np.float32)}
    return model_of([helper.make_node("Conv", ["x", "w", "b"], ["y"], "conv", **attributes)], {"x": shape}, ["y"], held)


@pytest.mark.parametrize(("shape", "kernel", "attributes"), CASES)
def test_planes(shape: list[int], kernel: list[int], attributes: dict[str, Any]) -> None:
    """The function stays, and all products are on the NPU, as many as before."""
    model = _model(shape, kernel, attributes)
    found = prepare(model)
    random = np.random.default_rng(1)
    samples = [{"x": random.normal(size=shape).astype(np.float32)} for _ in range(4)]
    wanted, got = (run(session(m), samples[0])["y"] for m in (model, found))
    assert wanted.shape == got.shape and np.allclose(wanted, got, atol=1e-4)
    verified = verify_here(quantize(model, samples, check=False).model, samples[0])  # type: ignore
    assert verified.report.ok
    assert verified.npu_macs == verified.macs == wanted.size * np.prod(kernel) * shape[1] // attributes.get("group", 1)


def test_what_stays() -> None:
    """A convolution whose padding follows from its sizes."""
    model = _model([1, 4, 5, 6, 7], [3, 3, 3], {"auto_pad": "SAME_UPPER"})
    (conv,) = (node for node in prepare(model).graph.node if node.op_type == "Conv")
    assert conv.input[0] == "x"
