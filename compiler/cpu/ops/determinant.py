"""Det: elimination with partial pivoting, in float64."""

from __future__ import annotations

from compiler.cpu.expr import Index, linear
from compiler.cpu.fuse import Context
from compiler.cpu.lower import Function
from compiler.cpu.ops.elementwise import widen
from compiler.cpu.ops.registry import op


@op("Det")
def det(ctx: Context) -> None:
    """[..., n, n] -> [...]."""
    x = ctx.stored(ctx.input())
    n = x.shape[-1]
    out = ctx.temp(ctx.out_shape(), x.dtype)
    work = ctx.temp((n, n), "f64")
    variables = out.vars()
    matrix = work.vars()
    lead = [Index.of(v) for v in variables]
    value = widen(ctx.read(x, [*lead, *(Index.of(v) for v in matrix)])).to("f64")
    target, memory = ctx.buffer(out), ctx.buffer(work)
    at = lambda f, i, j: f.op(f"add nsw i64 {f.op(f'mul nsw i64 {i}, {n}')}, {j}")

    def write(f: Function) -> None:
        product, best, pivot = f.alloca("double", 1, 8), f.alloca("double", 1, 8), f.alloca("i64", 1, 8)
        with f.loops(variables):
            with f.loops(matrix):
                f.store(memory, f.index(linear([Index.of(v) for v in matrix], (n, n))), f.value(value))
            f.do(f"store double 1.0, ptr {product}")
            with f.loop(0, n) as k:
                f.do(f"store double -1.0, ptr {best}")
                f.do(f"store i64 {k}, ptr {pivot}")
                with f.loop(k, n) as i:
                    size = f.intrinsic("fabs", "double", f.load(memory, at(f, i, k)))
                    with f.when(f.op(f"fcmp ogt double {size}, {f.op(f'load double, ptr {best}')}")):
                        f.do(f"store double {size}, ptr {best}")
                        f.do(f"store i64 {i}, ptr {pivot}")
                p = f.op(f"load i64, ptr {pivot}")
                swapped = f.op(f"icmp ne i64 {p}, {k}")
                with f.when(swapped), f.loop(0, n) as j:
                    a, b = f.load(memory, at(f, k, j)), f.load(memory, at(f, p, j))
                    f.store(memory, at(f, k, j), b)
                    f.store(memory, at(f, p, j), a)
                diagonal = f.load(memory, at(f, k, k))
                signed = f.op(f"select i1 {swapped}, double {f.op(f'fneg double {diagonal}')}, double {diagonal}")
                so_far = f.op(f"load double, ptr {product}")
                f.do(f"store double {f.op(f'fmul double {so_far}, {signed}')}, ptr {product}")
                # A column of zeros makes the product zero; what is eliminated with it does not matter.
                divisor = f.op(f"select i1 {f.op(f'fcmp oeq double {diagonal}, 0.0')}, double 1.0, double {diagonal}")
                with f.loop(f.op(f"add nsw i64 {k}, 1"), n) as i:
                    factor = f.op(f"fdiv double {f.load(memory, at(f, i, k))}, {divisor}")
                    with f.loop(k, n) as j:
                        part = f.op(f"fmul double {factor}, {f.load(memory, at(f, k, j))}")
                        f.store(memory, at(f, i, j), f.op(f"fsub double {f.load(memory, at(f, i, j))}, {part}"))
            result = f.op(f"load double, ptr {product}")
            if target.dtype != "f64":
                result = f.cast(result, "f64", target.dtype)
            f.store(target, f.index(linear(lead, out.shape)), result)

    ctx.kernel(write, [out, work])
    ctx.bind(out)
