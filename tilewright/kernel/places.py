"""Places of a kernel: tensors in DRAM and tiles in ACT, the rows they take, and the vectors that were written."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace

from tilewright.compiler.npu.emit.geometry import Box
from tilewright.compiler.npu.emit.tiles import ActTile
from tilewright.compiler.npu.views import View
from tilewright.kernel.errors import KernelError, Line, call
from tilewright.kernel.rooms import Origin, Room

if TYPE_CHECKING:
    from tilewright.compiler.npu.emit.context import Context

#: The axes along which parts are taken, in the order of all shapes here.
AXES = ("blocks", "rows", "columns")
Range = range | slice | int | None
Ranges = tuple[range, range, range]


def as_range(what: str, axis: str, wanted: Range, size: int, beyond: bool = False, steps: bool = False) -> range:
    """Returns positions along an axis as a range.

    Args:
        what: text for messages.
        axis: name of the axis.
        wanted: range, slice or single position; None for the whole axis.
        size: positions of the axis.
        beyond: True if positions outside the axis are padding.
        steps: True if the step may be more than 1.

    Raises:
        KernelError: the range is empty, has another step, or leaves the axis.
    """
    if wanted is None:
        return range(size)
    if isinstance(wanted, slice):
        wanted = range(wanted.start or 0, size if wanted.stop is None else wanted.stop, wanted.step or 1)
    found = wanted if isinstance(wanted, range) else range(int(wanted), int(wanted) + 1)
    if found.step < 1 or (found.step > 1 and not steps) or len(found) == 0:
        least = "1 or more" if steps else "1"
        raise KernelError(f"{what}: {axis} must be a range of one or more with step {least}, not {wanted}")
    if not beyond and (found.start < 0 or found[-1] >= size):
        raise KernelError(
            f"{what}: {axis} {found.start}..{found[-1]} lie outside the {size} there are"
            + (" (load pads with pad=VALUE)" if axis != "blocks" else "")
        )
    return found


class Tensor:
    """A tensor in DRAM: int8 [N, C, H, W], or a matrix int8 [rows, channels].

    The channels lie in blocks of as many as the machine has lanes (`Chip.lanes`).

    Args:
        view: its place as the compiler has it. The rows of a matrix are the columns of its view.

    Attributes:
        name: name, for messages.
        shape: shape as numpy has it.
        is_matrix: True for [rows, channels].
        memory: its place in DRAM with rows and columns as the kernel has them.
        line: the user's line that made it; None for arguments.
        border: value of the padding that lies around it where it stays in ACT; None where nothing is known of it.
        written: the vectors that hold values, bool [images, blocks, rows, columns].
        version: number of stores so far.
        loaded: rooms that parts of it go to by loads that may still be to be written.
    """

    def __init__(
        self,
        name: str,
        shape: Sequence[int],
        view: View,
        *,
        line: Line | None,
        written: bool,
        border: int | None = None,
    ) -> None:
        self.border, self.version = border, 0
        self.loaded: list[weakref.ref[Room]] = []
        self.name, self.shape, self.view, self.line = name, tuple(shape), view, line
        self.is_matrix = len(self.shape) == 2
        self.memory = replace(view, h=view.w, w=1, sh=view.block) if self.is_matrix else view
        self.written = np.full((view.n, view.cb, self.rows, self.columns), written)

    def __repr__(self) -> str:
        return f"{self.name} {list(self.shape)}"

    @property
    def images(self) -> int:
        """The number of images."""
        return self.view.n

    @property
    def channels(self) -> int:
        """The number of channels."""
        return self.view.c

    @property
    def blocks(self) -> int:
        """The number of channel blocks."""
        return self.view.cb

    @property
    def rows(self) -> int:
        """The number of rows."""
        return self.memory.h

    @property
    def columns(self) -> int:
        """The number of columns; 1 for a matrix."""
        return self.memory.w

    @call
    def at(self, rows: Range = None, columns: Range = None, blocks: Range = None, image: int = 0) -> Part:
        """Returns a part of the tensor, to be loaded or stored.

        Args:
            rows, columns: ranges, which may begin before the tensor and end behind it where `load` pads.
            blocks: range of channel blocks.
            image: number of the image.

        Raises:
            KernelError: a range is empty or the part lies outside.
        """
        if not 0 <= image < self.images:
            raise KernelError(f"{self.name}: image {image} of {self.images}")
        ranges = (
            as_range(self.name, "blocks", blocks, self.blocks),
            as_range(self.name, "rows", rows, self.rows, beyond=True),
            as_range(self.name, "columns", columns, self.columns, beyond=True),
        )
        return Part(self, image, ranges)


@dataclass(frozen=True)
class Part:
    """A part of a tensor in DRAM.

    Attributes:
        tensor: the tensor.
        image: number of the image.
        ranges: channel blocks, rows and columns.
    """

    tensor: Tensor
    image: int
    ranges: Ranges

    @property
    def size(self) -> tuple[int, int, int]:
        """The number of channel blocks, rows and columns."""
        blocks, rows, columns = map(len, self.ranges)
        return blocks, rows, columns

    @property
    def box(self) -> Box:
        """The part as a box of `Tensor.memory`."""
        blocks, rows, columns = self.ranges
        return Box(self.image, blocks.start, len(blocks), rows.start, rows.stop, columns.start, columns.stop)

    def in_act(self, context: Context) -> ActTile | None:
        """Returns the part where its tensor stays in ACT, None where it is in DRAM."""
        buffer = self.tensor.view.buffer
        if buffer not in context.resident and buffer not in context.bands:
            return None
        if not self.tensor.is_matrix:
            return context.tile_in_act(self.tensor.view, self.box)
        blocks, rows, _ = self.ranges
        side = Box(self.image, blocks.start, len(blocks), 0, 1, rows.start, rows.stop)
        tile = context.tile_in_act(self.tensor.view, side)
        return None if tile is None else tile._replace(line=tile.step, step=0)

    def begin_store(self) -> None:
        """Writes the loads from its tensor that are still to come, before values of it change."""
        for room in filter(None, (ref() for ref in self.tensor.loaded)):
            room.settle()
        self.tensor.loaded.clear()

    def room(self, there: ActTile) -> Room:
        """Returns the room of the part where its tensor stays in ACT."""
        return Room.in_act(there, self.size, self.tensor.view.buffer)

    def note_stored(self) -> None:
        """Notes that all of it holds values."""
        self.mask[...] = True
        self.tensor.version += 1

    @property
    def inside(self) -> Part | None:
        """The part of it that lies in the tensor, None where nothing does."""
        sizes = self.tensor.rows, self.tensor.columns
        clipped = [range(max(0, r.start), min(r.stop, size)) for r, size in zip(self.ranges[1:], sizes, strict=True)]
        if not all(clipped):
            return None
        return Part(self.tensor, self.image, (self.ranges[0], clipped[0], clipped[1]))

    def has_border(self, context: Context, fill: int) -> bool:
        """Returns True if all of it lies in ACT, with padding of value `fill`."""
        if self.inside == self:
            return True
        view, resident = self.tensor.view, context.resident.get(self.tensor.view.buffer)
        if resident is None or self.tensor.border != fill:
            return False
        rows, columns = self.ranges[1:] if not self.tensor.is_matrix else (range(1), self.ranges[1])
        low, left = rows.start + resident.top, columns.start + resident.left
        return (
            low >= 0 and left >= 0 and rows.stop + resident.top <= resident.lines
            and columns.stop + resident.left <= resident.columns and view.buffer not in context.bands
        )  # fmt: skip

    def require_inside(self) -> None:
        """Raises `KernelError` if rows or columns lie outside the tensor."""
        for axis, wanted, size in zip(AXES[1:], self.ranges[1:], (self.tensor.rows, self.tensor.columns), strict=True):
            as_range(self.tensor.name, axis, wanted, size)

    @property
    def mask(self) -> np.ndarray:
        """The part of `Tensor.written` that lies in the tensor, bool [blocks, rows, columns]."""
        blocks, rows, columns = (slice(max(0, r.start), max(0, r.stop)) for r in self.ranges)
        found: np.ndarray = self.tensor.written[self.image, blocks, rows, columns]
        return found


class Tile:
    """Activation vectors in ACT: channel blocks, rows and columns. Its rows of ACT are free once no name has it.

    Attributes:
        blocks, rows, columns: its size.
        line: the user's line that made it.
    """

    def __init__(self, rooms: Sequence[Room], line: Line, ranges: Ranges | None = None, whole: Tile | None = None):
        self._rooms, self._current, self._whole = list(rooms), 0, whole
        self.line = line
        blocks, rows, columns = rooms[0].written.shape
        self._ranges: Ranges = ranges or (range(blocks), range(rows), range(columns))
        self.blocks, self.rows, self.columns = (len(r) for r in self._ranges)

    def __repr__(self) -> str:
        return f"the tile of {self.line}, {self.blocks} x {self.rows} x {self.columns}"

    @property
    def size(self) -> tuple[int, int, int]:
        """The number of channel blocks, rows and columns."""
        return self.blocks, self.rows, self.columns

    @property
    def vectors(self) -> int:
        """The number of vectors, each a row of ACT."""
        return math.prod(self.size)

    @property
    def rows_of_act(self) -> int:
        """The rows of ACT that it holds, in all buffers."""
        return sum(room.rows for room in self._rooms)

    @property
    def room(self) -> Room:
        """The buffer that was written last."""
        return self._whole.room if self._whole is not None else self._rooms[self._current]

    @call
    def at(self, rows: Range = None, columns: Range = None, blocks: Range = None) -> Tile:
        """Returns a part of the tile, which can be read and written like a tile.

        Rows and columns may have a step: `tile.at(range(0, 8, 2))` is every second row.

        Raises:
            KernelError: a range is empty or leaves the tile.
        """
        wanted = zip(AXES, (blocks, rows, columns), self._ranges, strict=True)
        ranges = []
        for axis, part, own in wanted:
            found = as_range(repr(self), axis, part, len(own), steps=axis != "blocks")
            ranges.append(own[found.start : found.stop : found.step])
        return Tile([self.room], self.line, (ranges[0], ranges[1], ranges[2]), self._whole or self)

    @property
    def place(self) -> ActTile:
        """The place in ACT, from the first vector on."""
        tile, (blocks, rows, columns) = self.room.tile, self._ranges
        at = tile.from_vector(rows.start, columns.start)
        base = at.base + blocks.start * tile.plane
        return at._replace(base=base, line=at.line * rows.step, step=at.step * columns.step)

    @property
    def written(self) -> np.ndarray:
        """The vectors that hold values, bool [blocks, rows, columns]."""
        blocks, rows, columns = (slice(r.start, r.stop, r.step) for r in self._ranges)
        found: np.ndarray = self.room.written[blocks, rows, columns]
        return found

    def read(self, operation: str, later: bool = False) -> Tile:
        """Returns the tile as it is now: its buffer does not change by later writes.

        Args:
            operation: name, for messages.
            later: True if loads that are still to come are written by the caller, `settle`.

        Raises:
            KernelError: some of its vectors hold no values.
        """
        if not self.written.all():
            missing = int(np.sum(~self.written))
            first = ", ".join(f"{axis[:-1]} {i}" for axis, i in zip(AXES, np.argwhere(~self.written)[0], strict=True))
            raise KernelError(
                f"{operation} reads {missing} vectors of {self!r} that nobody wrote, the first at {first}"
            )
        if not later:
            self.settle(range(self.blocks))
        return Tile([self.room], self.line, self._ranges)

    def defer(self, blocks: range, tensor: Tensor, load: Callable[[], None]) -> None:
        """Notes the load of some of its blocks, to be written before they are read or the tensor changes."""
        first = self._ranges[0].start
        self.room.loads.append((range(first + blocks.start, first + blocks.stop), load))
        tensor.loaded.append(weakref.ref(self.room))

    def settle(self, blocks: range) -> None:
        """Writes the loads of some of its blocks that are still to come."""
        first = self._ranges[0].start
        self.room.settle(range(first + blocks.start, first + blocks.stop))

    def begin_write(self, parts: bool = False) -> None:
        """Goes on to the next buffer, of which nothing is written yet; a part of a tile stays in its buffer.

        Args:
            parts: True if what is in the buffer stays.
        """
        if self._whole is None and not parts:
            self._current = (self._current + 1) % len(self._rooms)
            self.room.written[...] = False
            self.room.origin = None
            self.room.loads.clear()
        else:
            self.room.settle()

    @property
    def is_whole(self) -> bool:
        """True for a tile that is no part of another."""
        return self._whole is None

    @property
    def origin(self) -> Origin | None:
        """The part of a tensor that it came from, None for parts and results."""
        whole = self.size == self.room.written.shape
        return self.room.origin if whole else None
