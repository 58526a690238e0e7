"""One rule per operator: from a node to expressions and stages. Modules by operator family."""

from __future__ import annotations

from compiler.cpu.ops import (  # noqa: F401  (each registers its operators)
    bounded,
    convolution,
    determinant,
    einsum,
    elementwise,
    indexing,
    integer,
    layout,
    matmul,
    movement,
    normalization,
    pooling,
    quantization,
    quantized,
    recurrent,
    reduction,
    regions,
    resize,
    sampling,
    trees,
)
from compiler.cpu.ops.rules import RULES

__all__ = ["RULES"]
