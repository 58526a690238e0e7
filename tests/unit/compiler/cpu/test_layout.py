"""Relayout and PackMatMulParams against numpy indexing."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.compiler.cpu.support import compile_all, execute
from tilewright.compiler.graph.graph import Graph, Node, Tensor

R = np.random.default_rng(5)
Tables = list[dict[int, np.ndarray]]


def data(*shape: int) -> np.ndarray:
    return R.integers(-128, 128, shape).astype(np.int8)


def want(x: np.ndarray, shape: tuple[int, ...], tables: Tables, xor: int, fill: int) -> np.ndarray:
    grid = np.indices(shape)
    inside, at = np.ones(shape, bool), []
    for k, n in enumerate(x.shape):
        c = np.zeros(shape, np.int64)
        for d, t in tables[k].items():
            c = c + np.asarray(t)[grid[d]]
        inside &= (c >= 0) & (c < n)
        at.append(np.clip(c, 0, n - 1))
    return np.where(inside, (x[tuple(at)].view(np.uint8) ^ xor).view(np.int8), np.int8(fill))


def check(
    x: np.ndarray, shape: tuple[int, ...], tables: Tables, xor: int = 0x80, fill: int = -7, block: int = 0
) -> None:
    wanted = want(x, shape, tables, xor, fill)
    if block:
        n, h, w, c = shape
        wanted = wanted.reshape(n, h, w, c // block, block).transpose(0, 3, 1, 2, 4)
    graph = Graph("r")
    graph.add(Tensor("x", x.shape, x.dtype))
    graph.add(Tensor("y", wanted.shape, np.dtype(np.int8)))
    attrs = {"shape": wanted.shape, "tables": tables, "xor": xor, "fill": fill, "block": block}
    graph.nodes = [Node("Relayout", ["x"], ["y"], attrs)]
    graph.inputs, graph.outputs = ["x"], ["y"]
    got = execute(compile_all(graph), graph, {"x": x})[0]
    np.testing.assert_array_equal(got, wanted)


def blocked(n: int, c: int, h: int, w: int, b: int) -> tuple[tuple[int, ...], Tables]:
    blocks = -(-c // b)
    tables = [{0: np.arange(n)}, {1: np.arange(blocks) * b, 4: np.arange(b)}, {2: np.arange(h)}, {3: np.arange(w)}]
    return (n, blocks, h, w, b), tables


def unblocked(n: int, c: int, h: int, w: int, b: int) -> tuple[tuple[int, ...], Tables]:
    c_of = np.arange(c)
    return (n, c, h, w), [{0: np.arange(n)}, {1: c_of // b}, {2: np.arange(h)}, {3: np.arange(w)}, {1: c_of % b}]


@pytest.mark.slow
@settings(max_examples=25)
@given(st.integers(1, 2), st.integers(1, 50), st.integers(1, 12), st.integers(1, 20), st.sampled_from([4, 8, 16, 32]))
def test_channel_blocks(n: int, c: int, h: int, w: int, b: int) -> None:
    shape, tables = blocked(n, c, h, w, b)
    check(data(n, c, h, w), shape, tables)
    inner, back = unblocked(n, c, h, w, b)
    check(data(*shape), inner, back)


@pytest.mark.medium
@pytest.mark.parametrize(
    "kernel, stride, channels, lanes", [(7, 2, 3, 32), (3, 1, 3, 16), (3, 2, 1, 16), (5, 3, 2, 16)]
)
def test_image_columns(kernel: int, stride: int, channels: int, lanes: int) -> None:
    """Rows of a kernel gathered into lanes, with padding around the image."""
    pad, size = kernel // 2, 37
    out = (size + 2 * pad - kernel) // stride + 1
    lane = np.arange(lanes)
    used = lane < kernel * channels
    c, kx = np.where(used, lane % channels, -1), np.where(used, lane // channels, 0)
    y, x = {1: np.arange(kernel) - pad, 2: np.arange(out) * stride}, {3: np.arange(out) * stride - pad, 4: kx}
    check(data(1, channels, size, size), (1, kernel, out, out, lanes), [{0: np.zeros(1, int)}, {4: c}, y, x], 0x80, 5)


def windows(
    kernel: int, stride: int, pad: int, channels: int, lanes: int, size: int, channels_first: bool
) -> tuple[tuple[int, ...], Tables]:
    """Whole windows gathered into lanes."""
    out = (size + 2 * pad - kernel) // stride + 1
    order = (channels, kernel, kernel) if channels_first else (kernel, kernel, channels)
    lane = np.arange(lanes)
    used = lane < kernel * kernel * channels
    at = np.stack(np.unravel_index(np.where(used, lane, 0), order))
    c, y, x = at if channels_first else at[[2, 0, 1]]
    start = np.arange(out) * stride - pad
    return (1, out, out, lanes), [{0: np.zeros(1, int)}, {3: np.where(used, c, -1)}, {1: start, 3: y}, {2: start, 3: x}]


@pytest.mark.medium
@pytest.mark.parametrize("channels_first", [False, True])
@pytest.mark.parametrize(
    "kernel, stride, pad, channels, lanes, size",
    [
        (5, 2, 2, 3, 80, 28),
        (3, 2, 1, 3, 32, 37),
        (3, 2, 1, 1, 16, 9),
        (8, 8, 0, 3, 192, 24),
        (4, 4, 2, 2, 32, 40),
        pytest.param(7, 2, 3, 3, 160, 44, marks=pytest.mark.long),
        pytest.param(16, 16, 0, 3, 768, 48, marks=pytest.mark.long),
    ],
)
def test_windows(
    kernel: int, stride: int, pad: int, channels: int, lanes: int, size: int, channels_first: bool
) -> None:
    shape, tables = windows(kernel, stride, pad, channels, lanes, size, channels_first)
    for block in (0, 8, 16):
        check(data(1, channels, size, size), shape, tables, 0x80, 9, block)
    swapped = [tables[0], *tables[2:], tables[1]]  # of a picture with its channels last
    check(data(1, size, size, channels), shape, swapped, 0x80, 9, 16)


@pytest.mark.medium
def test_blocks_of_irregular_rows() -> None:
    """Element by element, in blocks."""
    tables = [{0: np.zeros(2, int)}, {1: R.integers(-5, 15, 80)}, {3: R.integers(-3, 12, 32), 2: R.integers(-1, 2, 5)}]
    check(data(1, 9, 9), (2, 80, 5, 32), tables, 0x80, 3, 8)


@pytest.mark.parametrize("skipped", [0, 2])
def test_a_stretch_of_bytes_is_computed_by_its_reader(skipped: int) -> None:
    """Bytes of one channel block, or of several planes of one element, are unpacked by their reader, without a copy."""
    shape, tables = unblocked(1, 40 - skipped, 1, 1, 16)
    x = data(1, 3, 1, 1, 16)
    graph = Graph("r")
    graph.add(Tensor("x", x.shape, x.dtype))
    graph.add(Tensor("m", shape, np.dtype(np.uint8)))
    graph.add(Tensor("y", shape, np.dtype(np.float32)))
    constants = [graph.constant("s", np.float32(0.25)), graph.constant("z", np.uint8(100))]
    attrs = {"shape": shape, "tables": tables, "xor": 0x80, "fill": 0}
    graph.nodes = [Node("Relayout", ["x"], ["m"], attrs), Node("DequantizeLinear", ["m", *constants], ["y"])]
    graph.inputs, graph.outputs = ["x"], ["y"]
    segment = compile_all(graph)
    moved = want(x, shape, tables, 0x80, 0).view(np.uint8)
    np.testing.assert_array_equal(execute(segment, graph, {"x": x})[0], (moved.astype(np.float32) - 100) * 0.25)
    assert len(segment.description) == 1


@pytest.mark.medium
@pytest.mark.parametrize("fill", [0, 7, -128])
@pytest.mark.parametrize("op", ["Relu", "QuantizeLinear"])
def test_windows_of_computed_values(op: str, fill: int) -> None:
    """The border is around a value that was not in memory before, of either sign."""
    shape, tables = windows(3, 2, 1, 3, 32, 20, True)
    graph = Graph("r")
    graph.add(Tensor("x", (1, 3, 20, 20), np.dtype(np.float32 if op == "QuantizeLinear" else np.int8)))
    kind = np.dtype(np.uint8 if op == "QuantizeLinear" else np.int8)
    graph.add(Tensor("q", (1, 3, 20, 20), kind))
    graph.add(Tensor("y", shape, kind))
    scales = [graph.constant("s", np.float32(0.25)), graph.constant("z", np.uint8(100))]
    attrs = {"shape": shape, "tables": tables, "xor": 0x80, "fill": fill}
    graph.nodes = [
        Node(op, ["x", *(scales if op == "QuantizeLinear" else [])], ["q"]),
        Node("Relayout", ["q"], ["y"], attrs),
    ]
    graph.inputs, graph.outputs = ["x"], ["y"]
    x = R.standard_normal((1, 3, 20, 20)).astype(np.float32) * 10 if op == "QuantizeLinear" else data(1, 3, 20, 20)
    q = np.clip(np.rint(x / 0.25) + 100, 0, 255).astype(np.uint8) if op == "QuantizeLinear" else np.maximum(x, 0)
    got = execute(compile_all(graph), graph, {"x": x})[0]
    np.testing.assert_array_equal(got.view(np.int8), want(q.view(np.int8), shape, tables, 0x80, fill))


@pytest.mark.medium
@pytest.mark.parametrize("columns", [197, 16, 5, 33])
def test_column_blocks(columns: int) -> None:
    """A matrix in blocks of rows and columns, the last ones partly filled."""
    blocks = -(-columns // 16)
    a = np.arange
    tables = [{}, {0: a(3)}, {2: a(4) * 16, 4: a(16)}, {1: a(blocks) * 16, 3: a(16)}]
    check(data(1, 3, 60, columns), (3, blocks, 4, 16, 16), tables, 0, 3)


@pytest.mark.medium
def test_irregular() -> None:
    check(data(50, 20), (50, 20), [{0: R.permutation(50)}, {1: np.arange(20)}])
    check(data(9, 9), (200, 30), [{0: R.integers(-5, 15, 200)}, {1: R.integers(-3, 12, 30), 0: R.integers(-1, 2, 200)}])
    check(data(6), (2, 3), [{0: np.array([0, 3]), 1: np.arange(3)}], 0)


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("batch", [(), (2, 3)])
def test_pack_matmul_params(dtype: str, batch: tuple[int, ...]) -> None:
    k, n, lanes, scale = 13, 21, 16, np.float32(0.0123)
    b = data(*batch, k, n).view(dtype)
    za, zb, xor = -7, 5, 0x80 if dtype == "uint8" else 0
    shape = (*batch, 2, lanes, 2)
    graph = Graph("p")
    graph.add(Tensor("b", b.shape, b.dtype))
    graph.add(Tensor("y", shape, np.dtype(np.int32)))
    attrs = {"a_zero_point": za, "b_zero_point": zb, "scale": scale, "lanes": lanes, "xor": xor}
    graph.nodes, graph.inputs, graph.outputs = [Node("PackMatMulParams", ["b"], ["y"], attrs)], ["b"], ["y"]
    got = execute(compile_all(graph), graph, {"b": b})[0].reshape(*batch, 32, 2)
    moved = (b.view(np.uint8) ^ xor).view(np.int8).astype(np.int32)
    np.testing.assert_array_equal(got[..., :n, 0], k * za * zb - za * moved.sum(-2))
    assert np.all(got[..., :n, 1] == scale.view(np.int32)) and not got[..., n:, :].any()
