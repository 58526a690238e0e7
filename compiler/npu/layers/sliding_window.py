"""Sliding windows: the part of an input that a part of an output needs."""

from __future__ import annotations

from typing import NamedTuple, TypeVar

import numpy as np

from tilewright.compiler.npu.emit.geometry import Border, Box

Size = TypeVar("Size", int, np.ndarray)


class SlidingWindow(NamedTuple):
    """A window that slides over an input: each output needs the inputs under the kernel's taps.

    Attributes:
        kernel, pad, stride, dilation: (rows, columns); pad is that before the first row and column.
    """

    kernel: tuple[int, int]
    pad: tuple[int, int] = (0, 0)
    stride: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)

    def span(self, first: int, end: Size, axis: int) -> tuple[int, Size]:
        """Returns the (first, end) of the inputs along `axis` that outputs first..end-1 need, padding included."""
        low = first * self.stride[axis] - self.pad[axis]
        return low, low + (end - first - 1) * self.stride[axis] + (self.kernel[axis] - 1) * self.dilation[axis] + 1

    def extent(self, lines: Size, columns: Size) -> tuple[Size, Size]:
        """Rows and columns of the input that so many rows and columns of the output need."""
        (top, bottom), (left, right) = self.span(0, lines, 0), self.span(0, columns, 1)
        return bottom - top, right - left

    def box(self, out: Box) -> Box:
        """Returns the box of the input that a box of the output needs."""
        return Box(out.n, out.block, out.blocks, *self.span(out.y0, out.y1, 0), *self.span(out.x0, out.x1, 1))

    def taken(self, axis: int, outputs: np.ndarray, size: int) -> np.ndarray:
        """Returns the inputs along `axis` that the chosen outputs need, bool [size], without padding.

        Args:
            axis: 0 for rows, 1 for columns.
            outputs: chosen outputs, bool.
            size: number of inputs.
        """
        at = np.flatnonzero(outputs)[:, None] * self.stride[axis] - self.pad[axis]
        at = (at + np.arange(self.kernel[axis]) * self.dilation[axis]).reshape(-1)
        found = np.zeros(size, bool)
        found[at[(at >= 0) & (at < size)]] = True
        return found

    def border(self, outputs: tuple[int, int], inputs: tuple[int, int]) -> Border:
        """Returns the padding around an input of (rows, columns) `inputs` from which `outputs` are made."""
        (top, bottom), (left, right) = self.span(0, outputs[0], 0), self.span(0, outputs[1], 1)
        return Border(max(0, -top), max(0, bottom - inputs[0]), max(0, -left), max(0, right - inputs[1]))
