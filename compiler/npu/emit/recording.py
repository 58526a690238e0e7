"""Recorded tile programs: a layer is recorded once, and replayed wherever it runs under the same conditions.

Candidates of a search mostly run a layer the same way: by the same plan, from tensors with the same strides. Only rows
and bytes differ. A recording is made with *virtual* rows: every allocation of a scratchpad, and every tensor, begins at
a number of its own beyond any machine's, so that each number of the tile program identifies its allocation. To replay
it, rows are allocated as the layer would have, loads of constants that are present are left out, and the virtual
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
from tilewright.compiler.npu.emit.tile_program import Place
from tilewright.compiler.npu.emit.tiles import ActTile
from tilewright.compiler.npu.views import View
from tilewright.isa.config import NpuConfig
from tilewright.isa.instructions import Memory

#: Virtual rows: an odd number for each allocation, in bits that no real row reaches. Where rows of one width are
#: counted in rows of another width, the factor is a power of two.
_ROWS, _WIDTHS, _OFFSET = 40, 16, 24
#: Virtual bytes of memory: a number for each tensor, above all virtual rows.
_MEMORY, _TENSOR = 60, 44


def _virtual_row(number: int) -> int:
    """Returns the first virtual row of an allocation."""
    return (2 * number + 1) << _ROWS


def _allocation_number(row: int) -> int:
    """Returns the number of the allocation that contains a virtual row."""
    return ((row >> _ROWS) - 1) // 2


def _virtual_byte(number: int) -> int:
    """Returns the first virtual byte of a tensor in external memory."""
    return (1 << _MEMORY) + (number << _TENSOR) + (1 << _TENSOR - 1)


@dataclass(frozen=True)
class Tensor:
    """A tensor that a layer reads or writes, and its place.

    Attributes:
        view: the tensor.
        origin: (image, row) at which the layer's work begins.
        tile: the tensor in ACT, from its origin on; None if it is in external memory.
        offset: byte of its origin in external memory.
    """

    view: View
    origin: tuple[int, int]
    tile: ActTile | None
    offset: int

    @staticmethod
    def of(context: Context, view: View, origin: tuple[int, int]) -> Tensor:
        """Returns a tensor of a context, from row `origin` (image, row) on."""
        n, y = origin
        tile = context.tile_in_act(view, Box(n, 0, 1, y, y + 1, 0, 1))
        return Tensor(view, origin, tile, 0 if tile is not None else context.place(view, n, 0, y, 0).offset)

    @property
    def shape(self) -> Hashable:
        """The strides in ACT, None in external memory: equal for places that are walked with the same loops."""
        return None if self.tile is None else (self.tile.plane, self.tile.line)

    @property
    def start(self) -> int:
        """The ACT row, or byte of external memory, of its origin."""
        return self.offset if self.tile is None else self.tile.base


@dataclass
class Recording:
    """A recorded tile program.

    Args:
        tape: the tile program with virtual numbers, int64 [numbers].

    Attributes:
        script: the allocations in order: the name of a method of `_Replay` and its arguments.
        skippable: (first number, end) of loads of constants, by the number of the allocation they fill.
        operations: number of operations of the tile program.
    """

    tape: InitVar[np.ndarray]
    script: list[tuple[str, tuple[Any, ...]]]
    skippable: dict[int, list[tuple[int, int]]]
    operations: int

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
        """The length of the tile program in numbers."""
        return len(self._template)

    def write(self, context: Context, tensors: list[Tensor]) -> None:
        """Writes the tile program into a context, with rows allocated there.

        Args:
            context: the emission.
            tensors: the tensors of the recording, at their places now.

        Raises:
            ScratchpadFull: the allocations do not fit.
        """
        with _Replay(context, [tensor.start for tensor in tensors]) as replay:
            for step, arguments in self.script:
                getattr(replay, step)(*arguments)
        tape = self._template.copy()
        rows = np.array(replay.starts, np.int64)[self._numbers]
        tape[self._where] += (rows << self._wider) >> self._narrower
        left_out = [load for number in replay.present for load in self.skippable.get(number, ())]
        if left_out:
            keep = np.ones(len(tape), bool)
            for first, end in left_out:
                keep[first:end] = False
            tape = tape[keep]
        context.emitter.append(tape, self.operations - len(left_out))


class _Replay:
    """Makes the allocations of a recording, in the order of its script.

    Attributes:
        starts: first rows by number, of tensors and then of allocations.
        present: numbers of the constants that were in their scratchpad already.
    """

    def __init__(self, context: Context, starts: list[int]) -> None:
        self.context, self.starts = context, starts
        self.present: list[int] = []
        self._rows: dict[int, Allocation] = {}
        self._heaps: dict[int, Heap] = {}
        self._pools: list[ExitStack] = []  # from the outermost to the innermost

    def __enter__(self) -> _Replay:
        return self

    def __exit__(self, *_: object) -> None:
        while self._pools:
            self.end_pools()

    def begin_pools(self, sizes: Pools, within: int | None) -> None:
        """Reserves pools for the tiles of a layer.

        Args:
            sizes: ACT rows of the pools.
            within: number of the allocation to reserve them in, None for all of ACT.
        """
        self._pools.append(ExitStack())
        if within is not None:
            rows = self._rows[within]
            heap = self._heaps.setdefault(within, Heap(rows.size, rows.start))
            self._pools[-1].enter_context(self.context.tiles_from(heap))
        self._pools[-1].enter_context(self.context.pools(sizes))

    def end_pools(self) -> None:
        """Ends the pools that began last."""
        self._pools.pop().close()

    def take_low(self, count: int) -> None:
        """Takes `count` rows of ACT at the start of the largest gap."""
        allocation = self.context.heap.take_low(count)
        self._rows[len(self.starts)] = allocation
        self.starts.append(allocation.start)

    def reserve_accumulators(self, count: int) -> None:
        """Excludes the last `count` rows of ACC from allocation."""
        self.starts.append(self.context.accumulators.reserve(count))

    def give_back_accumulators(self, count: int) -> None:
        """Ends a reservation of `count` rows of ACC."""
        self.context.accumulators.give_back(count)

    def take_accumulators(self, count: int) -> None:
        """Takes `count` rows of ACC."""
        self.starts.append(self.context.accumulators.take(count))

    def take_constants(self, ring: int, count: int, key: Hashable, align: int | None) -> None:
        """Takes `count` rows of a ring of constants, or finds those of an equal key."""
        found = self.context.rings[ring].find(key) if key is not None else None
        if found is None:
            found = self.context.rings[ring].take(count, key, align)
        else:
            self.present.append(len(self.starts))
        self.starts.append(found)

    def take_rows(self, pool: str, count: int) -> None:
        """Takes `count` rows of a pool of ACT."""
        allocation = self.context.room(count, pool)
        self._rows[len(self.starts)] = allocation
        self.starts.append(allocation.start)

    def free_rows(self, number: int) -> None:
        """Frees the rows of an allocation, by its number."""
        self._rows.pop(number).free()


class _AllocationScript:
    """Assigns virtual numbers to allocations, and records the allocations.

    Attributes:
        steps: name of a method of `_Replay` and its arguments, in order.
        keyed: numbers of the allocations of constants with a key, which may be present at replay.
    """

    def __init__(self, tensors: int) -> None:
        self.steps: list[tuple[str, tuple[Any, ...]]] = []
        self.keyed: set[int] = set()
        self._count = tensors

    def allocate(self, step: str, *arguments: Any) -> int:
        """Records an allocation; returns its first virtual row."""
        self.steps.append((step, arguments))
        self._count += 1
        return _virtual_row(self._count - 1)


class _VirtualRing(Ring):
    """A ring of virtual rows, for constants or sums, in which `find` finds nothing."""

    def __init__(self, like: Ring, script: _AllocationScript, number: int | None) -> None:
        super().__init__(like.rows, like.align)
        self._script, self._number = script, number

    def find(self, key: Hashable) -> int | None:
        return None

    def take(self, count: int, key: Hashable | None = None, align: int | None = None) -> int:
        if count > self.rows:
            raise ScratchpadFull(f"{count} rows of {self.rows}")
        if self._number is None:
            return self._script.allocate("take_accumulators", count)
        row = self._script.allocate("take_constants", self._number, count, key, align)
        if key is not None:
            self._script.keyed.add(_allocation_number(row))
        return row

    def reserve(self, count: int) -> int:
        super().reserve(count)
        return self._script.allocate("reserve_accumulators", count)

    def give_back(self, count: int) -> None:
        super().give_back(count)
        self._script.steps.append(("give_back_accumulators", (count,)))


class _VirtualHeap(Heap):
    """A heap of virtual rows, of all of ACT or of a pool."""

    def __init__(self, script: _AllocationScript, pool: str = "") -> None:
        super().__init__(0)
        self._pool, self._script = pool, script

    def take(self, count: int) -> Allocation:
        return Allocation(self._script.allocate("take_rows", self._pool, count), count, self)

    def take_low(self, count: int) -> Allocation:
        return Allocation(self._script.allocate("take_low", count), count, self)

    def free(self, rows: Allocation) -> None:
        self._script.steps.append(("free_rows", (_allocation_number(rows.start),)))


class _LoadTracker(Emitter):
    """An emitter that records the positions of loads in the tape.

    Attributes:
        loads: (first number, end, first row) of each load.
    """

    def __init__(self, config: NpuConfig) -> None:
        super().__init__(config, 0)
        self.loads: list[tuple[int, int, int]] = []

    def load(self, place: Place, target: Memory, row: int, *count: Any, **levels: Any) -> None:
        first = len(self._tape)
        super().load(place, target, row, *count, **levels)
        self.loads.append((first, len(self._tape), row))


@dataclass
class Recorder(Context):
    """A context in which all rows and bytes are virtual.

    Attributes:
        tensors: the tensors that the layer reads or writes.
    """

    tensors: list[Tensor] = field(default_factory=list)

    @staticmethod
    def of(context: Context, tensors: list[Tensor]) -> Recorder:
        """Returns a recorder with the plans and tensors of a context."""
        made = Recorder(
            context.config, _LoadTracker(context.config), ConstantPool(context.constants.shared), context.offsets,
            plans=context.plans, timing_only=True, tensors=tensors,
        )  # fmt: skip
        made.resident, made.bands = context.resident, context.bands
        made.heap = _VirtualHeap(made.script)
        made.accumulators = _VirtualRing(context.accumulators, made.script, None)
        made.weights, made.params, made.tables = (
            _VirtualRing(ring, made.script, number) for number, ring in enumerate(context.rings)
        )
        return made

    def __post_init__(self) -> None:
        super().__post_init__()
        self.script = _AllocationScript(len(self.tensors))
        self._number = {tensor.view: number for number, tensor in reversed([*enumerate(self.tensors)])}

    @contextmanager
    def pools(self, sizes: Pools) -> Iterator[None]:
        """Provides heaps of virtual rows, without a limit; see `Context.pools`."""
        within = None if isinstance(self.heap, _VirtualHeap) else _allocation_number(self.heap.first)
        self.script.steps.append(("begin_pools", (sizes, within)))
        before, self._pools = self._pools, {name: _VirtualHeap(self.script, name) for name in Pools._fields}
        yield
        self._pools = before
        self.script.steps.append(("end_pools", ()))

    def place(self, view: View, n: int, block: int, y: int, x: int) -> Place:
        number = self._number[view]
        image, row = self.tensors[number].origin
        distance = view.address(n, block, y, x) - view.address(image, 0, row, 0)
        return Place(view.region, _virtual_byte(number) + distance)

    def tile_in_act(self, view: View, box: Box) -> ActTile | None:
        tile = super().tile_in_act(view, box)
        if tile is None:
            return None
        number = self._number.get(view)
        if number is None:  # a tensor between recorded layers, in virtual rows
            return tile
        distance = tile.base - self.tensors[number].start
        return tile._replace(base=_virtual_row(number) + distance)

    def recording(self) -> Recording:
        """Returns the tile program written so far as a recording."""
        emitter = self.emitter
        assert isinstance(emitter, _LoadTracker)
        skippable: dict[int, list[tuple[int, int]]] = {}
        for first, end, row in emitter.loads:
            if _allocation_number(row) in self.script.keyed:
                skippable.setdefault(_allocation_number(row), []).append((first, end))
        return Recording(emitter.tape, self.script.steps, skippable, emitter.position)
