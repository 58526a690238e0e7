"""Loops written in vectors: ragged ends, transposed blocks, rows, streaming stores, accuracy of the functions."""

from __future__ import annotations

import math

import numpy as np
import pytest
from onnx import helper

from tests.common.onnx_models import model_of
from tests.unit.compiler.cpu.support import compile_all, execute, run_reference
from tilewright.compiler.cpu import Target, compile_segment
from tilewright.compiler.cpu.loops import streaming
from tilewright.compiler.graph.graph import Graph, Node, Tensor
from tilewright.compiler.importer.onnx import import_onnx

RNG = np.random.default_rng(7)
F4 = np.dtype(np.float32)


def node_graph(op: str, x: np.ndarray, shape: tuple[int, ...], **attrs: object) -> Graph:
    graph = Graph("g", 21)
    graph.add(Tensor("x", x.shape, x.dtype))
    graph.add(Tensor("y", shape, x.dtype))
    graph.nodes = [Node(op, ["x"], ["y"], dict(attrs))]
    graph.inputs, graph.outputs = ["x"], ["y"]
    return graph


def run_one(op: str, x: np.ndarray, shape: tuple[int, ...] | None = None, **attrs: object) -> np.ndarray:
    graph = node_graph(op, x, shape or x.shape, **attrs)
    return execute(compile_all(graph), graph, {"x": x})[0]


@pytest.mark.medium
@pytest.mark.parametrize("n", [1, 3, 4, 15, 16, 17, 63, 64, 65, 197, 1000])
def test_ragged_ends(n: int) -> None:
    """Nothing behind the end is read into the result or written."""
    x = RNG.standard_normal((3, n)).astype(np.float32)
    np.testing.assert_array_equal(run_one("Relu", x), np.maximum(x, 0))
    np.testing.assert_allclose(run_one("ReduceSum", x, (1, 1)), x.sum(keepdims=True), rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(run_one("ReduceMax", x, (1, 1)), x.max(keepdims=True))
    e = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    np.testing.assert_allclose(run_one("Softmax", x, axis=-1), e / e.sum(1, keepdims=True), rtol=2e-6)


@pytest.mark.medium
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int16, np.int64, np.int8, np.bool_], ids=str)
@pytest.mark.parametrize("shape", [(16, 16), (33, 70), (8, 100), (200, 130), (3, 65, 31)], ids=str)
def test_transposed_blocks(dtype: type, shape: tuple[int, ...]) -> None:
    x = (RNG.standard_normal(shape) * 100).astype(dtype)
    perm = [*range(len(shape) - 2), len(shape) - 1, len(shape) - 2]
    np.testing.assert_array_equal(run_one("Transpose", x, tuple(shape[p] for p in perm), perm=perm), x.transpose(perm))


@pytest.mark.parametrize("dtype", [np.float32, np.uint8], ids=str)
def test_transposes_are_blocked(dtype: type) -> None:
    """No loop over single elements is left to LLVM."""
    x = np.zeros((1, 24, 40, 40), dtype)
    graph = node_graph("Transpose", x, (1, 40, 40, 24), perm=[0, 2, 3, 1])
    assert b"vector_" in compile_all(graph).object_code and b"loop_" not in compile_all(graph).object_code


@pytest.mark.parametrize("offset", [0, 4], ids=["aligned", "unaligned"])
def test_streaming_stores(monkeypatch: pytest.MonkeyPatch, offset: int) -> None:
    """Large results go past the caches where they are aligned, and are the same where they are not."""
    monkeypatch.setattr(streaming, "STREAM_BYTES", 0)
    x = RNG.standard_normal((5, 16 * 7)).astype(np.float32)
    graph = node_graph("HardSwish", x, x.shape)
    segment = compile_all(graph)
    from tilewright.compiler.cpu import load

    run = load(segment.object_code, segment.symbol)
    memory = np.zeros(x.nbytes + 128, np.uint8)
    start = -memory.ctypes.data % 64 + offset
    run([x.ctypes.data, memory.ctypes.data + start], 0)
    got = memory[start : start + x.nbytes].view(np.float32).reshape(x.shape)
    want = run_reference(model_of([helper.make_node("HardSwish", ["x"], ["y"])], {"x": x}, ["y"]), {"x": x}, ["y"])
    np.testing.assert_allclose(got, want[0], rtol=1e-6, atol=1e-7)
    assert not memory[:start].any() and not memory[start + x.nbytes :].any()


def ulps(got: np.ndarray, want: np.ndarray) -> float:
    """Largest distance in units of the last place of float32."""
    return float(np.max(np.abs(got.astype(np.float64) - want) / np.spacing(np.abs(want).astype(np.float32))))


