"""CPU kernels: nodes of a graph compiled to native code by LLVM.

`compile_segment` turns nodes into one relocatable object with one entry point,
`void symbol(uint8_t **buffers, uint8_t *workspace)`; `prepare_segment` and `compiled_beside` do so in two steps, so
that LLVM works while something else is done. `load` makes it callable in this process.
"""

from __future__ import annotations

from tilewright.compiler.cpu.object.loader import load
from tilewright.compiler.cpu.segment import (
    Segment,
    compile_segment,
    compiled_beside,
    prepare_segment,
    unsupported_reason,
)
from tilewright.compiler.cpu.stages.context import PackedConstants
from tilewright.compiler.cpu.target import Target

__all__ = [
    "PackedConstants",
    "Segment",
    "Target",
    "compile_segment",
    "compiled_beside",
    "load",
    "prepare_segment",
    "unsupported_reason",
]
