"""The values of a graph: shape, type and affine quantisation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
from msgspec import Struct

EIGHT_BIT = (np.dtype(np.int8), np.dtype(np.uint8))
"""Types of quantised activations."""

NARROW = tuple(np.dtype(t) for t in (ml_dtypes.int4, ml_dtypes.uint4, ml_dtypes.int2, ml_dtypes.uint2))
"""Types that only weights have."""


class Quant(Struct, frozen=True):
    """Affine quantisation: real = scale * (q - zero_point).

    Attributes:
        scale: float32, shape () per tensor or [C] per channel along `axis`.
        zero_point: int32, same shape as `scale`.
        axis: channel axis, or None per tensor.
    """

    scale: np.ndarray
    zero_point: np.ndarray
    axis: int | None = None

    @staticmethod
    def of(scale: Any, zero_point: Any = 0, axis: int | None = None) -> Quant:
        s = np.asarray(scale, np.float32)
        z = np.broadcast_to(np.asarray(zero_point).astype(np.int32), s.shape).copy()
        return Quant(s, z, axis if s.ndim else None)

    @property
    def per_tensor(self) -> bool:
        return self.scale.ndim == 0

    def along(self, rank: int) -> Quant:
        """The quantisation with scales and zero points that broadcast against a tensor of that rank."""
        if self.axis is None:
            return self
        shape = [-1 if axis == self.axis else 1 for axis in range(rank)]
        return Quant(self.scale.reshape(shape), self.zero_point.reshape(shape), self.axis)

    def same_as(self, other: Quant | None) -> bool:
        return (
            other is not None
            and self.axis == other.axis
            and np.array_equal(self.scale, other.scale)
            and np.array_equal(self.zero_point, other.zero_point)
        )


@dataclass
class Tensor:
    """A value of the graph. `shape` is concrete once `infer_shapes` has run; constants carry `data`."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype
    data: np.ndarray | None = None
    quant: Quant | None = None

    @property
    def is_const(self) -> bool:
        return self.data is not None

    @property
    def size(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize
