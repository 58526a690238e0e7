"""Segments as a whole: memory arena, object code in another process, errors, determinism, other targets."""

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.compiler.cpu.support import compile_all, execute
from tilewright.compiler.cpu import PackedConstants, Target, compile_segment, unsupported_reason
from tilewright.compiler.cpu.stages.memory import ALIGNMENT, Lifetime, place
from tilewright.compiler.errors import UnsupportedError
from tilewright.compiler.graph.graph import Graph, Node, Tensor


@pytest.mark.medium
@given(st.lists(st.tuples(st.integers(0, 500), st.integers(0, 20), st.integers(0, 8)), max_size=25))
def test_arena(items: list[tuple[int, int, int]]) -> None:
    lives = [Lifetime(n, a, a + d) for n, a, d in items]
    offsets, total = place(lives)
    for i, a in enumerate(lives):
        assert offsets[i] % ALIGNMENT == 0 and offsets[i] + a.nbytes <= total
        for j, b in enumerate(lives[:i]):
            apart = a.last < b.first or b.last < a.first
            assert apart or offsets[i] + a.nbytes <= offsets[j] or offsets[j] + b.nbytes <= offsets[i]
    peak = max((sum(-(-x.nbytes // 64) * 64 for x in lives if x.first <= t <= x.last) for t in range(30)), default=0)
    assert peak <= total <= max(2 * peak, 0)


def small() -> Graph:
    graph = Graph("g", 21)
    f4 = np.dtype(np.float32)
    rng = np.random.default_rng(0)
    graph.add(Tensor("x", (1, 3, 20, 20), f4))
    graph.add(Tensor("w", (24, 3, 3, 3), f4, rng.standard_normal((24, 3, 3, 3)).astype(f4)))
    graph.add(Tensor("v", (40, 24, 3, 3), f4, rng.standard_normal((40, 24, 3, 3)).astype(f4)))
    for name, shape in (("a", (1, 24, 18, 18)), ("b", (1, 24, 18, 18)), ("c", (1, 40, 16, 16)), ("y", (1, 40, 16, 16))):
        graph.add(Tensor(name, shape, f4))
    window = {"strides": [1, 1], "dilations": [1, 1], "pads": [0, 0, 0, 0], "group": 1}
    graph.nodes = [
        Node("Conv", ["x", "w"], ["a"], window, "first"),
        Node("Relu", ["a"], ["b"]),
        Node("Conv", ["b", "v"], ["c"], window, "second"),
        Node("Softmax", ["c"], ["y"], {"axis": 1}),
    ]
    graph.inputs, graph.outputs = ["x"], ["y"]
    return graph


@pytest.mark.medium
def test_fresh_process(tmp_path) -> None:  # type: ignore[no-untyped-def]
    """The object is all there is: no compiler, no numpy arithmetic, at run time."""
    graph = small()
    segment = compile_all(graph)
    x = np.random.default_rng(1).standard_normal((1, 3, 20, 20)).astype(np.float32)
    want = execute(segment, graph, {"x": x})[0]
    (tmp_path / "k.o").write_bytes(segment.object_code)
    constants = {f"c{k}": graph.tensors[n].data for k, n in enumerate(segment.constants)}
    np.savez(tmp_path / "d.npz", x=x, **constants)
    script = f"""
import numpy as np
from tilewright.compiler.cpu.object.loader import load
d = np.load(r"{tmp_path / "d.npz"}")
buffers = [d["x"]] + [d[f"c{{k}}"] for k in range({len(constants)})] + [np.zeros((1, 40, 16, 16), np.float32)]
w = np.zeros({segment.workspace_bytes} + 64, np.uint8)
run = load(open(r"{tmp_path / "k.o"}", "rb").read(), "kernel_under_test")
run([b.ctypes.data for b in buffers], w.ctypes.data + -w.ctypes.data % 64)
np.save(r"{tmp_path / "y.npy"}", buffers[-1])
"""
    subprocess.run([sys.executable, "-c", script], check=True)
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), want)


@pytest.mark.medium
def test_deterministic() -> None:
    a, b = compile_all(small()), compile_all(small())
    assert a.object_code == b.object_code and a.constants == b.constants


def test_packed_weights_are_added_once() -> None:
    graph = small()
    packed, counts = PackedConstants(graph), []
    for _ in range(2):
        compile_segment(graph, graph.nodes, graph.inputs, graph.outputs, "s", packed=packed)
        counts.append(len(graph.tensors))
    assert counts[0] == counts[1]


def test_unsupported() -> None:
    graph = Graph("g")
    graph.add(Tensor("x", (2, 2), np.dtype(np.float32)))
    graph.add(Tensor("y", (2, 2), np.dtype(np.float32)))
    node = Node("Frobnicate", ["x"], ["y"], {}, "n7")
    reason = unsupported_reason(graph, node)
    assert reason is not None and "Frobnicate" in reason and "n7" in reason
    node = Node("Gelu", ["x"], ["y"], {"approximate": "odd"}, "n8")
    assert "approximate='odd'" in (unsupported_reason(graph, node) or "")
    with pytest.raises(UnsupportedError):
        compile_segment(graph, [node], ["x"], ["y"], "s")


@pytest.mark.medium
@pytest.mark.parametrize(
    "target",
    [
        Target(triple="x86_64-unknown-linux-gnu", has_fma=False),
        Target(triple="x86_64-unknown-linux-gnu", cpu="haswell", vector_bits=256),
        Target(triple="aarch64-unknown-linux-gnu", cpu="cortex-a53", vector_registers=32),
        Target(triple="armv7a-unknown-linux-gnueabihf", cpu="cortex-a9", features="+neon", has_fma=False),
        Target(triple="riscv64-unknown-linux-gnu", features="+m,+a,+f,+d,+c", abi="lp64d"),
    ],
    ids=lambda t: f"{t.triple.split('-')[0]}{t.vector_bits}",
)
def test_other_targets(target: Target) -> None:
    graph = small()
    segment = compile_segment(graph, graph.nodes, ["x"], ["y"], "s", target)
    assert segment.object_code[:4] == b"\x7fELF"
    if target.triple.startswith("x86"):  # these run here too
        segment.symbol = "s"
        x = np.random.default_rng(1).standard_normal((1, 3, 20, 20)).astype(np.float32)
        host = small()
        want = execute(compile_all(host), host, {"x": x})[0]
        np.testing.assert_allclose(execute(segment, graph, {"x": x})[0], want, rtol=1e-4, atol=1e-6)


def test_passing_through_and_shared_values() -> None:
    """Outputs that are inputs, constants, views of each other, and values that are both output and operand."""
    graph = Graph("g", 21)
    f4 = np.dtype(np.float32)
    for name, shape in (("x", (2, 6)), ("a", (2, 6)), ("b", (3, 4)), ("c", (12,)), ("d", (2, 6)), ("e", (0, 6))):
        graph.add(Tensor(name, shape, f4))
    k = graph.constant("k", np.arange(12, dtype=np.float32).reshape(2, 6))
    shape = graph.constant("shape", np.array([3, 4]))
    flat = graph.constant("flat", np.array([12]))
    bounds = [graph.constant("s", np.array([v])) for v in (2, 2, 0, 1)]
    graph.nodes = [
        Node("Exp", ["x"], ["a"]),
        Node("Reshape", ["a", shape], ["b"]),
        Node("Reshape", ["b", flat], ["c"]),
        Node("Mul", ["a", "a"], ["d"]),
        Node("Slice", ["x", *bounds], ["e"]),
    ]
    graph.inputs, graph.outputs = ["x"], ["a", "b", "c", "d", "e", "x", k]
    segment = compile_all(graph)
    x = np.linspace(-1, 1, 12, dtype=np.float32).reshape(2, 6)
    a, b, c, d, e, same, constant = execute(segment, graph, {"x": x})
    np.testing.assert_allclose(a, np.exp(x), rtol=1e-6)
    assert np.array_equal(b.reshape(-1), a.reshape(-1)) and np.array_equal(c, a.reshape(-1))
    np.testing.assert_allclose(d, a * a, rtol=1e-6)
    assert e.size == 0 and np.array_equal(same, x) and np.array_equal(constant.reshape(-1), np.arange(12))
