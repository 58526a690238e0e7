"""The contexts of VECTOR: the fields of each instruction that are kept for the later stages of its pipeline."""

from __future__ import annotations

from amaranth.hdl import signed
from amaranth.lib import data

from tilewright.hw.vector.lane import ADD_STAGE, REQUANTIZE_STAGE
from tilewright.hw.vector.requantizer import INSIDE_STAGE
from tilewright.isa.instructions import BY_NAME

#: Instructions the pipeline can hold, with room to spare: contexts are reused in turn. An instruction takes at least
#: CYCLES_APART cycles.
CONTEXTS, CYCLES_APART = 16, 2
#: Cycles after the step in which the contexts are there.
REQUANTIZE_CONTEXT_STAGE = REQUANTIZE_STAGE + INSIDE_STAGE - 1
FINISH_CONTEXT_STAGE = ADD_STAGE - 1


def _post_layout(*names: str) -> data.StructLayout:
    """Returns a layout of these fields of VECTOR and its configuring instructions."""
    shapes = {}
    for name in names:
        f = BY_NAME["VECTOR_ADD"].by_name.get(name) or BY_NAME["VECTOR_POST"].by_name.get(name)
        f = f or BY_NAME["VECTOR"].by_name[name]
        shapes[name] = signed(f.bits) if f.signed else f.bits
    return data.StructLayout(shapes)


#: Fields that the requantiser and the stages after it need; kept per instruction, read when a step gets there.
REQUANTIZE = _post_layout("zp", "lo", "hi", "rounding", "source")
FINISH = _post_layout("ma", "mb", "c", "shift", "add_lo", "add_hi", "add", "lut", "table")
