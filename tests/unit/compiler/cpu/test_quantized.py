"""Quantised operators against the arithmetic of `tilewright.isa.numerics` in numpy, and against onnxruntime's own
kernels."""

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import tilewright as tw
from tests.common import onnx_models
from tests.common.onnx_models import model_of
from tests.unit.compiler.cpu.support import compile_all, execute, run_reference
from tilewright.compiler.graph.graph import QUANTIZED_OPS, Graph, Node, Quant, Tensor
from tilewright.isa import numerics

R = np.random.default_rng(4)
PAIRS = [("int8", "int8"), ("uint8", "int8"), ("uint8", "uint8"), ("int8", "uint8")]


def data(dtype: str, *shape: int) -> np.ndarray:
    info = np.iinfo(dtype)
    return R.integers(info.min, info.max + 1, shape).astype(dtype)


def zero(dtype: str) -> int:
    return int(data(dtype)) // 2


def run(op: str, inputs: list[tuple], out: tuple, **attrs: object) -> np.ndarray:
    """inputs: (array, Quant or None, constant?); out: (shape, dtype, Quant)."""
    graph = Graph("q")
    for k, (a, q, fixed) in enumerate(inputs):
        graph.add(Tensor(f"i{k}", a.shape, a.dtype, a if fixed else None, q))
        if not fixed:
            graph.inputs.append(f"i{k}")
    graph.add(Tensor("y", out[0], np.dtype(out[1]), None, out[2]))
    graph.nodes.append(Node.of(QUANTIZED_OPS[op](**attrs), [f"i{k}" for k in range(len(inputs))], ["y"], "node"))
    graph.outputs = ["y"]
    segment = compile_all(graph)
    return execute(segment, graph, {f"i{k}": a for k, (a, _, _) in enumerate(inputs)})[0]


def reference(nodes: list[onnx.NodeProto], feeds: dict, consts: dict) -> np.ndarray:
    return run_reference(model_of(nodes, feeds, ["y"], consts), feeds, ["y"])[0]


def requantised(
    acc: np.ndarray, scale: np.ndarray, zy: int, dtype: str, low: int = -999, high: int = 999
) -> np.ndarray:
    info = np.iinfo(dtype)
    x = np.rint(acc.astype(np.int32).astype(np.float32) * scale.astype(np.float32)).astype(np.float64) + zy
    return np.clip(x, max(info.min, low), min(info.max, high)).astype(dtype)


CONV = [
    ((1, 5, 9, 11), (7, 5, 3, 3), {"pads": [1, 1, 0, 2], "strides": [1, 2]}),
    ((2, 8, 10, 10), (40, 8, 1, 1), {}),
    ((1, 6, 9, 9), (6, 1, 3, 3), {"pads": [1] * 4, "group": 6}),
    ((1, 8, 9, 9), (12, 4, 3, 3), {"group": 2, "dilations": [2, 2]}),
    ((1, 3, 40), (5, 3, 4), {"strides": [3]}),
]


@pytest.mark.medium
@pytest.mark.parametrize("x, w, attrs", CONV)
@pytest.mark.parametrize("tx, tw", PAIRS)
@pytest.mark.parametrize("channels", [False, True])
def test_conv(x: tuple, w: tuple, attrs: dict, tx: str, tw: str, channels: bool) -> None:
    a, b, bias = data(tx, *x), data(tw, *w), R.integers(-3000, 3000, w[0]).astype(np.int32)
    zx, zy = zero(tx), zero(tx)
    sw = R.uniform(0.01, 0.03, w[0] if channels else ()).astype(np.float32)
    zw = R.integers(-3, 4, sw.shape).astype(np.int32) + (128 if tw == "uint8" else 0)
    sx, sy = np.float32(0.037), np.float32(0.11 * np.sqrt(np.prod(w[1:])))
    # Sums stay below 2^24: exact in float32, whatever the order.
    conv = lambda v, k: reference([helper.make_node("Conv", ["x", "w"], ["y"], **attrs)], {"x": v}, {"w": k})
    shape = (-1,) + (1,) * (len(w) - 1)
    centred = b.astype(np.int32) - zw.reshape(shape if channels else ())
    acc = conv((a.astype(np.int32) - zx).astype(np.float32), centred.astype(np.float32))
    acc = acc.astype(np.int64) + bias.reshape(shape[:1] + shape[2:])
    scale = numerics.product_scale(sx, sw, sy)
    want = requantised(acc, scale.reshape(shape[:1] + shape[2:]) if channels else scale, zy, tx, -100, 120)
    q = Quant(sw, zw, 0 if channels else None)
    attrs = {**attrs, "kernel": list(w[2:])}
    inputs = [(a, Quant.of(sx, zx), False), (b, q, True), (bias, None, True)]
    got = run("QConv", inputs, (want.shape, tx, Quant.of(sy, zy)), out_min=-100, out_max=120, **attrs)
    np.testing.assert_array_equal(got, want)


