"""Scales and zero points that make ties on purpose: every rounding is the one of the kernel LiteRT takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.common.tflite_models import Model, Op, T
from tests.unit.compiler.importer.tflite.test_operators import compare
from tilewright.checking.litert_reference import LiteRtReference
from tilewright.compiler.errors import UnsupportedError
from tilewright.compiler.graph.ops.quantized_op import ROUNDS_TWICE
from tilewright.compiler.importer.tflite import convolution

_RATIOS = (2, 1 / 2, 3 / 2, 1, 3 / 4, 3, 1 / 3, 4)
_SCALES = (0.02, 0.05, 0.1, 0.08, 1 / 16, 12 / 255, 6 / 255, 1 / 128)
#: Scales of which limits of activations are odd halves, or nearly.
_HALVES = (12 / 255, 0.08, 12 / 43, 0.16)


def zero_point(r: np.random.Generator, dtype: str) -> int:
    """Odd and even, at both ends of the range and inside."""
    low, high = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
    return int(r.choice([low, low + 1, high, high - 1, r.integers(low, high)]))


def one(op: str, inputs: Sequence[T], y: T, options: Any = None, version: int = 1, more: Sequence[T] = ()) -> bytes:
    names = [t.name for t in inputs]
    given = [t.name for t in inputs if t.data is None]
    return Model([*inputs, *more, y], [Op(op, names, [y.name], options, version)], given, [y.name]).build()


def limited(op: str, dtype: str, s: float, z: int, activation: int) -> bytes:
    """All 256 codes, or sums that reach both ends, behind an activation."""
    middle, fused = 0 if dtype == "int8" else 128, {"FusedActivationFunction": activation}
    y = lambda *shape: T("y", shape, dtype, s, z)
    if op in ("ADD", "SUB", "MUL"):
        inputs = [T("a", (16, 16), dtype, 2 * s, middle), T("b", (1,), dtype, s if op != "MUL" else 1, middle)]
        inputs[1].data = np.array([middle + (op == "MUL")])
        return one(op, inputs, y(16, 16), (f"{op.capitalize()}Options", fused), 2)
    if "POOL" in op:
        window = {"Padding": 1, "StrideW": 1, "StrideH": 1, "FilterWidth": 1, "FilterHeight": 2}
        x = T("x", (1, 2, 8, 16), dtype, s, z)
        return one(op, [x], y(1, 1, 8, 16), ("Pool2DOptions", {**window, **fused}), 2)
    if op.startswith("RELU"):
        return one(op, [T("x", (16, 16), dtype, s * (1 + activation % 2), z)], y(16, 16))
    zero = middle if dtype == "uint8" else 0
    w = T("w", (1, 1, 1, 1), dtype, 0.01, zero, 0, np.full((1, 1, 1, 1), 100 + zero))
    bias = T("b", (1,), "int32", s * 0.04, 0, 0, np.zeros(1))
    x = T("x", (1, 16, 16, 1), dtype, 4 * s, middle)
    steps = {"Padding": 1, "StrideW": 1, "StrideH": 1}
    if op == "FULLY_CONNECTED":
        w.shape, w.data, x.shape = (1, 1), w.data.reshape(1, 1), (256, 1)
        return one(op, [x, w, bias], y(256, 1), ("FullyConnectedOptions", fused), 5)
    if op == "TRANSPOSE_CONV":
        size = T("s", (4,), "int32", data=np.array([1, 16, 16, 1]))
        return one(op, [size, w, x, bias], y(1, 16, 16, 1), ("TransposeConvOptions", {**steps, **fused}), 4)
    table = "Conv2DOptions" if op == "CONV_2D" else "DepthwiseConv2DOptions"
    steps |= {"DepthMultiplier": 1} if op != "CONV_2D" else {}
    return one(op, [x, w, bias], y(1, 16, 16, 1), (table, {**steps, **fused}), 3)


@pytest.mark.medium
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize(
    "op",
    ["ADD", "SUB", "MUL", "AVERAGE_POOL_2D", "MAX_POOL_2D", "CONV_2D", "DEPTHWISE_CONV_2D", "TRANSPOSE_CONV",
     "FULLY_CONNECTED", "RELU6", "RELU_N1_TO_1", "RELU_0_TO_1"],
)  # fmt: skip
def test_limits_of_activations(op: str, dtype: str) -> None:
    r = np.random.default_rng(len(op))
    for k, s in enumerate(_HALVES):
        compare(limited(op, dtype, s, zero_point(r, dtype), 2 + k % 2), r)


#: Operators computed by tables: types, versions for int8 and others, and options.
_TABLES: dict[str, tuple[str, int, Any]] = {
    "EXP": ("int8", 2, None), "LOG": ("int8", 2, None), "SQRT": ("int8", 2, None), "RSQRT": ("int8", 2, None),
    "ABS": ("int8", 2, None), "NEG": ("int8", 1, None), "ELU": ("int8", 1, None),
    "GELU": ("int8 uint8", 2, ("GeluOptions", {"Approximate": False})),
    "GELU tanh": ("int8 uint8", 2, ("GeluOptions", {"Approximate": True})),
    "LOGISTIC": ("int8 uint8", 1, None), "TANH": ("int8 uint8", 1, None), "HARD_SWISH": ("int8 uint8", 1, None),
    "LEAKY_RELU": ("int8 uint8", 2, ("LeakyReluOptions", {"Alpha": 0.25})),
    "LEAKY_RELU small": ("int8 uint8", 2, ("LeakyReluOptions", {"Alpha": 0.003})),
    "LEAKY_RELU below": ("int8 uint8", 2, ("LeakyReluOptions", {"Alpha": -200.0})),
    "RELU": ("int8 uint8", 2, None), "QUANTIZE": ("int8 uint8", 1, None),
}  # fmt: skip


@pytest.mark.medium
@pytest.mark.parametrize("op", _TABLES)
def test_tables(op: str) -> None:
    types, version, options = _TABLES[op]
    r = np.random.default_rng(len(op))
    for dtype in types.split():
        low = int(np.iinfo(dtype).min)
        for k in range(6):
            s, zx, zy = float(r.choice(_SCALES)), zero_point(r, dtype), zero_point(r, dtype)
            sy = s * _RATIOS[k]
            if op in ("LOGISTIC", "TANH") and k % 2:
                sy, zy = (1 / 256, low) if op == "LOGISTIC" else (1 / 128, low + 128)
            zx = low if "SQRT" in op else zx  # LiteRT stops at negative values
            x, y = T("x", (16, 16), dtype, s, zx), T("y", (16, 16), dtype, sy, zy)
            compare(one(op.split()[0], [x], y, options, version), r)


@pytest.mark.medium
@pytest.mark.parametrize("op", ["QUANTIZE", "LEAKY_RELU"])
def test_conversions_beyond_8_bits_are_those_of_the_built_in_kernels(op: str) -> None:
    r = np.random.default_rng(0)
    options = ("LeakyReluOptions", {"Alpha": -0.25}) if op == "LEAKY_RELU" else None
    for ratio in (1 / 600, 0.0039, 1 / 256, 127.99, 128.5, 129, 1000):
        x, y = T("x", (16, 16), "int8", 0.1 * ratio, 5), T("y", (16, 16), "int8", 0.1, zero_point(r, "int8"))
        compare(one(op, [x], y, options, 2 if options else 1), r)


def concatenation(r: np.random.Generator, dtype: str, parts: int, activation: int, same: bool) -> bytes:
    s, z = float(r.choice(_SCALES)), zero_point(r, dtype)
    given = [(s, z) if same else (s * float(r.choice(_RATIOS)), zero_point(r, dtype)) for _ in range(parts)]
    inputs = [T(f"x{k}", (16, 16), dtype, *quant) for k, quant in enumerate(given)]
    options = ("ConcatenationOptions", {"Axis": 0, "FusedActivationFunction": activation})
    return one("CONCATENATION", inputs, T("y", (16 * parts, 16), dtype, s, z), options, 2)


@pytest.mark.medium
def test_concatenation_of_several_scales() -> None:
    r = np.random.default_rng(0)
    for parts in (1, 2, 3, 4, 6, 7):
        compare(concatenation(r, "uint8", parts, 0, False), r)


def test_activations_of_concatenations() -> None:
    """XNNPACK does not look at them; LiteRT's own kernel refuses them."""
    r = np.random.default_rng(0)
    for dtype in ("int8", "uint8"):
        for parts in (2, 5):
            compare(concatenation(r, dtype, parts, 3, True), r)
    for case in (concatenation(r, "int8", 6, 3, True), concatenation(r, "uint8", 2, 1, False)):
        with pytest.raises(UnsupportedError, match="fused activation is accepted, and ignored"):
            tw.compile(case, "tiny")


