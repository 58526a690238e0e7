"""onnxruntime beside dynamic models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper

import tilewright as tw


def reference(model: onnx.ModelProto, feeds: dict[str, Any]) -> list[Any]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    options.add_session_config_entry("session.qdqisint8allowed", "1")
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, feeds)


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
    kinds = {n: onnx.TensorProto.STRING if v.dtype.kind in "OU" else helper.np_dtype_to_tensor_dtype(v.dtype)
             for n, v in feeds.items()}  # fmt: skip
    names = [f"y{k}" for k in range(outputs)]
    graph = helper.make_graph(
        [helper.make_node(op, list(feeds), names, domain=domain, **attrs)],
        "node",
        [helper.make_tensor_value_info(n, k, feeds[n].shape) for n, k in kinds.items()],
        [onnx.ValueInfoProto(name=n) for n in names],
    )
    opsets = [helper.make_opsetid("", opset)] + ([helper.make_opsetid(domain, 4)] if domain else [])
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def check_node(op: str, inputs: Sequence[Any], outputs: int = 1, **options: Any) -> None:
    """One node, all inputs run-time values, against onnxruntime."""
    feeds = {f"x{k}": np.asarray(v, np.object_ if _text(v) else None) for k, v in enumerate(inputs)}
    model = node_model(op, feeds, outputs, **options)
    got = tw.DynamicModel(model, cache=False)(feeds)
    for a, b in zip(got.values(), reference(model, feeds)):
        assert_same(a, b)


def _text(value: Any) -> bool:
    return np.asarray(value).dtype.kind in "OU"
