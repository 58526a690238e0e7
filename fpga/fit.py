"""Checks before synthesis, which takes minutes, that a configuration can fit on a board at all.

The counts are a lower bound, so nothing that fits is refused. DSP blocks and block RAMs that are missing become LUTs
(`tilewright.fpga.flows.into_luts`), so LUTs and flip-flops decide.
"""

from __future__ import annotations

import math

from tilewright.fpga.area import load
from tilewright.fpga.area.memories import CELLS, scratchpad_shapes
from tilewright.fpga.board import BLOCK_RAM, Board, Point
from tilewright.fpga.cells import Capacity
from tilewright.fpga.errors import FpgaError
from tilewright.fpga.uart_board import UartBoard
from tilewright.fpga.zynq.boards import ZynqBoard
from tilewright.isa.config import PRESETS, NpuConfig

#: Bits of the largest block RAM of which `Capacity.bram` counts one.
_BLOCK_BITS = 18 << 10
#: KiB of one without its parity bits.
_BLOCK_KIB = 2
#: LUTs of a product of two bytes, at least: its seven sums have nine bits each, and a LUT of six inputs adds two rows.
_PRODUCT_LUTS = 32
#: Families without a model, each with the one whose model stands in (of LUTs with as many inputs), and the part of its
#: counts that is taken for sure.
_STAND_INS, _SURE = {"xcup": "xc7"}, 0.8
#: Part of the flip-flops that a flow moves into block RAMs and multipliers, at most; others keep what they are given.
_INTO_BLOCKS = {"ecp5": 0.15, "gowin": 0.15}


def _model_of(family: str) -> str:
    return _STAND_INS.get(family, family)


def lower_bound(config: NpuConfig, family: str, capacity: Capacity, memory_kib: int = 0) -> dict[str, int]:
    """A lower bound of the NPU's LUTs and flip-flops on an FPGA, by the area model.

    Args:
        family: family in `tilewright.fpga.bare.resources.FAMILIES`.
        capacity: capacity of the FPGA, whose DSP blocks and block RAMs are used up before LUTs are.
        memory_kib: block RAM beside the NPU, in KiB.
    """
    model = load(_model_of(family))
    found = model.estimate(config)
    sure = {name: (1 - model.error[name]) * (1 if model.family == family else _SURE) for name in ("lut", "ff", "dsp")}
    products = max(0.0, sure["dsp"] * found.dsp - capacity.dsp)
    bits = sum(width * words for width, words in scratchpad_shapes(config)) + (memory_kib << 13)
    dense = max(cell.width * cell.words / cell.luts for cell in CELLS[family] if cell.luts)
    stored = max(0, bits - capacity.bram * _BLOCK_BITS) / dense
    return {
        "LUTs": math.floor(sure["lut"] * found.lut + products * _PRODUCT_LUTS + stored),
        "flip-flops": math.floor(sure["ff"] * (1 - _INTO_BLOCKS.get(family, 0)) * found.ff),
    }


def _fits(board: UartBoard | ZynqBoard, config: NpuConfig, memory_kib: int) -> bool:
    needs = lower_bound(config, board.family, board.capacity, memory_kib)
    return needs["LUTs"] <= board.capacity.lut and needs["flip-flops"] <= board.capacity.ff


def require_fit(board: Board, config: NpuConfig, point: Point) -> None:
    """Raises `FpgaError` if the configuration cannot fit on the board, with the estimate and the presets that fit."""
    if not isinstance(board, UartBoard | ZynqBoard) or board.family not in CELLS:
        return  # nothing is known of its cells
    kib = point.memory_kib if point.memory == BLOCK_RAM else 0
    if _fits(board, config, kib):
        return
    model, has = load(_model_of(board.family)), board.capacity
    found = model.estimate(config)
    whose = "" if model.family == board.family else f" of {model.family}, another family,"
    memory = f" with {kib} KiB of memory" if kib else ""
    raise FpgaError(
        f"{config.name}{memory} cannot fit on {board.name}: the area model{whose} gives {found.lut:,} LUTs, "
        f"{found.ff:,} flip-flops, {found.dsp:,} DSP multipliers and {found.bram + kib // _BLOCK_KIB:,} block RAMs; "
        f"the board has {has.lut:,}, {has.ff:,}, {has.dsp:,} and {has.bram:,}; {_fitting(board)}; --anyway builds all "
        "the same"
    )


def _fitting(board: UartBoard | ZynqBoard) -> str:
    if board.points:
        return f"known to fit: {', '.join(board.points)}"
    kib = board.other.memory_kib if board.other.memory == BLOCK_RAM else 0
    names = [name for name, preset in PRESETS.items() if _fits(board, preset, kib)]
    return f"may fit by the same estimate: {', '.join(names) or 'no preset'}"
