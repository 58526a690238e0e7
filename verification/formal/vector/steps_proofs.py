"""Proofs about the steps of VECTOR."""

from __future__ import annotations

import functools

from verification.formal.engine import Cut
from verification.formal.proof import Proof, Property
from verification.formal.vector import steps_benches

_PROPERTIES = (
    Property(
        "reads",
        "VECTOR: a step asks for row a of ACC or ACT, and for b where MUL or Add makes a row, until granted; a "
        "before b where both are in one bank; and for nothing else",
        Cut("steps.works"),
    ),
    Property(
        "steps",
        "VECTOR: a step is made, pass by pass, in the cycle in which its last read is granted; VECTOR_SYNC is one "
        "without reads",
        Cut("steps.works"),
    ),
    Property(
        "rows",
        "VECTOR: a step makes a row unless it is one of a sum or maximum before the last of its group, and names its "
        "first step, the row and PRM of the nest",
        Cut("steps.result"),
    ),
    Property(
        "nest",
        "VECTOR: the nest has the loops, the first rows and the levels of a group of the instruction, and goes on once "
        "for every step",
        Cut("steps.works"),
    ),
    Property(
        "end",
        "VECTOR: an instruction ends with the last step of its nest, once, and the next one may start then",
        Cut("steps.works"),
    ),
    Property(
        "range",
        "VECTOR: of a, b, PRM and dst, the first used by a step and beyond its memory is reported a cycle after it",
        Cut("steps.row0"),
    ),
)

_MACHINES = (
    ("vector_steps", steps_benches.WHOLE),
    ("vector_steps_passes", steps_benches.PASSES),
    ("vector_steps_wide", steps_benches.WIDE),
)
PROOFS: tuple[Proof, ...] = (
    *(
        Proof(name, functools.partial(steps_benches.steps, config=config), True, 1, _PROPERTIES)
        for name, config in _MACHINES
    ),
    Proof(
        "vector_steps_row",
        functools.partial(steps_benches.steps, config=steps_benches.ROWS),
        True,
        1,
        (
            *_PROPERTIES,
            Property(
                "kept",
                "ROW: what a ROW before has kept (MAX, the scale in PRM, STAT) is there when it is asked for",
                Cut("steps.writes", 27),
            ),
        ),
    ),
)
