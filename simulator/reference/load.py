"""LOAD: boxes of memory to the scratchpads."""

from __future__ import annotations

import math

import numpy as np

from tilewright.isa import codes
from tilewright.isa.encoding import Op
from tilewright.isa.error_codes import ErrorCode
from tilewright.isa.instructions import BY_NAME, Engine, Memory
from tilewright.isa.packing import unpacked
from tilewright.simulator.reference.chip import Chip
from tilewright.simulator.reference.loops import Loop, loop_of
from tilewright.simulator.state import Fault


class Load:
    """LOAD with its configuration after reset; a method for each instruction."""

    def __init__(self, chip: Chip) -> None:
        self.chip = chip
        self.load_box = [Loop(1, {}), Loop(1, {})]
        self.pad = Op(BY_NAME["LOAD_PAD"])
        self.codes = codes.Decoder(chip.config)

    def load_dim(self, op: Op) -> None:
        self.load_box[op["level"]] = loop_of(op)

    def load_pad(self, op: Op) -> None:
        self.pad = op

    def load(self, op: Op) -> None:
        self._load_box(op, packed=False)

    def load_packed(self, op: Op) -> None:
        self._load_box(op, packed=True)

    def _load_box(self, op: Op, packed: bool) -> None:
        y_loop, z_loop = self.load_box
        left, right, top, bottom = (self.pad[name] for name in ("left", "right", "top", "bottom"))
        run_rows = left + op["count"] + right
        y_rows = top + y_loop.count + bottom
        if not run_rows * y_rows * z_loop.count:
            raise Fault(ErrorCode.ILLEGAL_OPERAND)
        memory = Memory(op["target"])
        target = self.chip.pads.arrays()[memory.name]
        row_bytes = math.prod(target.shape[1:]) * target.itemsize
        target_bytes = target.view(np.uint8).reshape(len(target), row_bytes)
        data_row_bytes = row_bytes // 2 if packed else row_bytes
        data_bytes = op["count"] * data_row_bytes
        data_rows = y_loop.count * z_loop.count * op["count"]
        fill_rows = run_rows * y_rows * z_loop.count - data_rows
        self.chip.spend(Engine.LOAD, fill_rows + data_rows * data_row_bytes // self.chip.config.bus_bytes)
        for z in range(z_loop.count):
            for y in range(y_rows):
                lines = np.full((run_rows, row_bytes), self.pad["fill"], np.uint8)
                if top <= y < top + y_loop.count and data_bytes:
                    start = op["offset"] + z * z_loop["mem_stride"] + (y - top) * y_loop["mem_stride"]
                    data = self.chip.read(op["region"], self.chip.offset(start), data_bytes)
                    if packed:
                        data = unpacked(data)
                    lines[left : left + op["count"]] = data.reshape(-1, row_bytes)
                first = op["row"] + z * z_loop["row_stride"] + y * y_loop["row_stride"]
                for x in range(run_rows):
                    target_bytes[self.chip.row(memory.name, first + x, len(target))] = lines[x]

    def load_coded(self, op: Op) -> None:
        config, lanes = self.chip.config, self.chip.config.weight_codes
        groups = config.tile_bytes // lanes
        start = self.chip.offset(op["offset"] - op["offset"] % config.bus_bytes)
        before = self.codes.cycles

        def read() -> bytes:
            return self.chip.read(op["region"], start, op["beats"] * config.bus_bytes).tobytes()

        tiles = self.chip.pads.wgt.view(np.uint8).reshape(len(self.chip.pads.wgt), groups, lanes)
        try:
            for n, weights in enumerate(self.codes.load(op["mode"], groups * op["count"], op["beats"], read)):
                tile = self.chip.row("WGT", op["row"] + n // groups, config.wgt_tiles)
                tiles[tile, n % groups] = np.frombuffer(weights, np.uint8)
        except codes.CodeError:
            raise Fault(ErrorCode.CODE) from None
        self.chip.spend(Engine.LOAD, self.codes.cycles - before)

    def load_sync(self, op: Op) -> None:
        self.chip.spend(Engine.LOAD, 1)
