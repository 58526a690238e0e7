"""The float32 rules of conversion between reals and stored integers, and the types of activations.

quantize(x)   = sat(RNE(f32(x / s)) + z)            s, x float32
dequantize(q) = f32(f32(q - z) * s)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tilewright.compiler.graph.tensor import EIGHT_BIT, Quant, Tensor
from tilewright.compiler.limits import MAX_SCALE
from tilewright.isa import numerics

#: Attribute of a DequantizeLinear that the model gives no zero point: onnxruntime makes no integer Gemm of it.
NO_ZERO_POINT = "no_zero_point"

#: Attribute of a QuantizeLinear that is a TFLite file's QUANTIZE of floats. LiteRT multiplies by a reciprocal there
#: (`quantize_as_litert`), and computes ops before it in floats: rules by which onnxruntime fuses them do not hold.
AS_LITERT = "as_litert"

#: Values that are quantised at once: more are slower, as they are no longer in the processor's cache.
_PIECE = 1 << 16


def ordinary(quant: Quant, signed: bool = False) -> bool:
    """True if ratios and products with this scale are finite: a float32 can hold 3e38, but not its square.

    Args:
        signed: a negative scale is accepted too, with which dequantising reverses the order of integers.
    """
    scale = np.abs(quant.scale) if signed else quant.scale
    return bool(np.all((scale >= 1 / MAX_SCALE) & (scale <= MAX_SCALE)))


def bias_scale(step: np.ndarray) -> np.ndarray:
    """The scale that describes an int32 bias of sums with the step `f32(sx * sw)`: the step, or the least normal
    float32 of its sign where two tiny scales underflow. The integers count then."""
    return np.asarray(np.copysign(np.maximum(np.abs(step), np.finfo(np.float32).tiny), step))


def is_activation(tensor: Tensor | None) -> bool:
    """True for an 8-bit tensor with one scale."""
    return tensor is not None and tensor.dtype in EIGHT_BIT and tensor.quant is not None and tensor.quant.per_tensor


def limits(dtype: np.dtype) -> tuple[int, int]:
    info = np.iinfo(dtype)
    return int(info.min), int(info.max)


def quantize(x: Any, quant: Quant, dtype: np.dtype) -> np.ndarray:
    """Quantises float32 to 8 bits, per tensor. NaN becomes the lower limit, as in x86's saturating conversion."""
    values = np.asarray(x, np.float32)
    found = np.empty(values.size, dtype)
    flat, zero_point = values.reshape(-1), int(quant.zero_point)
    with np.errstate(all="ignore"):
        for at in range(0, len(flat), _PIECE):
            piece = flat[at : at + _PIECE]
            known = np.where(np.isnan(piece), np.float32(-np.inf), piece)
            found[at : at + _PIECE] = numerics.quantize(known, quant.scale, zero_point, dtype)
    return found.reshape(values.shape)


def quantize_as_litert(x: Any, quant: Quant, dtype: np.dtype) -> np.ndarray:
    """Quantises float32 to 8 bits, per tensor, as LiteRT does: sat(RNE(f32(x * f32(1 / s))) + z). NaN becomes the upper
    limit.
    """
    low, high = limits(dtype)
    with np.errstate(all="ignore"):
        steps = np.rint(np.asarray(x, np.float32) * (np.float32(1) / np.float32(quant.scale))) + int(quant.zero_point)
        return np.clip(np.where(np.isnan(steps), high, steps), low, high).astype(dtype)


def quantize_by(attrs: Mapping[str, Any], x: Any, quant: Quant, dtype: np.dtype) -> np.ndarray:
    """Quantises by the rule of a QuantizeLinear with these attributes."""
    return (quantize_as_litert if attrs.get(AS_LITERT) else quantize)(x, quant, dtype)


def dequantize(q: np.ndarray, quant: Quant) -> np.ndarray:
    """Dequantises integers to float32; scales per channel in the form of `Quant.along`."""
    with np.errstate(over="ignore"):
        return np.asarray(numerics.dequantize(q, quant.scale, quant.zero_point), np.float32)


def requantize_table(source: Quant, source_dtype: np.dtype, target: Quant, target_dtype: np.dtype) -> np.ndarray:
    """The table uint8[256] of the target's byte for each byte of the source, by dequantise then quantise."""
    every = np.arange(256, dtype=np.uint8).view(source_dtype)
    return quantize(dequantize(every, source), target, target_dtype).view(np.uint8)
