"""ADD, SUB, MUL, pools, means and moves of 16-bit activations, by LiteRT's reference kernels, and QUANTIZE."""

from __future__ import annotations

import math

import numpy as np

from tilewright.compiler.graph.ops.wide import HIGHEST, LOWEST
from tilewright.compiler.importer.tflite import movement
from tilewright.compiler.importer.tflite.builder import FILE, PLANES, TfliteBuilder
from tilewright.compiler.importer.tflite.convolution import pool_windows
from tilewright.compiler.importer.tflite.elementwise import operands
from tilewright.compiler.importer.tflite.fixed_point import Integers
from tilewright.compiler.importer.tflite.handlers import HANDLERS, PLAIN, WIDE, handles
from tilewright.compiler.importer.tflite.reduction import axes_of
from tilewright.compiler.importer.tflite.schema import FileOp
from tilewright.compiler.importer.tflite.tables import dequantize
from tilewright.compiler.importer.tflite.wide import clamp, scaled
from tilewright.compiler.onnx.onnx_ops import elem_type
from tilewright.isa.numerics import litert_multiplier

_INT16, _FLOAT64 = np.dtype(np.int16), np.dtype(np.float64)
#: ADD and SUB: bits by which operands are shifted left first.
_SPARE = 15


def finish(b: TfliteBuilder, value: str, form: str, low: int = LOWEST, high: int = HIGHEST) -> None:
    """Makes the op's 16-bit output of integers of 64 bits."""
    result = b.result(b.graph.tensor(value).shape, form)
    b.onnx("Cast", [Integers(b).clamped(value, low, high)], {"to": elem_type(_INT16)}, result)


# --- moves: the integers stay as they are ---

#: Operators that only move elements, beside CONCATENATION.
MOVES = (
    "RESHAPE", "SQUEEZE", "EXPAND_DIMS", "TRANSPOSE", "PAD", "PADV2", "MIRROR_PAD", "SLICE", "STRIDED_SLICE", "SPLIT",
    "SPLIT_V", "PACK", "UNPACK", "GATHER", "GATHER_ND", "TILE", "REVERSE_V2", "SPACE_TO_BATCH_ND", "BATCH_TO_SPACE_ND",
)  # fmt: skip


@handles(*MOVES, table=WIDE)
def moved(b: TfliteBuilder, op: FileOp) -> None:
    _check_moved(b)
    (HANDLERS.get(op.name) or PLAIN[op.name])(b, op)


@handles("CONCATENATION", table=WIDE)
def concatenation(b: TfliteBuilder, op: FileOp) -> None:
    """Imports CONCATENATION; LiteRT requires one scale in all parts and the result, of 16 bits as of 8."""
    _check_moved(b)
    movement.concatenation(b, op)


def _check_moved(b: TfliteBuilder) -> None:
    """Raises UnsupportedError unless outputs are 16-bit activations, or nothing has a scale above 0: plain integers."""
    tensors = [b.model.tensors[i] for i in (*b.op.inputs, *b.op.outputs) if i >= 0]
    if any(b.is_steps(t) for t in tensors):
        for k in range(len(b.op.outputs)):
            b.wide_scale(b.target(k))


@handles("DEQUANTIZE", table=WIDE)
def real_values(b: TfliteBuilder, op: FileOp) -> None:
    b.wide_scale(b.source(0))
    dequantize(b, op)


# --- arithmetic ---


@handles("ADD", "SUB", table=WIDE)
def add(b: TfliteBuilder, op: FileOp) -> None:
    """Imports ADD and SUB: operands in steps of twice the larger scale and 15 bits finer, then the result's steps."""
    sa, sb, sy = (float(b.wide_scale(t)) for t in (b.source(0), b.source(1), b.target()))
    names, form = wide_operands(b)
    low, high = clamp(b)
    ints = Integers(b)
    x, y = (ints.of(name) for name in names)
    powers = [_power_of_two(s) for s in (sa, sb, sy)]
    if op.option("PotScaleInt16", True) and None not in powers:
        if b.shape(0) != b.shape(1):
            raise b.refuse("scales that are powers of two: the operands must have one shape, as LiteRT asks for")
        finish(b, _by_powers(b, ints, x, y, [p for p in powers if p is not None]), form, low, high)
        return
    largest = 2 * max(sa, sb)
    last = largest / ((1 << _SPARE) * sy)
    if last >= 1:
        raise b.refuse("the scale of an operand is 2^14 times that of the result or more")
    x, y = (
        scaled(b, ints.mul(v, 1 << _SPARE), 1 << 30, *litert_multiplier(s / largest)) for v, s in ((x, sa), (y, sb))
    )
    total = ints.add(x, y) if op.name == "ADD" else ints.sub(x, y)
    finish(b, scaled(b, total, 1 << 30, *litert_multiplier(last)), form, low, high)


def wide_operands(b: TfliteBuilder) -> tuple[list[str], str]:
    """Both inputs in one form in which they broadcast, and that form. Raises CompileError where they do not."""
    shapes = b.shape(0), b.shape(1)
    try:
        rank = len(np.broadcast_shapes(*shapes))
    except ValueError:
        raise b.damaged(f"shapes {list(shapes[0])} and {list(shapes[1])}") from None
    return operands(b, rank)


def _power_of_two(scale: float) -> int | None:
    """The exponent of a scale that is a power of two, within LiteRT's tolerance; None for others."""
    exact = math.log2(scale)
    return round(exact) if abs(exact - round(exact)) < 1e-3 else None


