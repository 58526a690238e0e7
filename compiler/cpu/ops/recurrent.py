"""RNN, GRU, LSTM: one product for the inputs of all steps, then a loop over time in one kernel.

A step is one or two products of the state with packed weights (`microkernels/recurrence.py`), each followed at once by
the activations and the new state of the units that are finished.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator

import numpy as np
from msgspec import Struct

from tilewright.compiler.cpu.expr import (
    Assignment,
    Buffer,
    Dynamic,
    Expr,
    Index,
    Var,
    call,
    clamp,
    const,
    index_value,
    linear,
    reduce,
    select,
)
from tilewright.compiler.cpu.expr import mathlib as m
from tilewright.compiler.cpu.loops.function import Function
from tilewright.compiler.cpu.microkernels.recurrence import Finished, GateProduct
from tilewright.compiler.cpu.ops.elementwise import HALVES, widen
from tilewright.compiler.cpu.ops.matmul import matmul_value
from tilewright.compiler.cpu.ops.rules import op
from tilewright.compiler.cpu.stages.context import Context
from tilewright.compiler.cpu.stages.value import Value
from tilewright.compiler.graph.macs import hands_on

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
SHARED_WORK = 1 << 17  # multiplications of a step from which threads share it: less is done before they have met
Activation = Callable[[Expr], Expr]
Gate = Callable[[int], Expr]  # number of a product: its sum
UnitFn = Callable[[Index, Index, Gate], Expr]

# Name -> (defaults of alpha and beta where it takes them, body).
ACTIVATIONS: dict[str, tuple[tuple[float, ...], Callable[..., Expr]]] = {
    "relu": ((), lambda x: clamp(x, 0.0, None)),
    "tanh": ((), m.tanh),
    "sigmoid": ((), m.sigmoid),
    "softsign": ((), lambda x: x / (call("fabs", x) + 1.0)),
    "softplus": ((), m.softplus),
    "affine": ((1.0, 0.0), lambda x, a, b: x * a + b),
    "leakyrelu": ((0.01,), lambda x, a: select(x < 0.0, x * a, x)),
    "thresholdedrelu": ((1.0,), lambda x, a: select(x > a, x, 0.0)),
    "scaledtanh": ((1.0, 1.0), lambda x, a, b: m.tanh(x * b) * a),
    "hardsigmoid": ((0.2, 0.5), lambda x, a, b: clamp(x * a + b, 0.0, 1.0)),
    "elu": ((1.0,), lambda x, a: select(x < 0.0, m.expm1(x) * a, x)),
}


def activations(ctx: Context) -> list[Activation]:
    """The node's activation functions. Those with parameters take the next values of the lists, if there are any."""
    alphas, betas = (iter(ctx.attr(k) or ()) for k in ("activation_alpha", "activation_beta"))
    limit = ctx.attr("clip")

    def bound(body: Callable[..., Expr], parameters: list[float]) -> Activation:
        inside = (lambda x: x) if limit is None else (lambda x: clamp(x, -float(limit), float(limit)))
        return lambda x: body(inside(x), *parameters)

    found = []
    for name in ctx.attr("activations"):
        if name.lower() not in ACTIVATIONS:
            raise ctx.unsupported(f"activation {name!r}", ", ".join(ACTIVATIONS))
        defaults, body = ACTIVATIONS[name.lower()]
        lists: list[Iterator[float]] = [alphas, betas]
        found.append(bound(body, [float(next(values, d)) for values, d in zip(lists, defaults)]))
    return found


class Phase(Struct, frozen=True):
    """A product of a step, and its epilogue for each block of units.

    Attributes:
        product: product of `state`, at offset `at`.
        follow: writes the epilogue.
    """

    product: GateProduct
    state: Buffer
    at: Index
    follow: Callable[[Function, Finished], None]


