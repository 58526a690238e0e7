"""Further cases of quantised ONNX ops: all pairs of codes, QLinear forms, pairs of ops that the compiler fuses."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto, helper

from tests.reference.quantized_cases import CASES, UNARY
from verification.fuzz.ties.onnx_model import TyingModel

OWN: dict[str, Any] = {}
#: Cases that are exact at 16 bits, too: no sums of products, whose order would decide.
SIXTEEN_BITS = ("add", "mul", "sub", "clip", "concat", "concat_nested", "movement", "pad", "requantize_twice", "unary",
                "where", "pairs", "does_nothing", "two_readers")  # fmt: skip


def case(f: Any) -> Any:
    OWN[f.__name__] = f
    return f


def _end(m: TyingModel, y: str, wide: bool = False, scale: float | None = None, zero: int | None = None) -> None:
    """QuantizeLinear to the output, as integers or dequantised."""
    if wide and scale is None:
        scale = m.scale(0.3, 2)
    if m.rng.random() < 0.3:
        m.output(m.quantized(y, scale, zero))
    else:
        m.output(m.requantized(y, scale, zero))


@case
def pairs(m: TyingModel, i: int) -> None:
    """All pairs of codes."""
    op = ["Add", "Mul", "Sub", "Max", "Min", "Add", "Mul", "Div", "PRelu"][i % 9]
    a, b = m.input((256, 256) if op == "PRelu" else (256, 1)), m.input((1, 256))
    y = m.op(op, *((a, b) if i % 2 or op == "PRelu" else (b, a)))
    if i // 3 % 4 == 0:
        y = m.op("Relu", y)
    _end(m, y)


@case
def pairs_then_function(m: TyingModel, i: int) -> None:
    """An Add or Mul, and a function of its result that becomes a table."""
    y = m.requantized(m.op(["Add", "Mul"][i % 2], m.input((256, 1)), m.input((1, 256))))
    op = sorted(UNARY)[i // 2 % len(UNARY)]
    _end(m, m.op(op, y, **UNARY[op]))


@case
def product_then_function(m: TyingModel, i: int) -> None:
    """A convolution or product, and a function of its result."""
    if i % 2:
        x = m.input((1, 8, 8, 8))
        y = m.op("Conv", x, m.weights((8, 1, 3, 3), axis=0), group=8)
    else:
        y = m.op("MatMul", m.input((32, 8)), m.weights((8, 8), axis=1))
    y = m.requantized(y, m.scale(0.3, 2))
    op = sorted(UNARY)[i // 2 % len(UNARY)]
    _end(m, m.op(op, y, **UNARY[op]))


@case
def product_then_add(m: TyingModel, i: int) -> None:
    x = m.input((1, 8, 8, 8))
    w = m.weights((8, 8, 1, 1), axis=[None, 0][i % 2])
    y = m.op("Conv", x, w, m.bias(8, x, w)) if i // 2 % 2 else m.op("Conv", x, w)
    y = m.op("Add", m.requantized(y, m.scale(0.3, 2)), x)
    _end(m, m.op("Relu", y) if i % 3 == 0 else y)


@case
def bias_of_another_scale(m: TyingModel, i: int) -> None:
    """An int32 bias whose scale is not that of the sums."""
    x = m.input((1, 4, 9, 9))
    transposed = i % 5 == 4
    w = m.weights((4, 6, 2, 2) if transposed else (6, 4, 2, 2), axis=None if transposed else [None, 0][i % 2])
    assert m.sums is not None
    product = m.sums[0]
    scale = np.float32(product * m.draws.one_of((1, 2, 1 / 2, 3, 1.001, 0.999, 1.02, 1 / 256, 30)))
    b = m.const(m.rng.integers(-600, 600, size=6), np.int32)
    bias = m.op("DequantizeLinear", b, m.const(scale, np.float32))
    _end(m, m.op("ConvTranspose" if transposed else "Conv", x, w, bias), wide=True)


@case
def shared_weights(m: TyingModel, i: int) -> None:
    """Two convolutions whose inputs have other scales share a weight and a bias."""
    x, other = m.input((1, 4, 7, 7)), m.input((1, 4, 7, 7))
    w = m.weights((6, 4, 2, 2), axis=[None, 0][i % 2])
    b = m.bias(6, x, w)
    for source in (x, other):
        _end(m, m.op("Conv", source, w, b), wide=True)


@case
def pad_to_another_scale(m: TyingModel, i: int) -> None:
    """A constant that the QuantizeLinear behind Pad quantises."""
    value = float(m.draws.one_of((-np.inf, np.inf, 0.0, 0.05, -6.0, 0.25, 1e30, 0.1)))
    y = m.op("Pad", m.input((1, 3, 8, 12)), m.const([0, 0, 1, 2, 0, 1, 0, 1], np.int64), m.const(value, np.float32))
    _end(m, y)


@case
def does_nothing(m: TyingModel, i: int) -> None:
    """An op that leaves its operand as it is, between two pairs."""
    x = m.input((1, 3, 10, 10))
    one = lambda v: m.const(v, np.float32)
    y = [
        lambda: m.op("Identity", x),
        lambda: m.op("Dropout", x),
        lambda: m.op("Cast", x, to=TensorProto.FLOAT),
        lambda: m.op("Expand", x, m.const([1, 3, 10, 10], np.int64)),
        lambda: m.op("Add", x, one(0)),
        lambda: m.op("Mul", x, one(1)),
        lambda: m.op("Sub", x, one(0)),
        lambda: m.op("Div", x, one(1)),
        lambda: m.op("Identity", m.op("Identity", x)),
        lambda: m.op("Transpose", x, perm=[0, 1, 2, 3]),
        lambda: m.op("Reshape", x, m.const([1, 3, 10, 10], np.int64)),
    ][i % 11]()  # fmt: skip
    _end(m, y)


@case
def two_readers(m: TyingModel, i: int) -> None:
    """Two DequantizeLinears read a quantised tensor, with parameters of their own."""
    m.input((3, 100))
    q = m.nodes[-1].input[0]
    read = lambda: m.op("DequantizeLinear", q, m.const(m.scale(), np.float32), m.const(m.zero(), m.dtype))
    _end(m, m.op(["Add", "Mul", "Sub"][i % 3], read(), read()))


@case
def qlinear_conv(m: TyingModel, i: int) -> None:
    x = m.integers((1, 4, 9, 9))
    group = [1, 4][i % 2]
    w = m.draws.small((8, 4 // group, 2, 3), np.dtype(np.int8))
    scales = m.draws.channel_scales(8) if i // 2 % 2 else np.float32(m.draws.scale())
    s = m.const(scales, np.float32)
    typical = float(np.median(scales))
    y_scale = m.draws.for_sums(m.last_scale * typical, 74 * float(np.abs(w.astype(float)).mean()) * 4)
    bias = [m.const(m.rng.integers(-300, 300, 8), np.int32)] if i // 4 % 2 else []
    y = m.op("QLinearConv", *x, m.const(w), s, m.const(np.zeros(np.shape(scales)), np.int8),
             m.const(y_scale, np.float32), m.const(m.zero(), m.dtype), *bias, group=group)  # fmt: skip
    m.output(y)


@case
def qlinear_mat_mul(m: TyingModel, i: int) -> None:
    x = m.integers((32, 8))
    w = m.draws.small((8, 6), np.dtype(np.int8))
    s = np.float32(m.draws.scale())
    y_scale = m.draws.for_sums(m.last_scale * float(s), 74 * float(np.abs(w.astype(float)).mean()) * 2.8)
    tail = m.const(y_scale, np.float32), m.const(m.zero(), m.dtype)
    parameters = m.const(s), m.const(0, np.int8)
    if i % 2:
        m.output(m.op("QLinearMatMul", *x, m.const(w), *parameters, *tail))
    else:
        bias = m.const(m.rng.integers(-300, 300, 6), np.int32)
        m.output(m.op("QGemm", *x, m.const(w), *parameters, bias, *tail, domain="com.microsoft"))


@case
def qlinear_pairs(m: TyingModel, i: int) -> None:
    op = ["QLinearAdd", "QLinearMul"][i % 2]
    x, y = m.integers((256, 1)), m.integers((1, 256))
    tail = m.const(m.scale(), np.float32), m.const(m.zero(), m.dtype)
    m.output(m.op(op, *x, *y, *tail, domain="com.microsoft"))


@case
def qlinear_function(m: TyingModel, i: int) -> None:
    x = m.integers((1, 4, 8, 16))
    tail = m.const(m.scale(), np.float32), m.const(m.zero(), m.dtype)
    some: list[tuple[str, dict[str, Any]]] = [
        ("QLinearSigmoid", {}), ("QLinearLeakyRelu", {"alpha": 0.1}), ("QLinearLeakyRelu", {"alpha": 0.5}),
        ("QLinearGlobalAveragePool", {}), ("QLinearAveragePool", {"kernel_shape": [2, 2]}),
        ("QLinearAveragePool", {"kernel_shape": [3, 3], "strides": [2, 2]}),
    ]  # fmt: skip
    op, attrs = some[i % len(some)]
    m.output(m.op(op, *x, *tail, domain="com.microsoft", **attrs))


@case
def qlinear_concat(m: TyingModel, i: int) -> None:
    parts = [m.integers((1, 3, 100)), m.integers((1, 2, 100)), m.integers((1, 3, 100))]
    head = m.const(m.scale(), np.float32), m.const(m.zero(), m.dtype)
    m.output(m.op("QLinearConcat", *head, *(v for p in parts for v in p), domain="com.microsoft", axis=1))


@case
def integer_products(m: TyingModel, i: int) -> None:
    """MatMulInteger and ConvInteger, whose int32 results are exact."""
    if i % 2:
        x, _, z = m.integers((16, 16))
        w = m.const(m.draws.small((16, 6), np.dtype(np.int8)))
        y = m.op("MatMulInteger", x, w, z, m.const(0, np.int8))
    else:
        x, _, z = m.integers((1, 4, 9, 9))
        w = m.const(m.draws.small((6, 4, 2, 2), np.dtype(np.int8)))
        y = m.op("ConvInteger", x, w, z, m.const(0, np.int8))
    m.output(m.op("Cast", y, to=TensorProto.FLOAT))


@case
def dynamic(m: TyingModel, i: int) -> None:
    """DynamicQuantizeLinear of values next to ties."""
    name = m.name("x")
    m.inputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, [400]))
    step = np.float32(m.draws.scale())
    codes = m.rng.integers(-100, 156, 400).astype(np.float32) + np.float32(0.5) * m.rng.integers(0, 2, 400)
    m.feed[name] = np.concatenate([codes[:-2], [-100, 155]]).astype(np.float32) * step
    y, s, z = m.op("DynamicQuantizeLinear", name, outputs=3)
    m.output(m.op("DequantizeLinear", y, s, z))


@case
def half_precision(m: TyingModel, i: int) -> None:
    """QuantizeLinear of float16 values."""
    name = m.name("x")
    m.inputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT16, [600]))
    s = np.float16(m.draws.scale())
    info = np.iinfo(m.dtype)
    m.feed[name] = (m.rng.integers(2 * info.min, 2 * info.max, 600) * np.float16(0.5) * s).astype(np.float16)
    q = m.op("QuantizeLinear", name, m.const(s, np.float16), m.const(m.zero(), m.dtype))
    m.output(q)


#: All cases of 8-bit activations.
ALL: dict[str, Any] = CASES | OWN