@pytest.mark.medium
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_softmax_of_products(dtype: str) -> None:
    r = np.random.default_rng(0)
    for beta in (0.1, 0.5, 2.0, 3.7):
        x, y = T("x", (16, 16), dtype, 0.05, 3), T("y", (16, 16), dtype, 1 / 256, int(np.iinfo(dtype).min))
        compare(one("SOFTMAX", [x], y, ("SoftmaxOptions", {"Beta": beta}), 2), r)


@pytest.mark.medium
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_softmax_next_to_a_tie_rounds_as_sums_in_float32(dtype: str) -> None:
    """Rows whose exact quotient lies on one side of a tie, and that of float32 in LiteRT's order on the other: of all
    whose last element is the largest and three others are up to 64 steps below."""
    low, step = int(np.iinfo(dtype).min), np.float32(0.0371)
    below = np.stack([*np.indices((65, 65, 65)), np.zeros((65, 65, 65), int)], -1).reshape(-1, 4)
    exact = np.exp(-below * np.float64(step))
    e = np.exp(-(step * below.astype(np.float32)), dtype=np.float64).astype(np.float32)
    inverse = np.float32(1) / (np.cumsum(e, 1, dtype=np.float32)[:, -1:] * np.float32(1 / 256))
    other = np.rint(256 * exact / exact.sum(1, keepdims=True)) != np.floor(e * inverse + 0.5)
    rows = low + 128 - below[other.any(1)]
    assert len(rows) >= 5
    compare_softmax(rows, dtype, float(step), 1 / 256, low)