class Direction:
    """One direction of a recurrent node. Names are those of the ONNX standard, elements are (batch, unit).

    The state is kept twice: a step reads one copy and writes the other.

    Args:
        ctx: context of the node.
        number: number of the direction.
        functions: its activations.
        projected: X W^T with the biases, [steps, batch, gates * hidden].
        y: [steps, directions, batch, hidden], for both directions.

    Attributes:
        h, c: the states, [2, batch, hidden] and [batch, hidden]; GRU has the update gate and the reset state there.
    """

    def __init__(self, ctx: Context, number: int, functions: list[Activation], projected: Value, y: Value) -> None:
        self.ctx, self.number, self.functions, self.projected, self.y = ctx, number, functions, projected, y
        self.kind = ctx.node.op
        self.reverse = number == 1 or ctx.attr("direction") == "reverse"
        self.steps, _, self.batch, self.hidden = y.shape
        self.dtype = projected.dtype
        size = (self.batch, self.hidden)
        self.h, self.c, self.z = (
            ctx.temp((2, *size), self.dtype),
            ctx.temp(size, self.dtype),
            ctx.temp(size, self.dtype),
        )
        self.lengths, self.bias, h_0, c_0 = (self._given(k) for k in (4, 3, 5, 6))
        self.initial = {"h": h_0, "c": c_0 if self.kind == "LSTM" else None}
        self.peepholes = self._given(7) if self.kind == "LSTM" else None
        self.t, self.now = Var.new(self.steps), Var.new(2)
        self.late = self.kind == "GRU" and not ctx.attr("linear_before_reset", 0)  # the reset acts before the product
        groups = [range(2), range(2, 3)] if self.late else [range(GATES[self.kind])]
        self.products = [self._product(gates) for gates in groups]

    def _product(self, gates: range) -> GateProduct:
        ctx, known, r = self.ctx, self.ctx.graph.const(self.ctx.node.inputs[2]), self.ctx.stored(self.ctx.input(2))
        fixed = known[self.number] if known is not None and known.dtype == np.float32 and self.dtype == "f32" else None
        read = lambda row, k: ctx.read(r, [Index(self.number), row, k])
        return GateProduct(ctx, self.hidden, gates, self.batch, self.dtype, fixed, read)

    def _given(self, k: int) -> Value | None:
        return self.ctx.stored(self.ctx.input(k)) if self.ctx.has(k) else None

    @property
    def temps(self) -> list[Value]:
        return [self.h, self.c, self.z]

    def start(self) -> list[Assignment]:
        """Assignments of the state before the first step."""
        parts = []
        for value, first in ((self.h, self.initial["h"]), (self.c, self.initial["c"])):
            b, j = Var.new(self.batch), Var.new(self.hidden)
            at = [Index.of(b), Index.of(j)]
            body = self.zero() if first is None else widen(self.ctx.read(first, [Index(self.number), *at]))
            parts.append(Assignment([b, j], body, _memory(value), linear(at, (self.batch, self.hidden))))
        return parts

    def finish(self, y_h: Value, y_c: Value) -> list[Assignment]:
        """Assignments of the states after the last step to the outputs that exist."""
        parts = []
        for target, read in ((y_h, self._after), (y_c, lambda b, j: self.ctx.read(self.c, [b, j]))):
            if target is y_h or self.kind == "LSTM":
                b, j = Var.new(self.batch), Var.new(self.hidden)
                at = [Index.of(b), Index.of(j)]
                place = linear([Index(self.number), *at], target.shape)
                parts.append(Assignment([b, j], read(*at).to(target.dtype), _memory(target), place))
        return parts

    def _after(self, b: Index, j: Index) -> Expr:
        return self.ctx.read(self.h, [Index(self.steps % 2), b, j])

    def emit(self, f: Function) -> None:
        """Writes all steps. Threads take blocks of units; no product begins before the one before it is done."""
        small = sum(p.work for p in self.products) < SHARED_WORK or self.dtype != "f32"
        with contextlib.ExitStack() as nest:
            if small:
                nest.enter_context(f.sharing.single_thread())
            regions = [f.sharing.region(product.blocks, self.steps) for product in self.products]
            step = nest.enter_context(f.loop(0, self.steps))
            f.variables[self.t], f.variables[self.now] = step, f.and_(step, 1)
            phases = {"RNN": self.rnn, "GRU": self.gru, "LSTM": self.lstm}[self.kind]()
            for number, phase in enumerate(phases):
                before = regions[number - 1]
                f.sharing.wait(before, f.mul(f.add(step, 1) if number else step, before.turns))
                blocks = f.sharing.parallel_loop(regions[number], step)
                phase.product.emit(f, phase.state, phase.at, functools.partial(phase.follow, f), blocks)

    # Parts of expressions.

    def zero(self) -> Expr:
        return const(0.0, self.dtype)

    def running(self, b: Index) -> Expr | None:
        """A condition that this step still belongs to the sequence; None if every step does."""
        if self.lengths is None:
            return None
        return index_value(Index.of(self.t)) < self.ctx.read(self.lengths, [b]).to("i64")

    def when(self, b: Index) -> Index:
        """The position of this step: backwards from the end of the sequence, if it is reversed."""
        here = Index.of(self.t)
        if not self.reverse:
            return here
        if self.lengths is None:
            return self.steps - 1 - here
        length = self.ctx.read(self.lengths, [b]).to("i64")
        back = length - 1 - index_value(here)
        return Index.of(Dynamic(select(back >= 0, back, index_value(here)), 0, self.steps - 1))

    def before(self, b: Index, j: Index) -> Expr:
        """The state that the step begins with."""
        return self.ctx.read(self.h, [Index.of(self.now), b, j])

    def cell(self, b: Index, j: Index) -> Expr:
        return self.ctx.read(self.c, [b, j])

    def input(self, gate: int, b: Index, j: Index) -> Expr:
        return self.ctx.read(self.projected, [self.when(b), b, j + gate * self.hidden])

    def peephole(self, number: int, b: Index, j: Index) -> Expr:
        if self.peepholes is None:
            return self.zero()
        return widen(self.ctx.read(self.peepholes, [Index(self.number), j + number * self.hidden])) * self.cell(b, j)

    # Steps.

    def _phase(self, number: int, follow: Callable[[Function, Finished], None], reset: bool = False) -> Phase:
        if reset:
            return Phase(self.products[number], _memory(self.c), Index(0), follow)
        start = Index.of(self.now) * (self.batch * self.hidden)
        return Phase(self.products[number], _memory(self.h), start, follow)

    def _write(self, f: Function, done: Finished, target: Value, fn: UnitFn) -> None:
        """Writes `target[b, j]` of the finished units."""
        done.assign(f, _memory(target), fn, lambda b, j: linear([b, j], target.shape))

    def _write_state(self, f: Function, done: Finished, fn: UnitFn) -> None:
        """Writes the new state, and the output of the step. Behind the end of a sequence the state stays the old one,
        and the output is 0.
        """
        other = 1 - Index.of(self.now)

        def state(b: Index, j: Index, gate: Gate) -> Expr:
            running, new = self.running(b), fn(b, j, gate)
            return new if running is None else select(running, new, self.before(b, j))

        def output(b: Index, j: Index, gate: Gate) -> Expr:
            running, new = self.running(b), self.ctx.read(self.h, [other, b, j])
            return new if running is None else select(running, new, self.zero())

        done.assign(f, _memory(self.h), state, lambda b, j: linear([other, b, j], self.h.shape))
        place = lambda b, j: linear([self.when(b), Index(self.number), b, j], self.y.shape)
        done.assign(f, _memory(self.y), output, place)

    def rnn(self) -> list[Phase]:
        (act,) = self.functions
        new = lambda b, j, gate: act(gate(0) + self.input(0, b, j))
        return [self._phase(0, lambda f, done: self._write_state(f, done, new))]

    def lstm(self) -> list[Phase]:
        act, act_c, act_h = self.functions

        def cell(b: Index, j: Index, gate: Gate) -> Expr:
            whole = lambda n: gate(n) + self.input(n, b, j)
            i = act(whole(0) + self.peephole(0, b, j))
            coupled = bool(self.ctx.attr("input_forget", 0))
            forget = 1.0 - i if coupled else act(whole(2) + self.peephole(2, b, j))
            new = forget * self.cell(b, j) + i * act_c(whole(3))
            running = self.running(b)
            return new if running is None else select(running, new, self.cell(b, j))

        def state(b: Index, j: Index, gate: Gate) -> Expr:
            return act(gate(1) + self.input(1, b, j) + self.peephole(1, b, j)) * act_h(self.cell(b, j))

        def follow(f: Function, done: Finished) -> None:
            self._write(f, done, self.c, cell)
            self._write_state(f, done, state)

        return [self._phase(0, follow)]

    def gru(self) -> list[Phase]:
        act, act_h = self.functions

        def mixed(z: Expr, new: Expr, b: Index, j: Index) -> Expr:
            return (1.0 - z) * new + z * self.before(b, j)

        if not self.late:
            own_at = lambda j: [Index(self.number), j + 5 * self.hidden]
            own = lambda j: self.zero() if self.bias is None else widen(self.ctx.read(self.bias, own_at(j)))

            def whole(b: Index, j: Index, gate: Gate) -> Expr:
                z, r = (act(gate(n) + self.input(n, b, j)) for n in range(2))
                return mixed(z, act_h(r * (gate(2) + own(j)) + self.input(2, b, j)), b, j)

            return [self._phase(0, lambda f, done: self._write_state(f, done, whole))]

        def gates(f: Function, done: Finished) -> None:
            self._write(f, done, self.z, lambda b, j, gate: act(gate(0) + self.input(0, b, j)))
            reset = lambda b, j, gate: act(gate(1) + self.input(1, b, j)) * self.before(b, j)
            self._write(f, done, self.c, reset)

        def new(b: Index, j: Index, gate: Gate) -> Expr:
            return mixed(self.ctx.read(self.z, [b, j]), act_h(gate(0) + self.input(2, b, j)), b, j)

        last = self._phase(1, lambda f, done: self._write_state(f, done, new), reset=True)
        return [self._phase(0, gates), last]


