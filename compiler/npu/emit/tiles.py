"""Places of activations in ACT: tiles of a layer, tensors that stay, bands of tensors that pass through."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from tilewright.compiler.npu.emit.geometry import Box
from tilewright.compiler.npu.emit.scratch import Allocation, Heap
from tilewright.compiler.npu.views import View


class ActTile(NamedTuple):
    """Activation vectors in ACT. Vector (block, y, x) is row base + block*plane + y*line + x*step; a stride of 0
    repeats a vector.

    Attributes:
        rows: the allocation to free, None where the tensor stays in ACT.
    """

    base: int
    plane: int
    line: int
    step: int = 1
    rows: Allocation | None = None

    def from_vector(self, y: int, x: int) -> ActTile:
        """The tile as it is walked from row y and column x on."""
        return ActTile(self.base + y * self.line + x * self.step, self.plane, self.line, self.step)


#: In place of an operand that a pass does not have.
NO_TILE = ActTile(0, 0, 0, 0)


@dataclass
class Resident:
    """The place of a tensor that stays in ACT, with a border of padding around each plane.

    Vector (n, block, y, x) is row rows.start + ((n*cb + block)*lines + top + y)*columns + left + x.

    Attributes:
        lines, columns: of a plane, border included.
        top, left: of the border.
    """

    rows: Allocation
    lines: int
    columns: int
    top: int
    left: int


@dataclass
class BandTile:
    """The place of the current band, all channel blocks of it, of a tensor that passes through ACT band by band.

    Attributes:
        start: first row of ACT.
        low: number of the first line; lines below 0 are padding.
        left: columns of padding before each line.
        columns: of a line, padding included.
        plane: rows from a block to the next.
    """

    start: int
    low: int
    left: int
    columns: int
    plane: int

    def row(self, block: int, y: int, x: int) -> int:
        """Row of ACT of a vector."""
        return self.start + block * self.plane + (y - self.low) * self.columns + self.left + x


#: Of a tensor that will be in ACT, as long as that is all that matters.
SOMEWHERE = BandTile(0, 0, 0, 0, 0)


class Sums(Protocol):
    """A user of the finished tiles of a tensor, such as `tilewright.compiler.npu.emit.plane_sums.PlaneSums`."""

    view: View

    def add(self, box: Box, tile: ActTile) -> None:
        """Takes over a finished tile."""

    def flush(self) -> bool:
        """Gives back the rows of tiles that wait, if there are some."""

    def move(self, pool: Heap, heap: Heap) -> None:
        """The rows of tiles that wait belong to another heap now."""
