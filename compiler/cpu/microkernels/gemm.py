"""The loops around the register tile, and the epilogue on each finished tile.

`C[batch, m, (r, c)] = sum_k A[batch, m, k] * B[batch, k, (r, c)]`, columns being rows `r` of width `c` (the last two
dimensions of a convolution's output; one row for a matmul). For every block of columns B is packed into the cache
(im2col happens here), then each register tile is computed and its epilogue is applied while the tile is in the
first-level cache.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

import numpy as np
from msgspec import Struct

from tilewright.compiler.cpu.expr import Assignment, Buffer, Expr, Index, Rewriter, Var, can_merge, load
from tilewright.compiler.cpu.ir.writer import Number, Operand, i64, pointer_to
from tilewright.compiler.cpu.loops.assign import emit_assign
from tilewright.compiler.cpu.loops.function import Function
from tilewright.compiler.cpu.microkernels.amx import COLUMNS, GROUPS, ROWS, define_amx_tile
from tilewright.compiler.cpu.microkernels.tile import ByteProduct, FloatProduct, Tile, define_tile, split_rows
from tilewright.compiler.cpu.schedule import GemmSchedule
from tilewright.compiler.cpu.stages.stage import KernelStage, Stage
from tilewright.compiler.cpu.stages.value import Value
from tilewright.compiler.cpu.target import Target

PACK_BYTES = 1 << 20  # of packed B at a time: stays in the second-level cache
DIRECT_COLUMNS = 512  # keeps the tile buffer in the first-level cache


class RowOperand(Struct):
    """Operand A. Packed: per register tile [k][rows]; else strided rows of `row_stride` elements (bytes for int8)."""

    buffer: Buffer
    offset: Callable[[Sequence[Var]], Index]
    row_stride: int | None = None


class PanelOperand(Struct):
    """Operand B, constant, packed [panel][k][panel width]."""

    buffer: Buffer


class DirectOperand(Struct):
    """Operand B in place: row k of a stride-1 convolution is the padded input from `table[k]` on.

    Columns run over whole input rows of `pitch` elements, so a few sums between the rows' ends are computed in vain;
    in exchange nothing is packed. Elements are float32, or int32 of four neighbouring channels' bytes.
    """

    buffer: Buffer
    base: Callable[[Sequence[Var]], Index]
    table: list[int]
    pitch: int


# B filled per column block: for (batch, r, c), loops `k variables`, element, and its row k (groups of 4 for int8).
Fill = Callable[[Sequence[Var], Index, Index], list[tuple[list[Var], Expr, Index]]]


class Domain(Struct):
    """The output's loop variables sorted by role, with the epilogue written in them."""

    batch: list[Var]
    m: Var
    r: Var
    c: Var
    body: Expr
    offset: Index