def _memory(v: Value) -> Buffer:
    assert v.buffer is not None
    return v.buffer


def _projected(ctx: Context, direction: int, x: Value, w: Value, kind: str) -> Value:
    """X W^T with all biases that are added before anything else: [steps, batch, gates * hidden]."""
    steps, batch, size = x.shape
    columns = w.shape[1]
    hidden = columns // GATES[ctx.node.op]
    const_w = ctx.graph.const(ctx.node.inputs[1])
    turned = lambda idx: ctx.read(w, [Index(direction), idx[1], idx[0]])
    transposed = ctx.lazy((size, columns), w.dtype, turned)
    rows = Value((steps * batch, size), x.dtype, ctx.buffer(x))
    full = (steps * batch, columns)
    if const_w is not None and x.dtype == kind and hands_on(const_w[direction]):
        product = rows
    elif x.dtype == "f32" and size and full[0]:
        product = matmul_value(ctx, rows, transposed, full, None if const_w is None else const_w[direction].T)
    else:
        ctx.buffer(transposed)

        def plain(idx: list[Index]) -> Expr:
            k = Var.new(size)
            a, b = ctx.read(rows, [idx[0], Index.of(k)]), ctx.read(transposed, [Index.of(k), idx[1]])
            return reduce("add", [k], widen(a) * widen(b), const(0.0, kind))

        product = ctx.stored(ctx.lazy(full, kind, plain, 1000))
    biases = ctx.stored(ctx.input(3)) if ctx.has(3) else None
    # The recurrent bias of GRU's new state is multiplied by the reset gate, if that acts after the product.
    late = 2 * hidden if ctx.node.op == "GRU" and ctx.attr("linear_before_reset", 0) else columns

    def fn(idx: list[Index]) -> Expr:
        row, g = idx
        y = ctx.read(product, [row, g])
        if biases is not None:
            y = y + widen(ctx.read(biases, [Index(direction), g]))
            own = widen(ctx.read(biases, [Index(direction), g + columns]))
            y = y + (own if late == columns else select(index_value(g) < late, own, 0.0))
        return y

    whole = ctx.stored(ctx.lazy(full, kind, fn, 4))
    return Value((steps, batch, columns), kind, whole.buffer)


