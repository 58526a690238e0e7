"""Recorded tile programs: what a layer writes is recorded once and written again wherever the layer runs so again.

The candidates of a search mostly run a layer as many others do: by the same plan, from tensors that lie alike. Only the
rows and bytes are others. A recording is made with *virtual* rows: every allocation of a scratchpad, and every tensor,
begins at a number of its own that no machine has, so that each number of the tile program tells what it was made from.
To write it again, rows are allocated as the layer would have, constants that are there are not loaded, and the virtual
numbers are replaced.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import InitVar, dataclass, field
from typing import Any

import numpy as np

from tilewright.compiler.npu.emit.context import ConstantPool, Context
from tilewright.compiler.npu.emit.emitter import Emitter
from tilewright.compiler.npu.emit.geometry import Box
from tilewright.compiler.npu.emit.plan import Pools
from tilewright.compiler.npu.emit.scratch import Allocation, Heap, Ring, ScratchpadFull
from tilewright.compiler.npu.emit.tile_program import ONCE, Level, Place
from tilewright.compiler.npu.emit.tiles import ActTile
from tilewright.compiler.npu.views import View
from tilewright.isa.config import NpuConfig
from tilewright.isa.instructions import Memory

#: Virtual rows: an odd number for each allocation, in bits that no real row reaches, also where rows of one width are
#: counted in those of another: that is a power of two.
_ROWS, _WIDTHS, _OFFSET = 40, 16, 24
#: Virtual bytes of memory: a number for each tensor, above all virtual rows.
_MEMORY, _TENSOR = 60, 44


def _virtual_row(number: int) -> int:
    return (2 * number + 1) << _ROWS


def _number(row: int) -> int:
    """The number of the allocation that a virtual row lies in, behind its first one."""
    return ((row >> _ROWS) - 1) // 2


def _virtual_byte(number: int) -> int:
    return (1 << _MEMORY) + (number << _TENSOR) + (1 << _TENSOR - 1)


@dataclass(frozen=True)
class Tensor:
    """A tensor that a layer reads or writes, and where it lies.

    Attributes:
        origin: (image, row) that the layer's work begins at.
        tile: in ACT, from its origin on; None in memory.
        offset: byte of its origin in memory.
    """

    view: View
    origin: tuple[int, int]
    tile: ActTile | None
    offset: int

    @staticmethod
    def of(context: Context, view: View, origin: tuple[int, int]) -> Tensor:
        n, y = origin
        tile = context.tile_in_act(view, Box(n, 0, 1, y, y + 1, 0, 1))
        return Tensor(view, origin, tile, 0 if tile is not None else context.place(view, n, 0, y, 0).offset)

    @property
    def shape(self) -> Hashable:
        """Equal for places that are walked alike."""
        return None if self.tile is None else (self.tile.plane, self.tile.line)

    @property
    def start(self) -> int:
        """Row of ACT, or byte of memory, of its origin."""
        return self.offset if self.tile is None else self.tile.base


@dataclass
class Recording:
    """A recorded tile program.

    Args:
        tape: the numbers of the tile program, virtual ones among them, int64.

    Attributes:
        script: the allocations, in order: the method of `_Replay` and its arguments.
        conditional: (first number, end, bytes read) of loads, by the number of the allocation that they fill.
        operations, read_bytes, write_bytes: of all.
    """

    tape: InitVar[np.ndarray]
    script: list[tuple[str, tuple[Any, ...]]]
    conditional: dict[int, list[tuple[int, int, int]]]
    operations: int
    read_bytes: int
    write_bytes: int

    def __post_init__(self, tape: np.ndarray) -> None:
        in_memory = tape >= 1 << _MEMORY
        rows = (tape >= 1 << _ROWS - _WIDTHS // 2) & ~in_memory
        self._where = np.flatnonzero(rows | in_memory)
        found, memory = tape[self._where], in_memory[self._where]
        # A row is an odd number of an allocation times a power of two, plus the rows behind the first: its lowest bit
        # above those tells in which width it was counted.
        high = (found + (1 << _OFFSET - 1)) >> _OFFSET
        width = high & -high
        numbers = np.where(memory, (found >> _TENSOR) & 0xFFFF, (high // width - 1) // 2)
        wide = np.where(memory, 0, np.log2(width).astype(np.int64) - _WIDTHS)
        behind = np.where(memory, (found & (1 << _TENSOR) - 1) - (1 << _TENSOR - 1), found - (high << _OFFSET))
        self._numbers = numbers.astype(np.int32)
        self._wider, self._narrower = np.maximum(wide, 0).astype(np.int8), np.maximum(-wide, 0).astype(np.int8)
        self._template = tape.copy()
        self._template[self._where] = behind

    @property
    def numbers(self) -> int:
        """Numbers of the tile program."""
        return len(self._template)

    def write(self, context: Context, tensors: list[Tensor]) -> None:
        """Writes the tile program again.

        Raises:
            ScratchpadFull: there is no room.
        """
        with _Replay(context, [tensor.start for tensor in tensors]) as replay:
            for step, arguments in self.script:
                getattr(replay, step)(*arguments)
        tape = self._template.copy()
        rows = np.array(replay.starts, np.int64)[self._numbers]
        tape[self._where] += (rows << self._wider) >> self._narrower
        operations, read = self.operations, self.read_bytes
        left_out = [load for number in replay.there for load in self.conditional.get(number, ())]
        if left_out:
            keep = np.ones(len(tape), bool)
            for first, end, nbytes in left_out:
                keep[first:end] = False
                read -= nbytes
            operations -= len(left_out)
            tape = tape[keep]
        context.emitter.append(tape, operations, read, self.write_bytes)


class _Replay:
    """Allocates what a recording needs, in the order of its script.

    Attributes:
        starts: first rows by number: of tensors, then of allocations.
        there: numbers of the constants that were there.
    """

    def __init__(self, context: Context, starts: list[int]) -> None:
        self.context, self.starts = context, starts
        self.there: list[int] = []
        self._rows: dict[int, Allocation] = {}
        self._heaps: dict[int, Heap] = {}
        self._pools: list[ExitStack] = []  # from the outermost to the innermost

    def __enter__(self) -> _Replay:
        return self

    def __exit__(self, *_: object) -> None:
        while self._pools:
            self.end_pools()

    def pools(self, sizes: Pools, within: int | None) -> None:
        """Begins to take tiles from new pools; `within` is the number of the allocation that they lie in."""
        self._pools.append(ExitStack())
        if within is not None:
            rows = self._rows[within]
            heap = self._heaps.setdefault(within, Heap(rows.size, rows.start))
            self._pools[-1].enter_context(self.context.tiles_from(heap))
        self._pools[-1].enter_context(self.context.pools(sizes))

    def end_pools(self) -> None:
        self._pools.pop().close()

    def low(self, count: int) -> None:
        allocation = self.context.heap.take_low(count)
        self._rows[len(self.starts)] = allocation
        self.starts.append(allocation.start)

    def reserve(self, count: int) -> None:
        self.starts.append(self.context.accumulators.reserve(count))

    def give_back(self, count: int) -> None:
        self.context.accumulators.give_back(count)

    def sums(self, count: int) -> None:
        self.starts.append(self.context.accumulators.take(count))

    def constants(self, ring: int, count: int, key: Hashable, align: int | None) -> None:
        found = self.context.rings[ring].find(key) if key is not None else None
        if found is None:
            found = self.context.rings[ring].take(count, key, align)
        else:
            self.there.append(len(self.starts))
        self.starts.append(found)

    def rows(self, pool: str, count: int) -> None:
        allocation = self.context.room(count, pool)
        self._rows[len(self.starts)] = allocation
        self.starts.append(allocation.start)

    def free(self, number: int) -> None:
        self._rows.pop(number).free()


class _Script:
    """Gives out virtual numbers and notes what they stand for."""

    def __init__(self, tensors: int) -> None:
        self.steps: list[tuple[str, tuple[Any, ...]]] = []
        self.keyed: set[int] = set()  # numbers of constants that may be there
        self._count = tensors

    def allocate(self, step: str, *arguments: Any) -> int:
        """Notes an allocation; returns its first virtual row."""
        self.steps.append((step, arguments))
        self._count += 1
        return _virtual_row(self._count - 1)


class _Constants(Ring):
    """A scratchpad of constants, or of sums, in which nothing is known to be there."""

    def __init__(self, like: Ring, script: _Script, number: int | None) -> None:
        super().__init__(like.rows, like.align)
        self._script, self._number = script, number

    def find(self, key: Hashable) -> int | None:
        return None

    def take(self, count: int, key: Hashable | None = None, align: int | None = None) -> int:
        if count > self.rows:
            raise ScratchpadFull(f"{count} rows of {self.rows}")
        if self._number is None:
            return self._script.allocate("sums", count)
        row = self._script.allocate("constants", self._number, count, key, align)
        if key is not None:
            self._script.keyed.add(_number(row))
        return row

    def reserve(self, count: int) -> int:
        super().reserve(count)
        return self._script.allocate("reserve", count)

    def give_back(self, count: int) -> None:
        super().give_back(count)
        self._script.steps.append(("give_back", (count,)))


class _Rows(Heap):
    """Rows of ACT, all or those of a pool, that are given out as virtual ones."""

    def __init__(self, script: _Script, pool: str = "") -> None:
        super().__init__(0)
        self._pool, self._script = pool, script

    def take(self, count: int) -> Allocation:
        return Allocation(self._script.allocate("rows", self._pool, count), count, self)

    def take_low(self, count: int) -> Allocation:
        return Allocation(self._script.allocate("low", count), count, self)

    def free(self, rows: Allocation) -> None:
        self._script.steps.append(("free", (_number(rows.start),)))


class _Loads(Emitter):
    """An emitter that notes where loads lie in the tape: (first number, end, first row, bytes)."""

    def __init__(self, config: NpuConfig) -> None:
        super().__init__(config, 0)
        self.loads: list[tuple[int, int, int, int]] = []

    def load(
        self,
        place: Place,
        target: Memory,
        row: int,
        count: int,
        *,
        y: Level = ONCE,
        z: Level = ONCE,
        pad: tuple[int, int, int, int] = (0, 0, 0, 0),
        fill: int = 0,
    ) -> None:
        first, before = len(self._tape), self.read_bytes
        super().load(place, target, row, count, y=y, z=z, pad=pad, fill=fill)
        self.loads.append((first, len(self._tape), row, self.read_bytes - before))


@dataclass
class Recorder(Context):
    """A context in which everything has virtual rows.

    Attributes:
        tensors: that the layer reads or writes.
    """

    tensors: list[Tensor] = field(default_factory=list)

    @staticmethod
    def of(context: Context, tensors: list[Tensor]) -> Recorder:
        made = Recorder(
            context.config, _Loads(context.config), ConstantPool(context.constants.shared), context.offsets,
            plans=context.plans, timing_only=True, tensors=tensors,
        )  # fmt: skip
        made.resident, made.bands = context.resident, context.bands
        made.heap = _Rows(made.script)
        made.accumulators = _Constants(context.accumulators, made.script, None)
        made.weights, made.params, made.tables = (
            _Constants(ring, made.script, number) for number, ring in enumerate(context.rings)
        )
        return made

    def __post_init__(self) -> None:
        super().__post_init__()
        self.script = _Script(len(self.tensors))
        self._number = {tensor.view: number for number, tensor in reversed([*enumerate(self.tensors)])}

    @contextmanager
    def pools(self, sizes: Pools) -> Iterator[None]:
        """See `Context.pools`: here they have room for everything."""
        within = None if isinstance(self.heap, _Rows) else _number(self.heap.first)
        self.script.steps.append(("pools", (sizes, within)))
        before, self._pools = self._pools, {name: _Rows(self.script, name) for name in Pools._fields}
        yield
        self._pools = before
        self.script.steps.append(("end_pools", ()))

    def place(self, view: View, n: int, block: int, y: int, x: int) -> Place:
        number = self._number[view]
        image, row = self.tensors[number].origin
        near = view.address(n, block, y, x) - view.address(image, 0, row, 0)
        return Place(view.region, _virtual_byte(number) + near)

    def tile_in_act(self, view: View, box: Box) -> ActTile | None:
        tile = super().tile_in_act(view, box)
        if tile is None:
            return None
        number = self._number.get(view)
        if number is None:  # it passes through ACT inside of what is recorded, in virtual rows
            return tile
        near = tile.base - self.tensors[number].start
        return tile._replace(base=_virtual_row(number) + near)

    def recording(self) -> Recording:
        """Returns what was written."""
        emitter = self.emitter
        assert isinstance(emitter, _Loads)
        conditional: dict[int, list[tuple[int, int, int]]] = {}
        for first, end, row, nbytes in emitter.loads:
            if _number(row) in self.script.keyed:
                conditional.setdefault(_number(row), []).append((first, end, nbytes))
        return Recording(
            emitter.tape, self.script.steps, conditional, emitter.position, emitter.read_bytes,
            emitter.write_bytes,
        )  # fmt: skip
