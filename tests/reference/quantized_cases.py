"""Small quantised models by op: what the property tests draw from. `i` selects the variant."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from onnx import numpy_helper

from tests.reference.quantized_models import Model

Case = Callable[[Model, int], None]
CASES: dict[str, Case] = {}


def case(f: Case) -> Case:
    CASES[f.__name__] = f
    return f


def _finish(m: Model, y: str, wide: bool = False, **kw: object) -> None:
    """Quantises the result; `wide` for sums of products."""
    if wide:
        kw.setdefault("scale", m.scale(0.3, 2))
    m.output(m.requantized(y, **kw))  # type: ignore[arg-type]


def _lowest(m: Model) -> int:
    return int(np.iinfo(m.dtype).min)


@case
def conv(m: Model, i: int) -> None:
    r, group = m.rng, [1, 1, 2, 4][i % 4]
    kernel = [int(v) for v in r.integers(1, 4, 2)]
    x = m.input((1, 4, 9, 10))
    w = m.weights((8, 4 // group, *kernel), axis=[None, 0][i % 2])
    inputs = [x, w, m.bias(8, x, w)] if i % 3 else [x, w]
    strides = [int(v) for v in r.integers(1, 3, 2)]
    if i % 5:
        pads, dilations = ([int(v) for v in r.integers(0, 3, n)] for n in (4, 2))
        window = {"pads": pads, "dilations": [d + 1 for d in dilations]}
    else:
        window = {"auto_pad": ["SAME_UPPER", "SAME_LOWER", "VALID"][i % 3]}  # type: ignore[dict-item]
    if "dilations" in window:
        window["dilations"] = [min(d, 2) for d in window["dilations"]]
    _finish(m, m.op("Conv", *inputs, strides=strides, group=group, **window), wide=True)


@case
def conv_1d(m: Model, i: int) -> None:
    x = m.input((2, 6, 17))
    w = m.weights((6, 6 if i % 2 else 1, 3), axis=0)
    _finish(m, m.op("Conv", x, w, group=1 if i % 2 else 6, pads=[i % 3, 1]), wide=True)


@case
def conv_uint8_weights(m: Model, i: int) -> None:
    x = m.input((1, 4, 9, 10))
    w = m.weights((8, 4, 3, 3), np.uint8, zero=int(m.rng.integers(100, 160)))
    _finish(m, m.op("Conv", x, w), wide=True)


@case
def conv_float_bias(m: Model, i: int) -> None:
    x, w = m.input((1, 4, 9, 10)), m.weights((8, 4, 3, 3), axis=[None, 0][i % 2])
    _finish(m, m.op("Conv", x, w, m.const(m.rng.normal(size=8), np.float32)), wide=True)


@case
def conv_relu(m: Model, i: int) -> None:
    x, w = m.input((1, 4, 9, 10)), m.weights((8, 4, 3, 3), axis=0)
    y = m.op("Relu", m.op("Conv", x, w, m.bias(8, x, w)))
    _finish(m, y, wide=True, zero=[None, _lowest(m)][i % 2])


@case
def conv_clip(m: Model, i: int) -> None:
    x, w = m.input((1, 4, 9, 10)), m.weights((8, 4, 3, 3), axis=0)
    bounds = m.const(0, np.float32), m.const(6, np.float32)
    y = m.op("Clip", m.op("Conv", x, w, m.bias(8, x, w)), *bounds)
    _finish(m, y, scale=m.scale(0.01, 0.1), zero=[None, _lowest(m)][i % 2])


@case
def conv_quantized_relu(m: Model, i: int) -> None:
    x, w = m.input((1, 4, 9, 10)), m.weights((8, 4, 3, 3), axis=0)
    y = m.requantized(m.op("Conv", x, w), scale=0.7, zero=_lowest(m) + 90)
    _finish(m, m.op("Relu", y), scale=0.7 if i % 2 else 0.4, zero=_lowest(m) + 90)


@case
def float_weights(m: Model, i: int) -> None:
    """onnxruntime quantises these weights itself."""
    bias = [m.const(m.rng.normal(size=8), np.float32)] if i % 2 else []
    if i % 3 == 0:
        y = m.op("Gemm", m.input((5, 16)), m.const(m.rng.normal(size=(16, 8)) - 0.4, np.float32), *bias)
    else:
        w = m.const(m.rng.normal(size=(8, 4, 3, 3)) + 0.3 * (i % 5), np.float32)
        y = m.op("Conv", m.input((1, 4, 9, 10)), w, *bias)
    _finish(m, m.op("Relu", y) if i % 7 == 1 else y, scale=m.scale(0.05, 0.5), zero=_lowest(m))


@case
def gemm(m: Model, i: int) -> None:
    x, flip = m.input((5, 16)), i % 2
    w = m.weights((8, 16) if flip else (16, 8), axis=[None, 0 if flip else 1][i // 2 % 2])
    inputs = [x, w, m.bias(8, x, w)] if i % 3 else [x, w]
    _finish(m, m.op("Gemm", *inputs, transB=flip), wide=True)


@case
def mat_mul(m: Model, i: int) -> None:
    _finish(m, m.op("MatMul", m.input((2, 5, 16)), m.weights((16, 8), axis=[None, 1][i % 2])), wide=True)


@case
def mat_mul_and_bias(m: Model, i: int) -> None:
    """A linear layer of rows as torch writes it; onnxruntime makes one integer product of it, with an int32 bias."""
    x, w = m.input([(2, 5, 16), (2, 3, 5, 16), (1, 7, 16)][i % 3]), m.weights((16, 8), axis=[None, 1][i % 2])
    bias = m.bias(8, x, w) if i // 2 % 2 else m.const(m.rng.normal(size=8), np.float32)
    pair = [m.op("MatMul", x, w), bias]
    y = m.op("Add", *(pair if i % 5 else pair[::-1]))
    _finish(m, m.op("Relu", y) if i % 7 == 3 else y, wide=True, zero=[None, _lowest(m)][i % 2])


@case
def extremum(m: Model, i: int) -> None:
    a, b = _BROADCASTS[i % 4]
    parts = [m.input(a), m.input(b)]
    if i % 3 == 0:
        parts.append(m.const(m.rng.normal(size=b), np.float32))
    y = m.op(["Max", "Min"][i // 2 % 2], *(parts if i % 5 else parts[::-1]))
    _finish(m, m.op("Relu", y) if i % 7 == 3 else y)


@case
def mat_mul_transposed_weights(m: Model, i: int) -> None:
    w = m.op("Transpose", m.weights((8, 16), axis=[None, 0][i % 2]), perm=[1, 0])
    _finish(m, m.op("MatMul", m.input((2, 5, 16)), w), wide=True)


@case
def mat_mul_activations(m: Model, i: int) -> None:
    _finish(m, m.op("MatMul", m.input((2, 3, 5, 16)), m.input((2, 3, 16, 7))), scale=m.scale(0.05, 0.5))


@case
def attention_scores(m: Model, i: int) -> None:
    """Heads split, queries scaled, keys transposed, a mask that masks nothing: as exporters write it."""
    x = m.input((2, 5, 12))
    heads = m.const([2, 5, 3, 4], np.int64)

    def part(perm: list[int]) -> str:
        y = m.requantized(m.op("MatMul", x, m.weights((12, 12), axis=1)), scale=m.scale(0.3, 2))
        y = m.requantized(m.op("Reshape", y, heads), *_last_quant(m))
        y = m.requantized(m.op("Transpose", y, perm=perm), *_last_quant(m))
        return m.requantized(m.op("Mul", y, m.const(0.6 + i % 5 / 10, np.float32)))

    y = m.requantized(m.op("MatMul", part([0, 2, 1, 3]), part([0, 2, 3, 1])), scale=m.scale(0.05, 0.5))
    scale, zero = _last_quant(m)
    mask = m.const(np.full((2, 1, 5, 5), [0, 0.1][i % 2]), np.float32)
    _finish(m, m.op("Add", y, m.requantized(mask, scale, zero)), scale=scale if i % 3 else None, zero=zero)


def _last_quant(m: Model) -> tuple[float, int]:
    """Scale and zero point of the last QuantizeLinear."""
    known = {t.name: numpy_helper.to_array(t) for t in m.initializers}
    node = next(n for n in reversed(m.nodes) if n.op_type == "QuantizeLinear")
    return float(known[node.input[1]]), int(known[node.input[2]])


_BROADCASTS = [((2, 3, 4, 5), (2, 3, 4, 5)), ((2, 3, 4, 5), (1, 3, 1, 1)), ((4, 1), (1, 5)), ((7,), (1,))]


@case
def add(m: Model, i: int) -> None:
    a, b = _BROADCASTS[i % 4]
    _finish(m, m.op("Add", m.input(a), m.input(b)))


@case
def mul(m: Model, i: int) -> None:
    a, b = _BROADCASTS[i % 4]
    _finish(m, m.op("Mul", m.input(a), m.input(b)))


@case
def sub(m: Model, i: int) -> None:
    a, b = _BROADCASTS[i % 4]
    _finish(m, m.op("Sub", *([m.input(a), m.input(b)] if i % 3 else [m.input(b), m.input(a)])))


@case
def constant_operand(m: Model, i: int) -> None:
    _finish(m, m.op(["Add", "Mul", "Sub"][i % 3], m.input((3, 40)), m.weights(() if i % 2 else (40,), m.dtype)))


@case
def same_operand(m: Model, i: int) -> None:
    x = m.input((3, 400))
    _finish(m, m.op(["Add", "Mul"][i % 2], x, x))


@case
def residual(m: Model, i: int) -> None:
    x, w = m.input((1, 8, 6, 6)), m.weights((8, 8, 3, 3), axis=0)
    y = m.requantized(m.op("Conv", x, w, pads=[1] * 4), scale=0.5)
    _finish(m, m.op("Relu", m.op("Add", y, x)) if i % 2 else m.op("Add", y, x), scale=0.5, zero=_lowest(m))


@case
def average_pool(m: Model, i: int) -> None:
    k = [2, 3, 3, 5][i % 4]
    attrs = {"strides": [1 + i % 2, 2], "pads": [i % 2] * 4, "count_include_pad": i // 2 % 2, "ceil_mode": i // 4 % 2}
    _finish(m, m.op("AveragePool", m.input((1, 4, 11, 12)), kernel_shape=[k, k], **attrs))


@case
def global_average_pool(m: Model, i: int) -> None:
    _finish(m, m.op("GlobalAveragePool", m.input((1, 16, 7, [7, 8][i % 2]))))


@case
def reduce_mean(m: Model, i: int) -> None:
    if i % 3:
        y = m.op("ReduceMean", m.input((1, 16, 7, [7, 8][i % 2])), m.const([2, 3], np.int64), keepdims=i % 2)
    else:
        y = m.op("ReduceMean", m.input((1, 16, 24)), m.const([1], np.int64), keepdims=0)
    _finish(m, y)


@case
def softmax(m: Model, i: int) -> None:
    x = m.input((2, 5, [10, 100][i % 2]), scale=m.scale(0.01, 0.2))
    _finish(m, m.op("Softmax", x, axis=[-1, 1][i // 2 % 2]), scale=[1 / 256, 1 / 255][i // 4 % 2], zero=_lowest(m))


@case
def concat(m: Model, i: int) -> None:
    parts = [m.input((1, 3, 4), scale=0.05, zero=3), m.input((1, 2, 4))]
    _finish(m, m.op("Concat", *parts, axis=1), scale=0.05, zero=3)


@case
def concat_nested(m: Model, i: int) -> None:
    a, b, c = m.input((1, 3, 4), scale=0.05, zero=3), m.input((1, 2, 4)), m.input((1, 1, 4))
    inner = m.requantized(m.op("Concat", a, b, axis=1), scale=0.04, zero=5)
    _finish(m, m.op("Concat", inner, c, axis=1))


UNARY: dict[str, dict[str, Any]] = {
    "Sigmoid": {}, "LeakyRelu": {"alpha": 0.1}, "Tanh": {}, "HardSwish": {}, "HardSigmoid": {}, "Relu": {}, "Erf": {},
    "Elu": {}, "Gelu": {}, "Exp": {}, "Softplus": {}, "Abs": {}, "Neg": {}, "Sqrt": {}, "Mish": {}, "Selu": {},
    "Softsign": {}, "Floor": {}, "Log": {},
}  # fmt: skip


@case
def unary(m: Model, i: int) -> None:
    op = sorted(UNARY)[i % len(UNARY)]
    _finish(m, m.op(op, m.input((1, 1500)), **UNARY[op]))


@case
def silu(m: Model, i: int) -> None:
    x = m.input((1, 1500))
    gate = m.op("Sigmoid", x)
    _finish(m, m.op("Mul", x, m.requantized(gate, scale=1 / 256, zero=_lowest(m)) if i % 2 else gate))


@case
def gelu(m: Model, i: int) -> None:
    x = m.input((1, 1500))
    gate = m.op("Add", m.op("Erf", m.op("Div", x, m.const(np.sqrt(2), np.float32))), m.const(1, np.float32))
    _finish(m, m.op("Mul", m.op("Mul", x, gate), m.const(0.5, np.float32)))


@case
def max_pool(m: Model, i: int) -> None:
    x = m.input((1, 4, 11, 12), scale=0.05, zero=3)
    window = {"strides": [2, 1], "pads": [1, 0, 1, 1], "ceil_mode": i % 2, "dilations": [1, 1 + i // 2 % 2]}
    same = {"scale": 0.05, "zero": 3} if i // 4 % 2 else {}
    _finish(m, m.op("MaxPool", x, kernel_shape=[3, 2], **window), **same)


@case
def pad(m: Model, i: int) -> None:
    x = m.input((1, 3, 4, 5), scale=0.05, zero=3)
    value = [m.const(0.37, np.float32)] if i % 2 else []
    mode = ["constant", "reflect", "edge"][i % 3]
    _finish(m, m.op("Pad", x, m.const([0, 0, 1, 2, 0, 1, 0, 1], np.int64), *value, mode=mode), scale=0.05, zero=3)


@case
def resize_nearest(m: Model, i: int) -> None:
    x = m.input((1, 3, 4, 5), scale=0.05, zero=3)
    y = m.op("Resize", x, "", m.const([1, 1, 2, 2], np.float32), mode="nearest", nearest_mode="floor",
             coordinate_transformation_mode="asymmetric")  # fmt: skip
    _finish(m, y, scale=0.05, zero=3)


@case
def resize_linear(m: Model, i: int) -> None:
    """A linear Resize. Its scale is a power of two, so that onnxruntime's floats are exact until the last rounding."""
    same = {"scale": 2.0 ** -(i % 7), "zero": m.zero()}
    x = m.input((1, 3, 4, 5), **same)  # type: ignore[arg-type]
    scales = m.const([1, 1, *m.rng.choice([1, 2, 4, 8], 2)], np.float32)
    how = ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel")[int(m.rng.integers(4))]
    y = m.op("Resize", x, "", scales, mode="linear", coordinate_transformation_mode=how)
    _finish(m, y, **same)


