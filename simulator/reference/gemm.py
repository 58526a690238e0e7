"""GEMM: the array of multipliers and its window."""

from __future__ import annotations

import math

import numpy as np

from tilewright.isa import numerics
from tilewright.isa.encoding import Op
from tilewright.isa.instructions import Engine
from tilewright.isa.timing import window_pairs
from tilewright.simulator.reference.chip import Chip
from tilewright.simulator.reference.loops import Loop, loop_of, offset, offsets, walk


class Gemm:
    """GEMM with its configuration after reset; a method for each instruction."""

    def __init__(self, chip: Chip) -> None:
        self.chip = chip
        self.gemm_loops = [Loop(1, {})] * chip.config.gemm_loops

    def gemm_loop(self, op: Op) -> None:
        self.gemm_loops[op["level"]] = loop_of(op)

    def gemm(self, op: Op) -> None:
        config, loops = self.chip.config, self.gemm_loops
        self._spend_macs(math.prod(loop.count for loop in loops))
        inner, outer = loops[: op["reduce"]], loops[op["reduce"] :]
        act_inner, wgt_inner = offsets(inner, "act_stride"), offsets(inner, "wgt_stride")
        acc = self.chip.pads.acc.reshape(config.acc_rows, config.block_out)
        for index in walk(outer):
            act_base = op["act"] + offset(outer, index, "act_stride")
            wgt_base = op["wgt"] + offset(outer, index, "wgt_stride")
            acc_base = op["acc"] + offset(outer, index, "acc_stride")
            act_rows, wgt_rows = [], []
            for a, w in zip(act_inner.tolist(), wgt_inner.tolist()):
                act_rows.append(self.chip.act_row(act_base + a))
                wgt_rows.append(self.chip.row("WGT", wgt_base + w, config.wgt_tiles))
                row = self.chip.row("ACC", acc_base, config.acc_rows)
            vectors = self.chip.pads.act[act_rows].astype(np.int64)  # [n, block_in]
            tiles = self.chip.pads.wgt[wgt_rows].astype(np.int64)  # [n, block_out, block_in]
            total = (tiles @ vectors[:, :, None]).sum(axis=(0, 2))
            acc[row] = numerics.wrap32(total + (acc[row] if op["accumulate"] else 0))

    def depthwise(self, op: Op) -> None:
        config, loops = self.chip.config, self.gemm_loops
        lanes = config.dw_lanes
        self._spend_macs(self._window_steps(op))
        acc = self.chip.pads.acc.reshape(config.acc_dw_rows, lanes)
        first_lane = op["slice"] * lanes
        slots = np.arange(config.block_in)
        age = slots + op["delay"] * (slots // config.window_segment)  # in pushes
        window = np.zeros((age[-1] + 1, lanes), np.int64)  # row 0 is the newest
        for index in walk(loops):
            row = self.chip.act_row(op["act"] + offset(loops, index, "act_stride"))
            window = np.roll(window, 1, axis=0)
            window[0] = self.chip.pads.act[row, first_lane : first_lane + lanes]
            past0, past1 = index[0] - op["start0"], index[1] - op["start1"]
            if past0 < 0 or past0 % op["step0"] or past1 < 0 or past1 % op["step1"]:
                continue
            emission = (past0 // op["step0"], past1 // op["step1"], *index[2:])
            tile = self.chip.row("WGT", op["wgt"] + offset(loops, index, "wgt_stride"), config.wgt_tiles)
            out = self.chip.row("ACC", op["acc"] + offset(loops, emission, "acc_stride"), config.acc_dw_rows)
            products = self.chip.pads.wgt[tile, :lanes, :].astype(np.int64) * window[age].T  # [lanes, slots]
            acc[out] = numerics.wrap32(products.sum(axis=1) + (acc[out] if op["accumulate"] else 0))

    def _window_steps(self, op: Op) -> int:
        """Counts the steps of a DEPTHWISE push by push."""
        steps, first, last = 0, self.gemm_loops[0], self.gemm_loops[0].count - 1
        pairs = window_pairs(self.chip.config, first["act_stride"], first["wgt_stride"], op["delay"])
        second = False  # the push goes together with the one before
        for number, (i0, i1, *_) in enumerate(walk(self.gemm_loops)):
            past0, past1 = i0 - op["start0"], i1 - op["start1"]
            emits = past0 >= 0 and past0 % op["step0"] == 0 and past1 >= 0 and past1 % op["step1"] == 0
            steps += not second
            second = pairs and not second and not emits and number > 0 and i0 < last
        return steps

    def _spend_macs(self, steps: int) -> None:
        self.chip.spend(Engine.GEMM, steps)
        self.chip.counts.macs += steps * self.chip.config.macs_per_cycle

    def gemm_sync(self, op: Op) -> None:
        self.chip.spend(Engine.GEMM, 1)
