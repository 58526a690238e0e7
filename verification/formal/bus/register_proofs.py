"""Proofs about the registers and the reset."""

from __future__ import annotations

from verification.formal.bus import register_benches
from verification.formal.engine import Cut
from verification.formal.proof import Proof, Property

PROOFS: tuple[Proof, ...] = (
    Proof(
        "register_writes",
        register_benches.writes,
        True,
        1,
        (
            Property(
                "together",
                "AXI4-Lite: address and data of a write are taken in the same cycle",
                Cut("registers.axil__w__ready"),
            ),
            Property(
                "b_stable",
                "AXI4-Lite, B: valid stays until ready; the response is OKAY",
                Cut("registers.axil__b__valid", 60),
            ),
            Property(
                "b_answers",
                "AXI4-Lite, B: a response for every write, in the cycle after it is taken; one write at a time",
                Cut("registers.axil__b__valid", 60),
            ),
        ),
    ),
    Proof(
        "register_reads",
        register_benches.reads,
        False,
        60,
        (
            Property(
                "r_stable",
                "AXI4-Lite, R: valid stays until ready, data do not change; the response is OKAY",
                Cut("registers.axil__r__data", 60),
            ),
            Property(
                "r_answers",
                "AXI4-Lite, R: one answer for each address taken, none before it, and no other address before that",
                Cut("registers.axil__r__valid", 60),
            ),
        ),
    ),
    Proof(
        "reset",
        register_benches.reset,
        True,
        2,
        (
            Property(
                "quiet",
                "NPU: no VALID in the first cycle, nor in and after the third of a reset, whatever the state before",
                Cut("npu.axil__b__valid", 5),
            ),
        ),
        quick=False,
    ),
)  # fmt: skip
