"""STORE: boxes of ACT to memory."""

from __future__ import annotations

import numpy as np

from tilewright.isa.encoding import Op
from tilewright.isa.instructions import Engine
from tilewright.simulator.reference.chip import Chip
from tilewright.simulator.reference.loops import Loop, loop_of


class Store:
    """STORE with its configuration after reset; a method for each instruction."""

    def __init__(self, chip: Chip) -> None:
        self.chip = chip
        self.store_box = [Loop(1, {}), Loop(1, {})]

    def store_dim(self, op: Op) -> None:
        self.store_box[op["level"]] = loop_of(op)

    def store(self, op: Op) -> None:
        y_loop, z_loop = self.store_box
        nbytes = op["count"] * self.chip.config.block_in
        self.chip.spend(Engine.STORE, z_loop.count * y_loop.count * nbytes // self.chip.config.bus_bytes)
        for z in range(z_loop.count):
            for y in range(y_loop.count):
                start = op["offset"] + z * z_loop["mem_stride"] + y * y_loop["mem_stride"]
                first = op["row"] + z * z_loop["row_stride"] + y * y_loop["row_stride"]
                data = self.chip.write(op["region"], self.chip.offset(start), nbytes).reshape(
                    -1, self.chip.config.block_in
                )
                for x in range(op["count"]):
                    data[x] = self.chip.pads.act[self.chip.act_row(first + x)].view(np.uint8)

    def store_sync(self, op: Op) -> None:
        self.chip.spend(Engine.STORE, 1)
