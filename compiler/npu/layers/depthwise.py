"""Depthwise convolutions in the array's window mode (`depthwise_passes.py` tells how it works)."""

from __future__ import annotations

import functools
import math
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from compiler.npu.emit.context import Context
from compiler.npu.emit.geometry import Border, Box
from compiler.npu.emit.loops import Loop
from compiler.npu.emit.plan import Pools, TilePlan
from compiler.npu.emit.tiles import ActTile
from compiler.npu.layers.accumulators import emit_accumulators, emit_wide, read_add_operand
from compiler.npu.layers.depthwise_passes import Slots, WindowPass, plan_passes
from compiler.npu.layers.layer import Layer
from compiler.npu.layers.products import least_constants
from compiler.npu.layers.rest import Rest
from compiler.npu.layers.sliding_window import SlidingWindow
from compiler.npu.layers.tiling import Bus, OutputRows, PlaneTiling, bands, boxes, chosen_rows
from isa.config import NpuConfig

_TILE_OVERHEAD = 15
#: Rows of bands that hold only a part of each row, and the parts that rows are cut into.
_SHORT_BANDS = (1, 2, 4, 6, 8, 12)
_ROW_PARTS = (2, 3, 4, 8, 16, 32, 64)


class WindowTiling(PlaneTiling):
    """Tiles of a layer in the array's window mode."""

    def __str__(self) -> str:
        return f"{super().__str__()} (window)"


