"""MatMul, Gemm, convolutions, and what is fused behind them, against onnxruntime."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from tests.common.onnx_models import model_of
from tests.unit.compiler.cpu.support import check, check_op, execute
from tilewright.checking.saturation import saturates
from tilewright.compiler.cpu import Target, compile_segment
from tilewright.compiler.importer.onnx import import_onnx

R = np.random.default_rng(3)


def normal(*shape: int) -> np.ndarray:
    return R.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize(
    "a, b",
    [
        ((5, 7), (7, 9)),
        ((1, 64), (64, 100)),
        ((3, 2, 15, 33), (33, 40)),
        ((2, 3, 4, 8), (3, 8, 5)),
        ((2, 1, 4, 8), (3, 8, 5)),
        ((4, 8), (6, 8, 3)),
        ((8,), (8, 5)),
        ((3, 8), (8,)),
        ((2, 3, 8), (8,)),
        ((8,), (2, 8, 3)),
        ((8,), (8,)),
        ((130, 300), (300, 70)),
    ],
)
@pytest.mark.parametrize("const", [(), (1,)])
def test_matmul(a: tuple[int, ...], b: tuple[int, ...], const: tuple[int, ...]) -> None:
    check_op("MatMul", [normal(*a), normal(*b)], consts=const)


def test_matmul_types() -> None:
    x, y = R.integers(-9, 9, (4, 6)), R.integers(-9, 9, (6, 5))
    for dtype in ("int32", "int64", "float64"):
        check_op("MatMul", [x.astype(dtype), y.astype(dtype)])


@pytest.mark.medium
@settings(max_examples=10)
@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 70), st.booleans(), st.booleans(), st.booleans())
def test_gemm(m: int, k: int, n: int, ta: bool, tb: bool, const: bool) -> None:
    a, b = normal(*((k, m) if ta else (m, k))), normal(*((n, k) if tb else (k, n)))
    check_op(
        "Gemm", [a, b, normal(n)], consts=(1, 2) if const else (), transA=int(ta), transB=int(tb), alpha=0.5, beta=2.0
    )


CONVOLUTIONS = [
    ((1, 3, 32, 32), (16, 3, 3, 3), {"pads": [1] * 4}),
    ((2, 8, 15, 17), (12, 8, 3, 3), {"strides": [2, 2], "pads": [1, 0, 1, 2]}),
    ((1, 64, 14, 14), (40, 64, 1, 1), {}),
    ((1, 16, 14, 14), (20, 16, 1, 1), {"strides": [2, 2]}),
    ((1, 8, 9, 9), (8, 1, 3, 3), {"group": 8, "pads": [1] * 4}),
    ((1, 8, 9, 9), (16, 1, 3, 3), {"group": 8, "pads": [1] * 4, "strides": [2, 2]}),
    ((1, 8, 9, 9), (16, 2, 3, 3), {"group": 4, "dilations": [2, 2]}),
    ((2, 4, 30), (6, 4, 5), {"auto_pad": "SAME_UPPER", "strides": [2]}),
    ((1, 4, 3000), (6, 4, 5), {"auto_pad": "SAME_LOWER"}),
    ((1, 2, 5, 6, 7), (4, 2, 3, 3, 3), {"pads": [1] * 6}),
    ((1, 40, 7, 7), (33, 40, 7, 7), {"pads": [3] * 4}),
    ((1, 6, 40, 40), (6, 1, 9, 9), {"group": 6, "pads": [4] * 4}),
    ((1, 5, 21, 35), (5, 1, 7, 7), {"group": 5, "pads": [3] * 4}),
    ((1, 5, 21, 35), (5, 1, 7, 7), {"group": 5, "pads": [3] * 4, "strides": [2, 2]}),
    ((1, 5, 21, 34), (5, 1, 5, 5), {"group": 5, "pads": [2] * 4, "strides": [2, 3], "dilations": [1, 2]}),
    ((1, 3, 30, 30), (3, 1, 12, 12), {"group": 3}),
]


@pytest.mark.medium
@pytest.mark.parametrize("x, w, attrs", CONVOLUTIONS)
@pytest.mark.parametrize("const", [(), (1, 2)])
def test_conv(x: tuple, w: tuple, attrs: dict, const: tuple) -> None:
    check_op("Conv", [normal(*x), normal(*w), normal(w[0])], consts=const, **attrs)


@pytest.mark.medium
@pytest.mark.parametrize(
    "x, w, attrs",
    [
        ((1, 3, 8, 8), (3, 5, 3, 3), {"strides": [2, 2], "pads": [1] * 4, "output_padding": [1, 1]}),
        ((1, 4, 9), (4, 2, 4), {"group": 2, "strides": [3]}),
        ((1, 4, 5, 5), (4, 4, 3, 3), {"pads": [3] * 4}),
        ((2, 6, 5, 4), (6, 4, 3, 3), {"group": 2, "dilations": [2, 1], "strides": [1, 2]}),
        ((1, 3, 5, 5), (3, 4, 3, 3), {"auto_pad": "SAME_UPPER", "strides": [2, 2]}),
        ((1, 3, 5, 5), (3, 4, 3, 3), {"output_shape": [10, 8], "strides": [2, 2]}),
        ((1, 2, 3, 4, 5), (2, 3, 2, 2, 2), {"strides": [2, 2, 2]}),
        ((2, 6, 7, 5), (6, 1, 2, 2), {"strides": [2, 2]}),
        ((1, 6, 7, 5), (6, 3, 3, 3), {"strides": [3, 3]}),
        ((1, 6, 7, 5), (6, 1, 2, 2), {"group": 2, "strides": [2, 2]}),
    ],
)
@pytest.mark.parametrize("const", [(), (1,)])
def test_conv_transpose(x: tuple, w: tuple, attrs: dict, const: tuple) -> None:
    check_op("ConvTranspose", [normal(*x), normal(*w)], consts=const, **attrs)


@pytest.mark.medium
def test_residual_block_fuses() -> None:
    """Bias, batch normalisation, residual and activation follow each tile: no loop of their own."""
    n = helper.make_node
    nodes = [
        n("Conv", ["x", "w1", "b1"], ["c1"], pads=[1] * 4),
        n("BatchNormalization", ["c1", "s", "t", "m", "v"], ["n1"]),
        n("Relu", ["n1"], ["r1"]),
        n("Conv", ["r1", "w2"], ["c2"], pads=[1] * 4),
        n("Conv", ["x", "w3"], ["c3"]),
        n("Add", ["c2", "c3"], ["a"]),
        n("Relu", ["a"], ["y"]),
        n("GlobalAveragePool", ["y"], ["p"]),
        n("Flatten", ["p"], ["f"]),
        n("Gemm", ["f", "w4", "b4"], ["o"], transB=1),
    ]
    consts = {
        "w1": normal(24, 8, 3, 3), "b1": normal(24), "w2": normal(20, 24, 3, 3), "w3": normal(20, 8, 1, 1),
        "s": normal(24), "t": normal(24), "m": normal(24), "v": np.abs(normal(24)),
        "w4": normal(10, 20), "b4": normal(10),
    }  # fmt: skip
    segment = check(nodes, {"x": normal(2, 8, 13, 12)}, consts, ["o"])
    assert sum(" product;" in line for line in segment.description) == 4
    assert sum("loop" in line for line in segment.description) == 3  # two pads and the pooling


@pytest.mark.medium
@pytest.mark.parametrize("a", ["int8", "uint8"])
@pytest.mark.parametrize("b", ["int8", "uint8"])
@pytest.mark.parametrize("const", [(), (1, 2, 3)])
def test_matmul_integer(a: str, b: str, const: tuple) -> None:
    narrow = 2 if (a, b) == ("uint8", "int8") and saturates() else 1
    x = lambda d, *s: (R.integers(np.iinfo(d).min, np.iinfo(d).max + 1, s) // (narrow if d == b else 1)).astype(d)
    check_op("MatMulInteger", [x(a, 5, 37), x(b, 37, 50), x(a)[()], x(b)[()]], consts=const)
    check_op("MatMulInteger", [x(a, 2, 17, 16), x(b, 16, 33), x(a)[()]], consts=tuple(c for c in const if c < 3))
    check_op("MatMulInteger", [x(a, 2, 3, 7), x(b, 2, 7, 5)])


@pytest.mark.medium
@pytest.mark.parametrize("x, w, attrs", [c for c in CONVOLUTIONS if len(c[0]) < 5])
@pytest.mark.parametrize("weights", ["int8", "uint8"])
def test_conv_integer(x: tuple, w: tuple, attrs: dict, weights: str) -> None:
    data = lambda d, *s: R.integers(np.iinfo(d).min, np.iinfo(d).max + 1, s).astype(d)
    inputs = [data("uint8", *x), data(weights, *w), np.uint8(7), np.array(0 if weights == "int8" else 131, weights)]
    check_op("ConvInteger", inputs, consts=(1, 2, 3), **attrs)


@pytest.mark.medium
@pytest.mark.parametrize("a_type", [np.int8, np.uint8])
@pytest.mark.parametrize("b_type", [np.int8, np.uint8])
@pytest.mark.parametrize(("m", "k", "n"), [(77, 192, 70), (16, 64, 32), (33, 128, 100), (40, 100, 33)])
@pytest.mark.parametrize("constant", [True, False])
def test_integers_in_matrix_registers(a_type: type, b_type: type, m: int, k: int, n: int, constant: bool) -> None:
    """Exact, with and without the instructions, over all bytes; only whole registers of k go there."""
    rng = np.random.default_rng(m + k)
    draw = lambda t, *shape: rng.integers(np.iinfo(t).min, np.iinfo(t).max + 1, shape).astype(t)
    a, b = draw(a_type, m, k), draw(b_type, k, n)
    want = a.astype(np.int64) @ b.astype(np.int64)
    feeds = {"a": a} if constant else {"a": a, "b": b}
    model = model_of([helper.make_node("MatMulInteger", ["a", "b"], ["y"])], feeds, ["y"], {"b": b} if constant else {})
    host = Target.host()
    for target in dict.fromkeys((host, replace(host, has_amx=False))):
        graph = import_onnx(model)
        segment = compile_segment(graph, graph.nodes, graph.inputs, graph.outputs, "s", target)
        np.testing.assert_array_equal(execute(segment, graph, feeds)[0], want)
        assert (b"tilea_" in segment.object_code) == (target.has_amx and k % 64 == 0)
