"""Loads and stores, given as runs of rows and two levels of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tilewright.compiler.npu.emit.loops import spans
from tilewright.compiler.npu.emit.writer import Writer
from tilewright.isa.codes import CodeMode
from tilewright.isa.encoding import op
from tilewright.isa.instructions import Engine, Memory
from tilewright.isa.program import ARENA_REGION, CONSTANT_REGION

#: Names that hazards know the targets of LOAD by.
_SPACE = {Memory.ACT: "act", Memory.WGT: "wgt", Memory.PRM: "prm", Memory.LUT: "lut"}
#: Most rows of one run.
_MAX_RUN = 0xFFFF


#: A level of a LOAD or STORE: (count, rows from one to the next, bytes from one to the next).
Level = tuple[int, int, int]
_ONCE: Level = (1, 0, 0)


class Place(NamedTuple):
    """A place in external memory."""

    region: int
    offset: int


def _join_levels(count: int, y: Level, z: Level, row_bytes: int) -> tuple[int, Level, Level]:
    """Returns the same transfer with longer runs and fewer levels, where runs follow each other on both sides."""
    if y[0] > 1:
        count, y = _join_level(count, y, row_bytes)
    if y[0] == 1 and z[0] > 1:
        count, y = _join_level(count, z, row_bytes)
        z = _ONCE
    return count, y, z


def _join_level(count: int, level: Level, row_bytes: int) -> tuple[int, Level]:
    if level[1] == count and level[2] == count * row_bytes and count * level[0] <= _MAX_RUN:
        return count * level[0], _ONCE
    return count, level


class Transfers(Writer):
    """Writes loads and stores: it joins levels that walk on evenly."""

    def load(
        self,
        place: Place,
        target: Memory,
        row: int,
        count: int,
        *,
        y: Level = _ONCE,
        z: Level = _ONCE,
        pad: tuple[int, int, int, int] = (0, 0, 0, 0),
        fill: int = 0,
    ) -> None:
        """One LOAD of rows that follow each other in memory, `y` times `z` times.

        Args:
            target, row: scratchpad and its first row.
            count: rows of a run.
            pad: rows to fill with `fill` to the left and right of every run, and runs of them above and below.
        """
        row_bytes = target.row_bytes(self.config)
        left, right, top, bottom = pad
        if not any(pad):
            count, y, z = _join_levels(count, y, z, row_bytes)
            fill = 0
        if top + y[0] + bottom == 1:
            y = _ONCE
        if z[0] == 1:
            z = _ONCE
        lines, data = top + y[0] + bottom, count * y[0]
        self.read_bytes += data * z[0] * row_bytes
        self._count_bus(Engine.LOAD, data * z[0] * row_bytes, y[0] * z[0])
        self.work[Engine.LOAD] += (lines * (left + count + right) - data) * z[0]
        if self.dry:
            return
        self._set("LOAD_DIM", 0, level=0, count=y[0], row_stride=y[1], mem_stride=y[2])
        self._set("LOAD_DIM", 1, level=1, count=z[0], row_stride=z[1], mem_stride=z[2])
        self._set("LOAD_PAD", left=left, right=right, top=top, bottom=bottom, fill=fill & 0xFF)
        writes = spans(_SPACE[target], row, ((lines, y[1]), (z[0], z[1])), left + count + right)
        reads = []
        if data and place.region == ARENA_REGION:
            reads = spans("memory", place.offset, ((y[0], y[2]), (z[0], z[2])), count * row_bytes)
        self._run(op("LOAD", region=place.region, offset=place.offset, target=target, row=row, count=count),
                      reads, writes)  # fmt: skip

    def load_coded(self, place: Place, mode: CodeMode, row: int, count: int, beats: int) -> None:
        """One LOAD_CODED: `count` tiles from `row` of WGT on, or a table, of so many beats."""
        self.read_bytes += beats * self.config.bus_bytes
        self._count_bus(Engine.LOAD, beats * self.config.bus_bytes, 1)
        values = {"region": place.region, "offset": place.offset, "mode": mode, "row": row, "count": count}
        writes = spans("wgt", row, (), count) if mode == CodeMode.WEIGHTS else []
        self._run(op("LOAD_CODED", **values, beats=beats), [], writes)

    def fill(self, row: int, dims: Sequence[tuple[int, int]], run: int, value: int) -> None:
        """Writes `value` to every lane of ACT rows: `run` rows at every index of up to two (count, stride) dims."""
        folded = sorted(((c, s) for c, s in dims if c > 1), key=lambda d: d[1])
        while len(folded) > 1:
            count, stride = folded.pop()
            for i in range(count):
                self.fill(row + i * stride, folded, run, value)
            return
        count, stride = folded[0] if folded else (1, 0)
        lines = 0
        while lines < count:  # top padding holds 255 lines
            part = min(255, count - lines)
            at = 0
            while at < run:
                width = min(510, run - at)
                self.load(
                    Place(CONSTANT_REGION, 0), Memory.ACT, row + lines * stride + at, 0, y=(0, stride, 0),
                    pad=(min(255, width), max(0, width - 255), part, 0), fill=value,
                )  # fmt: skip
                at += width
            lines += part

    def store(
        self,
        place: Place,
        row: int,
        count: int,
        *,
        y: Level = _ONCE,
        z: Level = _ONCE,
    ) -> None:
        """One STORE from ACT of `count` rows that follow each other in memory, `y` times `z` times."""
        row_bytes = self.config.block_in
        count, y, z = _join_levels(count, y, z, row_bytes)
        y, z = (level if level[0] > 1 else _ONCE for level in (y, z))
        self.write_bytes += count * y[0] * z[0] * row_bytes
        self._count_bus(Engine.STORE, count * y[0] * z[0] * row_bytes, y[0] * z[0])
        if self.dry:
            return
        self._set("STORE_DIM", 0, level=0, count=y[0], row_stride=y[1], mem_stride=y[2])
        self._set("STORE_DIM", 1, level=1, count=z[0], row_stride=z[1], mem_stride=z[2])
        self._run(
            op("STORE", region=place.region, offset=place.offset, row=row, count=count),
            spans("act", row, ((y[0], y[1]), (z[0], z[1])), count),
            spans("memory", place.offset, ((y[0], y[2]), (z[0], z[2])), count * row_bytes),
        )
