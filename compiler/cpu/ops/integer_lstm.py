"""IntegerLSTM: LiteRT's LSTM of bytes with a 16-bit cell, behind the product with the inputs.

Gates are 16-bit fixed-point numbers: the sums of inputs and of states are rescaled one by one, added with saturation
and looked up in tables of the activations. Every rounding is LiteRT's.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from tilewright.compiler.cpu.expr import Assignment, Dynamic, Expr, Index, Var, clamp, const, linear, select
from tilewright.compiler.cpu.loops.assign import emit_assign
from tilewright.compiler.cpu.loops.function import Function
from tilewright.compiler.cpu.microkernels.recurrence import Finished, GateProduct
from tilewright.compiler.cpu.ops.rules import op
from tilewright.compiler.cpu.stages.context import Context
from tilewright.compiler.cpu.stages.value import Value

Gate = Callable[[int], Expr]  # number of a gate: its sum
_FLIP = 128  # states are kept as unsigned bytes


def rounded_right(x: Expr, by: int) -> Expr:
    """Shifts an int64 right, rounded to the nearest, ties away from zero."""
    if by == 0:
        return x
    return (x + (1 << (by - 1)) + select(x < 0, const(-1, "i64"), 0)).shr(by)


def scaled(x: Expr, mantissa: int, shift: int) -> Expr:
    """`x * mantissa * 2^(shift - 31)` of an int64: the high product with ties upwards, then `rounded_right`."""
    high = (x * (1 << max(shift, 0)) * mantissa + (1 << 30)).shr(31)
    return rounded_right(high, max(-shift, 0))


class _Steps:
    """The loop over time of the LSTM.

    Inputs: gates of the inputs [steps, batch, gates * hidden] int16; R [gates * hidden, hidden] int8; tables of the
    logistic function, of tanh for the gate and of tanh for the cell, [65536] int16 from -32768 on. Gates are in the
    order input, forget, cell, output; where there are three the input gate is 1 - forget.

    Attributes of the node: `mantissas` and `shifts` of the products by gate, `state` (mantissa and shift of the new
    state, its zero point and that of the first one), `cell_bits`, `bounds` of the cell. The cell is in units of
    2^cell_bits.
    """

    def __init__(self, ctx: Context) -> None:
        self.ctx = ctx
        self.projected, *self.tables = (ctx.stored(ctx.input(k)) for k in (0, 2, 3, 4))
        weights = ctx.const_input(1)
        assert weights is not None
        self.steps, self.batch, columns = self.projected.shape
        self.hidden = weights.shape[1]
        self.count = columns // self.hidden
        self.mantissas, self.shifts, self.last, self.bounds = (
            list(ctx.attr(name)) for name in ("mantissas", "shifts", "state", "bounds")
        )
        self.cell_bits = int(ctx.attr("cell_bits"))
        self.product = GateProduct(ctx, self.hidden, range(self.count), self.batch, "u8", weights)
        # A byte u of the state stands for u - 128 - zero point.
        moved = weights.astype(np.int64).sum(1) * -(_FLIP + self.last[3])
        self.moved = ctx.constant(moved.astype(np.int32))
        size = (self.batch, self.hidden)
        self.y = ctx.temp((self.steps, *size), "i8")
        self.h, self.c = ctx.temp((2, self.batch, self.product.stride), "u8"), ctx.temp(size, "i16")
        self.t, self.now = Var.new(self.steps), Var.new(2)

    @property
    def temps(self) -> list[Value]:
        sums = Value((self.product.sums.size,), "i32", self.product.sums)
        return [self.y, self.h, self.c, sums]

    def emit(self, f: Function) -> None:
        size = (self.batch, self.hidden)
        for target, first in ((self.h, self.last[3] + _FLIP), (self.c, 0)):
            variables = [Var.new(n) for n in size]
            at = [Index.of(v) for v in variables]
            assert target.buffer is not None
            place = linear(at, target.shape[-2:])
            emit_assign(f, Assignment(variables, const(first, target.dtype), target.buffer, place))
        assert self.h.buffer is not None
        with f.loop(0, self.steps) as step:
            f.variables[self.t], f.variables[self.now] = step, f.and_(step, 1)
            start = Index.of(self.now) * (self.batch * self.product.stride)
            blocks = f.loop(0, self.product.blocks)
            self.product.emit(f, self.h.buffer, start, functools.partial(self.follow, f), blocks)

    def follow(self, f: Function, done: Finished) -> None:
        """Writes the new cell and state of finished units, and the output of the step."""
        other = 1 - Index.of(self.now)
        assert self.c.buffer is not None and self.h.buffer is not None and self.y.buffer is not None
        done.assign(f, self.c.buffer, self.cell, lambda b, j: linear([b, j], self.c.shape))
        done.assign(f, self.h.buffer, self.state, lambda b, j: linear([other, b, j], self.h.shape))
        shown = lambda b, j, gate: self.ctx.read(self.h, [other, b, j]) ^ _FLIP
        done.assign(f, self.y.buffer, shown, lambda b, j: linear([Index.of(self.t), b, j], self.y.shape))

    def gate(self, number: int, table: int, b: Index, j: Index, gate: Gate) -> Expr:
        """The value of a gate after its activation, int64."""
        column = j + number * self.hidden
        total = (gate(number) + self.ctx.read(self.moved, [column])).to("i64")
        own = scaled(total, int(self.mantissas[number]), int(self.shifts[number]))
        x = own + self.ctx.read(self.projected, [Index.of(self.t), b, column]).to("i64")
        return self.looked_up(table, clamp(x, -32768, 32767))

    def looked_up(self, table: int, x: Expr) -> Expr:
        """Looks up an activation of a 16-bit number in table `table`."""
        at = Index.of(Dynamic(x + 32768, 0, 65535))
        return self.ctx.read(self.tables[table], [at]).to("i64")

    def cell(self, b: Index, j: Index, gate: Gate) -> Expr:
        forget, new = self.gate(self.count - 3, 0, b, j, gate), self.gate(self.count - 2, 1, b, j, gate)
        enter = self.gate(0, 0, b, j, gate) if self.count == 4 else 32767 - forget
        kept = rounded_right(forget * self.ctx.read(self.c, [b, j]).to("i64"), 15)
        return clamp(kept + rounded_right(enter * new, 30 + self.cell_bits), int(self.bounds[0]), int(self.bounds[1]))

    def state(self, b: Index, j: Index, gate: Gate) -> Expr:
        mantissa, shift, zero, _ = (int(v) for v in self.last)
        shown = self.looked_up(2, self.ctx.read(self.c, [b, j]).to("i64"))
        value = scaled(self.gate(self.count - 1, 0, b, j, gate) * shown, mantissa, shift) + zero
        return clamp(value, -128, 127) + _FLIP


@op("IntegerLSTM")
def integer_lstm(ctx: Context) -> None:
    steps = _Steps(ctx)
    ctx.kernel(steps.emit, steps.temps)
    ctx.bind(steps.y)
