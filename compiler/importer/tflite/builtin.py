"""Convolutions and products that XNNPACK leaves to LiteRT's built-in kernels: their arithmetic in integers, on the CPU.

The int32 sum is scaled by a multiplier of 31 bits and rounded twice, which no float32 factor of the NPU equals."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from tilewright.compiler.importer.tflite.builder import PLANES, TfliteBuilder
from tilewright.compiler.importer.tflite.fixed_point import Integers
from tilewright.compiler.importer.tflite.schema import FileTensor
from tilewright.compiler.importer.tflite.windows import Window
from tilewright.isa.numerics import litert_multiplier

#: The factor from scales of operands to that of the result from which on XNNPACK makes no product.
LARGEST_FACTOR = 256.0
_VECTOR = 8  # channels


def names_axis(*tensors: FileTensor) -> bool:
    """True if a tensor with one scale names an axis other than 0 for it: XNNPACK does not take the operator then."""
    return any(t.quant is not None and t.quant.per_tensor and t.quant_axis != 0 for t in tensors)


def left_to_builtin(b: TfliteBuilder, x: FileTensor, w: FileTensor, scale: np.ndarray) -> bool:
    """True if XNNPACK does not take a product of `x` by weights of these scales (one, or one per channel). It refuses a
    scale that is no normal number above 0, a factor that is too large, or a tensor that names an axis (but int8 weights
    may).
    """
    y = b.target()
    with np.errstate(over="ignore"):
        factor = b.byte_quant(x).scale * scale.astype(np.float32) / b.byte_quant(y).scale
    normal = (scale >= np.finfo(np.float32).tiny) & np.isfinite(scale)
    named = names_axis(x, y, *([w] if w.dtype == np.uint8 else []))
    return named or not bool(np.all(normal & (factor < LARGEST_FACTOR)))


def check_types(b: TfliteBuilder, x: FileTensor, w: FileTensor) -> None:
    """Raises UnsupportedError for bytes of different types, which LiteRT refuses or misreads."""
    if x.dtype != w.dtype or x.dtype != b.target().dtype:
        raise b.refuse(
            f"{x.name!r} of {x.type_name}, weights {w.name!r} of {w.type_name}, result of {b.target().type_name}; "
            "one type for all is accepted"
        )


class BuiltinProduct:
    """The built-in kernels' conversion from the int32 sums of a convolution or product to bytes.

    Args:
        b: the graph's builder, at the op.
        x: activation in the file.
        scale: scales of the weights, one or one per channel.
        channels: channels of the result.
    """

    def __init__(self, b: TfliteBuilder, x: FileTensor, scale: np.ndarray, channels: int) -> None:
        self.b, self.x = b, x
        sx, sy = b.byte_quant(x).scale, np.float64(b.byte_quant(b.target()).scale)
        product = sx.astype(np.float64) * scale
        if scale.size == 1 and (x.dtype == np.uint8 or b.op.name == "FULLY_CONNECTED"):
            product = np.float64(np.float32(sx) * np.float32(scale.reshape(())))
        factors = np.broadcast_to(np.asarray(product / sy), (channels,))
        self.factors = [litert_multiplier(float(f)) for f in factors]
        # Ties of the second rounding go upwards in vector kernels, away from zero in scalar ones, which also finish the
        # channels behind the last whole vector of some.
        scalar = np.arange(channels) >= channels - channels % _VECTOR
        if b.op.name == "DEPTHWISE_CONV_2D":
            self.away = scalar | (x.dtype == np.uint8)
        else:
            self.away = scalar & (b.op.name == "TRANSPOSE_CONV")

    def convolution(self, x: str, weights: np.ndarray, zero: np.ndarray, bias: list[str], attrs: dict[str, Any]) -> str:
        """The bytes [N,O,spatial] of a convolution of `x` by int8 weights [O,C/group,spatial] with zero points."""
        inputs = [x, self.b.constant("weights", np.ascontiguousarray(weights)), *self._zero_points(zero)]
        sums = self.b.onnx("ConvInteger", inputs, attrs)
        return self._bytes(sums, weights, zero, bias, (-1, *[1] * (weights.ndim - 2)))

    def product(self, x: str, weights: np.ndarray, zero: np.ndarray, bias: list[str]) -> str:
        """The bytes [rows, N] of `x` [rows, K] by int8 weights [N, K] with zero points."""
        inputs = [x, self.b.constant("weights", np.ascontiguousarray(weights.T)), *self._zero_points(zero)]
        return self._bytes(self.b.onnx("MatMulInteger", inputs), weights, zero, bias, (-1,))

    def _zero_points(self, zero: np.ndarray) -> list[str]:
        given = self.b.byte_quant(self.x).zero_point.astype(self.x.dtype)
        return [self.b.constant("zero_point", given), self.b.constant("zero_point", zero.astype(np.int8))]

    def _bytes(self, sums: str, weights: np.ndarray, zero: np.ndarray, bias: list[str], along: tuple[int, ...]) -> str:
        b, ints = self.b, Integers(self.b)
        given = self.b.graph.const(bias[0]) if bias else None
        self._check(weights, zero, given)
        if given is not None:
            sums = b.onnx("Add", [sums, b.constant("bias", given.reshape(along), np.int32)])
        multipliers, shifts = (np.array(v, np.int64).reshape(along) for v in zip(*self.factors))
        y, t = ints.scaled(ints.of(sums), multipliers, shifts, self.away.reshape(along)), b.target()
        made = ints.clamped(ints.add(y, int(b.byte_quant(t).zero_point)), *b.clamp(builtin=True))
        made = b.cast(made, t.dtype)
        b.graph.tensor(made).quant = t.quant
        return made

    def _check(self, weights: np.ndarray, zero: np.ndarray, bias: np.ndarray | None) -> None:
        """Raises UnsupportedError where a sum shifted left leaves the 32 bits of LiteRT's kernels."""
        info = np.iinfo(self.x.dtype)
        at = int(self.b.byte_quant(self.x).zero_point)
        rows = weights.astype(np.int64) - zero.astype(np.int64).reshape(-1, *[1] * (weights.ndim - 1))
        most = np.abs(rows).reshape(len(rows), -1).sum(axis=1) * max(info.max - at, at - info.min)
        most = most if bias is None else most + np.abs(bias.astype(np.int64))
        for channel, ((multiplier, shift), value) in enumerate(zip(self.factors, most.tolist())):
            room = 31 - int(value).bit_length()
            if multiplier and value and shift > room:
                factor = multiplier * 2.0 ** (shift - 31)
                raise self.b.refuse(
                    f"the scales of channel {channel} give a factor of {factor:g} for sums up to {value}; "
                    f"below {2.0**room:g} is accepted, as LiteRT computes in 32 bits"
                )