@case
def movement(m: Model, i: int) -> None:
    same = {"scale": 0.05, "zero": 3}
    x = m.input((1, 6, 4, 5), **same)  # type: ignore[arg-type]
    y = m.requantized(m.op("Transpose", x, perm=[0, 2, 3, 1]), **same)  # type: ignore[arg-type]
    bounds = [m.const([v], np.int64) for v in (1, 4, 1)]
    y = m.requantized(m.op("Slice", y, *bounds), **same)  # type: ignore[arg-type]
    y = m.requantized(m.op("Reshape", y, m.const([3, -1], np.int64)), **same)  # type: ignore[arg-type]
    a, b = m.op("Split", y, m.const([10, 20], np.int64), outputs=2, axis=1)
    _finish(m, a, **same)
    _finish(m, b, scale=0.03, zero=3)


@case
def movement_before_product(m: Model, i: int) -> None:
    x, w = m.input((5, 16)), m.weights((16, 8))
    y = m.op("Transpose", m.op("Reshape", x, m.const([5, 4, 4], np.int64)), perm=[0, 2, 1])
    y = m.op("MatMul", m.op("Reshape", y, m.const([5, 16], np.int64)), w)
    _finish(m, m.op("Reshape", y, m.const([1, 5, 8], np.int64)), wide=True)


