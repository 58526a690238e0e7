"""The context of an emission: the scratchpads, the constants and the tensors in ACT that all layers share."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilewright.compiler.npu.coding.coder import WeightCoder
from tilewright.compiler.npu.emit.emitter import Emitter
from tilewright.compiler.npu.emit.geometry import Border, Box
from tilewright.compiler.npu.emit.plan import Pools, TilePlan, TilePlans
from tilewright.compiler.npu.emit.scratch import Allocation, Heap, Ring, ScratchpadFull, Use
from tilewright.compiler.npu.emit.tile_program import Place
from tilewright.compiler.npu.emit.tiles import ActTile, BandTile, Resident, Sums
from tilewright.compiler.npu.views import View, fills_memory
from tilewright.isa import numerics
from tilewright.isa.codes import CodeMode
from tilewright.isa.config import WIDE_TABLE, NpuConfig
from tilewright.isa.instructions import Memory
from tilewright.isa.packing import packed
from tilewright.isa.program import CONSTANT_REGION
from tilewright.isa.timing import MemoryTiming

#: Multiples of a layer's input and output rows of ACT that it gets in addition, where there is room.
_MORE_INPUTS, _MORE_OUTPUTS = 7, 3


class ConstantPool:
    """The constant region of a program: byte strings at 64-byte aligned offsets, equal ones stored once.

    Args:
        shared: True if several programs use the pool and cut layers into other tiles. Weights and parameters of matrix
            products are then stored layer by layer, instead of in the pieces in which they are loaded.
    """

    def __init__(self, shared: bool = False) -> None:
        self.shared = shared
        self._parts: list[bytes] = []
        self._at: dict[bytes, int] = {}
        self.size = 0

    def place(self, data: bytes) -> int:
        """Returns the offset in bytes of `data`, which is added unless the pool has it."""
        digest = hashlib.sha256(data).digest()
        if digest not in self._at:
            self._at[digest] = self.size
            padded = data + bytes(-len(data) % 64)
            self._parts.append(padded)
            self.size += len(padded)
        return self._at[digest]

    def blob(self) -> bytes:
        """Returns the bytes of the whole region."""
        return b"".join(self._parts)


def bytes_of_tiles(tiles: np.ndarray, is_packed: bool) -> bytes:
    """Returns int8 tiles of weights as they lie in memory, two weights a byte if packed."""
    contiguous = np.ascontiguousarray(tiles)
    return packed(contiguous) if is_packed else contiguous.tobytes()


@dataclass
class Context:
    """The state of one model's emission.

    Attributes:
        offsets: arena or constant offset in bytes of every blocked buffer.
        heap: allocator of ACT rows.
        weights, params, accumulators, tables: allocators of rows of WGT, PRM, ACC and LUT.
        resident, bands: tensors that stay in ACT, and tensors that pass through it band by band, by buffer.
        plans: the tile plans found so far.
        tiles: tilings chosen for whole layers, by `id` of the layer, as `TilePlan.numbers` returns them.
        taken: plans taken for whole layers, by `id` of the layer.
        timing_only: True if constants need not be packed, because only the instructions count.
        coder: chooses coded weights, None if none are coded.
        sums: adds up the planes of the tensor that is being written, None if no layer uses their sums.
    """

    config: NpuConfig
    emitter: Emitter
    constants: ConstantPool
    offsets: dict[str, int]
    heap: Heap = field(init=False)
    weights: Ring = field(init=False)
    params: Ring = field(init=False)
    accumulators: Ring = field(init=False)
    tables: Ring = field(init=False)
    resident: dict[str, Resident] = field(default_factory=dict)
    bands: dict[str, BandTile] = field(default_factory=dict)
    plans: TilePlans = field(default_factory=TilePlans)
    tiles: dict[int, tuple[int, ...]] = field(default_factory=dict)
    taken: dict[int, TilePlan[Any]] = field(default_factory=dict)
    timing_only: bool = False
    coder: WeightCoder | None = None
    sums: Sums | None = None
    _pools: dict[str, Heap] = field(default_factory=dict)
    _shared_places: dict[Hashable, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        c = self.config
        self.heap = Heap(c.act_rows)
        self.weights = Ring(c.wgt_tiles)
        self.params = Ring(c.prm_rows)
        self.accumulators = Ring(c.acc_rows, align=max(1, c.block_in // c.block_out))
        self.tables = Ring(c.lut_tables)

    @property
    def memory(self) -> MemoryTiming:
        """The memory timing that the tile plans assume."""
        return self.plans.memory

    def end_step(self) -> list[int]:
        """Closes an NPU step: contents of scratchpads become unknown. Returns the result of `Emitter.end_step`."""
        for ring in (self.weights, self.params, self.tables):
            ring.invalidate()
        if self.coder is not None:
            self.coder.end_step()
        return self.emitter.end_step()

    @contextmanager
    def repeated(self, times: int) -> Iterator[None]:
        """Counts the work inside `times` times, as if each time had constants of its own; the emitter only counts."""
        with self.noted() as uses, self.emitter.repeated(times):
            yield
        for ring, used in zip(self.rings, uses, strict=True):
            for use in [use for use in used if use.rows] * (times - 1):
                ring.take(use.rows, align=use.align)

    @property
    def rings(self) -> tuple[Ring, ...]:
        """The allocators of WGT, PRM and LUT."""
        return self.weights, self.params, self.tables

    @contextmanager
    def noted(self) -> Iterator[list[list[Use]]]:
        """Yields a list that on exit has the uses of constants inside, one list for each of `rings`."""
        found: list[list[Use]] = []
        outer = [ring.uses for ring in self.rings]
        for ring in self.rings:
            ring.uses = []
        try:
            yield found
        finally:
            for ring, before in zip(self.rings, outer, strict=True):
                found.append(ring.uses or [])
                ring.uses = None if before is None else before + found[-1]

    # Constants into scratchpads.

    def shared_place(self, key: Hashable, make: Callable[[], bytes], offset: int) -> Place:
        """Returns the place `offset` bytes into a constant that several programs share, which `make` returns."""
        if self.emitter.dry or self.timing_only:
            return Place(CONSTANT_REGION, offset)
        if key not in self._shared_places:
            self._shared_places[key] = self.constants.place(make())
        return Place(CONSTANT_REGION, self._shared_places[key] + offset)

    def load_weights(self, key: Hashable, count: int, make: Callable[[], np.ndarray], *, packed: bool = False) -> int:
        """Loads int8 [count, block_out, block_in] tiles into WGT unless they are there; returns the first row.

        Args:
            packed: True if they are to lie in memory two weights a byte; then they are never coded.
        """
        at = self.weights.find(key)
        if at is None:
            at = self.weights.take(count, key)
            if packed or self.coder is None or not self._load_coded(self.coder, key, at, count, make):
                place = self._constant(lambda: bytes_of_tiles(make(), packed))
                self.emitter.load(place, Memory.WGT, at, count, packed=packed)
        return at

    def _load_coded(
        self, coder: WeightCoder, key: Hashable, at: int, count: int, make: Callable[[], np.ndarray]
    ) -> bool:
        """Loads weights coded; returns False if they are to be loaded as they are."""
        if coder.collects:
            coder.collect(key[0] if isinstance(key, tuple) else key, np.ascontiguousarray(make()))
            return False
        chosen, stream = coder.next()
        if chosen is None:
            return False
        start = self.constants.place(stream)
        for mode, load in ((CodeMode.TABLE, chosen.table), (CodeMode.WEIGHTS, chosen.weights)):
            if load is not None:
                self.emitter.load_coded(Place(CONSTANT_REGION, start + load.offset), mode, at, count, load.beats)
        return True

    def load_params(
        self,
        key: Hashable,
        rows: int,
        make: Callable[[], tuple[np.ndarray, np.ndarray]],
        shared: tuple[Hashable, int] | None = None,
    ) -> int:
        """Loads `rows` rows of biases and scales into PRM unless they are there; returns the first row.

        Args:
            make: returns biases int32 and scales, each [rows * block_in]; scales are float32, or uint32 words of
                VECTOR_WIDE.
            shared: where programs share constants, the key of the constant that `make` returns, and the first row of it
                to load.
        """
        at = self.params.find(key)
        if at is None:
            at = self.params.take(rows, key)

            def pairs() -> bytes:
                bias, scale = make()
                words = scale if scale.dtype == np.uint32 else numerics.scale_bits(scale)
                return np.stack([bias.astype(np.int32).view(np.uint32), words], axis=-1).tobytes()

            if shared is None:
                place = self._constant(pairs)
            else:
                place = self.shared_place(shared[0], pairs, shared[1] * self.config.prm_row_bytes)
            self.emitter.load(place, Memory.PRM, at, rows)
        return at

    def _constant(self, make: Callable[[], bytes]) -> Place:
        """Returns the place of a constant, which is stored unless only work or time is counted."""
        return Place(CONSTANT_REGION, 0 if self.emitter.dry or self.timing_only else self.constants.place(make()))

    def load_table(self, table: bytes | None) -> int | None:
        """Loads a table of 256 bytes into LUT unless it is there; returns its number, None for no table."""
        if table is None:
            return None
        at = self.tables.find(table)
        if at is None:
            at = self.tables.take(1, table)
            self.emitter.load(self._constant(lambda: table), Memory.LUT, at, 1)
        return at

    def load_wide_table(self, words: bytes) -> int:
        """Loads a table of 256 words for ROW into LUT unless it is there; returns the number of its first 256 bytes."""
        at = self.tables.find(words)
        if at is None:
            at = self.tables.take(WIDE_TABLE, words, align=WIDE_TABLE)
            self.emitter.load(self._constant(lambda: words), Memory.LUT, at, WIDE_TABLE)
        return at

    # Activations.

    @contextmanager
    def pools(self, sizes: Pools) -> Iterator[None]:
        """Reserves ACT rows for the tiles of one layer: a heap each for input, output and operand tiles.

        Tiles of a heap have one size, so nothing fragments. Spare rows let LOAD fetch inputs further ahead and outputs
        wait longer for STORE. On exit, the heaps of an enclosing layer are restored. Raises `ScratchpadFull` where ACT
        is full.
        """
        spare = max(0, self.heap.largest_gap - sum(sizes))
        outputs = min(_MORE_OUTPUTS * sizes.output, spare // 2)
        inputs = min(_MORE_INPUTS * sizes.input, spare - outputs)
        sizes = Pools(sizes.input + inputs, sizes.output + outputs, sizes.operand)
        total = sum(sizes)
        before, self._pools = self._pools, {}
        block = self.heap.take(total) if total else None
        at = block.start if block is not None else 0
        for name, size in zip(("input", "output", "operand"), sizes, strict=True):
            self._pools[name] = Heap(size, at)
            at += size
        try:
            yield
        finally:
            if block is not None:
                block.free()
            if self.sums is not None:
                self.sums.move(self._pools["output"], self.heap)
            self._pools = before

    @contextmanager
    def tiles_from(self, heap: Heap | None) -> Iterator[None]:
        """Takes tiles from the rows of `heap` inside; from those of the whole ACT where it is None."""
        usual = self.heap
        self.heap = heap or usual
        try:
            yield
        finally:
            self.heap = usual

    def on_chip(self, view: View) -> bool:
        """Returns True if the tensor's values are, or will be, in ACT: nothing has to be loaded or stored."""
        return view.buffer in self.resident or view.buffer in self.bands

    def place(self, view: View, n: int, block: int, y: int, x: int) -> Place:
        """Returns the place in external memory of the vector at image n, channel block `block`, row y and column x."""
        return Place(view.region, self.offsets.get(view.buffer, 0) + view.address(n, block, y, x))

    def read_tile(self, view: View, box: Box, fill: int = 0, pool: str = "input") -> ActTile:
        """Returns a box of a tensor in ACT: part of a resident tensor or band, or loaded into a pool.

        Args:
            fill: value of padding, which is outside the tensor.
            pool: heap that a loaded tile takes its rows from.
        """
        there = self.tile_in_act(view, box)
        if there is not None:
            return there
        rows = self._pools[pool].take(box.vectors)
        tile = ActTile(rows.start, box.lines * box.columns, box.columns, 1, rows)
        self.load_box(view, box, tile, fill)
        return tile

    def load_box(self, view: View, box: Box, tile: ActTile, fill: int = 0) -> None:
        """Writes the load of a box of a tensor from external memory into a tile, whose columns are neighbours.

        Args:
            fill: value of padding, which is outside the tensor.
        """
        ys, ye = min(max(box.y0, 0), view.h), max(min(box.y1, view.h), 0)
        xs, xe = min(max(box.x0, 0), view.w), max(min(box.x1, view.w), 0)
        if ye <= ys or xe <= xs:
            if tile.line == box.columns and tile.plane == box.lines * box.columns:
                self.emitter.fill(tile.base, [], box.vectors, fill)
            else:
                dims = [(box.lines, tile.line), (box.blocks, tile.plane)]
                self.emitter.fill(tile.base, dims, box.columns, fill)
            return
        top, bottom = ys - box.y0, box.y1 - ye
        left, right = xs - box.x0, box.x1 - xe
        self.emitter.load(
            self.place(view, box.n, box.block, ys, xs), Memory.ACT, tile.base, xe - xs,
            y=(ye - ys, tile.line, view.sh), z=(box.blocks, tile.plane, view.sc), pad=(left, right, top, bottom),
            fill=fill,
        )  # fmt: skip

    def read_broadcast(self, view: View, box: Box) -> ActTile:
        """Returns a box of an operand in ACT whose axes of size 1 are repeated along the box, with a stride of 0."""
        one_n, one_h, one_w = (size == 1 for size in (view.n, view.h, view.w))
        small = Box(
            0 if one_n else box.n, box.block, box.blocks, *((0, 1) if one_h else (box.y0, box.y1)),
            *((0, 1) if one_w else (box.x0, box.x1)),
        )  # fmt: skip
        assert view.cb > 1 or box.blocks == 1, "channels are never broadcast"
        tile = self.read_tile(view, small, pool="operand")
        return ActTile(tile.base, tile.plane, 0 if one_h else tile.line, 0 if one_w else 1, tile.rows)

    def write_tile(self, view: View, box: Box) -> ActTile:
        """Returns room in ACT for a box of an output, to be closed with `finish_tile`. Raises `ScratchpadFull`."""
        there = self.tile_in_act(view, box)
        if there is not None:
            return there
        try:
            rows = self._pools["output"].take(box.vectors)
        except ScratchpadFull:
            if not self.settle_sums():
                raise
            rows = self._pools["output"].take(box.vectors)
        return ActTile(rows.start, box.lines * box.columns, box.columns, 1, rows)

    def settle_sums(self) -> bool:
        """Adds up the tile whose plane sums are pending, and frees its rows; returns False if there is none."""
        return self.sums is not None and self.sums.flush()

    def finish_tile(self, view: View, box: Box, tile: ActTile) -> None:
        """Stores an output tile unless its tensor stays in ACT, and frees its rows."""
        if not self.on_chip(view):
            self.store_box(view, box, tile)
        if self.sums is not None and self.sums.view.buffer == view.buffer:
            self.sums.add(box, tile)
        else:
            self.release(tile)

    def store_box(self, view: View, box: Box, tile: ActTile) -> None:
        """Writes the store of a tile, whose columns are neighbours, into a box of a tensor in external memory."""
        self.emitter.store(
            self.place(view, box.n, box.block, box.y0, box.x0), tile.base, box.columns,
            y=(box.lines, tile.line, view.sh), z=(box.blocks, tile.plane, view.sc),
        )  # fmt: skip

    def room(self, rows: int, pool: str) -> Allocation:
        """Takes rows of a layer's pool for intermediate values; the caller frees them."""
        return self._pools[pool].take(rows)

    def release(self, tile: ActTile | None) -> None:
        """Frees the rows of a tile, unless there is no tile or its tensor stays in ACT."""
        if tile is not None and tile.rows is not None:
            tile.rows.free()

    def tile_in_act(self, view: View, box: Box) -> ActTile | None:
        """Returns the box of a tensor that lies in ACT, as a band or whole; None if it is in external memory."""
        band = self.bands.get(view.buffer)
        if band is not None:
            return ActTile(band.row(box.block, box.y0, box.x0), band.plane, band.columns)
        res = self.resident.get(view.buffer)
        return self._in_resident(view, res, box) if res is not None else None

    def _in_resident(self, view: View, res: Resident, box: Box) -> ActTile:
        """Returns the box of a tensor that stays in ACT."""
        if res.as_memory:
            at = view.address(box.n, box.block, box.y0, box.x0) // view.block
            return ActTile(res.rows.start + at, view.sc // view.block, view.sh // view.block)
        plane = res.lines * res.columns
        base = res.rows.start + (box.n * view.cb + box.block) * plane
        return ActTile(base + (res.top + box.y0) * res.columns + res.left + box.x0, plane, res.columns)

    def make_resident(self, view: View, border: Border, start: int) -> None:
        """Reserves ACT rows from `start` on for a tensor and its border, until `drop`. Raises `ScratchpadFull`."""
        lines, columns = border.top + view.h + border.bottom, border.left + view.w + border.right
        rows = self.heap.take_at(start, view.n * view.cb * lines * columns)
        as_memory = not any(border) and fills_memory(view)
        self.resident[view.buffer] = Resident(rows, lines, columns, border.top, border.left, as_memory)

    def fill_border(self, view: View, border: Border, fill: int) -> None:
        """Fills the border of a tensor that stays in ACT with the value `fill`."""
        top, bottom, left, right = border
        res = self.resident[view.buffer]
        columns, plane = res.columns, res.lines * res.columns
        for number, value in enumerate(view.fills(fill)):
            planes = [(view.n * view.cb, plane)]
            if view.bytes > 1:  # every image has the blocks of the other byte behind these
                planes = [(view.first_bytes.cb, plane), (view.n, view.cb * plane)]
            at = res.rows.start + number * view.first_bytes.cb * plane
            if top:
                self.emitter.fill(at, planes, top * columns + left, value)
            elif left:
                self.emitter.fill(at, planes, left, value)
            if left + right and view.h > 1:  # the right border of one row and the left border of the next are one run
                first = at + top * columns + left + view.w
                self.emitter.fill(first, [(view.h - 1, columns), *planes], left + right, value)
            tail = right + bottom * columns
            if tail:
                first = at + (top + view.h - 1) * columns + left + view.w
                self.emitter.fill(first, planes, tail, value)

    def drop(self, buffer: str) -> None:
        """Frees the rows of a resident tensor, by the name of its buffer."""
        self.resident.pop(buffer).rows.free()