@op("RNN", "GRU", "LSTM")
def recurrent(ctx: Context) -> None:
    x, w, r = (ctx.stored(ctx.input(k)) for k in range(3))
    kind = "f32" if x.dtype in HALVES else x.dtype
    steps, batch, _ = x.shape
    directions, _, hidden = r.shape
    count = len(ctx.attr("activations")) // directions
    functions = activations(ctx)
    y = ctx.temp((steps, directions, batch, hidden), x.dtype)
    y_h, y_c = (ctx.temp((directions, batch, hidden), x.dtype) for _ in range(2))
    parts = [
        Direction(ctx, d, functions[d * count : (d + 1) * count], _projected(ctx, d, x, w, kind), y)
        for d in range(directions)
    ]
    ctx.assign_all([a for part in parts for a in part.start()])

    def emit(f: Function) -> None:
        # A thread for each direction: they need not synchronise.
        each = f.sharing.is_parallel and f.module.threads == directions
        for part in parts:
            with f.sharing.single_thread() if each else contextlib.nullcontext():
                part.emit(f)

    sums = [p.sums for part in parts for p in part.products]
    temps = [v for part in parts for v in part.temps]
    ctx.kernel(emit, [y, *temps, *(Value((s.size,), s.dtype, s) for s in sums)], threaded=True)
    ctx.assign_all([a for part in parts for a in part.finish(y_h, y_c)])
    for out, value in enumerate((y, y_h, y_c)):
        ctx.bind(value, out)