@pytest.mark.medium
@pytest.mark.parametrize("tx, tw", PAIRS)
def test_conv_transpose(tx: str, tw: str) -> None:
    a, b = data(tx, 1, 6, 5, 5), data(tw, 6, 4, 3, 3)
    zx, zy, zw, sx, sw, sy = zero(tx), zero(tx), 3, np.float32(0.03), np.float32(0.02), np.float32(0.9)
    attrs = {"strides": [2, 2], "pads": [1, 1, 1, 1], "output_padding": [1, 1]}
    feeds = {"x": (a.astype(np.float64) - zx).astype(np.float32)}
    acc = reference(
        [helper.make_node("ConvTranspose", ["x", "w"], ["y"], **attrs)], feeds, {"w": b.astype(np.float32) - zw}
    )
    want = requantised(np.rint(acc), numerics.product_scale(sx, sw, sy), zy, tx)
    inputs = [(a, Quant.of(sx, zx), False), (b, Quant.of(sw, zw), True)]
    got = run("QConvTranspose", inputs, (want.shape, tx, Quant.of(sy, zy)), kernel=[3, 3], **attrs)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("tx, tw", PAIRS)
@pytest.mark.parametrize(
    "a, b, const",
    [
        ((7, 30), (30, 19), True),
        ((2, 3, 16), (16, 40), True),
        ((2, 5, 9), (2, 9, 6), False),
        ((1, 64), (64, 10), True),
    ],
)
def test_matmul(tx: str, tw: str, a: tuple, b: tuple, const: bool) -> None:
    x, w = data(tx, *a), data(tw, *b)
    zx, zw, zy, sx, sy = zero(tx), zero(tw), zero(tx), np.float32(0.03), np.float32(2.1)
    sw = R.uniform(0.01, 0.03, b[-1] if const else ()).astype(np.float32)
    bias = R.integers(-999, 999, b[-1]).astype(np.int32) if const else np.int32(0)
    acc = (x.astype(np.int64) - zx) @ (w.astype(np.int64) - zw) + bias
    want = requantised(acc, numerics.product_scale(sx, sw, sy), zy, tx)
    q = Quant.of(sw, zw, len(b) - 1) if const else Quant.of(sw, zw)
    inputs = [(x, Quant.of(sx, zx), False), (w, q, const)] + ([(bias, None, True)] if const else [])
    np.testing.assert_array_equal(run("QMatMul", inputs, (want.shape, tx, Quant.of(sy, zy))), want)


@pytest.mark.parametrize("ta, tb", PAIRS)
def test_add_mul(ta: str, tb: str) -> None:
    a, b = (
        np.repeat(np.arange(256).astype(np.uint8), 256).view(ta),
        np.tile(np.arange(256).astype(np.uint8), 256).view(tb),
    )
    za, zb, zy = zero(ta), zero(tb), zero(ta)
    sa, sb, sy = (np.float32(v) for v in (0.021, 0.034, 0.047))
    info = np.iinfo(ta)
    inputs = [(a, Quant.of(sa, za), False), (b, Quant.of(sb, zb), False)]
    out = (a.shape, ta, Quant.of(sy, zy))
    want = numerics.add_reference(a, b, sa, za, sb, zb, sy, zy, info.min, info.max)
    np.testing.assert_array_equal(run("QAdd", inputs, out), want.astype(ta))
    want = numerics.mul_reference(a, b, sa, za, sb, zb, sy * 20, zy, info.min, info.max)
    np.testing.assert_array_equal(
        run("QMul", inputs, (a.shape, ta, Quant.of(sy * np.float32(20), zy))), want.astype(ta)
    )
    if ta == tb:  # onnxruntime's own kernels agree
        q = lambda op: [
            helper.make_node(op, ["a", "sa", "za", "b", "sb", "zb", "sy", "zy"], ["y"], domain="com.microsoft")
        ]
        consts = {"sa": sa, "za": np.array(za, ta), "sb": sb, "zb": np.array(zb, tb), "sy": sy, "zy": np.array(zy, ta)}
        model = model_of(q("QLinearAdd"), {"a": a, "b": b}, ["y"], consts)
        model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
        ours = run("QAdd", inputs, out)
        np.testing.assert_array_equal(ours, run_reference(model, {"a": a, "b": b}, ["y"])[0])


