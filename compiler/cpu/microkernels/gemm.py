"""The loops around the register tile, and the epilogue on each finished tile.

`C[batch, m, (r, c)] = sum_k A[batch, m, k] * B[batch, k, (r, c)]`, columns being rows `r` of width `c` (the last two
dimensions of a convolution's output; one row for a matmul). For every block of columns B is packed into the cache
(im2col happens here), then each register tile is computed and whatever expression follows is applied while the tile
is in the first-level cache.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from compiler.cpu.expr import Buffer, Expr, Index, Rewriter, Var, can_merge, load
from compiler.cpu.fuse import Context, KernelStage, Value
from compiler.cpu.loops import emit_assign
from compiler.cpu.lower import Function
from compiler.cpu.microkernels import amx
from compiler.cpu.microkernels.tile import split_rows, tile_f32, tile_i8
from compiler.cpu.module import Module
from compiler.cpu.schedule import GemmSchedule
from compiler.cpu.target import Target

PACK_BYTES = 1 << 20  # of packed B at a time: stays in the second-level cache
DIRECT_COLUMNS = 512  # keeps the tile buffer in the first-level cache


@dataclass
class RowOperand:
    """A. Packed: per register tile [k][rows]; else strided rows of `row_stride` elements (bytes for int8)."""

    buffer: Buffer
    offset: Callable[[Sequence[Var]], Index]
    row_stride: int | None = None


@dataclass
class PanelOperand:
    """B, constant, packed [panel][k][panel width]."""

    buffer: Buffer


@dataclass
class DirectOperand:
    """B in place: row k of a stride-1 convolution is the padded input from `table[k]` on.

    Columns run over whole input rows of `pitch` elements, so a few sums between the rows' ends are computed in vain;
    in exchange nothing is packed. Elements are float32, or int32 of four neighbouring channels' bytes.
    """

    buffer: Buffer
    base: Callable[[Sequence[Var]], Index]
    table: list[int]
    pitch: int


# B filled per column block: for (batch, r, c), loops `k variables`, element, and its row k (groups of 4 for int8).
Fill = Callable[[Sequence[Var], Index, Index], list[tuple[list[Var], Expr, Index]]]


@dataclass
class Domain:
    """The output's loop variables sorted by role, with the epilogue written in them."""

    batch: list[Var]
    m: Var
    r: Var
    c: Var
    body: Expr
    offset: Index


