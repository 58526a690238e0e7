"""Random one-op TFLite models by operator name, for comparison with LiteRT."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.common.tflite_models import Model, Op, T, unary

Random = np.random.Generator


def scale(r: Random) -> float:
    return float(np.float32(np.exp(r.uniform(-6, 0))))


def zero(r: Random, dtype: str) -> int:
    info = np.iinfo(dtype)
    return int(r.integers(info.min, info.max, endpoint=True))


def table_case(op: str, r: Random, dtype: str) -> bytes:
    """A function of one tensor over all 256 values."""
    low = np.iinfo(dtype).min
    sx, options, version = scale(r), None, 2
    sy, zy, other = sx * r.uniform(0.5, 8), zero(r, dtype), dtype
    if op == "LOGISTIC":
        sx, sy, zy, version = sx * 0.2, 1 / 256, int(low), 2 if dtype == "int8" else 1
    elif op == "TANH":
        sx, sy, zy = sx * 0.1, 1 / 128, int(low) + 128
    elif op == "LEAKY_RELU":
        options = ("LeakyReluOptions", {"Alpha": float(r.uniform(0.05, 0.9))})
    elif op in ("HARD_SWISH", "RELU_N1_TO_1"):
        sx, sy, version = sx * 0.1, sy * 0.1, 1
    elif op == "QUANTIZE":
        version, other = 1, str(r.choice(["int8", "uint8"]))
        zy = zero(r, other)
        sy = sx if r.integers(2) else sy
    x = T("x", (1, 16, 4, 4), dtype, sx, zero(r, dtype))
    return unary(op, x, T("y", (1, 16, 4, 4), other, sy, zy), options, version)


def binary_case(op: str, r: Random, dtype: str) -> bytes:
    s, shape = scale(r), (1, 9, 7, 12)
    other = (shape, (12,), (1, 1, 1, 12), (1,))[int(r.integers(4))]
    constant = other != shape
    sa, sb = s * r.uniform(0.3, 1.5), s * r.uniform(0.3, 1.5)
    sy = s * r.uniform(0.5, 3) if op != "MUL" else sa * sb * r.uniform(20, 150)
    if op == "MUL" and r.integers(2):
        sa, sb, sy = 0.02, 0.015, 0.03  # ties
    data = r.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, other, endpoint=True) if constant else None
    tensors = [
        T("x", shape, dtype, sa, zero(r, dtype)), T("b", other, dtype, sb, zero(r, dtype), data=data),
        T("y", shape, dtype, sy, zero(r, dtype)),
    ]  # fmt: skip
    options = (f"{op.capitalize()}Options", {"FusedActivationFunction": int(r.integers(2))})
    inputs = ["x"] if constant else ["x", "b"]
    return Model(tensors, [Op(op, ["x", "b"], ["y"], options, 2)], inputs, ["y"]).build()


def _window(r: Random, h: int, w: int, k: tuple[int, int], dilated: bool) -> tuple[dict[str, int], int, int]:
    stride, padding = int(r.integers(1, 3)), int(r.integers(2))
    d = int(r.integers(1, 3)) if dilated and stride == 1 else 1
    out = [-(-n // stride) if padding == 0 else (n - (s - 1) * d - 1) // stride + 1 for n, s in ((h, k[0]), (w, k[1]))]
    options = {"Padding": padding, "StrideH": stride, "StrideW": stride}
    if dilated:
        options |= {"DilationHFactor": d, "DilationWFactor": d}
    return options, out[0], out[1]


def pool_case(op: str, r: Random, dtype: str) -> bytes:
    k = ((2, 2), (3, 3), (7, 5), (14, 10))[int(r.integers(4))]
    options, oh, ow = _window(r, 14, 10, k, False)
    options |= {"FilterHeight": k[0], "FilterWidth": k[1], "FusedActivationFunction": int(r.integers(2))}
    s, z = scale(r), zero(r, dtype)
    x, y = T("x", (1, 14, 10, 8), dtype, s, z), T("y", (1, oh, ow, 8), dtype, s, z)
    return unary(op, x, y, ("Pool2DOptions", options), 2)


def reduce_case(op: str, r: Random, dtype: str) -> bytes:
    """A reduction over any axes, with one scale or two."""
    rank, keep = int(r.integers(1, 5)), bool(r.integers(2))
    shape = [int(v) for v in r.integers(1, 9, rank)]
    axes = sorted(r.choice(rank, int(r.integers(1, rank + 1)), replace=False).tolist())
    out = [1 if i in axes else n for i, n in enumerate(shape) if keep or i not in axes]
    s, z = scale(r), zero(r, dtype)
    sy, zy = (s, z) if op != "MEAN" or r.integers(2) else (s * r.uniform(0.3, 1.3), zero(r, dtype))
    tensors = [
        T("x", shape, dtype, s, z),
        T("axes", (len(axes),), "int32", data=np.array(axes)),
        T("y", out, dtype, sy, zy),
    ]
    node = Op(op, ["x", "axes"], ["y"], ("ReducerOptions", {"KeepDims": keep}), 2)
    return Model(tensors, [node], ["x"], ["y"]).build()


def pair_case(op: str, r: Random, dtype: str) -> bytes:
    """PRELU with a slope per channel or element, MAXIMUM and MINIMUM of one scale."""
    shape = (1, *(int(v) for v in r.integers(1, 9, 3)))
    other, s, z = ((shape[3],), (1, 1, shape[3]), shape[1:])[int(r.integers(3))], scale(r), zero(r, dtype)
    info, slope = np.iinfo(dtype), op == "PRELU"
    data = r.integers(info.min, info.max, other, endpoint=True) if slope else None
    sb, zb, sy, zy = (scale(r), zero(r, dtype), s * r.uniform(0.1, 3), zero(r, dtype)) if slope else (s, z, s, z)
    tensors = [T("x", shape, dtype, s, z), T("b", other, dtype, sb, zb, 0, data), T("y", shape, dtype, sy, zy)]
    options = None if slope else ("MaximumMinimumOptions", {})
    inputs = ["x"] if slope else ["x", "b"]
    return Model(tensors, [Op(op, ["x", "b"], ["y"], options, 1 if slope else 2)], inputs, ["y"]).build()


def softmax_case(op: str, r: Random, dtype: str) -> bytes:
    x = T("x", (4, 40), dtype, scale(r) * 0.3, zero(r, dtype))
    return unary(op, x, T("y", (4, 40), dtype, 1 / 256, int(np.iinfo(dtype).min)), ("SoftmaxOptions", {"Beta": 1.0}), 2)


def conv_case(op: str, r: Random, dtype: str = "int8") -> bytes:
    k, c = int(r.integers(1, 4)), 8
    options: dict[str, Any]
    options, oh, ow = _window(r, 12, 9, (k, k), True)
    options["FusedActivationFunction"] = int(r.choice([0, 1, 3]))
    if op == "CONV_2D":
        o, shape, axis, kind = 24, (24, k, k, c // int(r.integers(1, 3))), 0, "Conv2DOptions"
    else:
        options["DepthMultiplier"] = int(r.integers(1, 3))
        o, axis, kind = c * options["DepthMultiplier"], 3, "DepthwiseConv2DOptions"
        shape = (1, k, k, o)
    return _weighted(r, op, (1, 12, 9, c), shape, axis, (1, oh, ow, o), (kind, options), 3)


def transpose_conv_case(op: str, r: Random, dtype: str = "int8") -> bytes:
    k, s, padding = int(r.integers(1, 5)), int(r.integers(1, 3)), int(r.integers(2))
    h, w = (6 * s, 5 * s) if padding == 0 else (5 * s + max(k, s), 4 * s + max(k, s))
    options = ("TransposeConvOptions", {"Padding": padding, "StrideH": s, "StrideW": s})
    return _weighted(r, op, (1, 6, 5, 8), (16, k, k, 8), 0, (1, h, w, 16), options, 3)


def fully_connected_case(op: str, r: Random, dtype: str = "int8") -> bytes:
    keep = bool(r.integers(2))
    options = ("FullyConnectedOptions", {"KeepNumDims": keep, "FusedActivationFunction": int(r.integers(2))})
    return _weighted(r, op, (2, 5, 32), (24, 32), None, (2, 5, 24) if keep else (10, 24), options, 5)


def _weighted(r: Random, op: str, x: Any, w: Any, axis: int | None, y: Any, options: Any, version: int) -> bytes:
    o, sx = y[-1], scale(r)
    sw: Any = np.exp(r.uniform(-7, -4, o)).astype(np.float32) if axis is not None else 0.01
    tensors = [
        T("x", x, "int8", sx, zero(r, "int8")), T("w", w, "int8", sw, 0, axis or 0, r.integers(-127, 128, w)),
        T("b", (o,), "int32", sx * sw, 0, 0, r.integers(-3000, 3000, o)), T("y", y, "int8", sx * 0.3, zero(r, "int8")),
        T("s", (len(y),), "int32", data=np.array(y)),
    ]  # fmt: skip
    inputs = ["s", "w", "x", "b"] if op == "TRANSPOSE_CONV" else ["x", "w", "b"]
    return Model(tensors, [Op(op, inputs, ["y"], options, version)], ["x"], ["y"]).build()


def resize_case(op: str, r: Random, dtype: str) -> bytes:
    h, w, oh, ow = (int(v) for v in r.integers(1, 14, 4))
    if r.integers(2):  # as networks have it
        oh, ow = (n << int(r.integers(1, 4)) for n in (h, w))
    s, z, kind = scale(r), zero(r, dtype), int(r.integers(3))
    tensors = [
        T("x", (1, h, w, 8), dtype, s, z), T("size", (2,), "int32", data=np.array([oh, ow])),
        T("y", (1, oh, ow, 8), dtype, s, z),
    ]  # fmt: skip
    table = "ResizeBilinearOptions" if op == "RESIZE_BILINEAR" else "ResizeNearestNeighborOptions"
    options = (table, {"AlignCorners": kind == 1, "HalfPixelCenters": kind == 2})
    return Model(tensors, [Op(op, ["x", "size"], ["y"], options, 3)], ["x"], ["y"]).build()


#: (operator, x shape, y shape, int32 constants, options, inputs, number of outputs)
MOVES: list[tuple[str, Any, Any, list[Any], Any, list[str], int]] = [
    ("PAD", (1, 5, 6, 8), (1, 8, 7, 8), [[[0, 0], [1, 2], [0, 1], [0, 0]]], None, ["x", "c0"], 1),
    ("RESHAPE", (1, 5, 6, 8), (1, 30, 8), [[1, -1, 8]], ("ReshapeOptions", {"NewShape": [1, 30, 8]}), ["x", "c0"], 1),
    ("TRANSPOSE", (1, 5, 6, 8), (1, 8, 5, 6), [[0, 3, 1, 2]], None, ["x", "c0"], 1),
    ("SLICE", (1, 5, 6, 8), (1, 3, 6, 4), [[0, 1, 0, 2], [1, 3, -1, 4]], None, ["x", "c0", "c1"], 1),
    ("STRIDED_SLICE", (1, 5, 6, 8), (1, 5, 6, 8), [[0, -1, 0, 0], [0, 0, 0, 0], [1, -1, 1, 1]],
     ("StridedSliceOptions", {"BeginMask": 13, "EndMask": 15}), ["x", "c0", "c1", "c2"], 1),
    ("STRIDED_SLICE", (1, 5, 6, 8), (5, 6, 8), [[0, 0, 0, 0], [1, 0, 0, 0], [1, 1, 1, 1]],
     ("StridedSliceOptions", {"BeginMask": 14, "EndMask": 14, "ShrinkAxisMask": 1}), ["x", "c0", "c1", "c2"], 1),
    ("SPLIT", (1, 5, 6, 8), (1, 5, 6, 4), [3], ("SplitOptions", {"NumSplits": 2}), ["c0", "x"], 2),
    ("SQUEEZE", (1, 1, 6, 8), (1, 6, 8), [], ("SqueezeOptions", {"SqueezeDims": [1]}), ["x"], 1),
    ("EXPAND_DIMS", (5, 6, 8), (5, 6, 1, 8), [2], None, ["x", "c0"], 1),
    ("PACK", (5, 8), (5, 2, 8), [], ("PackOptions", {"ValuesCount": 2, "Axis": 1}), ["x", "x"], 1),
    ("UNPACK", (5, 2, 8), (5, 8), [], ("UnpackOptions", {"Num": 2, "Axis": 1}), ["x"], 2),
    ("GATHER", (5, 6, 8), (5, 3, 8), [[0, 5, 2]], ("GatherOptions", {"Axis": 1}), ["x", "c0"], 1),
    ("CONCATENATION", (1, 5, 6, 8), (1, 5, 6, 16), [], ("ConcatenationOptions", {"Axis": 3}), ["x", "x"], 1),
    ("STRIDED_SLICE", (5, 6, 8), (2, 1, 8), [[3, 0, 0, 0], [0, 0, 0, 0], [-2, 1, 1, 1]],
     ("StridedSliceOptions", {"NewAxisMask": 2, "EllipsisMask": 8, "ShrinkAxisMask": 4}), ["x", "c0", "c1", "c2"], 1),
    ("SPLIT_V", (5, 6, 8), (5, 3, 8), [[3, 3], 1], ("SplitVOptions", {"NumSplits": 2}), ["x", "c0", "c1"], 2),
    ("GATHER", (2, 6, 8), (2, 3, 8), [[[0, 5, 2], [1, 1, 4]]], ("GatherOptions", {"Axis": 1, "BatchDims": 1}),
     ["x", "c0"], 1),
    ("GATHER_ND", (5, 6, 8), (3, 8), [[[0, 5], [4, 0], [2, 2]]], None, ["x", "c0"], 1),
    ("MIRROR_PAD", (5, 6), (8, 9), [[[1, 2], [3, 0]]], ("MirrorPadOptions", {"Mode": 1}), ["x", "c0"], 1),
    ("TILE", (5, 6), (10, 18), [[2, 3]], None, ["x", "c0"], 1),
    ("REVERSE_V2", (5, 6), (5, 6), [[1]], None, ["x", "c0"], 1),
    ("SPACE_TO_DEPTH", (1, 4, 6, 3), (1, 2, 3, 12), [], ("SpaceToDepthOptions", {"BlockSize": 2}), ["x"], 1),
    ("DEPTH_TO_SPACE", (1, 2, 3, 12), (1, 4, 6, 3), [], ("DepthToSpaceOptions", {"BlockSize": 2}), ["x"], 1),
    ("SPACE_TO_BATCH_ND", (1, 3, 5, 3), (4, 2, 3, 3), [[2, 2], [[1, 0], [0, 1]]], None, ["x", "c0", "c1"], 1),
    ("BATCH_TO_SPACE_ND", (4, 2, 3, 3), (1, 3, 5, 3), [[2, 2], [[1, 0], [0, 1]]], None, ["x", "c0", "c1"], 1),
]  # fmt: skip
_VERSION_1 = {"RESHAPE", "SQUEEZE", "EXPAND_DIMS"}


def move_case(case: tuple[str, Any, Any, list[Any], Any, list[str], int], r: Random, dtype: str = "int8") -> bytes:
    op, x, y, constants, options, inputs, count = case
    s, z = scale(r), zero(r, dtype)
    names = [f"y{k}" for k in range(count)]
    tensors = [T("x", x, dtype, s, z), *(T(n, y, dtype, s, z) for n in names)]
    tensors += [T(f"c{k}", np.shape(c), "int32", data=np.asarray(c)) for k, c in enumerate(constants)]
    return Model(tensors, [Op(op, inputs, names, options, 1 if op in _VERSION_1 else 2)], ["x"], names).build()


#: Operators of 8-bit tensors.
CASES: dict[str, Callable[[str, Random, str], bytes]] = {
    **dict.fromkeys(
        ("LOGISTIC", "TANH", "HARD_SWISH", "LEAKY_RELU", "RELU", "RELU6", "RELU_N1_TO_1", "QUANTIZE"), table_case
    ),
    **dict.fromkeys(("ADD", "SUB", "MUL"), binary_case),
    **dict.fromkeys(("AVERAGE_POOL_2D", "MAX_POOL_2D"), pool_case),
    **dict.fromkeys(("MEAN", "REDUCE_MAX", "REDUCE_MIN"), reduce_case),
    **dict.fromkeys(("PRELU", "MAXIMUM", "MINIMUM"), pair_case),
    "SOFTMAX": softmax_case,
    **dict.fromkeys(("CONV_2D", "DEPTHWISE_CONV_2D"), conv_case),
    "TRANSPOSE_CONV": transpose_conv_case,
    **dict.fromkeys(("RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR"), resize_case),
    "FULLY_CONNECTED": fully_connected_case,
}
