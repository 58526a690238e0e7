"""Tensors and buffers as the NPU has them: in blocks of lanes."""

from __future__ import annotations

import math
from enum import Enum

import numpy as np
from msgspec import Struct

from tilewright.compiler.npu.views import View
from tilewright.isa.program import Layout

_INT8 = np.dtype(np.int8)


class Blocked(Struct, frozen=True):
    """A tensor in blocked form: its layout, and the view of its bytes.

    Attributes:
        alias: True if the bytes are another tensor's, which this one reads with another shape.
    """

    layout: Layout
    view: View
    alias: bool = False


class Contents(Enum):
    """The kind of values a buffer in the arena holds."""

    TENSOR = "tensor"
    PACKED_INPUT = "packed input"  # kernel columns and rows are channels, see `packing.py`
    WEIGHT_TILES = "weight tiles"  # the second operand of a product of two activations
    PRODUCT_PARAMS = "product parameters"  # bias and scale of such a product
    PARTIAL = "partial"  # a value between two layers of one node


class BlockedBuffer(Struct, frozen=True):
    """A buffer in the arena that the NPU reads or writes.

    Attributes:
        name: name in the program.
        tensor: name of the model tensor whose values it holds.
        contents: the form in which it holds them.
        layout: layout of `TENSOR` and `PACKED_INPUT`, None for the others.
        shape, dtype: shape and type of the buffer itself.
        overread: bytes behind the last one that are loaded along with it, whatever they contain.
    """

    name: str
    tensor: str
    contents: Contents
    shape: tuple[int, ...]
    layout: Layout | None = None
    dtype: np.dtype = _INT8
    overread: int = 0

    @property
    def nbytes(self) -> int:
        """The bytes of the contents."""
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def allocated(self) -> int:
        """The bytes to allocate: those of the contents and those that are loaded along behind them."""
        return self.nbytes + self.overread

    def __str__(self) -> str:
        what = self.contents.value if self.layout is None else f"{self.contents.value}, {self.layout}"
        return f"{self.name} {self.dtype}{list(self.shape)}: {self.tensor} ({what})"
