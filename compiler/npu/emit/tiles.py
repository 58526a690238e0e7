"""Places of activations in ACT: tiles of a layer, resident tensors, bands of tensors that pass through."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from msgspec import Struct

from tilewright.compiler.npu.emit.geometry import Box
from tilewright.compiler.npu.emit.scratch import Allocation, Heap
from tilewright.compiler.npu.views import View


class ActTile(NamedTuple):
    """Activation vectors in ACT.

    Vector (block, y, x) is row base + block*plane + y*line + x*step; a stride of 0 repeats a vector.

    Attributes:
        base: row of the first vector.
        plane, line, step: rows between channel blocks, rows of the plane, and columns.
        rows: the allocation to free, None where the tensor stays in ACT.
    """

    base: int
    plane: int
    line: int
    step: int = 1
    rows: Allocation | None = None

    def from_vector(self, y: int, x: int) -> ActTile:
        """Returns the tile that begins at row y and column x of this one."""
        return ActTile(self.base + y * self.line + x * self.step, self.plane, self.line, self.step)


#: A placeholder for an operand that a pass does not have.
NO_TILE = ActTile(0, 0, 0, 0)


class Resident(Struct):
    """The place of a tensor that stays in ACT, with a border of padding around each plane.

    Vector (n, block, y, x) is row rows.start + ((n*cb + block)*lines + top + y)*columns + left + x. Without a border
    that is its place in memory, where the tensor fills that: then views of other sizes find their vectors, too.

    Attributes:
        rows: the allocation.
        lines, columns: rows and columns of a plane, border included.
        top, left: rows and columns of the border before the plane.
        as_memory: True if vectors lie as in memory.
    """

    rows: Allocation
    lines: int
    columns: int
    top: int
    left: int
    as_memory: bool = False


class BandTile(Struct):
    """The place of the current band, in all channel blocks, of a tensor that passes through ACT band by band.

    Attributes:
        start: first row of ACT.
        low: number of the first line; lines below 0 are padding.
        left: columns of padding before each line.
        columns: columns of a line, padding included.
        plane: rows from a channel block to the next.
    """

    start: int
    low: int
    left: int
    columns: int
    plane: int

    def row(self, block: int, y: int, x: int) -> int:
        """Returns the ACT row of the vector in channel block `block`, line y and column x."""
        return self.start + block * self.plane + (y - self.low) * self.columns + self.left + x


#: A placeholder for the place of a tensor that will be in ACT.
SOMEWHERE = BandTile(0, 0, 0, 0, 0)


class Sums(Protocol):
    """Adds up the planes of a tensor from its finished tiles, as `PlaneSums` does."""

    view: View

    def add(self, box: Box, tile: ActTile) -> None:
        """Takes over a finished tile."""

    def flush(self) -> bool:
        """Adds up pending tiles and frees their rows; returns False if there are none."""

    def move(self, pool: Heap, heap: Heap) -> None:
        """Moves the rows of pending tiles from a pool that ends to the heap around it."""
