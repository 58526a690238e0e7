"""DynamicQuantizedLSTM: one direction of onnxruntime's DynamicQuantizeLSTM behind the product with the inputs.

Every step quantises the state to bytes with a scale of its own, so a difference in the last place of an activation
would become one of a whole step. The rules are therefore onnxruntime's to the last bit, activations included: those are
the rational functions of its library MLAS.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import numpy as np

from tilewright.compiler.cpu.expr import (
    Assignment,
    Expr,
    Index,
    Var,
    call,
    clamp,
    const,
    linear,
    maximum,
    minimum,
    mlas,
    reduce,
    select,
)
from tilewright.compiler.cpu.loops.assign import emit_assign
from tilewright.compiler.cpu.loops.function import Function
from tilewright.compiler.cpu.microkernels.recurrence import Finished, GateProduct
from tilewright.compiler.cpu.ops.integer import signed_weights
from tilewright.compiler.cpu.ops.quantization import saturate
from tilewright.compiler.cpu.ops.rules import op
from tilewright.compiler.cpu.stages.context import Context
from tilewright.compiler.cpu.stages.value import Value

Gate = Callable[[int], Expr]  # number of a gate: its sum


class _Steps:
    """The loop over time of a direction. Inputs: X W^T [steps, batch, 4*hidden], R [hidden, 4*hidden], bias, scale and
    zero point of R, initial h and c [batch, hidden]; gates in the order input, output, forget, cell.

    R is int8 with zero point z. A sum of (state - zs) * (R - z) is the product of the bytes, less z times the sum of
    the state's row and zs times the sum of the column of R - z.
    """

    def __init__(self, ctx: Context) -> None:
        self.ctx = ctx
        given = {k: ctx.stored(ctx.input(k)) for k in (0, 2, 3, 5, 6)}
        self.projected, self.bias, self.weight_scale, self.h0, self.c0 = given.values()
        self.steps, self.batch, columns = self.projected.shape
        self.hidden = columns // 4
        self.reverse = bool(ctx.attr("reverse", 0))
        data, zero = ctx.const_input(1), ctx.const_input(4)
        assert data is not None and zero is not None
        weights, moved = signed_weights(data)
        self.weight_zero = int(zero.reshape(-1)[0]) - moved
        self.columns = ctx.constant((weights.astype(np.int64) - self.weight_zero).sum(0).astype(np.int32))
        self.product = GateProduct(ctx, self.hidden, range(4), self.batch, "u8", np.ascontiguousarray(weights.T), None)
        size = (self.batch, self.hidden)
        self.y = ctx.temp((self.steps, *size), "f32")
        self.h, self.c = ctx.temp(size, "f32"), ctx.temp(size, "f32")
        self.stored = ctx.temp((self.batch, self.product.stride), "u8")
        self.low, self.high, self.scale = (ctx.temp((), "f32") for _ in range(3))
        self.zero, self.rows = ctx.temp((), "i32"), ctx.temp((self.batch,), "i32")
        self.t = Var.new(self.steps)

    @property
    def temps(self) -> list[Value]:
        sums = Value((self.product.sums.size,), "i32", self.product.sums)
        return [self.y, self.h, self.c, self.stored, self.low, self.high, self.scale, self.zero, self.rows, sums]

    def emit(self, f: Function) -> None:
        self.assign(f, self.h, lambda at: self.ctx.read(self.h0, at))
        self.assign(f, self.c, lambda at: self.ctx.read(self.c0, at))
        with f.loop(0, self.steps) as step:
            f.variables[self.t] = step
            self.quantize(f)
            assert self.stored.buffer is not None
            blocks = f.loop(0, self.product.blocks)
            self.product.emit(f, self.stored.buffer, Index(0), functools.partial(self.follow, f), blocks)

    def assign(self, f: Function, target: Value, fn: Callable[[list[Index]], Expr], shape: Sequence[int] = ()) -> None:
        """Writes `target[at]` for all `at`, or for those of a smaller shape."""
        variables = [Var.new(n) for n in shape or target.shape]
        at = [Index.of(v) for v in variables]
        assert target.buffer is not None
        emit_assign(f, Assignment(variables, fn(at), target.buffer, linear(at, target.shape)))

    def quantize(self, f: Function) -> None:
        """Quantises the state to bytes: the range of all its elements and 0 is spread over 0..255."""
        read = self.ctx.read
        for target, kind in ((self.low, "min"), (self.high, "max")):
            variables = self.h.vars()
            over = read(self.h, [Index.of(v) for v in variables])
            self.assign(f, target, lambda at, kind=kind, v=variables, e=over: reduce(kind, v, e, const(0.0, "f32")))  # type: ignore[misc]
        low, high = minimum(read(self.low, []), 0.0), maximum(read(self.high, []), 0.0)
        width = (high - low) / 255.0
        self.assign(f, self.scale, lambda at: select(width.eq(0.0), const(1.0, "f32"), width))
        scale = read(self.scale, [])
        zero = call("roundeven", clamp(0.0 - low / scale, 0.0, 255.0)).to("i32")
        self.assign(f, self.zero, lambda at: zero)
        stored = lambda at: saturate(read(self.h, at) / scale, read(self.zero, []), "u8")
        self.assign(f, self.stored, stored, self.h.shape)
        if self.weight_zero:
            k = Var.new(self.hidden)
            byte = lambda at: read(self.stored, [at[0], Index.of(k)]).to("i32")
            self.assign(f, self.rows, lambda at: reduce("add", [k], byte(at), 0))

    def follow(self, f: Function, done: Finished) -> None:
        """Writes the new cell and state of finished units, and the output of the step."""
        here = Index.of(self.t)
        when = self.steps - 1 - here if self.reverse else here
        for target, fn, first in ((self.c, self.cell, []), (self.h, self.state, []), (self.y, self.shown, [when])):
            assert target.buffer is not None
            done.assign(f, target.buffer, fn, lambda b, j, t=target, n=first: linear([*n, b, j], t.shape))  # type: ignore[misc]

    def gate(self, number: int, b: Index, j: Index, gate: Gate) -> Expr:
        """The value of a gate after its activation."""
        read, here, column = self.ctx.read, Index.of(self.t), j + number * self.hidden
        when = self.steps - 1 - here if self.reverse else here
        whole = gate(number)
        if self.weight_zero:
            whole = whole - read(self.rows, [b]) * self.weight_zero
        whole = whole - read(self.zero, []) * read(self.columns, [column])
        multiplier = read(self.scale, []) * read(self.weight_scale, [column])
        sums = read(self.projected, [when, b, column]) + whole.to("f32") * multiplier
        x = sums + read(self.bias, [column])
        return mlas.tanh(x) if number == 3 else mlas.sigmoid(x)

    def cell(self, b: Index, j: Index, gate: Gate) -> Expr:
        enter, forget, new = (self.gate(number, b, j, gate) for number in (0, 2, 3))
        return self.ctx.read(self.c, [b, j]) * forget + enter * new

    def state(self, b: Index, j: Index, gate: Gate) -> Expr:
        return mlas.tanh(self.ctx.read(self.c, [b, j])) * self.gate(1, b, j, gate)

    def shown(self, b: Index, j: Index, gate: Gate) -> Expr:
        return self.ctx.read(self.h, [b, j])


@op("DynamicQuantizedLSTM")
def dynamic_quantized_lstm(ctx: Context) -> None:
    steps = _Steps(ctx)
    ctx.kernel(steps.emit, steps.temps)
    for out, value in enumerate((steps.y, steps.h, steps.c)):
        ctx.bind(value, out)
