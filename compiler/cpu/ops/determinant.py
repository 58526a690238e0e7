"""Det: elimination with partial pivoting, in float64."""

from __future__ import annotations

from tilewright.compiler.cpu.expr import Index, linear
from tilewright.compiler.cpu.ir.casts import cast
from tilewright.compiler.cpu.ir.writer import Operand
from tilewright.compiler.cpu.loops.function import Function
from tilewright.compiler.cpu.ops.elementwise import widen
from tilewright.compiler.cpu.ops.rules import op
from tilewright.compiler.cpu.stages.context import Context


@op("Det")
def det(ctx: Context) -> None:
    """Computes determinants: [..., n, n] -> [...]."""
    x = ctx.stored(ctx.input())
    n = x.shape[-1]
    out = ctx.temp(ctx.out_shape(), x.dtype)
    work = ctx.temp((n, n), "f64")
    variables = out.vars()
    matrix = work.vars()
    lead = [Index.of(v) for v in variables]
    value = widen(ctx.read(x, [*lead, *(Index.of(v) for v in matrix)])).to("f64")
    target, memory = ctx.buffer(out), ctx.buffer(work)
    zero, one = Operand("0.0", "double"), Operand("1.0", "double")

    def write(f: Function) -> None:
        entry = lambda i, j: f.read(memory, f.add(f.mul(i, n), j))
        put = lambda i, j, v: f.write(memory, f.add(f.mul(i, n), j), v)
        product, best, pivot = f.alloca("double", 1, 8), f.alloca("double", 1, 8), f.alloca("i64", 1, 8)
        with f.loops(variables):
            with f.loops(matrix):
                f.write(memory, f.index(linear([Index.of(v) for v in matrix], (n, n))), f.value(value))
            f.store(one, product)
            with f.loop(0, n) as k:
                f.store(Operand("-1.0", "double"), best)
                f.store(k, pivot)
                with f.loop(k, n) as i:
                    size = f.intrinsic("fabs", entry(i, k))
                    with f.when(f.fcmp("ogt", size, f.load("double", best))):
                        f.store(size, best)
                        f.store(i, pivot)
                p = f.load("i64", pivot)
                swapped = f.icmp("ne", p, k)
                with f.when(swapped), f.loop(0, n) as j:
                    a, b = entry(k, j), entry(p, j)
                    put(k, j, b)
                    put(p, j, a)
                diagonal = entry(k, k)
                signed = f.select(swapped, f.fneg(diagonal), diagonal)
                f.store(f.fmul(f.load("double", product), signed), product)
                # A column of zeros makes the product zero, so its eliminated elements do not matter.
                divisor = f.select(f.fcmp("oeq", diagonal, zero), one, diagonal)
                with f.loop(f.add(k, 1), n) as i:
                    factor = f.fdiv(entry(i, k), divisor)
                    with f.loop(k, n) as j:
                        part = f.fmul(factor, entry(k, j))
                        at = f.add(f.mul(i, n), j)
                        f.write(memory, at, f.fsub(entry(i, j), part))
            result = f.load("double", product)
            if target.dtype != "f64":
                result = cast(f, result, "f64", target.dtype)
            f.write(target, f.index(linear(lead, out.shape)), result)

    ctx.kernel(write, [out, work])
    ctx.bind(out)
