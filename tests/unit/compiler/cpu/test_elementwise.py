"""Elementwise operators and their fusion against onnxruntime."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

import tilewright as tw
from tests.common import onnx_models
from tests.unit.compiler.cpu.support import check, check_op, compile_all, execute
from tilewright.compiler.graph.graph import Graph, Node, Tensor

R = np.random.default_rng(0)


def normal(*shape: int, dtype: str = "float32") -> np.ndarray:
    return (R.standard_normal(shape) * 3).astype(dtype)


def ints(*shape: int, dtype: str = "int32", low: int = -50, high: int = 50) -> np.ndarray:
    info = np.iinfo(dtype)
    return R.integers(max(low, info.min), min(high, info.max), shape).astype(dtype)


SPECIAL = np.array(
    [0.0, -0.0, 1e-30, -1e-30, 0.5, -0.5, 1.0, -1, 2.5, 3.5, 20, -20, 88, -88, 100, -105, np.inf, -np.inf, np.nan]
).astype(np.float32)


@pytest.mark.parametrize(
    "op",
    [
        "Neg",
        "Abs",
        "Sign",
        "Floor",
        "Ceil",
        "Round",
        "Relu",
        "Sqrt",
        "Reciprocal",
        "Exp",
        "Log",
        "Erf",
        "Tanh",
        "Sigmoid",
        "Softplus",
        "Softsign",
        "HardSwish",
        "Mish",
        "Sin",
        "Cos",
        "Tan",
        "Asin",
        "Acos",
        "Atan",
        "Sinh",
        "Cosh",
        "Asinh",
        "Acosh",
        "Atanh",
        "LeakyRelu",
        "Elu",
        "Celu",
        "Selu",
        "HardSigmoid",
        "ThresholdedRelu",
        "Shrink",
        "Gelu",
    ],
)
def test_unary(op: str) -> None:
    x = np.concatenate([normal(300), normal(100) / 8, np.linspace(-9, 9, 101, dtype=np.float32)])
    if op in ("Mish", "Softplus", "Elu", "Selu", "Celu"):  # onnxruntime's own forms cancel near 0
        check_op(op, [x], rtol=2e-5)
    else:
        check_op(op, [x])
    if op not in (
        "Sin",
        "Cos",
        "Tan",
        "Mish",
        "Softplus",
        "HardSwish",
        "Gelu",
        "Softsign",
        "Sign",
        "Shrink",
        "Relu",
        "Selu",
    ):
        check_op(op, [SPECIAL])


def test_celu_of_nothing() -> None:
    """Celu with alpha 0 is its limit, Relu; onnxruntime's formula divides 0 by 0."""
    node = helper.make_node("Celu", ["x"], ["y"], alpha=0.0)
    x = np.array([-np.inf, -2, -1e-30, 0, 1e-30, 3], np.float32)
    model = onnx_models.model_of([node], {"x": (1, [6])}, {"y": (1, [6])})
    found = tw.Device("functional").run(tw.compile(model), {"x": x})["y"]
    assert (found == np.maximum(x, 0)).all()


@pytest.mark.parametrize("op", ["Neg", "Abs", "Sqrt", "Exp", "Log", "Tanh", "Sigmoid", "Erf", "Floor", "Relu"])
def test_unary_double(op: str) -> None:
    try:
        check_op(op, [np.abs(normal(50, dtype="float64"))])
    except Exception as e:
        if "NOT_IMPLEMENTED" not in str(e):
            raise


