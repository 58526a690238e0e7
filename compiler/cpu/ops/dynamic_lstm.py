"""DynamicQuantizedLSTM: one direction of onnxruntime's DynamicQuantizeLSTM behind the product with the inputs.

Every step quantises the state to bytes with a scale of its own, so a difference in the last place of an activation
would become one of a whole step. The rules are therefore onnxruntime's to the last bit, activations included: those are
the rational functions of its library MLAS.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from compiler.cpu.expr import (
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
from compiler.cpu.loops.assign import emit_assign
from compiler.cpu.loops.function import Function
from compiler.cpu.ops.quantization import saturate
from compiler.cpu.ops.rules import op
from compiler.cpu.stages.context import Context
from compiler.cpu.stages.value import Value


class _Steps:
    """The loop over time. Inputs: X W^T [steps, batch, 4*hidden], R [hidden, 4*hidden], bias, scale and zero point of
    R, initial h and c [batch, hidden]; gates in the order input, output, forget, cell."""

    def __init__(self, ctx: Context) -> None:
        self.ctx = ctx
        given = [ctx.stored(ctx.input(k)) for k in range(7)]
        self.projected, self.weights, self.bias, self.weight_scale, self.weight_zero, self.h0, self.c0 = given
        self.steps, self.batch, columns = self.projected.shape
        self.hidden = columns // 4
        self.reverse = bool(ctx.attr("reverse", 0))
        size = (self.batch, self.hidden)
        self.y = ctx.temp((self.steps, *size), "f32")
        self.h, self.c = ctx.temp(size, "f32"), ctx.temp(size, "f32")
        self.stored = ctx.temp(size, "u8")
        self.low, self.high, self.scale = (ctx.temp((), "f32") for _ in range(3))
        self.zero = ctx.temp((), "i32")
        self.sums, self.gates = ctx.temp((self.batch, columns), "i32"), ctx.temp((self.batch, columns), "f32")
        self.t, self.k = Var.new(self.steps), Var.new(self.hidden)

    @property
    def temps(self) -> list[Value]:
        return [self.y, self.h, self.c, self.stored, self.low, self.high, self.scale, self.zero, self.sums, self.gates]

    def emit(self, f: Function) -> None:
        self.assign(f, self.h, lambda at: self.ctx.read(self.h0, at))
        self.assign(f, self.c, lambda at: self.ctx.read(self.c0, at))
        with f.loop(0, self.steps) as step:
            f.variables[self.t] = step
            self.quantize(f)
            self.assign(f, self.sums, lambda at: const(0, "i32"))
            with f.loop(0, self.hidden) as k:
                f.variables[self.k] = k
                self.assign(f, self.sums, self.product)
            self.assign(f, self.gates, self.gate)
            self.assign(f, self.c, self.cell)
            self.assign(f, self.h, lambda at: mlas.tanh(self.ctx.read(self.c, at)) * self.activated(1, at))
            here = Index.of(self.t)
            when = self.steps - 1 - here if self.reverse else here
            self.assign(f, self.y, lambda at: self.ctx.read(self.h, at), first=[when])

    def assign(
        self, f: Function, target: Value, fn: Callable[[list[Index]], Expr], first: Sequence[Index] = ()
    ) -> None:
        """`target[first..., at]` for all `at`."""
        variables = [Var.new(n) for n in target.shape[len(first) :]]
        at = [Index.of(v) for v in variables]
        assert target.buffer is not None
        emit_assign(f, Assignment(variables, fn(at), target.buffer, linear([*first, *at], target.shape)))

    def quantize(self, f: Function) -> None:
        """The state as bytes: the range of all its elements and 0 is spread over 0..255."""
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
        self.assign(f, self.stored, lambda at: saturate(read(self.h, at) / scale, read(self.zero, []), "u8"))

    def product(self, at: list[Index]) -> Expr:
        """The sum with one more element of the state."""
        read, k = self.ctx.read, Index.of(self.k)
        state = read(self.stored, [at[0], k]).to("i32") - read(self.zero, [])
        weight = read(self.weights, [k, at[1]]).to("i32") - read(self.weight_zero, []).to("i32")
        return read(self.sums, at) + state * weight

    def gate(self, at: list[Index]) -> Expr:
        read, here = self.ctx.read, Index.of(self.t)
        when = self.steps - 1 - here if self.reverse else here
        multiplier = read(self.scale, []) * read(self.weight_scale, [at[1]])
        sums = read(self.projected, [when, *at]) + read(self.sums, at).to("f32") * multiplier
        return sums + read(self.bias, [at[1]])

    def activated(self, number: int, at: list[Index]) -> Expr:
        x = self.ctx.read(self.gates, [at[0], at[1] + number * self.hidden])
        return mlas.tanh(x) if number == 3 else mlas.sigmoid(x)

    def cell(self, at: list[Index]) -> Expr:
        old = self.ctx.read(self.c, at)
        return old * self.activated(2, at) + self.activated(0, at) * self.activated(3, at)


@op("DynamicQuantizedLSTM")
def dynamic_quantized_lstm(ctx: Context) -> None:
    steps = _Steps(ctx)
    ctx.kernel(steps.emit, steps.temps)
    for out, value in enumerate((steps.y, steps.h, steps.c)):
        ctx.bind(value, out)
