"""Tile programs: the transfers, products and VECTOR passes of an NPU step in order, each a loop nest.

Layers write a tile program, and `tilewright.compiler.npu.emit.assembler` turns it into instructions. It is a list of
integers. Every operation begins with its number of `Operation`, then come the fields that `Emitter` writes; a nest is
the number of its levels, then the levels, innermost first.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

#: A level of a nest: (count, stride, stride, ...), one stride per operand.
Loop = tuple[int, ...]
#: A level of a transfer: (count, rows of the scratchpad from one to the next, bytes of memory from one to the next).
Level = tuple[int, int, int]
ONCE: Level = (1, 0, 0)


class Place(NamedTuple):
    """A place in external memory.

    Attributes:
        region: memory region.
        offset: bytes from its start.
    """

    region: int
    offset: int


#: Fields of VECTOR_ADD, in the order of a tile program.
ADD_FIELDS = ("ma", "mb", "c", "shift")


class PostFields(NamedTuple):
    """The fields of VECTOR_POST except the table."""

    zp: int = 0
    lo: int = 0
    hi: int = 0
    add_lo: int = 0
    add_hi: int = 0
    za: int = 0
    zb: int = 0


class Operation(IntEnum):
    """The kinds of operations; each is a method of `Emitter`, except LOAD_PACKED, which `load` writes, and RUN, an
    instruction given as its bits."""

    LOAD = 0
    LOAD_CODED = 1
    FILL = 2
    STORE = 3
    GEMM = 4
    DEPTHWISE = 5
    VECTOR = 6
    VECTOR_WIDE = 7
    ROW = 8
    RUN = 9
    LOAD_PACKED = 10
