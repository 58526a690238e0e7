"""Random loads and stores."""

from __future__ import annotations

import numpy as np

from tilewright.isa.encoding import op
from tilewright.isa.instructions import Engine, Memory
from verification.programs.generator.pieces import Pieces, reach_of
from verification.programs.generator.program import DATA_BYTES, PRM_BYTES
from verification.programs.order import Record


class Transfers(Pieces):
    """Instructions of LOAD and STORE."""

    def load(self) -> None:
        rng, c = self.rng, self.config
        target = rng.choice([Memory.ACT] * 4 + [Memory.WGT] * 3 + [Memory.PRM] * 2 + [Memory.LUT] * c.table_lookup)
        names = ("left", "right", "top", "bottom")
        pad = (
            {n: rng.choice([0, 0, 1, rng.randint(0, 4)]) for n in names}
            if rng.random() < 0.5
            else dict.fromkeys(names, 0)
        )
        zone = self.zones[target.name]
        size = zone[1] - zone[0]
        most = min(12, DATA_BYTES // target.row_bytes(self.config))
        while True:
            count, y_count, z_count = rng.randint(0, most), rng.randint(0, 4), rng.randint(1, 3)
            if rng.random() < 0.3 or size < 16:
                y_count = z_count = 1
                pad["top"] = pad["bottom"] = 0
            if size < 16:
                pad["left"] = pad["right"] = 0
                count = rng.randint(1, min(size, most, 3))
            run, y_rows = pad["left"] + count + pad["right"], pad["top"] + y_count + pad["bottom"]
            if 0 < run <= size and y_rows and run * y_rows * z_count <= self.max_steps:
                break
        row_strides = self._strides([y_rows, z_count], size - run + 1)
        z, y, x = np.meshgrid(range(z_count), range(y_rows), range(run), indexing="ij")
        rows = z * row_strides[1] + y * row_strides[0] + x
        row = self._base(rows, zone)
        self._load(target, row, rows + row, count, (y_count, z_count), row_strides, pad)

    def _load(
        self, target: Memory, row: int, rows: np.ndarray, count: int, counts: tuple[int, int], row_strides: list[int],
        pad: dict[str, int],
    ) -> None:  # fmt: skip
        rng = self.rng
        width, name = target.row_bytes(self.config), "LOAD"
        if self.config.packed_weights and target == Memory.WGT and rng.random() < 0.6:
            width, name = self.config.packed_tile_bytes, "LOAD_PACKED"
        region = 1 if target == Memory.PRM or rng.random() < 0.4 else rng.choice([2, 3])
        window = self.windows[region]
        if count * width > window.size:
            region, window = 1, self.windows[1]
        steps = (max(counts[0], 1), counts[1])
        mem_strides = self._strides(steps, window.size - count * width + 1)
        reach = np.add.outer(np.arange(steps[1]) * mem_strides[1], np.arange(steps[0]) * mem_strides[0]).reshape(-1)
        offset = rng.randint(-int(reach.min()), window.size - count * width - int(reach.max()))
        if target == Memory.PRM and rng.random() < 0.8:
            mem_strides, reach = [0, 0], reach * 0
            offset = rng.randrange(0, PRM_BYTES - count * width + 1, 8)
        fill = rng.randint(0, 255)
        if pad | {"fill": fill} != self.pad and (any(pad.values()) or any(self.pad.values())):
            self.pad = pad | {"fill": fill}
            self.stream.append(op("LOAD_PAD", **self.pad))
        levels = [{"count": counts[i], "row_stride": row_strides[i], "mem_stride": mem_strides[i]} for i in range(2)]
        self._set_loops("LOAD_DIM", levels)
        values = {"region": region, "offset": offset, "target": int(target), "row": row, "count": count}
        record = Record(Engine.LOAD, values, name, writes={target.name: self._mask(target.name, rows)})
        if count and counts[0]:
            record.reads["MEM"] = self._mask("MEM", self._bytes(window.base + offset + reach, count * width))
        self.add(record)

    def store(self) -> None:
        rng, c = self.rng, self.config
        zone = self.zones["ACT"]
        size = zone[1] - zone[0]
        window_index = rng.choice([2, 3, 4])
        window = self.windows[window_index]
        count = rng.randint(1, min(12, size, window.size // c.block_in))
        counts = [rng.randint(1, 4), rng.randint(1, 3)]
        while count * counts[0] * counts[1] > self.max_steps:
            counts = [1, 1]
            count = min(count, self.max_steps)
        row_strides = self._strides(counts, size - count + 1)
        mem_strides = self._strides(counts, window.size - count * c.block_in + 1)
        starts, offsets = reach_of(counts, row_strides), reach_of(counts, mem_strides)
        row = self._base(starts, (zone[0], zone[1] - count + 1))
        offset = rng.randint(-int(offsets.min()), window.size - count * c.block_in - int(offsets.max()))
        self._store(window_index, offset, row, count, counts, row_strides, mem_strides)

    def _store(
        self, region: int, offset: int, row: int, count: int, counts: list[int], row_strides: list[int],
        mem_strides: list[int],
    ) -> None:  # fmt: skip
        levels = [{"count": counts[i], "row_stride": row_strides[i], "mem_stride": mem_strides[i]} for i in range(2)]
        self._set_loops("STORE_DIM", levels)
        starts, offsets = reach_of(counts, row_strides), reach_of(counts, mem_strides)
        record = Record(Engine.STORE, {"region": region, "offset": offset, "row": row, "count": count}, "STORE")
        record.reads["ACT"] = self._mask("ACT", self._bytes(starts + row, count))
        base = self.windows[region].base + offset
        record.writes["MEM"] = self._mask("MEM", self._bytes(base + offsets, count * self.config.block_in))
        self.add(record)
