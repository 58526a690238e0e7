"""Boxes of tensors, and borders around them."""

from __future__ import annotations

from typing import NamedTuple


class Box(NamedTuple):
    """A box of a view: one image, channel blocks, rows and columns. Coordinates outside the tensor are padding.

    Attributes:
        n: number of the image.
        block, blocks: first channel block, and number of them.
        y0, y1: first row, and the row behind the last.
        x0, x1: first column, and the column behind the last.
    """

    n: int
    block: int
    blocks: int
    y0: int
    y1: int
    x0: int
    x1: int

    @property
    def lines(self) -> int:
        """The number of rows."""
        return self.y1 - self.y0

    @property
    def columns(self) -> int:
        """The number of columns."""
        return self.x1 - self.x0

    @property
    def vectors(self) -> int:
        """The number of vectors in all channel blocks."""
        return self.blocks * self.lines * self.columns

    def behind(self, blocks: int) -> Box:
        """Returns the same box `blocks` channel blocks further."""
        return self._replace(block=self.block + blocks)


class Border(NamedTuple):
    """Rows and columns of padding around a tensor."""

    top: int = 0
    bottom: int = 0
    left: int = 0
    right: int = 0

    def union(self, other: Border) -> Border:
        """Returns the smallest border that contains both."""
        return Border(*(max(a, b) for a, b in zip(self, other, strict=True)))