@pytest.mark.medium
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_pools(dtype: str) -> None:
    x = data(dtype, 1, 5, 12, 13)
    zx, zy, sx, sy = zero(dtype), zero(dtype), np.float32(0.03), np.float32(0.025)
    q, p = Quant.of(sx, zx), Quant.of(sy, zy)
    attrs = {"pads": [1, 0, 1, 1], "strides": [2, 1]}
    pool = helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[3, 2], **attrs)
    want = reference([pool], {"x": x}, {})
    np.testing.assert_array_equal(
        run("QMaxPool", [(x, q, False)], (want.shape, dtype, q), kernel=[3, 2], **attrs), want
    )
    real = (x.astype(np.int32) - zx).astype(np.float32) * sx
    for include in (0, 1):
        node = helper.make_node("AveragePool", ["x"], ["y"], kernel_shape=[2, 2], count_include_pad=include, **attrs)
        mean = reference([node], {"x": real}, {})
        info = np.iinfo(dtype)
        want = np.clip(np.rint(mean / sy + np.float32(zy)), info.min, info.max).astype(dtype)
        got = run(
            "QAveragePool", [(x, q, False)], (want.shape, dtype, p), kernel=[2, 2], count_include_pad=include, **attrs
        )
        assert np.count_nonzero(got != want) == 0
    acc = x.astype(np.int64).sum((2, 3)) - 12 * 13 * zx
    want = requantised(acc, numerics.mean_scale(sx, sy, 12 * 13), zy, dtype)
    np.testing.assert_array_equal(run("QGlobalAveragePool", [(x, q, False)], (want.shape, dtype, p), keepdims=0), want)


@pytest.mark.medium
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_tables(dtype: str) -> None:
    x, y = data(dtype, 2, 3, 40), data(dtype, 2, 4, 40)
    q = Quant.of(0.1, 0)
    table = R.permutation(256).astype(np.uint8)
    want = table[x.view(np.uint8)].view(dtype)
    np.testing.assert_array_equal(run("QLut", [(x, q, False)], (x.shape, dtype, q), table=table.tobytes()), want)
    got = run("QConcat", [(x, q, False), (y, q, False)], ((2, 7, 40), dtype, q), axis=1, tables=(table.tobytes(), None))
    np.testing.assert_array_equal(got, np.concatenate([want, y], 1))


@pytest.mark.parametrize("centred", [True, False])
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_norms_as_the_floats_they_are_made_of(dtype: str, centred: bool) -> None:
    """onnxruntime between DequantizeLinear and QuantizeLinear; its sums may put a result on the other side of a tie."""
    n = 96
    x, qx, qy = data(dtype, 20, n), Quant.of(np.float32(0.02), zero(dtype)), Quant.of(np.float32(0.03), zero(dtype))
    scale, bias = R.normal(1, 0.4, n).astype(np.float32), R.normal(0, 0.3, n).astype(np.float32)
    constants = [(scale, None, True)] + ([(bias, None, True)] if centred else [])
    got = run("QNorm", [(x, qx, False), *constants], (x.shape, dtype, qy), centred=centred, epsilon=1e-6)
    node = helper.make_node
    norm = node("LayerNormalization", ["f", "scale", "bias"], ["n"], epsilon=1e-6)
    if not centred:
        norm = node("SimplifiedLayerNormalization", ["f", "scale"], ["n"], epsilon=1e-6)
    nodes = [node("DequantizeLinear", ["x", "sx", "zx"], ["f"]), norm, node("QuantizeLinear", ["n", "sy", "zy"], ["y"])]
    parameters = {
        "sx": np.float32(0.02), "zx": np.array(qx.zero_point, dtype).reshape(()), "sy": np.float32(0.03),
        "zy": np.array(qy.zero_point, dtype).reshape(()), "scale": scale, **({"bias": bias} if centred else {}),
    }  # fmt: skip
    want = reference(nodes, {"x": x}, parameters)
    apart = np.abs(got.astype(int) - want.astype(int))
    assert apart.max() <= 1 and (apart > 0).sum() <= 1


@pytest.mark.parametrize("scale", [0.1, 0.05, 0.0123])
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16"])
@pytest.mark.parametrize("constant", [False, True])
def test_quantised_halves(dtype: str, scale: float, constant: bool) -> None:
    """Every float16, also a constant: onnxruntime divides in float32."""
    every = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    x = every[np.isfinite(every)]
    values = {"s": np.float16(scale), "z": np.array(2, dtype)}
    nodes = [helper.make_node("QuantizeLinear", ["c" if constant else "x", "s", "z"], ["q"])]
    nodes += [helper.make_node("Cast", ["q"], ["f"], to=1), helper.make_node("Cast", ["x"], ["g"], to=1)]
    nodes += [helper.make_node("Mul", ["g", "n"], ["m"]), helper.make_node("Add", ["f", "m"], ["y"])]
    graph = helper.make_graph(
        nodes,
        "halves",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT16, list(x.shape))],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, list(x.shape))],
        [numpy_helper.from_array(v, n) for n, v in (values | {"c": x, "n": np.float32(0)}).items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    expected = onnx_models.session(model).run(None, {"x": x})[0]
    got = tw.Device("functional").run(tw.compile(model, cpu_only=True, cache=False), {"x": x})["y"]
    np.testing.assert_array_equal(got, expected)