def _by_powers(b: TfliteBuilder, ints: Integers, x: str, y: str, powers: list[int]) -> str:
    """Emits the old form for LSTMs: one operand has the result's scale, the other is shifted right to it."""
    shifts = [powers[2] - p for p in powers[:2]]
    if min(shifts) < 0 or max(shifts) > 15 or 0 not in shifts:
        raise b.refuse("scales that are powers of two: one operand must have that of the result, and none a larger one")
    x, y = (ints.rounded_right(v, s) for v, s in zip((x, y), shifts))
    return ints.add(x, y) if b.op.name == "ADD" else ints.sub(x, y)


@handles("MUL", table=WIDE)
def multiply(b: TfliteBuilder, op: FileOp) -> None:
    sa, sb, sy = (b.wide_scale(t) for t in (b.source(0), b.source(1), b.target()))
    names, form = wide_operands(b)
    ints = Integers(b)
    product = ints.mul(*(ints.of(name) for name in names))
    finish(b, scaled(b, product, 1 << 30, *litert_multiplier(float(sa * sb / sy))), form, *clamp(b))


@handles("MAXIMUM", "MINIMUM", table=WIDE)
def extremum(b: TfliteBuilder, op: FileOp) -> None:
    """Imports the extremum of the stored integers; LiteRT demands that all tensors have one scale."""
    one_scale(b, 0, 1)
    names, form = wide_operands(b)
    made = b.onnx("Max" if op.name == "MAXIMUM" else "Min", names)
    b.onnx("Identity", [made], output=b.result(b.graph.tensor(made).shape, form))


def one_scale(b: TfliteBuilder, *ks: int) -> None:
    """Raises UnsupportedError unless inputs `ks` and the output have one scale."""
    scales = {float(b.wide_scale(t)) for t in (*(b.source(k) for k in ks), b.target())}
    if len(scales) > 1:
        raise b.refuse(f"scales {sorted(scales)}: operands and result must have the same")


# --- pools and means ---


@handles("AVERAGE_POOL_2D", "MAX_POOL_2D", table=WIDE)
def pool(b: TfliteBuilder, op: FileOp) -> None:
    """Imports pools in float64, which is exact for 16-bit sums and maxima; averages round ties away from zero."""
    one_scale(b, 0)
    kernel, strides, pads, _ = pool_windows(b)
    attrs = {"kernel_shape": kernel, "strides": strides, "pads": pads}
    real = b.onnx("Cast", [b.value(0, PLANES)], {"to": elem_type(_FLOAT64)})
    if op.name == "MAX_POOL_2D":
        made = b.onnx("MaxPool", [real], attrs)
    else:
        made = half_away(b, b.onnx("AveragePool", [real], {**attrs, "count_include_pad": 0}))
    finish(b, Integers(b).of(made), PLANES, *clamp(b))


def half_away(b: TfliteBuilder, value: str) -> str:
    """Rounds float64 to nearest, ties away from zero: exact below 2^51, like the half added to a magnitude."""
    raised = b.onnx("Add", [b.onnx("Abs", [value]), b.constant("half", 0.5, np.float64)])
    return b.onnx("Mul", [b.onnx("Sign", [value]), b.onnx("Floor", [raised])])


@handles("MEAN", table=WIDE)
def mean(b: TfliteBuilder, op: FileOp) -> None:
    """Imports MEAN: the sum in 32 bits, times a multiplier that is divided by the number of elements."""
    sx, sy = (float(b.wide_scale(t)) for t in (b.source(0), b.target()))
    axes, keep = axes_of(b, 1), int(bool(op.option("KeepDims", False)))
    n = math.prod(b.shape(0)[a] for a in axes)
    if not 0 < n < 1 << 16:
        raise b.refuse(f"a mean of {n} elements; 1 to 65535 are accepted")
    multiplier, shift = litert_multiplier(sx / sy)
    more = min(n.bit_length() - 1, 32, 31 + shift)
    ints = Integers(b)
    x = ints.of(b.value(0, FILE))
    if axes:
        x = b.onnx("ReduceSum", [x, b.constant("axes", axes, np.int64)], {"keepdims": keep})
    finish(b, scaled(b, x, n << 15, (multiplier << more) // n, shift - more), FILE)


# --- QUANTIZE ---


@handles("QUANTIZE", table=WIDE)
def quantize(b: TfliteBuilder, op: FileOp) -> None:
    """Imports QUANTIZE of 16 and 8 bits by a 31-bit multiplier; floats are divided, ties rounded away from zero."""
    x, y = b.source(0), b.target()
    form = b.layout(0)
    sy, zy = (b.wide_scale(y), 0) if y.dtype == _INT16 else (b.byte_quant(y).scale, int(b.byte_quant(y).zero_point))
    assert y.dtype is not None
    info = np.iinfo(y.dtype)
    ints = Integers(b)
    if x.dtype == np.float32:
        steps = b.onnx("Div", [b.value(0, form), b.constant("scale", sy, np.float32)])
        value = half_away(b, b.onnx("Cast", [steps], {"to": elem_type(_FLOAT64)}))
        bound = [b.constant("bound", v, np.float64) for v in (info.min, info.max)]
        value = ints.of(b.onnx("Clip", [value, *bound]))
    else:
        sx, zx = (b.wide_scale(x), 0) if x.dtype == _INT16 else (b.byte_quant(x).scale, int(b.byte_quant(x).zero_point))
        value = ints.of(b.value(0, form))
        value = ints.sub(value, zx) if zx else value
        most = 1 << 15 if x.dtype == _INT16 else 255
        value = scaled(b, value, most, *litert_multiplier(float(sx) / float(sy)))
        value = ints.clamped(ints.add(value, zy) if zy else value, int(info.min), int(info.max))
    b.onnx("Cast", [value], {"to": elem_type(y.dtype)}, b.result(b.graph.tensor(value).shape, form))
