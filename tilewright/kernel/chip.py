"""Chip: what a kernel does on the machine, each call an operation of the tile program that the compiler's layers write.

Scratchpad rows, semaphores, registers and the order of loads are derived, as for the compiler's layers.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tilewright.compiler.npu.emit.context import Context
from tilewright.compiler.npu.emit.geometry import Box
from tilewright.isa.instructions import Source
from tilewright.kernel.constants import Pair, Params, PostWork, Table, Weights, WindowWeights
from tilewright.kernel.errors import KernelError, Line, call, user_line
from tilewright.kernel.loaded import LoadedWeights
from tilewright.kernel.machine import Mark, operation, pieces, require_field, require_size
from tilewright.kernel.places import Part, Tensor, Tile
from tilewright.kernel.rooms import Origin
from tilewright.kernel.rows import RowMachine
from tilewright.kernel.sums import Sums

#: Fewest cycles of a piece of a product, a depthwise convolution and a load: engines that wait for it begin earlier.
_PRODUCTS, _PUSHES, _LOADED = 64, 256, 64


class Chip(RowMachine):
    """The machine as a kernel sees it: the first argument of a kernel's function.

    Tensors are in DRAM (`tensor`), tiles in ACT (`load`, `store`, `tile`), sums in ACC (`matmul`, `depthwise`); from
    there `requantise` takes them. `add`, `multiply`, `apply`, `maximum`, `total`, `softmax` and `norm` work on tiles.
    Constants are `weights`, `weights_from`, `window`, `params`, `table`, `exponentials` and `normalisation`. `lanes` is
    the number of channels in a block. 16-bit results are two tiles of bytes, by `wide_params` and `requantise_wide`.

    Args:
        context: the emission.
        make: makes a tensor in DRAM of a name and a shape.

    Attributes:
        start: the mark at the kernel's begin.
        sections: marks at which sections begin and end.
        tensors: tensors in DRAM that the kernel made.
        macs: multiply-accumulates of existing channels so far.
    """

    def __init__(self, context: Context, make: Callable[[str, Sequence[int], Line], Tensor]) -> None:
        super().__init__(context)
        self.tensors: list[Tensor] = []
        self._products = self.macs = 0
        self.start = self.mark_of("")
        self._make = make
        self.sections: list[Mark] = []

    # Constants and places.

    @call
    def weights(
        self, values: Any, *, stride: Pair = 1, pad: Pair = 0, dilation: Pair = 1, packed: bool | None = None
    ) -> Weights:
        """Returns weights of a product: int8 [outputs, inputs] or [outputs, inputs, kernel rows, kernel columns].

        On a machine with `weight_codes`, LOAD decodes weights where that is sooner done than reading them.

        Args:
            stride, pad, dilation: of the kernel, one number or (rows, columns).
            packed: True for values of -8..7 that lie in memory two a byte, which needs `packed_weights` in the
                machine's configuration; None for True where machine and values allow it.
        """
        return Weights(self.config, values, stride, pad, dilation, packed)

    @call
    def weights_from(self, tensor: Tensor) -> LoadedWeights:
        """Returns a matrix [outputs, inputs] in DRAM as weights of a product, see `LoadedWeights`."""
        return LoadedWeights(self.config, tensor)

    @call
    def window(self, values: Any, *, stride: Pair = 1, pad: Pair = 0, dilation: Pair = 1) -> WindowWeights:
        """Returns weights of a depthwise convolution: int8 [channels, kernel rows, kernel columns]."""
        if not self.config.depthwise:
            raise KernelError(f"{self.config.name!r} has no window mode: depthwise = 0 in its configuration")
        return WindowWeights(self.config, values, stride, pad, dilation)

    @call
    def params(self, bias: Any = 0, scale: Any = 1.0) -> Params:
        """Returns biases (int32) and scales (float32) of the requantiser: one for each channel, or one for all."""
        return Params(self.config, bias, scale)

    @call
    def table(self, values: Any) -> Table:
        """Returns a table of int8 results for -128, ..., 127."""
        if not self.config.lut_tables:
            raise KernelError(f"{self.config.name!r} has no tables: lut_tables = 0 in its configuration")
        return Table.of(values)

    @call
    def tensor(self, shape: Sequence[int], name: str = "") -> Tensor:
        """Returns a new tensor in DRAM, int8 [N, C, H, W] or [rows, channels]: an output if the kernel returns it."""
        if len(shape) not in (2, 4) or min(shape) < 1:
            raise KernelError(f"a tensor is [N, C, H, W] or [rows, channels], not {list(shape)}")
        made = self._make(name or f"t{len(self.tensors)}", shape, user_line())
        self.tensors.append(made)
        return made

    @call
    def tile(self, blocks: int, rows: int, columns: int = 1, *, buffers: int = 1) -> Tile:
        """Returns room for a tile in ACT, to be written by `into=`.

        Args:
            blocks, rows, columns: its size.
            buffers: number of buffers. Each write of the whole tile goes to the next one, so that with two a load need
                not wait for readers of the tile before.
        """
        if min(blocks, rows, columns, buffers) < 1:
            raise KernelError(f"a tile has 1 or more blocks, rows, columns and buffers, not {(blocks, rows, columns)}")
        size = blocks, rows, columns
        return self._noted(Tile([self._room(size) for _ in range(buffers)], user_line()))

    @contextmanager
    def section(self, name: str) -> Iterator[None]:
        """Gives what is done inside a row of its own in `explain` and in timelines."""
        self.sections.append(self.mark_of(name))
        yield
        self.sections.append(self.mark_of(""))

    def mark_of(self, name: str) -> Mark:
        """Returns the work written so far, as the begin of a section."""
        emitter = self.context.emitter
        return Mark(name, emitter.position, self._products, self.macs, emitter.read_bytes, emitter.write_bytes)

    # Transfers.

    @operation
    def load(self, part: Part, *, pad: int | None = None, into: Tile | None = None) -> Tile:
        """Loads a part of a tensor into ACT. LOAD stands in the program where the tile is first read, block by block.

        Args:
            part: what to load, `tensor.at(...)`.
            pad: value of rows and columns outside the tensor; None if there are none.
            into: tile of the same size; None for a new one, or the place of a tensor that is in ACT already.
        """
        tensor = part.tensor
        if pad is None:
            part.require_inside()
        else:
            require_field("LOAD_PAD", "fill", pad, -128, 127, "pad")
        if not part.mask.all():
            raise KernelError(f"{tensor!r} has {int((~part.mask).sum())} vectors in this part that nobody stored")
        fill = 0 if pad is None else pad
        there = part.in_act(self.context)
        if there is not None and into is None and part.has_border(self.context, fill):
            tile = self._noted(Tile([part.room(there)], user_line()))
        else:
            tile = self._begun(into, part.size)
            self._require_neighbours(tile)
            if there is None:
                self._load_blocks(part, tile, fill)
            else:
                self._copy(part, tile, fill)
        tile.written[...] = True
        if tile.is_whole:
            tile.room.origin = Origin(
                (tensor.rows, tensor.columns), (part.ranges[1].start, part.ranges[2].start), fill
            )  # fmt: skip
        return tile

    def _load_blocks(self, part: Part, tile: Tile, fill: int) -> None:
        """Loads a part of a tensor in DRAM into a tile: some blocks at a time, each in front of what first reads it.

        So work on the first ones can begin, and the constants it needs do not come behind all of them.
        """
        box, place, row, line = part.box, tile.place, self.config.block_in, user_line()
        for some in pieces(tile.blocks, tile.rows * tile.columns * row // self.config.bus_bytes, _LOADED):
            own = box._replace(block=box.block + some.start, blocks=len(some))
            at = place._replace(base=place.base + some.start * place.plane)
            load = functools.partial(self._written, line, self.context.load_box, part.tensor.memory, own, at, fill)
            tile.defer(some, part.tensor, load)

    def _copy(self, part: Part, tile: Tile, fill: int) -> None:
        """Copies a part of a tensor that is in ACT into a tile, with padding around it."""
        inside, place = part.inside, tile.place
        if inside != part:
            dims = [(tile.rows, place.line), (tile.blocks, place.plane)]
            self.context.emitter.fill(place.base, dims, tile.columns, fill)
        if inside is None:
            return
        there = inside.in_act(self.context)
        assert there is not None
        at = [r.start - whole.start for r, whole in zip(inside.ranges[1:], part.ranges[1:], strict=True)]
        _, rows, columns = inside.size
        target = tile.at(range(at[0], at[0] + rows), range(at[1], at[1] + columns))
        source = Tile([inside.room(there)], user_line())
        self._elements(Source.ACT, source, None, target, PostWork())

    @operation
    def store(self, tile: Tile, part: Part) -> None:
        """Stores a tile in a part of a tensor of the same size."""
        part.require_inside()
        require_size("the part", part.size, tile.size)
        tile = tile.read("store")
        there = part.in_act(self.context)
        part.begin_store()
        if there is not None:
            self._elements(Source.ACT, tile, None, Tile([part.room(there)], user_line()), PostWork())
        else:
            self._require_neighbours(tile)
            self.context.store_box(part.tensor.memory, part.box, tile.place)
        part.note_stored()

    # Products, whose sums are in ACC.

    @operation
    def matmul(self, tile: Tile, weights: Weights, *, into: Sums | None = None) -> Sums:
        """Multiplies a tile by weights: for each output pixel the sum over input channels and the kernel's taps.

        Args:
            tile: the input, with the padding that the kernel needs, see `Weights.rows`.
            weights: as many blocks of input channels as the tile has.
            into: sums of the same size to add to; None for new ones.
        """
        tile = tile.read("matmul")
        if tile.blocks != len(weights.inputs):
            raise KernelError(f"{tile!r} has {tile.blocks} channel blocks, {weights!r} take {len(weights.inputs)}")
        lines, columns = weights.fits((tile.rows, tile.columns))
        pixels, rows = lines * columns, len(weights.array_rows)
        size = len(weights.outputs), lines, columns
        bi, bo = self.config.block_in, self.config.block_out
        narrow, wide = max(1, bi // bo), max(1, bo // bi)
        sums = into
        if sums is None:
            strides = wide, columns * wide, pixels * wide
            sums = self._new_sums(size, pixels * rows, strides, wide, weights.outputs.start)
        require_size("the sums", sums.size, size)
        place, blocks, (kh, kw) = tile.place, tile.blocks, weights.window.kernel
        (sy, sx), (dy, dx) = weights.window.stride, weights.window.dilation
        per_row = kh * kw * blocks
        reduce = [
            (blocks, place.plane, 1, 0), (kw, dx * place.step, blocks, 0), (kh, dy * place.line, kw * blocks, 0),
        ]  # fmt: skip
        lines_and_columns = [(columns, sx * place.step, 0, narrow), (lines, sy * place.line, 0, columns * narrow)]
        for some in pieces(
            rows // narrow, pixels * narrow * per_row, _PRODUCTS
        ):  # so that VECTOR need not wait for all
            outer = [*lines_and_columns, (narrow, 0, per_row, 1), (len(some), 0, per_row * narrow, pixels * narrow)]
            part = weights.at(range(some.start * wide, min(some.stop * wide, size[0])))
            acc = sums.span[0] + some.start * pixels * narrow
            self.context.emitter.gemm(
                place.base, part.load(self.context), acc, reduce, outer, accumulate=into is not None
            )
        self._products += pixels * rows * per_row
        self.macs += pixels * kh * kw * weights.channels[0] * weights.channels[1]
        return sums

    @operation
    def depthwise(self, tile: Tile, window: WindowWeights, *, into: Sums | None = None) -> Sums:
        """Multiplies each channel of a tile by the weights of its window.

        Args:
            tile: the input, with the padding that the window needs, see `WindowWeights.rows`.
            window: weights of as many channel blocks as the tile has.
            into: must be None, as the window mode makes new sums.
        """
        tile = tile.read("depthwise", later=True)
        if into is not None:
            raise KernelError("depthwise makes new sums: add them behind, by requantise(..., add=)")
        if tile.blocks != len(window.blocks):
            raise KernelError(f"{tile!r} has {tile.blocks} channel blocks, {window!r} has {len(window.blocks)}")
        self._require_neighbours(tile)
        lines, columns = window.fits((tile.rows, tile.columns))
        origin, (y, x) = self._origin(tile, window)
        layer, lanes = window.layer(origin), self.config.block_in
        whole = Box(0, window.blocks.start, tile.blocks, y, y + lines, x, x + columns)
        passes, pushes = layer.passes(self.config, whole, shared=True)
        shared = any(p.shared for p in passes) and pushes < layer.passes(self.config, whole, shared=False)[1]
        pixels, place = lines * columns, tile.place
        rows = -(-pixels * tile.blocks * lanes // self.config.block_out)
        sums = self._new_sums((tile.blocks, lines, columns), rows, (1, columns, pixels), 1, window.blocks.start)
        wide = self.config.block_out
        unit = wide // math.gcd(pixels * lanes, wide)  # blocks whose sums are whole rows of ACC
        for some in pieces(tile.blocks, pushes, _PUSHES, unit):
            tile.settle(some)
            box = whole._replace(block=whole.block + some.start, blocks=len(some))
            at = place._replace(base=place.base + some.start * place.plane)
            layer.push(self.context, box, at, sums.span[0] + some.start * pixels * lanes // wide, shared)
        self.macs += pixels * window.channels * math.prod(window.window.kernel)
        return sums

    def _origin(self, tile: Tile, window: WindowWeights) -> tuple[Origin, tuple[int, int]]:
        """Returns the origin of a tile, and the output at which it begins; padding is shared where that is known."""
        found = tile.origin
        w = window.window
        if found is not None:
            starts = [at + pad for at, pad in zip(found.at, w.pad, strict=True)]
            if all(start % stride == 0 for start, stride in zip(starts, w.stride, strict=True)):
                return found, (starts[0] // w.stride[0], starts[1] // w.stride[1])
        return Origin((1 << 20, 1 << 20), (0, 0), 0), (w.pad[0], w.pad[1])