def as_convolution(b: TfliteBuilder, window: Window, data: np.ndarray) -> tuple[Window, str, np.ndarray]:
    """A transposed convolution by weights [O,kh,kw,C] as a convolution: its window, planes [N,C,H,W] with
    `strides - 1` zero points between their elements, and flipped weights [O,C,kh,kw].
    """
    kernel, pads = window.kernel, window.pads
    around = [k - 1 - p + more for k, p, more in zip((*kernel, *kernel), pads, (0, 0, *window.extra))]
    if min(around) < 0:
        raise b.refuse(f"pads {pads} beyond the kernel {kernel}")
    planes, turned = _spread(b, window), data[:, ::-1, ::-1].transpose(0, 3, 1, 2)
    return replace(window, strides=[1, 1], pads=around), planes, turned


def _spread(b: TfliteBuilder, window: Window) -> str:
    x, t, (sh, sw) = b.value(window.x, PLANES), b.source(window.x), window.strides
    n, c, h, w = b.graph.tensor(x).shape
    zero = b.constant("zero_point", b.steps(t)[1], t.dtype)
    shape = lambda *sizes: b.constant("shape", sizes, np.int64)
    if (sh, sw) == (1, 1):
        return x
    apart = b.moved("Reshape", [x, shape(n, c, h, 1, w, 1)], {"allowzero": 1})
    padded = b.moved("Pad", [apart, shape(*[0] * 9, sh - 1, 0, sw - 1), zero])
    whole = b.moved("Reshape", [padded, shape(n, c, h * sh, w * sw)], {"allowzero": 1})
    ends = shape((h - 1) * sh + 1, (w - 1) * sw + 1)
    return b.moved("Slice", [whole, shape(0, 0), ends, shape(2, 3), shape(1, 1)])