@pytest.mark.parametrize(
    "op",
    [
        "Add",
        "Sub",
        "Mul",
        "Div",
        "Pow",
        "Mod",
        "Min",
        "Max",
        "Equal",
        "Less",
        "Greater",
        "LessOrEqual",
        "GreaterOrEqual",
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64", "uint8", "int8"])
def test_binary(op: str, dtype: str) -> None:
    a = normal(3, 1, 5, dtype=dtype) if dtype.startswith("f") else ints(3, 1, 5, dtype=dtype)
    b = normal(4, 5, dtype=dtype) if dtype.startswith("f") else ints(4, 5, dtype=dtype)
    extra = {}
    if op in ("Div", "Mod"):
        b = np.where(b == 0, 1, b).astype(dtype)
    if op == "Pow":
        a, b = np.abs(a) % (6 if dtype in ("int32", "int64") else 4), np.abs(b) % (11 if dtype == "int64" else 3)
    if op == "Mod" and dtype.startswith("f"):
        extra["fmod"] = 1
    try:
        check_op(op, [a, b], **extra)
    except Exception as e:
        if not any(why in str(e) for why in ("NOT_IMPLEMENTED", "INVALID_GRAPH")):
            raise


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "uint8"])
@pytest.mark.parametrize("op", ["Div", "Mod"])
def test_integers_divided_by_what_processors_stop_at(op: str, dtype: str) -> None:
    """Division by zero, and of the least integer by -1, has a result: onnxruntime ends the run, or the process."""
    low = np.iinfo(dtype).min
    a, b = np.array([5, 7, low, -7 if low else 7], dtype), np.array([0, 2, -1 if low else 1, 3], dtype)
    model = onnx_models.model_of([helper.make_node(op, ["a", "b"], ["y"])], {"a": a, "b": b}, ["y"], {}, opset=17)
    with tw.Device("functional") as device:
        found = device.run(tw.compile(model), {"a": a, "b": b})["y"].tolist()
    rest = -2 if low else 2
    assert found == ([0, 3, low, rest] if op == "Div" else [0, 1, 0, 2 if low else 1])


@pytest.mark.parametrize("op", ["And", "Or", "Xor"])
def test_logic(op: str) -> None:
    check_op(op, [R.integers(0, 2, (3, 4)).astype(bool), R.integers(0, 2, (4,)).astype(bool)])


@pytest.mark.medium
def test_rest() -> None:
    x = normal(4, 6)
    check_op("Not", [x > 0])
    check_op("Where", [x > 0, x, normal(6)])
    check_op("Clip", [x, np.float32(-1), np.float32(2)], consts=(1, 2))
    check_op("Clip", [x, None, np.float32(1)], consts=(2,))
    check_op("Clip", [ints(30), np.int32(-3), np.int32(9)])
    check_op("PRelu", [normal(2, 3, 4), normal(3, 1)])
    check_op("Sum", [x, normal(6), normal(4, 1)])
    check_op("Mean", [x, normal(6), normal(4, 1)])
    check_op("Max", [x, normal(6), normal(4, 1)])
    check_op("IsNaN", [SPECIAL])
    check_op("IsInf", [SPECIAL], detect_negative=0)
    check_op("Mod", [ints(40), np.where(ints(40) == 0, 3, ints(40)) | 1])
    check_op("Mod", [ints(40), ints(40) | 1], fmod=1)
    check_op("BitShift", [ints(20, dtype="uint32"), ints(20, dtype="uint32", high=31)], direction="LEFT")
    check_op("BitwiseAnd", [ints(20), ints(20)])
    check_op("Gelu", [x], approximate="tanh")


@pytest.mark.parametrize("source", ["float32", "float64", "int8", "uint8", "int32", "int64", "bool", "float16"])
@pytest.mark.parametrize("to", ["float32", "float64", "int8", "uint8", "int32", "int64", "bool", "float16"])
def test_cast(source: str, to: str) -> None:
    x = (R.standard_normal((5, 7)) * 20).astype(source)
    if to == "uint8":
        x = np.abs(x) if source != "bool" else x
    check_op("Cast", [x], to=helper.np_dtype_to_tensor_dtype(np.dtype(to)))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16"])
