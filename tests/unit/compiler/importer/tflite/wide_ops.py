"""Random one-op TFLite models of 16-bit activations and 8-bit weights ("16x8"), for comparison with LiteRT."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tests.common.tflite_models import Model, Op, T, unary

Random = np.random.Generator
NONE, RELU, RELU_N1_TO_1, RELU6 = range(4)


def scale(r: Random, low: float = -12, high: float = -6) -> float:
    return float(np.float32(np.exp(r.uniform(low, high))))


def _weighted(
    r: Random, op: str, x: Any, w: Any, axis: int, y: Any, options: Any, per_channel: bool = True, biased: bool = True,
    before: Sequence[str] = ("x", "w"),
) -> bytes:  # fmt: skip
    """The scale of the result makes its steps about as common as those of the operand; some results are clamped."""
    o, sx = y[-1], scale(r)
    sw: Any = np.exp(r.uniform(-7, -4, o if per_channel else 1)).astype(np.float32)
    products = int(np.prod(w)) // w[axis]
    sy = float(sx * np.mean(sw) * 127 * np.sqrt(products) * r.uniform(0.1, 0.8))
    tensors = [
        T("x", x, "int16", sx), T("w", w, "int8", sw, 0, axis, r.integers(-127, 128, w)),
        T("y", y, "int16", sy),
    ]  # fmt: skip
    inputs = list(before)
    if "shape" in before:
        tensors.append(T("shape", (len(y),), "int32", data=np.array(y)))
    if biased:
        most = int(1e7)
        tensors.append(T("b", (o,), "int64", np.broadcast_to(sx * sw, (o,)), 0, 0, r.integers(-most, most, o)))
        inputs.append("b")
    return Model(tensors, [Op(op, inputs, ["y"], options, 4)], ["x"], ["y"]).build()


def conv_case(op: str, r: Random) -> bytes:
    k, c, stride, padding = int(r.integers(1, 4)), int(r.choice([3, 8, 20])), int(r.integers(1, 3)), int(r.integers(2))
    d = int(r.integers(1, 3)) if stride == 1 else 1
    out = [-(-n // stride) if padding == 0 else (n - (k - 1) * d - 1) // stride + 1 for n in (12, 9)]
    options: dict[str, int] = {"Padding": padding, "StrideH": stride, "StrideW": stride, "DilationHFactor": d}
    options |= {"DilationWFactor": d, "FusedActivationFunction": int(r.choice([NONE, RELU, RELU_N1_TO_1, RELU6]))}
    if op == "CONV_2D":
        group = int(r.integers(1, 3)) if c == 8 else 1
        shape, axis, kind, o = (24, k, k, c // group), 0, "Conv2DOptions", 24
    else:
        o = c * int(r.integers(1, 3))
        options["DepthMultiplier"] = o // c
        shape, axis, kind = (1, k, k, o), 3, "DepthwiseConv2DOptions"
    return _weighted(r, op, (1, 12, 9, c), shape, axis, (1, *out, o), (kind, options), bool(r.integers(4)))


def transposed_case(op: str, r: Random) -> bytes:
    """Strides within and beyond the kernel; with SAME padding, and with borders that no window reaches."""
    k, c, stride, padding = (int(r.choice(v)) for v in ((1, 2, 3, 4), (3, 8, 20), (1, 2, 3), (0, 1)))
    out = [n * stride if padding == 0 else (n - 1) * stride + max(k, stride) for n in (7, 5)]
    options = {
        "Padding": padding,
        "StrideH": stride,
        "StrideW": stride,
        "FusedActivationFunction": int(r.choice([NONE, RELU])),
    }
    return _weighted(
        r, op, (1, 7, 5, c), (12, k, k, c), 0, (1, *out, 12), ("TransposeConvOptions", options), bool(r.integers(4)),
        bool(r.integers(2)), ("shape", "w", "x"),
    )  # fmt: skip


def batch_case(op: str, r: Random) -> bytes:
    """A product of two activations, of which one may be a constant, turned or not."""
    lead, m, k, n = [[], [2], [2, 3]][int(r.integers(3))], 5, int(r.choice([1, 9, 300])), 7
    a, c = bool(r.integers(2)), bool(r.integers(2))
    x, w = [*lead, *((k, m) if a else (m, k))], [*lead, *((n, k) if c else (k, n))]
    sx, sw = scale(r), scale(r)
    sy = float(sx * sw * 19000 * np.sqrt(k) * r.uniform(0.2, 1.5))
    data = r.integers(-32768, 32768, w) if r.integers(2) else None
    tensors = [T("x", x, "int16", sx), T("w", w, "int16", sw, data=data), T("y", [*lead, m, n], "int16", sy)]
    node = Op(op, ["x", "w"], ["y"], ("BatchMatMulOptions", {"AdjX": a, "AdjY": c}), 4)
    return Model(tensors, [node], ["x"] if data is not None else ["x", "w"], ["y"]).build()


def resize_case(op: str, r: Random) -> bytes:
    n, out, kind, s = r.integers(1, 12, 2), r.integers(1, 40, 2), int(r.integers(3)), scale(r)
    tensors = [
        T("x", (1, *n, 5), "int16", s), T("size", (2,), "int32", data=out), T("y", (1, *out, 5), "int16", s),
    ]  # fmt: skip
    table = "ResizeBilinearOptions" if op == "RESIZE_BILINEAR" else "ResizeNearestNeighborOptions"
    options = (table, {"AlignCorners": kind == 1, "HalfPixelCenters": kind == 2})
    return Model(tensors, [Op(op, ["x", "size"], ["y"], options, 4)], ["x"], ["y"]).build()


def fully_connected_case(op: str, r: Random) -> bytes:
    keep, k = bool(r.integers(2)), int(r.choice([10, 32, 300]))
    options = {"KeepNumDims": keep, "FusedActivationFunction": int(r.integers(2))}
    y = (2, 5, 24) if keep else (10, 24)
    return _weighted(
        r, op, (2, 5, k), (24, k), 0, y, ("FullyConnectedOptions", options), bool(r.integers(2)), bool(r.integers(2))
    )


def binary_case(op: str, r: Random) -> bytes:
    shape = (1, 9, 7, 12)
    other = (shape, (12,), (1, 1, 1, 12), (1,))[int(r.integers(4))]
    s = scale(r)
    sa, sb, sy = s * r.uniform(0.3, 1.5), s * r.uniform(0.3, 1.5), s * r.uniform(0.5, 3)
    options: dict[str, Any] = {"FusedActivationFunction": int(r.choice([NONE, RELU, RELU6]))}
    if op == "MUL":
        sy = sa * sb * 32768 * r.uniform(0.1, 1.5)
    elif op in ("MAXIMUM", "MINIMUM"):
        sa, sb, sy, options = s, s, s, {}
    else:
        options["PotScaleInt16"] = bool(r.integers(2))
        if r.integers(3) == 0 and other == shape:
            sa, sb, sy = (2.0**-11, 2.0**-13, 2.0**-11) if r.integers(2) else (2.0**-12, 2.0**-11, 2.0**-11)
    constant = other != shape
    data = r.integers(-32768, 32768, other) if constant else None
    tensors = [T("x", shape, "int16", sa), T("b", other, "int16", sb, data=data), T("y", shape, "int16", sy)]
    kind = "MaximumMinimumOptions" if op in ("MAXIMUM", "MINIMUM") else f"{op.capitalize()}Options"
    node = Op(op, ["x", "b"], ["y"], (kind, options), 4)
    return Model(tensors, [node], ["x"] if constant else ["x", "b"], ["y"]).build()


def pool_case(op: str, r: Random) -> bytes:
    k, stride, padding = (
        ((2, 2), (3, 3), (7, 5), (14, 10))[int(r.integers(4))],
        int(r.integers(1, 3)),
        int(r.integers(2)),
    )
    out = [-(-n // stride) if padding == 0 else (n - s) // stride + 1 for n, s in zip((14, 10), k)]
    options = {"Padding": padding, "StrideH": stride, "StrideW": stride, "FilterHeight": k[0], "FilterWidth": k[1]}
    options["FusedActivationFunction"] = int(r.choice([NONE, RELU, RELU6]))
    s = scale(r)
    x, y = T("x", (1, 14, 10, 8), "int16", s), T("y", (1, *out, 8), "int16", s)
    return unary(op, x, y, ("Pool2DOptions", options), 3)


def reduce_case(op: str, r: Random) -> bytes:
    rank, keep = int(r.integers(1, 5)), bool(r.integers(2))
    shape = [int(v) for v in r.integers(1, 9, rank)]
    axes = sorted(r.choice(rank, int(r.integers(1, rank + 1)), replace=False).tolist())
    out = [1 if i in axes else n for i, n in enumerate(shape) if keep or i not in axes]
    s = scale(r)
    tensors = [
        T("x", shape, "int16", s), T("axes", (len(axes),), "int32", data=np.array(axes)),
        T("y", out, "int16", s * r.choice([1.0, 0.37, 0.9, 1.7]) if op == "MEAN" else s),
    ]  # fmt: skip
    return Model(
        tensors, [Op(op, ["x", "axes"], ["y"], ("ReducerOptions", {"KeepDims": keep}), 3)], ["x"], ["y"]
    ).build()


def function_case(op: str, r: Random) -> bytes:
    """A function of one tensor over all 65,536 values."""
    sx = scale(r, -10, -7)
    sy, options = sx * r.uniform(0.4, 3), None
    if op in ("LOGISTIC", "TANH"):
        sx, sy = (sx, 2.0**-12, 2.0**-11, 2.0**-14)[int(r.integers(4))], 2.0**-15
    elif op == "LEAKY_RELU":
        options = ("LeakyReluOptions", {"Alpha": float(r.uniform(0, 1.5))})
    x, y = T("x", (1, 64, 64, 16), "int16", sx), T("y", (1, 64, 64, 16), "int16", sy)
    return unary(op, x, y, options, 2 if op != "RELU" else 3)


def line_case(op: str, r: Random) -> bytes:
    """A function by lines over all 65,536 values; RSQRT, which stops at numbers below 0, of their magnitudes."""
    shape, sx = (1, 64, 64, 16), scale(r, -10, -7)
    top = sx * 32768
    sy = {"EXP": np.exp(top), "LOG": np.log(top) + 1, "RSQRT": sx**-0.5 / 4, "GELU": top, "ABS": top}[op] / 32768
    sy = float(np.float32(abs(sy) * r.choice([1.0, 0.4, 1.3])))
    if op == "ABS" and r.integers(2):
        sy = sx
    options = ("GeluOptions", {"Approximate": bool(r.integers(2))}) if op == "GELU" else None
    tensors = [T("x", shape, "int16", sx), T("m", shape, "int16", sx), T("y", shape, "int16", sy)]
    if op != "RSQRT":
        return unary(op, tensors[0], tensors[2], options, 1 if op == "EXP" else 2)
    return Model(tensors, [Op("ABS", ["x"], ["m"], None, 2), Op(op, ["m"], ["y"], None, 2)], ["x"], ["y"]).build()


def select_case(op: str, r: Random) -> bytes:
    """A choice between two tensors by a comparison of integers, and a row repeated."""
    shape, s = (4, 6, 8), scale(r)
    if op == "BROADCAST_TO":
        tensors = [T("x", (6, 1), "int16", s), T("c", (3,), "int32", data=np.array(shape)), T("y", shape, "int16", s)]
        return Model(tensors, [Op(op, ["x", "c"], ["y"], None, 2)], ["x"], ["y"]).build()
    tensors = [T(name, shape, "int16", s) for name in "aby"] + [T("k", shape, "int32"), T("c", shape, "bool")]
    tensors.append(T("zero", (1,), "int32", data=np.zeros(1)))
    ops = [Op("LESS", ["k", "zero"], ["c"]), Op(op, ["c", "a", "b"], ["y"], None, 1)]
    return Model(tensors, ops, ["k", "a", "b"], ["y"]).build()


def softmax_case(op: str, r: Random) -> bytes:
    n = int(r.choice([1, 2, 10, 100, 1000]))
    beta = float(r.choice([1.0, 1.0, 0.5]))
    x, y = T("x", (40, n), "int16", scale(r, -11, -6)), T("y", (40, n), "int16", 2.0**-15)
    return unary(op, x, y, ("SoftmaxOptions", {"Beta": beta}), 3)


def quantize_case(op: str, r: Random) -> bytes:
    """A QUANTIZE into 16 bits or out of them."""
    small = str(r.choice(["int8", "uint8", "float32", "int16"]))
    out = bool(r.integers(2)) and small in ("int8", "int16")
    wide = T("x" if out else "y", (1, 64, 64, 16), "int16", scale(r))
    other = T("y" if out else "x", wide.shape, small)
    if small != "float32":
        other.scale = wide.scale * (r.uniform(100, 400) if small != "int16" else r.choice([1.0, 1.3, 0.6]))
        other.zero = 0 if small == "int16" else int(r.integers(0, 100))
    return unary(op, *((wide, other) if out else (other, wide)), ("QuantizeOptions", {}), 3)


#: Operators of 16-bit activations.
CASES: dict[str, Callable[[str, Random], bytes]] = {
    **dict.fromkeys(("CONV_2D", "DEPTHWISE_CONV_2D"), conv_case),
    "TRANSPOSE_CONV": transposed_case,
    "FULLY_CONNECTED": fully_connected_case,
    "BATCH_MATMUL": batch_case,
    **dict.fromkeys(("ADD", "SUB", "MUL", "MAXIMUM", "MINIMUM"), binary_case),
    **dict.fromkeys(("AVERAGE_POOL_2D", "MAX_POOL_2D"), pool_case),
    **dict.fromkeys(("MEAN", "REDUCE_MAX", "REDUCE_MIN"), reduce_case),
    **dict.fromkeys(("RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR"), resize_case),
    **dict.fromkeys(("RELU", "RELU6", "LEAKY_RELU", "LOGISTIC", "TANH"), function_case),
    **dict.fromkeys(("EXP", "LOG", "RSQRT", "GELU", "ABS"), line_case),
    **dict.fromkeys(("SELECT_V2", "BROADCAST_TO"), select_case),
    "SOFTMAX": softmax_case,
    "QUANTIZE": quantize_case,
}
