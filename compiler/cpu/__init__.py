"""CPU kernels: nodes of a graph compiled to native code by LLVM.

`compile_segment` turns nodes into one relocatable object with one entry point,
`void symbol(uint8_t **buffers, uint8_t *workspace)`; `prepare_segment` and `compiled_beside` do so in two steps, so
that LLVM works while something else is done. `load` makes it callable in this process.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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

#: Where each name is, imported when it is asked for: who loads kernels, or asks which machine this is, need not wait
#: for the compiler of kernels.
_HOMES = {
    "PackedConstants": "stages.context",
    "Segment": "segment",
    "Target": "target",
    "compile_segment": "segment",
    "compiled_beside": "segment",
    "load": "object.loader",
    "prepare_segment": "segment",
    "unsupported_reason": "segment",
}

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


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """A name of `_HOMES`."""
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = globals()[name] = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
        return found