@pytest.mark.parametrize("axis", [None, 1])
def test_quantize(dtype: str, axis: int | None) -> None:
    info = np.iinfo(dtype)
    x = np.concatenate([normal(2, 3, 200) * 10, (R.integers(-600, 600, (2, 3, 200)) / 2).astype(np.float32)], 2)
    scale = np.float32(0.5) if axis is None else np.array([0.5, 0.013, 1.7], np.float32)
    zero = np.full(scale.shape, (info.min + info.max) // 2 + 3, dtype)
    kw = {} if axis is None else {"axis": axis}
    check_op("QuantizeLinear", [x, scale, zero], consts=(1, 2), **kw)
    check_op(
        "DequantizeLinear", [ints(2, 3, 50, dtype=dtype, low=info.min, high=info.max), scale, zero], consts=(1, 2), **kw
    )


@pytest.mark.parametrize("scale", [1.0, 1 / 3, 0.0375644, 1.3 * 2.0**-59, np.nextafter(np.float32(2), np.float32(0))])
@pytest.mark.parametrize("zero", [np.int8(-5), np.uint8(128)])
def test_quantize_as_by_division(scale: float, zero: np.int8 | np.uint8) -> None:
    """Values around every tie and every step, and any bits at all, are quantised without a division as with one."""
    steps = (np.arange(-600, 600) * np.float32(0.5) * np.float32(scale)).astype(np.float32)
    near = (steps.view(np.int32)[:, None] + np.arange(-4, 5)).astype(np.int32).view(np.float32).reshape(-1)
    any_bits = R.integers(0, 1 << 32, 20_000, dtype=np.uint32).view(np.float32)
    special = np.array([np.nan, np.inf, -np.inf, 0, -0.0, 1e-45], np.float32)
    x = np.concatenate([near, any_bits, special, normal(5000) * np.float32(50 * scale)])
    info = np.iinfo(zero.dtype)
    with np.errstate(all="ignore"):
        quotients = np.rint(x / np.float32(scale)) + int(zero)
    want = np.clip(np.where(np.isnan(x), info.min, quotients), info.min, info.max).astype(zero.dtype)
    graph = Graph("quantize")
    graph.add(Tensor("x", x.shape, x.dtype))
    graph.add(Tensor("y", x.shape, want.dtype))
    inputs = ["x", graph.constant("s", np.array(scale, np.float32)), graph.constant("z", np.array(zero))]
    graph.nodes, graph.inputs, graph.outputs = [Node("QuantizeLinear", inputs, ["y"], {"axis": 0}, "q")], ["x"], ["y"]
    np.testing.assert_array_equal(execute(compile_all(graph), graph, {"x": x})[0], want)


@pytest.mark.parametrize("zero", [-128, -100, 127])
@pytest.mark.parametrize(
    ("before", "bounds"), [("Relu", []), ("Clip", [0.0]), ("Clip", [-1.4]), ("Clip", [-12.75]), ("Clip", [0.0, 6.0])]
)
def test_quantize_nan_behind_the_same_bound(before: str, bounds: list[float], zero: int) -> None:
    """NaN becomes the lower limit though Relu and Clip keep it, also where their bound is the one of the limit: -128
    less the zero point, by the scale. LLVM takes the one clamp for the other there."""
    n = helper.make_node
    consts = {f"b{i}": np.float32(bound) for i, bound in enumerate(bounds)}
    nodes = [n(before, ["x", *consts], ["r"]), n("QuantizeLinear", ["r", "s", "z"], ["y"])]
    x = np.concatenate([SPECIAL, normal(300)])
    check(nodes, {"x": x}, {**consts, "s": np.float32(0.05), "z": np.int8(zero)}, ["y"])


def test_thresholded_relu_of_nan() -> None:
    """ThresholdedRelu makes NaN 0, also with alpha 0 behind a Relu, which keeps it."""
    n = helper.make_node
    x = np.array([np.nan, -1, 1e-45, 0, 2, np.inf] * 5, np.float32)
    check([n("Relu", ["x"], ["r"]), n("ThresholdedRelu", ["r"], ["y"], alpha=0.0)], {"x": x}, {}, ["y"])


def test_dynamic_quantize() -> None:
    for x in (normal(5, 7), np.abs(normal(9)) + 1, -np.abs(normal(9)) - 1):
        check_op("DynamicQuantizeLinear", [x], outputs=3)


def test_chain_is_one_loop() -> None:
    n = helper.make_node
    nodes = [
        n("DequantizeLinear", ["q", "s", "z"], ["x"]),
        n("Gelu", ["x"], ["y"]),
        n("Add", ["y", "b"], ["w"]),
        n("QuantizeLinear", ["w", "s", "z"], ["o"]),
    ]
    consts = {"s": np.float32(0.05), "z": np.int8(-3), "b": normal(9)}
    segment = check(nodes, {"q": ints(7, 9, dtype="int8", low=-128, high=127)}, consts, ["o"])
    assert len(segment.description) == 1 and segment.workspace_bytes == 0


@pytest.mark.medium
@settings(max_examples=12)
@given(st.lists(st.integers(1, 5), min_size=1, max_size=4), st.integers(0, 15), st.integers(0, 15))
def test_broadcast(shape: list[int], a: int, b: int) -> None:
    cut = lambda mask: [1 if mask >> k & 1 else n for k, n in enumerate(shape)]
    check_op("Sub", [normal(*cut(a)), normal(*cut(b)[b % len(shape) :])])
