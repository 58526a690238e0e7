"""RNN, GRU, LSTM: one product for the inputs of all steps, then a loop over time in one kernel."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from compiler.cpu.expr import (
    Assignment,
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
from compiler.cpu.expr import mathlib as m
from compiler.cpu.loops.assign import emit_assign
from compiler.cpu.loops.function import Function
from compiler.cpu.ops.elementwise import HALVES, widen
from compiler.cpu.ops.matmul import matmul_value
from compiler.cpu.ops.rules import op
from compiler.cpu.stages.context import Context
from compiler.cpu.stages.value import ElementFn, Value

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
Activation = Callable[[Expr], Expr]

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
    """The node's functions. Those with parameters take the next values of the lists, as long as there are any."""
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


@dataclass
class Sequence:
    """One direction of a recurrent node: names as in the ONNX standard, indices are (batch, unit)."""

    ctx: Context
    kind: str
    functions: list[Activation]
    direction: int
    reverse: bool
    projected: Value  # [steps, batch, gates * hidden], biases included
    recurrence: Value  # R transposed: [hidden, gates * hidden]
    y: Value  # [steps, directions, batch, hidden]
    y_h: Value  # [directions, batch, hidden]
    y_c: Value

    def __post_init__(self) -> None:
        self.steps, _, self.batch, self.hidden = self.y.shape
        self.dtype = self.projected.dtype
        size = (self.batch, self.hidden)
        self.h, self.c, self.h_next, self.c_next = (self.ctx.temp(size, self.dtype) for _ in range(4))
        self.gates = self.ctx.temp((self.batch, self.projected.shape[-1]), self.dtype)
        self.lengths = self.ctx.stored(self.ctx.input(4)) if self.ctx.has(4) else None
        has_initial = {"h": 5, "c": 6}
        self.initial = {s: self.ctx.stored(self.ctx.input(k)) for s, k in has_initial.items() if self._given(s, k)}
        self.peepholes = self.ctx.stored(self.ctx.input(7)) if self.kind == "LSTM" and self.ctx.has(7) else None
        self.bias = self.ctx.stored(self.ctx.input(3)) if self.ctx.has(3) else None

    def _given(self, state: str, k: int) -> bool:
        return self.ctx.has(k) and (state == "h" or self.kind == "LSTM")

    @property
    def temps(self) -> list[Value]:
        return [self.h, self.c, self.h_next, self.c_next, self.gates, self.y, self.y_h, self.y_c]

    # Parts of expressions.

    def zero(self) -> Expr:
        return const(0.0, self.dtype)

    def running(self, b: Index) -> Expr:
        """Whether this step still belongs to the sequence."""
        if self.lengths is None:
            return const(1, "b")
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

    def gate(self, number: int, b: Index, j: Index) -> Expr:
        return self.ctx.read(self.gates, [b, j + number * self.hidden])

    def read(self, v: Value, b: Index, j: Index) -> Expr:
        return self.ctx.read(v, [b, j])

    def times_recurrence(self, state: Value, b: Index, g: Index) -> Expr:
        k = Var.new(self.hidden)
        r = widen(self.ctx.read(self.recurrence, [Index.of(k), g]))
        return reduce("add", [k], self.ctx.read(state, [b, Index.of(k)]) * r, self.zero())

    def input(self, b: Index, g: Index) -> Expr:
        return self.ctx.read(self.projected, [self.when(b), b, g])

    def peephole(self, number: int, state: Value, b: Index, j: Index) -> Expr:
        if self.peepholes is None:
            return self.zero()
        p = self.ctx.read(self.peepholes, [Index(self.direction), j + number * self.hidden])
        return widen(p) * self.read(state, b, j)

    # Assignments over (batch, unit).

    def assign(
        self, f: Function, target: Value, fn: Callable[[Index, Index], Expr], columns: tuple[int, int] | None = None
    ) -> None:
        low, high = columns or (0, target.shape[-1])
        b, j = Var.new(self.batch), Var.new(high - low)
        at = [Index.of(b), Index.of(j) + low]
        assert target.buffer is not None
        emit_assign(f, Assignment([b, j], fn(*at).to(target.dtype), target.buffer, linear(at, target.shape)))

    def emit(self, f: Function) -> None:
        """The whole direction: initial states, steps, final states."""
        d = Index(self.direction)
        states = {"h": self.h, "c": self.c} if self.kind == "LSTM" else {"h": self.h}
        for name, state in states.items():
            self.assign(f, state, self._first(name))
        self.t = Var.new(self.steps)
        with f.loop(0, self.steps) as step:
            f.variables[self.t] = step
            {"RNN": self.rnn, "GRU": self.gru, "LSTM": self.lstm}[self.kind](f)
            self._store_step(f)
            self.assign(f, self.h, self._kept(self.h_next, self.h))
            if self.kind == "LSTM":
                self.assign(f, self.c, self._kept(self.c_next, self.c))
        for state, final in ((self.h, self.y_h), (self.c, self.y_c)):
            if state is self.h or self.kind == "LSTM":
                b, j = Var.new(self.batch), Var.new(self.hidden)
                at = [d, Index.of(b), Index.of(j)]
                assert final.buffer is not None
                value = self.read(state, *at[1:]).to(final.dtype)
                emit_assign(f, Assignment([b, j], value, final.buffer, linear(at, final.shape)))

    def _first(self, name: str) -> Callable[[Index, Index], Expr]:
        """The state before the first step."""
        start = self.initial.get(name)
        if start is None:
            return lambda b, j: self.zero()
        return lambda b, j: widen(self.ctx.read(start, [Index(self.direction), b, j]))

    def _kept(self, new: Value, old: Value) -> Callable[[Index, Index], Expr]:
        """The new state, as long as the sequence runs."""
        return lambda b, j: select(self.running(b), self.read(new, b, j), self.read(old, b, j))

    def _store_step(self, f: Function) -> None:
        b, j = Var.new(self.batch), Var.new(self.hidden)
        bi, ji = Index.of(b), Index.of(j)
        value = select(self.running(bi), self.read(self.h_next, bi, ji), self.zero()).to(self.y.dtype)
        assert self.y.buffer is not None
        at = [self.when(bi), Index(self.direction), bi, ji]
        emit_assign(f, Assignment([b, j], value, self.y.buffer, linear(at, self.y.shape)))

    def rnn(self, f: Function) -> None:
        (act,) = self.functions
        self.assign(f, self.gates, lambda b, g: self.times_recurrence(self.h, b, g) + self.input(b, g))
        self.assign(f, self.h_next, lambda b, j: act(self.gate(0, b, j)))

    def lstm(self, f: Function) -> None:
        act, act_c, act_h = self.functions
        self.assign(f, self.gates, lambda b, g: self.times_recurrence(self.h, b, g) + self.input(b, g))

        def cell(b: Index, j: Index) -> Expr:
            i = act(self.gate(0, b, j) + self.peephole(0, self.c, b, j))
            coupled = bool(self.ctx.attr("input_forget", 0))
            forget = 1.0 - i if coupled else act(self.gate(2, b, j) + self.peephole(2, self.c, b, j))
            return forget * self.read(self.c, b, j) + i * act_c(self.gate(3, b, j))

        self.assign(f, self.c_next, cell)
        self.assign(
            f,
            self.h_next,
            lambda b, j: (
                act(self.gate(1, b, j) + self.peephole(1, self.c_next, b, j)) * act_h(self.read(self.c_next, b, j))
            ),
        )

    def gru(self, f: Function) -> None:
        act, act_h = self.functions
        both = (0, 2 * self.hidden)
        self.assign(f, self.gates, lambda b, g: self.times_recurrence(self.h, b, g) + self.input(b, g), both)
        new = lambda j: j + 2 * self.hidden
        if self.ctx.attr("linear_before_reset", 0):
            bias_at = lambda j: [Index(self.direction), j + 5 * self.hidden]
            own = lambda j: self.zero() if self.bias is None else widen(self.ctx.read(self.bias, bias_at(j)))
            self.assign(f, self.c, lambda b, j: self.times_recurrence(self.h, b, new(j)) + own(j))
            self.assign(
                f, self.c_next, lambda b, j: act(self.gate(1, b, j)) * self.read(self.c, b, j) + self.input(b, new(j))
            )
        else:
            self.assign(f, self.c, lambda b, j: act(self.gate(1, b, j)) * self.read(self.h, b, j))
            self.assign(f, self.c_next, lambda b, j: self.times_recurrence(self.c, b, new(j)) + self.input(b, new(j)))

        def update(b: Index, j: Index) -> Expr:
            z = act(self.gate(0, b, j))
            return (1.0 - z) * act_h(self.read(self.c_next, b, j)) + z * self.read(self.h, b, j)

        self.assign(f, self.h_next, update)


