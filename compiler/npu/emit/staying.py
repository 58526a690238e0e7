"""Weights that stay in WGT from run to run: which tiles the loads of a program write, and whether they stay there."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from tilewright.compiler.errors import CompileError
from tilewright.isa.codes import CodeMode
from tilewright.isa.config import NpuConfig
from tilewright.isa.encoding import Op
from tilewright.isa.instructions import Memory
from tilewright.isa.program import CONSTANT_REGION


def require_staying(ops: Iterable[Op], config: NpuConfig) -> None:
    """Checks that no load of a program writes a tile of WGT over one of its weights.

    Args:
        ops: the instructions of the program's only NPU step.

    Raises:
        CompileError: it does; the message names the tiles that are loaded, and those that WGT has.
    """
    writes, stays = np.zeros(config.wgt_tiles, np.int64), np.zeros(config.wgt_tiles, bool)
    loaded = 0
    for region, rows in _writes(ops, config):
        writes[rows] += 1
        loaded += len(rows)
        stays[rows] |= region == CONSTANT_REGION
    if (writes[stays] > 1).any():
        raise CompileError(
            f"the weights do not stay in WGT: the program loads {loaded} tiles, "
            f"wgt_tiles of {config.name!r} is {config.wgt_tiles}"
        )


def _writes(ops: Iterable[Op], config: NpuConfig) -> Iterable[tuple[int, np.ndarray]]:
    """Yields the region and the tiles, modulo the machine's addresses, of every load to WGT."""
    mask = (1 << config.address_bits) - 1
    dims, pad = {0: (1, 0), 1: (1, 0)}, dict.fromkeys(("left", "right", "top", "bottom"), 0)
    for op in ops:
        if op.name == "LOAD_DIM":
            dims[op["level"]] = op["count"], op["row_stride"]
        elif op.name == "LOAD_PAD":
            pad = {name: op[name] for name in pad}
        elif op.name == "LOAD_CODED" and op["mode"] == CodeMode.WEIGHTS:
            yield op["region"], np.arange(op["row"], op["row"] + op["count"]) & mask
        elif op.name in ("LOAD", "LOAD_PACKED") and op["target"] == Memory.WGT:
            (lines, line), (planes, plane) = dims[0], dims[1]
            run = np.arange(pad["left"] + op["count"] + pad["right"])
            starts = np.arange(pad["top"] + lines + pad["bottom"])[:, None] * line + run
            rows = op["row"] + (np.arange(planes)[:, None] * plane + starts.reshape(1, -1))
            yield op["region"], rows.reshape(-1) & mask
