"""Scaling in 32 bits and rounding, which operators of 16-bit activations share."""

from __future__ import annotations

import numpy as np

from tilewright.compiler.importer.tflite.builder import TfliteBuilder
from tilewright.compiler.importer.tflite.fixed_point import Integers

# LiteRT computes on with results and shifted values as int32, without a check. Where these could be 2^31 and more, what
# its kernels give has no meaning, and the model is refused.


def scaled(b: TfliteBuilder, value: str, most: int, multiplier: int, shift: int) -> str:
    """`Integers.scaled` of integers up to a magnitude of `most`. Raises UnsupportedError where the left shift leaves
    the 32 bits of LiteRT's kernels."""
    room = 31 - most.bit_length()
    if shift > room:
        raise b.refuse(
            f"the scales give a factor of {multiplier * 2.0 ** (shift - 31):g} for integers up to {most}; "
            f"below {2.0**room:g} is accepted, as LiteRT computes in 32 bits"
        )
    return Integers(b).scaled(value, multiplier, shift)


def half_away(b: TfliteBuilder, value: str) -> str:
    """Rounds float64 to nearest, ties away from zero: exact below 2^51, like the half added to a magnitude."""
    raised = b.onnx("Add", [b.onnx("Abs", [value]), b.constant("half", 0.5, np.float64)])
    return b.onnx("Mul", [b.onnx("Sign", [value]), b.onnx("Floor", [raised])])


def quantize_floats(b: TfliteBuilder, value: str, form: str) -> None:
    """Emits the output of QUANTIZE of floats to 8 or 16 bits: divided by the scale, ties rounded away from zero."""
    y = b.target()
    (scale, zero), info = b.steps(y), np.iinfo(y.dtype)
    steps = b.onnx("Div", [value, b.constant("scale", scale, np.float32)])
    rounded = half_away(b, b.cast(steps, np.float64))
    if zero:
        rounded = b.onnx("Add", [rounded, b.constant("zero", zero, np.float64)])
    bounds = [b.constant("bound", v, np.float64) for v in (info.min, info.max)]
    integers = Integers(b).of(b.onnx("Clip", [rounded, *bounds]))
    b.cast(integers, y.dtype, b.result(b.graph.tensor(integers).shape, form))


def one_scale(b: TfliteBuilder, *ks: int) -> None:
    """Raises UnsupportedError unless inputs `ks` and the output have one scale."""
    scales = {float(b.wide_scale(t)) for t in (*(b.source(k) for k in ks), b.target())}
    if len(scales) > 1:
        raise b.refuse(f"scales {sorted(scales)}: operands and result must have the same")
