"""Proofs about the loops of GEMM and VECTOR."""

from __future__ import annotations

from verification.formal.engine import Cut
from verification.formal.issue import loop_benches
from verification.formal.proof import Proof, Property

PROOFS: tuple[Proof, ...] = (
    Proof(
        "loop_nest",
        loop_benches.loop_nest,
        False,
        14,
        (
            Property(
                "addresses",
                "`LoopNest`: an address is its base plus the sum of index * stride of all levels, in every step",
                Cut("nest.here", 12),
            ),
            Property(
                "outer",
                "`LoopNest`: an address of the outer kind takes the levels outside the group alone",
                Cut("nest.outside", 12),
            ),
            Property(
                "order",
                "`LoopNest`: a step advances the lowest level that is not at its last index, and sets those below to "
                "0; the last step is that in which none is left",
                Cut("nest.carry", 12),
            ),
            Property(
                "groups",
                "`LoopNest`: `group_first` and `group_last` are with the first and the last step of a group",
                Cut("nest.group_last_stepped", 12),
            ),
        ),
        quick=False,
    ),
)
