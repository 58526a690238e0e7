"""Values as the machine stores them: uint8 minus 128, so that everything is int8."""

from __future__ import annotations

import numpy as np

from tilewright.compiler.graph.ops.quantized_op import Clamped
from tilewright.compiler.graph.tensor import Tensor

#: Scale, zero point in the model's type, and storage offset: the machine stores uint8 minus 128 and int8 minus 0.
StoredType = tuple[float, int, int]


def stored_type(t: Tensor) -> StoredType:
    """Returns the scale, the zero point and the storage offset of a quantised tensor, as `StoredType` lists them."""
    assert t.quant is not None
    return float(t.quant.scale), int(t.quant.zero_point), 128 if t.dtype == np.uint8 else 0


def stored_zero_point(t: Tensor) -> int:
    """Returns the zero point of a tensor's values as the machine stores them, -128..127."""
    _, zero_point, shift = stored_type(t)
    return zero_point - shift


def stored_limits(t: Tensor, op: Clamped) -> tuple[int, int]:
    """Returns the (lowest, highest) value of an op's result as the machine stores it."""
    low, high = op.limits(t.dtype)
    shift = stored_type(t)[2]
    return low - shift, high - shift
