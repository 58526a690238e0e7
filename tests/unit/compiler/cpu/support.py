"""Compiles single nodes and small models and compares them with onnxruntime."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper

from tests.common import onnx_models
from tests.common.segments import run_segment
from tilewright.compiler.cpu import Segment, compile_segment, unsupported_reason
from tilewright.compiler.graph.graph import Graph
from tilewright.compiler.importer.onnx import import_onnx


def execute(segment: Segment, graph: Graph, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    """Runs a segment once; nothing but its outputs and its workspace is written."""
    outputs, faults = run_segment(segment, graph, feeds)
    assert not faults, faults
    return outputs


def compile_all(graph: Graph) -> Segment:
    for node in graph.nodes:
        assert unsupported_reason(graph, node) is None, unsupported_reason(graph, node)
    return compile_segment(graph, graph.nodes, graph.inputs, graph.outputs, "kernel_under_test")


def run_reference(model: onnx.ModelProto, feeds: dict, names: Sequence[str]) -> list[np.ndarray]:
    """onnxruntime's values, each node computed as it stands."""
    found = onnx_models.run(model, feeds, optimize=False)
    return [found[name] for name in names]


def assert_same(got: np.ndarray, want: np.ndarray, rtol: float = 1e-5) -> None:
    """Floats within `rtol` (absolute near zero, relative to the largest element); everything else equal."""
    assert got.shape == want.shape and got.dtype == want.dtype
    if want.dtype.kind == "f":
        finite = np.abs(want[np.isfinite(want)].astype(np.float64))
        scale = min(finite.max(), 100.0) if finite.size else 0.0
        np.testing.assert_allclose(got, want, rtol=rtol, atol=rtol * 0.1 * scale)
    else:
        np.testing.assert_array_equal(got, want)


def check(
    nodes: list[onnx.NodeProto],
    feeds: dict[str, np.ndarray],
    consts: dict[str, np.ndarray],
    outputs: Sequence[str],
    opset: int = 21,
    rtol: float = 1e-5,
) -> Segment:
    """Compares a model with onnxruntime."""
    between = [o for n in nodes for o in n.output if o]
    everything = onnx_models.model_of(nodes, feeds, between, consts, opset=opset)
    values = dict(zip(between, run_reference(everything, feeds, between)))
    graph = import_onnx(onnx_models.model_of(nodes, feeds, outputs, consts, opset=opset))
    segment = compile_all(graph)
    for name, got in zip(outputs, execute(segment, graph, feeds)):
        assert_same(got, values[name], rtol)
    return segment


def check_op(
    op: str,
    inputs: Sequence[np.ndarray | None],
    consts: Sequence[int] = (),
    outputs: int = 1,
    opset: int = 21,
    rtol: float = 1e-5,
    **attrs: Any,
) -> Segment:
    """Compares one node; `consts` are the positions of constant inputs."""
    inputs = [None if a is None else np.asarray(a) for a in inputs]
    names = [f"i{k}" if a is not None else "" for k, a in enumerate(inputs)]
    given = {n: a for k, (n, a) in enumerate(zip(names, inputs)) if a is not None and k not in consts}
    fixed = {names[k]: a for k, a in enumerate(inputs) if a is not None and k in consts}
    results = [f"o{k}" for k in range(outputs)]
    node = helper.make_node(op, names, results, name="node", **attrs)
    return check([node], given, fixed, results, opset, rtol)