class Gemm(Struct, eq=False):
    """A matmul that stores itself together with its epilogue (see `value.Accumulator`).

    Attributes:
        k: length of the reduction (groups of four for int8).
        schedule: register tile and blocks.
        split: sorts the value's variables into a `Domain`.
        integer: int8 operands, int32 sums.
        a_signed: True if A is the signed operand, for int8.
    """

    k: int
    a: RowOperand
    b: PanelOperand | DirectOperand | Fill
    split: Callable[[list[Var], Expr, Index], Domain]
    schedule: GemmSchedule
    integer: bool = False
    a_signed: bool = True

    def stage(self, acc: Value, what: Assignment, label: str, target: Target) -> Stage:
        domain = self.split(what.variables, what.body, what.offset)
        panel = self.schedule.vectors * target.lanes
        direct = isinstance(self.b, DirectOperand)
        extent = self.b.pitch if isinstance(self.b, DirectOperand) else domain.c.extent
        rows, cols = self._block(domain.r.extent, extent, panel)
        width = -(-rows * cols // panel) * panel
        kind = "i32" if self.integer else "f32"
        ldb = width + target.lanes  # an odd number of vectors, so that rows do not share cache sets
        temps = []
        packed = Buffer("", kind, self.k * ldb, "temp", private=True)
        if not isinstance(self.b, PanelOperand) and not direct:
            temps.append(packed)
        most = max(size for _, size in self.tiles(domain.m.extent, target))
        tile = Buffer("", kind, most * width, "temp", private=True)
        temps.append(tile)
        job = Job(self, target, domain, acc, what.buffer, tile, packed, (rows, cols), width, ldb)
        kind = "int8" if self.integer else "float32"
        return KernelStage(f"{label}: {kind} product; {self.schedule}", job.emit, temps, threaded=True)

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

    def in_matrix_registers(self, target: Target) -> bool:
        """True if AMX can compute the product: A's rows contiguous, k and columns in whole registers."""
        return (
            target.has_amx
            and self.integer
            and self.a.row_stride is not None
            and not isinstance(self.b, DirectOperand)
            and self.k % GROUPS == 0
            and self.schedule.vectors * target.lanes == COLUMNS
        )

    def tiles(self, m: int, target: Target) -> list[tuple[int, int]]:
        """Tiles along the rows of A: (count, rows) pairs."""
        tiles = []
        if self.in_matrix_registers(target):
            for rows in (2 * ROWS, ROWS):
                count, m = divmod(m, rows)
                tiles += [(count, rows)] if count else []
        return tiles + (split_rows(m, self.schedule.rows) if m else [])


class Block(Struct, frozen=True):
    """A block of columns: rows `r` and columns `c` from the current ones on.

    Attributes:
        r0, c0: loop variables over the blocks' first rows and columns.
        r, c: loop variables within the block.
        rows, cols: number of rows and columns.
        whole: True if it has all columns of its rows.
    """

    r0: Var
    c0: Var
    r: Var
    c: Var
    rows: Number
    cols: Number
    whole: bool


class Job(Struct, frozen=True):
    """The kernel of a product with its epilogue.

    Attributes:
        gemm: the product.
        target: machine it is for.
        domain: the result's loop variables, and the expression of each element.
        acc: the product's value in the domain's body.
        out: destination of the result.
        tile: memory of the sums of one row of tiles.
        packed: memory of B's columns in order.
        columns: rows and columns of a block of columns.
        width: width of `tile`, elements.
        ldb: row stride of `packed`, elements.
    """

    gemm: Gemm
    target: Target
    domain: Domain
    acc: Value
    out: Buffer
    tile: Buffer
    packed: Buffer
    columns: tuple[int, int]
    width: int
    ldb: int

    def emit(self, f: Function) -> None:
        d, b = self.domain, self.gemm.b
        rows, cols = self.columns
        r0, c0, rr, cc = Var.new(d.r.extent), Var.new(d.c.extent), Var.new(rows), Var.new(min(cols, d.c.extent))
        row, col = Index.of(r0) + Index.of(rr), Index.of(c0) + Index.of(cc)
        direct = b if isinstance(b, DirectOperand) else None
        pieces = [] if isinstance(b, PanelOperand | DirectOperand) else b(d.batch, row, col)
        what = self._divided(f.module.threads)
        around: list[tuple[Operand, int]] = []  # the loops that are written

        def loop(kind: str, extent: int, step: int = 1) -> AbstractContextManager[Operand]:
            return f.sharing.divided(extent, step, around) if what == kind else f.loop(0, extent, step)

        with contextlib.ExitStack() as nest:
            nest.enter_context(f.loops(d.batch, divide=what if isinstance(what, Var) else None))
            around += [(f.variables[v], v.extent) for v in d.batch]
            rv = nest.enter_context(loop("rows", d.r.extent, rows))
            around.append((f.udiv(rv, rows), -(-d.r.extent // rows)))
            cv = nest.enter_context(loop("columns", d.c.extent, cols))
            around.append((f.udiv(cv, cols), -(-d.c.extent // cols)))
            f.variables[r0], f.variables[c0] = rv, cv
            nr = _bounded(f, d.r.extent, rv, rows)
            nc = d.c.extent if direct else _bounded(f, d.c.extent, cv, cols)
            block = Block(r0, c0, rr, cc, nr, nc, cols == d.c.extent)
            count = f.mul(nr, cols if direct else nc)
            first_b = cv
            if direct:
                start = f.mul(rv, cols)
                first_b = f.add(f.index(direct.base(d.batch)), start)
            for variables, body, k in pieces:
                offset = k * self.ldb + Index.of(rr) * cols + Index.of(cc)
                with f.sharing.all_threads():  # each thread has a `packed` of its own
                    _nest(f, Assignment(variables, body, self.packed, offset), block)
            done = 0
            for tiles, size in self.gemm.tiles(d.m.extent, self.target):
                with loop("tiles", tiles) as t:
                    first = f.add(f.mul(t, size), done)
                    self._multiply(f, first, size, count, first_b)
                    self._epilogue(f, block, first, size)
                done += tiles * size

    def _divided(self, threads: int) -> str | Var:
        """The loop that the threads share: blocks of rows or columns, a batch, else the tiles of A."""
        d, (rows, cols) = self.domain, self.columns
        if -(-d.r.extent // rows) >= threads:
            return "rows"
        if -(-d.c.extent // cols) >= threads:
            return "columns"
        return next((v for v in d.batch if v.extent >= threads), "tiles")

    def _multiply(self, f: Function, first: Operand, size: int, count: Operand, first_b: Operand) -> None:
        """Writes the tiles of `size` rows of A from `first` on, over `count` columns of B.

        Args:
            first_b: start in B: the column in panels, or the element of an operand in place.
        """
        b = self.gemm.b
        table = pointer_to("null")
        if isinstance(b, DirectOperand):
            table = pointer_to(f.module.data(np.asarray(b.table, np.int64) * 4))
        a = self._a_pointer(f, first)
        name = self._function(f, size)
        with f.loop(0, count, self._panel) as p:
            c = f.element(self.tile, p)
            if isinstance(b, PanelOperand):
                at = f.mul(f.add(first_b, p), self.gemm.k)
                start = f.element(b.buffer, f.mul(at, self._unit))
            elif isinstance(b, DirectOperand):
                start = f.element(b.buffer, f.add(first_b, p))
            else:
                start = f.element(self.packed, p)
            f.run(f"@{name}", [a, start, c, i64(self.gemm.k), table])

    @property
    def _panel(self) -> int:
        """Columns of a register tile."""
        return self.gemm.schedule.vectors * self.target.lanes

    @property
    def _unit(self) -> int:
        """Neighbours along k that are multiplied at a time, in elements."""
        return 4 if self.gemm.integer else 1

    def _a_pointer(self, f: Function, first: Operand) -> Operand:
        a = self.gemm.a
        stride = a.row_stride if a.row_stride is not None else self.gemm.k * self._unit
        base = f.index(a.offset(self.domain.batch))
        return f.element(a.buffer, f.add(base, f.mul(first, stride)))

    def _function(self, f: Function, size: int) -> str:
        """The name of the register tile's function for `size` rows."""
        gemm, a, b = self.gemm, self.gemm.a, self.gemm.b
        unit = self._unit
        a_row, a_k = (unit, size * unit) if a.row_stride is None else (a.row_stride, unit)
        scale = 1 if gemm.integer else 4  # strides of A in bytes
        b_row = self._panel if isinstance(b, PanelOperand) else self.ldb
        tile = Tile(
            size, gemm.schedule.vectors, a_row * scale, a_k * scale,
            None if isinstance(b, DirectOperand) else b_row * 4, self.width * 4,
        )  # fmt: skip
        if tile.b_row is not None and size >= ROWS and gemm.in_matrix_registers(self.target):
            return define_amx_tile(f.module, tile, gemm.a_signed)
        product = ByteProduct(f.module, gemm.a_signed) if gemm.integer else FloatProduct(f.module)
        return define_tile(f.module, tile, product)

    def _epilogue(self, f: Function, block: Block, first: Operand, size: int) -> None:
        """Writes the epilogue of `size` rows of the tile buffer, the result's rows from `first` on."""
        d = self.domain
        m, base = Var.new(size), Var.new(d.m.extent)
        f.variables[base] = first
        here = load(self.tile, Index.of(m) * self.width + Index.of(block.r) * self.columns[1] + Index.of(block.c))
        rewrite = Rewriter(
            {
                d.m: Index.of(base) + Index.of(m),
                d.r: Index.of(block.r0) + Index.of(block.r),
                d.c: Index.of(block.c0) + Index.of(block.c),
            },
            lambda e: here if e.op == "acc" and e.value[0] is self.acc else None,
        )
        _nest(f, Assignment([m], rewrite(d.body), self.out, rewrite.index(d.offset)), block)


def _bounded(f: Function, extent: int, start: Operand, step: int) -> Number:
    if extent % step == 0:
        return step
    return f.intrinsic("smin", f.sub(extent, start), step)


def _nest(f: Function, what: Assignment, block: Block) -> None:
    """Writes loops over variables, then over the block's rows and columns, as one loop where the accesses allow."""
    variables, body, out, at = what
    r, c = block.r, block.c
    inner: list[Var]
    bounds: dict[Var, Number]
    if r.extent == 1:
        drop = Rewriter({r: Index(0)})
        inner, bounds = [c], {c: block.cols}
        body, at = drop(body), drop.index(at)
    elif block.whole and can_merge(r, c, [body], at):
        j = Var.new(r.extent * c.extent)
        join = Rewriter({r: Index(0), c: Index.of(j)})
        body, at = join(body), join.index(at)
        inner, bounds = [j], {j: f.mul(block.rows, block.cols)}
    else:
        inner, bounds = [r, c], {r: block.rows, c: block.cols}
    emit_assign(f, Assignment([*variables, *inner], body, out, at), bounds)


def pack_rows(a: np.ndarray, limit: int) -> np.ndarray:
    """Packs [..., M, K] to tiles [..., tile][K][rows] of `split_rows`, the last axis flat. Groups of 4 k for int8."""
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
    """Packs [K, N] to [panel][K][panel width] with zero columns at the end. Groups of 4 k for int8."""
    k, n = b.shape
    group = 4 if b.dtype.itemsize == 1 else 1
    rows, panels = -(-k // group), -(-n // panel)
    padded = np.zeros((rows * group, panels * panel), b.dtype)
    padded[:k, :n] = b
    return np.ascontiguousarray(padded.reshape(rows, group, panels, panel).transpose(2, 0, 3, 1))
