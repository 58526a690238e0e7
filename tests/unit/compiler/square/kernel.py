"""QSquare on the CPU. In the compiler this function would stand in `compiler/cpu/ops/quantized.py`."""

from __future__ import annotations

from tests.unit.compiler.square.op import QSquare
from tilewright.compiler.cpu.expr import Expr, Index
from tilewright.compiler.cpu.ops.quantization import saturate
from tilewright.compiler.cpu.ops.quantized import limits_of, scalar
from tilewright.compiler.cpu.ops.rules import quantized
from tilewright.compiler.cpu.stages.context import Context
from tilewright.isa import numerics


@quantized(QSquare)
def q_square(ctx: Context, op: QSquare) -> None:
    (sx, zx), (sy, zy) = scalar(ctx, ctx.node.inputs[0]), scalar(ctx, ctx.node.outputs[0])
    scale, limits = float(numerics.product_scale(sx, sx, sy)), limits_of(ctx, op)
    x, dtype = ctx.input(), ctx.out_dtype()

    def fn(idx: list[Index]) -> Expr:
        q = ctx.read(x, idx).to("i32") - zx
        return saturate((q * q).to("f32") * scale + float(zy), 0, dtype, *limits)

    ctx.define(ctx.out_shape(), dtype, fn, x.cost + 4)
