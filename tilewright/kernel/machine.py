"""The base of `Chip`: rows of the scratchpads for tiles and sums, the user's lines, and checks of sizes and fields."""

from __future__ import annotations

import functools
import math
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from tilewright.compiler.npu.emit.context import Context
from tilewright.compiler.npu.emit.scratch import ScratchpadFull
from tilewright.isa.instructions import BY_NAME
from tilewright.kernel.errors import F, KernelError, Line, at_user_line, user_line
from tilewright.kernel.places import Part, Tile
from tilewright.kernel.rooms import Room
from tilewright.kernel.sums import Accumulators, Sums

#: A place that results go to: a tile, or a part of a tensor in DRAM.
Target = Tile | Part | None


def operation(function: F) -> F:
    """Makes a method note the user's line beside the operations it writes; errors name it."""

    @functools.wraps(function)
    def wrapped(self: Machine, *arguments: Any, **options: Any) -> Any:
        with at_user_line():
            line, emitter = user_line(), self.context.emitter
            emitter.mark(str(line))
            first = emitter.position
            found = function(self, *arguments, **options)
            if emitter.position > first:
                self.lines.append((first, emitter.numbers, line))
            return found

    return wrapped  # type: ignore[return-value]


def pieces(count: int, work: int, least: int, unit: int = 1) -> list[range]:
    """Cuts `count` equal parts into as many pieces as have enough work, each of a multiple of `unit` parts.

    Args:
        count: number of parts.
        work: work of a part.
        least: least work of a piece.
        unit: divisor of the parts in a piece.
    """
    size = -(-least // max(1, work * unit)) * unit
    return [range(at, min(at + size, count)) for at in range(0, count, size)]


class Mark(NamedTuple):
    """The work that was written up to some operation.

    Attributes:
        name: name of the section that begins there, "" for none.
        position: number of the operation.
        products: steps of the array for `matmul`.
        macs: multiply-accumulates of existing channels.
        read_bytes, write_bytes: bytes of DRAM.
    """

    name: str
    position: int
    products: int
    macs: int
    read_bytes: int
    write_bytes: int


class Machine:
    """Scratchpads of the machine while a kernel runs.

    Args:
        context: the emission.

    Attributes:
        config: the configuration of the machine.
        peak: the most rows of ACT that tiles took at once.
        lines: of each call (first operation, numbers of the tile program up to its end, user's line), in order.
    """

    def __init__(self, context: Context) -> None:
        self.context, self.config = context, context.config
        self.lines: list[tuple[int, int, Line]] = []
        self._sums = Accumulators(context)
        self._tiles: list[weakref.ref[Tile]] = []
        self._rooms: list[weakref.ref[Room]] = []
        self.peak = 0

    @property
    def lanes(self) -> int:
        """The channels of a block: those of a vector in ACT."""
        return self.config.block_in

    @contextmanager
    def _result(self, into: Target, size: tuple[int, int, int], *, stored: bool = False) -> Iterator[Tile]:
        """Provides the tile that a result goes to, which is stored at the end where it is to be in DRAM.

        Args:
            into, size: where to, and blocks, rows and columns.
            stored: True if the caller stores it, by `_store_blocks`.
        """
        if not isinstance(into, Part):
            tile = self._begun(into, size)
            yield tile
            tile.written[...] = True
            return
        into.require_inside()
        require_size("the part", into.size, size)
        into.begin_store()
        there = into.in_act(self.context)
        tile = self._begun(None, size) if there is None else Tile([into.room(there)], user_line())
        yield tile
        tile.written[...] = True
        if not stored:
            self._store_blocks(tile, into, range(size[0]))
        into.note_stored()

    def _written(self, line: Line, write: Callable[..., None], *arguments: Any) -> None:
        """Writes operations of an earlier call, with its line, within a call that needs them now."""
        emitter, now = self.context.emitter, user_line()
        self.lines.append((emitter.position, emitter.numbers, now))
        emitter.mark(str(line))
        first = emitter.position
        write(*arguments)
        self.lines.append((first, emitter.numbers, line))
        emitter.mark(str(now))

    def _store_blocks(self, tile: Tile, into: Target, blocks: range) -> None:
        """Stores some blocks of a result's tile, where the result is to be in DRAM."""
        if isinstance(into, Part) and into.in_act(self.context) is None:
            box, place = into.box, tile.place
            some = box._replace(block=box.block + blocks.start, blocks=len(blocks))
            at = place._replace(base=place.base + blocks.start * place.plane)
            self.context.store_box(into.tensor.memory, some, at)

    def _begun(self, into: Tile | None, size: tuple[int, int, int]) -> Tile:
        """Returns a tile to write, of which nothing is written yet."""
        if into is None:
            return self._noted(Tile([self._room(size)], user_line()))
        require_size("the tile", into.size, size)
        into.begin_write()
        return into

    def _room(self, size: tuple[int, int, int]) -> Room:
        """Returns rows of ACT for a tile. Raises `KernelError` if there are none."""
        count = math.prod(size)
        try:
            made = Room.of(self.context.heap.take(count), size)
        except ScratchpadFull:
            alive = [tile for tile in (ref() for ref in self._tiles) if tile is not None]
            held = "; ".join(f"{t!r} has {t.rows_of_act}" for t in alive) or "no tile is alive"
            raise KernelError(
                f"a tile of {count} rows does not fit: ACT has {self.context.heap.rows}, {self.context.heap.free_rows} "
                f"of them free; {held}", full=True,
            ) from None  # fmt: skip

        self._rooms = [ref for ref in self._rooms if ref() is not None]
        self._rooms.append(weakref.ref(made))
        self.peak = max(self.peak, sum(room.rows for ref in self._rooms if (room := ref()) is not None))
        return made

    def close(self) -> None:
        """Frees the rows of all tiles."""
        for ref in self._rooms:
            room = ref()
            if room is not None:
                room.free()

    def _noted(self, tile: Tile) -> Tile:
        """Notes a tile for messages; returns it."""
        self._tiles = [ref for ref in self._tiles if ref() is not None]
        self._tiles.append(weakref.ref(tile))
        return tile

    def _new_sums(
        self, size: tuple[int, int, int], rows: int, strides: tuple[int, int, int], slices: int, block: int
    ) -> Sums:
        """Returns sums with rows of ACC of their own."""
        acc = self._sums.take(rows)
        vector = acc * self.config.block_out // self.config.block_in
        sums = Sums(user_line(), size, vector, strides, slices, (acc, acc + rows), block)
        self._sums.add(sums)
        return sums

    def _require_neighbours(self, tile: Tile) -> None:
        """Raises `KernelError` for a tile whose columns do not lie side by side."""
        if tile.columns > 1 and tile.place.step != 1:
            raise KernelError(f"columns of {tile!r} do not lie side by side")

    def _require_apart(self, out: Tile, tile: Tile) -> None:
        """Raises `KernelError` if a result would overwrite vectors of an operand that are still to be read."""
        if out.room.overlaps(tile.room):
            raise KernelError(f"the result would overwrite vectors of {tile!r} before they are read")


def require_size(what: str, found: tuple[int, int, int], wanted: tuple[int, int, int]) -> None:
    """Raises `KernelError` unless two sizes are equal."""
    if found != wanted:
        raise KernelError(f"{what} must be {times(wanted)} (blocks x rows x columns), not {times(found)}")


def times(size: tuple[int, int, int]) -> str:
    """Returns a size as text."""
    return " x ".join(map(str, size))


def require_field(
    instruction: str, field: str, value: int, low: int | None = None, high: int | None = None, name: str = ""
) -> None:
    """Raises `KernelError` for a value that does not fit a field of an instruction."""
    found = BY_NAME[instruction].by_name[field]
    lowest, highest = found.minimum if low is None else low, found.maximum if high is None else high
    if not isinstance(value, int) or not lowest <= value <= highest:
        raise KernelError(f"{name or field} must be {lowest}..{highest}, not {value}")
