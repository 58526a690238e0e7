"""CPU kernels: nodes of a graph compiled to native code by LLVM.

`compile_segment` turns nodes into one relocatable object with one entry point,
`void symbol(uint8_t **buffers, uint8_t *workspace)`; `load` makes it callable in this process.
"""

from __future__ import annotations

from compiler.cpu.object.loader import load
from compiler.cpu.segment import Segment, compile_segment, unsupported_reason
from compiler.cpu.stages.context import PackedConstants
from compiler.cpu.target import Target

__all__ = ["PackedConstants", "Segment", "Target", "compile_segment", "load", "unsupported_reason"]