def _projected(ctx: Context, direction: int, x: Value, w: Value, kind: str) -> Value:
    """X W^T with all biases that are added before anything else: [steps, batch, gates * hidden]."""
    steps, batch, size = x.shape
    columns = w.shape[1]
    hidden = columns // GATES[ctx.node.op]
    const_w = ctx.graph.const(ctx.node.inputs[1])
    transposed = ctx.lazy((size, columns), w.dtype, _turned(ctx, w, direction))
    rows = ctx.lazy((steps * batch, size), x.dtype, lambda idx: ctx.read(x, [idx[0] // batch, idx[0] % batch, idx[1]]))
    full = (steps * batch, columns)
    if x.dtype == "f32" and size and full[0]:
        product = matmul_value(ctx, rows, transposed, full, None if const_w is None else const_w[direction].T)
    else:
        ctx.buffer(rows), ctx.buffer(transposed)

        def plain(idx: list[Index]) -> Expr:
            k = Var.new(size)
            a, b = ctx.read(rows, [idx[0], Index.of(k)]), ctx.read(transposed, [Index.of(k), idx[1]])
            return reduce("add", [k], widen(a) * widen(b), const(0.0, kind))

        product = ctx.stored(ctx.lazy(full, kind, plain, 1000))
    biases = ctx.stored(ctx.input(3)) if ctx.has(3) else None
    # The recurrent bias of GRU's new state is multiplied by the reset gate, if that acts after the product.
    late = 2 * hidden if ctx.node.op == "GRU" and ctx.attr("linear_before_reset", 0) else columns

    def fn(idx: list[Index]) -> Expr:
        t, b, g = idx
        y = ctx.read(product, [t * batch + b, g])
        if biases is not None:
            y = y + widen(ctx.read(biases, [Index(direction), g]))
            own = widen(ctx.read(biases, [Index(direction), g + columns]))
            y = y + (own if late == columns else select(index_value(g) < late, own, 0.0))
        return y

    ctx.buffer(product)
    return ctx.stored(ctx.lazy((steps, batch, columns), kind, fn, 4))


def _turned(ctx: Context, v: Value, direction: int) -> ElementFn:
    """One direction of weights [directions, columns, rows], transposed."""
    return lambda idx: ctx.read(v, [Index(direction), idx[1], idx[0]])


@op("RNN", "GRU", "LSTM")
def recurrent(ctx: Context) -> None:
    if ctx.attr("layout", 0):
        raise ctx.unsupported("layout=1", "0")
    x, w, r = (ctx.stored(ctx.input(k)) for k in range(3))
    kind = "f32" if x.dtype in HALVES else x.dtype
    steps, batch, _ = x.shape
    directions, columns, hidden = r.shape
    count = len(ctx.attr("activations")) // directions
    functions = activations(ctx)
    y = ctx.temp((steps, directions, batch, hidden), x.dtype)
    y_h, y_c = (ctx.temp((directions, batch, hidden), x.dtype) for _ in range(2))
    for d in range(directions):
        turned = ctx.lazy((hidden, columns), r.dtype, _turned(ctx, r, d))
        part = Sequence(
            ctx, ctx.node.op, functions[d * count : (d + 1) * count], d, d == 1 or ctx.attr("direction") == "reverse",
            _projected(ctx, d, x, w, kind), ctx.stored(turned), y, y_h, y_c,
        )  # fmt: skip
        ctx.kernel(part.emit, part.temps)
    for out, value in enumerate((y, y_h, y_c)):
        ctx.bind(value, out)
