"""Elementwise operators: unary functions, binary operators with broadcasting, comparisons, logic, Cast."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from tilewright.compiler.cpu.expr import (
    FLOATS,
    SIZES,
    Expr,
    Index,
    call,
    clamp,
    const,
    fma,
    maximum,
    minimum,
    mlas,
    select,
)
from tilewright.compiler.cpu.expr import mathlib as m
from tilewright.compiler.cpu.expr.small_types import convert, is_small_float
from tilewright.compiler.cpu.ops.rules import op
from tilewright.compiler.cpu.stages.context import CHEAP, Context
from tilewright.compiler.cpu.stages.value import Value

HALVES = ("f16", "bf16")


def widen(e: Expr) -> Expr:
    """Converts half types to float32 for computation."""
    return e.to("f32") if e.dtype in HALVES else e


def elementwise(ctx: Context, values: list[Value], body: Callable[..., Expr], cost: int) -> None:
    """Defines output 0 as body(operands), broadcast."""
    shape, dtype = ctx.out_shape(), ctx.out_dtype()
    for v in values:
        # Repeating much work for every broadcast element is worse than storing it.
        if v.cost > CHEAP and v.size < int(np.prod(shape)):
            ctx.buffer(v)

    def fn(idx: list[Index]) -> Expr:
        return body(*(widen(ctx.read_broadcast(v, idx)) for v in values)).to(dtype)

    ctx.define(shape, dtype, fn, cost + sum(v.cost for v in values))


def floats_only(ctx: Context) -> None:
    if ctx.input(0).dtype not in FLOATS:
        raise ctx.unsupported(f"input of type {ctx.input(0).dtype}", "float16, bfloat16, float32, float64")


def _round(name: str) -> Callable[[Expr], Expr]:
    return lambda x: call(name, x) if x.dtype in FLOATS else x


def _abs(x: Expr) -> Expr:
    if x.dtype in FLOATS:
        return call("fabs", x)
    return x if x.dtype[0] == "u" else call("abs", x)


def _sign(x: Expr) -> Expr:
    one = const(1, x.dtype)
    if x.dtype[0] == "u":
        return select(x.ne(0), one, 0)
    return select(x > 0, one, select(x < 0, const(-1, x.dtype), x))


def _tanh_gelu(x: Expr) -> Expr:
    return 0.5 * x * (1.0 + m.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))


def _gelu(x: Expr) -> Expr:
    return 0.5 * x * (1.0 + m.erf(x * math.sqrt(0.5)))


UNARY: dict[str, tuple[Callable[[Expr], Expr], int]] = {
    "Neg": (lambda x: -x, 1),
    "Abs": (_abs, 1),
    "Sign": (_sign, 1),
    "Floor": (_round("floor"), 1),
    "Ceil": (_round("ceil"), 1),
    "Round": (_round("roundeven"), 1),
    "Relu": (lambda x: clamp(x, 0, None), 1),
}
UNARY_FLOAT: dict[str, tuple[Callable[[Expr], Expr], int]] = {
    "Sqrt": (lambda x: call("sqrt", x), 4),
    "Reciprocal": (lambda x: 1.0 / x, 4),
    "Exp": (m.exp, 10),
    "Log": (m.log, 12),
    "Erf": (m.erf, 20),
    "Tanh": (m.tanh, 16),
    "Sigmoid": (m.sigmoid, 12),
    "Softplus": (m.softplus, 24),
    "Softsign": (lambda x: 1.0 / (call("fabs", x) + 1.0) * x, 4),
    "HardSwish": (lambda x: x * clamp(x * (1.0 / 6.0) + 0.5, 0.0, 1.0), 3),
    "Mish": (lambda x: x * m.tanh(m.softplus(x)), 40),
    "Sin": (m.sin, 30),
    "Cos": (m.cos, 30),
    "Tan": (m.tan, 60),
    "Asin": (m.asin, 60),
    "Acos": (m.acos, 60),
    "Atan": (m.atan, 50),
    "Sinh": (m.sinh, 40),
    "Cosh": (m.cosh, 40),
    "Asinh": (m.asinh, 40),
    "Acosh": (m.acosh, 40),
    "Atanh": (m.atanh, 40),
}


@op(*UNARY)
def unary(ctx: Context) -> None:
    body, cost = UNARY[ctx.node.op]
    elementwise(ctx, [ctx.input()], body, cost)


def _needs_exact_bits(ctx: Context) -> bool:
    """True if the graph quantises while it runs, so that the last bit of an activation decides about whole steps."""
    return any(node.op in ("DynamicQuantizeLinear", "DynamicQuantizedLSTM") for node in ctx.graph.nodes)


def _or_mlas(body: Callable[[Expr], Expr], other: Callable[[Expr], Expr]) -> Callable[[Expr], Expr]:
    return lambda x: other(x) if x.dtype == "f32" else body(x)


@op(*UNARY_FLOAT)
def unary_float(ctx: Context) -> None:
    floats_only(ctx)
    body, cost = UNARY_FLOAT[ctx.node.op]
    if ctx.node.op in ("Sigmoid", "Tanh") and _needs_exact_bits(ctx):
        body = _or_mlas(body, mlas.sigmoid if ctx.node.op == "Sigmoid" else mlas.tanh)
    elementwise(ctx, [ctx.input()], body, cost)


def _thresholded(x: Expr, alpha: float) -> Expr:
    """x above alpha, else 0: also for NaN. Greater than 0 is no less than the least positive number: LLVM (22,
    InstCombine) would take a maximum of x and 0 for the Relu before it, which keeps a NaN."""
    least = {"f32": 2.0**-149, "f64": 2.0**-1074}[x.dtype]
    return select(x >= least if alpha == 0 else x > alpha, x, 0.0)


# Functions with parameters: op -> (defaults, body of x and the parameters, cost).
PARAMETRIC: dict[str, tuple[dict[str, float], Callable[..., Expr], int]] = {
    "LeakyRelu": ({"alpha": 0.01}, lambda x, alpha: select(x < 0.0, x * alpha, x), 2),
    "ThresholdedRelu": ({"alpha": 1.0}, _thresholded, 2),
    "Elu": ({"alpha": 1.0}, lambda x, alpha: select(x < 0.0, m.expm1(x) * alpha, x), 16),
    "Celu": (
        {"alpha": 1.0},
        lambda x, alpha: select(x < 0.0, m.expm1(x * (1.0 / alpha if alpha else math.inf)) * alpha, x),
        16,
    ),
    "Selu": (
        {"alpha": 1.67326319217681884765625, "gamma": 1.05070102214813232421875},
        lambda x, alpha, gamma: select(x > 0.0, x, m.expm1(x) * alpha) * gamma,
        16,
    ),
    "HardSigmoid": ({"alpha": 0.2, "beta": 0.5}, lambda x, alpha, beta: clamp(x * alpha + beta, 0.0, 1.0), 3),
    "Shrink": (
        {"bias": 0.0, "lambd": 0.5},
        lambda x, bias, lambd: select(x < -lambd, x + bias, select(x > lambd, x - bias, 0.0)),
        3,
    ),
    "Swish": ({"alpha": 1.0}, lambda x, alpha: x * m.sigmoid(x * alpha), 14),
}


@op(*PARAMETRIC)
def parametric(ctx: Context) -> None:
    floats_only(ctx)
    defaults, body, cost = PARAMETRIC[ctx.node.op]
    values = {k: float(ctx.attr(k, v)) for k, v in defaults.items()}
    if ctx.node.op == "Swish" and _needs_exact_bits(ctx):
        gate = _or_mlas(m.sigmoid, mlas.sigmoid)
        body = lambda x, alpha: x * gate(x * alpha)
    elementwise(ctx, [ctx.input()], lambda x: body(x, **values), cost)


@op("Gelu")
def gelu(ctx: Context) -> None:
    floats_only(ctx)
    how = ctx.attr("approximate", "none")
    if how not in ("none", "tanh"):
        raise ctx.unsupported(f"approximate={how!r}", "'none', 'tanh'")
    elementwise(ctx, [ctx.input()], _tanh_gelu if how == "tanh" else _gelu, 24)


@op("PRelu")
def prelu(ctx: Context) -> None:
    elementwise(ctx, [ctx.input(0), ctx.input(1)], lambda x, s: select(x < 0, x * s, x), 2)


@op("Clip")
def clip(ctx: Context) -> None:
    given = [k for k in (1, 2) if ctx.has(k)]

    def body(x: Expr, *limits: Expr) -> Expr:
        found = dict(zip(given, limits, strict=True))
        return clamp(x, found.get(1), found.get(2))

    elementwise(ctx, [ctx.input(k) for k in (0, *given)], body, 2)


def _mod(fmod: bool) -> Callable[[Expr, Expr], Expr]:
    def body(a: Expr, b: Expr) -> Expr:
        if a.dtype in FLOATS:
            # Exact only while the quotient is below 2^53 (float32) or 2^24-ish ratios in float64.
            x, y = a.to("f64"), b.to("f64")
            r = fma(-call("trunc", x / y), y, x)
            r = select(call("fabs", y).eq(math.inf) & (call("fabs", x) < math.inf), x, r)
            if fmod:
                return select(r.eq(0.0), call("copysign", r, x), r).to(a.dtype)
            zero = r.eq(0.0)
            r = select(((r < 0.0) ^ (y < 0.0)) & r.ne(0.0), r + y, r)
            return select(zero, call("copysign", r, y), r).to(a.dtype)
        r = Expr("rem", (a, _divisor(b)), a.dtype)
        if fmod or a.dtype[0] == "u":
            return r
        return select(((r ^ b) < 0) & r.ne(0), r + b, r)

    return body


def _divisor(b: Expr) -> Expr:
    """An integer divisor without traps: 1 in place of 0, and of -1, which overflows for the least integer."""
    if b.op == "const":
        return b if int(b.value) not in (0, -1) else const(1, b.dtype)
    odd = b.eq(0) if b.dtype[0] == "u" else b.eq(0) | b.eq(-1)
    return select(odd, const(1, b.dtype), b)


def _div(a: Expr, b: Expr) -> Expr:
    """The quotient a / b; for integers 0 where `b` is 0."""
    if a.dtype in FLOATS:
        return a / b
    found = a / _divisor(b)
    if b.dtype[0] != "u":
        found = select(b.eq(-1), -a, found)
    return select(b.eq(0), const(0, a.dtype), found)


def _pow(x: Expr, y: Expr) -> Expr:
    if y.op == "const" and x.dtype in FLOATS:
        simple = {1.0: x, 2.0: x * x, 3.0: x * x * x, 0.5: call("sqrt", x), -1.0: 1.0 / x}
        if float(y.value) in simple:
            return simple[float(y.value)]
    found = m.power(x.to("f64"), y.to("f64"))
    if x.dtype not in FLOATS and y.dtype not in FLOATS:  # a whole number or a fraction below 1, where it is cut off
        found = found + call("copysign", const(0.25, "f64"), found)
    return found.to(x.dtype)


def _shift(ctx: Context) -> Callable[[Expr, Expr], Expr]:
    left = ctx.attr("direction") == "LEFT"

    def body(a: Expr, b: Expr) -> Expr:
        # Shifts by the width or more (negative ones count as huge) leave only copies of the sign.
        width = 8 * SIZES[a.dtype]
        ok = (b < width) & (b >= 0)
        if not left:
            return a.shr(select(ok, b, width - 1)) if a.dtype[0] == "i" else select(ok, a.shr(select(ok, b, 0)), 0)
        return select(ok, a.shl(select(ok, b, 0)), 0)

    return body


BINARY: dict[str, tuple[Callable[[Expr, Expr], Expr], int]] = {
    "Add": (lambda a, b: a + b, 1),
    "Sub": (lambda a, b: a - b, 1),
    "Mul": (lambda a, b: a * b, 1),
    "Div": (_div, 4),
    "Pow": (_pow, 40),
    "And": (lambda a, b: a & b, 1),
    "Or": (lambda a, b: a | b, 1),
    "Xor": (lambda a, b: a ^ b, 1),
    "BitwiseAnd": (lambda a, b: a & b, 1),
    "BitwiseOr": (lambda a, b: a | b, 1),
    "BitwiseXor": (lambda a, b: a ^ b, 1),
    "Equal": (lambda a, b: a.eq(b), 1),
    "Greater": (lambda a, b: a > b, 1),
    "GreaterOrEqual": (lambda a, b: a >= b, 1),
    "Less": (lambda a, b: a < b, 1),
    "LessOrEqual": (lambda a, b: a <= b, 1),
}


@op(*BINARY)
def binary(ctx: Context) -> None:
    body, cost = BINARY[ctx.node.op]
    elementwise(ctx, [ctx.input(0), ctx.input(1)], body, cost)


@op("Mod")
def mod(ctx: Context) -> None:
    elementwise(ctx, [ctx.input(0), ctx.input(1)], _mod(bool(ctx.attr("fmod", 0))), 6)


@op("BitShift")
def bit_shift(ctx: Context) -> None:
    elementwise(ctx, [ctx.input(0), ctx.input(1)], _shift(ctx), 2)


@op("Not")
def logical_not(ctx: Context) -> None:
    elementwise(ctx, [ctx.input()], lambda x: x ^ 1, 1)


@op("BitwiseNot")
def bitwise_not(ctx: Context) -> None:
    elementwise(ctx, [ctx.input()], lambda x: x ^ -1, 1)


@op("Min", "Max", "Sum", "Mean")
def variadic(ctx: Context) -> None:
    name = ctx.node.op
    fold = {"Min": minimum, "Max": maximum}.get(name, lambda a, b: a + b)

    def body(*xs: Expr) -> Expr:
        y = xs[0]
        for x in xs[1:]:
            y = fold(y, x)
        return y * (1.0 / len(xs)) if name == "Mean" else y

    elementwise(ctx, ctx.inputs(), body, len(ctx.node.inputs))


@op("Where")
def where(ctx: Context) -> None:
    elementwise(ctx, ctx.inputs(), lambda c, a, b: select(c, a, b), 1)


@op("IsNaN")
def is_nan(ctx: Context) -> None:
    elementwise(ctx, [ctx.input()], lambda x: x.ne(x), 1)


@op("IsInf")
def is_inf(ctx: Context) -> None:
    up, down = ctx.attr("detect_positive", 1), ctx.attr("detect_negative", 1)

    def body(x: Expr) -> Expr:
        p, n = x.eq(math.inf), x.eq(-math.inf)
        return p | n if up and down else p if up else n if down else const(0, "b")

    elementwise(ctx, [ctx.input()], body, 1)


@op("Cast", "CastLike")
def cast(ctx: Context) -> None:
    x, to = ctx.input(), ctx.out_dtype()
    saturate, rounding = bool(ctx.attr("saturate", 1)), str(ctx.attr("round_mode", "up"))
    cost = 12 if is_small_float(to) else 1
    ctx.define(ctx.out_shape(), to, lambda idx: convert(ctx.read(x, idx), to, saturate, rounding), x.cost + cost)


@op("BitCast")
def bit_cast(ctx: Context) -> None:
    x, to = ctx.input(), ctx.out_dtype()
    if SIZES[x.dtype] != SIZES[to]:
        raise ctx.unsupported(f"{x.dtype} as {to}", "types of equal size")

    def as_bits(e: Expr) -> Expr:
        return e.to("u8").bits(to) if e.dtype == "b" and to != "b" else e.to("b") if to == "b" else e.bits(to)

    ctx.define(ctx.out_shape(), to, lambda idx: as_bits(ctx.read(x, idx)), x.cost + 1)
