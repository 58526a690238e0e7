"""Proofs about VECTOR around its steps and lanes."""

from __future__ import annotations

import functools

from verification.formal.engine import Cut
from verification.formal.proof import Proof, Property
from verification.formal.vector import benches, steps_benches

_PROPERTIES = (
    Property(
        "parameters",
        "VECTOR: in every stage of a step the lanes are told what its instruction says, and what was configured before "
        "it started",
        Cut("vector.window_13", 20),
    ),
    Property(
        "valid",
        "VECTOR: lanes sum, and keep, what a step gives them, unless one of its rows is beyond its memory",
        Cut("vector.makes_1"),
    ),
    Property(
        "operands",
        "VECTOR: the lanes get the rows that were read for the step, in its passes one after the other; of ACC and a "
        "the one that is not the source is 0",
        Cut("vector.operands.takes_a", 10),
    ),
    Property(
        "prm",
        "VECTOR: bias and scale are those of the step's row of PRM; no bias where the source uses none",
        Cut("vector.prm_1", 12),
    ),
    Property(
        "table", "VECTOR: a step that makes a row reads the table of its instruction", Cut("vector.results_19", 25)
    ),
    Property(
        "write",
        "VECTOR: a step that makes a row writes what the lanes make of it to the row it names, once; nothing else is "
        "written",
        Cut("vector.results_21", 27),
    ),
    Property(
        "retire",
        "VECTOR: an instruction retires once, in order, with its signals, so long after its last step that the steps "
        "they allow come behind its last write",
        Cut("vector.end_19"),
    ),
)

#: With two passes: four take longer than the depth holds twice.
_PASSES = steps_benches.PASSES.with_(vector_passes=2)

PROOFS: tuple[Proof, ...] = tuple(
    Proof(name, functools.partial(benches.whole, config=config), False, cycles, _PROPERTIES, quick=False)
    for name, config, cycles in (
        ("vector", steps_benches.WHOLE, 28),
        ("vector_passes", _PASSES, 30),
        ("vector_row", steps_benches.ROWS, 28),
        ("vector_wide", steps_benches.WIDE, 28),
    )
)
