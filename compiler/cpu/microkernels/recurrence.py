"""The product of a recurrent step: state times the recurrent weights of some gates, block of units by block of units.

The columns of all these gates lie side by side for each block of units, so that one register tile gives every gate of
its units. The epilogue (activations, new state) is computed while they are in the first-level cache. States of bytes
are multiplied four neighbours at a time, as in other integer products.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

import numpy as np
from msgspec import Struct

from tilewright.compiler.cpu.expr import Assignment, Buffer, Expr, Index, Var, const, guard, index_value, load, reduce
from tilewright.compiler.cpu.ir.writer import Number, Operand, i64, pointer_to
from tilewright.compiler.cpu.loops.assign import emit_assign
from tilewright.compiler.cpu.loops.function import Function
from tilewright.compiler.cpu.microkernels.tile import ByteProduct, FloatProduct, Tile, define_tile, split_rows
from tilewright.compiler.cpu.stages.context import Context
from tilewright.compiler.cpu.stages.value import ElementFn
from tilewright.compiler.cpu.target import Target

_VECTORS = 8  # sums of a tile of one row: enough to hide the latency of an addition


class Finished(Struct, frozen=True):
    """Rows and units whose gates have been computed.

    Attributes:
        sums: the products, [rows, gates, units of a block].
        rows, units: their largest numbers.
        first_row, first_unit: first row and unit, loop variables with values.
        bound: number of units where only the run time knows it.
    """

    sums: Buffer
    rows: int
    units: int
    gates: int
    first_row: Var
    first_unit: Var
    bound: Number

    def assign(self, f: Function, target: Buffer, fn: Callable[[Index, Index, Callable[[int], Expr]], Expr],
               place: Callable[[Index, Index], Index]) -> None:  # fmt: skip
        """Writes `target[place(b, j)] = fn(b, j, gate)` for the rows b and units j; `gate(n)` is the n-th product."""
        row, unit = Var.new(self.rows), Var.new(self.units)
        r, u = Index.of(row), Index.of(unit)
        gate = lambda n: load(self.sums, (r * self.gates + n) * self.units + u)
        b, j = Index.of(self.first_row) + r, Index.of(self.first_unit) + u
        body = fn(b, j, gate).to(target.dtype)
        emit_assign(f, Assignment([row, unit], body, target, place(b, j)), {unit: self.bound})


class GateProduct:
    """`state @ R^T` for neighbouring gates of one direction.

    Args:
        ctx: receives the packed weights.
        hidden: units.
        gates: the gates.
        batch: rows of the state.
        dtype: type of the state; "u8" is multiplied by int8 weights, with sums in int32.
        known: constant weights [gates * hidden, hidden], float32 or int8; None if they are of other types or not known.
        read: reads the weight of a row and a column where weights are not constant.

    Attributes:
        panels: the packed weights, [blocks, hidden, gates, units of a block]; of bytes four neighbours along hidden
            last.
        sums: memory of a tile.
        depth: elements of a row of the state, groups of four for bytes.
        stride: row stride of the state, elements.
        work: number of multiplications.
    """

    def __init__(
        self,
        ctx: Context,
        hidden: int,
        gates: range,
        batch: int,
        dtype: str,
        known: np.ndarray | None,
        read: Callable[[Index, Index], Expr] | None = None,
    ) -> None:
        self.target, self.batch, self.dtype, self.gates = ctx.target, batch, dtype, len(gates)
        self.hidden = hidden
        self.group = 4 if dtype == "u8" else 1
        self.depth = -(-hidden // self.group)
        self.stride = self.depth * self.group
        self.units = self._units(ctx.target)
        self.blocks = -(-self.hidden // self.units)
        self.work = batch * self.gates * self.hidden**2
        if known is not None:
            self.panels = ctx.constant(self._packed(known, gates) if not ctx.dry else known[:0], stem="gates")
        else:
            assert read is not None
            shape = (self.blocks, self.hidden, self.gates, self.units)
            self.panels = ctx.lazy(shape, dtype, self._packing(read, gates), 4)
        ctx.buffer(self.panels)
        self.tiles = split_rows(batch, self._rows) if batch else []
        rows = max((size for _, size in self.tiles), default=0)
        sums = "i32" if self.group > 1 else dtype
        self.sums = Buffer("", sums, rows * self.gates * self.units, "temp", private=True)

    def _units(self, target: Target) -> int:
        """Units of a block: more than a vector of them where there are too few sums otherwise."""
        vectors = -(-self.hidden // target.lanes)
        fitting = [v for v in (8, 4, 2) if self.gates * v * min(self.batch, 3) <= _VECTORS and vectors % v == 0]
        return max(fitting, default=1) * target.lanes

    @property
    def _rows(self) -> int:
        """Most rows of a tile: all registers but those for a row of B and two elements of A."""
        vectors = self.gates * self.units // self.target.lanes
        return max((self.target.vector_registers - 2 - vectors) // vectors, 1)

    def _packed(self, r: np.ndarray, gates: range) -> np.ndarray:
        chosen = r.reshape(-1, self.hidden, self.hidden)[gates.start : gates.stop]
        padded = np.zeros((self.gates, self.blocks * self.units, self.stride), r.dtype)
        padded[:, : self.hidden, : self.hidden] = chosen
        by_block = padded.reshape(self.gates, self.blocks, self.units, self.depth, self.group)
        return np.ascontiguousarray(by_block.transpose(1, 3, 0, 2, 4))

    def _packing(self, read: Callable[[Index, Index], Expr], gates: range) -> ElementFn:
        """The element function that packs the weights at run time."""

        def fn(idx: list[Index]) -> Expr:
            block, k, gate, u = idx
            unit = block * self.units + u
            weight = read((gate + gates.start) * self.hidden + unit, k).to(self.dtype)
            if self.hidden % self.units == 0:
                return weight
            return guard(index_value(unit) < self.hidden, weight, const(0.0, self.dtype))

        return fn

    def emit(
        self,
        f: Function,
        state: Buffer,
        at: Index,
        follow: Callable[[Finished], None],
        blocks: AbstractContextManager[Operand],
    ) -> None:
        """Writes the product of the state at an offset of a buffer.

        Args:
            follow: writes the epilogue of each tile.
            blocks: the loop over the blocks of units.
        """
        unit, row = Var.new(self.blocks * self.units), Var.new(max(self.batch, 1))
        with blocks as block:
            f.variables[unit] = f.mul(block, self.units)
            left: Number = self.units
            if self.hidden % self.units:
                left = f.intrinsic("smin", f.sub(self.hidden, f.variables[unit]), self.units)
            done = 0
            for count, size in self.tiles:
                with f.loop(0, count) as turn:
                    f.variables[row] = f.add(f.mul(turn, size), done)
                    finished = Finished(self.sums, size, self.units, self.gates, row, unit, left)
                    start = at + Index.of(row) * self.stride
                    if self.dtype in ("f32", "u8"):
                        self._multiply(f, f.element(state, f.index(start)), block, size)
                    else:
                        self._reduce(f, state, start, unit, size)
                    follow(finished)
                done += count * size

    def _multiply(self, f: Function, a: Operand, block: Operand, size: int) -> None:
        width = self.gates * self.units
        tile = Tile(size, width // self.target.lanes, 4 * self.depth, 4, 4 * width, 4 * width)
        assert self.panels.buffer is not None
        b = f.element(self.panels.buffer, f.mul(block, self.stride * width))
        product = ByteProduct(f.module, a_signed=False) if self.group > 1 else FloatProduct(f.module)
        name = define_tile(f.module, tile, product)
        f.run(f"@{name}", [a, b, f.element(self.sums, 0), i64(self.depth), pointer_to("null")])

    def _reduce(self, f: Function, state: Buffer, start: Index, unit: Var, size: int) -> None:
        """Writes the product as plain sums, for other types."""
        width = self.gates * self.units
        row, column, k = Var.new(size), Var.new(width), Var.new(self.hidden)
        assert self.panels.buffer is not None
        line = Index.of(unit) * self.gates * self.hidden + Index.of(k) * width + Index.of(column)
        value = load(state, start + Index.of(row) * self.hidden + Index.of(k)) * load(self.panels.buffer, line)
        total = reduce("add", [k], value, const(0.0, self.dtype))
        emit_assign(f, Assignment([row, column], total, self.sums, Index.of(row) * width + Index.of(column)), {})
