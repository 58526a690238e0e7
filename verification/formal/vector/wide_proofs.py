"""Proofs about VECTOR_WIDE."""

from __future__ import annotations

import functools

from verification.formal.engine import Cut
from verification.formal.proof import Proof, Property
from verification.formal.vector import wide_benches

PROOFS: tuple[Proof, ...] = (
    Proof(
        "wide_requantizer",
        wide_benches.requantizer,
        False,
        13,
        (
            Property(
                "result",
                "VECTOR_WIDE: the byte of clamp(round((v + h * 2**32) * m / 2**t), low, high), ties upwards, in "
                "wrapping 48 bits",
                Cut("part.fine", 13),
            ),
        ),
        quick=False,
    ),
    *(
        Proof(
            name,
            functools.partial(wide_benches.sums, passes=passes),
            False,
            10,
            (
                Property(
                    "value",
                    "VECTOR_WIDE: a lane gives it the sum of ACC since the group began, shifted left by 8 before each "
                    "further row, plus the bias, in wrapping 48 bits",
                    Cut("lane.wide5"),
                ),
            ),
        )
        for name, passes in (("wide_sums", 1), ("wide_sums_passes", 2))
    ),
)
