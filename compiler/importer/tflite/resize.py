"""RESIZE_BILINEAR and RESIZE_NEAREST_NEIGHBOR. Bytes are interpolated by XNNPACK's rule: weights of 11 fractional
bits, one rounding at the end, ties upwards."""

from __future__ import annotations

import numpy as np

from tilewright.compiler.graph.ops.interpolate import Places, QInterpolate
from tilewright.compiler.importer.tflite.builder import PLANES, TfliteBuilder
from tilewright.compiler.importer.tflite.fixed_point import Integers
from tilewright.compiler.importer.tflite.handlers import PLAIN, WIDE, handles
from tilewright.compiler.importer.tflite.movement import same_type
from tilewright.compiler.importer.tflite.schema import FileOp

_ONE = 1 << 11
_WIDE_ONE = 1 << 10


def _positions(n: int, out: int, align: bool, half_pixel: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """First and second source index, and the weight of the second in 1/2048."""
    f = np.float32
    aligned = align and out > 1
    scale = f(n - 1) / f(out - 1) if aligned else f(n) / f(out)
    x = np.arange(out, dtype=f) * scale
    if half_pixel and not align:
        x = x + (f(0.5) * scale - f(0.5))
    x = np.clip(x, f(0), f(n - 1))
    first = x.astype(np.int64)
    return first, np.minimum(first + 1, n - 1), np.rint((x - first.astype(f)) * f(_ONE)).astype(np.int64)


def _sizes(b: TfliteBuilder) -> tuple[tuple[int, ...], list[int], bool, bool]:
    """Shape of the image, new height and width, and the options AlignCorners and HalfPixelCenters."""
    shape, size = b.shape(0), b.ints(1, "size")
    if len(shape) != 4 or len(size) != 2 or min(*size, *shape) < 1:
        raise b.damaged(f"{list(shape)} to {size}")
    return shape, size, bool(b.op.option("AlignCorners", False)), bool(b.op.option("HalfPixelCenters", False))


@handles("RESIZE_BILINEAR")
def byte_bilinear(b: TfliteBuilder, op: FileOp) -> None:
    shape, size, align, half = _sizes(b)
    b.byte_quant(b.source(0))
    same_type(b, 0)
    rows, columns = (Places.of(*_positions(n, out, align, half), _ONE) for n, out in zip(shape[1:3], size, strict=True))
    y = b.result((shape[0], shape[3], *size), PLANES)
    b.quantized(QInterpolate(rows=rows, columns=columns), [b.value(0, PLANES)], y)


@handles("RESIZE_BILINEAR", table=WIDE)
def wide_bilinear(b: TfliteBuilder, op: FileOp) -> None:
    """Imports LiteRT's reference kernel for integers: weights of 10 fractional bits from a rounded step between places,
    one rounding at the end, ties away from zero."""
    shape, size, align, half = _sizes(b)
    same_type(b, 0)
    ints = Integers(b)
    value = ints.of(b.value(0, PLANES))
    for axis, n, out in zip((2, 3), shape[1:3], size):
        first, second, weight = _steps(b, n, out, align, half)
        along = (-1, 1) if axis == 2 else (-1,)
        ends = [b.onnx("Gather", [value, b.constant("places", p, np.int64)], {"axis": axis}) for p in (first, second)]
        shares = [v.reshape(along) for v in (_WIDE_ONE - weight, weight)]
        value = ints.add(*(ints.mul(end, share) for end, share in zip(ends, shares)))
    ints.finish(ints.rounded_right(value, 20), PLANES)


def _steps(b: TfliteBuilder, n: int, out: int, align: bool, half_pixel: bool) -> tuple[np.ndarray, ...]:
    """First and second source index, and the weight of the second in 1/1024, which is below 0 before the first."""
    aligned = align and out > 1
    have, made = (n - 1, out - 1) if aligned else (n, out)
    step = (_WIDE_ONE * have + made // 2) // made
    x = np.arange(out, dtype=np.int64) * step
    if half_pixel and not align:
        x = x + step // 2 - _WIDE_ONE // 2
    first = np.maximum(x // _WIDE_ONE, 0)
    if first[-1] >= n:
        raise b.refuse(f"{n} to {out}: the last place, in steps of {step} / 1024, lies beyond the image")
    return first, np.minimum(-(-x // _WIDE_ONE), n - 1).clip(0), x - _WIDE_ONE * first


@handles("RESIZE_BILINEAR", table=PLAIN)
def real_bilinear(b: TfliteBuilder, op: FileOp) -> None:
    shape, size, align, half = _sizes(b)
    kind = "align_corners" if align else "half_pixel" if half else "asymmetric"
    out = b.constant("sizes", [shape[0], shape[3], *size], np.int64)
    attrs = {"mode": "linear", "coordinate_transformation_mode": kind}
    b.quantize_into(b.onnx("Resize", [b.real(0, PLANES), "", "", out], attrs), PLANES)


def _nearest(n: int, out: int, align: bool, half_pixel: bool) -> np.ndarray:
    """Source index of each element, in float32; ties of align_corners away from zero."""
    f = np.float32
    scale = f(n - 1) / f(out - 1) if align and out > 1 else f(n) / f(out)
    x = np.arange(out, dtype=f)
    x = (x + f(0.5)) * scale if half_pixel else x * scale
    index = np.floor(x + f(0.5)) if align else np.floor(x)
    return np.clip(index.astype(np.int64), 0, n - 1)


@handles("RESIZE_NEAREST_NEIGHBOR", wide=True)
def resize_nearest(b: TfliteBuilder, op: FileOp) -> None:
    shape, size, align, half = _sizes(b)
    same_type(b, 0)
    source, out = b.value(0, PLANES), (shape[0], shape[3], *size)
    plain = [np.arange(o) * n // o for n, o in zip(shape[1:3], size)]
    indices = [_nearest(n, o, align, half) for n, o in zip(shape[1:3], size)]
    if all(np.array_equal(p, i) for p, i in zip(plain, indices)):
        attrs = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
        sizes = b.constant("sizes", out, np.int64)
        b.onnx("Resize", [source, "", "", sizes], attrs, b.result(out, PLANES))
        return
    rows = b.onnx("Gather", [source, b.constant("rows", indices[0])], {"axis": 2})
    b.onnx("Gather", [rows, b.constant("columns", indices[1])], {"axis": 3}, b.result(out, PLANES))