@case
def where(m: Model, i: int) -> None:
    x, y = m.input((3, 40)), m.input((3, 40))
    _finish(m, m.op("Where", m.op("Greater", x, m.const(0.5, np.float32)), x, y))


@case
def clip(m: Model, i: int) -> None:
    _finish(m, m.op("Clip", m.input((3, 400)), m.const(0, np.float32), m.const(1.5, np.float32)))


@case
def requantize_twice(m: Model, i: int) -> None:
    # Every dequantised tensor has two readers: onnxruntime replaces a plain chain of two pairs by one pair with a scale
    # of its own making, which is another function.
    x = m.input((5, 160), scale=0.05)
    y = m.requantized(x, scale=0.03)
    _finish(m, x, scale=0.06)
    _finish(m, y, scale=0.04)
    _finish(m, y, scale=0.02)


@case
def pairs_in_a_row(m: Model, i: int) -> None:
    """onnxruntime makes one pair of them; only the outcome behind can be compared."""
    x, w = m.input((5, 16)), m.weights((16, 8))
    y = m.requantized(m.op("MatMul", x, w), scale=0.4, zero=_lowest(m) + 100)
    y = m.requantized(y, scale=0.5, zero=_lowest(m) + 128)
    y = m.requantized(y, scale=0.45, zero=_lowest(m) + 120) if i % 2 else y
    _finish(m, m.op("Add", y, m.weights((8,), m.dtype)), wide=True)


@case
def arg_max(m: Model, i: int) -> None:
    m.output(m.op("ArgMax", m.input((5, 16)), axis=1))