def compare_softmax(rows: np.ndarray, dtype: str, sx: float, sy: float, zy: int) -> None:
    x, y = T("x", rows.shape, dtype, sx, 3), T("y", rows.shape, dtype, sy, zy)
    file, inputs = one("SOFTMAX", [x], y, ("SoftmaxOptions", {"Beta": 1.0}), 2), {"x": rows.astype(dtype)}
    with tw.Device("functional") as device:
        got = device.run(tw.compile(file, "tiny"), inputs)["y"]
    np.testing.assert_array_equal(got, LiteRtReference(file).run(inputs)["y"])


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_softmax_of_equal_elements_rounds_a_tie_away_from_zero(dtype: str) -> None:
    """512 of 1/2 each."""
    compare_softmax(np.full((1, 512), 5), dtype, 0.1, 1 / 256, int(np.iinfo(dtype).min))


@pytest.mark.medium
@pytest.mark.parametrize(
    ("scale", "zero"),
    [(1 / 255, 0), (1 / 256, 9), (0.03, 255), (1e-5, 0), (1e-9, 7), (2.0**-32, 0), (1e-12, 0), (1e12, 0)],
)
def test_softmax_of_uint8_has_any_scale_and_adds_no_zero_point(scale: float, zero: int) -> None:
    rows = np.random.default_rng(1).integers(0, 256, (50, 9))
    compare_softmax(rows, "uint8", 0.05, scale, zero)


# --- products that XNNPACK does not take ---


def product(op: str, r: np.random.Generator, dtype: str, sw: Any, sy: float = 0.1, named: str = "") -> bytes:
    """`sw`: None: one scale for all channels, else that of channel 1 of 11; `named`: the tensor that names axis 1."""
    o, c = 11, 11 if op == "DEPTHWISE_CONV_2D" else 4
    shape = {"FULLY_CONNECTED": (o, 16), "DEPTHWISE_CONV_2D": (1, 3, 3, o)}.get(op, (o, 3, 3, c))
    axis = 3 if op == "DEPTHWISE_CONV_2D" else 0
    scale: Any = np.float32(0.01)
    if sw is not None:
        scale = r.choice([0.01, 0.02, 0.005, 0.0123], o).astype(np.float32)
        scale[1] = sw
    info, zero = np.iinfo(dtype), 77 if dtype == "uint8" else 0
    w = T("w", shape, dtype, scale, zero, axis if sw is not None else 0, r.integers(info.min, info.max + 1, shape))
    b = T("b", (o,), "int32", scale * np.float32(0.05), 0, 0, r.integers(-2000, 2000, o))
    x, y = T("x", (1, 12, 13, c), dtype, 0.05, 3), T("y", (1, 10, 11, o), dtype, sy, zero_point(r, dtype))
    steps = {"Padding": 1, "StrideW": 1, "StrideH": 1, "FusedActivationFunction": int(r.choice([0, 1]))}
    inputs, table = [x, w, b], "Conv2DOptions"
    if op == "FULLY_CONNECTED":
        x.shape, y.shape, table = (200, 16), (200, o), "FullyConnectedOptions"
        steps = {"FusedActivationFunction": 0}
    elif op == "TRANSPOSE_CONV":
        y.shape, table = (1, 25, 27, o), "TransposeConvOptions"
        steps |= {"StrideW": 2, "StrideH": 2}
        inputs = [T("s", (4,), "int32", data=np.array(y.shape)), w, x, b]
    elif op == "DEPTHWISE_CONV_2D":
        table = "DepthwiseConv2DOptions"
        steps |= {"DepthMultiplier": 1}
    for t in (x, w, y):
        t.axis = 1 if t.name == named else t.axis
    version = {"FULLY_CONNECTED": 5, "TRANSPOSE_CONV": 4}.get(op, 3)
    return one(op, inputs, y, (table, steps), version)


