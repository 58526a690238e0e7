"""ADD, SUB and MUL of 16-bit activations, by LiteRT's reference kernels, and QUANTIZE."""

from __future__ import annotations

import math

import numpy as np

from tilewright.compiler.importer.tflite.builder import TfliteBuilder
from tilewright.compiler.importer.tflite.elementwise import operands
from tilewright.compiler.importer.tflite.fixed_point import Integers
from tilewright.compiler.importer.tflite.handlers import WIDE, handles
from tilewright.compiler.importer.tflite.schema import FileOp
from tilewright.compiler.importer.tflite.wide import quantize_floats, scaled
from tilewright.isa.numerics import litert_multiplier

#: ADD and SUB: bits by which operands are shifted left first.
_SPARE = 15


@handles("ADD", "SUB", table=WIDE)
def add(b: TfliteBuilder, op: FileOp) -> None:
    """Imports ADD and SUB: operands in steps of twice the larger scale and 15 bits finer, then the result's steps."""
    sa, sb, sy = (float(b.wide_scale(t)) for t in (b.source(0), b.source(1), b.target()))
    names, form = operands(b)
    low, high = b.clamp()
    ints = Integers(b)
    x, y = (ints.of(name) for name in names)
    powers = [_power_of_two(s) for s in (sa, sb, sy)]
    if op.option("PotScaleInt16", True) and None not in powers:
        if b.shape(0) != b.shape(1):
            raise b.refuse("scales that are powers of two: the operands must have one shape, as LiteRT asks for")
        ints.finish(_by_powers(b, ints, x, y, [p for p in powers if p is not None]), form, low, high)
        return
    largest = 2 * max(sa, sb)
    last = largest / ((1 << _SPARE) * sy)
    if last >= 1:
        raise b.refuse("the scale of an operand is 2^14 times that of the result or more")
    x, y = (
        scaled(b, ints.mul(v, 1 << _SPARE), 1 << 30, *litert_multiplier(s / largest)) for v, s in ((x, sa), (y, sb))
    )
    total = ints.add(x, y) if op.name == "ADD" else ints.sub(x, y)
    ints.finish(scaled(b, total, 1 << 30, *litert_multiplier(last)), form, low, high)


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
    names, form = operands(b)
    ints = Integers(b)
    product = ints.mul(*(ints.of(name) for name in names))
    ints.finish(scaled(b, product, 1 << 30, *litert_multiplier(float(sa * sb / sy))), form, *b.clamp())


@handles("QUANTIZE", table=WIDE)
def quantize(b: TfliteBuilder, op: FileOp) -> None:
    """Imports QUANTIZE of 16 and 8 bits by a 31-bit multiplier; floats are divided, ties rounded away from zero."""
    x, y = b.source(0), b.target()
    form, ints = b.layout(0), Integers(b)
    if x.dtype == np.float32:
        quantize_floats(b, b.value(0, form), form)
        return
    (sy, zy), info = b.steps(y), np.iinfo(y.dtype)
    sx, zx = b.steps(x)
    value = ints.of(b.value(0, form))
    value = ints.sub(value, zx) if zx else value
    most = 1 << 15 if x.dtype == np.int16 else 255
    value = scaled(b, value, most, *litert_multiplier(float(sx) / float(sy)))
    value = ints.clamped(ints.add(value, zy) if zy else value, int(info.min), int(info.max))
    b.cast(value, y.dtype, b.result(b.graph.tensor(value).shape, form))
