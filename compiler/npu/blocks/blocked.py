"""Tensors and buffers as the NPU has them: in blocks of lanes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum

import numpy as np

from tilewright.compiler.npu.views import View
from tilewright.isa.program import Layout

_INT8 = np.dtype(np.int8)


@dataclass(frozen=True)
class Blocked:
    """A tensor in blocked form: in which layout, and where its bytes lie.

    Attributes:
        alias: the bytes are another tensor's, which this one reads with another shape.
    """

    layout: Layout
    view: View
    alias: bool = False


class Contents(Enum):
    """The kind of values a buffer in the arena holds."""

    TENSOR = "tensor"
    PACKED_INPUT = "packed input"  # kernel columns and rows are channels, see `packing.py`
    WEIGHT_TILES = "weight tiles"  # of a product of two activations
    PRODUCT_PARAMS = "product parameters"  # bias and scale of such a product
    PARTIAL = "partial"  # between two layers of one node


@dataclass(frozen=True)
class BlockedBuffer:
    """A buffer in the arena that the NPU reads or writes.

    Attributes:
        name: as in the program.
        tensor: of the model, whose values it holds in one form or another.
        layout: of `TENSOR` and `PACKED_INPUT`, None for the others.
        shape, dtype: of the buffer itself.
        behind: bytes after the last one that are read along with it, whatever they are.
    """

    name: str
    tensor: str
    contents: Contents
    shape: tuple[int, ...]
    layout: Layout | None = None
    dtype: np.dtype = _INT8
    behind: int = 0

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def room(self) -> int:
        """Bytes in memory, with those that are read behind it."""
        return self.nbytes + self.behind

    def __str__(self) -> str:
        what = self.contents.value if self.layout is None else f"{self.contents.value}, {self.layout}"
        return f"{self.name} {self.dtype}{list(self.shape)}: {self.tensor} ({what})"
