"""The emitter: writes loads, stores, products and VECTOR passes, given as loop nests, as instructions.

It joins loop levels that walk on evenly, splits nests that have more levels than the machine, writes configuration
instructions only where a register changes, and tells the synchroniser which rows every instruction touches.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from tilewright.compiler.npu.emit.hazards import Access
from tilewright.compiler.npu.emit.loops import Loop, fold_nest, spans
from tilewright.compiler.npu.emit.transfers import Transfers
from tilewright.isa.config import WIDE_TABLE
from tilewright.isa.encoding import op
from tilewright.isa.instructions import ROW_WRITES, Engine, Rounding, RowFunction, Source, WideByte
from tilewright.isa.timing import ROW_DIVIDE_CYCLES, VECTOR_DEPTH, row_norm_write


class Emitter(Transfers):
    """Writes one model's instruction image, step by step; see `Writer` for arguments and attributes."""

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
        unit = self.config.block_out
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
            self._set("VECTOR_POST", **fields)
        if add and constants is not None:
            self._set("VECTOR_ADD", **constants)
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
        fields = dict(self._registers.get("VECTOR_POST", 0) if post is None else post())
        if table is not None:
            fields["table"] = table
        if function != RowFunction.MAXIMUM and fields:
            self._set("VECTOR_POST", **fields)
        if constants is not None:
            self._set("VECTOR_ADD", **constants)
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