_PRODUCTS = ("CONV_2D", "DEPTHWISE_CONV_2D", "TRANSPOSE_CONV", "FULLY_CONNECTED")


@pytest.mark.medium
@pytest.mark.parametrize("scale", [0.0, 1e-41, 1e-38, 1e-30])
@pytest.mark.parametrize("op", _PRODUCTS)
def test_channels_without_a_normal_scale(op: str, scale: float) -> None:
    """XNNPACK leaves the whole layer to the built-in kernels, which round twice; 1e-30 it takes."""
    for seed in range(2):
        r = np.random.default_rng(seed)
        compare(product(op, r, "int8", scale), r)


@pytest.mark.medium
@pytest.mark.parametrize("op", _PRODUCTS)
def test_products_that_name_an_axis_or_have_a_large_factor(op: str) -> None:
    r = np.random.default_rng(0)
    for dtype, named in (("int8", "x"), ("uint8", "w"), ("uint8", "y")):
        compare(product(op, r, dtype, None, named=named), r)
    compare(product(op, r, "int8", 0.0123, sy=1.9e-6), r)  # XNNPACK cannot be prepared


def test_scales_that_leave_32_bits() -> None:
    for scale in (3e38, 0.5):
        with pytest.raises(UnsupportedError, match="is accepted, as LiteRT computes in 32 bits"):
            tw.compile(product("CONV_2D", np.random.default_rng(0), "int8", scale, sy=1e-9), "tiny")


def test_products_of_mixed_types() -> None:
    """LiteRT refuses them, or reads the weights as what they are not."""
    x, y = T("x", (4, 8), "uint8", 0.1, 3), T("y", (4, 6), "uint8", 0.1, 3)
    w = T("w", (6, 8), "int8", 0.1, 0, 0, np.ones((6, 8)))
    b = T("b", (6,), "int32", 0.01, 0, 0, np.zeros(6))
    with pytest.raises(UnsupportedError, match="one type for all is accepted"):
        tw.compile(one("FULLY_CONNECTED", [x, w, b], y, ("FullyConnectedOptions", {}), 5), "tiny")


@pytest.mark.medium
@pytest.mark.parametrize("cpu_only", [False, True])
def test_products_that_round_twice_say_so_where_they_are_outputs(
    cpu_only: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An output with any other reason must be equal, wherever it is made."""
    tensors = [T("a", (4, 40, 32), "int8", 0.05, 3), T("b", (4, 32, 48), "int8", 0.02, -5)]
    y = T("y", (4, 40, 48), "int8", 0.3, 7)
    data = one("BATCH_MATMUL", tensors, y, ("BatchMatMulOptions", {}), 2)
    found = {}
    for reason in (ROUNDS_TWICE, "the weather"):
        monkeypatch.setattr(convolution, "ROUNDS_TWICE", reason)
        report = tw.check(data, config="tiny", cpu_only=cpu_only, cache=False)
        (row,) = report.rows
        assert row.reason == reason and row.mismatches > 0 and row.where == ("cpu" if cpu_only else "npu")
        found[reason] = (report.ok, row.status)
    assert found == {ROUNDS_TWICE: (True, "border"), "the weather": (False, "mismatch")}


def test_a_product_that_xnnpack_refuses() -> None:
    r = np.random.default_rng(0)
    plain = tw.check(product("CONV_2D", r, "int8", 0.0123, sy=1.9e-6), config="tiny")
    assert plain.ok and "without XNNPACK, which cannot be prepared" in plain.reference


@pytest.mark.medium
@pytest.mark.parametrize("op", ["ADD", "SUB", "MUL"])
def test_sums_and_products_of_the_built_in_kernels(op: str) -> None:
    """Axis 1 of the scale keeps XNNPACK away; 39 elements are two vectors and a rest."""
    r = np.random.default_rng(0)
    for k in range(6):
        shape = ((3, 13), (13,))[k % 2]
        inputs = [T("a", (3, 13), "int8", 0.1, 3, 1), T("b", shape, "int8", 0.05, -7)]
        y = T("y", (3, 13), "int8", 0.01 if op == "MUL" else 0.2, 5)
        compare(one(op, inputs, y, (f"{op.capitalize()}Options", {}), 2), r)
