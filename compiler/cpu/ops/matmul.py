"""MatMul, Gemm, MatMulInteger: the register-tiled kernels for float32 and int8, plain reductions for other types."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tilewright.compiler.cpu.expr import Expr, Index, Rewriter, Var, can_merge, const, linear, reduce
from tilewright.compiler.cpu.microkernels.gemm import Domain, Gemm, PanelOperand, RowOperand, pack_panels
from tilewright.compiler.cpu.ops.elementwise import HALVES, widen
from tilewright.compiler.cpu.ops.rules import op
from tilewright.compiler.cpu.stages.context import Context
from tilewright.compiler.cpu.stages.value import Value


def batch_index(v: Value, batch: Sequence[Index], tail: Sequence[Index]) -> list[Index]:
    """The index of an operand whose leading dimensions broadcast to `batch`."""
    own = v.shape[: v.rank - len(tail)]
    lead = list(batch)[len(batch) - len(own) :]
    return [Index(0) if n == 1 else i for i, n in zip(lead, own)] + list(tail)


def split_matmul(shared_b: bool) -> Callable[[list[Var], Expr, Index], Domain]:
    """A splitter of [batch..., m, n]; with one B for all, leading dimensions are more rows where accesses allow."""

    def split(variables: list[Var], body: Expr, offset: Index) -> Domain:
        *batch, m, n = variables
        while (
            shared_b and batch and (m.extent == 1 or batch[-1].extent == 1 or can_merge(batch[-1], m, [body], offset))
        ):
            a = batch.pop()
            joined = Var.new(a.extent * m.extent)
            one = Index.of(joined)
            rewrite = Rewriter({a: one, m: Index(0)} if m.extent == 1 else {a: Index(0), m: one})
            body, offset, m = rewrite(body), rewrite.index(offset), joined
        return Domain(batch, m, Var.new(1), n, body, offset)

    return split


def matmul_value(ctx: Context, a: Value, b: Value, shape: tuple[int, ...], b_const: np.ndarray | None) -> Value:
    """The float32 `a @ b` as an accumulator. a [..., M, K], b [..., K, N]; `b_const` where b is a constant matrix."""
    k, _n = b.shape[-2:]
    a_buffer = ctx.buffer(a)
    batch_shape = shape[:-2]
    m = shape[-2]
    shared = b_const is not None or all(x == 1 for x in b.shape[:-2])
    # Leading dimensions join the rows only if A itself is contiguous over all of them.
    whole = shared and int(np.prod(a.shape[:-1])) == int(np.prod(batch_shape)) * m

    def a_offset(batch: Sequence[Var]) -> Index:
        if not batch:
            return Index(0)
        lead = [Index.of(v) for v in batch]
        lead += [Index(0)] * (len(batch_shape) - len(lead))
        return linear(batch_index(a, lead, [Index(0), Index(0)]), a.shape)

    rows = RowOperand(a_buffer, a_offset, k)
    kind = "float32 product" if b_const is None else "float32 product with a constant"
    schedule = ctx.gemm_schedule(kind, int(np.prod(shape[:-1])) if whole else m, k, shape[-1:])
    if b_const is not None:
        data = ctx.constant(
            pack_panels(b_const, schedule.vectors * ctx.target.lanes) if not ctx.dry else b_const[:0], stem="panels"
        )
        panels = ctx.buffer(data)
        gemm = Gemm(k, rows, PanelOperand(panels), split_matmul(whole), schedule)
    else:
        source = b if b.buffer is not None or (b.cost <= 2 and b.acc is None) else ctx.stored(b)

        def fill(batch: Sequence[Var], r: Index, c: Index) -> list[tuple[list[Var], Expr, Index]]:
            kv = Var.new(k)
            lead = [Index.of(v) for v in batch] + [Index(0)] * (len(batch_shape) - len(batch))
            return [([kv], ctx.read(source, batch_index(b, lead, [Index.of(kv), c])), Index.of(kv))]

        gemm = Gemm(k, rows, fill, split_matmul(whole), schedule)
    return Value(shape, "f32", acc=gemm, cost=3, label=ctx.node.op)


def matmul_generic(ctx: Context, a: Value, b: Value, shape: tuple[int, ...]) -> Callable[[list[Index]], Expr]:
    """The product for any element type, as a reduction."""
    k = b.shape[-2]
    ctx.buffer(a), ctx.buffer(b)

    def fn(idx: list[Index]) -> Expr:
        *batch, m, n = idx
        v = Var.new(k)
        x = widen(ctx.read(a, batch_index(a, batch, [m, Index.of(v)])))
        y = widen(ctx.read(b, batch_index(b, batch, [Index.of(v), n])))
        return reduce("add", [v], x * y, 0).to(ctx.out_dtype())

    return fn


def promoted(ctx: Context, v: Value, shape: tuple[int, ...]) -> Value:
    """Reshapes a value by adding unit dimensions; the elements stay."""
    if v.shape == shape:
        return v
    if v.buffer is None and v.acc is None and v.fn is not None and v.size == 1:
        fn = v.fn
        return Value(shape, v.dtype, fn=lambda idx: fn([Index(0)] * v.rank), cost=v.cost)
    return Value(shape, v.dtype, ctx.buffer(v))


@op("MatMul")
def matmul(ctx: Context) -> None:
    a, b, out = ctx.input(0), ctx.input(1), ctx.out_shape()
    b_const = ctx.graph.const(ctx.node.inputs[1])
    shape = list(out)
    if a.rank == 1:
        a = promoted(ctx, a, (1, *a.shape))
        shape.insert(len(out) - (b.rank > 1), 1)
    if b.rank == 1:
        b = promoted(ctx, b, (*b.shape, 1))
        shape.append(1)
        b_const = None
    full = tuple(shape)
    if a.shape[-1] == 0 or a.dtype != "f32":
        y = ctx.lazy(full, ctx.out_dtype(), matmul_generic(ctx, a, b, full), 1000)
    else:
        y = matmul_value(ctx, a, b, full, b_const if b_const is not None and b_const.ndim == 2 else None)
    if full == out:
        ctx.bind(y)
    else:
        ctx.alias(ctx.stored(y), out)


@op("Gemm")
def gemm(ctx: Context) -> None:
    a, b, out = ctx.input(0), ctx.input(1), ctx.out_shape()
    alpha, beta = float(ctx.attr("alpha", 1.0)), float(ctx.attr("beta", 1.0))
    b_const = ctx.graph.const(ctx.node.inputs[1])
    if ctx.attr("transA", 0):
        source = ctx.stored(a)
        a = ctx.lazy(a.shape[::-1], a.dtype, lambda idx: ctx.read(source, idx[::-1]))
    if ctx.attr("transB", 0):
        original = ctx.stored(b) if b_const is None else b
        b = ctx.lazy(b.shape[::-1], b.dtype, lambda idx: ctx.read(original, idx[::-1]))
        b_const = None if b_const is None else b_const.T
    if a.dtype == "f32" and a.shape[1] > 0:
        y = matmul_value(ctx, a, b, out, b_const)
    else:
        y = ctx.stored(ctx.lazy(out, ctx.out_dtype(), matmul_generic(ctx, a, b, out), 1000))
    c = ctx.input(2) if ctx.has(2) and beta != 0 else None
    dtype = ctx.out_dtype()

    def fn(idx: list[Index]) -> Expr:
        e = widen(ctx.read(y, idx))
        if alpha != 1.0:
            e = e * const(alpha if e.dtype[0] == "f" else int(alpha), e.dtype)
        if c is not None:
            extra = widen(ctx.read_broadcast(c, idx))
            e = e + (extra if beta == 1.0 else extra * const(beta if e.dtype[0] == "f" else int(beta), e.dtype))
        return e.to(dtype)

    assert dtype not in HALVES or y.buffer is not None
    ctx.define(out, dtype, fn, 3)
