"""Scales, zero points and integers: of activations by their ranges, of weights and biases."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from tilewright.compiler.npu.int8_storage import StoredType
from tilewright.compiler.npu.layers.add_constants import find_add_constants
from tilewright.quantize.recipe import Range, Weights

MAX_BIAS = 2.0**30
"""Largest bias in units of its scale: the sums of products need room beside it."""

_SILENT_BIAS = 2.0**20
"""A bias in units of its scale where there are no products: as fine as float32 needs, far from the ends of a shift."""

SMALLEST = 1e-12
"""Smallest width of a range that is not taken as 0; scales far below give products that float32 does not hold."""


_TRIES, _ROOM = 16, 0.002
"""Number of ranges tried for a sum, each wider by this share: one in a hundred has no constants."""


@dataclass(frozen=True)
class Parameters:
    """Scale and zero point of an activation."""

    scale: np.float32
    zero_point: int
    dtype: np.dtype

    def integers(self, values: np.ndarray) -> np.ndarray:
        """Quantises values of any shape."""
        limits = np.iinfo(self.dtype)
        found = np.rint(values / self.scale) + self.zero_point
        return np.asarray(np.clip(found, limits.min, limits.max), self.dtype)

    def floats(self, integers: np.ndarray) -> np.ndarray:
        """The values of integers."""
        return np.asarray((integers.astype(np.float32) - self.zero_point) * self.scale, np.float32)


def parameters(found: Range, dtype: np.dtype) -> Parameters:
    """Returns the finest quantisation that holds the range and 0: all steps used for 8 bits, symmetric for int16."""
    low, high = found.with_zero().low, found.with_zero().high
    limits = np.iinfo(dtype)
    if dtype == np.int16:
        bound = max(-low, high)
        return Parameters(np.float32(bound / limits.max if bound > SMALLEST else 1.0), 0, dtype)
    if high - low <= SMALLEST:
        return Parameters(np.float32(1.0), 0, dtype)
    scale = np.float32((high - low) / (int(limits.max) - int(limits.min)))
    zero_point = int(np.clip(np.rint(limits.min - low / float(scale)), limits.min, limits.max))
    return Parameters(scale, zero_point, dtype)


def exact_sum(found: Range, a: Parameters, b: Parameters) -> Range:
    """The least range that holds a sum and for which the machine has constants that round it as onnxruntime does.

    Args:
        found: of the sum.
        a, b: of both operands, whose type the sum has.
    """
    kinds = [_stored(x) for x in (a, b)]
    for room in range(_TRIES):
        wider = Range(found.low * (1 + room * _ROOM), found.high * (1 + room * _ROOM))
        if find_add_constants(*kinds, _stored(parameters(wider, a.dtype)), -128, 127) is not None:
            return wider
    return found


def power_of_two(found: Range) -> Range:
    """The least range that holds another and 0, and whose 8-bit scale is a power of two: see `layers.interpolates`."""
    low, high = found.with_zero().low, found.with_zero().high
    if high - low <= SMALLEST:
        return found
    step = 2.0 ** math.ceil(math.log2((high - low) / 255))
    while math.ceil(high / step) - math.floor(low / step) > 255:  # the zero point is one of the steps
        step *= 2
    room = 255 - math.ceil(high / step) + math.floor(low / step)
    first = math.floor(low / step) - (0 if low == 0 else room if high == 0 else room // 2)
    return Range(first * step, (first + 255) * step)


def _stored(found: Parameters) -> StoredType:
    return float(found.scale), found.zero_point, 128 if found.dtype == np.uint8 else 0


def nearest_weights(weights: np.ndarray, axis: int | None, limit: int = 127) -> Weights:
    """Symmetric int8 weights, each rounded to the nearest.

    Args:
        axis: one scale for each index of it; None for one scale.
        limit: greatest integer.
    """
    bound = np.abs(weights).max(axis=_others(weights, axis)).astype(np.float64)
    scale = np.where(bound > SMALLEST, bound / limit, 1.0).astype(np.float32)
    return Weights(round_weights(weights, scale, axis, limit), scale)


def hold_bias(rounded: Weights, bias: np.ndarray, x_scale: float, axis: int | None) -> Weights:
    """The weights at scales at which the biases fit 32 bits. Only channels whose bias does not fit get coarser weights;
    a channel whose weights are all 0 gets its scale from its bias.

    Args:
        bias: one per output channel.
        x_scale: of what the product reads.
        axis: of the scales, None for one scale.
    """
    assert rounded.scale is not None
    size = np.abs(bias.reshape(-1).astype(np.float64)) / x_scale
    least = np.asarray(size if axis is not None else size.max(initial=0.0)) / MAX_BIAS
    scale = np.maximum(rounded.scale, least.astype(np.float32))
    silent = ~rounded.values.any(axis=_others(rounded.values, axis)) & (least * MAX_BIAS > SMALLEST)
    scale = np.where(silent, (least * (MAX_BIAS / _SILENT_BIAS)).astype(np.float32), scale)
    if np.array_equal(scale, rounded.scale):
        return rounded
    return replace(rounded, values=round_weights(rounded.values, scale / rounded.scale, axis), scale=scale)


def _others(weights: np.ndarray, axis: int | None) -> tuple[int, ...]:
    """The axes of weights that share a scale."""
    return tuple(i for i in range(weights.ndim) if i != axis)


def round_weights(weights: np.ndarray, scale: np.ndarray, axis: int | None, limit: int = 127) -> np.ndarray:
    """Quantises weights to int8 within -limit..limit."""
    wide = scale if axis is None else scale.reshape([-1 if i == axis else 1 for i in range(weights.ndim)])
    return np.asarray(np.clip(np.rint(weights / wide), -limit, limit), np.int8)
