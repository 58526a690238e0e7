"""Rooms: the rows of ACT that tiles take, with the vectors that were written and the loads that are still to come."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilewright.compiler.npu.emit.scratch import Allocation
from tilewright.compiler.npu.emit.tiles import ActTile


@dataclass(frozen=True)
class Origin:
    """The part of a tensor that a tile with padding came from, as far as products can make use of it.

    Attributes:
        size: rows and columns of the tensor.
        at: row and column of the tensor at which the tile begins.
        fill: value of padding.
    """

    size: tuple[int, int]
    at: tuple[int, int]
    fill: int


@dataclass(eq=False)
class Room:
    """Rows of ACT that hold a tile, or the place of a tensor's part that stays in ACT.

    Attributes:
        tile: the place, from the first vector on.
        written: vectors that hold values, bool [blocks, rows, columns].
        span: first row of ACT and the one behind the last.
        buffer: buffer of the tensor whose part it is, "" for rows of a tile's own.
        loads: loads of some blocks that are still to be written, in their order.
    """

    tile: ActTile
    written: np.ndarray
    span: tuple[int, int]
    origin: Origin | None = None
    buffer: str = ""
    loads: list[tuple[range, Callable[[], None]]] = field(default_factory=list)
    _free: Any = field(default=None, repr=False)

    @staticmethod
    def of(allocation: Allocation, size: tuple[int, int, int]) -> Room:
        """Returns a room for a tile of `size` (blocks, rows, columns), whose rows are freed when nobody has it."""
        blocks, rows, columns = size
        tile = ActTile(allocation.start, rows * columns, columns, 1)
        span = allocation.start, allocation.start + allocation.size
        made = Room(tile, np.zeros((blocks, rows, columns), bool), span)
        made._free = weakref.finalize(made, allocation.free)
        return made

    @property
    def rows(self) -> int:
        """The rows of ACT from the first to the last."""
        return self.span[1] - self.span[0]

    def free(self) -> None:
        """Frees the rows, if that was not done."""
        if self._free is not None:
            self._free()

    def settle(self, blocks: range | None = None) -> None:
        """Writes the loads of some blocks that are still to come, None for all of them."""
        now = [load for load in self.loads if blocks is None or set(blocks) & set(load[0])]
        self.loads = [load for load in self.loads if load not in now]
        for _, write in now:
            write()

    def overlaps(self, other: Room) -> bool:
        """Returns True if both have rows of ACT in common.

        Only one room, or parts of one tensor, can: where a kernel is tried, tensors have no rows yet.
        """
        same = self is other or (self.buffer == other.buffer != "")
        return same and self.span[0] < other.span[1] and other.span[0] < self.span[1]

    @staticmethod
    def in_act(tile: ActTile, size: tuple[int, int, int], buffer: str) -> Room:
        """Returns the room of a part of the tensor in `buffer` that stays in ACT, where it is."""
        blocks, rows, columns = size
        last = tile.base + (blocks - 1) * tile.plane + (rows - 1) * tile.line + (columns - 1) * tile.step
        return Room(tile, np.ones(size, bool), (tile.base, last + 1), buffer=buffer)
