"""Matrix products."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tilewright.compiler.graph.ops.quantized_op import Clamped, Operands, Weighted, shape_error, weights_error
from tilewright.compiler.graph.tensor import Tensor


@dataclass(frozen=True, kw_only=True)
class QMatMul(Weighted, Clamped):
    """Matrix product: x [...,M,K], w a constant [K,N] or an activation [...,K,N], optional bias int32 [N].

    The arithmetic is QConv's.

    Attributes:
        moves: as in QConv.
    """

    moves: bool = False

    def check_product(self, x: Tensor, w: Tensor, bias: Tensor | None, result: Tensor) -> str | None:
        if len(x.shape) < 2 or len(w.shape) < 2 or x.shape[-1] != w.shape[-2]:
            return f"product of {list(x.shape)} and {list(w.shape)}"
        n = w.shape[-1]
        shape = (*np.broadcast_shapes(x.shape[:-2], w.shape[:-2]), x.shape[-2], n)
        return weights_error(w, bias, n) or shape_error(result, shape)

    def macs(self, operands: Operands, result: Tensor) -> int:
        x = operands[0]
        assert x is not None
        return 0 if self.moves else result.size * x.shape[-1]