@pytest.mark.parametrize(
    ("op", "exact", "low", "high", "limit"),
    [
        ("Exp", np.exp, -87.0, 88.0, 1.5),
        ("Log", np.log, 1e-30, 1e30, 2.0),
        ("Tanh", np.tanh, -12.0, 12.0, 6.0),
        ("Erf", np.vectorize(math.erf), -5.0, 5.0, 6.0),
        ("Sigmoid", lambda x: 1 / (1 + np.exp(-x)), -80.0, 80.0, 3.0),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_accuracy(op: str, exact, low: float, high: float, limit: float) -> None:  # type: ignore[no-untyped-def]
    """Errors against float64 stay below the limit in ulps, over the whole range and close to zero."""
    spread = np.linspace(low, high, 40001) if low < 0 else np.geomspace(low, high, 40001)
    near = np.concatenate([-np.geomspace(1e-30, 1, 4000), np.geomspace(1e-30, 1, 4000)]) if low < 0 else spread
    x = np.concatenate([spread, near]).astype(np.float32)
    assert ulps(run_one(op, x), exact(x.astype(np.float64))) <= limit


@pytest.mark.parametrize("op", ["Exp", "Tanh", "Erf", "Sigmoid"])
def test_special_values(op: str) -> None:
    x = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 200.0, -200.0, 1e-42], np.float32).repeat(3)
    got = run_one(op, x)
    want = run_reference(model_of([helper.make_node(op, ["x"], ["y"])], {"x": x}, ["y"]), {"x": x}, ["y"])[0]
    np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-38)
    assert np.all(np.abs(got) <= 1) | (op == "Exp") | np.isnan(got).any()


def test_softmax_of_infinite_and_missing() -> None:
    x = RNG.standard_normal((4, 40)).astype(np.float32)
    x[0, 5], x[1, 7:], x[2, :] = np.nan, -np.inf, -1e30
    model = model_of([helper.make_node("Softmax", ["x"], ["y"])], {"x": x}, ["y"])
    np.testing.assert_allclose(run_one("Softmax", x, axis=-1), run_reference(model, {"x": x}, ["y"])[0], rtol=2e-6)


def test_rows_take_what_follows() -> None:
    """LayerNormalization and the ops behind it are one stage, with no tensor in between."""
    x = RNG.standard_normal((6, 50)).astype(np.float32)
    scale, bias = RNG.standard_normal((2, 50)).astype(np.float32)
    nodes = [
        helper.make_node("Tanh", ["x"], ["t"]),
        helper.make_node("LayerNormalization", ["t", "s", "b"], ["n"], axis=-1),
        helper.make_node("Relu", ["n"], ["r"]),
        helper.make_node("Add", ["r", "x"], ["y"]),
    ]
    model = model_of(nodes, {"x": x}, ["y"], {"s": scale, "b": bias})
    graph = import_onnx(model)
    segment = compile_all(graph)
    assert len(segment.description) == 1 and "rows" in segment.description[0]
    np.testing.assert_allclose(
        execute(segment, graph, {"x": x})[0], run_reference(model, {"x": x}, ["y"])[0], rtol=1e-5, atol=1e-6
    )


@pytest.mark.medium
@pytest.mark.parametrize(
    "target",
    [
        Target(triple="x86_64-unknown-linux-gnu", cpu="x86-64-v3", vector_bits=256),
        Target(triple="aarch64-unknown-linux-gnu", cpu="cortex-a53", vector_registers=32),
        Target(triple="armv7a-unknown-linux-gnueabihf", cpu="cortex-a9", features="+neon", has_fma=False),
    ],
    ids=lambda t: t.triple.split("-")[0],
)
def test_targets_without_masks(target: Target) -> None:
    x = RNG.standard_normal((3, 37)).astype(np.float32)
    for op, shape, attrs in (("Softmax", x.shape, {"axis": -1}), ("Transpose", (37, 3), {"perm": [1, 0]})):
        graph = node_graph(op, x, shape, **attrs)
        segment = compile_segment(graph, graph.nodes, ["x"], ["y"], "s", target)
        if target.triple.startswith("x86"):
            host = node_graph(op, x, shape, **attrs)
            want = execute(compile_all(host), host, {"x": x})[0]
            np.testing.assert_allclose(execute(segment, graph, {"x": x})[0], want, rtol=1e-6)


@pytest.mark.parametrize("shape", [(16, 32), (33, 70), (3, 65, 31), (10, 9)], ids=str)
def test_bytes_turned_without_masks(shape: tuple[int, ...]) -> None:
    x = RNG.integers(-128, 128, shape).astype(np.int8)
    perm = [*range(len(shape) - 2), len(shape) - 1, len(shape) - 2]
    graph = node_graph("Transpose", x, tuple(shape[p] for p in perm), perm=perm)
    segment = compile_segment(graph, graph.nodes, ["x"], ["y"], "kernel_under_test", Target.named("x86_64-linux"))
    np.testing.assert_array_equal(execute(segment, graph, {"x": x})[0], x.transpose(perm))
