"""onnxruntime beside dynamic models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper

import tilewright as tw
from tests.common import onnx_models


def reference(model: onnx.ModelProto, feeds: dict[str, Any]) -> list[Any]:
    """onnxruntime's outputs in order."""
    return list(onnx_models.run(model, feeds).values())


def assert_same(got: Any, want: Any, rtol: float = 1e-5) -> None:
    if isinstance(want, list):
        assert isinstance(got, list) and len(got) == len(want)
        for a, b in zip(got, want):
            assert_same(a, b, rtol)
        return
    assert got.shape == want.shape, (got.shape, want.shape)
    assert got.dtype == want.dtype, (got.dtype, want.dtype)
    if want.dtype.kind == "f":
        np.testing.assert_allclose(got, want, rtol=rtol, atol=rtol * float(np.abs(want).max(initial=0)))
    else:
        assert got.tolist() == want.tolist()


def node_model(
    op: str, feeds: dict[str, np.ndarray], outputs: int, opset: int = 21, domain: str = "", **attrs: Any
) -> onnx.ModelProto:
    """One node, its inputs those in `feeds`."""
    names = [f"y{k}" for k in range(outputs)]
    nodes = [helper.make_node(op, list(feeds), names, domain=domain, **attrs)]
    return onnx_models.model_of(nodes, feeds, names, opset=opset, **({domain: 4} if domain else {}))


def check_node(op: str, inputs: Sequence[Any], outputs: int = 1, **options: Any) -> None:
    """One node, all inputs run-time values, against onnxruntime."""
    feeds = {f"x{k}": np.asarray(v, np.object_ if _text(v) else None) for k, v in enumerate(inputs)}
    model = node_model(op, feeds, outputs, **options)
    got = tw.DynamicModel(model, cache=False)(feeds)
    for a, b in zip(got.values(), reference(model, feeds)):
        assert_same(a, b)


def _text(value: Any) -> bool:
    return np.asarray(value).dtype.kind in "OU"