@dataclass(eq=False)
class Gemm:
    """A matmul that stores itself together with what is computed from it (see `fuse.Accumulator`).

    Attributes:
        k: length of the sums (groups of four for int8).
        schedule: register tile and blocks.
        split: sorts the value's variables into a `Domain`.
        integer: int8 operands, int32 sums.
        a_signed: for int8, which operand is signed.
    """

    k: int
    a: RowOperand
    b: PanelOperand | DirectOperand | Fill
    split: Callable[[list[Var], Expr, Index], Domain]
    schedule: GemmSchedule
    integer: bool = False
    a_signed: bool = True
    columns: tuple[int, int] = field(default=(0, 0))

    def store(
        self, ctx: Context, variables: list[Var], body: Expr, acc: Value, buffer: Buffer, offset: Index, label: str
    ) -> None:
        domain = self.split(variables, body, offset)
        panel = self.schedule.vectors * ctx.target.lanes
        direct = isinstance(self.b, DirectOperand)
        extent = self.b.pitch if isinstance(self.b, DirectOperand) else domain.c.extent
        rows, cols = self._block(domain.r.extent, extent, panel)
        self.columns = rows, cols
        width = -(-rows * cols // panel) * panel
        kind = "i32" if self.integer else "f32"
        ldb = width + ctx.target.lanes  # an odd number of vectors, so that rows do not share cache sets
        temps = []
        packed = Buffer("", kind, self.k * ldb, "temp", private=True)
        if not isinstance(self.b, PanelOperand) and not direct:
            temps.append(packed)
        most = max(size for _, size in self._tiles(domain.m.extent, ctx.target))
        tile = Buffer("", kind, most * width, "temp", private=True)
        temps.append(tile)

        def write(f: Function) -> None:
            self._emit(f, domain, acc, buffer, tile, packed, width, ldb)

        kind = "int8" if self.integer else "float32"
        stage = KernelStage(f"{label}: {kind} product; {self.schedule}", write, temps, threaded=True)
        ctx.stages.append(stage)

    def _block(self, rows: int, cols: int, panel: int) -> tuple[int, int]:
        """Rows and columns of one column block: whole rows where they fit, few wasted lanes."""
        if isinstance(self.b, DirectOperand):
            limit = max(min(DIRECT_COLUMNS, self.schedule.columns), cols)
        else:
            limit = min(max(PACK_BYTES // (4 * self.k) // panel * panel, panel), self.schedule.columns)
            limit = max(limit // panel, 1) * panel
        if cols > limit:
            return 1, limit
        best, best_cost = 1, float("inf")
        for r in range(1, min(rows, max(3 * limit // 2 // cols, 1)) + 1):
            full, rest = divmod(rows, r)
            panels = full * -(-r * cols // panel) + -(-rest * cols // panel)
            cost = panels + 0.25 * (full + (rest > 0))  # every block reads A again
            if cost < best_cost:
                best, best_cost = r, cost
        return best, cols

    def _emit(
        self, f: Function, d: Domain, acc: Value, out: Buffer, tile: Buffer, packed: Buffer, width: int, ldb: int
    ) -> None:
        rows, cols = self.columns
        module, target = f.module, f.module.target
        panel = self.schedule.vectors * target.lanes
        r0, c0, rr, cc = Var.new(d.r.extent), Var.new(d.c.extent), Var.new(rows), Var.new(min(cols, d.c.extent))
        row, col = Index.of(r0) + Index.of(rr), Index.of(c0) + Index.of(cc)
        direct = self.b if isinstance(self.b, DirectOperand) else None
        pieces = [] if isinstance(self.b, PanelOperand | DirectOperand) else self.b(d.batch, row, col)
        table = module.data(np.asarray(direct.table, np.int64) * 4) if direct else "null"
        what = self._divided(d, rows, cols, module.threads)
        with (
            f.loops(d.batch, divide=what if isinstance(what, Var) else None),
            f.divided(d.r.extent, rows) if what == "rows" else f.loop(0, d.r.extent, rows) as rv,
            f.divided(d.c.extent, cols) if what == "columns" else f.loop(0, d.c.extent, cols) as cv,
        ):
            f.variables[r0], f.variables[c0] = rv, cv
            nr = _bounded(f, d.r.extent, rv, rows)
            nc = str(d.c.extent) if direct else _bounded(f, d.c.extent, cv, cols)
            whole = cols == d.c.extent
            count = f.op(f"mul nsw i64 {nr}, {cols if direct else nc}")
            first_b = ""
            if direct:
                start = f.op(f"mul nsw i64 {rv}, {cols}")
                first_b = f.op(f"add nsw i64 {f.index(direct.base(d.batch))}, {start}")
            for variables, body, k in pieces:
                offset = k * ldb + Index.of(rr) * cols + Index.of(cc)
                with f.everyone():  # each thread has a `packed` of its own
                    _nest(f, variables, rr, cc, nr, nc, whole, body, packed, offset)
            done = 0
            for tiles, size in self._tiles(d.m.extent, target):
                with f.divided(tiles) if what == "tiles" else f.loop(0, tiles) as t:
                    first = f.op(f"add nsw i64 {f.op(f'mul nsw i64 {t}, {size}')}, {done}")
                    a = self._a_pointer(f, d, first)
                    name = self._tile(module, size, width, ldb)
                    with f.loop(0, count, panel) as p:
                        c = f.element(tile, p)
                        if isinstance(self.b, PanelOperand):
                            at = f.op(f"mul nsw i64 {f.op(f'add nsw i64 {cv}, {p}')}, {self.k}")
                            unit = 4 if self.integer else 1
                            b = f.element(self.b.buffer, f.op(f"mul nsw i64 {at}, {unit}"))
                        elif direct:
                            b = f.element(direct.buffer, f.op(f"add nsw i64 {first_b}, {p}"))
                        else:
                            b = f.element(packed, p)
                        f.do(f"call void @{name}(ptr {a}, ptr {b}, ptr {c}, i64 {self.k}, ptr {table})")
                    self._epilogue(f, d, acc, out, tile, width, (rr, cc, nr, nc, whole), (r0, c0), first, size)
                done += tiles * size

    def _divided(self, d: Domain, rows: int, cols: int, threads: int) -> str | Var:
        """Which loop the threads share: blocks of rows or columns, a batch, else the tiles of A."""
        if -(-d.r.extent // rows) >= threads:
            return "rows"
        if -(-d.c.extent // cols) >= threads:
            return "columns"
        return next((v for v in d.batch if v.extent >= threads), "tiles")

    def _a_pointer(self, f: Function, d: Domain, first: str) -> str:
        unit = 4 if self.integer else 1
        stride = self.a.row_stride if self.a.row_stride is not None else self.k * unit
        base = f.index(self.a.offset(d.batch))
        return f.element(self.a.buffer, f.op(f"add nsw i64 {base}, {f.op(f'mul nsw i64 {first}, {stride}')}"))

    def _in_matrix_registers(self, target: Target) -> bool:
        """Whether AMX can take the product: A's rows contiguous, k and columns in whole registers."""
        return (
            target.has_amx
            and self.integer
            and self.a.row_stride is not None
            and not isinstance(self.b, DirectOperand)
            and self.k % amx.GROUPS == 0
            and self.schedule.vectors * target.lanes == amx.COLUMNS
        )

    def _tiles(self, m: int, target: Target) -> list[tuple[int, int]]:
        """Tiles along the rows of A: (count, rows) pairs."""
        tiles = []
        if self._in_matrix_registers(target):
            for rows in (2 * amx.ROWS, amx.ROWS):
                count, m = divmod(m, rows)
                tiles += [(count, rows)] if count else []
        return tiles + (split_rows(m, self.schedule.rows) if m else [])

    def _tile(self, module: Module, size: int, width: int, ldb: int) -> str:
        panels = isinstance(self.b, PanelOperand)
        ldb_of = (
            None
            if isinstance(self.b, DirectOperand)
            else self.schedule.vectors * module.target.lanes
            if panels
            else ldb
        )
        if ldb_of is not None and size >= amx.ROWS and self._in_matrix_registers(module.target):
            assert self.a.row_stride is not None
            return amx.tile_amx(module, size, self.a.row_stride, ldb_of, width, self.a_signed)
        unit = 4 if self.integer else 1
        a_row, a_k = (unit, size * unit) if self.a.row_stride is None else (self.a.row_stride, unit)
        if self.integer:
            return tile_i8(module, size, self.schedule.vectors, a_row, a_k, ldb_of, width, self.a_signed)
        return tile_f32(module, size, self.schedule.vectors, a_row, a_k, ldb_of, width)

    def _epilogue(self, f, d, acc, out, tile, width, block, corner, first, size) -> None:  # type: ignore[no-untyped-def]
        """Applies the epilogue to `size` rows of the tile buffer and stores them."""
        rr, cc, nr, nc, whole = block
        r0, c0 = corner
        m, base = Var.new(size), Var.new(d.m.extent)
        f.variables[base] = first
        here = load(tile, Index.of(m) * width + Index.of(rr) * self.columns[1] + Index.of(cc))
        rewrite = Rewriter(
            {d.m: Index.of(base) + Index.of(m), d.r: Index.of(r0) + Index.of(rr), d.c: Index.of(c0) + Index.of(cc)},
            lambda e: here if e.op == "acc" and e.value[0] is acc else None,
        )
        _nest(f, [m], rr, cc, nr, nc, whole, rewrite(d.body), out, rewrite.index(d.offset))


def _bounded(f: Function, extent: int, start: str, step: int) -> str:
    if extent % step == 0:
        return str(step)
    return f.intrinsic("smin", "i64", f.op(f"sub nsw i64 {extent}, {start}"), str(step))


def _nest(
    f: Function,
    variables: list[Var],
    rr: Var,
    cc: Var,
    nr: str,
    nc: str,
    whole: bool,
    body: Expr,
    out: Buffer,
    at: Index,
) -> None:
    """Loops over variables, then over the block's rows and columns, as one loop where the accesses allow."""
    if rr.extent == 1:
        drop = Rewriter({rr: Index(0)})
        inner, bounds = [cc], {cc: nc}
        body, at = drop(body), drop.index(at)
    elif whole and can_merge(rr, cc, [body], at):
        j = Var.new(rr.extent * cc.extent)
        join = Rewriter({rr: Index(0), cc: Index.of(j)})
        body, at = join(body), join.index(at)
        inner, bounds = [j], {j: f.op(f"mul nsw i64 {nr}, {nc}")}
    else:
        inner, bounds = [rr, cc], {rr: nr, cc: nc}
    emit_assign(f, [*variables, *inner], body, out, at, bounds)


def pack_rows(a: np.ndarray, limit: int) -> np.ndarray:
    """[..., M, K] to tiles [..., tile][K][rows] of `split_rows`, flat in the last axis. Groups of 4 k for int8."""
    *lead, m, k = a.shape
    group = 4 if a.dtype.itemsize == 1 else 1
    a = a.reshape(*lead, m, k // group, group)
    parts, start = [], 0
    for count, rows in split_rows(m, limit):
        block = a[..., start : start + count * rows, :, :].reshape(*lead, count, rows, k // group, group)
        parts.append(np.moveaxis(block, -3, -2).reshape(*lead, -1))
        start += count * rows
    return np.ascontiguousarray(np.concatenate(parts, axis=-1))


def pack_panels(b: np.ndarray, panel: int) -> np.ndarray:
    """[K, N] to [panel][K][panel width] with zero columns at the end. Groups of 4 k for int8."""
    k, n = b.shape
    group = 4 if b.dtype.itemsize == 1 else 1
    rows, panels = -(-k // group), -(-n // panel)
    padded = np.zeros((rows * group, panels * panel), b.dtype)
    padded[:k, :n] = b
    return np.ascontiguousarray(padded.reshape(rows, group, panels, panel).transpose(2, 0, 3, 1))
