"""Depthwise convolutions in the array's window mode (`depthwise_passes.py` explains it)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from tilewright.compiler.npu.emit.context import Context
from tilewright.compiler.npu.emit.geometry import Border, Box
from tilewright.compiler.npu.emit.plan import PlanTable, TilePlan
from tilewright.compiler.npu.emit.tile_program import Loop
from tilewright.compiler.npu.emit.tiles import ActTile
from tilewright.compiler.npu.layers.accumulators import emit_accumulators, emit_wide, read_add_operand
from tilewright.compiler.npu.layers.depthwise_passes import NO_PADS, Pads, Slots, WindowPass, plan_passes
from tilewright.compiler.npu.layers.layer import Layer
from tilewright.compiler.npu.layers.params import channel_params
from tilewright.compiler.npu.layers.products import minimum_constants
from tilewright.compiler.npu.layers.rest import Rest
from tilewright.compiler.npu.layers.sampling import box_tiles
from tilewright.compiler.npu.layers.sliding_window import Size, SlidingWindow
from tilewright.compiler.npu.layers.tiling import Bus, OutputPart, PlaneTiling, bands, even_parts
from tilewright.compiler.npu.views import View
from tilewright.isa.config import NpuConfig

_TILE_OVERHEAD = 15
#: Cycles of an instruction for an output that misses padding, besides those of its weights.
_CORNER_OVERHEAD = 10
#: Rows of bands that hold only a part of each row, and the parts that rows are cut into.
_SHORT_BANDS = (1, 2, 4, 6, 8, 12)
_ROW_PARTS = (2, 3, 4, 8, 16, 32, 64)


class WindowTiling(NamedTuple):
    """Size of tiles in window mode; `shared` is True if padding between two lines of pushes is pushed once."""

    lines: int
    columns: int
    blocks: int
    shared: bool

    @property
    def plane(self) -> PlaneTiling:
        """The size of the tiles."""
        return PlaneTiling(self.lines, self.columns, self.blocks)

    def __str__(self) -> str:
        return f"{self.plane} (window{', shared padding' if self.shared else ''})"


@dataclass
class DepthwiseLayer(Layer):
    """Depthwise convolution (multiplier 1) in the array's window mode.

    Attributes:
        weights, bias, scale: int8 [C, kh, kw], int32 [C], float32 [C]. For outputs of 16 bits, bias and scale are in
            the format of VECTOR_WIDE.
        pad, stride, dilation: (rows, columns).
        fill: the input's zero point, the value of padding.
        rest: further weights to add; their channel blocks are pushed once more. None without any.
    """

    datapath = "window"
    cheapest = True
    by_channel = True

    weights: np.ndarray = field(default_factory=lambda: np.zeros((0, 1, 1), np.int8))
    bias: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int32))
    scale: np.ndarray = field(default_factory=lambda: np.zeros(0, np.float32))
    pad: tuple[int, int] = (0, 0)
    stride: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)
    fill: int = 0
    rest: Rest | None = None

    @property
    def plan_key(self) -> Hashable:
        x, y = self.inputs[0], self.output
        own = id(self) if self.rest is not None else None
        return ("window", self.window, x.h, x.w, y.n, y.c, y.h, y.w, y.block, y.bytes, self.post.add is not None, own)

    @property
    def constants_key(self) -> Hashable:
        """A key of the weights, biases and scales in their scratchpads."""
        return id(self)

    @property
    def window(self) -> SlidingWindow:
        """The window that slides over the input."""
        return SlidingWindow((self.weights.shape[1], self.weights.shape[2]), self.pad, self.stride, self.dilation)

    def plans(
        self, context: Context, budget: int, span: tuple[int, int] | None = None, every: bool = False
    ) -> PlanTable[WindowTiling]:
        y, height = self.output.first_bytes, self.output.h if span is None else span[1] - span[0]
        cuts = _cuts(y, height)
        if every:
            return self._table(context, budget, span, cuts)
        found = self._table(context, budget, span, [cut for cut in cuts if cut[1] == y.w])
        lowest = found.cycles.min(initial=math.inf)
        # A push makes one output at most, so that parts of rows mostly have too many tiles.
        outputs = self.output.bytes * (y.n if span is None else 1) * height * y.w * y.cb * context.config.dw_slices
        most = (lowest - outputs) / _TILE_OVERHEAD
        parts = [cut for cut in cuts if cut[1] < y.w and -(-height // cut[0]) * -(-y.w // cut[1]) < most]
        others = self._table(context, budget, span, parts)
        return min(found, others, key=lambda table: table.cycles.min(initial=math.inf)).cheaper_and_cheaper()

    def has_plan(self, context: Context, budget: int) -> bool:
        smallest_first = reversed(_cuts(self.output, self.output.h))
        return any(len(self._table(context, budget, None, [cut])) for cut in smallest_first)

    def _table(
        self, context: Context, budget: int, span: tuple[int, int] | None, cuts: list[tuple[int, int]]
    ) -> PlanTable[WindowTiling]:
        """Returns all plans with bands of some sizes (rows, columns)."""
        config = context.config
        x, y, nbytes = self.inputs[0], self.output.first_bytes, self.output.bytes
        resident_in, resident_out = context.on_chip(x), context.on_chip(y)
        height, images = (y.h, y.n) if span is None else (span[1] - span[0], 1)
        slices, bus = config.dw_slices, Bus.of(config, context.memory)
        again = len({(tile[0], tile[4]) for tile in self.rest.tiles}) if self.rest is not None else 0

        lines, columns, shared, passes, pushes, corners, blocks = self._ways(config, cuts, context.accumulators.rows)
        pixels, vectors = lines * columns, nbytes * math.prod(self.window.extent(lines, columns))
        count_bands = -(-height // lines) * -(-y.w // columns)
        count = count_bands * -(-y.cb // blocks) * images
        depth = np.where(count > 1, 2, 1)
        tiles = 2 * slices * (passes * (blocks + np.minimum(again, blocks * self._sets)) + corners)
        out_rows = (0 if resident_out else nbytes) * pixels * blocks
        add_rows = self.loads_added(context) * pixels * blocks
        in_rows = (0 if resident_in else vectors) * blocks
        fits = nbytes * _acc_rows(config, pixels, blocks) <= context.accumulators.rows // depth
        fits &= (tiles <= config.wgt_tiles // 2) & (blocks <= config.prm_rows)
        fits &= depth * (in_rows + out_rows + add_rows) <= budget

        read = count * (in_rows + add_rows) * config.block_in
        read = read + passes * slices * (y.cb + again) * config.tile_bytes
        # Weights for missing padding come in the way of other layers' weights where the bus is busy.
        extra = slices * corners * (config.tile_bytes / bus.reading + _CORNER_OVERHEAD)
        work = bus.busiest(
            nbytes * images * count_bands * pushes * (y.cb + again) * slices,
            nbytes**2 * images * y.cb * height * y.w,  # a step for each sum and byte of a result
            read,
            0 if resident_out else self.output.nbytes * height / (y.h * y.n),
        )
        start = bus.latency + (in_rows * config.block_in + tiles * config.tile_bytes / 2) / bus.reading
        end = nbytes * pixels * blocks * (1 if resident_out else config.block_in / bus.writing)
        cycles = work + start + end + count * (_TILE_OVERHEAD + extra)
        pools = depth * in_rows, depth * out_rows, depth * add_rows
        return PlanTable.of(WindowTiling, (lines, columns, blocks, shared != 0), pools, cycles, fits)

    def _ways(self, config: NpuConfig, cuts: list[tuple[int, int]], acc_rows: int) -> np.ndarray:
        """Returns the ways to make bands of some sizes (`cuts`) that fit `acc_rows` rows of ACC, int64 [7, ways]: rows,
        columns, 1 if padding is shared, passes, pushes for each channel block, outputs that miss padding, channel
        blocks."""
        y, found = self.output.first_bytes, []
        for lines, columns in cuts:
            if self.output.bytes * _acc_rows(config, lines * columns, 1) > acc_rows:
                continue
            box = Box(0, 0, 1, 0, lines, 0, columns)
            passes, pushes = self.passes(config, box, shared=False)
            ways = [(lines, columns, False, len(passes), pushes, 0)]
            passes, pushes = self.passes(config, box, shared=True)
            if any(p.shared for p in passes):
                missing = sum(len(self._missing(p)) for p in passes)
                ways.append((lines, columns, True, len(passes), pushes, missing))
            found += [(*way, blocks) for blocks in even_parts(y.cb) for way in ways]
        return np.array(found, np.int64).reshape(-1, 7).T

    def emit(self, context: Context, plan: TilePlan[Any], part: OutputPart | None = None) -> None:
        """Emits the layer with channel blocks outside (their weights stay) and bands inside."""
        with context.pools(plan.pools):
            y = self.output.first_bytes
            for box in box_tiles(context, y, plan.tiling.plane, part, self.equal_blocks):
                self._emit_tile(context, box, plan.tiling.shared)

    @property
    def recordable(self) -> bool:
        return True

    @property
    def equal_blocks(self) -> bool:
        return self.rest is None

    def input_rows(self, span: tuple[int, int]) -> tuple[int, int]:
        return self.window.span(*span, 0)

    def input_border(self) -> tuple[Border, int]:
        x, y = self.inputs[0], self.output
        return self.window.border((y.h, y.w), (x.h, x.w)), self.fill

    def taken(self, axis: int, outputs: np.ndarray) -> np.ndarray:
        x = self.inputs[0]
        return self.window.taken(axis, outputs, (x.h, x.w)[axis])

    def constants(self) -> Iterable[tuple[Hashable, int]]:
        if self.products is not None:
            yield minimum_constants([self.weights], [self.rest], self.bias, self.scale)

    def _emit_tile(self, context: Context, box: Box, shared: bool) -> None:
        """Emits one box of the output."""
        config, window = context.config, self.window
        columns, pixels = box.columns, box.lines * box.columns
        parts = [box.behind(byte * self.output.first_bytes.cb) for byte in range(self.output.bytes)]
        fills = self.inputs[0].fills(self.fill)
        tiles = [
            context.read_tile(self.inputs[0], window.box(part), fill) for part, fill in zip(parts, fills, strict=True)
        ]
        outs = [context.write_tile(self.output, part) for part in parts]
        add = read_add_operand(context, self.post, box)
        acc_rows = _acc_rows(config, pixels, box.blocks)
        acc = context.accumulators.take(len(parts) * acc_rows)
        for number, tile in enumerate(tiles):
            self.push(context, box, tile, acc + number * acc_rows, shared)
        prm = self._load_params(context, box)
        first, byte_stride = (n * config.block_out // config.block_in for n in (acc, acc_rows))
        strides, counts = (1, columns, pixels), (columns, box.lines, box.blocks)
        if len(parts) > 1:
            emit_wide(context, self.post, first, byte_stride, strides, counts, outs, prm, 1)
        else:
            emit_accumulators(context, self.post, first, strides, counts, outs[0], (1, 1), prm, add, 1)
        for tile in tiles:
            context.release(tile)
        context.release(add)
        for part, out in zip(parts, outs, strict=True):
            context.finish_tile(self.output, part, out)

    def passes(self, config: NpuConfig, out: Box, shared: bool) -> tuple[tuple[WindowPass, ...], int]:
        """Returns the passes for a box of the output, and their pushes per channel block."""
        x, box, pads = self.inputs[0], self.window.box(out), NO_PADS
        if shared and self.rest is None:  # else there is one instruction for each block: each would miss some padding
            pads = Pads(max(0, -box.y0), max(0, box.y1 - x.h)), Pads(max(0, -box.x0), max(0, box.x1 - x.w))
        return plan_passes(Slots.of(config), self.window, (out.lines, out.columns), pads)

    def push(self, context: Context, box: Box, tile: ActTile, acc: int, shared: bool) -> None:
        """Emits the pushes of a tile, whose sums begin at row `acc` of ACC."""
        config = context.config
        acc_dw = acc * config.block_out // config.dw_lanes
        passes, _ = self.passes(config, box, shared)
        for number, p in enumerate(passes):
            again = self._again(box, p)
            outputs = (box.lines, box.columns)[p.axis]
            full, rest = divmod(outputs, p.strip)
            if full:
                self._push_strips(context, box, tile, acc_dw, p, range(0, full * p.strip, p.strip), again, number > 0)
            if rest:
                last = range(full * p.strip, outputs, rest)
                self._push_strips(context, box, tile, acc_dw, p, last, again, number > 0)

    def _push_strips(
        self,
        context: Context,
        box: Box,
        tile: ActTile,
        acc: int,
        p: WindowPass,
        strips: range,
        again: list[tuple[int, int]],
        accumulate: bool,
    ) -> None:
        """Emits one pass over strips that begin at the outputs `strips`, with sums from vector `acc` of ACC on."""
        config = context.config
        slices = config.dw_slices
        # (outputs, rows of ACT, vectors of ACC) of a row and of a column, the axis of the lines first
        axes = [(box.lines, tile.line, box.columns * slices), (box.columns, 1, slices)]
        (_, ahead, sums_ahead), (lines, aside, sums_aside) = axes if p.axis == 0 else axes[::-1]
        pixels = box.lines * box.columns
        length = p.length(strips.step)
        wgt = self._load_weights(context, box, p, length, again)
        origin = tile.base + p.rows.first * self.dilation[0] * tile.line + p.columns.first * self.dilation[1]
        origin += strips.start * self.stride[p.axis] * ahead
        acc += strips.start * sums_ahead
        loops: list[Loop] = [
            (length, p.along.push * ahead, 0, sums_ahead),
            (p.across.pushes(lines), p.across.push * aside, 0, sums_aside),
            (len(strips), strips.step * self.stride[p.axis] * ahead, 0, strips.step * sums_ahead),
        ]
        several = (box.blocks, tile.plane, 1, pixels * slices)
        start, step = (p.along.reach - p.shared, p.across.reach), (p.along.emit, p.across.emit)
        delay = Slots.of(config).delay(p.along, p.across, length)
        first = origin + p.shared * p.along.push * ahead
        for s in range(slices):
            context.emitter.depthwise(
                first, wgt + s * box.blocks, acc + s, [*loops, several],
                start=start, step=step, lanes_slice=s, delay=delay, accumulate=accumulate,
            )  # fmt: skip
            single = wgt + slices * box.blocks + s * len(again)
            for i, (_, block) in enumerate(again):
                block -= box.block
                context.emitter.depthwise(
                    origin + block * tile.plane, single + i, acc + s + block * pixels * slices, loops,
                    start=start, step=step, lanes_slice=s, delay=delay, accumulate=True,
                )  # fmt: skip
        # The part of the padding before the first line; other blocks have it from the block before them.
        missing, tiles = len(self._missing(p)), wgt + (box.blocks + len(again)) * slices
        for s, output in itertools.product(range(slices), range(missing)):
            context.emitter.depthwise(
                origin, tiles + s * missing + output, acc + s + output * sums_ahead,
                [(p.shared, p.along.push * ahead, 0, 0), (1, 0, 0, 0)],
                start=(p.shared - 1, 0), step=(1, 1), lanes_slice=s, delay=0, accumulate=True,
            )  # fmt: skip

    def _missing(self, p: WindowPass) -> np.ndarray:
        """Returns `p.missing()`, or no outputs if the padding adds nothing because all of its bytes are 0."""
        missing = p.missing()
        return missing if any(self.inputs[0].fills(self.fill)) else missing[:0]

    @property
    def _sets(self) -> int:
        """The number of sets of the rest."""
        return self.rest.sets if self.rest is not None else 0

    def _again(self, box: Box, p: WindowPass) -> list[tuple[int, int]]:
        """Returns the (set, channel block) pairs that one pass pushes once more: those with a weight under its taps."""
        if self.rest is None:
            return []
        rows, columns = ([g.first + i * g.every for i in range(g.taps)] for g in (p.rows, p.columns))
        blocks = range(box.block, box.block + box.blocks)
        return sorted(
            {(s, block) for s, _, ky, kx, block in self.rest.tiles if block in blocks and ky in rows and kx in columns}
        )

    def _load_weights(
        self, context: Context, box: Box, p: WindowPass, length: int, again: list[tuple[int, int]]
    ) -> int:
        """Loads the tiles for one pass with lines of `length` pushes into WGT, if missing; returns the first row.

        They are [slice][block] of [lane][slot], then [slice][once more] and [slice][output with missing taps]. There a
        tap has the slot of its push of padding.
        """
        config = context.config
        slots = Slots.of(config)
        key = (self.constants_key, box.block, box.blocks, p.along, p.across, p.axis, p.shared, length)
        bi = config.block_in
        missing = self._missing(p)

        def make() -> np.ndarray:
            taps = [
                (slots.slot(p.along, p.across, length, p.along.taps - 1 - i, p.across.taps - 1 - j), _tap(p, i, j))
                for i, j in np.ndindex(p.along.taps, p.across.taps)
            ]
            w = self._block_weights(box.block, box.blocks, bi)
            tiles = [_packed(config, w, taps)]
            if self.rest is not None and again:
                more = [self.rest.window(s, range(block * bi, (block + 1) * bi), w.shape[1:]) for s, block in again]
                tiles.append(_packed(config, np.concatenate(more), taps))
            if len(missing):
                newest = p.shared - 1
                corners = [
                    [
                        (newest - output * p.along.emit - i * p.along.lag, _tap(p, i, 0))
                        for i in np.flatnonzero(row).tolist()
                    ]
                    for output, row in enumerate(missing)
                ]
                of_outputs = [_packed(config, w[:bi], corner) for corner in corners]
                tiles.append(np.stack(of_outputs, axis=1).reshape(-1, *of_outputs[0].shape[1:]))
            return np.concatenate(tiles)

        return context.load_weights(key, (box.blocks + len(again) + len(missing)) * config.dw_slices, make)

    def _block_weights(self, block: int, blocks: int, block_in: int) -> np.ndarray:
        """Returns the weights of channel blocks, int8 [blocks * block_in, kh, kw], zeros in lanes without a channel."""
        c0, c1 = block * block_in, min((block + blocks) * block_in, self.weights.shape[0])
        w = np.zeros((blocks * block_in, *self.weights.shape[1:]), np.int8)
        w[: c1 - c0] = self.weights[c0:c1]
        return w

    def _load_params(self, context: Context, box: Box) -> int:
        """Loads the biases and scales of a box into PRM unless they are there; returns the first row."""
        lanes = context.config.block_in
        return context.load_params(
            (self.constants_key, box.block, box.blocks), box.blocks,
            lambda: channel_params(self.bias, self.scale, box.block, box.blocks, lanes),
        )  # fmt: skip


def _cuts(y: View, height: int) -> list[tuple[int, int]]:
    """Returns the bands (rows, columns) that `height` rows of an output can be cut into."""
    return [*bands(height, y.w, [lines for lines in _SHORT_BANDS if lines <= height], _ROW_PARTS)]


def _acc_rows(config: NpuConfig, pixels: Size, blocks: Size) -> Size:
    """Returns the rows of ACC that `pixels` sums take in each of `blocks` channel blocks."""
    rows: Size = -(-pixels * blocks * config.block_in // config.block_out)
    return rows


def _tap(p: WindowPass, i: int, j: int) -> tuple[int, int]:
    """Returns the (row, column) in the kernel of tap i along the lines and j across them."""
    along, across = p.along.first + i * p.along.every, p.across.first + j * p.across.every
    return (along, across) if p.axis == 0 else (across, along)


def _packed(config: NpuConfig, w: np.ndarray, taps: Iterable[tuple[int, tuple[int, int]]]) -> np.ndarray:
    """Returns tiles [slice][block] of [lane][slot] with weights of w [channels, kh, kw] at each (slot, tap)."""
    blocks = len(w) // config.block_in
    tiles = np.zeros((blocks, config.dw_slices, config.block_out, config.block_in), np.int8)
    per_lane = w.reshape(blocks, config.dw_slices, config.dw_lanes, *w.shape[1:])
    for slot, (ky, kx) in taps:
        tiles[:, :, : config.dw_lanes, slot] = per_lane[..., ky, kx]
    return tiles.transpose(1, 0, 2, 3).reshape(-1, config.block_out, config.block_in)
