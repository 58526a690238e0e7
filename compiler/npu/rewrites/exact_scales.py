"""Scales of weights with which the requantiser, which rounds a product once, gives the bytes of a model's floats."""

from __future__ import annotations

import numpy as np

from tilewright.compiler.graph.graph import Tensor
from tilewright.compiler.graph.quantization import limits
from tilewright.isa import numerics

#: Number of neighbouring float32 values that are tried as a scale.
_NEIGHBOURS = 64


def exact_scales(
    sums: np.ndarray,
    wanted: np.ndarray,
    steps: tuple[np.ndarray, np.ndarray],
    zero: int,
    dtype: np.dtype,
    factors: np.ndarray,
) -> np.ndarray | None:
    """Returns scales of weights near `factors` with which sums become the wanted values, float32 [channels], or None.

    Args:
        sums: int [N], of products with weights.
        wanted: int [N, channels], of the result's type.
        steps: scales of operand and result.
        zero, dtype: zero point and type of the result.
        factors: float32 [channels].
    """
    lowest, (low, high) = limits(dtype)[0] + 128, limits(np.dtype(np.int8))
    found, open_ = factors.copy(), np.full(len(factors), True)
    for step in sorted(range(-_NEIGHBOURS, _NEIGHBOURS + 1), key=abs):
        tried = (factors.view(np.int32) + step).view(np.float32)
        scale = numerics.scale_bits(numerics.product_scale(steps[0], tried, steps[1]).astype(np.float32))
        got = numerics.requantize(sums[:, None], scale, zero - lowest, low, high).astype(np.int64) + lowest
        fits = open_ & (got == wanted).all(axis=0)
        found[fits], open_ = tried[fits], open_ & ~fits
        if not open_.any():
            return found
    return None


def weight_of_table(table: bytes | None, x: Tensor, y: Tensor) -> tuple[int, np.float32] | None:
    """Returns the weight, 1 or -1, and its scale with which a product gives the bytes of a table; None without any.

    Args:
        table: bytes of y by those of x, as in QConcat; None for the same byte.
    """
    assert x.quant is not None and y.quant is not None
    every = np.arange(256, dtype=np.uint8)
    wanted = (every if table is None else np.frombuffer(table, np.uint8)).view(y.dtype).astype(np.int64)
    centred = every.view(x.dtype).astype(np.int64) - int(x.quant.zero_point)
    sign = 1 if wanted[centred.argmin()] <= wanted[centred.argmax()] else -1
    steps, zero = (x.quant.scale, y.quant.scale), int(y.quant.zero_point)
    found = exact_scales(sign * centred, wanted[:, None], steps, zero, y.dtype, np.ones(1, np.float32))
    return None if found is None else (sign, found[0])