@dataclass
class DepthwiseLayer(Layer):
    """Depthwise convolution (multiplier 1) in the array's window mode.

    Attributes:
        weights: int8 [C, kh, kw]. bias: int32 [C]. scale: float32 [C]. Of an output of 16 bits, bias and scale as
            VECTOR_WIDE has them.
        pad, stride, dilation: (rows, columns).
        fill: the input's zero point, which padding gets.
        rest: what comes on top of the weights; its blocks of channels are pushed once more.
    """

    datapath = "window"
    cheapest = True

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
    def window(self) -> SlidingWindow:
        return SlidingWindow((self.weights.shape[1], self.weights.shape[2]), self.pad, self.stride, self.dilation)

    def plans(
        self, context: Context, budget: int, span: tuple[int, int] | None = None, every: bool = False
    ) -> Iterator[TilePlan[WindowTiling]]:
        best = math.inf
        config = context.config
        x, y, nbytes = self.inputs[0], self.output.first_bytes, self.output.bytes
        resident_in, resident_out = context.on_chip(x), context.on_chip(y)
        room = context.accumulators.rows
        height, images = (y.h, y.n) if span is None else (span[1] - span[0], 1)
        load_add = self.post.add is not None and not context.on_chip(self.post.add.other)
        slices, window = config.dw_slices, self.window
        reading, writing, latency = Bus.of(config, context.memory)
        again = len({(tile[0], tile[4]) for tile in self.rest.tiles}) if self.rest is not None else 0
        short = [lines for lines in _SHORT_BANDS if lines <= height]
        for lines, columns in bands(height, y.w, short, _ROW_PARTS):
            vectors = nbytes * math.prod(window.extent(lines, columns))
            passes, pushes = plan_passes(Slots.of(config), window, (lines, columns))
            count_bands = -(-height // lines) * -(-y.w // columns)
            for parts in range(1, y.cb + 1):
                blocks = -(-y.cb // parts)
                if parts > 1 and blocks == -(-y.cb // (parts - 1)):
                    continue
                several = count_bands * parts * images > 1
                acc = nbytes * _acc_rows(config, lines * columns, blocks)
                tiles = 2 * len(passes) * slices * (blocks + min(again, blocks * self._sets))
                if acc > room // (2 if several else 1) or tiles > config.wgt_tiles // 2:
                    continue
                if blocks > config.prm_rows:
                    continue
                out_rows = 0 if resident_out else nbytes * lines * columns * blocks
                add_rows = lines * columns * blocks if load_add else 0
                in_rows = 0 if resident_in else vectors * blocks
                depth = 2 if several else 1
                if depth * (in_rows + out_rows + add_rows) > budget:
                    continue
                count = count_bands * -(-y.cb // blocks) * images
                read = count * (in_rows + add_rows) * config.block_in
                read += len(passes) * slices * (y.cb + again) * config.tile_bytes
                work = max(
                    nbytes * images * count_bands * pushes * (y.cb + again) * slices,
                    read / reading * 1.05,
                    nbytes**2 * images * y.cb * height * y.w,  # a step for each sum and byte of a result
                    0 if resident_out else self.output.nbytes * height / (y.h * y.n * writing),
                )
                start = latency + (in_rows * config.block_in + tiles * config.tile_bytes / 2) / reading
                end = nbytes * lines * columns * blocks * (1 if resident_out else config.block_in / writing)
                cycles = work + start + end + count * _TILE_OVERHEAD
                if every or cycles < best:
                    best = cycles
                    pools = Pools(depth * in_rows, depth * out_rows, depth * add_rows)
                    yield TilePlan(WindowTiling(lines, columns, blocks), pools, cycles)

    def emit(self, context: Context, plan: TilePlan[Any], rows: OutputRows | None = None) -> None:
        """Channel blocks outside (their weights stay), bands inside."""
        images, first, end = chosen_rows(self.output, rows)
        with context.pools(plan.pools):
            y = self.output.first_bytes
            for block in range(0, y.cb, plan.tiling.blocks):
                for n in images:
                    for box in boxes(y, plan.tiling, block, n, first, end):
                        self._emit_tile(context, box)

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
            yield least_constants([self.weights], [self.rest], self.bias, self.scale)

    def _emit_tile(self, context: Context, box: Box) -> None:
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
            self._push(context, box, tile, acc + number * acc_rows)
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

    def _push(self, context: Context, box: Box, tile: ActTile, acc: int) -> None:
        """Emits the pushes of a tile, whose sums begin at row `acc` of ACC."""
        config, window = context.config, self.window
        slices, lanes = config.dw_slices, config.dw_lanes
        lines, columns, pixels = box.lines, box.columns, box.lines * box.columns
        acc_dw = acc * config.block_out // lanes
        passes, _ = plan_passes(Slots.of(config), window, (lines, columns))
        for number, p in enumerate(passes):
            push = functools.partial(
                context.emitter.depthwise, start=(p.rows.reach, p.columns.reach), step=(p.rows.emit, p.columns.emit)
            )
            again = self._again(box, p)
            along = (p.columns.pushes(columns), p.columns.push, 0, slices)
            full, rest = divmod(lines, p.strip)
            parts = [(0, full, p.strip)] if full else []
            if rest:
                parts.append((full * p.strip, 1, rest))
            for first, strips, rows_out in parts:
                wgt = self._load_weights(context, box, p, rows_out, again)
                delay = Slots.of(config).delay(p.rows, p.columns, p.rows.pushes(rows_out))
                origin = tile.base + (first * self.stride[0] + p.rows.first * self.dilation[0]) * tile.line
                origin += p.columns.first * self.dilation[1]
                for s in range(slices):
                    loops: list[Loop] = [
                        (p.rows.pushes(rows_out), p.rows.push * tile.line, 0, columns * slices),
                        along,
                        (strips, p.strip * self.stride[0] * tile.line, 0, p.strip * columns * slices),
                    ]
                    several = (box.blocks, tile.plane, 1, pixels * slices)
                    at = acc_dw + first * columns * slices + s
                    push(
                        origin, wgt + s * box.blocks, at, [*loops, several],
                        lanes_slice=s, delay=delay, accumulate=number > 0,
                    )  # fmt: skip
                    single = wgt + slices * box.blocks + s * len(again)
                    for i, (_, block) in enumerate(again):
                        block -= box.block
                        push(
                            origin + block * tile.plane, single + i, at + block * pixels * slices, loops,
                            lanes_slice=s, delay=delay, accumulate=True,
                        )  # fmt: skip

    @property
    def _sets(self) -> int:
        return self.rest.sets if self.rest is not None else 0

    def _again(self, box: Box, p: WindowPass) -> list[tuple[int, int]]:
        """(set, block of channels) that one pass pushes once more: those with a weight under its taps."""
        if self.rest is None:
            return []
        rows, columns = ([g.first + i * g.every for i in range(g.taps)] for g in (p.rows, p.columns))
        blocks = range(box.block, box.block + box.blocks)
        return sorted(
            {(s, block) for s, _, ky, kx, block in self.rest.tiles if block in blocks and ky in rows and kx in columns}
        )

    def _load_weights(
        self, context: Context, box: Box, p: WindowPass, rows_out: int, again: list[tuple[int, int]]
    ) -> int:
        """Tiles [slice][block] of [lane][slot] for one pass with columns of rows.pushes(rows_out) pushes, behind them
        [slice][once more]."""
        config = context.config
        slots, height = Slots.of(config), p.rows.pushes(rows_out)
        key = (id(self), box.block, box.blocks, p.rows, p.columns, height)
        bi, bo, lanes, slices = config.block_in, config.block_out, config.dw_lanes, config.dw_slices

        def packed(w: np.ndarray) -> np.ndarray:
            blocks = len(w) // bi
            tiles = np.zeros((blocks, slices, bo, bi), np.int8)
            per_lane = w.reshape(blocks, slices, lanes, *w.shape[1:])
            for i in range(p.rows.taps):
                for j in range(p.columns.taps):
                    back = p.rows.taps - 1 - i, p.columns.taps - 1 - j
                    slot = slots.slot(p.rows, p.columns, height, *back)
                    ky, kx = p.rows.first + i * p.rows.every, p.columns.first + j * p.columns.every
                    tiles[:, :, :lanes, slot] = per_lane[:, :, :, ky, kx]
            return tiles.transpose(1, 0, 2, 3).reshape(-1, bo, bi)

        def make() -> np.ndarray:
            c0, c1 = box.block * bi, min((box.block + box.blocks) * bi, self.weights.shape[0])
            w = np.zeros((box.blocks * bi, *self.weights.shape[1:]), np.int8)
            w[: c1 - c0] = self.weights[c0:c1]
            if self.rest is None or not again:
                return packed(w)
            more = [self.rest.window(s, range(block * bi, (block + 1) * bi), w.shape[1:]) for s, block in again]
            return np.concatenate([packed(w), packed(np.concatenate(more))])

        return context.load_weights(key, (box.blocks + len(again)) * slices, make)

    def _load_params(self, context: Context, box: Box) -> int:
        bi = context.config.block_in

        def make() -> tuple[np.ndarray, np.ndarray]:
            bias = np.zeros(box.blocks * bi, np.int32)
            scale = np.zeros(box.blocks * bi, self.scale.dtype)
            c0, c1 = box.block * bi, min((box.block + box.blocks) * bi, self.weights.shape[0])
            bias[: c1 - c0], scale[: c1 - c0] = self.bias[c0:c1], self.scale[c0:c1]
            return bias, scale

        return context.load_params((id(self), box.block, box.blocks), box.blocks, make)


def _acc_rows(config: NpuConfig, pixels: int, blocks: int) -> int:
    return -(-pixels * blocks * config.block_in // config.block_out)
