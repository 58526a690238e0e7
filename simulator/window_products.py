"""Products of depthwise layers: the window steps that a program must make for them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tilewright.isa.config import NpuConfig
from tilewright.isa.encoding import Op
from tilewright.isa.instructions import Memory
from tilewright.isa.program import CONSTANT_REGION, Layer


def window_products(ops: Sequence[Op], config: NpuConfig, constants: bytes) -> np.ndarray:
    """MACs of every DEPTHWISE instruction, without lanes and slots that have no weights; 0 for other instructions."""
    products = np.zeros(len(ops), np.int64)
    if not any(o.name == "DEPTHWISE" for o in ops):
        return products
    tiles: dict[int, int] = {}  # WGT row -> offset in the constants
    useful: dict[int, int] = {-1: 0}

    def taps(row: int) -> int:
        at = tiles.get(row, -1)
        if at not in useful:
            tile = np.frombuffer(constants, np.int8, config.tile_bytes, at).reshape(config.block_out, -1)
            used = tile[: config.dw_lanes] != 0
            useful[at] = int(used.any(0).sum() * used.any(1).sum())
        return useful[at]

    loops, box = _reset(config)
    for i, o in enumerate(ops):
        if o.name == "END":
            loops, box = _reset(config)
        elif o.name == "GEMM_LOOP":
            loops[o["level"]] = o["count"], o["wgt_stride"]
        elif o.name == "LOAD_DIM":
            box[o["level"]] = o["count"], o["row_stride"], o["mem_stride"]
        elif o.name == "LOAD" and o["target"] == Memory.WGT:  # weights of windows are never packed
            for z, y, x in np.ndindex(box[1][0], box[0][0], o["count"]):
                row = o["row"] + z * box[1][1] + y * box[0][1] + x
                at = o["offset"] + z * box[1][2] + y * box[0][2] + x * config.tile_bytes
                inside = o["region"] == CONSTANT_REGION and 0 <= at <= len(constants) - config.tile_bytes
                tiles[row] = at if inside else -1
        elif o.name == "DEPTHWISE":
            emissions = math.prod(
                max(0, (loops[level][0] - 1 - o[f"start{level}"]) // o[f"step{level}"] + 1) for level in (0, 1)
            )
            rows = [o["wgt"]]
            for count, stride in loops[2:]:
                rows = [r + n * stride for r in rows for n in range(count)] if stride else rows * count
            products[i] = emissions * sum(map(taps, rows))
    return products


def _reset(config: NpuConfig) -> tuple[list[tuple[int, int]], list[tuple[int, int, int]]]:
    """Loops (count, stride in WGT) and box of LOAD (count, row stride, bytes) after reset."""
    return [(1, 0)] * config.gemm_loops, [(1, 0, 0)] * 2


def window_steps(members: Sequence[Layer], products: np.ndarray, pcs: tuple[int, int]) -> int:
    """Fewest window steps of the depthwise layers among fused ones: those whose MACs are nearest to the window's."""
    computed = int(products[slice(*pcs)].sum())
    sums = {0: 0}
    for layer in members[:12]:
        sums |= {macs + layer.macs: steps + layer.minimum_steps for macs, steps in sums.items()}
    return sums[min(sums, key=lambda macs: abs(macs - computed))]
