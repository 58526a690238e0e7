"""Weights, biases and scales of convolutions and matrix products, and their loads into WGT and PRM."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Protocol

import numpy as np
from msgspec import Struct

from tilewright.compiler.npu.emit.context import Context, bytes_of_tiles
from tilewright.compiler.npu.emit.geometry import Box
from tilewright.compiler.npu.emit.tile_program import Place
from tilewright.compiler.npu.layers.conv_tiling import ConvShape
from tilewright.compiler.npu.layers.params import are_uniform, channel_params, uniform_params
from tilewright.isa.instructions import Memory
from tilewright.isa.program import ARENA_REGION

#: Largest number of weights that are known by their values.
_FEW_WEIGHTS = 1 << 12


class DynamicWeights(Struct):
    """Weights made at run time: tiles [OB][KB] and PRM rows for each batch item, in the arena.

    Attributes:
        tiles: name of the buffer of weight tiles.
        params: name of the buffer of PRM rows; None where biases and scales are constants.
        k: products per output.
        zero_point: zero point of the second operand; constant tiles or `RowSums` account for it.
        offset: byte of the first tile in its buffer.
        strides: bytes from one batch item to the next, from one row of tiles, from one input block.
        group: images in a row that share a batch item, such as heads of queries that share keys.
    """

    tiles: str
    params: str | None
    k: int
    zero_point: int
    offset: int
    strides: tuple[int, int, int]
    group: int = 1


class Weighted(Protocol):
    """The fields of a layer with weights that `ConvConstants` needs, such as those of `ConvLayer`."""

    bias: np.ndarray
    scale: np.ndarray
    group: int
    dynamic: DynamicWeights | None


class ConvConstants:
    """Loads the constants of a layer, or of some of its output rows.

    Args:
        context: the emission.
        layer: the layer.
        s: sizes of the layer.
    """

    def __init__(self, context: Context, layer: Weighted, s: ConvShape) -> None:
        self.context, self.layer, self.s = context, layer, s

    def rest(self, index: int, block: int, rows: int, first: int, piece: int) -> list[tuple[int, ...]]:
        """Returns the tiles of the phase's rest that belong to a piece of the weights, as `Rest.part` lists them.

        Args:
            index: number of the phase.
            block, rows: first channel block of the output, and number of GEMM output blocks.
            first, piece: first input block, and number of them.
        """
        rest, config = self.s.phases[index].rest, self.context.config
        start = block * config.block_in // config.block_out
        return [] if rest is None else rest.part(range(start, start + rows), range(first, first + piece))

    def weights(self, n: int, index: int, block: int, rows: int, first: int, piece: int) -> int:
        """Loads the weights of a piece into WGT unless they are there; returns the first row.

        Args:
            n: image, which selects dynamic weights.
            index: number of the phase.
            block, rows: first channel block of the output, and number of GEMM output blocks.
            first, piece: first input block, and number of them.
        """
        dynamic = self.layer.dynamic
        key = (self._content(index), block, rows, first, piece)
        if dynamic is None:
            taps = self.s.phases[index].weights.shape
            singles = self.rest(index, block, rows, first, piece)
            if self._whole(index):
                return self._part_of_weights(key, index, block, rows, first, piece)
            count = rows * taps[0] * taps[3] * taps[4] * piece + len(singles)
            return self.context.load_weights(
                key,
                count,
                lambda: self._pack(index, block, rows, first, piece, singles),
                packed=self.s.phases[index].packed,
            )
        item = n // dynamic.group
        at = self.context.weights.find((*key, item))
        if at is None:
            config = self.context.config
            where = item, block * config.block_in // config.block_out, first
            at = self.context.weights.take(rows * piece, (*key, item))
            offset = self.context.offsets[dynamic.tiles] + dynamic.offset
            offset += sum(i * stride for i, stride in zip(where, dynamic.strides, strict=True))
            self.context.emitter.load(
                Place(ARENA_REGION, offset), Memory.WGT, at, 1, y=(piece, 1, dynamic.strides[2]),
                z=(rows, piece, dynamic.strides[1]),
            )  # fmt: skip
        return at

    def _content(self, index: int) -> Hashable:
        """Returns a key of a phase's weights: few are known by their values, so that layers that move channels alike
        find those of another one."""
        phase, s = self.s.phases[index], self.s
        if self.layer.dynamic is None and phase.rest is None and not s.grouped and phase.weights.size <= _FEW_WEIGHTS:
            return phase.weights.shape, phase.weights.tobytes(), phase.packed
        return id(self.layer), index

    def _whole(self, index: int) -> bool:
        """Returns True if programs share the weights of a phase as one constant, those of an ordinary product."""
        if not self.context.constants.shared or self.layer.dynamic is not None:
            return False
        phase, s = self.s.phases[index], self.s
        return phase.rest is None and not s.grouped and phase.weights.shape[0] == 1 and phase.kernel == (1, 1)

    @property
    def _rows(self) -> int:
        """The number of GEMM output blocks of all channels."""
        config, y = self.context.config, self.s.y
        return max(-(-y.c // config.block_out), y.cb * config.block_in // config.block_out)

    def _part_of_weights(self, key: Hashable, index: int, block: int, rows: int, first: int, piece: int) -> int:
        """Loads a piece of weights that lie in memory as [row][input block], whole; returns the first WGT row."""
        at = self.context.weights.find(key)
        if at is None:
            config, kb = self.context.config, self.s.x.cb
            at = self.context.weights.take(rows * piece, key)
            row = block * config.block_in // config.block_out
            is_packed = self.s.phases[index].packed
            tile_bytes = config.packed_tile_bytes if is_packed else config.tile_bytes
            place = self.context.shared_place(
                (id(self.layer), "weights", index),
                lambda: bytes_of_tiles(self._pack(index, 0, self._rows, 0, kb, []), is_packed),
                (row * kb + first) * tile_bytes,
            )
            if piece == kb:
                self.context.emitter.load(place, Memory.WGT, at, rows * piece, packed=is_packed)
            else:
                lines = (rows, piece, kb * tile_bytes)
                self.context.emitter.load(place, Memory.WGT, at, piece, y=lines, packed=is_packed)
        return at

    def _pack(
        self, index: int, block: int, rows: int, first: int, piece: int, singles: list[tuple[int, ...]]
    ) -> np.ndarray:
        """Returns tiles [row][set][ky][kx][input block] of block_out x block_in, then single tiles of the rest."""
        config, s = self.context.config, self.s
        bi, bo = config.block_in, config.block_out
        w = s.phases[index].weights
        sets, _, _, kh, kw = w.shape
        o0, o1 = block * bi, min(block * bi + rows * bo, s.y.c)
        if not s.grouped:
            dense = np.zeros((sets, rows * bo, piece * bi, kh, kw), np.int8)
            c0, c1 = first * bi, min((first + piece) * bi, w.shape[2])
            dense[:, : o1 - o0, : c1 - c0] = w[:, o0:o1, c0:c1]
        else:
            outs, ins = s.y.c // self.layer.group, s.x.c // self.layer.group
            whole = np.zeros((sets, rows * bo, s.x.cb * bi, kh, kw), np.int8)
            for o in range(o0, o1):
                c = o // outs * ins
                whole[:, o - o0, c : c + ins] = w[:, o]
            dense = whole[:, :, first * bi : (first + piece) * bi]
        split = dense.reshape(sets, rows, bo, piece, bi, kh, kw)
        packed = split.transpose(1, 0, 5, 6, 3, 2, 4).reshape(-1, bo, bi)
        rest = s.phases[index].rest
        return packed if rest is None or not singles else np.concatenate([packed, rest.pack(singles, config)])

    def params(self, q: Box, index: int) -> tuple[int, int]:
        """Loads the biases and scales of a chunk into PRM unless they are there.

        Where all channels of the layer have the same, that is one row.

        Args:
            q: box whose image and channel blocks are the chunk.
            index: number of the phase.

        Returns:
            The first row, and the rows from one channel block to the next, 0 or 1.
        """
        config, dynamic = self.context.config, self.layer.dynamic
        block, blocks = q.block, q.blocks
        if dynamic is not None and dynamic.params is not None:
            item = q.n // dynamic.group
            key = (id(self.layer), "dynamic", item, block, blocks)
            at = self.context.params.find(key)
            if at is None:
                at = self.context.params.take(blocks, key)
                row = item * self.s.y.cb + block
                place = Place(ARENA_REGION, self.context.offsets[dynamic.params] + row * config.prm_row_bytes)
                self.context.emitter.load(place, Memory.PRM, at, blocks)
            return at, 1

        biases, scale = np.atleast_2d(self.layer.bias), self.layer.scale
        bias = biases[index if len(biases) > 1 else 0]
        if scale.dtype == np.float32 and are_uniform(bias, scale, config.block_in):
            return uniform_params(self.context, int(bias[0]), scale[0]), 0
        whole = self._whole(index)

        def make() -> tuple[np.ndarray, np.ndarray]:
            first, count = (0, self.s.y.cb) if whole else (block, blocks)
            return channel_params(bias, scale, first, count, config.block_in)

        shared = ((id(self.layer), "params", index), block) if whole else None
        return self.context.load_params((id(self.layer), index, block, blocks), blocks, make, shared), 1
