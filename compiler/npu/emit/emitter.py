"""The emitter: writes loads, stores, products and VECTOR passes, given as loop nests, as instructions.

It joins loop levels that walk on evenly, splits nests that have more levels than the machine, writes configuration
instructions only where a register changes, and tells the synchroniser which rows every instruction touches.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from compiler.npu.emit.hazards import MEMORY_GRAIN, Access
from compiler.npu.emit.loops import Loop, fold_nest, spans
from compiler.npu.emit.sequence import Registers, Run, Sequencer, Setting
from isa.codes import CodeMode
from isa.config import WIDE_TABLE, NpuConfig
from isa.encoding import Op, op
from isa.instructions import ROW_WRITES, Engine, Memory, Rounding, RowFunction, Source, WideByte
from isa.program import ARENA_REGION, CONSTANT_REGION
from isa.timing import DEFAULT_MEMORY, ROW_DIVIDE_CYCLES, VECTOR_DEPTH, MemoryTiming, row_norm_write

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
    """The same transfer with longer runs and fewer levels, where runs follow each other on both sides."""
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


class Emitter:
    """Writes one model's instruction image, step by step.

    Args:
        config: the machine.
        arena_bytes: size of the arena region, for hazard tracking.
        dry: only count `work`: nothing is emitted.
        memory: as the program will find it.

    Attributes:
        work: steps or cycles of the bus per engine so far, and one for each run of bytes.
    """

    def __init__(
        self, config: NpuConfig, arena_bytes: int, dry: bool = False, memory: MemoryTiming = DEFAULT_MEMORY
    ) -> None:
        self.config = config
        self.dry = dry
        self._intervals = {Engine.LOAD: memory.read_interval, Engine.STORE: memory.write_interval}
        self.work = dict.fromkeys(Engine, 0)
        self._sequencer = (
            None
            if dry
            else Sequencer(
                config,
                {
                    "act": config.act_rows,
                    "wgt": config.wgt_tiles,
                    "prm": config.prm_rows,
                    "lut": config.lut_tables,
                    "acc": config.acc_rows * config.block_out,  # elements: GEMM and VECTOR rows differ in width
                    "memory": -(-arena_bytes // MEMORY_GRAIN) + 1,
                },
                memory,
            )
        )
        self.image: list[Op] = []
        self.read_bytes = 0
        self.write_bytes = 0
        self._registers = Registers()  # in the order of the program
        self._settings: list[Setting] = []  # before the next run
        self._counted = dict.fromkeys(Engine, 0)  # work of runs so far
        self._acc_unit = config.block_out

    # Steps and positions.

    @property
    def position(self) -> int:
        """Number of the next run of the step; 0 where only work is counted."""
        return len(self._sequencer) if self._sequencer is not None else 0

    def end_step(self) -> list[int]:
        """Writes an NPU step and closes it with END. Gives for each run, and the end, where it begins in the image,
        with what was fetched ahead at that time. State and hazards start afresh."""
        if self._sequencer is None:
            return []
        first = len(self.image)
        finished, begins = self._sequencer.take()
        self.image += finished
        self._registers.forget()
        return [first + begin for begin in (*begins, len(finished) - 1)]

    # Memory.

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
        if not any(pad):
            count, y, z = _join_levels(count, y, z, row_bytes)
            fill = 0
        left, right, top, bottom = pad
        lines, data = top + y[0] + bottom, count * y[0]
        self.read_bytes += data * z[0] * row_bytes
        self._count_bus(Engine.LOAD, data * z[0] * row_bytes, y[0] * z[0])
        self.work[Engine.LOAD] += (lines * (left + count + right) - data) * z[0]
        if self.dry:
            return
        self._set("LOAD_DIM", 0, level=0, count=y[0], row_stride=y[1], mem_stride=y[2])
        self._set("LOAD_DIM", 1, level=1, count=z[0], row_stride=z[1], mem_stride=z[2])
        self._set("LOAD_PAD", 0, left=left, right=right, top=top, bottom=bottom, fill=fill & 0xFF)
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

    # Arithmetic.

    def gemm(
        self,
        act: int,
        wgt: int,
        acc: int,
        reduce: Sequence[Loop],
        outer: Sequence[Loop],
        *,
        accumulate: bool = False,
    ) -> None:
        """One GEMM nest (several instructions if it has too many levels). Loops are (count, act, wgt, acc)."""
        inner, rest, steps = fold_nest(reduce, outer)
        if len(inner) + len(rest) > self.config.gemm_loops:
            if rest:
                count, da, dw, dc = rest[-1]
                for i in range(count):
                    self.gemm(act + i * da, wgt + i * dw, acc + i * dc, inner, rest[:-1], accumulate=accumulate)
            else:
                count, da, dw, _ = inner[-1]
                for i in range(count):
                    more = accumulate or i > 0
                    self.gemm(act + i * da, wgt + i * dw, acc, inner[:-1], [], accumulate=more)
            return
        self.work[Engine.GEMM] += steps + 8
        if self.dry:
            return
        nest = inner + rest
        self._nest("GEMM_LOOP", self.config.gemm_loops, nest, ("act_stride", "wgt_stride", "acc_stride"))
        unit = self._acc_unit
        self._run(
            op("GEMM", act=act, wgt=wgt, acc=acc, reduce=len(inner), accumulate=accumulate),
            spans("act", act, [(n, a) for n, a, _, _ in nest]) + spans("wgt", wgt, [(n, w) for n, _, w, _ in nest]),
            spans("acc", acc * unit, [(n, c * unit) for n, _, _, c in rest], unit),
        )

    def depthwise(
        self,
        act: int,
        wgt: int,
        acc: int,
        loops: Sequence[Loop],
        *,
        start: tuple[int, int],
        step: tuple[int, int],
        lanes_slice: int,
        delay: int,
        accumulate: bool,
    ) -> None:
        """One DEPTHWISE nest. `loops`: level 0 (pushes of a column) and 1 (columns) first, never folded."""
        _, rest, _ = fold_nest((), loops[2:])
        if 2 + len(rest) > self.config.gemm_loops:
            count, da, dw, dc = rest[-1]
            for i in range(count):
                self.depthwise(
                    act + i * da, wgt + i * dw, acc + i * dc, [*loops[:2], *rest[:-1]],
                    start=start, step=step, lanes_slice=lanes_slice, delay=delay, accumulate=accumulate,
                )  # fmt: skip
            return
        nest = [*loops[:2], *rest]
        self.work[Engine.GEMM] += math.prod(loop[0] for loop in nest) + 8
        if self.dry:
            return
        self._nest("GEMM_LOOP", self.config.gemm_loops, nest, ("act_stride", "wgt_stride", "acc_stride"))
        emissions = [(nest[i][0] - 1 - start[i]) // step[i] + 1 for i in (0, 1)]
        unit = self.config.dw_lanes
        acc_dims = [(emissions[i], nest[i][3] * unit) for i in (0, 1)] + [(n, c * unit) for n, _, _, c in rest]
        self._run(
            op("DEPTHWISE", act=act, wgt=wgt, acc=acc, accumulate=accumulate, start0=start[0], step0=step[0],
               start1=start[1], step1=step[1], slice=lanes_slice, delay=delay),
            spans("act", act, [(n, a) for n, a, _, _ in nest]) + spans("wgt", wgt, [(n, w) for n, _, w, _ in nest]),
            spans("acc", acc * unit, acc_dims, unit),
        )  # fmt: skip

    def vector(
        self,
        source: Source,
        a: int,
        dst: int,
        loops: Sequence[Loop],
        *,
        b: int = 0,
        prm: int = 0,
        reduce: Sequence[Loop] = (),
        add: bool = False,
        lut: int | None = None,
        rounding: Rounding = Rounding.EVEN,
        post: Callable[[], dict[str, int]] | None = None,
        constants: dict[str, int] | None = None,
    ) -> None:
        """One VECTOR nest. Loops are (count, a, b, dst, prm); `post` gives the fields of VECTOR_POST, `constants`
        are those of VECTOR_ADD."""
        inner, rest, steps = fold_nest(reduce, loops)
        if len(inner) + len(rest) > self.config.vector_loops:
            count, da, db, dd, dp = rest[-1]
            for i in range(count):
                self.vector(
                    source, a + i * da, dst + i * dd, rest[:-1], b=b + i * db, prm=prm + i * dp, reduce=inner,
                    add=add, lut=lut, rounding=rounding, post=post, constants=constants,
                )  # fmt: skip
            return
        self.work[Engine.VECTOR] += steps * self.config.vector_passes + 8
        if self.dry:
            return
        nest = inner + rest
        self._nest("VECTOR_LOOP", self.config.vector_loops, nest, ("a_stride", "b_stride", "dst_stride", "prm_stride"))
        fields = dict(post() if post is not None else {})
        if lut is not None:
            fields["table"] = lut
        if fields:
            self._set("VECTOR_POST", 0, **fields)
        if add and constants is not None:
            self._set("VECTOR_ADD", 0, **constants)
        uses_b = add or source == Source.MUL
        if not uses_b:
            b = 0
        needs_prm = source in (Source.ACC, Source.MUL, Source.SUM)
        if not needs_prm:
            prm = 0
        reads: list[Access] = []
        a_dims = [(loop[0], loop[1]) for loop in nest]
        if source == Source.ACC:
            unit = self.config.block_in
            reads += spans("acc", a * unit, [(n, s * unit) for n, s in a_dims], unit)
        else:
            reads += spans("act", a, a_dims)
        if uses_b:
            reads += spans("act", b, [(loop[0], loop[2]) for loop in rest])
        if needs_prm:
            reads += spans("prm", prm, [(loop[0], loop[4]) for loop in rest])
        if lut is not None:
            reads.append(Access("lut", lut, 1))
        self._run(
            op("VECTOR", source=source, a=a, b=b, dst=dst, prm=prm, reduce=len(inner), add=add, lut=lut is not None,
               rounding=rounding),
            reads,
            spans("act", dst, [(loop[0], loop[3]) for loop in rest]),
        )  # fmt: skip

    def vector_wide(
        self,
        byte: WideByte,
        a: int,
        dst: int,
        loops: Sequence[Loop],
        *,
        prm: int,
        reduce: Sequence[Loop],
        low: int,
        high: int,
    ) -> None:
        """One VECTOR_WIDE nest: `byte` of the results, within limits. Loops are (count, a, dst, prm).

        Args:
            reduce: the sums of the values' bytes, the high one first.
        """
        inner, rest, steps = fold_nest(reduce, loops)
        if len(inner) + len(rest) > self.config.vector_loops:
            count, da, dd, dp = rest[-1]
            for i in range(count):
                self.vector_wide(
                    byte, a + i * da, dst + i * dd, rest[:-1], prm=prm + i * dp, reduce=inner, low=low, high=high
                )
            return
        self.work[Engine.VECTOR] += steps * self.config.vector_passes + 8
        if self.dry:
            return
        nest = [(count, da, 0, dd, dp) for count, da, dd, dp in (*inner, *rest)]
        self._nest("VECTOR_LOOP", self.config.vector_loops, nest, ("a_stride", "b_stride", "dst_stride", "prm_stride"))
        unit = self.config.block_in
        self._run(
            op("VECTOR_WIDE", byte=byte, a=a, dst=dst, prm=prm, reduce=len(inner), low=low, high=high),
            spans("acc", a * unit, [(n, s * unit) for n, s, _, _, _ in nest], unit)
            + spans("prm", prm, [(n, p) for n, _, _, p in rest]),
            spans("act", dst, [(n, d) for n, _, d, _ in rest]),
        )

    def row(
        self,
        function: RowFunction,
        a: int,
        loops: Sequence[Loop],
        *,
        prm: int,
        table: int | None = None,
        dst: int = 0,
        reduce: Sequence[Loop] = (),
        tail: int = 0,
        number: int = 0,
        exponent: int = 0,
        post: Callable[[], dict[str, int]] | None = None,
        constants: dict[str, int] | None = None,
    ) -> None:
        """One ROW. Loops are as those of `vector`, and no more than the machine has; the second stride is that of STAT.

        Args:
            table: number of the first of the tables that hold words, where the function reads them.
            reduce: the vectors of a row.
            constants: fields of VECTOR_ADD. Other arguments are the fields of ROW and VECTOR_POST.
        """
        inner, rest, steps = fold_nest(reduce, loops)
        nest = inner + rest
        assert len(nest) <= self.config.vector_loops, nest
        norms = function in (RowFunction.MOMENTS, RowFunction.POWER)
        rows = math.prod(loop[0] for loop in rest)
        if norms or function == RowFunction.EXP_SUM:
            steps = max(steps, rows * ROW_DIVIDE_CYCLES)
        # What follows waits for the last row that is written.
        self.work[Engine.VECTOR] += steps + (row_norm_write(self.config) if norms else VECTOR_DEPTH)
        if self.dry:
            return
        self._nest("VECTOR_LOOP", self.config.vector_loops, nest, ("a_stride", "b_stride", "dst_stride", "prm_stride"))
        fields = dict(self._registers.get("VECTOR_POST", 0) or {} if post is None else post())
        if table is not None:
            fields["table"] = table
        if function != RowFunction.MAXIMUM and fields:
            self._set("VECTOR_POST", 0, **fields)
        if constants is not None:
            self._set("VECTOR_ADD", 0, **constants)
        reads = spans("act", a, [(loop[0], loop[1]) for loop in nest])
        places = spans("prm", prm, [(loop[0], loop[4]) for loop in rest])
        writes: list[Access] = []
        if table is not None and function != RowFunction.MAXIMUM:
            reads.append(Access("lut", table, WIDE_TABLE))
        if function == RowFunction.EXP_SUM:
            writes += places
        if function in ROW_WRITES:
            reads += places
            writes += spans("act", dst, [(loop[0], loop[3]) for loop in rest])
        self._run(
            op("ROW", function=function, a=a, number=number, dst=dst, prm=prm, reduce=len(inner), tail=tail,
               exponent=exponent),
            reads,
            writes,
        )  # fmt: skip

    def _count_bus(self, engine: Engine, nbytes: int, runs: int) -> None:
        """Adds the cycles of a transfer, and one for the start of each run."""
        beats = -(-nbytes // self.config.bus_bytes)
        self.work[engine] += math.ceil(beats * self._intervals[engine]) + runs

    # Configuration state.

    def _nest(self, name: str, levels: int, nest: Sequence[Loop], strides: tuple[str, ...]) -> None:
        """Sets the loop levels of an engine; levels that an earlier nest left behind are set to one iteration."""
        for level in range(levels):
            if level < len(nest):
                count, *steps = nest[level]
                self._set(name, level, level=level, count=count, **dict(zip(strides, steps, strict=True)))
            else:
                current = self._registers.get(name, level)
                if current is not None and current["count"] != 1:
                    self._set(name, level, level=level, count=1)

    def _set(self, name: str, key: int, **values: int) -> None:
        """Sets a register before the next run, unless it has these values. `key` tells levels apart."""
        setting = Setting(name, key, values)
        if self._registers.change(setting) or name.startswith("LOAD"):
            self._settings.append(setting)

    def _run(self, operation: Op, reads: Sequence[Access], writes: Sequence[Access]) -> None:
        """Adds a run to the step; its work is what has been counted since the run of the engine before."""
        assert self._sequencer is not None
        engine = operation.instruction.engine
        work = self.work[engine] - self._counted[engine]
        self._counted[engine] = self.work[engine]
        settings = self._vector_settings() if engine == Engine.VECTOR else self._settings
        self._sequencer.add(Run(settings, engine, operation, reads, writes, work))
        self._settings = []

    def _vector_settings(self) -> list[Setting]:
        """What all registers of VECTOR hold: a run may be written elsewhere than in its turn."""
        nest = [("VECTOR_LOOP", level, {"level": level, "count": 1}) for level in range(self.config.vector_loops)]
        return [
            Setting(name, key, self._registers.get(name, key) or at_reset)
            for name, key, at_reset in (*nest, ("VECTOR_POST", 0, {}), ("VECTOR_ADD", 0, {}))
        ]
